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
import contextlib
import decimal
import inspect
import json
import operator
import time
import typing

from fivegates.attempt import Attempt
from fivegates.errors import ArgumentError, Queued, Refused
from fivegates.evidence import evidence_of

if typing.TYPE_CHECKING:
    from fivegates._core import (
        Call,
        Decision,
        Engine,
        LedgerLine,
        Unable,
    )
    from fivegates.cache import AnswerCache, AsyncAnswerCache, CachedAnswer

__all__ = ["Outcome", "arun", "prior_of", "run"]

Hook = typing.Callable[..., typing.Any]
T = typing.TypeVar("T")
Sender = typing.Union["typing.Callable[[Attempt], T]",
                      "typing.Mapping[str, typing.Callable[[Attempt], T]]"]
Cache = typing.Union["AnswerCache", "AsyncAnswerCache"]
CacheKey = typing.Union[str, typing.Mapping[str, typing.Any]]

# Ladder steps that are sent, with an edited request.
_SENT_STEPS = ("smaller_model", "shorter", "no_thinking", "compact",
               "without_tools")


class Outcome(typing.NamedTuple):
    """What run(..., outcome=True) answers.

    label: what a degraded answer must say of itself (the route requested, the
    one that served, if any, and why), else None. cached: the answer's entry,
    where it came out of a cache.
    """

    value: typing.Any
    decision: "Decision"
    call: "Call"
    attempts: int
    cached: "CachedAnswer | None" = None

    @property
    def label(self) -> "dict[str, typing.Any] | None":
        return self.decision.label


def prior_of(call: "Call") -> "dict[str, int]":
    """What a call has spent, for begin(prior=...) of its redelivery."""
    spent = json.loads(call.ledger_line("end"))
    return {"attempts": spent["attempts_used"], "tokens": spent["tokens"],
            "cost_nusd": int(decimal.Decimal(spent["cost_usd"] or 0)
                             * 1_000_000_000)}


