"""A first look at a ledger: what it covers, what of it is broken.

Calls with lines missing are named with their places, so that they can be left
out of every total.
"""

from __future__ import annotations

import dataclasses
import sys
import typing

from fivegates.replay.lines import (
    Json,
    Line,
    Progress,
    ReplayError,
    at_ms,
    edited,
    nusd_of,
    read,
)

__all__ = ["Attempt", "Call", "Survey", "survey"]

_TOLD = 20  # places of each fault that are named
# What is kept of a call's lines, and of the line that ended an attempt: a
# ledger has many.
_KEPT_OF = {
    "call": ("call", "workflow", "policy", "prompt_tokens",
             "gen_ai.request.max_tokens", "request_bytes", "stream", "delivery",
             "server_state", "features", "unable", "max_wait_ms", "data_class",
             "region", "account", "tenant", "affinity", "stream_id",
             "prior_tokens"),
    "decision": ("after", "elapsed_ms"),
    "end": ("result", "attempts", "cost_usd", "held_usd")}
_KEPT = ("after", "action", "progress", "failure", "http.response.status_code",
         "gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens",
         "settled_usd")


@dataclasses.dataclass(slots=True)
class Attempt:
    """What a ledger tells of one attempt. Times are since it began.

    end: the line that ended it, None where it never ended. events: what came of
    it (ms, event, value), as the host wrote it down, else as that line sums it
    up.
    """

    number: int
    step: int
    route: str
    began_ms: int
    end: "Json | None" = None
    took_ms: int = 0
    events: "list[tuple[int, str, int]]" = dataclasses.field(default_factory=list)


@dataclasses.dataclass(slots=True)
class Call:
    """What a ledger tells of one call; broken: the place and what is missing."""

    key: str
    begin: Json
    began_ms: int
    place: str
    prior: "tuple[int, int]" = (0, 0)  # attempts and nano-dollars before it
    attempts: "list[Attempt]" = dataclasses.field(default_factory=list)
    steps: "list[Json]" = dataclasses.field(default_factory=list)
    could_not: "set[str]" = dataclasses.field(default_factory=set)  # beyond what it began with
    inner: int = 0
    last: "Json | None" = None
    end: "Json | None" = None
    broken: "str | None" = None


@dataclasses.dataclass
class Survey:
    """What was seen of the ledgers. calls are in the order they began."""

    files: "list[str]"
    lines: int = 0
    decisions: int = 0
    events: int = 0
    torn: int = 0
    torn_places: "list[str]" = dataclasses.field(default_factory=list)
    strays: int = 0  # lines of calls whose beginning is not there
    stray_places: "list[str]" = dataclasses.field(default_factory=list)
    policies: "dict[str, str]" = dataclasses.field(default_factory=dict)  # place of the first line
    per_policy: "dict[str, int]" = dataclasses.field(default_factory=dict)  # calls
    calls: "list[Call]" = dataclasses.field(default_factory=list)
    first: "Json | None" = None  # the first call line
    first_place: str = ""
    first_ms: int = 0
    last_ms: int = 0

    @property
    def whole(self) -> "list[Call]":
        """Calls of which every line is there."""
        return [call for call in self.calls if call.broken is None]

    @property
    def broken(self) -> "list[Call]":
        return [call for call in self.calls if call.broken is not None]


def survey(paths: "typing.Sequence[str]",
           progress: "Progress | None" = None) -> Survey:
    """Looks through ledgers. Raises ReplayError where one is none."""
    return _Surveyor(list(paths)).run(progress)


