"""The gate in litellm's real Router, against a loopback server."""

from __future__ import annotations

import asyncio
import copy
import gc
import importlib.util
import json
import os
import pathlib
import threading
import typing
import warnings

import pytest

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # no request at import
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of litellm's own, at its import
    import litellm
    from litellm.types.router import RouterRateLimitError

import fivegates
from fivegates.adapters.litellm import FivegatesGate
from fivegates.ledger import ListLedger

# The server that speaks chat completions is that of the langchain tests.
_FILE = (pathlib.Path(__file__).resolve().parents[1] / "python"
         / "test_adapter_langchain.py")
_spec = importlib.util.spec_from_file_location("chat_server", _FILE)
assert _spec is not None and _spec.loader is not None
_chat: typing.Any = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_chat)
server = _chat.server
say, error, stream = _chat.say, _chat.error, _chat.stream

# litellm leaves its HTTP sessions to the end of the process.
pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::DeprecationWarning",
    "ignore::UserWarning", "ignore::pytest.PytestUnraisableExceptionWarning")

Json = typing.Dict[str, typing.Any]
ASK: Json = {"model": "group", "messages": [{"role": "user", "content": "hi"}],
             "max_tokens": 50}


def card() -> Json:
    return {**copy.deepcopy(_chat.CARD),
            "breaker": {"consecutive": 2, "open_ms": 60000,
                        "open_max_ms": 60000}}


class Rig:
    """A Router with the gate, and what was decided."""

    def __init__(self, server: typing.Any, workflow: str = "w",
                 made: "Json | None" = None, ids: "tuple[str, ...]" = (
                     "main", "backup"), policy: "Json | None" = None,
                 model: str = "openai/m", **options: typing.Any) -> None:
        self.engine = fivegates.Engine(fivegates.Policy.loads(
            policy or card(), auto_fingerprint=True), seed=1)
        self.decisions: "list[fivegates.Decision]" = []
        self.ledger = ListLedger()
        self.gate = FivegatesGate(
            self.engine, {"group": workflow}, ledger=self.ledger,
            on_decision=lambda d, c: self.decisions.append(d), **options)
        litellm.callbacks = [self.gate]
        self.router = litellm.Router(
            model_list=[deployment(server, name, model)
                        for name in (*ids, "other")],
            **{"num_retries": 0, "disable_cooldowns": True, **(made or {})})

    @property
    def actions(self) -> "list[str]":
        return [decision.action for decision in self.decisions]

    @property
    def last(self) -> "fivegates.Decision":
        return self.decisions[-1]

    def in_flight(self) -> int:
        gc.collect()
        return sum(self.engine.route(name)["in_flight"]
                   for name in ("main", "backup"))


def deployment(server: typing.Any, name: str, model: str) -> Json:
    return {"model_name": "other" if name == "other" else "group",
            "litellm_params": {"model": model, "api_key": "k",
                               "api_base": f"{server.url}/{name}/v1"},
            "model_info": {"id": name}}


@pytest.fixture(autouse=True)
def no_callbacks() -> "typing.Iterator[None]":
    yield
    litellm.logging_callback_manager._reset_all_callbacks()


def run(work: "typing.Callable[[], typing.Awaitable[typing.Any]]",
        told: "typing.Callable[[], bool]" = lambda: True) -> typing.Any:
    """Runs it, and on until litellm's worker has told what it has to tell."""

    async def go() -> typing.Any:
        try:
            return await work()
        finally:
            for _ in range(100):
                await asyncio.sleep(0.02)
                if told():
                    break

    return asyncio.run(go())


def ask(rig: Rig, **more: typing.Any) -> str:
    async def work() -> str:
        answer = await rig.router.acompletion(**{**ASK, **more})
        return str(answer.choices[0].message.content)

    return str(run(work))


def read(rig: Rig, leave: bool = False) -> str:
    """The text of a stream, or its first word."""

    async def work() -> str:
        text = ""
        answer = await rig.router.acompletion(**ASK, stream=True)
        async for chunk in answer:
            text += chunk.choices[0].delta.content or ""
            if leave:
                break
        return text

    return str(run(work, lambda: leave or len(rig.decisions) > 2))


