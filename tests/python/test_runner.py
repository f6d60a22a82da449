"""engine.run() and await engine.arun(): the loop around a send."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import json
import pathlib
import pickle
import typing

import pytest

import fivegates
from fivegates.ledger import FileLedger, ListLedger
from fivegates.stream import StreamError, StreamWatcher, aiter_bytes, iter_bytes
from fivegates.testing import FakeProvider, ManualClock, ProviderError

from .conftest import CARD, UNIX_MS, Provider

BUSY = ProviderError(503, body=json.dumps({"error": {
    "code": "server_is_overloaded", "message": "overloaded"}}))
BAD = ProviderError(400, body=json.dumps({"error": {
    "type": "invalid_request_error", "message": "bad"}}))
FACTS: "dict[str, typing.Any]" = {"prompt_tokens": 900,
                                  "max_output_tokens": 300}


class Rig:
    """An engine on a clock by hand, and what was decided."""

    def __init__(self, card: "dict[str, typing.Any]") -> None:
        self.clock = ManualClock(unix_ms=UNIX_MS)
        policy = fivegates.Policy.loads(card, auto_fingerprint=True)
        self.engine = fivegates.Engine(policy, seed=1, clock=self.clock)
        self.heard: "list[fivegates.Decision]" = []
        self.ledger = ListLedger()

    def run(self, send: typing.Any, workflow: str = "w",
            **more: typing.Any) -> typing.Any:
        options: "dict[str, typing.Any]" = {
            "sleep": self.clock.sleep, "ledger": self.ledger,
            "on_decision": lambda d, c: self.heard.append(d), **FACTS, **more}
        return self.engine.run(workflow, send, **options)

    def arun(self, send: typing.Any, workflow: str = "w",
             **more: typing.Any) -> typing.Any:
        options: "dict[str, typing.Any]" = {
            "sleep": self.clock.asleep, "ledger": self.ledger,
            "on_decision": lambda d, c: self.heard.append(d), **FACTS, **more}

        async def call() -> typing.Any:
            return await self.engine.arun(workflow, send, **options)

        return asyncio.run(call())

    @property
    def actions(self) -> "list[str]":
        return [decision.action for decision in self.heard]

    def fake(self, *script: typing.Any) -> FakeProvider:
        return FakeProvider(*script, clock=self.clock, take_ms=50)


@pytest.fixture
def rig(card: "dict[str, typing.Any]") -> Rig:
    return Rig(card)


@pytest.fixture(params=["run", "arun"])
def drive(request: pytest.FixtureRequest, rig: Rig) -> typing.Any:
    """The same script through both loops."""
    if request.param == "run":
        return rig.run

    def through(send: typing.Any, *args: typing.Any, **more: typing.Any) -> typing.Any:
        return rig.arun(send.asend, *args, **more)

    return through


def test_success(rig: Rig, drive: typing.Any) -> None:
    send = rig.fake("hello")
    assert drive(send) == "hello"
    assert send.routes == ["main"]
    assert rig.actions == ["proceed", "proceed", "accept"]


def test_retry_then_fallback(rig: Rig, drive: typing.Any) -> None:
    send = rig.fake(BUSY, BUSY, "hello")
    assert drive(send) == "hello"
    assert send.routes == ["main", "main", "backup"]
    assert len(rig.clock.slept) >= 1
    assert rig.engine.workflow("w")["fallback_recovery"] == 1


def test_refused(rig: Rig, drive: typing.Any) -> None:
    send = rig.fake(BAD)
    with pytest.raises(fivegates.Refused) as caught:
        drive(send)
    assert caught.value.__cause__ is BAD
    assert caught.value.decision.reason == "request_invalid"
    assert caught.value.decision.repair == "fix_request"
    assert "request_invalid" in str(caught.value)
    assert len(send.attempts) == 1


def test_refused_goes_to_other_processes(rig: Rig) -> None:
    with pytest.raises(fivegates.Refused) as caught:
        rig.run(rig.fake(BAD))
    for _ in range(2):
        again = pickle.loads(pickle.dumps(caught.value))
        assert type(again) is fivegates.Refused
        assert str(again) == str(caught.value)
        assert again.decision.repair == "fix_request"
        assert again.call is None


def test_reraise(rig: Rig, drive: typing.Any) -> None:
    with pytest.raises(ProviderError) as caught:
        drive(rig.fake(BAD), reraise=True)
    assert caught.value is BAD
    refused = typing.cast(typing.Any, caught.value).refused
    assert refused.decision.action == "fail_closed"


@pytest.mark.parametrize("error", [ValueError("bug"), KeyError("bug"),
                                   RecursionError(), LookupError()])
def test_bugs_go_through(rig: Rig, drive: typing.Any,
                         error: Exception) -> None:
    send = rig.fake(error)
    with pytest.raises(type(error)) as caught:
        drive(send)
    assert caught.value is error
    assert len(send.attempts) == 1
    assert rig.engine.route("main")["in_flight"] == 0
    assert rig.engine.route("main")["failures"] == 0


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3),
                                   GeneratorExit()])
def test_leaving(rig: Rig, error: BaseException) -> None:
    with pytest.raises(type(error)) as caught:
        rig.run(rig.fake(error))
    assert caught.value is error
    assert rig.engine.workflow("w")["cancelled"] == 1
    assert rig.engine.route("main")["in_flight"] == 0
    last = json.loads(rig.ledger.lines[-1])
    assert (last["line"], last["reason"]) == ("end", "client_gone")


def test_leaving_while_waiting(rig: Rig) -> None:
    def sleep(seconds: float) -> None:
        raise KeyboardInterrupt

    send = rig.fake(BUSY, "never")
    with pytest.raises(KeyboardInterrupt):
        rig.run(send, sleep=sleep)
    assert len(send.attempts) == 1
    assert rig.engine.workflow("w")["cancelled"] == 1


def test_cancelled(rig: Rig) -> None:
    started: "list[int]" = []

    async def send(attempt: fivegates.Attempt) -> None:
        started.append(attempt.number)
        await asyncio.sleep(60)

    async def call() -> None:
        task = asyncio.ensure_future(rig.engine.arun("w", send, **FACTS))
        while not started:
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(call())
    assert rig.engine.workflow("w")["cancelled"] == 1
    assert rig.engine.route("main")["in_flight"] == 0


def test_silence_while_running(card: "dict[str, typing.Any]") -> None:
    """A silent attempt is left, and its task cancelled."""
    card["workflows"]["w"]["timeouts"] = {"first_token_ms": 60}
    policy = fivegates.Policy.loads(card, auto_fingerprint=True)
    engine = fivegates.Engine(policy, seed=1)
    left: "list[int]" = []

    async def send(attempt: fivegates.Attempt) -> str:
        if attempt.route == "backup":
            return "hello"
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            left.append(attempt.number)
            raise
        return "never"

    async def call() -> str:
        return await engine.arun("w", send, **FACTS)

    assert asyncio.run(call()) == "hello"
    assert left == [1]


def test_degrade_cached(rig: Rig, drive: typing.Any) -> None:
    def cached(decision: fivegates.Decision) -> str:
        assert decision.max_age_s == 60
        return "from the cache"

    send = rig.fake(ProviderError(500))
    assert drive(send, cached=cached, unable=["reroute", "wait"]) == (
        "from the cache")
    assert rig.engine.workflow("w")["degraded"] == 1


def test_degrade_preset_after_a_miss(rig: Rig, drive: typing.Any) -> None:
    send = rig.fake(ProviderError(500))
    assert drive(send, cached=lambda d: None, preset=lambda d: d.text,
                 language="de", unable="reroute") == "Leider."


def test_degrade_async_hooks(rig: Rig) -> None:
    async def preset(decision: fivegates.Decision) -> "str | None":
        await asyncio.sleep(0)
        return decision.text

    send = rig.fake(ProviderError(500))
    assert rig.arun(send.asend, preset=preset, unable=["reroute"]) == "Sorry."


def test_no_hooks_means_unable(rig: Rig) -> None:
    with pytest.raises(fivegates.Refused):
        rig.run(rig.fake(ProviderError(500)), unable=["reroute"])
    line = json.loads(rig.ledger.lines[0])
    assert set(line["unable"]) >= {"cache", "preset", "clear", "hedge", "tick"}


def test_queue(rig: Rig, drive: typing.Any) -> None:
    quota = ProviderError(429, body=json.dumps({"error": {
        "code": "insufficient_quota", "type": "insufficient_quota",
        "message": "You exceeded your current quota"}}))
    with pytest.raises(fivegates.Queued) as caught:
        drive(rig.fake(quota), "batch")
    assert caught.value.decision.action == "queue"
    assert caught.value.__cause__ is quota
    prior = caught.value.prior
    assert prior["attempts"] == 1 and set(prior) == {"attempts", "tokens",
                                                     "cost_nusd"}
    assert pickle.loads(pickle.dumps(caught.value)).prior == prior
    again = rig.engine.begin("batch", prior=prior, **FACTS)
    left = again.decision.attempts_left
    assert left is not None and left < 4
    kept: "list[str]" = []
    assert drive(rig.fake(quota), "batch",
                 queue=lambda d, call: kept.append(call.id) or "queued"
                 ) == "queued" or not kept


def test_a_redelivery_of_a_redelivery(rig: Rig, drive: typing.Any) -> None:
    """Attempts carry over each time: a call cannot be queued for ever."""
    quota = ProviderError(429, body=json.dumps({"error": {
        "code": "insufficient_quota", "type": "insufficient_quota",
        "message": "You exceeded your current quota"}}))
    prior: "dict[str, int]" = {"attempts": 2}
    with pytest.raises(fivegates.Queued) as caught:
        drive(rig.fake(quota), "batch", prior=prior)
    assert caught.value.prior["attempts"] == 3


def test_a_run_inside_a_run(rig: Rig, drive: typing.Any) -> None:
    """What the inner engine refused the outer one does not send again."""
    sends: "list[str]" = []

    def inner(attempt: fivegates.Attempt) -> str:
        sends.append("inner")
        attempt.tool("pay-1", "committed")
        raise BUSY

    def outer(attempt: fivegates.Attempt) -> str:
        sends.append("outer")
        return typing.cast(str, rig.engine.run("bare", inner, **FACTS))

    async def aouter(attempt: fivegates.Attempt) -> str:
        return outer(attempt)

    aouter.asend = aouter  # type: ignore[attr-defined]
    with pytest.raises(fivegates.Refused) as caught:
        drive(outer if drive == rig.run else aouter)
    assert caught.value.decision.reason == "effect_committed"
    assert sends == ["outer", "inner"]


def test_cleared_before_another_answer(
        card: "dict[str, typing.Any]") -> None:
    """after_visible: restart. What was shown goes before a cached answer."""
    card["workflows"]["w"].update(after_visible="restart",
                                  budget={"total_attempts": 1})
    seen: "list[str]" = []

    def send(attempt: fivegates.Attempt) -> str:
        attempt.token(5)
        raise ConnectionResetError("cut")

    def cached(decision: fivegates.Decision) -> str:
        seen.append("cached")
        return "old"

    assert Rig(card).run(send, cached=cached,
                         clear=lambda d: seen.append("cleared")) == "old"
    assert seen == ["cached", "cleared"]


def test_bad_answers(card: "dict[str, typing.Any]") -> None:
    card["workflows"]["w"]["requires"] = {"output": {"json_schema": True,
        "schema": {"type": "object", "required": ["answer"]}}}
    for route in ("main", "backup"):
        card["routes"][route]["provides"]["output"]["json_schema"] = True
    rig = Rig(card)
    send = rig.fake('{"no": 1}', '{"answer": 1}')
    assert rig.run(send, features=["json_schema"]) == '{"answer": 1}'
    assert len(send.attempts) == 2


def test_tools_are_not_repeated(rig: Rig, drive: typing.Any) -> None:
    def send(attempt: fivegates.Attempt) -> None:
        attempt.tool("op-1", "started")
        raise TimeoutError

    with pytest.raises(fivegates.Refused) as caught:
        drive(rig.fake(send, "never"))
    assert caught.value.decision.reason == "reconcile_first"
    assert isinstance(caught.value.__cause__, TimeoutError)
    call = caught.value.call
    assert call is not None
    assert call.resolved("op-1", "committed").reason == "effect_committed"


def test_visible_text_is_not_repeated(rig: Rig, drive: typing.Any) -> None:
    def send(attempt: fivegates.Attempt) -> None:
        attempt.accepted()
        attempt.token(5)
        raise ConnectionResetError(104, "reset")

    with pytest.raises(fivegates.Refused) as caught:
        drive(rig.fake(send, "never"))
    assert caught.value.decision.reason == "partial_output"


def test_clear_and_restart(card: "dict[str, typing.Any]") -> None:
    card["workflows"]["w"]["after_visible"] = "restart"
    card["workflows"]["w"]["budget"] = {"extra_tokens": 100000,
                                        "extra_cost_usd": 1}
    rig = Rig(card)
    cleared: "list[str]" = []

    def send(attempt: fivegates.Attempt) -> None:
        attempt.accepted()
        attempt.token(5)
        raise ConnectionResetError(104, "reset")

    fake = rig.fake(send, "hello")
    assert rig.run(fake, clear=lambda d: cleared.append(d.route or "")) == "hello"
    assert cleared == [fake.routes[1]]
    assert fake.attempts[1].changes == {"clear_shown": True}


def test_ledger(rig: Rig, tmp_path: pathlib.Path) -> None:
    sent_at: "list[int]" = []

    def send(attempt: fivegates.Attempt) -> str:
        sent_at.append(len(rig.ledger.lines))
        last = json.loads(rig.ledger.lines[-1])
        assert (last["line"], last["action"]) == ("decision", "proceed")
        return "hello"

    rig.run(send)
    kinds = [json.loads(line)["line"] for line in rig.ledger.lines]
    assert kinds == ["call", "decision", "decision", "decision", "end"]
    assert sent_at == [3]
    path = tmp_path / "ledger.jsonl"
    with FileLedger(path, sync=True) as sink:
        rig.run(rig.fake("x"), ledger=sink)
        rig.run(rig.fake("x"), ledger=sink)
    sink.close()
    lines = path.read_text().splitlines()
    assert len(lines) == 10
    assert all(json.loads(line) for line in lines)


def test_outcome_and_steps(rig: Rig, drive: typing.Any) -> None:
    first = drive(rig.fake("one"), outcome=True)
    assert first.value == "one" and first.attempts == 1
    second = drive(rig.fake(BUSY, "two"), outcome=True, call=first.call)
    assert second.value == "two" and second.attempts == 2
    assert second.call is first.call
    assert rig.engine.workflow("w")["calls"] == 1


def test_hook_errors_end_the_call(rig: Rig, drive: typing.Any) -> None:
    def heard(decision: fivegates.Decision, call: fivegates.Call) -> None:
        if decision.action == "retry":
            raise ArithmeticError

    with pytest.raises(ArithmeticError):
        drive(rig.fake(BUSY), on_decision=heard)
    assert rig.engine.route("main")["in_flight"] == 0


def test_own_evidence(rig: Rig, drive: typing.Any) -> None:
    class Odd(Exception):
        pass

    def evidence(exc: BaseException) -> "dict[str, typing.Any] | None":
        return {"phase": "connect", "transport": {
            "lib": "httpx", "kind": "ConnectError"}} if isinstance(
                exc, Odd) else None

    send = rig.fake(Odd(), "hello")
    assert drive(send, evidence=evidence) == "hello"
    assert len(send.attempts) == 2


def _chunk(text: "str | None", reason: "str | None" = None) -> object:
    return {"choices": [{"delta": {"content": text}, "finish_reason": reason}]}


def _then(error: BaseException) -> "typing.Iterator[object]":
    raise error
    yield


@pytest.mark.parametrize("stream, reason", [
    ([_chunk("some"), _chunk(None, "stop")], "complete"),
    ([_chunk("some")], "partial_output"),  # a clean end, but not the answer's
    (["a", "b"], "complete"),  # events of no API we know: nothing is claimed
])
def test_a_stream_needs_the_answers_own_end(rig: Rig, stream: "list[object]",
                                            reason: str) -> None:
    with contextlib.suppress(fivegates.Refused):
        rig.run(lambda attempt: list(attempt.watch(stream)), clear=None)
    assert rig.heard[-1].reason == reason


def test_an_event_that_is_no_json_is_the_providers_fault(rig: Rig) -> None:
    bad = json.JSONDecodeError("no", "{", 0)
    sends = rig.fake(lambda a: list(a.watch(_then(bad))), "from elsewhere")
    assert rig.run(sends) == "from elsewhere"
    with pytest.raises(json.JSONDecodeError):  # not the stream's: a bug
        rig.run(rig.fake(bad))


def test_no_choice_is_no_answer(rig: Rig) -> None:
    sends = rig.fake({"choices": [], "usage": {
        "prompt_tokens": 5, "completion_tokens": 1}}, "ok")
    assert rig.run(sends) == "ok"


def test_what_an_inner_run_decided_is_not_tried_again(rig: Rig) -> None:
    """Also where it reraised the last attempt's own exception."""
    inner = Rig(copy.deepcopy(CARD))

    def send(attempt: fivegates.Attempt) -> str:
        return str(inner.run(inner.fake(BUSY), reraise=True))

    sends = FakeProvider(send)
    with pytest.raises(ProviderError) as caught:
        rig.run(sends)
    assert isinstance(caught.value.refused, fivegates.Refused)  # type: ignore[attr-defined]
    assert len(sends.attempts) == 1
    # The same object raised by somebody else later is a failure like any.
    assert rig.run(rig.fake(BUSY, "ok")) == "ok"


