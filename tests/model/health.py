"""What outlives a call: breakers, latches, waits told by servers, retry buckets, attempts in flight.

`soft` marks a route of which the text does not say whether it has just opened; compare.py then takes the engine's word for it instead
of judging, and the mark is gone.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .cards import Spec
from .latches import LEASE, Latches, Seen

CLOSED, OPEN, HALF = "closed", "open", "half_open"
STALL_UP, STALL_DOWN, STALL_TOP, STALL_OPEN = 2303, 642, 13_800, 6_900
SLOW_START = 15_000
STALL_AFTER = 10_000  # until 50 samples; streamed answers that do not reason


@dataclass
class Row:
    """An attempt in flight, as the route sees it."""

    route: str
    start: int
    gen: int
    probe: bool
    seen: Seen
    retry: bool
    total_at: int
    whole: bool
    flagged: bool = False
    token: bool = False
    lost: bool = False  # the total time-out ended the row, whatever the host does


@dataclass
class RouteState:
    state: str = CLOSED
    gen: int = 0
    until: int = 0
    reopens: int = 0
    probes: int = 0
    good: int = 0
    run: int = 0
    z: int = 0
    closed_at: int = -1
    ramp: bool = False
    silent: int = 0  # what a stall opened it for, and how much of that has spoken since
    spoke: int = 0
    window: dict[int, list[int]] = field(default_factory=dict)
    not_before: int = 0
    balance: int = 0
    last: int = 0
    soft: bool = False
    bucket_soft: bool = False


class Health:
    def __init__(self, spec: Spec, now: int):
        self.spec = spec
        self.route = {name: RouteState(balance=spec.bucket["start"], last=now) for name in spec.routes}
        self.latches = Latches({name: route.account for name, route in spec.routes.items()})
        self.rows: list[Row] = []
        self.base = now - 3_600_000
        self.resends_hour = 0
        self.spills = 0

    # ------------------------------------------------------------- breaker

    def wait_of(self, reopens: int) -> int:
        b = self.spec.breaker
        return min(b["open_ms"] << reopens, b["open_max_ms"])

    def open(self, name: str, now: int, reopens: int, floor: int = 0, stall: bool = False) -> None:
        r = self.route[name]
        if r.state == CLOSED:
            reopens = 1 if self.ramps(name, now) else 0  # in a slow start it opens again: for twice as long
            floor = max(floor, r.not_before - now)
        wait = self.wait_of(reopens)
        if stall and not reopens:
            wait = min(wait, self.spec.breaker["open_ms"] // 2)
        r.state, r.gen, r.until, r.reopens = OPEN, r.gen + 1, now + max(wait, floor), reopens
        r.probes = r.good = r.run = r.z = r.spoke = 0
        r.silent = sum(w.route == name and w.flagged and w.gen == r.gen - 1 for w in self.rows) if stall else 0

    def ramps(self, name: str, now: int) -> bool:
        """Slow start: closed a short while ago, after it had opened again. Whether it takes this call is a draw."""
        r = self.route[name]
        return r.state == CLOSED and r.ramp and now - r.closed_at < SLOW_START

    def settle(self, now: int) -> None:
        """What any operation notices: leases that ran out, attempts that are over, attempts that stay silent."""
        for name, r in self.route.items():
            if r.state == HALF and r.probes and now >= r.until:
                self.open(name, r.until, r.reopens + 1)  # a probe that never reported has failed when its lease ended
        self.latches.settle(now)
        over, late = [], []
        for row in self.rows:
            if not row.lost and now >= row.total_at:
                over.append(row)
            elif not row.lost and not row.flagged and not row.token and not row.whole and now - row.start >= STALL_AFTER:
                late.append(row)
        most = {name: r.z + STALL_UP * sum(w.route == name and w.gen == r.gen for w in late) for name, r in self.route.items()}
        for row in over:
            self._over(row)
        for row in late:
            self._silent(row, now)
        for name, r in self.route.items():  # which of the two is seen first, the text leaves open
            if r.state == CLOSED and most[name] >= STALL_OPEN and any(w.route == name for w in over):
                r.soft = True

    def _over(self, row: Row) -> None:
        """The total time-out ends row and gauge; what it was evidence of is in flight no more."""
        self._unflag(row)
        row.lost = True

    def _unflag(self, row: Row) -> None:
        r = self.route[row.route]
        if row.flagged and row.gen == r.gen:
            r.z = max(0, r.z - STALL_UP)
        row.flagged = False

    def _silent(self, row: Row, now: int) -> None:
        r = self.route[row.route]
        row.flagged = True
        if row.gen != r.gen:
            return
        if r.state == HALF and row.probe:
            self.open(row.route, now, r.reopens + 1)
        elif r.state == CLOSED:
            r.z = min(STALL_TOP, r.z + STALL_UP)
            if r.z >= STALL_OPEN:
                self.open(row.route, now, 0, stall=True)

    def _epoch(self, now: int) -> int:
        return (now - self.base) // (self.spec.breaker["window_ms"] // 12)

    def _rate_trips(self, r: RouteState, now: int) -> bool:
        b = self.spec.breaker
        e = self._epoch(now)
        first = e - 11
        if r.closed_at >= 0:  # what came before it closed is over; the bucket it closed in holds both
            first = max(first, self._epoch(r.closed_at) + 1)
        ok = sum(w[0] for k, w in r.window.items() if first <= k <= e)
        bad = sum(w[1] for k, w in r.window.items() if first <= k <= e)
        return bad > 0 and ok + bad >= b["min_calls"] and bad * 1_000_000 >= (ok + bad) * b["failure_ppm"]

    def _trip(self, name: str, now: int, floor: int) -> None:
        r = self.route[name]
        if r.run >= self.spec.breaker["consecutive"] or self._rate_trips(r, now):
            self.open(name, now, 0, floor)

    def result(self, row: Row, verdict: str, now: int, floor: int = 0) -> None:
        """verdict: ok, fail, rate (neutral when closed, fails a probe), neutral."""
        r = self.route[row.route]
        if row.gen != r.gen:
            return
        self._unflag(row)  # the provisional evidence makes room for the real one
        if r.state == CLOSED:
            if verdict in ("ok", "fail"):
                cell = r.window.setdefault(self._epoch(now), [0, 0])
                cell[verdict == "fail"] += 1
                r.run = 0 if verdict == "ok" else r.run + 1
                self._trip(row.route, now, floor)
        elif r.state == HALF and row.probe:
            r.probes = max(0, r.probes - 1)
            if verdict == "ok":
                r.good += 1
                if r.good >= self.spec.breaker["successes"]:
                    r.ramp = r.reopens > 0
                    r.state, r.gen, r.reopens, r.closed_at = CLOSED, r.gen + 1, 0, now
                    r.run = r.z = r.good = 0
            elif verdict in ("fail", "rate"):
                self.open(row.route, now, r.reopens + 1, floor)

    def first_token(self, row: Row, now: int) -> None:
        if row.token or row.lost:
            return
        row.token = True
        r = self.route[row.route]
        if row.flagged and r.state == OPEN and r.silent and row.gen == r.gen - 1:
            r.spoke += 1
            if 2 * r.spoke >= r.silent and now < r.until:  # half of what looked silent was only slow: a probe may go at once
                r.state, r.gen, r.until = HALF, r.gen + 1, now
        elif row.gen == r.gen and not row.flagged and r.state == CLOSED and now <= (row.total_at if row.whole else min(row.start + STALL_AFTER, row.total_at)):
            r.z = max(0, r.z - STALL_DOWN)
        self._unflag(row)

    def progress(self, row: Row, now: int) -> None:
        """A probe that shows life keeps its lease, unless that is over."""
        r = self.route[row.route]
        if row.probe and row.gen == r.gen and now < r.until:
            r.until = max(r.until, now + self.spec.breaker["probe_lease_ms"])
        self.latches.renew(row.seen, now)

    # -------------------------------------------------------------- admission

    def in_flight(self, name: str) -> int:
        return sum(1 for row in self.rows if row.route == name and not row.lost)

    def retries(self, name: str) -> int:
        return sum(1 for row in self.rows if row.route == name and row.retry and not row.lost)

    def look(self, name: str, now: int) -> tuple[str, int]:
        """(ok | probe | open | full | not_before | key | quota | model, ms until it may serve)."""
        r = self.route[name]
        dark, wait = self.latches.look(name, now)
        if dark not in ("", "probe"):
            return dark, wait
        probe = dark == "probe"
        if r.state == OPEN:
            if now < r.until:
                return "open", r.until - now
            probe = True
        elif r.state == HALF:
            if r.probes >= self.spec.breaker["probes"]:
                return "open", max(0, r.until - now)
            probe = True
        if now < r.not_before:  # before "full": a route that is both is waited for or left through spill
            return "not_before", r.not_before - now
        room = self.spec.routes[name].room
        if room is not None and self.in_flight(name) >= room:
            return "full", 0
        return ("probe" if probe else "ok"), 0

    def admit(self, name: str, now: int, retry: bool, total_ms: int, whole: bool) -> Row:
        r = self.route[name]
        probe = False
        longest = total_ms if whole else 0  # nothing renews it before the answer is there
        if r.state == OPEN:
            r.state, r.gen = HALF, r.gen + 1
            r.good = r.run = r.z = 0
        if r.state == HALF:
            probe, r.probes, r.until = True, r.probes + 1, now + max(self.spec.breaker["probe_lease_ms"], longest)
        seen = self.latches.admit(name, now + max(LEASE, longest))
        row = Row(name, now, r.gen, probe, seen, retry, now + total_ms, whole)
        self.rows.append(row)
        return row

    def leave(self, row: Row) -> None:
        if row in self.rows:
            self.rows.remove(row)

    # ---------------------------------------------------------------- learning

    def told_to_wait(self, name: str, scope: str, hint: int, now: int) -> None:
        account = self.spec.routes[name].account
        for other, r in self.route.items():
            if other == name or (scope == "account" and self.spec.routes[other].account == account):
                r.not_before = max(r.not_before, now + hint)

    # ------------------------------------------------------------ retry bucket

    def _trickled(self, now: int) -> int:
        """Whole milli-tokens since the region's first hour: what is left of one counts later."""
        return (now - self.base) * self.spec.bucket["trickle"] // 60_000

    def balance(self, name: str, now: int) -> int:
        r, start = self.route[name], self.spec.bucket["start"]
        if r.balance < start:
            r.balance = min(start, r.balance + self._trickled(now) - self._trickled(r.last))
        r.last = now
        return r.balance

    def pay(self, name: str, cost: int, now: int) -> None:
        self.balance(name, now)
        self.route[name].balance = max(0, self.route[name].balance - cost)

    def credit(self, name: str, now: int) -> None:
        b = self.spec.bucket
        self.route[name].balance = min(b["cap"], self.balance(name, now) + b["credit_milli"])
