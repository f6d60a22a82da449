"""One call being driven: what run() and arun(), the transport and the adapters
share. It decides nothing itself and does no I/O: its steps() say what to do.
"""

from __future__ import annotations

import contextlib
import decimal
import json
import operator
import typing

from fivegates.attempt import Attempt
from fivegates.errors import EditError, Queued, Refused
from fivegates.evidence import evidence_of
from fivegates.served import ids_of

if typing.TYPE_CHECKING:
    from fivegates._core import (
        Call,
        Decision,
        Engine,
        LedgerLine,
        Unable,
    )
    from fivegates.cache import AnswerCache, AsyncAnswerCache, CachedAnswer

__all__ = ["Cache", "CacheKey", "Driven", "Hook", "Outcome", "prior_of",
           "unable"]

Hook = typing.Callable[..., typing.Any]
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
    attempt: "Attempt | None" = None  # the latest
    attempts = 0
    ended = False
    heard = True  # somebody is told the decisions

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
        streamed = stream is True or stream == "true"
        if call is None:
            call = engine.begin(workflow, **facts)
            self.begun(engine, workflow, streamed, call, call.decision)
        else:
            self.begun(engine, workflow, streamed, call, call.step(
                facts.get("prompt_tokens") or 0,
                facts.get("max_output_tokens") or 0))

    def begun(self, engine: "Engine", workflow: str, streamed: bool,
              call: "Call", first: "Decision") -> None:
        """The call has begun, with its first decision."""
        self.engine = engine
        self.workflow = workflow
        self.streamed = streamed
        self.call = call
        self.first = first
        self.primary = first.requested or first.route
        if self.ledger is not None:
            self._write("call")

    def _write(self, line: "LedgerLine", decision: "Decision | None" = None) -> None:
        if self.ledger is not None:
            response_id, request_id = None, None
            if line == "decision" and self.attempt is not None:
                response_id, request_id = ids_of(self.attempt.head,
                                                 self.attempt.body)
            self.ledger.write(self.call.ledger_line(
                line, decision, response_id=response_id, request_id=request_id))

    def told(self, decision: "Decision") -> None:
        if self.ledger is not None:
            self._write("decision", decision)
        if self.on_decision is not None:
            self.on_decision(decision, self.call)

    def gone(self) -> None:
        """The caller left: no other send, no blame."""
        decision = self.call.cancel()
        self.ended = True
        if decision.reason == "client_gone":  # else it was told, and at its end
            self._write("decision", decision)
        self._write("end", decision)

    def broken(self, exc: BaseException) -> None:
        """The loop ends by an exception; the call may have ended before."""
        if not self.ended:
            with contextlib.suppress(Exception):  # a ledger that raised exc
                self.gone()

    def end(self, decision: "Decision", value: typing.Any) -> typing.Any:
        self.ended = True
        if self.ledger is not None:
            self._write("end", decision)
        if self.outcome:
            return Outcome(value, decision, self.call, self.attempts,
                           self.found)
        return value

    def refuse(self, decision: "Decision") -> typing.NoReturn:
        self.ended = True
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
            if self.heard:
                self.told(decision)
            action = decision.action
            if action == "accept":
                if self.cache is not None and self.keep:
                    yield "ask", self.cache.store, (self.key, self.kept(),
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

    def kept(self) -> typing.Any:
        """What the cache keeps of an accepted answer."""
        return self.result

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
        if self.heard:
            self.told(permit)
        if self.clear is not None:
            yield from self._clear(permit)
        attempt = Attempt(self.call, permit, self.route(permit.route or ""),
                          self.streamed, self.workflow)
        self.attempt = attempt
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
        if isinstance(value, EditError):
            self.call.unable("edit")
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
