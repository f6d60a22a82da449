"""A ledger summed up: how calls ended, what was wasted, what raised an alert.

Streamed: of each open call a little is kept. Reads ledgers of every version of
the line format 1, also those from before a replay was possible.
"""

from __future__ import annotations

import collections
import dataclasses
import datetime
import typing

from fivegates.replay.lines import Line, Progress, edited, nusd_of, read
from fivegates.status.live import ANSWERED, RECOVERY, Json, StatusError, usd

__all__ = ["Report", "report"]

_PIECES = 48  # of time, in the picture
_TOLD = 20
_DAY_MS = 86_400_000
_BUCKETS_MS = (1_000, 5_000, 10_000, 30_000, 60_000, 300_000, 600_000, 1_800_000,
               3_600_000, 10_800_000, 21_600_000, _DAY_MS, 7 * _DAY_MS, 30 * _DAY_MS)


@dataclasses.dataclass(slots=True)
class _Open:
    workflow: str
    prior_nusd: "int | None" = None  # before it, where its first decision is there
    cost: int = 0                    # of the latest line
    counted: bool = True             # it began in the time asked for
    route: "str | None" = None       # of the attempt that runs
    hold: int = 0


@dataclasses.dataclass
class _Route:
    attempts: int = 0
    answered: int = 0
    failed: int = 0
    lost: int = 0         # no line tells of their end
    spent: int = 0        # nano-dollars of answers
    wasted: int = 0       # billed for certain, without an answer
    maybe_wasted: int = 0  # held for attempts whose bill is not known
    kinds: "collections.Counter[str]" = dataclasses.field(
        default_factory=collections.Counter)


@dataclasses.dataclass
class _Workflow:
    results: "collections.Counter[str]" = dataclasses.field(
        default_factory=collections.Counter)
    cost: int = 0
    held: int = 0
    open: int = 0
    waits: "list[int]" = dataclasses.field(default_factory=list)  # ms to the answer


class Report(typing.NamedTuple):
    """What report() found: plain data, the same for every output."""

    summary: Json


