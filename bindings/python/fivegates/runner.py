"""The loop around a send: engine.run() and await engine.arun().

    def send(attempt):
        return client.chat.completions.create(
            **attempt.apply({"model": "gpt-4o", "messages": messages}))

    answer = engine.run("customer-support-answer", send, prompt_tokens=900)

The loop asks the engine before every send, sleeps when told to, switches
routes, reports progress, and never decides anything itself. An exception that
is no failed request (a bug in send) ends the call and goes through unchanged;
so do KeyboardInterrupt, CancelledError and GeneratorExit.
"""

from __future__ import annotations

import asyncio
import decimal
import inspect
import json
import time
import typing

from fivegates.answers import answer_of, finish_word, progress_of
from fivegates.errors import Queued, Refused
from fivegates.evidence import evidence_of

if typing.TYPE_CHECKING:
    from fivegates._core import (
        Call,
        Decision,
        Engine,
        EventKind,
        LedgerLine,
        ToolState,
    )

__all__ = ["Attempt", "Outcome", "arun", "prior_of", "run"]

Hook = typing.Callable[..., typing.Any]
T = typing.TypeVar("T")

# Ladder steps that are sent, with an edited request.
_SENT_STEPS = ("smaller_model", "shorter", "no_thinking", "compact",
               "without_tools")


