"""One call's own books: what was sent, what it may have done, what is left."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .cards import Spec
from .evidence import Canned
from .health import Row

BILLING = ("none", "possible", "likely", "certain")
SHOWN = ("nothing", "lifecycle", "visible")
EFFECT = ("none", "unknown", "committed")


@dataclass
class Attempt:
    number: int
    route: str
    start: int
    row: Row
    hold_tokens: int
    hold_cost: int
    clocks: dict[str, int]
    billing: str = "none"
    shown: str = "nothing"
    saw_token: bool = False
    saw_usage: bool = False
    running: bool = True
    last_byte: int | None = None
    last_progress: int | None = None
    content: bool = False  # visible, reasoning or tool arguments
    paid_by: str = ""  # the route whose bucket paid for it


@dataclass
class Decision:
    action: str
    route: str | None = None
    wait: tuple[int, int] | None = None
    reason: frozenset[str] | None = None  # None: the text does not fix it
    owner: str | None = None
    final: bool = False
    attempts_left: int | None = None
    elapsed_left: tuple[int, int] | None = None
    step: str | None = None
    loose: bool = False  # a hold that ends with its cause, not with its time

    def __str__(self) -> str:
        parts = [self.action]
        for key in ("route", "step", "wait", "attempts_left", "elapsed_left", "owner"):
            value = getattr(self, key)
            if value is not None:
                parts.append(f"{key}={value}")
        if self.reason:
            parts.append("reason=" + "|".join(sorted(self.reason)))
        return " ".join(parts)


@dataclass
class Pending:
    """What begin_attempt would send."""

    what: str  # first | retry | fallback | ladder
    route: str
    at: int  # not before
    cost: int = 0  # bucket tokens already paid for the failure
    rung: int | None = None  # the ladder step it takes
    prompt: int = 0  # compact: the shorter prompt


@dataclass
class Call:
    name: str
    spec: Spec
    prompt: int
    output: int
    whole: bool
    begun: int
    unable: set[str] = field(default_factory=set)
    max_wait: int = 0
    prior: int = 0
    server_state: str = "none"
    step_begun: int = 0
    attempts_used: int = 0
    resends: int = 0
    sends: dict[str, int] = field(default_factory=dict)
    class_used: dict[tuple[str, str], int] = field(default_factory=dict)
    retried: dict[str, int] = field(default_factory=dict)
    overloaded: dict[str, int] = field(default_factory=dict)
    waited: set[str] = field(default_factory=set)
    out: set[str] = field(default_factory=set)
    spent_steps: set[int] = field(default_factory=set)
    held_tokens: int = 0  # all held or settled in the call
    held_cost: int = 0
    own_tokens: int = 0  # the primary's own estimate, each step
    own_cost: int = 0
    tools: dict[str, tuple[str, bool]] = field(default_factory=dict)
    carried: str = "none"  # an effect left unresolved by an earlier step
    committed_before: bool = False
    attempt: Attempt | None = None
    count: int = 0
    pending: Pending | None = None
    failure: Canned | None = None
    failed_route: str = ""
    failed_at: int = 0
    failed_slow: bool = False
    failed_billing: str = "none"
    failed_shown: str = "nothing"
    paid: int = 0
    last: Decision | None = None
    ended: bool = False
    dropped: bool = False
    left: bool = False  # the caller is gone
    accepted: bool = False
    step_number: int = 1
    held_since: int | None = None
    delivery_whole: bool = False
    first_tokens: int = 0  # the first attempt's hold
    first_cost: int = 0
    asked: int = 0  # max_output_tokens as the host asked for it

    # ---------------------------------------------------------------- facts

    def effect(self) -> str:
        """The worst of this step's tools, or what an earlier step left open."""
        worst = self.carried
        for state, idempotent in self.tools.values():
            if idempotent:
                continue
            value = {"requested": "none", "started": "unknown", "committed": "committed", "acknowledged": "committed", "failed": "none"}[state]
            worst = max(worst, value, key=EFFECT.index)
        return worst

    def commit_bar(self) -> str | None:
        """What forbids sending again, of the last attempt and this step's effects (DESIGN 5)."""
        effect = self.effect()
        if effect == "committed":
            return "effect_committed"
        if effect == "unknown":
            return "reconcile_first"
        if self.server_state in ("conversation", "background", "tools") and self.failed_billing != "none":
            return "reconcile_first"
        if self.failed_shown == "visible":
            if self.spec.after_visible == "restart" and "clear" not in self.unable:
                return None
            return "partial_output"
        safe = self.spec.safe_until
        if safe == "not_sent" and self.failed_billing != "none":
            return "may_have_run"
        if safe == "accepted" and BILLING.index(self.failed_billing) >= BILLING.index("likely"):
            return "may_have_run"
        return None

    # --------------------------------------------------------------- budgets

    def attempts_left(self) -> int:
        return max(0, self.spec.total - self.prior - self.attempts_used)

    def elapsed_left(self, now: int) -> int | None:
        if self.spec.elapsed_ms is None:
            return None
        return max(0, self.spec.elapsed_ms - max(0, now - self.step_begun))

    def fits_time(self, ms: int, now: int) -> bool:
        left = self.elapsed_left(now)
        return left is None or ms <= left

    def fits_tokens(self, tokens: int) -> bool:
        budget = self.spec.extra_tokens
        if budget is None:
            budget = self.spec.extra_holds * self.first_tokens
        return self.held_tokens + tokens - self.own_tokens <= budget

    def fits_cost(self, cost: int) -> bool:
        if not self.spec.priced:
            return True
        budget = self.spec.extra_cost
        if budget is None:
            budget = self.spec.extra_holds * self.first_cost
        return self.held_cost + cost - self.own_cost <= budget

    def class_left(self, route: str, klass: str) -> int:
        return self.spec.per_class[klass] - self.class_used.get((route, klass), 0)

    def sends_left(self, route: str) -> int:
        return self.spec.per_route - self.sends.get(route, 0)

    def estimate(self, route: str) -> int:
        known = self.spec.routes[route].estimate
        if self.whole:
            return 2_000 + self.asked * 1_000 // 12
        return known if known is not None else 2_000

    def first_token_ms(self, route: str) -> int:
        if self.whole:  # a whole answer has no first token before its end
            return self.total_ms()
        return self.spec.first_token_ms if self.spec.first_token_ms is not None else 30_000

    def total_ms(self) -> int:
        return self.output * 1_000 // 12 + 10_000

    def raise_billing(self, attempt: Attempt, value: str) -> None:
        attempt.billing = max(attempt.billing, value, key=BILLING.index)

    def raise_shown(self, attempt: Attempt, value: str) -> None:
        attempt.shown = max(attempt.shown, value, key=SHOWN.index)

    def view(self) -> dict[str, Any]:
        return {"billing": self.failed_billing, "shown": self.failed_shown, "effect": self.effect(), "sends": dict(self.sends), "resends": self.resends,
                "tokens": self.held_tokens - self.own_tokens, "cost": self.held_cost - self.own_cost, "class_used": dict(self.class_used)}