class _Surveyor:
    def __init__(self, paths: "list[str]") -> None:
        self.out = Survey(paths)
        self.open: "dict[str, Call]" = {}

    def run(self, progress: "Progress | None") -> Survey:
        out = self.out
        for line in read(out.files, progress):
            out.lines += 1
            if line.facts is None:
                out.torn += 1
                _note(out.torn_places, line.place)
                continue
            try:
                self._take(line, line.facts)
            except (KeyError, TypeError, ValueError, AttributeError) as exc:
                raise edited(line.place, exc) from None
        for call in self.open.values():
            call.broken = call.broken or (
                f"{call.place}: no end: the program was stopped, or lines are "
                "missing")
        if not out.calls:
            raise ReplayError(f"{', '.join(out.files)}: no call in it; give a "
                              "ledger from its first file on")
        return out

    def _take(self, line: Line, facts: Json) -> None:
        word, name, out = facts["line"], facts["call"], self.out
        out.last_ms = max(out.last_ms, facts["now_ms"])
        if word == "event":
            self._event(line, facts)
            return
        if word == "call":
            self._call(line, facts)
            return
        call = self.open.get(name)
        if call is None:
            out.strays += 1
            _note(out.stray_places, line.place)
            return
        if facts["policy"] != call.begin["policy"]:
            _break(call, line, "another card's line in the middle of a call")
        if word == "decision":
            out.decisions += 1
            self._decision(call, line, facts)
            call.last = _kept(facts)
            return
        call.end = _kept(facts)
        if facts["attempts"] != len(call.attempts):
            _break(call, line, f"{facts['attempts']} attempts, of which "
                   f"{len(call.attempts)} have lines")
        elif call.attempts and call.attempts[-1].end is None:
            _break(call, line, "what came of its last attempt is missing")
        del self.open[name]

    def _call(self, line: Line, facts: Json) -> None:
        out, name = self.out, facts["call"]
        before = self.open.get(name)
        if before is not None and facts["step"] > 0:
            before.steps.append({
                "prompt_tokens": facts["prompt_tokens"],
                "max_tokens": facts["gen_ai.request.max_tokens"],
                "after_ms": facts["now_ms"] - at_ms(before.last or facts,
                                                    before.began_ms)})
            return
        if facts["step"] > 0:
            out.strays += 1
            _note(out.stray_places, line.place)
            return
        if before is not None:
            _break(before, line, "it began again without an end")
        call = Call(f"{name}#{len(out.calls)}", _kept(facts),
                    facts["began_ms"], line.place)
        facts["region_age_ms"]  # of this version: asked for here, where its place is known
        out.calls.append(call)
        self.open[name] = call
        if out.first is None:
            out.first, out.first_place = facts, line.place
            out.first_ms = call.began_ms
        policy = facts["policy"]
        out.policies.setdefault(policy, line.place)
        out.per_policy[policy] = out.per_policy.get(policy, 0) + 1

    def _event(self, line: Line, facts: Json) -> None:
        self.out.events += 1
        name = facts["call"]
        call = self.open.get(name) if name is not None else None
        if call is None or facts["event"] == "deadline":
            return
        if call.attempts and call.attempts[-1].number == facts["attempt"]:
            attempt = call.attempts[-1]
            attempt.events.append((facts["now_ms"] - attempt.began_ms,
                                   facts["event"], facts["value"]))

    def _decision(self, call: Call, line: Line, facts: Json) -> None:
        when = at_ms(facts, call.began_ms)
        if facts["after"] == "unable":
            call.could_not.update(facts["unable"])
        running = (call.attempts[-1] if call.attempts
                   and call.attempts[-1].end is None else None)
        if call.last is None and facts["after"] == "begin":
            call.prior = (facts["attempts_used"], nusd_of(facts["cost_usd"]))
        elif call.last is None:
            _break(call, line, "its first decision is missing")
        if "progress" in facts:
            if running is None or facts["attempt"] not in (
                    running.number, running.number + 1) and not facts["cancel"]:
                _break(call, line, "the permit of the attempt that ended here "
                       "is missing")
            else:
                running.end = {key: facts[key] for key in _KEPT if key in facts}
                running.end["inner"] = facts["inner_requests"] - call.inner
                call.inner = facts["inner_requests"]
                running.took_ms = when - running.began_ms
                running.events = running.events or _guessed(facts["progress"])
        elif "held_usd" in facts and facts["after"] == "begin_attempt":
            if running is not None:
                _break(call, line, "what came of the attempt before this one "
                       "is missing")
            elif facts["attempt"] != len(call.attempts) + 1:
                _break(call, line, "lines of an attempt before this one are "
                       "missing")
            call.attempts.append(Attempt(facts["attempt"], facts["step"],
                                         facts["route"], when))


def _kept(facts: Json) -> Json:
    """What a replay needs of a line; words that many lines share, once."""
    return {key: sys.intern(value) if type(value) is str and len(value) < 80
            and key not in ("call", "affinity", "stream_id") else value
            for key in _KEPT_OF[facts["line"]] for value in (facts[key],)}


def _guessed(seen: Json) -> "list[tuple[int, str, int]]":
    """What must have come of an attempt, by the sum of its progress: the first
    text when it is known to have come, the rest at the last progress."""
    out: "list[tuple[int, str, int]]" = []
    last, first = int(seen["last_progress_ms"]), seen["first_token_ms"]
    if seen["sent"]:
        out.append((0, "sent", 0))
    if seen["accepted"]:
        out.append((int(seen["last_byte_ms"] if first is None else first),
                    "accepted", 0))
    for kind, key in (("reasoning", "reasoning"), ("tool_args", "tool_args_bytes"),
                      ("token", "visible")):
        count = int(seen[key])
        begin = int(first) if first is not None and kind == "token" else last
        if count > 1 and begin < last:
            out.append((begin, kind, 1))
            out.append((last, kind, count - 1))
        elif count:
            out.append((begin, kind, count))
    return sorted(out, key=lambda one: one[0])


def _break(call: Call, line: Line, why: str) -> None:
    if call.broken is None:
        call.broken = f"{line.place}: {why}"


def _note(places: "list[str]", place: str) -> None:
    if len(places) < _TOLD:
        places.append(place)
