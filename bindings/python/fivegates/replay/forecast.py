"""Another card: every recorded call decided again, and what would have changed.

A simulation over the ledger: calls begin when they began, with the facts they
had; an attempt that was also made then ends as it ended, and another one as
those beside it did (outcomes). What rests on the call's own record is certain,
what rests on others' an estimate, and what rests on nothing is not told.
"""

from __future__ import annotations

import dataclasses
import functools
import heapq
import json
import typing

from fivegates._core import Call as CoreCall
from fivegates._core import Decision, Engine, Policy
from fivegates.replay.check import begin, fresh_region, judged, tell
from fivegates.replay.lines import Json, edited, nusd_of
from fivegates.replay.outcomes import Outcomes
from fivegates.replay.survey import Attempt, Call, Survey

__all__ = ["ANSWERED", "IN_FULL", "Fate", "Forecast", "forecast", "recorded_fate"]

IN_FULL = ("primary_success", "retry_recovery", "fallback_recovery")
ANSWERED = (*IN_FULL, "degraded")  # the last by the ladder: less, or a preset text
_SENT_STEPS = ("smaller_model", "shorter", "no_thinking", "compact",
               "without_tools")
_ROUNDS = 64  # decisions of one call at one time, before it is given up


@dataclasses.dataclass(slots=True)
class Fate:
    """What became of a call. sure: certain, estimated, or unknown (then result
    is None, and attempts and money are those until there)."""

    key: str
    workflow: str
    result: "str | None"
    attempts: int
    cost_nusd: int
    held_nusd: int
    sure: str = "certain"
    why: str = ""

    @property
    def answered(self) -> "bool | None":
        """By a model or the ladder; None: not known."""
        return None if self.result is None else self.result in ANSWERED

    @property
    def in_full(self) -> "bool | None":
        """With what was asked for: nothing of the ladder's. None: not known."""
        return None if self.result is None else self.result in IN_FULL


@dataclasses.dataclass
class Forecast:
    """Fates by the new card, in the order of Survey.whole; and calls its card
    has no workflow for."""

    fates: "list[Fate]" = dataclasses.field(default_factory=list)
    no_workflow: "dict[str, int]" = dataclasses.field(default_factory=dict)


def recorded_fate(call: Call) -> Fate:
    """What the ledger says became of a whole call."""
    assert call.end is not None
    return Fate(call.key, call.begin["workflow"], call.end["result"],
                call.end["attempts"],
                nusd_of(call.end["cost_usd"]) - call.prior[1],
                nusd_of(call.end["held_usd"]))


class _Running:
    """A call being forecast."""

    def __init__(self, call: Call, core: CoreCall) -> None:
        self.call = call
        self.core = core
        self.turn = 0  # counts what it waits for; older timers are void
        self.running = 0  # the number of the attempt in flight
        self.sent: "dict[tuple[int, str], int]" = {}
        self.step = 0
        self.estimated = ""
        self.done = False
        self.left_ms: "int | None" = None
        if call.last is not None and call.last["after"] == "cancel":
            self.left_ms = call.began_ms + call.last["elapsed_ms"]


