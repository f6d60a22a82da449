"""What is dark until a probe may look again: a dead key, an empty account, a model that is not there."""

from __future__ import annotations

from dataclasses import dataclass, field

LEASE = 30_000
DARK = {"key": 30_000, "model": 30_000, "quota": 60_000}
QUOTA_TOP = 900_000
PERIODS = {"second": 1_000, "minute": 60_000, "hour": 3_600_000}
LIT, OUT, PROBING = "lit", "dark", "probing"
Slot = tuple[str, str]  # ("key", account), ("quota", account), ("route", name)


@dataclass
class Latch:
    state: str = LIT
    why: str = ""
    until: int = 0
    failed: int = 0  # probes that failed since it was lit
    lease: int | None = None  # of the probe under way
    gen: int = 0  # changes with the state: what an older attempt tells says nothing of it

    def wait(self, now: int) -> int:
        if self.state == OUT:
            return max(0, self.until - now)
        return max(0, self.lease - now) if self.lease is not None else 0

    def may_go(self, now: int) -> bool:
        return self.state == LIT or (self.lease is None and self.wait(now) == 0)

    def _turn(self, state: str) -> None:
        self.state, self.gen, self.lease = state, self.gen + 1, None

    def darken(self, why: str, wait: int | None, hint: int | None, now: int) -> None:
        """`wait`: exactly so long; None: the doubling wait, no longer than the hint."""
        self.failed = 0 if self.state == LIT else self.failed + 1
        self.why = why
        if wait is None:
            wait = self._next()
            wait = wait if hint is None else min(wait, max(1, hint))
        self.until = now + wait
        self._turn(OUT)

    def _next(self) -> int:
        return min(DARK["quota"] << self.failed, QUOTA_TOP) if self.why == "quota" else DARK[self.why]

    def settle(self, now: int) -> None:
        if self.lease is not None and now >= self.lease:  # a probe that never reported has failed when its lease ended
            self.failed += 1
            self.until = self.lease + self._next()
            self._turn(OUT)

    def probe(self, lease: int) -> None:
        if self.state == OUT:
            self._turn(PROBING)
        self.lease = lease

    def light(self) -> None:
        self._turn(LIT)


@dataclass
class Seen:
    """An attempt's view of the latches that held its route when it was admitted."""

    gens: dict[Slot, int] = field(default_factory=dict)
    probes: set[Slot] = field(default_factory=set)


class Latches:
    def __init__(self, accounts: dict[str, str]):
        self.slots = {name: (("key", account), ("quota", account), ("route", name)) for name, account in accounts.items()}
        self.at: dict[Slot, Latch] = {slot: Latch() for slots in self.slots.values() for slot in slots}

    def settle(self, now: int) -> None:
        for latch in self.at.values():
            latch.settle(now)

    def of(self, name: str) -> list[Latch]:
        """Those that are not lit, key first, then money, then the route's own."""
        return [latch for latch in (self.at[slot] for slot in self.slots[name]) if latch.state != LIT]

    def look(self, name: str, now: int) -> tuple[str, int]:
        """("" | probe | key | quota | model, ms): the first that says no, and the longest wait of all that do."""
        held = self.of(name)
        shut = [latch for latch in held if not latch.may_go(now)]
        if shut:
            return shut[0].why, max(latch.wait(now) for latch in shut)
        return ("probe" if held else ""), 0

    def shown(self, name: str, now: int) -> tuple[str, int]:
        """What a view of the route tells."""
        held = self.of(name)
        return (held[0].why if held else ""), max((latch.wait(now) for latch in held), default=0)

    def admit(self, name: str, lease: int) -> Seen:
        seen = Seen()
        for slot in self.slots[name]:
            latch = self.at[slot]
            if latch.state != LIT:
                latch.probe(lease)
                seen.probes.add(slot)
            seen.gens[slot] = latch.gen
        return seen

    def _mine(self, seen: Seen) -> list[tuple[Slot, Latch]]:
        return [(slot, self.at[slot]) for slot in sorted(seen.probes) if seen.gens[slot] == self.at[slot].gen]

    def renew(self, seen: Seen, now: int) -> None:
        for _, latch in self._mine(seen):
            if latch.lease is not None and now < latch.lease:
                latch.lease = max(latch.lease, now + LEASE)

    def give_back(self, seen: Seen) -> None:
        for _, latch in self._mine(seen):
            latch.lease = None

    def light(self, seen: Seen, only: str = "") -> None:
        for slot, latch in self._mine(seen):
            if only in ("", slot[0]):
                latch.light()

    def darken(self, name: str, seen: Seen, owner: str, scope: str, hint: int | None, period: str, now: int) -> None:
        key, quota, route = self.slots[name]
        wait: int | None = DARK["key"]
        if owner == "auth":
            why, slot = "key", key if scope == "account" else route
        elif owner == "quota":
            why, slot, wait = "quota", quota if scope == "account" else route, None
            if period in PERIODS:
                wait = PERIODS[period] if hint is None else max(1, hint)
        elif owner == "request" and scope in ("model", "network"):
            why, slot = "model", route
        else:
            return
        if seen.gens[slot] == self.at[slot].gen:
            self.at[slot].darken(why, wait, hint, now)
