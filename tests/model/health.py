"""What outlives a call: breakers, latches, waits told by servers, retry buckets, attempts in flight.

`soft` marks a route whose exact state the text does not fix (two readings, or a random draw); compare.py then takes the engine's
word for it instead of judging, and the mark is gone.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .cards import Spec

CLOSED, OPEN, HALF = "closed", "open", "half_open"
STALL_UP, STALL_DOWN, STALL_TOP, STALL_OPEN = 2303, 642, 13_800, 6_900
STALL_AFTER = 10_000  # until 50 samples; streamed answers that do not reason
LEASE = 30_000
LATCH = {"auth": 30_000, "model": 30_000}
PERIODS = {"second": 1_000, "minute": 60_000, "hour": 3_600_000}


@dataclass
class Latch:
    """A key that is dead, an account that is empty, a model that is not there: dark until a probe may look again."""

    why: str
    until: int
    step: int
    lease: int | None = None

    def state(self, now: int) -> tuple[bool, int]:
        """Whether a probe may go, and how long until one may."""
        if self.lease is not None and now < self.lease:
            return False, max(0, self.lease - now)
        return now >= self.until, max(0, self.until - now)


@dataclass
class Row:
    """An attempt in flight, as the route sees it."""

    route: str
    start: int
    gen: int
    probe: bool
    latch_probe: bool
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
    flags: int = 0
    closed_at: int = -1
    opened_ever: bool = False
    by_stall: bool = False
    window: dict[int, list[int]] = field(default_factory=dict)
    not_before: int = 0
    latch: Latch | None = None
    balance: int = 0
    last: int = 0
    soft: bool = False
    overload_until: int = 0
    limits: int = 0  # refusals for rate so far
    latch_soft: bool = False
    bucket_soft: bool = False


class Health:
    def __init__(self, spec: Spec, now: int):
        self.spec = spec
        self.route = {name: RouteState(balance=spec.bucket["start"], last=now) for name in spec.routes}
        self.account: dict[str, Latch] = {}
        self.account_quota: dict[str, Latch] = {}
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
        wait, floor = self.wait_of(reopens), max(floor, r.not_before - now)
        if stall:
            wait = min(wait, self.spec.breaker["open_ms"] // 2)
        r.state, r.gen, r.until, r.reopens = OPEN, r.gen + 1, now + max(wait, floor), reopens
        r.probes = r.good = r.run = r.z = r.flags = 0
        r.by_stall, r.opened_ever = stall, True

    def settle(self, now: int, spared: Row | None = None) -> None:
        """What any call may notice by itself: leases that ran out, attempts that stay silent."""
        for name, r in self.route.items():
            if r.state == HALF and r.probes and now >= r.until:
                self.open(name, r.until, r.reopens + 1)
                r.soft = True  # from the lease's end or from now: both readings
        for latch in [*self.account.values(), *self.account_quota.values(), *(r.latch for r in self.route.values() if r.latch)]:
            if latch.lease is not None and now >= latch.lease:  # a lost probe is a failed one; from when, both readings
                latch.until, latch.lease = latch.lease + latch.step, None
                for r in self.route.values():
                    r.latch_soft = True
                for row in self.rows:  # its late answer: does it still lift the latch? Both readings.
                    row.latch_probe = row.latch_probe and now - row.start < LEASE
        for row in self.rows:
            if not row.lost and now >= row.total_at:
                row.lost = True  # its gauge is free again; whether it was evidence, the text leaves open
                r = self.route[row.route]
                if row.flagged or row.probe or row.latch_probe or now - row.start >= STALL_AFTER:
                    r.soft = r.state != CLOSED or r.z > 0 or row.probe
        for row in self.rows:
            r = self.route[row.route]
            if row is spared or row.lost or row.flagged or row.token or row.whole or row.gen != r.gen:
                continue
            if now - row.start >= STALL_AFTER:
                row.flagged = True
                if r.state == HALF and row.probe:
                    self.open(row.route, now, r.reopens + 1)
                    r.soft = now - row.start > STALL_AFTER  # from when it was due or from when it was seen
                elif r.state == CLOSED:
                    r.z = min(STALL_TOP, r.z + STALL_UP)
                    r.flags += 1
                    if r.z >= STALL_OPEN:
                        r.soft = any(w.lost and w.flagged and w.route == row.route for w in self.rows)
                        self.open(row.route, now, 0, stall=True)
    def _epoch(self, now: int) -> int:
        return (now - self.base) // (self.spec.breaker["window_ms"] // 12)

    def _rate_trips(self, r: RouteState, now: int, inclusive: bool) -> bool:
        b = self.spec.breaker
        e = self._epoch(now)
        first = e - 11
        if r.closed_at >= 0:
            first = max(first, self._epoch(r.closed_at) + (0 if inclusive else 1))
        ok = sum(w[0] for k, w in r.window.items() if first <= k <= e)
        bad = sum(w[1] for k, w in r.window.items() if first <= k <= e)
        return ok + bad >= b["min_calls"] and bad * 1_000_000 >= (ok + bad) * b["failure_ppm"]

    def _trip(self, name: str, now: int, floor: int, by_failure: bool) -> None:
        r = self.route[name]
        consecutive = r.run >= self.spec.breaker["consecutive"]
        both = {self._rate_trips(r, now, True), self._rate_trips(r, now, False)}
        if consecutive or both == {True}:
            if not consecutive and not by_failure:
                r.soft = True  # does a success that completes the minimum open it?
            self.open(name, now, 0, floor)
            if r.closed_at >= 0 and now - r.closed_at < 30_000:
                r.soft = True
        elif len(both) == 2:
            r.soft = True
        elif by_failure and r.closed_at >= 0 and now - r.closed_at < 30_000:
            r.soft = True  # a failure during the ramp may re-open at once

    def result(self, row: Row, verdict: str, now: int, floor: int = 0) -> None:
        """verdict: ok, fail, rate (neutral when closed, fails a probe), neutral."""
        r = self.route[row.route]
        if row.gen != r.gen:
            r.soft = r.soft or row.probe  # a probe whose lease is over: who has noticed?
            return
        if row.flagged:  # the provisional evidence makes room for the real one
            r.z = max(0, r.z - STALL_UP)
            row.flagged = False
        if r.state == CLOSED:
            if verdict in ("ok", "fail"):
                cell = r.window.setdefault(self._epoch(now), [0, 0])
                cell[verdict == "fail"] += 1
                r.run = 0 if verdict == "ok" else r.run + 1
                self._trip(row.route, now, floor, verdict == "fail")
        elif r.state == HALF and row.probe:
            r.probes = max(0, r.probes - 1)
            if verdict == "ok":
                r.good += 1
                if r.good >= self.spec.breaker["successes"]:
                    r.state, r.gen, r.reopens, r.closed_at = CLOSED, r.gen + 1, 0, now
                    r.run = r.z = r.good = r.flags = 0
            elif verdict in ("fail", "rate"):
                self.open(row.route, now, r.reopens + 1, floor)

    def first_token(self, row: Row, now: int) -> None:
        if row.token:
            return
        row.token = True
        r = self.route[row.route]
        if row.gen != r.gen:
            if r.state == OPEN and r.by_stall and row.flagged:
                r.soft = True  # retraction
            return
        if row.flagged:
            r.z = max(0, r.z - STALL_UP)
            row.flagged = False
        elif r.state == CLOSED and not row.whole and now - row.start <= STALL_AFTER:
            r.z = max(0, r.z - STALL_DOWN)

    # -------------------------------------------------------------- admission

    def in_flight(self, name: str) -> int:
        return sum(1 for row in self.rows if row.route == name and not row.lost)

    def retries(self, name: str) -> int:
        return sum(1 for row in self.rows if row.route == name and row.retry and not row.lost)

    def latches(self, name: str) -> list[Latch]:
        """What darkens a route: its account's key, its account's money, its own latch."""
        account = self.spec.routes[name].account
        found = (self.account.get(account), self.account_quota.get(account), self.route[name].latch)
        return [latch for latch in found if latch is not None]

    def latch_of(self, name: str) -> Latch | None:
        return next(iter(self.latches(name)), None)

    def look(self, name: str, now: int) -> tuple[str, int]:
        """(ok | probe | open | full | not_before | key | quota | model, ms until it may serve)."""
        r = self.route[name]
        probe = False
        for latch in self.latches(name):
            due, wait = latch.state(now)
            if not due:
                return latch.why, wait
            probe = True
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

    def maybe_bad(self, name: str, now: int) -> bool:
        """Whether the text lets the engine pass this route over although the model would send there."""
        r = self.route[name]
        ramp = r.closed_at >= 0 and now - r.closed_at < 30_000
        crowded = now < r.overload_until and self.in_flight(name) > 0
        paced = r.limits > 0
        return ramp or crowded or paced

    def admit(self, name: str, now: int, retry: bool, total_ms: int, whole: bool) -> Row:
        r = self.route[name]
        probe = latch_probe = False
        if r.state == OPEN:
            r.state, r.gen = HALF, r.gen + 1
            r.good = r.run = r.z = 0
        if r.state == HALF:
            probe, r.probes, r.until = True, r.probes + 1, now + self.spec.breaker["probe_lease_ms"]
        for latch in self.latches(name):
            latch_probe, latch.lease = True, now + LEASE
        row = Row(name, now, r.gen, probe, latch_probe, retry, now + total_ms, whole)
        self.rows.append(row)
        return row

    def leave(self, row: Row) -> None:
        if row in self.rows:
            self.rows.remove(row)

    # ---------------------------------------------------------------- learning

    def darken(self, row: Row, owner: str, scope: str, hint: int | None, period: str, now: int) -> None:
        name = row.route
        account = self.spec.routes[name].account
        if self.latch_of(name) is not None and not row.latch_probe:
            self.route[name].latch_soft = True  # dark already: is it dark for longer now?
        if owner == "auth":
            latch = Latch("key", now + LATCH["auth"], LATCH["auth"])
            if scope == "account":
                self.account[account] = latch
            else:
                self.route[name].latch = latch
        elif owner == "quota":
            old = self.account_quota.get(account) if scope == "account" else self.route[name].latch
            if period in PERIODS:
                until, step = now + (hint if hint is not None else PERIODS[period]), 60_000
            else:
                step = 60_000 if old is None or old.why != "quota" else min(old.step * 2, 900_000)
                until = now + (step if hint is None else min(hint, step))
            latch = Latch("quota", until, step)
            if scope == "account":
                self.account_quota[account] = latch
            else:
                self.route[name].latch = latch
        elif owner == "request" and scope in ("model", "network"):
            self.route[name].latch = Latch("model", now + LATCH["model"], LATCH["model"])

    def told_to_wait(self, name: str, scope: str, hint: int, now: int) -> None:
        account = self.spec.routes[name].account
        for other, r in self.route.items():
            if other == name or (scope == "account" and self.spec.routes[other].account == account):
                r.not_before = max(r.not_before, now + hint)

    def lift_all(self, name: str) -> None:
        account = self.spec.routes[name].account
        self.account.pop(account, None)
        self.account_quota.pop(account, None)
        self.route[name].latch = None

    def lift(self, row: Row) -> None:
        """An answer came: what the probe looked at is alive."""
        if row.latch_probe:
            self.lift_all(row.route)
        elif self.latch_of(row.route) is not None:
            self.route[row.route].latch_soft = True

    def drop_probe(self, row: Row) -> None:
        for latch in self.latches(row.route):
            if row.latch_probe:
                latch.lease = None

    # ------------------------------------------------------------ retry bucket

    def balance(self, name: str, now: int) -> int:
        r, b = self.route[name], self.spec.bucket
        if r.balance >= b["start"]:
            r.last = max(r.last, now)
            return r.balance
        gained = (now - r.last) * b["trickle"] // 60_000
        if gained > 0:
            r.balance = min(b["start"], r.balance + gained)
            r.last += gained * 60_000 // b["trickle"]
        return r.balance

    def pay(self, name: str, cost: int, now: int) -> None:
        self.balance(name, now)
        self.route[name].balance = max(0, self.route[name].balance - cost)

    def credit(self, name: str, now: int) -> None:
        b = self.spec.bucket
        self.route[name].balance = min(b["cap"], self.balance(name, now) + b["credit_milli"])
