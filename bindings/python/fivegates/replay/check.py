"""The same card again: does the engine write the ledger's lines as they are?

Every line is applied in the order of what it tells of, at its own time, on a
fresh region: what a call was told before, its waits, its attempts' failures and
answers, so that what calls share evolves as it did.
"""

from __future__ import annotations

import dataclasses
import heapq
import json
import typing

from fivegates._core import Call as CoreCall
from fivegates._core import Decision, Engine, Policy, Region, names
from fivegates.errors import FivegatesError
from fivegates.replay.lines import (
    Json,
    Line,
    Progress,
    ReplayError,
    at_ms,
    edited,
    in_order,
    nusd_of,
    read,
)
from fivegates.replay.survey import Call, Survey

__all__ = ["Checked", "Difference", "begin", "check", "fresh_region", "judged",
           "tell"]

_TOLD = 20
_FINISH = {number: word for word, number in names("finish").items()}
_OVERTAKEN_MS = 1_000
_NEW_REGION_MS = 3_600_000  # a region's own time when it is made


class Difference(typing.NamedTuple):
    """A line that came out otherwise: its place, and what of it differs."""

    place: str
    line: str
    members: "dict[str, tuple[object, object]]"  # recorded, now


@dataclasses.dataclass
class Checked:
    """How many lines came out as they were written.

    decisions and equal count decision lines; others and others_equal those of
    calls and ends; not_followed are lines of calls that the engine would not
    let go on as they did.
    """

    decisions: int = 0
    equal: int = 0
    others: int = 0
    others_equal: int = 0
    not_followed: int = 0
    differences: "list[Difference]" = dataclasses.field(default_factory=list)
    unknown: "dict[str, int]" = dataclasses.field(default_factory=dict)

    @property
    def exact(self) -> bool:
        return (self.equal == self.decisions and not self.not_followed
                and self.others == self.others_equal)


def fresh_region(first: Json) -> Region:
    """A region as it was when the ledger's first call found it, but empty."""
    age = max(int(first["region_age_ms"]) - _NEW_REGION_MS, 0)
    return Region(now_ms=int(first["began_ms"]) - age)


def begin(engine: Engine, record: Call, now_ms: int, **other: object) -> CoreCall:
    """Begins a recorded call; other facts than the recorded ones by keyword.

    Of the tenant, of what the call was bound to and of its random stream a
    ledger has hashes, which the engine takes for who replays, unadvertised.
    """
    facts = {**facts_of(record.begin, record.prior), **other}
    made = typing.cast(typing.Any, engine).begin(
        record.begin["workflow"], now_ms=now_ms, _known=known_of(record.begin),
        **facts)
    return typing.cast(CoreCall, made)


def facts_of(begin: Json, prior: "tuple[int, int]") -> Json:
    """begin()'s facts of a call line. The names of tools are not in a ledger."""
    facts: Json = {
        "call_id": begin["call"],
        "prompt_tokens": begin["prompt_tokens"],
        "max_output_tokens": begin["gen_ai.request.max_tokens"],
        "request_bytes": begin["request_bytes"], "stream": begin["stream"],
        "delivery": begin["delivery"], "server_state": begin["server_state"],
        "features": begin["features"], "unable": begin["unable"],
        "max_wait_ms": begin["max_wait_ms"], "data_class": begin["data_class"],
        "region": begin["region"], "account": begin["account"],
    }
    if any(prior) or begin["prior_tokens"]:
        facts["prior"] = {"attempts": prior[0], "cost_nusd": prior[1],
                          "tokens": begin["prior_tokens"]}
    return facts


def known_of(begin: Json) -> "tuple[int, int, int]":
    """The hashes that stand for names: tenant, affinity, the random stream."""
    tenant, affinity, stream = (int(begin[key] or "0", 16) for key in (
        "tenant", "affinity", "stream_id"))
    return tenant, affinity, stream


class _Live:
    """A call being decided again."""

    def __init__(self, call: CoreCall, record: Call) -> None:
        self.call = call
        self.record = record
        self.began_ms = record.began_ms
        self.decision: "Decision | None" = None
        self.inner = 0
        self.effect = "none"
        self.unable: "set[str]" = set()