def test_attempt(rig: Rig) -> None:
    seen: "list[fivegates.Attempt]" = []
    rig.run(lambda attempt: seen.append(attempt) or "x", call_id="job-9")
    attempt = seen[0]
    assert (attempt.number, attempt.route, attempt.model) == (1, "main", "m1")
    assert attempt.base_url == "http://127.0.0.1:1/v1"
    assert (attempt.key_env, attempt.provider) == ("KEY_A", "openai")
    assert attempt.headers == {"X-Client-Request-Id": "job-9",
                               "X-Request-Attempt": "1"}
    assert attempt.connect_s == 5.0
    assert attempt.read_s and attempt.first_token_s
    assert "1 on main" in repr(attempt)
    request = {"model": "x", "max_tokens": 5, "stream": True,
               "stream_options": {}, "reasoning_effort": "high",
               "extra_headers": {"a": "b"}}
    before = copy.deepcopy(request)
    attempt.changes = {"max_tokens": 3, "drop_tools": True, "no_stream": True,
                       "no_thinking": "refused"}
    assert attempt.apply(request) == {
        "model": "m1", "max_tokens": 3, "stream": False,
        "extra_headers": {"a": "b", **attempt.headers}}
    assert request == before
    attempt.changes = {"stream": True, "max_tokens": 3}
    assert attempt.apply({})["stream"] is True
    assert attempt.apply({"max_completion_tokens": 9})[
        "max_completion_tokens"] == 3