def test_the_engine_picks(server: typing.Any) -> None:
    """The Router by itself would take either."""
    rig = Rig(server)
    assert [ask(rig) for _ in range(6)] == ["hello"] * 6
    assert set(server.routes) == {"main"}
    assert rig.actions == ["proceed", "proceed", "accept"] * 6
    assert json.loads(rig.ledger.lines[-1])["tokens"] == 12


def test_the_outcome_is_known_when_the_caller_has_it(
        server: typing.Any) -> None:
    """A route just seen to fail is not asked by the very next request."""
    server.script = [say(), error(503)]
    rig = Rig(server)

    async def work() -> None:
        await rig.router.acompletion(**ASK)
        assert rig.actions[-1] == "accept"
        with pytest.raises(litellm.ServiceUnavailableError):
            await rig.router.acompletion(**ASK)
        assert rig.last.kind == "unavailable"

    run(work)


def test_a_failure_is_told_and_ends_the_request(server: typing.Any) -> None:
    server.script = [error(503)]
    rig = Rig(server)
    with pytest.raises(litellm.ServiceUnavailableError):
        ask(rig)
    assert server.routes == ["main"]  # no retry of the Router's, nor of ours
    assert rig.last.kind == "unavailable"
    assert rig.in_flight() == 0


def test_a_route_that_is_out_is_taken_out(server: typing.Any) -> None:
    """Two failures open the breaker; the next request goes to the stand-in."""
    server.script = [error(503), error(503), say("from the stand-in")]
    rig = Rig(server)
    for _ in range(2):
        with pytest.raises(litellm.ServiceUnavailableError):
            ask(rig)
    assert rig.engine.route("main")["breaker"] == "open"
    assert ask(rig) == "from the stand-in"
    assert server.routes == ["main", "main", "backup"]
    assert rig.last.label is not None


def test_a_refusal_is_the_routers_own_error(server: typing.Any) -> None:
    server.script = [error(401, "invalid_api_key")]
    rig = Rig(server, "alone")
    with pytest.raises(litellm.AuthenticationError):
        ask(rig)
    with pytest.raises(RouterRateLimitError) as caught:
        ask(rig)
    assert isinstance(caught.value, fivegates.Refused)
    assert caught.value.decision.reason == "key_rejected"
    assert len(server.seen) == 1


def test_what_the_wire_said_is_evidence(server: typing.Any) -> None:
    """litellm's own exception has lost the code in the body."""
    server.script = [error(429, "insufficient_quota"), say()]
    rig = Rig(server)
    with pytest.raises(litellm.RateLimitError):
        ask(rig)
    assert rig.last.owner == "quota"
    assert rig.engine.route("main")["latch"] != "none"


@pytest.mark.parametrize("model, answer, kind", [
    ("openai/m", lambda h: h.connection.shutdown(2), "reset"),
    ("anthropic/claude-3-haiku-20240307", lambda h: h.send(529, {
        "type": "error", "error": {"type": "overloaded_error",
                                   "message": "Overloaded"}}), "overloaded"),
    ("anthropic/claude-3-haiku-20240307", lambda h: h.send(400, {
        "type": "error", "error": {
            "type": "invalid_request_error", "message":
            "Your credit balance is too low to access the Anthropic API."}}),
     "no_credit")])
def test_what_litellm_made_something_else_of(
        server: typing.Any, model: str, answer: typing.Any, kind: str) -> None:
    """A reset and a 529 reach the caller as a 500 without a body."""
    server.script = [answer]
    rig = Rig(server, model=model)
    with pytest.raises((litellm.InternalServerError,
                        litellm.BadRequestError)):
        ask(rig)
    assert rig.last.kind == kind


def test_a_time_out(server: typing.Any) -> None:
    server.script = [lambda h: [h.server.go_on.wait(5), say()(h)][1]]
    rig = Rig(server)
    with pytest.raises(litellm.Timeout):
        ask(rig, timeout=0.2)
    assert rig.last.kind == "read_timeout"
    assert rig.in_flight() == 0


def test_a_stream(server: typing.Any) -> None:
    server.script = [stream("one ", "two ")]
    rig = Rig(server)
    assert read(rig) == "one two "
    assert rig.actions == ["proceed", "proceed", "accept"]
    assert rig.in_flight() == 0


