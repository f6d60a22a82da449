"""adapters.tenacity with the real tenacity: 9, and 8 in the second environment."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
import typing

import pytest

import fivegates
from fivegates.adapters import current_attempt
from fivegates.ledger import ListLedger
from fivegates.testing import FakeProvider, ManualClock, ProviderError

from .conftest import UNIX_MS, Provider

tenacity = pytest.importorskip("tenacity")

from fivegates.adapters.tenacity import EngineRetry  # noqa: E402

BUSY = ProviderError(503, body='{"error": {"code": "server_is_overloaded"}}')
BAD = ProviderError(400, body='{"error": {"type": "invalid_request_error"}}')
FACTS: "dict[str, typing.Any]" = {"prompt_tokens": 900,
                                  "max_output_tokens": 300}


class Rig:
    """An engine on a clock by hand, and a function under tenacity."""

    def __init__(self, card: "dict[str, typing.Any]", asynchronous: bool) -> None:
        self.clock = ManualClock(unix_ms=UNIX_MS)
        card["workflows"]["w"]["budget"] = {"extra_tokens": 100000,
                                            "extra_cost_usd": 10}
        policy = fivegates.Policy.loads(card, auto_fingerprint=True)
        self.engine = fivegates.Engine(policy, seed=1, clock=self.clock)
        self.ledger = ListLedger()
        self.heard: "list[fivegates.Decision]" = []
        self.asynchronous = asynchronous

    def policy(self, workflow: str = "w", **more: typing.Any) -> EngineRetry:
        sleep = self.clock.asleep if self.asynchronous else self.clock.sleep
        return EngineRetry(self.engine, workflow, sleep=sleep,
                           ledger=self.ledger,
                           on_decision=lambda d, c: self.heard.append(d),
                           **{**FACTS, **more})

    def call(self, send: "typing.Callable[[fivegates.Attempt], object]",
             policy: "EngineRetry | None" = None) -> typing.Any:
        policy = policy or self.policy()
        if not self.asynchronous:
            @tenacity.retry(**policy.options())
            def answer() -> object:
                attempt = current_attempt()
                assert attempt is not None
                return send(attempt)

            return answer()

        @tenacity.retry(**policy.aoptions())
        async def aanswer() -> object:
            attempt = current_attempt()
            assert attempt is not None
            await asyncio.sleep(0)
            return send(attempt)

        async def main() -> object:
            value = await aanswer()
            assert current_attempt() is None
            return value

        return asyncio.run(main())

    def fake(self, *script: typing.Any) -> FakeProvider:
        return FakeProvider(*script, clock=self.clock, take_ms=50)


@pytest.fixture(params=[False, True], ids=["sync", "async"])
def rig(request: pytest.FixtureRequest,
        card: "dict[str, typing.Any]") -> Rig:
    return Rig(card, request.param)


def test_success(rig: Rig) -> None:
    send = rig.fake("hello")
    assert rig.call(send) == "hello"
    assert [d.action for d in rig.heard] == ["proceed", "proceed", "accept"]
    assert rig.engine.route("main")["successes"] == 1
    assert current_attempt() is None


def test_waits_are_the_engines_and_routes_too(rig: Rig) -> None:
    send = rig.fake(BUSY, BUSY, "hello")
    assert rig.call(send) == "hello"
    assert send.routes == ["main", "main", "backup"]
    waits = [d.wait_ms for d in rig.heard if d.action in ("retry", "fallback")]
    assert [round(s * 1000) for s in rig.clock.slept if s] == [
        ms for ms in waits if ms]
    assert len(send.attempts) == 3  # one permission each
    assert [d.action for d in rig.heard].count("proceed") == 1 + 3


def test_refused(rig: Rig) -> None:
    send = rig.fake(BAD)
    with pytest.raises(fivegates.Refused) as caught:
        rig.call(send)
    assert caught.value.__cause__ is BAD
    assert caught.value.decision.reason == "request_invalid"
    assert len(send.attempts) == 1
    assert current_attempt() is None


def test_reraise(rig: Rig) -> None:
    error = ProviderError(400, body='{"error": {"code": "invalid_value"}}')
    with pytest.raises(ProviderError) as caught:
        rig.call(rig.fake(error), rig.policy(reraise=True))
    assert caught.value is error
    assert caught.value.refused.decision.action == "fail_closed"  # type: ignore[attr-defined]


def test_the_first_send_asks_too(rig: Rig) -> None:
    """A latched key: refused before the function is called at all."""
    key = ProviderError(401, body='{"error": {"code": "invalid_api_key"}}')
    with pytest.raises(fivegates.Refused):
        rig.call(rig.fake(key), rig.policy("bare"))
    send = rig.fake("hello")
    with pytest.raises(fivegates.Refused) as caught:
        rig.call(send, rig.policy("bare"))
    assert caught.value.decision.rejected == [
        {"route": "main", "why": "key_latched"}]
    assert send.attempts == []


def test_the_first_send_holds(card: "dict[str, typing.Any]",
                              rig: Rig) -> None:
    """A route told to wait a second: waited for before the first send."""
    later = ProviderError(429, {"retry-after": "1"}, '{"error": {}}')
    with pytest.raises(fivegates.Refused):
        rig.call(rig.fake(later, BAD), rig.policy("bare", max_wait_ms=1))
    slept = len(rig.clock.slept)
    assert rig.call(rig.fake("hello"), rig.policy("bare")) == "hello"
    assert sum(rig.clock.slept[slept:]) == pytest.approx(1, abs=0.2)


def test_a_rejected_answer_is_sent_again(rig: Rig) -> None:
    cut = {"choices": [{"finish_reason": "tool_calls", "message": {
        "content": None, "tool_calls": [{"id": "1", "function": {
            "name": "f", "arguments": '{"a": '}}]}}]}
    whole = {"choices": [{"finish_reason": "stop",
                          "message": {"content": "hello"}}]}
    send = rig.fake(cut, whole)
    assert rig.call(send, rig.policy(stream=False)) == whole
    assert len(send.attempts) == 2


def test_a_bug_goes_through(rig: Rig) -> None:
    bug = KeyError("mine")
    send = rig.fake(bug)
    with pytest.raises(KeyError) as caught:
        rig.call(send)
    assert caught.value is bug and len(send.attempts) == 1


@pytest.mark.parametrize("leave", [KeyboardInterrupt, GeneratorExit])
def test_the_caller_left(card: "dict[str, typing.Any]",
                         leave: "type[BaseException]") -> None:
    rig = Rig(card, False)
    calls: "list[fivegates.Call]" = []
    policy = rig.policy()
    exc = leave()

    def send(attempt: fivegates.Attempt) -> object:
        calls.append(attempt.call)
        raise exc

    with pytest.raises(leave) as caught:
        rig.call(send, policy)
    assert caught.value is exc and len(calls) == 1
    assert calls[0].decision.reason == "client_gone"
    assert rig.engine.route("main")["in_flight"] == 0
    assert rig.engine.route("main")["failures"] == 0


def test_cancelled(card: "dict[str, typing.Any]") -> None:
    rig = Rig(card, True)
    calls: "list[fivegates.Call]" = []

    @tenacity.retry(**rig.policy().aoptions())
    async def answer() -> None:
        attempt = current_attempt()
        assert attempt is not None
        calls.append(attempt.call)
        await asyncio.sleep(60)

    async def main() -> None:
        task = asyncio.ensure_future(answer())
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert [call.decision.reason for call in calls] == ["client_gone"]
    assert rig.engine.route("main")["in_flight"] == 0


def test_a_cancelled_wait_leaves_nothing(card: "dict[str, typing.Any]") -> None:
    rig = Rig(card, True)
    policy = EngineRetry(rig.engine, "w", **FACTS)  # sleeps for real

    @tenacity.retry(**policy.aoptions())
    async def answer() -> None:
        raise BUSY

    async def main() -> None:
        task = asyncio.ensure_future(answer())
        await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert rig.engine.route("main")["in_flight"] == 0


def test_threads_share_one_decorator(card: "dict[str, typing.Any]") -> None:
    """Each call its own: attempts, routes, ids; the function sees its own."""
    card["retry_bucket"] = {"cap": 1000, "start": 1000}
    rig = Rig(card, False)
    failed: "set[str]" = set()
    lock = threading.Lock()

    @tenacity.retry(**rig.policy().options())
    def answer(i: int) -> "tuple[int, str, int]":
        attempt = current_attempt()
        assert attempt is not None
        with lock:
            fresh = attempt.call.id not in failed
            failed.add(attempt.call.id)
        if fresh and i % 4 == 0:
            raise ConnectionRefusedError(111, "refused")
        return i, attempt.call.id, attempt.number

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        found = list(pool.map(answer, range(64)))
    assert [one[0] for one in found] == list(range(64))
    assert len({one[1] for one in found}) == 64
    assert [one[2] for one in found] == [
        2 if i % 4 == 0 else 1 for i in range(64)]
    assert rig.engine.route("main")["in_flight"] == 0


def test_tasks_share_one_decorator(card: "dict[str, typing.Any]") -> None:
    card["retry_bucket"] = {"cap": 1000, "start": 1000}
    rig = Rig(card, True)

    @tenacity.retry(**rig.policy().aoptions())
    async def answer(i: int) -> "tuple[str, int]":
        before = current_attempt()
        await asyncio.sleep(0)
        assert before is not None and current_attempt() is before
        if before.number == 1 and i % 4 == 0:
            raise ConnectionRefusedError(111, "refused")
        return before.call.id, before.number

    async def main() -> "list[tuple[str, int]]":
        return list(await asyncio.gather(*map(answer, range(64))))

    found = asyncio.run(main())
    assert len({one[0] for one in found}) == 64
    assert [one[1] for one in found] == [
        2 if i % 4 == 0 else 1 for i in range(64)]


def test_a_call_within_a_call(card: "dict[str, typing.Any]") -> None:
    rig = Rig(card, False)

    @tenacity.retry(**rig.policy("bare").options())
    def inner() -> "str | None":
        attempt = current_attempt()
        return attempt and attempt.call.id

    @tenacity.retry(**rig.policy().options())
    def outer() -> "tuple[object, ...]":
        before, within, after = current_attempt(), inner(), current_attempt()
        assert before is after and before is not None
        return before.call.id, within

    own, within = outer()
    assert own != within


def test_inner_tenacity_is_counted(card: "dict[str, typing.Any]") -> None:
    rig = Rig(card, False)

    @tenacity.retry(stop=tenacity.stop_after_attempt(4))
    def layer() -> None:
        raise BUSY

    with pytest.raises(fivegates.Refused) as caught:
        rig.call(lambda attempt: layer())
    assert caught.value.decision.attempts_left == 0


def test_the_loop_form(card: "dict[str, typing.Any]") -> None:
    rig = Rig(card, False)
    send, value = rig.fake(BUSY, "hello"), None
    for one in tenacity.Retrying(**rig.policy().options()):
        with one:
            attempt = current_attempt()
            assert attempt is not None
            value = send(attempt)
    assert value == "hello" and len(send.attempts) == 2
    assert rig.engine.route("main")["successes"] == 1


def test_facts_of_one_call(card: "dict[str, typing.Any]") -> None:
    rig = Rig(card, False)
    seen: "list[int]" = []

    def facts(state: typing.Any) -> "dict[str, typing.Any]":
        seen.append(state.args[0])
        return {"prompt_tokens": state.args[0]}

    @tenacity.retry(**rig.policy(facts=facts).options())
    def answer(tokens: int) -> int:
        return tokens

    assert [answer(5), answer(7)] == [5, 7] == seen
    with pytest.raises(fivegates.Refused):
        answer(10_000_000)  # can fit no route: not sent


def test_try_again_is_not_a_way_round(rig: Rig) -> None:
    """TryAgain skips the predicate; it still gets no send of its own."""
    send = rig.fake(tenacity.TryAgain())
    with pytest.raises(tenacity.TryAgain):
        rig.call(send)
    assert len(send.attempts) == 1


def test_pieces_without_before(card: "dict[str, typing.Any]") -> None:
    rig = Rig(card, False)
    policy = rig.policy()
    loop = tenacity.Retrying(retry=policy.retry, wait=policy.wait,
                             stop=policy.stop)
    with pytest.raises(fivegates.StateError, match="before=policy.before"):
        loop(lambda: "sent")


def test_sync_options_in_async_code(card: "dict[str, typing.Any]") -> None:
    rig = Rig(card, False)
    sent: "list[int]" = []

    @tenacity.retry(**rig.policy().options())
    async def answer() -> None:
        sent.append(1)

    with pytest.raises(fivegates.ArgumentError, match="aoptions"):
        asyncio.run(answer())
    assert sent == []


def test_with_a_real_sdk(provider: Provider, card: "dict[str, typing.Any]") -> None:
    openai = pytest.importorskip("openai")
    card["routes"]["main"]["base_url"] = provider.url + "/503/v1"
    card["routes"]["backup"]["base_url"] = provider.url + "/ok/v1"
    rig = Rig(card, False)

    @tenacity.retry(**rig.policy(stream=False).options())
    def answer() -> str:
        attempt = current_attempt()
        assert attempt is not None
        with openai.OpenAI(base_url=attempt.base_url, api_key="k",
                           max_retries=0) as client:
            got = client.chat.completions.create(**attempt.apply(
                {"messages": [{"role": "user", "content": "x"}]}))
        return str(got.choices[0].message.content)

    assert answer() == "hello"
    assert [mode for mode, _, _ in provider.seen] == ["503", "503", "ok"]
    ids = {headers["x-client-request-id"] for _, headers, _ in provider.seen}
    assert len(ids) == 1