TOOLS: "list[typing.Any]" = [
    {"type": "function", "function": {"name": name, "parameters": {}}}
    for name in ("mail", "search")]


def tool_card(changes: "dict[str, typing.Any]") -> "dict[str, typing.Any]":
    """A stand-in that gets only some of the tools."""
    card = copy.deepcopy(CARD)
    card["routes"]["backup"]["provides"]["tools"] = {"names": ["search"]}
    card["routes"]["backup"]["provides"]["input"]["system_prompt"] = True
    card["contracts"][0]["changes"] = changes
    card["workflows"]["w"]["budget"] = {"extra_tokens": 100000,
                                        "extra_cost_usd": 1}
    return card


def test_a_contract_drops_the_tools_it_names() -> None:
    engine = fivegates.Engine(fivegates.Policy.loads(
        tool_card({"drop_tools": ["mail"]}), auto_fingerprint=True))
    policy = engine.policy
    assert policy.drops_tool("w", "backup", "mail")
    assert not policy.drops_tool("w", "backup", "search")
    assert not policy.drops_tool("w", "main", "mail")
    with pytest.raises(fivegates.ArgumentError):
        policy.drops_tool("bare", "backup", "mail")
    request = {"tools": TOOLS, "tool_choice": {
        "type": "function", "function": {"name": "mail"}}}
    sent: "list[typing.Any]" = []

    def send(attempt: fivegates.Attempt) -> str:
        sent.append((attempt.route, attempt.apply(request)))
        if attempt.route == "main":
            raise ProviderError(503)
        return "ok"

    # The stand-in has no tools but search, and may do without mail.
    with contextlib.suppress(fivegates.Refused):
        engine.run("w", send, tools=["mail", "search"], sleep=lambda s: None)
    assert sent[0] == ("main", {**request, **{
        "model": "m1", "extra_headers": sent[0][1]["extra_headers"]}})
    route, last = sent[-1]
    assert route == "backup"
    assert last["tools"] == TOOLS[1:] and "tool_choice" not in last
    assert request["tools"] == TOOLS


