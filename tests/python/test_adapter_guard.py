"""adapters.guard: a call driven from hooks, as engine.run() would drive it."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import types
import typing

import pytest

import fivegates
from fivegates.adapters import current_attempt
from fivegates.adapters.guard import Calls, Guard
from fivegates.ledger import ListLedger
from fivegates.testing import ManualClock, ProviderError

from .conftest import UNIX_MS

BUSY = ProviderError(503, body='{"error": {"code": "server_is_overloaded"}}')
BAD = ProviderError(400, body='{"error": {"type": "invalid_request_error"}}')
LATER = ProviderError(429, {"retry-after": "2"},
                      '{"error": {"code": "rate_limit_exceeded"}}')
FACTS: "dict[str, typing.Any]" = {"prompt_tokens": 900,
                                  "max_output_tokens": 300}


class Rig:
    def __init__(self, card: "dict[str, typing.Any]",
                 workflow: str = "w", **options: typing.Any) -> None:
        self.clock = ManualClock(unix_ms=UNIX_MS)
        policy = fivegates.Policy.loads(card, auto_fingerprint=True)
        self.engine = fivegates.Engine(policy, seed=1, clock=self.clock)
        self.ledger = ListLedger()
        self.heard: "list[str]" = []
        self.calls = Calls(
            self.engine, workflow, ledger=self.ledger,
            on_decision=lambda d, c: self.heard.append(d.action),
            **FACTS, **options)

    def begin(self, **more: typing.Any) -> Guard:
        return self.calls.begin({}, **more)


@pytest.fixture
def rig(card: "dict[str, typing.Any]") -> Rig:
    return Rig(card)


def test_an_answer(rig: Rig) -> None:
    guard = rig.begin()
    attempt = guard.ready(rig.clock.sleep)
    assert (attempt.number, attempt.route, attempt.model) == (1, "main", "m1")
    assert guard.succeeded("hello") is True
    assert guard.ended and guard.call.decision.action == "accept"
    assert rig.heard == ["proceed", "proceed", "accept"]
    assert [json.loads(line)["line"] for line in rig.ledger.lines] == [
        "call", "decision", "decision", "decision", "end"]


def test_retry_waits_then_elsewhere(rig: Rig) -> None:
    guard = rig.begin()
    guard.ready(rig.clock.sleep)
    guard.failed(BUSY)
    assert guard.attempt is None and guard.wait_s > 0
    assert guard.ready(rig.clock.sleep).route == "main"
    assert len(rig.clock.slept) == 1
    guard.failed(BUSY)
    assert guard.attempt is None  # no permission before it is asked for
    assert rig.heard[-1] == "fallback"
    assert guard.ready(rig.clock.sleep).route == "backup"
    assert guard.succeeded("hello")


def test_too_early_is_told_again(rig: Rig) -> None:
    """A host that did not wait gets the rest of the wait, not permission."""
    guard = rig.begin()
    guard.ready(rig.clock.sleep)
    guard.failed(LATER)
    wait = guard.wait_s
    rig.clock.advance(500)
    assert guard.permit() is None
    assert 0 < guard.wait_s <= wait - 0.5 + 0.001
    assert guard.ready(rig.clock.sleep).number == 2
    assert rig.heard.count("hold") == 1


def test_async_waits_too(rig: Rig) -> None:
    async def main() -> None:
        guard = rig.begin()
        await guard.aready(rig.clock.asleep)
        guard.failed(BUSY)
        assert (await guard.aready(rig.clock.asleep)).number == 2
        assert len(rig.clock.slept) == 1

    asyncio.run(main())


def test_refused(rig: Rig) -> None:
    guard = rig.begin()
    guard.ready(rig.clock.sleep)
    with pytest.raises(fivegates.Refused) as caught:
        guard.failed(BAD)
    assert caught.value.__cause__ is BAD
    assert caught.value.decision.reason == "request_invalid"
    assert guard.ended
    guard.gone()  # nothing: it has ended
    assert json.loads(rig.ledger.lines[-1])["line"] == "end"


def test_reraise(card: "dict[str, typing.Any]") -> None:
    guard = Rig(card, reraise=True).begin()
    guard.ready(lambda s: None)
    with pytest.raises(ProviderError) as caught:
        guard.failed(BAD)
    assert caught.value is BAD
    assert isinstance(getattr(BAD, "refused"), fivegates.Refused)
    del BAD.refused  # type: ignore[attr-defined]


def test_queued(card: "dict[str, typing.Any]") -> None:
    """The caller puts it away, with what it has spent."""
    card["workflows"]["batch"]["budget"] = {"total_attempts": 1}
    guard = Rig(card, "batch").begin()
    guard.ready(lambda s: None)
    with pytest.raises(fivegates.Queued) as caught:
        guard.failed(LATER)
    assert caught.value.decision.wait_ms > 0
    assert caught.value.prior["attempts"] == 1


def test_a_bug_goes_through(rig: Rig) -> None:
    guard = rig.begin()
    guard.ready(rig.clock.sleep)
    bug = KeyError("mine")
    with pytest.raises(KeyError) as caught:
        guard.failed(bug)
    assert caught.value is bug and guard.ended


@pytest.mark.parametrize("leave", [KeyboardInterrupt, asyncio.CancelledError,
                                   GeneratorExit])
def test_the_caller_left(rig: Rig, leave: "type[BaseException]") -> None:
    guard = rig.begin()
    guard.ready(rig.clock.sleep)
    with pytest.raises(leave):
        guard.failed(leave())
    assert guard.call.decision.reason == "client_gone"


def test_left_while_waiting(rig: Rig) -> None:
    def interrupted(seconds: float) -> None:
        raise KeyboardInterrupt

    guard = rig.begin()
    guard.ready(rig.clock.sleep)
    guard.failed(BUSY)
    with pytest.raises(KeyboardInterrupt):
        guard.ready(interrupted)
    assert guard.call.decision.reason == "client_gone"


def test_a_refusal_within_is_not_asked_again(rig: Rig) -> None:
    inner = OSError(104, "reset")
    inner.refused = fivegates.Refused(  # type: ignore[attr-defined]
        rig.engine.begin("w").decision)
    guard = rig.begin()
    guard.ready(rig.clock.sleep)
    with pytest.raises(OSError) as caught:
        guard.failed(inner)
    assert caught.value is inner


def test_a_route_out_of_reach(rig: Rig) -> None:
    guard = rig.begin(lacks=lambda decision: (
        "reroute" if decision.route == "backup" else None))
    guard.ready(rig.clock.sleep)
    guard.failed(BUSY)
    guard.ready(rig.clock.sleep)
    with pytest.raises(fivegates.Refused):
        guard.failed(BUSY)
    assert rig.engine.route("backup")["in_flight"] == 0
    assert rig.engine.route("backup")["successes"] == 0


def test_an_answer_cut_after_its_beginning(rig: Rig) -> None:
    """What the caller has begun to read is not sent again."""
    guard = rig.begin()
    guard.ready(rig.clock.sleep)
    guard.given()
    reset = ConnectionResetError(104, "reset")
    with pytest.raises(fivegates.Refused) as caught:
        guard.cut(reset)
    assert caught.value.decision.reason == "partial_output"
    assert caught.value.__cause__ is reset
    assert rig.engine.route("main")["in_flight"] == 0


def test_a_cut_is_never_sent_again(card: "dict[str, typing.Any]") -> None:
    """Not even where the card would let it: this host cannot clear a screen."""
    card["workflows"]["w"].update(kind="batch", safe_replay_until="accepted",
                                  after_visible="restart")
    rig = Rig(card)
    guard = rig.begin()
    guard.ready(rig.clock.sleep)
    with pytest.raises((ProviderError, fivegates.Refused)):
        guard.cut(BUSY)
    assert guard.ended


def test_the_whole_answer_is_the_callers(card: "dict[str, typing.Any]") -> None:
    rig = Rig(card)
    guard = rig.begin()
    attempt = guard.ready(rig.clock.sleep)
    guard.given()
    attempt.terminal("content_filter")
    guard.finished()
    assert guard.ended and rig.engine.route("main")["in_flight"] == 0
    assert json.loads(rig.ledger.lines[-1])["line"] == "end"


def test_inner_attempts(rig: Rig) -> None:
    """Requests an inner layer made are paid from the same budget."""
    exc = ProviderError(503)
    exc.response.raw = types.SimpleNamespace(  # type: ignore[attr-defined]
        retries=types.SimpleNamespace(history=(1, 2, 3)))
    guard = rig.begin()
    guard.ready(rig.clock.sleep)
    with pytest.raises(fivegates.Refused) as caught:
        guard.failed(exc)
    assert caught.value.decision.attempts_left == 0


def test_evidence_of_the_callers_own(card: "dict[str, typing.Any]") -> None:
    class Mine(Exception):
        pass

    rig = Rig(card, evidence=lambda exc: {"phase": "response", "status": 503})
    guard = rig.begin()
    guard.ready(rig.clock.sleep)
    guard.failed(Mine())
    assert guard.ready(rig.clock.sleep).number == 2


def test_unknown_words(rig: Rig) -> None:
    with pytest.raises(fivegates.ArgumentError, match="no workflow 'x'.*bare"):
        Calls(rig.engine, "x")
    for word in ("cached", "cache", "preset", "queue", "clear", "call"):
        with pytest.raises(fivegates.ArgumentError,
                           match=f"^{word}: .*engine.run"):
            Calls(rig.engine, "w", **{word: None})  # type: ignore[arg-type]


def test_outside_of_an_attempt() -> None:
    assert current_attempt() is None


def test_no_library_is_imported() -> None:
    code = ("import sys, fivegates.adapters; print(sorted(set(sys.modules) & "
            "{'tenacity', 'urllib3', 'requests', 'aiohttp', 'botocore'}))")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True,
                          text=True, check=True)
    assert done.stdout.strip() == "[]"