class _World:
    def __init__(self, seen: Survey, policy: Policy) -> None:
        assert seen.first is not None
        self.seen, self.policy = seen, policy
        self.calls = seen.whole
        self.outcomes = Outcomes(self.calls)
        self.now_ms = seen.first_ms
        self.region = fresh_region(seen.first)
        self.engine = Engine(policy, region=self.region, seed=0, slot=0,
                             clock=lambda: self.now_ms)
        self.heap: "list[tuple[int, int, typing.Callable[[], object]]]" = []
        self.serial = 0
        self.open = 0
        self.ticks = False
        self.out = Forecast()
        self.fates: "dict[str, Fate]" = {}

    def plan(self, at_ms: int, what: "typing.Callable[[], object]") -> None:
        self.serial += 1
        heapq.heappush(self.heap, (max(at_ms, self.now_ms), self.serial, what))

    def run(self, progress: "typing.Callable[[int], object] | None") -> Forecast:
        known = set(self.policy.workflows())
        first = self.seen.first
        if first is not None and first["unix_ms"] is not None:
            self.engine.clock(first["unix_ms"] - first["now_ms"] + self.now_ms,
                              now_ms=self.now_ms)
        began = 0
        for call in sorted(self.calls, key=lambda one: one.began_ms):
            name = call.begin["workflow"]
            if name not in known:
                self.out.no_workflow[name] = self.out.no_workflow.get(name, 0) + 1
                continue
            self.until(call.began_ms)
            self.begin(call)
            began += 1
            if progress is not None and began % 256 == 0:
                progress(256)
        self.until(None)
        self.out.fates = [self.fates[call.key] for call in self.calls
                          if call.key in self.fates]
        return self.out

    def until(self, at_ms: "int | None") -> None:
        while self.heap and (at_ms is None or self.heap[0][0] < at_ms):
            self.now_ms, _, what = heapq.heappop(self.heap)
            what()

    # ---- one call

    def begin(self, call: Call) -> None:
        self.now_ms = max(self.now_ms, call.began_ms)
        # What this host could not do once it cannot do: but what it has no
        # answer for it finds out in its turn.
        unable = sorted({*call.begin["unable"], *(
            word for word in call.could_not if word not in ("cache", "preset"))})
        try:
            core = begin(self.engine, call, self.now_ms, unable=unable)
        except (KeyError, TypeError, ValueError) as exc:
            raise edited(call.place, exc) from None
        live = _Running(call, core)
        self.open += 1
        if live.left_ms is not None:
            self.plan(live.left_ms, lambda: self.leave(live))
        self.follow(live, core.decision)
        if not self.ticks and "tick" not in unable:
            self.ticks = True
            self.tick()

    def tick(self) -> None:
        self.ticks = self.open > 0
        if self.ticks:
            self.plan(self.now_ms + self.engine.tick(self.now_ms), self.tick)

    def follow(self, live: _Running, decision: Decision) -> None:
        """Does what was decided, until something has to be waited for."""
        for _ in range(_ROUNDS):
            action = decision.action
            if action == "keep_waiting":
                self.wake(live, decision)
                return
            if action == "accept":
                self.accepted(live)
                return
            if action == "degrade" and decision.ladder_step not in _SENT_STEPS:
                again = self.stand_in(live, decision)
                if again is None:
                    return
                decision = again
                continue
            if action not in ("proceed", "retry", "fallback", "hold", "degrade"):
                self.finish(live)
                return
            if decision.wait_ms:
                self.later(live, decision.wait_ms, lambda: self.ask(live))
                return
            permit = live.core.begin_attempt(self.now_ms)
            if permit.action == "proceed":
                self.send(live, permit)
                return
            decision = permit
        self.unknown(live, "the engine and this host would not have agreed")

    def later(self, live: _Running, wait_ms: int,
              what: "typing.Callable[[], object]") -> None:
        live.turn += 1
        turn = live.turn

        def due() -> None:
            if not live.done and live.turn == turn:
                what()

        self.plan(self.now_ms + wait_ms, due)

    def ask(self, live: _Running) -> None:
        permit = live.core.begin_attempt(self.now_ms)
        if permit.action == "proceed":
            self.send(live, permit)
        else:
            self.follow(live, permit)

    def stand_in(self, live: _Running, decision: Decision) -> "Decision | None":
        """An answer without a send. A preset is there; a cache may have missed."""
        if decision.ladder_step == "cached":
            if "cache" in live.call.could_not:
                return live.core.unable("cache", now_ms=self.now_ms)
            if live.call.end is None or live.call.end["result"] != "degraded":
                self.unknown(live, "whether the cache had an answer")
                return None
        elif "preset" in live.call.could_not:
            return live.core.unable("preset", now_ms=self.now_ms)
        self.finish(live)
        return None

    def send(self, live: _Running, permit: Decision) -> None:
        route = permit.route or ""
        key = (live.step, route)
        made = [one for one in live.call.attempts
                if one.step == live.step and one.route == route]
        number = live.sent[key] = live.sent.get(key, 0) + 1
        attempt: "Attempt | None" = None
        if number <= len(made):
            attempt = made[number - 1]
            if attempt.end is not None and attempt.end["after"] == "cancel":
                attempt = None  # the caller left it: how it would have ended is not known
        if attempt is None:
            attempt = self.outcomes.near(route, self.now_ms,
                                         f"{live.call.key} {route} {number}")
            live.estimated = live.estimated or (
                f"an attempt on {route} that was not made then")
        if attempt is None or attempt.end is None:
            self.unknown(live, f"how an attempt on {route} would have ended: none "
                               "is recorded near that time")
            return
        self.play(live, permit, attempt)

    def play(self, live: _Running, permit: Decision, attempt: Attempt) -> None:
        """Has an attempt go as a recorded one went."""
        assert attempt.end is not None
        live.turn += 1
        number, began = permit.attempt, self.now_ms

        def come(what: "typing.Callable[[], object]") -> "typing.Callable[[], object]":
            """what, if this attempt still runs then."""
            return lambda: (what() if not live.done and live.running == number
                            else None)

        live.running = number
        for at, event, value in attempt.events:
            self.plan(began + at, come(functools.partial(
                tell_now, self, live.core, event, value, number)))
        # One that was cut by a clock then stays silent until this card's clock.
        if attempt.end["after"] != "deadline":
            self.plan(began + attempt.took_ms, come(functools.partial(
                self.ended, live, attempt.end)))
        if permit.wake_ms and "tick" not in live.call.begin["unable"]:
            self.later(live, permit.wake_ms, lambda: self.deadline(live))
        elif attempt.end["after"] == "deadline":
            self.unknown(live, "how long the host would have waited")

    def wake(self, live: _Running, decision: Decision) -> None:
        self.later(live, decision.wake_ms or decision.wait_ms or 1,
                   lambda: self.deadline(live))

    def deadline(self, live: _Running) -> None:
        decision = live.core.deadline(self.now_ms)
        if decision.action == "keep_waiting":
            self.wake(live, decision)
            return
        live.running = 0
        self.follow(live, decision)

    def ended(self, live: _Running, end: Json) -> None:
        live.turn += 1
        live.running = 0
        try:
            decision = judged(live.core, end, end["inner"], self.now_ms)
        except (KeyError, TypeError, ValueError) as exc:
            raise edited(live.call.place, exc) from None
        self.follow(live, decision)

    # ---- its end

    def accepted(self, live: _Running) -> None:
        steps = live.call.steps
        if live.step >= len(steps):
            self.finish(live)
            return
        step = steps[live.step]
        live.step += 1
        gap = step["after_ms"]
        self.later(live, gap, lambda: self.follow(live, live.core.step(
            step["prompt_tokens"], step["max_tokens"], now_ms=self.now_ms)))

    def leave(self, live: _Running) -> None:
        if not live.done:
            live.core.cancel(self.now_ms)
            self.finish(live)

    def finish(self, live: _Running) -> None:
        end = json.loads(live.core.ledger_line("end", now_ms=self.now_ms))
        self.close(live, Fate(
            live.call.key, live.call.begin["workflow"], end["result"],
            end["attempts"], nusd_of(end["cost_usd"]) - live.call.prior[1],
            nusd_of(end["held_usd"]),
            "estimated" if live.estimated else "certain", live.estimated))

    def unknown(self, live: _Running, why: str) -> None:
        end = json.loads(live.core.ledger_line("end", now_ms=self.now_ms))
        self.close(live, Fate(
            live.call.key, live.call.begin["workflow"], None, end["attempts"],
            nusd_of(end["cost_usd"]) - live.call.prior[1],
            nusd_of(end["held_usd"]), "unknown", why))

    def close(self, live: _Running, fate: Fate) -> None:
        live.done = True
        self.open -= 1
        live.core.end()
        self.fates[live.call.key] = fate


def tell_now(world: _World, core: CoreCall, event: str, value: int,
             number: int) -> None:
    """Something came of an attempt, at the world's time."""
    tell(core, event, value, number, world.now_ms)


def forecast(seen: Survey, policy: Policy,
             progress: "typing.Callable[[int], object] | None" = None) -> Forecast:
    """What this card would have made of the whole calls of a ledger.

    progress(calls) hears how many more have begun.
    """
    return _World(seen, policy).run(progress)