class _Checker:
    def __init__(self, seen: Survey, policies: "typing.Mapping[str, Policy]") -> None:
        assert seen.first is not None
        self.seen = seen
        self.out = Checked()
        self.now_ms = seen.first_ms
        self.region = fresh_region(seen.first)
        self.engines = {name: Engine(policy, region=self.region, seed=0, slot=0,
                                     clock=lambda: self.now_ms)
                        for name, policy in policies.items()}
        self.any = next(iter(self.engines.values()))
        self.live: "dict[str, _Live | None]" = {}
        self.offset: "int | None" = None
        self.calls = {call.place: call for call in seen.calls}
        # Where the host wrote no event lines: what must have come, and when.
        self.guessed: "list[tuple[int, int, str, int, str, int]]" = []
        self.serial = 0

    def _guess(self, name: str, live: "_Live", number: int, wake_ms: int) -> None:
        """What came of an attempt that begins now, by the line of its end; and
        that its host looked at the clock when it was to."""
        if self.seen.events or number > len(live.record.attempts):
            return
        one = live.record.attempts[number - 1]
        for at, event, value in one.events:
            self._plan(one.began_ms + at, name, number, event, value)
        if one.end is not None and "tick" not in live.record.begin["unable"]:
            self._plan(one.began_ms + wake_ms, name, number, "deadline",
                       one.began_ms + one.took_ms)

    def _plan(self, at: int, name: str, number: int, event: str, value: int) -> None:
        self.serial += 1
        heapq.heappush(self.guessed, (at, self.serial, name, number, event, value))

    # ---- one line

    def take(self, line: Line, facts: Json) -> None:
        """Does what a line tells of."""
        word = facts["line"]
        if word == "event":
            self._event(facts)
            return
        self._clock(facts)
        live = self.live.get(facts["call"])
        try:
            if word == "call":
                self._begin(line.place, facts)
            elif live is not None and word == "decision":
                live.decision = self._decided(live, facts)
        except (FivegatesError, TypeError, ValueError) as exc:
            self.live[facts["call"]] = None
            self._differ(line, facts, {"error": (None, str(exc))})

    def write(self, line: Line, facts: Json) -> None:
        """Writes a line again, and compares."""
        word, now = facts["line"], facts["now_ms"]
        if word == "event":
            return
        decision = word == "decision"
        self.out.decisions += decision
        self.out.others += not decision
        live = self.live.get(facts["call"])
        if live is None:
            self.out.not_followed += 1
            return
        if word == "end":
            self._come(now)
        made = live.call.ledger_line(word, live.decision if decision else None,
                                     now_ms=now, **_ids(facts))
        if word == "end":
            live.call.end()
            del self.live[facts["call"]]
        if made == line.raw:
            self.out.equal += decision
            self.out.others_equal += not decision
        else:
            self._differ(line, facts, _members(facts, json.loads(made)))

    def _differ(self, line: Line, facts: Json,
                members: "dict[str, tuple[object, object]]") -> None:
        if len(self.out.differences) < _TOLD:
            self.out.differences.append(
                Difference(line.place, facts["line"], members))

    def _clock(self, facts: Json) -> None:
        """The wall time, as the host told it."""
        if facts["unix_ms"] is None:
            return
        offset = facts["unix_ms"] - facts["now_ms"]
        # A line that another thread's overtook has that one's time, a little
        # later than its own: no new wall time.
        if self.offset is None or not 0 <= offset - self.offset < _OVERTAKEN_MS:
            self.offset = offset
            at = facts.get("began_ms", facts["now_ms"])
            self.any.clock(at + offset, now_ms=at)

    def _come(self, until_ms: int) -> None:
        """What was not written down and must have come by now."""
        while self.guessed and self.guessed[0][0] <= until_ms:
            at, _, name, number, event, value = heapq.heappop(self.guessed)
            live = self.live.get(name)
            if live is not None and event == "deadline":
                if at < value:  # its attempt's end: later there is a line
                    again = live.call.deadline(at)
                    self._plan(at + max(again.wake_ms or again.wait_ms, 1), name,
                               number, event, value)
            elif live is not None:
                tell(live.call, event, value, number, at)

    def _event(self, facts: Json) -> None:
        now, event = facts["now_ms"], facts["event"]
        if event == "tick":
            self.any.tick(now)
            return
        live = self.live.get(facts["call"])
        if live is None:
            return
        if event == "deadline":
            live.call.deadline(now)
        else:
            tell(live.call, event, facts["value"], facts["attempt"], now)

    def _begin(self, place: str, facts: Json) -> None:
        name, now = facts["call"], facts["now_ms"]
        live = self.live.get(name)
        if facts["step"]:
            if live is None:
                raise ReplayError("a step of a call that has not begun here")
            self._come(now)
            live.call.step(facts["prompt_tokens"],
                           facts["gen_ai.request.max_tokens"], now_ms=now)
            return
        began = facts["began_ms"]
        self._come(began)
        record = self.calls[place]
        begun = begin(self.engines[facts["policy"]], record, began)
        self.live[name] = _Live(begun, record)
        if "tools" in facts["features"]:
            self._cannot("tools")

    def _decided(self, live: _Live, facts: Json) -> Decision:
        call, when = live.call, at_ms(facts, live.began_ms)
        self._come(when)
        if facts["effect"] != live.effect:  # which operation did it is not in a ledger
            live.effect = facts["effect"]
            call.tool("replayed", "started" if live.effect == "unknown"
                      else "committed", now_ms=when)
        decision = self._decide(live, facts, when)
        if facts["after"] == "begin_attempt" and "held_usd" in facts:
            self._guess(facts["call"], live, facts["attempt"], facts["wake_ms"])
        return decision

    def _decide(self, live: _Live, facts: Json, when: int) -> Decision:
        call, after = live.call, facts["after"]
        if after in ("begin", "step"):
            return call.decision
        if after == "begin_attempt":
            return call.begin_attempt(when)
        if after == "cancel":
            return call.cancel(when)
        if after == "unable":
            new = [word for word in facts["unable"] if word not in live.unable]
            live.unable.update(new)
            return call.unable(new or facts["unable"], now_ms=when)
        if after == "deadline":
            decision = call.deadline(when)
            if decision.action != "keep_waiting" or "failure" not in facts:
                return decision
        if after == "resolved":
            self._cannot("resolved")
            return call.decision
        inner = facts.get("inner_requests", live.inner) - live.inner
        live.inner += inner
        return judged(call, facts, inner, when)

    def _cannot(self, what: str) -> None:
        self.out.unknown[what] = self.out.unknown.get(what, 0) + 1