class _Sums:
    def __init__(self, day: "datetime.date | None") -> None:
        self.day = day
        self.calls: "dict[str, _Open]" = {}
        self.routes: "dict[str, _Route]" = collections.defaultdict(_Route)
        self.workflows: "dict[str, _Workflow]" = collections.defaultdict(_Workflow)
        self.alerts: "dict[tuple[str, str, str], list[int]]" = {}
        self.seconds: "dict[int, collections.Counter[str]]" = {}
        self.lines = self.torn = self.strays = 0
        self.torn_at: "list[str]" = []
        self.wall = True
        self.first: "int | None" = None
        self.last = 0

    def take(self, line: Line) -> None:
        facts = line.facts
        self.lines += 1
        if facts is None:
            self.torn += 1
            if len(self.torn_at) < _TOLD:
                self.torn_at.append(line.place)
            return
        if facts["line"] == "event":
            return
        at = facts["unix_ms"]
        if at is None:
            self.wall, at = False, facts["now_ms"]
        name = facts["call"]
        if facts["line"] == "call":
            if facts["step"] == 0 or name not in self.calls:
                self._drop(name)
                self.calls[name] = _Open(str(facts["workflow"]),
                                         counted=self._within(at, line))
            return
        call = self.calls.get(name)
        if call is None:
            self.strays += 1
            return
        if call.counted:
            self.first = at if self.first is None else min(self.first, at)
            self.last = max(self.last, at)
        if facts["line"] == "decision":
            self._decision(call, facts, at)
        else:
            self._end(name, call, facts, at)

    def _within(self, at: int, line: Line) -> bool:
        if self.day is None:
            return True
        if not self.wall:
            raise StatusError(f"{line.place}: without wall time, so no day can be "
                              "told; leave out --day, and tell the engine the time "
                              "(Engine.clock) from now on")
        return datetime.datetime.fromtimestamp(
            at / 1000, datetime.timezone.utc).date() == self.day

    def _decision(self, call: _Open, facts: Json, at: int) -> None:
        cost = nusd_of(facts["cost_usd"])
        if call.prior_nusd is None:
            call.prior_nusd = 0 if "held_usd" in facts else cost
        if call.counted:
            # Of the attempt that ended here; else it was noticed in passing,
            # and its route is not in the line.
            route = call.route if call.route and "held_usd" not in facts else None
            for alert in facts["alert"]:
                self.alerts.setdefault((str(alert), route or "", call.workflow),
                                       []).append(at)
        if "held_usd" in facts and facts["action"] == "proceed":
            if call.route is not None:
                self._lost(call)
            call.route, call.hold = facts["route"], nusd_of(facts["held_usd"])
            if call.counted:
                self.routes[call.route or ""].attempts += 1
        elif "held_usd" not in facts and call.route is not None:
            self._ended(call, facts, cost)
        call.cost = cost

    def _ended(self, call: _Open, facts: Json, cost: int) -> None:
        """An attempt's end: what it cost, and whether it brought anything."""
        name, hold = call.route or "", call.hold
        call.route = None
        if not call.counted:
            return
        route = self.routes[name]
        spent = hold + cost - call.cost  # the hold became what was billed
        if facts["action"] == "accept":
            route.answered += 1
            route.spent += spent
            return
        route.failed += 1
        route.kinds[str(facts["kind"])] += 1
        if spent != hold or "settled_usd" in facts:
            route.wasted += spent
        else:  # still held: nobody has told what it cost
            route.maybe_wasted += spent

    def _lost(self, call: _Open) -> None:
        if call.counted and call.route is not None:
            route = self.routes[call.route]
            route.lost += 1
            route.maybe_wasted += call.hold
        call.route = None

    def _drop(self, name: str) -> None:
        """A call that began again, or never ended."""
        call = self.calls.pop(name, None)
        if call is not None and call.counted:
            self._lost(call)
            flow = self.workflows[call.workflow]
            flow.open += 1
            flow.cost += call.cost - (call.prior_nusd or 0)

    def _end(self, name: str, call: _Open, facts: Json, at: int) -> None:
        del self.calls[name]
        if not call.counted:
            return
        self._lost(call)
        flow = self.workflows[call.workflow]
        result = str(facts["result"] or "unknown")
        flow.results[result] += 1
        flow.cost += nusd_of(facts["cost_usd"]) - (call.prior_nusd or 0)
        flow.held += nusd_of(facts["held_usd"])
        if result in ANSWERED:
            flow.waits.append(int(facts["elapsed_ms"]))
        self.seconds.setdefault(at // 1000, collections.Counter())[result] += 1

    def rest(self) -> None:
        for name in list(self.calls):
            self._drop(name)

    # ---- the summary

    def summary(self, files: "list[str]") -> Json:
        flows = {name: _flow(one) for name, one in self.workflows.items()}
        routes = {name: _route(one) for name, one in sorted(self.routes.items())}
        total = _Workflow()
        for one in self.workflows.values():
            total.results.update(one.results)
            total.cost += one.cost
            total.held += one.held
            total.open += one.open
            total.waits += one.waits
        every = self.routes.values()
        return {
            "files": files, "lines": self.lines,
            "day": None if self.day is None else self.day.isoformat(),
            "from": self._time(self.first), "to": self._time(self.last or None),
            "total": _flow(total), "workflows": flows, "routes": routes,
            "waste": {
                "at_least_usd": usd(sum(one.wasted for one in every)),
                "at_most_usd": usd(sum(one.wasted + one.maybe_wasted for one in every)),
                "attempts": sum(one.failed + one.lost for one in every)},
            "alerts": self._alerts(), "pieces": self._pieces(),
            "broken": {"torn_lines": self.torn, "torn_at": self.torn_at,
                       "lines_without_call": self.strays},
        }

    def _time(self, ms: "int | None") -> "str | None":
        if ms is None or not self.wall:
            return None
        at = datetime.datetime.fromtimestamp(ms / 1000, datetime.timezone.utc)
        return at.isoformat(timespec="seconds").replace("+00:00", "Z")

    def _alerts(self) -> "list[Json]":
        rows = [{"alert": alert, "route": route or None, "workflow": workflow,
                 "times": len(at), "first": self._time(min(at)),
                 "last": self._time(max(at))}
                for (alert, route, workflow), at in self.alerts.items()]
        return sorted(rows, key=lambda row: (str(row["first"]), str(row["alert"]),
                                             str(row["route"])))

    def _pieces(self) -> Json:
        """Results over time, in pieces of a round length."""
        if self.first is None:
            return {"seconds": 0, "pieces": []}
        span = self.last - self.first
        width = next((one for one in _BUCKETS_MS if span < one * _PIECES),
                     _BUCKETS_MS[-1]) // 1000
        start = self.first // 1000 // width
        pieces: "dict[int, collections.Counter[str]]" = {}
        for second, counts in self.seconds.items():
            pieces.setdefault(second // width - start, collections.Counter()).update(counts)
        return {"seconds": width, "pieces": [
            {"at": self._time((start + i) * width * 1000),
             **{word: pieces[i][word] for word in (*RECOVERY, "unknown")
                if i in pieces and pieces[i][word]}}
            for i in range(max(pieces, default=-1) + 1)]}


def _flow(one: _Workflow) -> Json:
    waits = sorted(one.waits)
    calls = sum(one.results.values())
    return {
        "calls": calls, "unfinished": one.open,
        "answered": sum(one.results[word] for word in ANSWERED),
        "results": {word: one.results[word] for word in (*RECOVERY, "unknown")
                    if word in RECOVERY or one.results[word]},
        "cost_usd": usd(one.cost), "held_usd": usd(one.held),
        "answer_p50_ms": waits[(len(waits) - 1) // 2] if waits else None,
        "answer_p95_ms": waits[(len(waits) * 95 + 99) // 100 - 1] if waits else None,
    }


def _route(one: _Route) -> Json:
    return {
        "attempts": one.attempts, "answered": one.answered, "failed": one.failed,
        "lost": one.lost, "answers_usd": usd(one.spent),
        "wasted_at_least_usd": usd(one.wasted),
        "wasted_at_most_usd": usd(one.wasted + one.maybe_wasted),
        "kinds": dict(one.kinds.most_common()),
    }


def report(ledgers: "typing.Sequence[str]", day: "datetime.date | None" = None,
           progress: "Progress | None" = None) -> Report:
    """Sums ledgers up; day: only calls that began on that day (UTC).

    Raises ReplayError and StatusError for what is no ledger, with its place.
    """
    sums = _Sums(day)
    for line in read(ledgers, progress):
        try:
            sums.take(line)
        except (KeyError, TypeError, ValueError, AttributeError) as exc:
            raise edited(line.place, exc) from None
    sums.rest()
    if not sums.workflows:
        when = f" on {day.isoformat()}" if day else ""
        raise StatusError(f"{', '.join(ledgers)}: no call{when}; give the ledger "
                          "of that time")
    return Report(sums.summary(list(ledgers)))