class Driven:
    """One call being driven; the sync and the async loop share it.

    steps() is a generator: it yields what the loop must do ("sleep", seconds),
    ("send", attempt), ("ask", function, arguments), and is sent what came of
    it: ("ok", answer), ("error", exception), ("decided", decision) where the
    sender told the engine itself, ("begun", answer) where the answer is being
    read and its reader will. Its return value is the call's.
    """

    # What most calls never set.
    routes: "typing.Collection[str] | None" = None  # those with a sender; None: all
    cache: "Cache | None" = None
    key = ""
    found: "CachedAnswer | None" = None
    keep = False
    cached: "Hook | None" = None
    preset: "Hook | None" = None
    queue: "Hook | None" = None
    clear: "Hook | None" = None
    evidence: "Hook | None" = None
    outcome = False
    reraise = False
    error: "BaseException | None" = None
    result: typing.Any = None
    attempts = 0
    ended = False

    def __init__(self, engine: "Engine", workflow: str, *,
                 on_decision: "Hook | None", ledger: typing.Any,
                 cached: "Hook | None", preset: "Hook | bool | None",
                 queue: "Hook | None", clear: "Hook | None",
                 evidence: "Hook | None", outcome: bool, reraise: bool,
                 tick: bool, call: "Call | None",
                 facts: "dict[str, typing.Any]",
                 cache: "Cache | None" = None,
                 cache_key: "CacheKey | None" = None,
                 routes: "typing.Collection[str] | None" = None) -> None:
        self.routes = routes
        self.cache = cache
        if cache is not None or cache_key is not None:
            from fivegates.cache import key_of_call  # only where asked for
            self.key = key_of_call(workflow, cache, cache_key, facts,
                                   cached=cached, blocking=not tick)
        if isinstance(preset, bool):  # the card's text, in the call's language
            preset = operator.attrgetter("text") if preset else None
        facts["unable"] = unable(
            facts.get("unable"), facts.pop("resume", False),
            cached if cache is None else cache, preset, clear, tick)
        self.on_decision = on_decision
        self.ledger = ledger
        self.cached = cached
        self.preset = preset
        self.queue = queue
        self.clear = clear
        self.evidence = evidence
        self.outcome = outcome
        self.reraise = reraise
        self.begin(engine, workflow, facts, call)

    def begin(self, engine: "Engine", workflow: str,
              facts: "dict[str, typing.Any]", call: "Call | None" = None,
              ) -> None:
        """Begins the call, or the next step of one."""
        stream = facts.get("stream", True)
        self.streamed = stream is True or stream == "true"
        self.engine = engine
        self.workflow = workflow
        if call is None:
            self.call = engine.begin(workflow, **facts)
            self.first = self.call.decision
        else:
            self.call = call
            self.first = call.step(facts.get("prompt_tokens") or 0,
                                   facts.get("max_output_tokens") or 0)
        self.primary = self.first.requested or self.first.route
        if self.ledger is not None:
            self._write("call")

    def _write(self, line: "LedgerLine", decision: "Decision | None" = None) -> None:
        self.ended = self.ended or line == "end"
        if self.ledger is not None:
            self.ledger.write(self.call.ledger_line(line, decision))

    def told(self, decision: "Decision") -> None:
        if self.ledger is not None:
            self._write("decision", decision)
        if self.on_decision is not None:
            self.on_decision(decision, self.call)

    def gone(self) -> None:
        """The caller left: no other send, no blame."""
        decision = self.call.cancel()
        if decision.reason == "client_gone":  # else it was told, and at its end
            self._write("decision", decision)
        self._write("end", decision)

    def broken(self, exc: BaseException) -> None:
        """The loop ends by an exception; the call may have ended before."""
        if not self.ended:
            with contextlib.suppress(Exception):  # a ledger that raised exc
                self.gone()

    def end(self, decision: "Decision", value: typing.Any) -> typing.Any:
        self._write("end", decision)
        if self.outcome:
            return Outcome(value, decision, self.call, self.attempts,
                           self.found)
        return value

    def refuse(self, decision: "Decision") -> typing.NoReturn:
        self._write("end", decision)
        kind = Queued if decision.action == "queue" else Refused
        refused = kind(decision, self.call)
        refused.answer = self.result
        if isinstance(refused, Queued):
            refused.prior = prior_of(self.call)
        try:
            if self.error is None:
                raise refused
            if self.reraise:
                self.error.refused = refused  # type: ignore[attr-defined]
                raise self.error
            raise refused from self.error
        finally:
            del refused  # its traceback holds this frame

    def steps(self) -> "typing.Generator[tuple[typing.Any, ...], typing.Any, typing.Any]":
        decision = self.first
        while True:
            self.told(decision)
            action = decision.action
            if action == "accept":
                if self.cache is not None and self.keep:
                    yield "ask", self.cache.store, (self.key, self.result,
                                                    decision.label)
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
            after = yield from self._next(decision)
            if after is None:
                return self.result  # whoever reads the answer ends the call
            decision = after

    def _clear(self, decision: "Decision") -> "typing.Generator[tuple[typing.Any, ...], typing.Any, None]":
        """Nothing is put behind the beginning of another answer."""
        if "clear_shown" in decision.change and self.clear is not None:
            yield "ask", self.clear, (decision,)

    def _stand_in(self, decision: "Decision") -> "typing.Generator[tuple[typing.Any, ...], typing.Any, tuple[bool, typing.Any]]":
        """An answer without a send: (found, value)."""
        if decision.ladder_step == "cached" and self.cache is not None:
            self.found = yield "ask", self.cache.lookup, (
                self.key, decision.max_age_s)
            return self.found is not None, self.found and self.found.answer
        if decision.ladder_step == "cached" and self.cached is not None:
            value = yield "ask", self.cached, (decision,)
            return value is not None, value
        if decision.ladder_step == "preset" and self.preset is not None:
            value = yield "ask", self.preset, (decision,)
            return value is not None, value
        return False, None

    def lacks(self, decision: "Decision") -> "Unable | None":
        """What of a decision this host cannot do; the engine decides again."""
        if (self.routes is None or decision.route is None
                or decision.route in self.routes
                or decision.route == self.primary):
            return None
        return "reroute"

    def route(self, name: str) -> "dict[str, typing.Any]":
        """A route of the card."""
        return self.engine.policy.route(name)

    def send(self, attempt: Attempt) -> "typing.Generator[tuple[typing.Any, ...], typing.Any, tuple[str, typing.Any]]":
        """Has one attempt sent; what came of it."""
        return typing.cast("tuple[str, typing.Any]", (yield "send", attempt))

    def _next(self, decision: "Decision") -> "typing.Generator[tuple[typing.Any, ...], typing.Any, Decision | None]":
        """Waits, asks for permission, sends: the decision after that.

        None: the answer has begun and goes on; the call is still running.
        """
        lack = self.lacks(decision)
        if lack is not None:
            return self.call.unable(lack)
        if decision.wait_ms:
            yield "sleep", decision.wait_ms / 1000
        permit = self.call.begin_attempt()
        if permit.action != "proceed":
            return permit
        self.told(permit)
        if self.clear is not None:
            yield from self._clear(permit)
        attempt = Attempt(self.call, permit, self.route(permit.route or ""),
                          self.streamed, self.workflow)
        self.attempts += 1
        kind, value = yield from self.send(attempt)
        if kind == "decided":
            decided: "Decision" = value
            return decided
        if kind == "begun":
            self.result = value
            return None
        if kind == "ok":
            self.error = None
            self.result = value
            facts = attempt.facts(value)
            self.keep = not facts.get("tool_calls")  # later they would act again
            return self.call.success(attempt=attempt.number, **facts)
        found = None
        if not _decided(value, attempt):
            found = (self.evidence(value) if self.evidence is not None
                     else None) or evidence_of(value)
        if found is None:
            self.gone()
            raise value  # not a failed request: a bug, or the caller's own
        self.error = value
        return self.call.failure(attempt.evidence(found),
                                 attempt=attempt.number)


