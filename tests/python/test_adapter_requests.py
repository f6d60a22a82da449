"""adapters.requests with the real requests on two loopback providers."""

from __future__ import annotations

import contextlib
import json
import threading
import time
import typing

import pytest

import fivegates
from fivegates.testing import ManualClock

from .conftest import UNIX_MS, Handler, Provider

requests = pytest.importorskip("requests")

from fivegates.adapters.requests import EngineAdapter  # noqa: E402

CHAT = {"model": "m1", "max_tokens": 300,
        "messages": [{"role": "user", "content": "x"}]}
STREAM = {**CHAT, "stream": True}


def serving() -> "typing.Iterator[Provider]":
    """A second provider: another host, with its own log."""
    server = Provider()
    thread = threading.Thread(target=server.serve_forever,
                              kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def wait_for(server: Provider, mode: str) -> bool:
    """Whether a server saw it, at once or a little later."""
    for _ in range(100):
        if mode in [one for one, _, _ in server.seen]:
            return True
        time.sleep(0.01)
    return False


class Server(Handler):
    """Streams that end before their first content, or pause, besides."""

    late = False

    def part(self, text: str) -> None:
        super().part(text)
        if self.late and "three" in text:
            self.wfile.flush()
            time.sleep(0.05)

    def answer(self, mode: str, body: "dict[str, typing.Any]") -> None:
        if mode == "early":  # an error event ahead of any content
            self.raw_stream('data: {"error": {"code": "server_error", '
                            '"message": "overloaded"}}\n\n')
        elif mode == "empty":
            self.raw_stream("")
        elif mode == "lone":  # no chunks: ends with the connection
            text = "".join(self.chat_lines())
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(text.encode())
            self.close_connection = True
        elif mode.startswith("late-"):  # what comes after is not read at once
            self.late = True
            super().answer(mode[5:], body)
        elif mode == "stuck":  # an error event, and then nothing more
            self.raw_head()
            self.part('data: {"error": {"code": "server_error"}}\n\n')
            self.wait()
        elif mode == "never":
            self.wait()
        elif mode == "noise":
            self.raw_stream('{"choices": [')
        elif mode == "inband":
            self.send_json(200, {"error": {"code": "insufficient_quota"}}, {})
        elif mode == "moved":
            self.send_json(307, {}, {"Location": self.server.url + "/ok/x"})
        else:
            super().answer(mode, body)

    def wait(self) -> None:
        """Until the client hangs up, or for long."""
        self.wfile.flush()
        self.connection.settimeout(3)
        with contextlib.suppress(OSError):
            over = self.connection.recv(1) == b""
            self.server.seen.append(("gone" if over else "more", {}, {}))
        self.close_connection = True

    def raw_head(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def raw_stream(self, text: str) -> None:
        self.raw_head()
        self.part(text)
        self.wfile.write(b"0\r\n\r\n")


@pytest.fixture
def other_provider() -> "typing.Iterator[Provider]":
    yield from serving()


class Rig:
    def __init__(self, card: "dict[str, typing.Any]", main: Provider,
                 backup: Provider, path: str) -> None:
        self.main, self.backup = main, backup
        self.url = f"{main.url}{path}/v1/chat/completions"
        self.clock = ManualClock(unix_ms=UNIX_MS)
        card["routes"]["main"]["base_url"] = f"{main.url}{path}/v1"
        card["routes"]["backup"].update(
            base_url=f"{backup.url}/ok/v1", model="m2", provider="openai")
        card["workflows"]["w"]["budget"] = {"extra_tokens": 100000,
                                            "extra_cost_usd": 10}
        policy = fivegates.Policy.loads(card, auto_fingerprint=True)
        self.engine = fivegates.Engine(policy, seed=1, clock=self.clock)
        self.heard: "list[fivegates.Decision]" = []
        self.session = requests.Session()

    def mount(self, workflow: str = "w", **more: typing.Any) -> typing.Any:
        options: "dict[str, typing.Any]" = {
            "keys": {"backup": "key-b"}, "sleep": self.clock.sleep,
            "on_decision": lambda d, c: self.heard.append(d), **more}
        self.session.mount(self.main.url + "/", EngineAdapter(
            self.engine, workflow, **options))
        return self

    def post(self, body: "dict[str, typing.Any]", **more: typing.Any) -> typing.Any:
        return self.session.post(self.url, json=body, headers={
            "Authorization": "Bearer key-a", "Cookie": "c=1"}, **more)

    def modes(self, provider: Provider) -> "list[str]":
        return [mode for mode, _, _ in provider.seen]


@pytest.fixture
def make(card: "dict[str, typing.Any]", provider: Provider,
         other_provider: Provider) -> "typing.Iterator[typing.Callable[[str], Rig]]":
    made: "list[Rig]" = []
    provider.RequestHandlerClass = Server

    def build(mode: str) -> Rig:
        made.append(Rig(card, provider, other_provider, "/" + mode))
        return made[-1]

    yield build
    for rig in made:
        rig.session.close()


def text_of(lines: "typing.Iterable[bytes]") -> str:
    out = ""
    for line in lines:
        if line.startswith(b"data: {"):
            for choice in json.loads(line[6:])["choices"]:
                out += choice["delta"].get("content", "")
    return out


def test_whole(make: typing.Any) -> None:
    rig = make("ok").mount()
    got = rig.post(CHAT)
    assert got.json()["choices"][0]["message"]["content"] == "hello"
    assert [d.action for d in rig.heard] == ["proceed", "proceed", "accept"]
    (_, headers, body), = rig.main.seen
    assert headers["authorization"] == "Bearer key-a"
    assert headers["x-request-attempt"] == "1"
    assert body["model"] == "m1"  # the card's
    assert rig.engine.route("main")["tokens"] == 12  # usage was read


def test_falls_back_with_its_own_host_key_and_model(make: typing.Any) -> None:
    rig = make("503").mount()
    got = rig.post(CHAT)
    assert got.status_code == 200
    assert rig.modes(rig.main) == ["503", "503"]
    (_, headers, body), = rig.backup.seen
    assert headers["authorization"] == "Bearer key-b"
    assert headers["host"] == rig.backup.url[7:]
    assert "cookie" not in headers
    assert body["model"] == "m2"
    assert body["messages"] == CHAT["messages"]
    ids = {h["x-client-request-id"] for _, h, _ in
           rig.main.seen + rig.backup.seen}
    assert len(ids) == 1
    assert [round(s * 1000) for s in rig.clock.slept] == [
        d.wait_ms for d in rig.heard if d.action == "retry"]


def test_the_key_of_the_environment(make: typing.Any,
                                    monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY_B", "key-env")
    rig = make("503").mount(keys={})
    assert rig.post(CHAT).status_code == 200
    assert rig.backup.seen[0][1]["authorization"] == "Bearer key-env"


def test_without_a_key_nobody_is_asked(make: typing.Any,
                                       monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KEY_B", raising=False)
    rig = make("503").mount(keys={})
    with pytest.warns(RuntimeWarning, match="set KEY_B"), \
            pytest.raises(fivegates.Refused) as caught:
        rig.post(CHAT)
    assert rig.backup.seen == []
    assert isinstance(caught.value.__cause__, requests.HTTPError)


def test_refused(make: typing.Any) -> None:
    rig = make("400").mount()
    with pytest.raises(fivegates.Refused) as caught:
        rig.post(CHAT)
    assert caught.value.decision.reason == "request_invalid"
    cause = caught.value.__cause__
    assert isinstance(cause, requests.HTTPError)
    assert cause.response.json()["error"]["message"] == "fault 400"


def test_reraise_gives_the_answer_back(make: typing.Any) -> None:
    rig = make("400").mount(reraise=True)
    got = rig.post(CHAT)
    assert got.status_code == 400
    assert got.refused.decision.reason == "request_invalid"
    with pytest.raises(requests.HTTPError):
        got.raise_for_status()


def test_reraise_raises_what_requests_raised(make: typing.Any) -> None:
    rig = make("reset").mount("bare", reraise=True)
    with pytest.raises(requests.ConnectionError) as caught:
        rig.post(CHAT)
    assert isinstance(caught.value.refused, fivegates.Refused)
    assert rig.modes(rig.main) == ["reset"]


@pytest.mark.parametrize("mode", ["reset", "short"])
def test_silence_and_a_cut_go_to_a_stand_in(make: typing.Any,
                                            mode: str) -> None:
    rig = make(mode).mount()
    assert rig.post(CHAT).status_code == 200
    assert rig.modes(rig.main) == [mode]
    assert len(rig.backup.seen) == 1


def test_an_error_inside_a_200(make: typing.Any) -> None:
    rig = make("inband").mount("bare")
    with pytest.raises(fivegates.Refused) as caught:
        rig.post(CHAT)
    assert caught.value.decision.owner == "quota"


def test_a_200_without_json_is_sent_again(make: typing.Any) -> None:
    rig = make("noise").mount()
    assert rig.post(CHAT).json()["choices"]
    assert rig.heard[2].owner == "transient"
    assert rig.modes(rig.backup) == ["ok"]


def test_permission_comes_before_the_first_send(make: typing.Any) -> None:
    rig = make("401").mount("bare")
    for _ in range(2):
        with pytest.raises(fivegates.Refused):
            rig.post(CHAT)
    assert rig.modes(rig.main) == ["401"]


def test_a_stream_as_it_comes(make: typing.Any) -> None:
    rig = make("ok").mount()
    with rig.post(STREAM, stream=True) as got:
        assert text_of(got.iter_lines()) == "one two three four five "
    assert rig.heard[-1].action == "accept"
    assert rig.engine.route("main")["tokens"] == 14


@pytest.mark.parametrize("size", [1, 7, 100000])
def test_a_stream_by_read(make: typing.Any, size: int) -> None:
    rig = make("ok").mount()
    with rig.post(STREAM, stream=True) as got:
        raw = b""
        while part := got.raw.read(size):
            assert len(part) <= size
            raw += part
    assert text_of(raw.split(b"\n")) == "one two three four five "
    assert rig.heard[-1].action == "accept"


def test_a_stream_without_chunks(make: typing.Any) -> None:
    rig = make("lone").mount()
    with rig.post(STREAM, stream=True) as got:
        assert text_of(got.iter_lines()) == "one two three four five "
    assert rig.heard[-1].action == "accept"


@pytest.mark.parametrize("mode", ["early", "empty", "503"])
def test_nothing_shown_is_sent_elsewhere(make: typing.Any, mode: str) -> None:
    rig = make(mode).mount()
    with rig.post(STREAM, stream=True) as got:
        assert text_of(got.iter_lines()) == "one two three four five "
    assert rig.modes(rig.backup) == ["ok"]


def test_a_failed_stream_is_hung_up(make: typing.Any) -> None:
    rig = make("stuck").mount()
    with rig.post(STREAM, stream=True) as got:
        assert text_of(got.iter_lines()) == "one two three four five "
    assert wait_for(rig.main, "gone")


@pytest.mark.parametrize("mode", ["cut", "event"])
def test_cut_after_the_first_content(make: typing.Any, mode: str) -> None:
    """What was shown is not sent again; the reader hears of it."""
    rig = make(mode).mount()
    got = rig.post(STREAM, stream=True)
    seen = b""
    with pytest.raises(fivegates.Refused) as caught:
        for chunk in got.iter_content(None):
            seen += chunk
    assert b"one " in seen
    assert caught.value.decision.reason == "partial_output"
    assert rig.backup.seen == []
    assert rig.engine.route("main")["in_flight"] == 0
    got.close()


def test_cut_of_a_stream_read_whole(make: typing.Any) -> None:
    """stream=False: the caller has seen nothing, so a stand-in may serve."""
    rig = make("cut").mount()
    got = rig.post(STREAM)
    assert text_of(got.content.split(b"\n")) == "one two three four five "
    assert rig.modes(rig.backup) == ["ok"]


@pytest.mark.parametrize("read", [0, 1, 100])
def test_closed_by_the_caller(make: typing.Any, read: int) -> None:
    rig = make("ok").mount()
    got = rig.post(STREAM, stream=True)
    lines = got.iter_lines()
    for _ in range(read):
        next(lines, None)
    got.close()
    assert rig.engine.route("main")["in_flight"] == 0
    assert rig.engine.route("main")["failures"] == 0
    assert (rig.heard[-1].action == "accept") == (read == 100)


def test_a_reader_may_pause(make: typing.Any) -> None:
    """Leaving one iterator does not lose what the next one reads."""
    rig = make("ok").mount()
    got = rig.post(STREAM, stream=True)
    first = b""
    for chunk in got.iter_content(None):
        first = chunk
        break
    rest = b"".join(got.iter_content(None))
    assert text_of((first + rest).split(b"\n")) == "one two three four five "
    got.close()


def test_interrupted(make: typing.Any) -> None:
    def sleep(seconds: float) -> None:
        raise KeyboardInterrupt

    calls: "list[fivegates.Call]" = []
    rig = make("503").mount(sleep=sleep,
                            on_decision=lambda d, c: calls.append(c))
    with pytest.raises(KeyboardInterrupt):
        rig.post(CHAT)
    assert calls[0].decision.reason == "client_gone"


def test_other_requests_pass(make: typing.Any) -> None:
    rig = make("503").mount()
    got = rig.session.post(rig.main.url + "/503/v1/files", json={})
    assert got.status_code == 503 and rig.heard == []


def test_redirects_are_not_followed(make: typing.Any) -> None:
    rig = make("moved").mount("bare")
    with pytest.raises(fivegates.Refused):
        rig.post(CHAT)
    assert rig.modes(rig.main) == ["moved"]


def test_aimed_elsewhere(make: typing.Any, closed_port: int) -> None:
    rig = make("ok").mount()
    url = f"http://127.0.0.1:{closed_port}/v1/chat/completions"
    rig.session.mount(url, rig.session.get_adapter(rig.url))
    with pytest.raises(fivegates.ArgumentError, match="base_url"):
        rig.session.post(url, json=CHAT)


def test_facts_of_one_request(make: typing.Any) -> None:
    rig = make("ok").mount(facts=lambda request: {
        "prompt_tokens": 10_000_000})
    with pytest.raises(fivegates.Refused):
        rig.post(CHAT)
    assert rig.main.seen == []


def test_inner_retries_are_refused(make: typing.Any) -> None:
    rig = make("ok")
    with pytest.raises(fivegates.ArgumentError, match="max_retries"):
        EngineAdapter(rig.engine, "w", pool={"max_retries": 3})