def tell(call: CoreCall, event: str, value: int, attempt: int, now_ms: int) -> None:
    """Something came of an attempt; value: a number, as the engine counts."""
    call.event(typing.cast(typing.Any, event),
               _FINISH[value] if event == "terminal" else value,
               attempt=attempt, now_ms=now_ms)



def judged(call: CoreCall, facts: Json, inner: int, when: int) -> Decision:
    """An attempt's end as its line tells it; inner: requests a layer inside of
    it had made beside the last one."""
    failure = facts.get("failure")
    if facts["after"] != "success":
        return call._judged(failure or {}, inner + 1 if inner else 0,
                            facts.get("http.response.status_code", 0), when)
    return call._answered(
        failure["kind"] if failure else None,
        facts.get("gen_ai.usage.input_tokens", 0),
        facts.get("gen_ai.usage.output_tokens", 0),
        nusd_of(facts.get("settled_usd")), when)


def _ids(facts: Json) -> "dict[str, str]":
    """What the provider called the attempt: no engine can know it."""
    return {name: facts[key] for name, key in (
        ("response_id", "gen_ai.response.id"),
        ("request_id", "server_request_id")) if isinstance(facts.get(key), str)}


def _members(recorded: Json, now: Json) -> "dict[str, tuple[object, object]]":
    return {key: (recorded.get(key), now.get(key))
            for key in {**recorded, **now} if recorded.get(key) != now.get(key)}


def check(seen: Survey, policies: "typing.Mapping[str, Policy]",
          progress: "Progress | None" = None) -> Checked:
    """Decides every recorded call again by the cards it was decided by.

    policies: the cards by fingerprint. Raises ReplayError where a card of the
    ledger is not there, with the place of its first line.
    """
    for name, place in seen.policies.items():
        if name not in policies:
            raise ReplayError(
                f"{place}: decided by another card, {name}; its calls share "
                "breakers and budgets with the others, so give that card too, "
                "with --old")
    checker = _Checker(seen, policies)
    for line, written in in_order(read(seen.files, progress)):
        assert line.facts is not None
        try:
            (checker.write if written else checker.take)(line, line.facts)
        except (KeyError, TypeError, ValueError, AttributeError) as exc:
            raise edited(line.place, exc) from None
    return checker.out