def unable(stated: "str | typing.Iterable[str] | None", resume: object,
           cache: object, preset: object, clear: object, tick: bool,
           ) -> "list[str]":
    """What this host cannot do, in the engine's words: what its caller
    states, and what it has no hook for."""
    words = {stated} if isinstance(stated, str) else set(stated or ())
    words.add("hedge")
    for word, able in (("cache", cache is not None),
                       ("preset", preset is not None),
                       ("clear", clear is not None), ("tick", tick),
                       ("resume", resume)):
        if not able:
            words.add(word)
    return sorted(words)


def _decided(exc: BaseException, attempt: Attempt) -> bool:
    """Whether a run inside the attempt refused, and raised its last attempt's
    own exception. An exception that only has been through a run before, one
    object raised again and again, is judged anew."""
    refused = getattr(exc, "refused", None)
    return isinstance(refused, Refused) and refused.at_s >= attempt.started


def _routes(engine: "Engine", send: "Sender[typing.Any]",
            ) -> "typing.Collection[str] | None":
    """The routes there is a sender for; None: one sender serves all."""
    if not isinstance(send, typing.Mapping):
        return None
    known = engine.policy.routes()
    for name in send:
        if name not in known:
            raise ArgumentError(f"a sender for {name!r}, which is no route of "
                                f"the card; it has {', '.join(known)}")
    return send.keys()


def _sender(send: "Sender[T]", attempt: Attempt) -> "typing.Callable[[Attempt], T]":
    if not isinstance(send, typing.Mapping):
        return send
    found = send.get(attempt.route or "")
    if found is None:
        raise ArgumentError(f"no sender for route {attempt.route}; the dict "
                            f"given to run() has {', '.join(send)}")
    return found