def test_a_sender_of_the_other_kind_is_told(policy: fivegates.Policy) -> None:
    engine = fivegates.Engine(policy)

    async def asend(attempt: fivegates.Attempt) -> str:
        return "x"

    with pytest.raises(fivegates.ArgumentError, match="use await engine.arun"):
        engine.run("w", asend)
    with pytest.raises(fivegates.ArgumentError, match="takes a plain one"):
        asyncio.run(engine.arun("w", lambda attempt: "x"))  # type: ignore[arg-type,return-value]
    assert engine.route("main")["in_flight"] == 0


def test_one_sender_a_route(policy: fivegates.Policy) -> None:
    """A stand-in of another API is another callable."""
    card = copy.deepcopy(CARD)
    card["workflows"]["w"]["budget"] = {"extra_tokens": 100000,
                                        "extra_cost_usd": 1}
    engine = fivegates.Engine(fivegates.Policy.loads(
        card, auto_fingerprint=True))

    def main(attempt: fivegates.Attempt) -> str:
        raise ProviderError(503)

    got = engine.run("w", {"main": main, "backup": lambda a: f"from {a.route}"},
                     sleep=lambda s: None)
    assert got == "from backup"
    with pytest.raises(fivegates.Refused):  # nothing else can be sent to
        engine.run("w", {"main": main}, sleep=lambda s: None)
    with pytest.raises(fivegates.ArgumentError, match="no route of the card"):
        engine.run("w", {"man": main})
    with pytest.raises(fivegates.ArgumentError, match="no sender for route main"):
        engine.run("w", {"backup": main})
    assert engine.route("main")["in_flight"] == 0

    async def amain(attempt: fivegates.Attempt) -> str:
        return "async"

    assert asyncio.run(engine.arun("w", {"main": amain})) == "async"


