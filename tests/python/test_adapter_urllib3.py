"""adapters.urllib3 with the real urllib3 on a loopback provider."""

from __future__ import annotations

import gc
import pickle
import typing

import pytest

import fivegates
from fivegates.testing import ManualClock

from .conftest import UNIX_MS, Handler, Provider

urllib3 = pytest.importorskip("urllib3", minversion="2")

from fivegates.adapters.urllib3 import EngineRetry, MaxRetryRefused  # noqa: E402

FACTS: "dict[str, typing.Any]" = {"prompt_tokens": 900, "stream": False,
                                  "max_output_tokens": 300}


class Rig:
    def __init__(self, provider: Provider,
                 card: "dict[str, typing.Any]") -> None:
        self.provider = provider
        self.clock = ManualClock(unix_ms=UNIX_MS)
        for name, most in (("bare", 2), ("w", 4)):
            card["workflows"][name]["budget"] = {
                "total_attempts": most, "extra_tokens": 100000,
                "extra_cost_usd": 10}
        policy = fivegates.Policy.loads(card, auto_fingerprint=True)
        self.engine = fivegates.Engine(policy, seed=1, clock=self.clock)
        self.heard: "list[fivegates.Decision]" = []
        self.http = urllib3.PoolManager()

    def retries(self, workflow: str = "bare", **more: typing.Any) -> EngineRetry:
        return EngineRetry(self.engine, workflow, sleep=self.clock.sleep,
                           on_decision=lambda d, c: self.heard.append(d),
                           **{**FACTS, **more})

    def post(self, path: str, retries: EngineRetry,
             **more: typing.Any) -> typing.Any:
        return self.http.request("POST", self.provider.url + path, json={},
                                 headers=retries.attempt.headers,
                                 retries=retries, **more)

    @property
    def modes(self) -> "list[str]":
        return [mode for mode, _, _ in self.provider.seen]


@pytest.fixture
def rig(provider: Provider,
        card: "dict[str, typing.Any]") -> "typing.Iterator[Rig]":
    out = Rig(provider, card)
    yield out
    out.http.clear()


def test_success(rig: Rig) -> None:
    retries = rig.retries()
    got = rig.post("/ok/x", retries, timeout=retries.timeout())
    assert got.status == 200 and got.json()["choices"]
    assert [d.action for d in rig.heard] == ["proceed", "proceed", "accept"]
    assert rig.engine.route("main")["successes"] == 1
    assert rig.provider.seen[0][1]["x-client-request-id"] == retries.call.id


def test_a_post_is_sent_again_after_our_wait(rig: Rig) -> None:
    with pytest.raises(MaxRetryRefused) as caught:
        rig.post("/503/x", rig.retries())
    assert rig.modes == ["503", "503"]  # POST, and not urllib3's ten
    first, = [d for d in rig.heard if d.action == "retry"]
    assert rig.clock.slept == [first.wait_ms / 1000] and first.wait_ms > 0
    assert isinstance(caught.value, urllib3.exceptions.MaxRetryError)
    assert isinstance(caught.value, fivegates.Refused)
    assert caught.value.decision.action == "fail_closed"
    assert caught.value.call is not None
    assert "503" in str(caught.value.reason)
    assert "503" in str(caught.value) and "fail_closed" in str(caught.value)
    assert caught.value.__cause__ is caught.value.reason


def test_the_wait_is_the_servers(rig: Rig) -> None:
    """Retry-After of a 429, read with the body by the engine."""
    with pytest.raises(MaxRetryRefused):
        rig.post("/429/x", rig.retries())
    assert rig.modes == ["429", "429"]
    assert 1 <= rig.clock.slept[0] < 3
    assert {d.owner for d in rig.heard if d.action == "retry"} == {"rate"}


class Empty(Handler):
    def error(self, status: int, messages: bool) -> None:
        self.send_json(status, {"error": {"code": "insufficient_quota"}}, {})


@pytest.mark.parametrize("preload", [True, False])
def test_the_body_is_read(rig: Rig, preload: bool) -> None:
    """An account without money answers 429 too; only the body tells."""
    rig.provider.RequestHandlerClass = Empty
    with pytest.raises(MaxRetryRefused) as caught:
        rig.post("/429/x", rig.retries(), preload_content=preload)
    assert rig.modes == ["429"]
    assert caught.value.decision.owner == "quota"


def test_the_last_answer_instead(rig: Rig) -> None:
    retries = rig.retries(raise_on_status=False)
    got = rig.post("/400/x", retries)
    assert got.status == 400 and b"fault 400" in got.data
    assert got.retries.refused is retries.refused is not None
    assert retries.refused.decision.reason == "request_invalid"


def test_reset(rig: Rig) -> None:
    """Sent, nothing came back: an interactive call has no stand-in here."""
    with pytest.raises(MaxRetryRefused) as caught:
        rig.post("/reset/x", rig.retries())
    assert rig.modes == ["reset"]
    assert isinstance(caught.value.reason, urllib3.exceptions.ProtocolError)