def run(engine: "Engine", workflow: str, send: "Sender[T]",
        *, on_decision: "Hook | None" = None, ledger: typing.Any = None,
        cached: "Hook | None" = None, preset: "Hook | bool | None" = None,
        queue: "Hook | None" = None, clear: "Hook | None" = None,
        evidence: "Hook | None" = None, cache: "Cache | None" = None,
        cache_key: "CacheKey | None" = None, outcome: bool = False,
        reraise: bool = False, call: "Call | None" = None,
        sleep: "typing.Callable[[float], object]" = time.sleep,
        **facts: typing.Any) -> T:
    """Runs a call to its end and returns what send, or a stand-in, returned.

    send(attempt) makes one request, without retries of its own, and returns
    the answer or raises. A dict of them, {route: send}, serves stand-ins that
    speak another API; a route without one is not used. Facts are those of Engine.begin().

    on_decision(decision, call) hears every decision. ledger.write(line) gets
    the ledger. cached(decision) and preset(decision) answer without a send
    (None: cannot). preset=True answers decision.text: the card's text in the
    call's language. cache keeps accepted answers under cache_key (the request,
    or a text) and serves one where the ladder says `cached`: fivegates.cache.
    clear(decision) takes back what was shown. queue(decision, call) puts the
    call away; without it Queued is raised. evidence(exception) may answer
    evidence for exceptions this package does not know. call goes on with a
    call as its next step: the next model request of an agent's loop
    (engine.run(..., outcome=True) answers an Outcome that has the call).

    Raises Refused from the last attempt's exception when the engine ends the
    call; with reraise=True that exception itself, its .refused set.
    """
    driven = Driven(engine, workflow, on_decision=on_decision, ledger=ledger,
                    cached=cached, preset=preset, queue=queue, clear=clear,
                    evidence=evidence, outcome=outcome, reraise=reraise,
                    tick=False, call=call, facts=facts, cache=cache,
                    cache_key=cache_key, routes=_routes(engine, send))
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
                    reply = ("ok", _sender(send, todo[1])(todo[1]))
                except Exception as exc:
                    reply = ("error", exc)
                if inspect.iscoroutine(reply[1]):
                    reply[1].close()
                    raise ArgumentError("send is a coroutine function; use "
                                        "await engine.arun()")
    except StopIteration as stop:
        return typing.cast(T, stop.value)
    except BaseException as exc:
        driven.broken(exc)
        raise
    finally:
        steps.close()


async def arun(engine: "Engine", workflow: str,
               send: "Sender[typing.Awaitable[T]]", *,
               on_decision: "Hook | None" = None, ledger: typing.Any = None,
               cached: "Hook | None" = None, preset: "Hook | bool | None" = None,
               queue: "Hook | None" = None, clear: "Hook | None" = None,
               evidence: "Hook | None" = None, cache: "Cache | None" = None,
               cache_key: "CacheKey | None" = None, outcome: bool = False,
               reraise: bool = False, call: "Call | None" = None,
               sleep: "typing.Callable[[float], typing.Awaitable[object]]" = asyncio.sleep,
               **facts: typing.Any) -> T:
    """run() for async code: send is a coroutine function.

    A silent attempt is noticed while it runs: when the engine decides to send
    elsewhere, the task of the attempt is cancelled.
    """
    driven = Driven(engine, workflow, on_decision=on_decision, ledger=ledger,
                    cached=cached, preset=preset, queue=queue, clear=clear,
                    evidence=evidence, outcome=outcome, reraise=reraise,
                    tick=True, call=call, facts=facts, cache=cache,
                    cache_key=cache_key, routes=_routes(engine, send))
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
                reply = await _awaited(driven, _sender(send, todo[1]), todo[1])
    except StopIteration as stop:
        return typing.cast(T, stop.value)
    except BaseException as exc:
        driven.broken(exc)
        raise
    finally:
        steps.close()


async def _awaited(driven: Driven,
                   send: "typing.Callable[[Attempt], typing.Awaitable[T]]",
                   attempt: Attempt) -> "tuple[str, typing.Any]":
    """Runs one send, looking at the engine's clocks while it runs."""
    sending = send(attempt)
    if not inspect.isawaitable(sending):
        raise ArgumentError("send must be a coroutine function for arun(); "
                            "run() takes a plain one")
    task: "asyncio.Future[T]" = asyncio.ensure_future(sending)
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