# ---- real clients against the loopback provider


def served(provider: Provider, main: str, backup: str = "ok",
           **workflow: typing.Any) -> fivegates.Engine:
    card = copy.deepcopy(CARD)
    card["routes"]["main"]["base_url"] = f"{provider.url}/{main}"
    card["routes"]["backup"]["base_url"] = f"{provider.url}/{backup}"
    card["workflows"]["w"].update(
        {"budget": {"extra_tokens": 100000, "extra_cost_usd": 1}, **workflow})
    card["backoff"] = {"base_ms": 10, "rate_base_ms": 10}
    return fivegates.Engine(fivegates.Policy.loads(card, auto_fingerprint=True))


def test_openai(provider: Provider) -> None:
    openai = pytest.importorskip("openai")
    engine = served(provider, "503")

    def send(attempt: fivegates.Attempt) -> typing.Any:
        http = pytest.importorskip("httpx2" if openai.__version__ >= "3"
                                   else "httpx")
        with openai.OpenAI(base_url=f"{attempt.base_url}/v1", api_key="k",
                           max_retries=0, timeout=attempt.timeout(http)) as client:
            return client.chat.completions.create(**attempt.apply({
                "messages": [{"role": "user", "content": "x"}]}))

    answer = engine.run("w", send, stream=False, **FACTS)
    assert answer.choices[0].message.content == "hello"
    modes = [mode for mode, _, _ in provider.seen]
    assert modes == ["503", "503", "ok"]
    ids = {headers["x-client-request-id"] for _, headers, _ in provider.seen}
    assert len(ids) == 1
    assert [headers["x-request-attempt"] for _, headers, _ in provider.seen] == [
        "1", "2", "3"]
    assert [body["model"] for _, _, body in provider.seen] == ["m1"] * 3