def test_never_sent_is_tried_again(rig: Rig, closed_port: int) -> None:
    retries = rig.retries()
    with pytest.raises(MaxRetryRefused) as caught:
        rig.http.request("POST", f"http://127.0.0.1:{closed_port}/",
                         retries=retries)
    assert isinstance(caught.value.reason,
                      urllib3.exceptions.NewConnectionError)
    assert len([d for d in rig.heard if d.action == "retry"]) == 1
    assert rig.engine.route("main")["in_flight"] == 0


def test_a_stand_in_is_out_of_reach(rig: Rig) -> None:
    with pytest.raises(MaxRetryRefused) as caught:
        rig.post("/503/x", rig.retries("w"))
    assert rig.modes == ["503", "503"]
    assert rig.engine.route("backup")["attempts"] == 0
    assert caught.value.decision.action == "fail_closed"


def test_permission_comes_before_the_first_send(rig: Rig) -> None:
    with pytest.raises(MaxRetryRefused):
        rig.post("/401/x", rig.retries())
    with pytest.raises(fivegates.Refused) as caught:
        rig.retries()
    assert caught.value.decision.rejected == [
        {"route": "main", "why": "key_latched"}]
    assert rig.modes == ["401"]


def test_permission_is_asked_after_the_wait(rig: Rig) -> None:
    """Between the decision and the send another call's key was rejected."""
    def sleep(seconds: float) -> None:
        rig.clock.sleep(seconds)
        other = rig.engine.begin("bare", **FACTS)
        other.begin_attempt()
        other.failure({"phase": "response", "status": 401,
                       "body": '{"error": {"code": "invalid_api_key"}}'})

    retries = EngineRetry(rig.engine, "bare", sleep=sleep, **FACTS)
    with pytest.raises(MaxRetryRefused) as caught:
        rig.post("/503/x", retries)
    assert rig.modes == ["503"]
    assert caught.value.decision.rejected == [
        {"route": "main", "why": "key_latched"}]


def test_one_for_each_request(rig: Rig) -> None:
    retries = rig.retries()
    rig.post("/ok/x", retries)
    with pytest.raises(fivegates.StateError, match="one for each"):
        rig.http.request("POST", rig.provider.url + "/ok/x", json={},
                         retries=retries)
    with pytest.raises(fivegates.StateError, match="no attempt"):
        retries.attempt


def test_new_keeps_the_call(rig: Rig) -> None:
    retries = rig.retries()
    later = retries.new(total=7, history=())
    assert type(later) is EngineRetry and later is not retries
    assert later.total == 7 and retries.total is None
    assert later.call is retries.call and later.attempt is retries.attempt


def test_to_another_process(rig: Rig) -> None:
    with pytest.raises(MaxRetryRefused) as caught:
        rig.post("/400/x", rig.retries())
    again = pickle.loads(pickle.dumps(caught.value))
    assert isinstance(again, fivegates.Refused)
    assert again.decision.reason == "request_invalid"


def test_a_full_pool_passes_unseen(rig: Rig) -> None:
    """No hook hears of it: the call is dropped, and nobody is blamed."""
    with urllib3.HTTPConnectionPool("127.0.0.1", rig.provider.server_port,
                                    maxsize=1, block=True) as pool:
        taken = pool._get_conn()
        with pytest.raises(urllib3.exceptions.EmptyPoolError):
            pool.urlopen("POST", "/ok/x", retries=rig.retries(),
                         pool_timeout=0.01)
        pool._put_conn(taken)
    gc.collect()
    route = rig.engine.route("main")
    assert route["in_flight"] == route["failures"] == 0
    assert rig.modes == []


def test_interrupted(rig: Rig) -> None:
    def sleep(seconds: float) -> None:
        raise KeyboardInterrupt

    retries = EngineRetry(rig.engine, "bare", sleep=sleep, **FACTS)
    with pytest.raises(KeyboardInterrupt):
        rig.post("/503/x", retries)
    assert retries.call.decision.reason == "client_gone"
    assert rig.modes == ["503"]


class Moved(Handler):
    def error(self, status: int, messages: bool) -> None:
        self.send_json(status, {}, {"Location": self.server.url + "/ok/x"})


@pytest.mark.parametrize("raises", [True, False])
@pytest.mark.parametrize("again", [True, False])
def test_redirects_are_not_followed(provider: Provider,
                                    card: "dict[str, typing.Any]",
                                    raises: bool, again: bool) -> None:
    """Not even where the card takes them for something that passes."""
    provider.RequestHandlerClass = Moved
    if again:
        card["classify"] = [{"when": {"status": 307},
                             "then": {"owner": "transient"}}]
    rig = Rig(provider, card)
    retries = rig.retries(raise_on_status=raises)
    if raises:
        with pytest.raises(urllib3.exceptions.MaxRetryError):
            rig.post("/307/x", retries)
    else:
        assert rig.post("/307/x", retries).status == 307
    assert rig.modes == ["307"]
    assert rig.engine.route("main")["in_flight"] == 0
    rig.http.clear()