class Attempt:
    """One permitted request: where to send it, and how to tell of it.

    route, model, base_url, key_env, provider: from the card. number: 1, 2, ...
    changes: edits the engine asks for ({"max_tokens": 200, "drop_tools":
    True}). headers: one id per call and the attempt's number. Time-outs are
    in seconds, None where the engine names none.
    """

    def __init__(self, call: "Call", decision: "Decision",
                 route: "dict[str, typing.Any]", streamed: bool) -> None:
        self.call = call
        self.decision = decision
        self.number = decision.attempt
        self.route = decision.route
        self.model = route["model"]
        self.base_url = route["base_url"]
        self.key_env = route["key_env"]
        self.provider = route["provider"]
        self.api = route["api"]
        self.streamed = streamed
        self.resume_from = decision.resume_from
        self.started = time.monotonic()
        self.sent_said = False
        self.seen: "dict[str, int]" = {"visible": 0, "lifecycle": 0,
                                       "reasoning": 0, "tool_args_bytes": 0}
        self.head_seen = False
        self.finish: "str | None" = None
        self._usage: "dict[str, typing.Any]" = {}
        self.changes = _changes(decision)
        self.headers = {"X-Client-Request-Id": call.id,
                        "X-Request-Attempt": str(decision.attempt)}
        self.connect_s = _seconds(decision.connect_ms)
        self.first_token_s = _seconds(decision.first_token_ms)
        self.idle_s = _seconds(decision.idle_ms)
        self.total_s = _seconds(decision.total_ms)

    def __repr__(self) -> str:
        return f"<Attempt {self.number} on {self.route}>"

    @property
    def read_s(self) -> "float | None":
        """A read time-out for clients that have one for the whole answer."""
        if not self.streamed:
            return self.total_s or self.first_token_s
        waits = [s for s in (self.first_token_s, self.idle_s) if s]
        return max(waits) if waits else None

    def timeout(self, http: typing.Any) -> typing.Any:
        """A Timeout of the given module: httpx or httpx2."""
        return http.Timeout(self.read_s, connect=self.connect_s,
                            write=self.connect_s, pool=self.connect_s)

    def apply(self, request: "dict[str, typing.Any]",
              ) -> "dict[str, typing.Any]":
        """A copy of a request's arguments as this attempt must send them.

        For clients in the form of openai and anthropic: sets the model,
        adds the headers, makes the changes.
        """
        out = dict(request)
        if self.model is not None:
            out["model"] = self.model
        out["extra_headers"] = {**(request.get("extra_headers") or {}),
                                **self.headers}
        limit = self.changes.get("max_tokens")
        if limit:
            limits = ("max_completion_tokens", "max_output_tokens", "max_tokens")
            for one in [n for n in limits if n in out] or ["max_tokens"]:
                out[one] = limit
        if self.changes.get("drop_tools"):
            for name in ("tools", "tool_choice", "parallel_tool_calls"):
                out.pop(name, None)
        if self.changes.get("no_thinking"):
            for name in ("thinking", "reasoning", "reasoning_effort"):
                out.pop(name, None)
        if self.changes.get("stream"):
            out["stream"] = True
        if self.changes.get("no_stream"):
            out["stream"] = False
            out.pop("stream_options", None)
        return out

    # ---- progress

    def _event(self, kind: "EventKind", value: "int | str | None" = None) -> None:
        self.sent_said = True
        self.call.event(kind, value, attempt=self.number)

    def sent(self) -> None:
        """The request is on its way."""
        self._event("sent")

    def accepted(self) -> None:
        """A 2xx head came."""
        self.head_seen = True
        self._event("accepted")

    def lifecycle(self) -> None:
        """A ping or a created event came: bytes, not content."""
        self.seen["lifecycle"] += 1
        self._event("lifecycle")

    def reasoning(self, count: int = 1) -> None:
        """Reasoning came."""
        self.seen["reasoning"] += count
        self._event("reasoning", count)

    def token(self, count: int = 1) -> None:
        """Text the user sees came."""
        self.seen["visible"] += count
        self._event("token", count)

    def tool_args(self, count: int) -> None:
        """Bytes of a tool call's arguments came."""
        self.seen["tool_args_bytes"] += count
        self._event("tool_args", count)

    def tool(self, op_id: str, state: "ToolState",
             idempotent: bool = False) -> None:
        """An operation of a tool: requested, started, committed,
        acknowledged, failed."""
        self.call.tool(op_id, state, idempotent, attempt=self.number)

    def usage(self, **facts: typing.Any) -> None:
        """Usage as the provider reports it: prompt_tokens, output_tokens,
        cached_tokens, cost_usd, final."""
        self._usage.update(facts)
        self.call.usage(attempt=self.number, **facts)

    def terminal(self, reason: "str | None" = "stop") -> None:
        """The answer's own end came, with its finish reason."""
        self.finish = finish_word(reason)
        self._event("terminal", self.finish)

    def observe(self, chunk: object) -> None:
        """Reports one parsed event of an openai or anthropic stream."""
        if not self.head_seen:
            self.accepted()
        facts = progress_of(chunk)
        if facts.get("text"):
            self.token(max(1, len(facts["text"]) // 4))
        if facts.get("reasoning"):
            self.reasoning()
        if facts.get("tool_args"):
            self.tool_args(facts["tool_args"])
        if facts.get("lifecycle"):
            self.lifecycle()
        if facts.get("usage"):
            self.usage(**facts["usage"])
        if facts.get("finish"):
            self.terminal(facts["finish"])

    def watch(self, stream: "typing.Iterable[T]") -> "typing.Iterator[T]":
        """The stream's events, each reported before it is passed on."""
        for chunk in stream:
            self.observe(chunk)
            yield chunk

    async def awatch(self, stream: "typing.AsyncIterable[T]",
                     ) -> "typing.AsyncIterator[T]":
        """The same for async code."""
        async for chunk in stream:
            self.observe(chunk)
            yield chunk

    # ---- how it ended

    def _elapsed_ms(self) -> int:
        return int((time.monotonic() - self.started) * 1000)

    def facts(self, result: object) -> "dict[str, typing.Any]":
        """Arguments for Call.success()."""
        out = answer_of(result)
        for name, value in self._usage.items():
            out.setdefault(name, value)
        if self.finish is not None:
            out["finish_reason"] = self.finish
        if self.seen["visible"] and "output" not in out:
            out["visible"] = self.seen["visible"]
        return out

    def evidence(self, found: "dict[str, typing.Any]",
                 ) -> "dict[str, typing.Any]":
        """What was seen of this attempt, joined to an exception's evidence."""
        out = dict(found)
        out.setdefault("provider", self.provider)
        if self.api:
            out.setdefault("api", self.api)
        out.setdefault("elapsed_ms", self._elapsed_ms())
        if any(self.seen.values()) or self.head_seen:
            out.setdefault("progress", {**self.seen, "terminal": self.finish})
            if out.get("phase") in (None, "unknown", "read", "body"):
                out["phase"] = "stream"
                out.setdefault("status", 200)
        late = self.decision.first_token_ms
        if (late and not self.seen["visible"] and self.streamed
                and out.get("phase") == "read"
                and "imeout" in out.get("transport", {}).get("kind", "")
                and out["elapsed_ms"] >= late):
            out.setdefault("timeout", "first_token_timeout")
        return out


class Outcome(typing.NamedTuple):
    """What run(..., outcome=True) answers."""

    value: typing.Any
    decision: "Decision"
    call: "Call"
    attempts: int


def _seconds(ms: int) -> "float | None":
    return ms / 1000 if ms else None


def _changes(decision: "Decision") -> "dict[str, typing.Any]":
    values = {"max_tokens": decision.max_tokens,
              "compact": decision.compact_tokens}
    return {name: values.get(name, True) for name in decision.change}


def prior_of(call: "Call") -> "dict[str, int]":
    """What a call has spent, for begin(prior=...) of its redelivery."""
    spent = json.loads(call.ledger_line("end"))
    return {"attempts": spent["attempts_used"], "tokens": spent["tokens"],
            "cost_nusd": int(decimal.Decimal(spent["cost_usd"] or 0)
                             * 1_000_000_000)}


class _Run:
    """One call being driven; the sync and the async loop share it.

    steps() is a generator: it yields what the loop must do ("sleep", seconds),
    ("send", attempt), ("ask", function, arguments), and is sent what came of
    it. Its return value is the call's.
    """

    def __init__(self, engine: "Engine", workflow: str, *,
                 on_decision: "Hook | None", ledger: typing.Any,
                 cached: "Hook | None", preset: "Hook | None",
                 queue: "Hook | None", clear: "Hook | None",
                 evidence: "Hook | None", outcome: bool, reraise: bool,
                 tick: bool, call: "Call | None",
                 facts: "dict[str, typing.Any]") -> None:
        unable = set([facts["unable"]] if isinstance(facts.get("unable"), str)
                     else facts.get("unable") or ())
        unable.add("hedge")
        for word, hook in (("cache", cached), ("preset", preset),
                           ("clear", clear)):
            if hook is None:
                unable.add(word)
        if not tick:
            unable.add("tick")
        if not facts.pop("resume", False):
            unable.add("resume")
        facts["unable"] = sorted(unable)
        stream = facts.get("stream", True)
        self.streamed = stream is True or stream == "true"
        self.engine = engine
        self.on_decision = on_decision
        self.ledger = ledger
        self.cached = cached
        self.preset = preset
        self.queue = queue
        self.clear = clear
        self.evidence = evidence
        self.outcome = outcome
        self.reraise = reraise
        self.error: "BaseException | None" = None
        self.result: typing.Any = None
        self.attempts = 0
        if call is None:
            self.call = engine.begin(workflow, **facts)
            self.first = self.call.decision
        else:
            self.call = call
            self.first = call.step(facts.get("prompt_tokens") or 0,
                                   facts.get("max_output_tokens") or 0)
        self._write("call")

    def _write(self, line: "LedgerLine", decision: "Decision | None" = None) -> None:
        if self.ledger is not None:
            self.ledger.write(self.call.ledger_line(line, decision))

    def told(self, decision: "Decision") -> None:
        self._write("decision", decision)
        if self.on_decision is not None:
            self.on_decision(decision, self.call)

    def gone(self) -> None:
        """The caller left: no other send, no blame."""
        decision = self.call.cancel()
        self._write("decision", decision)
        self._write("end", decision)

    def broken(self, exc: BaseException) -> None:
        """The loop ends by an exception; the engine may know already."""
        if isinstance(exc, Refused) or exc is self.error:
            return
        if isinstance(exc, Exception):
            self.call.end()
        else:
            self.gone()

    def end(self, decision: "Decision", value: typing.Any) -> typing.Any:
        self._write("end", decision)
        if self.outcome:
            return Outcome(value, decision, self.call, self.attempts)
        return value

    def refuse(self, decision: "Decision") -> typing.NoReturn:
        self._write("end", decision)
        kind = Queued if decision.action == "queue" else Refused
        refused = kind(decision, self.call)
        refused.answer = self.result
        if isinstance(refused, Queued):
            refused.prior = prior_of(self.call)
        if self.error is None:
            raise refused
        if self.reraise:
            self.error.refused = refused  # type: ignore[attr-defined]
            raise self.error
        raise refused from self.error

    def steps(self) -> "typing.Generator[tuple[typing.Any, ...], typing.Any, typing.Any]":
        decision = self.first
        while True:
            self.told(decision)
            action = decision.action
            if action == "accept":
                return self.end(decision, self.result)
            if action == "queue":
                yield from self._clear(decision)
                if self.queue is not None:
                    return self.end(decision, (
                        yield "ask", self.queue, (decision, self.call)))
                self.refuse(decision)
            if action == "degrade" and decision.ladder_step not in _SENT_STEPS:
                answered, value = yield from self._stand_in(decision)
                if answered:
                    yield from self._clear(decision)
                    return self.end(decision, value)
                decision = self.call.unable(
                    "cache" if decision.ladder_step == "cached" else "preset")
                continue
            if action not in ("proceed", "retry", "fallback", "hold",
                              "degrade"):
                self.refuse(decision)
            decision = yield from self._next(decision)

    def _clear(self, decision: "Decision") -> "typing.Generator[tuple[typing.Any, ...], typing.Any, None]":
        """Nothing is put behind the beginning of another answer."""
        if "clear_shown" in decision.change and self.clear is not None:
            yield "ask", self.clear, (decision,)

    def _stand_in(self, decision: "Decision") -> "typing.Generator[tuple[typing.Any, ...], typing.Any, tuple[bool, typing.Any]]":
        """An answer without a send: (found, value)."""
        if decision.ladder_step == "cached" and self.cached is not None:
            value = yield "ask", self.cached, (decision,)
            return value is not None, value
        if decision.ladder_step == "preset" and self.preset is not None:
            value = yield "ask", self.preset, (decision,)
            return value is not None, value
        return False, None

    def _next(self, decision: "Decision") -> "typing.Generator[tuple[typing.Any, ...], typing.Any, Decision]":
        """Waits, asks for permission, sends: the decision after that."""
        if decision.wait_ms:
            yield "sleep", decision.wait_ms / 1000
        permit = self.call.begin_attempt()
        if permit.action != "proceed":
            return permit
        self.told(permit)
        yield from self._clear(permit)
        route = self.engine.policy.route(permit.route or "")
        attempt = Attempt(self.call, permit, route, self.streamed)
        self.attempts += 1
        kind, value = yield "send", attempt
        if kind == "decided":
            return typing.cast("Decision", value)
        if kind == "ok":
            self.error = None
            self.result = value
            return self.call.success(attempt=attempt.number,
                                     **attempt.facts(value))
        found = (self.evidence(value) if self.evidence is not None else None
                 ) or evidence_of(value)
        if found is None:
            self.gone()
            raise value  # not a failed request: a bug, or the caller's own
        self.error = value
        return self.call.failure(attempt.evidence(found),
                                 attempt=attempt.number)


def run(engine: "Engine", workflow: str, send: "typing.Callable[[Attempt], T]",
        *, on_decision: "Hook | None" = None, ledger: typing.Any = None,
        cached: "Hook | None" = None, preset: "Hook | None" = None,
        queue: "Hook | None" = None, clear: "Hook | None" = None,
        evidence: "Hook | None" = None, outcome: bool = False,
        reraise: bool = False, call: "Call | None" = None,
        sleep: "typing.Callable[[float], object]" = time.sleep,
        **facts: typing.Any) -> T:
    """Runs a call to its end and returns what send, or a stand-in, returned.

    send(attempt) makes one request, without retries of its own, and returns
    the answer or raises. Facts are those of Engine.begin().

    on_decision(decision, call) hears every decision. ledger.write(line) gets
    the ledger. cached(decision) and preset(decision) answer without a send
    (None: cannot); decision.text is the preset's text. clear(decision) takes
    back what was shown. queue(decision, call) puts the call away; without it
    Queued is raised. evidence(exception) may answer evidence for exceptions
    this package does not know. call goes on with a call as its next step:
    the next model request of an agent's loop (engine.run(..., outcome=True)
    answers an Outcome that has the call).

    Raises Refused from the last attempt's exception when the engine ends the
    call; with reraise=True that exception itself, its .refused set.
    """
    driven = _Run(engine, workflow, on_decision=on_decision, ledger=ledger,
                  cached=cached, preset=preset, queue=queue, clear=clear,
                  evidence=evidence, outcome=outcome, reraise=reraise,
                  tick=False, call=call, facts=facts)
    steps = driven.steps()
    reply: typing.Any = None
    try:
        while True:
            todo = steps.send(reply)
            if todo[0] == "sleep":
                reply = sleep(todo[1])
            elif todo[0] == "ask":
                reply = todo[1](*todo[2])
            else:
                try:
                    reply = ("ok", send(todo[1]))
                except Exception as exc:
                    reply = ("error", exc)
    except StopIteration as stop:
        return typing.cast(T, stop.value)
    except BaseException as exc:
        driven.broken(exc)
        raise
    finally:
        steps.close()


async def arun(engine: "Engine", workflow: str,
               send: "typing.Callable[[Attempt], typing.Awaitable[T]]", *,
               on_decision: "Hook | None" = None, ledger: typing.Any = None,
               cached: "Hook | None" = None, preset: "Hook | None" = None,
               queue: "Hook | None" = None, clear: "Hook | None" = None,
               evidence: "Hook | None" = None, outcome: bool = False,
               reraise: bool = False, call: "Call | None" = None,
               sleep: "typing.Callable[[float], typing.Awaitable[object]]" = asyncio.sleep,
               **facts: typing.Any) -> T:
    """run() for async code: send is a coroutine function.

    A silent attempt is noticed while it runs: when the engine decides to send
    elsewhere, the task of the attempt is cancelled.
    """
    driven = _Run(engine, workflow, on_decision=on_decision, ledger=ledger,
                  cached=cached, preset=preset, queue=queue, clear=clear,
                  evidence=evidence, outcome=outcome, reraise=reraise,
                  tick=True, call=call, facts=facts)
    steps = driven.steps()
    reply: typing.Any = None
    try:
        while True:
            todo = steps.send(reply)
            if todo[0] == "sleep":
                reply = await sleep(todo[1])
            elif todo[0] == "ask":
                reply = todo[1](*todo[2])
                if inspect.isawaitable(reply):
                    reply = await reply
            else:
                reply = await _awaited(driven, send, todo[1])
    except StopIteration as stop:
        return typing.cast(T, stop.value)
    except BaseException as exc:
        driven.broken(exc)
        raise
    finally:
        steps.close()


async def _awaited(driven: _Run,
                   send: "typing.Callable[[Attempt], typing.Awaitable[T]]",
                   attempt: Attempt) -> "tuple[str, typing.Any]":
    """Runs one send, looking at the engine's clocks while it runs."""
    task: "asyncio.Future[T]" = asyncio.ensure_future(send(attempt))
    wake_ms = attempt.decision.wake_ms
    try:
        while True:
            done, _ = await asyncio.wait(
                {task}, timeout=wake_ms / 1000 if wake_ms else None)
            if done:
                error = task.exception() if not task.cancelled() else None
                if task.cancelled():  # by somebody else: not a failure
                    raise asyncio.CancelledError
                if error is None:
                    return "ok", task.result()
                if not isinstance(error, Exception):
                    raise error
                return "error", error
            if not attempt.sent_said:
                attempt.sent()  # in doubt it was; silence counts from here
            decision = driven.call.deadline()
            if decision.action == "keep_waiting":
                wake_ms = decision.wake_ms or decision.wait_ms
                continue
            driven.error = TimeoutError(
                f"attempt {attempt.number} on {attempt.route}: "
                f"{decision.kind}")
            return "decided", decision
    finally:
        if not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