def test_openai_stream_async(provider: Provider) -> None:
    openai = pytest.importorskip("openai")
    engine = served(provider, "cut", after_visible="restart")
    shown: "list[str]" = []

    async def send(attempt: fivegates.Attempt) -> str:
        async with openai.AsyncOpenAI(base_url=f"{attempt.base_url}/v1",
                                      api_key="k", max_retries=0) as client:
            stream = await client.chat.completions.create(**attempt.apply({
                "messages": [{"role": "user", "content": "x"}], "stream": True}))
            async for chunk in attempt.awatch(stream):
                if chunk.choices:
                    shown.append(chunk.choices[0].delta.content or "")
        return "".join(shown)

    async def call() -> str:
        return await engine.arun(
            "w", send, clear=lambda decision: shown.clear(), **FACTS)

    assert asyncio.run(call()) == "one two three four five "
    assert [mode for mode, _, _ in provider.seen] == ["cut", "ok"]


def test_openai_cut_without_restart(provider: Provider) -> None:
    openai = pytest.importorskip("openai")
    engine = served(provider, "cut")

    def send(attempt: fivegates.Attempt) -> None:
        with openai.OpenAI(base_url=f"{attempt.base_url}/v1", api_key="k",
                           max_retries=0) as client:
            stream = client.chat.completions.create(**attempt.apply({
                "messages": [{"role": "user", "content": "x"}], "stream": True}))
            for _ in attempt.watch(stream):
                pass

    with pytest.raises(fivegates.Refused) as caught:
        engine.run("w", send, **FACTS)
    assert caught.value.decision.reason == "partial_output"
    assert len(provider.seen) == 1


