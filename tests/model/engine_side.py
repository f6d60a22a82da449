"""The real engine, through the installed package, in the words of the model."""

from __future__ import annotations

from typing import Any

import fivegates

from .cards import BASE_MS, WALL_MS


class Clock:
    def __init__(self) -> None:
        self.now = BASE_MS

    def __call__(self) -> int:
        return self.now

    def unix_ms(self) -> int:
        return WALL_MS + self.now - BASE_MS


class Answer:
    """The engine's answer to one operation, only what is compared or steers the model."""

    __slots__ = ("action", "attempts_left", "elapsed_left", "error", "first_token_ms", "idle_ms", "max_tokens", "owner", "progress_ms", "reason", "route", "step", "total_ms",
                 "wait_ms", "wake_ms")

    def __init__(self, d: Any = None, error: str = ""):
        self.error = error
        if d is None:
            self.action = "error" if error else "none"
            self.route = self.reason = self.owner = self.step = None
            self.wait_ms = self.wake_ms = self.first_token_ms = self.idle_ms = self.progress_ms = self.total_ms = 0
            self.attempts_left = self.elapsed_left = None
            self.max_tokens = 0
            return
        self.action, self.route, self.wait_ms, self.wake_ms = d.action, d.route, d.wait_ms, d.wake_ms
        self.reason, self.owner, self.step = d.reason, d.owner, d.ladder_step
        self.max_tokens = d.max_tokens
        self.attempts_left, self.elapsed_left = d.attempts_left, d.elapsed_left_ms
        self.first_token_ms, self.idle_ms, self.progress_ms, self.total_ms = d.first_token_ms, d.idle_ms, d.progress_ms, d.total_ms

    def __str__(self) -> str:
        if self.error:
            return "error " + self.error
        parts = [str(self.action)]
        for key in ("route", "step", "wait_ms", "wake_ms", "attempts_left", "elapsed_left", "owner", "reason"):
            value = getattr(self, key)
            if value not in (None, ""):
                parts.append(f"{key}={value}")
        return " ".join(parts)


class EngineSide:
    def __init__(self, policy: Any, seed: int):
        self.clock = Clock()
        self.engine = fivegates.Engine(policy, seed=seed, clock=self.clock, procs=8)
        self.calls: dict[str, Any] = {}

    def apply(self, op: dict[str, Any]) -> Answer | None:
        self.clock.now = op["t"]
        what, given = op["op"], op.get("in", {})
        try:
            if what == "begin":
                call = self.engine.begin(given["workflow"], call_id=op["call"], **{k: v for k, v in given.items() if k != "workflow"})
                self.calls[op["call"]] = call
                return Answer(call.decision)
            call = self.calls[op["call"]]
            if what == "event":
                self._event(call, given)
                return None
            if what == "drop":
                call.end()
                return None
            if what == "unable":
                return Answer(call.unable(given["what"]))
            if what == "resolved":
                return Answer(call.resolved(given["op_id"], given["effect"]))
            if what == "failure":
                return Answer(call.failure(given))
            return Answer(getattr(call, what)(**given))
        except fivegates.FivegatesError as e:
            return Answer(error=f"{type(e).__name__}: {e}")

    @staticmethod
    def _event(call: Any, given: dict[str, Any]) -> None:
        more = dict(given)
        kind = more.pop("kind")
        if kind == "tool":
            call.tool(more["op_id"], more["state"], idempotent=more["idempotent"])
        else:
            call.event(kind, next(iter(more.values()), 0))

    def route(self, name: str) -> tuple[str, int, str, int, int]:
        v = self.engine.route(name)
        return v["breaker"], v["open_for_ms"], v["latch"], v["latch_for_ms"], v["balance_milli"]


def policy_of(card: str) -> Any:
    return fivegates.Policy.loads(card)


def classify(evidence: dict[str, Any]) -> dict[str, Any]:
    return dict(fivegates.classify(evidence).to_dict())