def test_a_stream_that_is_cut(server: typing.Any) -> None:
    server.script = [stream("one ", "two ", cut=True)]
    rig = Rig(server)
    with pytest.raises(litellm.APIConnectionError):
        read(rig)
    assert "accept" not in rig.actions and len(server.seen) == 1
    assert rig.last.reason == "cut_route" and rig.in_flight() == 0
    assert "billed: likely" in rig.last.explain()


def test_a_stream_that_is_left(server: typing.Any) -> None:
    """litellm has no word for it: the call is dropped with the stream."""
    server.script = [stream("one ", "two ")]
    rig = Rig(server)
    assert read(rig, leave=True) == "one "
    assert rig.in_flight() == 0
    assert rig.engine.route("main")["breaker"] == "closed"


def test_a_request_that_is_cancelled(server: typing.Any) -> None:
    server.script = [lambda h: [h.server.go_on.wait(5), say()(h)][1]]
    rig = Rig(server)

    async def work() -> None:
        task = asyncio.ensure_future(rig.router.acompletion(**ASK))
        while not server.seen:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(work)
    assert json.loads(rig.ledger.lines[-1])["reason"] == "client_gone"
    assert rig.in_flight() == 0


def test_a_bad_answer_is_told(server: typing.Any) -> None:
    server.script = [say("")]
    rig = Rig(server, "alone")
    assert ask(rig) == ""
    assert "bad_answer" in {d.reason for d in rig.decisions}


def test_a_router_with_retries_is_told(server: typing.Any) -> None:
    rig = Rig(server, made={"num_retries": 1, "retry_after": 0})
    with pytest.raises(fivegates.ArgumentError, match="retries 1 times by"):
        ask(rig)
    assert server.seen == []


def test_other_groups_pass(server: typing.Any) -> None:
    rig = Rig(server)
    assert ask(rig, model="other") == "hello"
    assert server.routes == ["other"] and rig.actions == []


def test_the_sync_router_says_it_cannot(server: typing.Any) -> None:
    rig = Rig(server)
    with pytest.raises(fivegates.ArgumentError, match="use acompletion"):
        rig.router.completion(**ASK)
    rig.router.completion(**{**ASK, "model": "other"})
    assert server.routes == ["other"]


def test_routes_by_id(server: typing.Any) -> None:
    rig = Rig(server, ids=("d1", "d2"), routes={"d1": "backup", "d2": "main"})
    assert ask(rig) == "hello"
    assert server.routes == ["d2"]


def test_a_primary_that_has_no_deployment(server: typing.Any) -> None:
    rig = Rig(server, "alone", ids=("backup",))
    with pytest.raises(RouterRateLimitError):
        ask(rig)
    assert server.seen == []
    rig = Rig(server, "alone", ids=("d1",))
    with pytest.raises(fivegates.ArgumentError, match="no deployment of group"):
        ask(rig)


def test_arguments_are_checked(server: typing.Any) -> None:
    with pytest.raises(fivegates.ArgumentError, match="no route x in the card"):
        Rig(server, routes={"d1": "x"})
    with pytest.raises(fivegates.ArgumentError, match="no workflow 'no'"):
        Rig(server, "no")


def test_fifty_at_once_keep_apart(server: typing.Any) -> None:
    """Every fifth fails; the engine hears of each, and of no other."""

    def answer(h: typing.Any) -> None:
        number = int(h.body["messages"][0]["content"])
        if number % 5:
            say(f"done {number}")(h)
        else:
            error(503)(h)

    server.script = [answer]
    made = card()
    made["breaker"] = {"consecutive": 99, "min_calls": 999}
    rig = Rig(server, "alone", policy=made)

    async def work() -> "list[typing.Any]":
        return await asyncio.gather(*(rig.router.acompletion(**{
            **ASK, "messages": [{"role": "user", "content": str(i)}]})
            for i in range(50)), return_exceptions=True)

    for i, done in enumerate(run(work)):
        if i % 5:
            assert done.choices[0].message.content == f"done {i}"
        else:
            assert isinstance(done, litellm.ServiceUnavailableError)
    assert rig.actions.count("accept") == 40
    assert len(server.seen) == 50 and rig.in_flight() == 0
    assert len(rig.gate._running) == 0