@pytest.mark.parametrize("last", ["", "stop"])
def test_one_of_two_choices_is_no_answer(rig: Rig, last: str) -> None:
    def chunks() -> "typing.Iterator[dict[str, typing.Any]]":
        for index, text, reason in ((0, "a", None), (1, "b", None),
                                    (0, "", "stop"), (1, "b", last or None)):
            yield {"choices": [{"index": index, "delta": {"content": text},
                                "finish_reason": reason}]}

    def send(attempt: fivegates.Attempt) -> int:
        return len(list(attempt.watch(chunks())))

    if last:
        assert rig.engine.run("w", send, **FACTS) == 4
        return
    with pytest.raises(fivegates.Refused) as caught:
        rig.engine.run("w", send, **FACTS)
    assert caught.value.decision.reason == "partial_output"
    assert caught.value.decision.kind == "stream_cut"


def test_anthropic(provider: Provider) -> None:
    anthropic = pytest.importorskip("anthropic")
    engine = served(provider, "529")

    def send(attempt: fivegates.Attempt) -> str:
        with anthropic.Anthropic(base_url=attempt.base_url, api_key="k",
                                 max_retries=0) as client:
            stream = client.messages.create(**attempt.apply({
                "max_tokens": 50, "stream": True,
                "messages": [{"role": "user", "content": "x"}]}))
            text = ""
            for event in attempt.watch(stream):
                if event.type == "content_block_delta":
                    text += event.delta.text
        assert attempt.finish == "stop"
        return text

    assert engine.run("w", send, **FACTS) == "one two three "


@pytest.mark.parametrize("package", ["httpx", "httpx2", "requests"])
def test_http_clients(provider: Provider, package: str) -> None:
    http = pytest.importorskip(package)
    engine = served(provider, "503")

    def send(attempt: fivegates.Attempt) -> typing.Any:
        answer = http.post(f"{attempt.base_url}/v1/chat/completions",
                           json={"model": attempt.model},
                           headers=attempt.headers, timeout=5)
        answer.raise_for_status()
        return answer.json()

    answer = engine.run("w", send, stream=False, **FACTS)
    assert answer["choices"][0]["message"]["content"] == "hello"
    assert [mode for mode, _, _ in provider.seen] == ["503", "503", "ok"]


def test_raw_stream(provider: Provider) -> None:
    httpx = pytest.importorskip("httpx")
    engine = served(provider, "event", after_visible="restart")
    attempts: "list[fivegates.Attempt]" = []

    def send(attempt: fivegates.Attempt) -> bytes:
        attempts.append(attempt)
        with httpx.stream("POST", f"{attempt.base_url}/v1/chat/completions",
                          json={"stream": True}, timeout=5) as answer:
            return b"".join(iter_bytes(answer.iter_raw(), attempt))

    got = engine.run("w", send, clear=lambda decision: None, **FACTS)
    assert got.endswith(b"[DONE]\n\n")
    assert [mode for mode, _, _ in provider.seen][0] == "event"
    assert attempts[-1].seen["visible"] > 0
    assert attempts[-1].finish == "stop"


@pytest.mark.parametrize("size", [1, 7, 64, 10000])
def test_tokens_do_not_depend_on_the_cuts(size: int) -> None:
    events = b"".join(b'data: {"choices":[{"delta":{"content":"%s"}}]}\n\n'
                      % word for word in (b"a", b"word", b"of text", b"x") * 10)
    told: "list[int]" = []

    class Counts:
        """An attempt that keeps what it is told."""

        head_seen = True

        def token(self, count: int) -> None:
            told.append(count)

    watcher = StreamWatcher(typing.cast(fivegates.Attempt, Counts()))
    for at in range(0, len(events), size):
        watcher.feed(events[at:at + size])
    assert 38 <= sum(told) <= 42


def test_a_slow_reader_makes_no_slow_route(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a few callers that read slowly would limit the route for all."""
    def chunk(text: str, reason: "str | None" = None) -> object:
        return {"choices": [{"index": 0, "delta": {"content": text},
                             "finish_reason": reason}]}

    def read(pause_s: float) -> int:
        def send(attempt: fivegates.Attempt) -> None:
            def chunks() -> "typing.Iterator[object]":
                for _ in range(40):
                    rig.clock.sleep(0.05)  # the provider: 80 tokens a second
                    yield chunk("sixteen letters.")
                yield chunk("", "stop")

            for _ in attempt.watch(chunks()):
                rig.clock.sleep(pause_s)

        rig.engine.run("w", send, **FACTS)
        limit = rig.engine.route("main")["limit"]
        assert isinstance(limit, int)
        return limit

    monkeypatch.setattr("fivegates.attempt.time.monotonic",
                        lambda: rig.clock.now_ms / 1000)
    for _ in range(10):
        assert read(0) == 0
    for _ in range(5):
        assert read(0.5) == 0


def test_watcher() -> None:
    watcher = StreamWatcher()
    watcher.feed('data: {"choices":[{"delta":{"content":"x"}}]}\n\n')
    with pytest.raises(StreamError) as caught:
        watcher.close()
    assert caught.value.evidence["phase"] == "stream"
    fivegates.classify(caught.value.evidence)

    async def chunks() -> "typing.AsyncIterator[bytes]":
        yield b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\n'
        yield b"data: [DONE]\n\n"

    class Deaf:
        """An attempt that only counts."""

        head_seen = False

        def __getattr__(self, name: str) -> typing.Any:
            return lambda *args, **more: None

    async def read() -> int:
        return len([one async for one in aiter_bytes(
            chunks(), typing.cast(fivegates.Attempt, Deaf()))])

    assert asyncio.run(read()) == 2
