"""Small random cards, and the same card as resolved numbers for the model.

A `Spec` is what DESIGN says the card means, defaults filled in. Fingerprints of contracts are computed here from DESIGN 9's words
alone, so an engine that computes them otherwise takes an approved stand-in for a stale one and is found out.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from random import Random
from typing import Any

WALL_MS = 1_796_083_200_000  # 2026-12-01T00:00:00Z, the wall time of now = BASE_MS
BASE_MS = 1_000_000_000
PROMPT, OUTPUT = 600, 240
CLASSES = ("connect", "silent", "cut", "rate", "server", "answer", "other")


@dataclass
class Route:
    name: str
    account: str
    provider: str
    price: tuple[int, int] | None  # nano-dollars per million tokens in, out
    room: int | None = None
    context: int | None = None
    estimate: int | None = None
    quota_owner: str | None = None

    def hold(self, prompt: int, output: int) -> int:
        if self.price is None:
            return 0
        return -(-prompt * self.price[0] // 1_000_000) + -(-output * self.price[1] // 1_000_000)


@dataclass
class Standin:
    route: str
    approved: bool
    drop_ppm: int = 0
    score_ppm: int = 1_000_000
    ladder_only: bool = False


@dataclass
class Spec:
    routes: dict[str, Route]
    primary: str
    standins: list[Standin]
    kind: str
    safe_until: str
    after_visible: str
    after_silence: str
    total: int
    per_route: int
    per_class: dict[str, int]
    kind_retries: int  # on one route, whether they left this side or not
    call_resends: int
    elapsed_ms: int | None
    extra_tokens: int | None  # None: as many of the first attempt's holds as `extra_holds`
    extra_cost: int | None
    extra_holds: int
    quality_drop_ppm: int
    hold_ms: int
    slow_ms: int
    queue: bool
    spill: str
    stop_on: frozenset[str]
    ladder: list[dict[str, Any]]
    first_token_ms: int | None
    idle_ms: int
    progress_ms: int
    schema: bool
    breaker: dict[str, int]
    bucket: dict[str, int]
    backoff: dict[str, int]
    retries_per_hour: int | None
    overload_retries: int  # one, unless the card states its own limit for error answers
    priced: bool
    notes: dict[str, Any] = field(default_factory=dict)


def fingerprint(requires: dict[str, Any], provides: dict[str, Any], route: dict[str, Any]) -> str:
    def line(key: str, value: Any) -> str:
        if isinstance(value, list):
            value = sorted(value, key=lambda v: json.dumps(v))
        return f"{key}={json.dumps(value, separators=(',', ':'), sort_keys=True, ensure_ascii=False)}\n"

    lines = [line(f"requires.{s}.{k}", v) for s, keys in requires.items() for k, v in keys.items()]
    lines += [line(f"provides.{s}.{k}", v) for s, keys in provides.items() for k, v in keys.items()]
    lines += [line(f"route.{k}", route[k]) for k in ("provider", "model", "version") if k in route]
    text = "".join(sorted(lines, key=lambda x: x.encode()))
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def _contract(workflow: str, name: str, how: str, requires: dict[str, Any], route: dict[str, Any], primary: dict[str, Any],
              drop: int) -> dict[str, Any] | None:
    if how == "missing":
        return None
    mark = fingerprint(requires, route.get("provides", {}), route)
    if how == "stale":
        mark = "sha256:" + "0" * 64
    until = "2026-11-15T00:00:00Z" if how == "expired" else "2027-02-01T00:00:00Z"
    since = "2026-12-15T00:00:00Z" if how == "future" else "2026-11-01T00:00:00Z"
    made: dict[str, Any] = {
        "workflow": workflow, "route": name, "fingerprint": mark, "approved_by": "ops@example.com",
        "evidence": {"fixtures": "sha256:" + "1" * 64, "cases": 100, "passed": 99, "score_ppm": 990_000 - drop, "primary_score_ppm": 990_000,
                     "measured_at": since, "expires_at": until},
    }
    if drop or how in ("remeasured", "rebased"):  # what was measured is named; where it is another, no signature helps
        for key, named, other in (("route", route, "remeasured"), ("primary", primary, "rebased")):
            made["evidence"][key] = {"provider": named["provider"], "model": "another" if how == other else named["model"]}
    price = route.get("price")
    if how == "dearer":  # than what was approved; a route without a price is not the approved one either
        made["price"] = {"input": 1, "output": 2}
    elif price and drop:  # approved as it is, in another spelling
        made["price"] = {"output": f"{price['output']:.9f}", "cached_input": price["input"], "input": price["input"]}
    return made


def make(rng: Random) -> tuple[dict[str, Any], Spec]:
    """One card of the family, and what it means."""
    kind = rng.choice(("interactive", "interactive", "interactive", "batch", "batch", "effectful"))
    count = rng.choice((1, 2, 2, 2, 3, 3, 4))
    priced = rng.random() < 0.5
    schema = rng.random() < 0.15
    requires: dict[str, Any] = {}
    if schema:
        requires["output"] = {"schema": {"type": "object", "required": ["a"], "properties": {"a": {"type": "integer"}}}}
    routes: dict[str, Any] = {}
    specs: dict[str, Route] = {}
    standins: list[Standin] = []
    contracts: list[dict[str, Any]] = []
    accounts: dict[str, Any] = {}
    names = ["main", "backup", "third", "fourth"][:count]
    small = rng.random() < 0.3
    everyone = names + (["small"] if small else [])
    for i, name in enumerate(everyone):
        account = rng.choice(("acc0", "acc0", "acc1")) if i else "acc0"
        price = (2_000_000_000, 10_000_000_000) if not i or rng.random() < 0.6 else (4_000_000_000, 20_000_000_000)
        if name == "small":
            price = (500_000_000, 2_500_000_000)
        provider = rng.choice(("openai", "openai", "anthropic")) if i else "openai"
        route: dict[str, Any] = {"provider": provider, "model": f"m-{name}", "account": account, "base_url": f"https://{name}.example.com/v1"}
        provides: dict[str, Any] = {}
        spec = Route(name, account, provider, price if priced else None)
        if priced:
            route["price"] = {"input": price[0] / 1e9, "output": price[1] / 1e9}
        if rng.random() < 0.2:
            spec.room = 1
            route["quota"] = {"in_flight": 1}
        how = rng.choice(("ok", "ok", "ok", "ok", "ok", "missing", "stale", "expired", "unfit", "dearer", "future", "remeasured", "rebased")) if i else "ok"
        # For the primary only declared limits bind; of a stand-in, unknown is not provided.
        if (i and how != "unfit") or (not i and rng.random() < 0.3):
            spec.context = rng.choice((4_000, 200_000)) if how != "unfit" else None
            provides["input"] = {"context_tokens": spec.context}
            provides["output"] = {"max_tokens": 4_096}
        if rng.random() < 0.4:
            spec.estimate = rng.choice((500, 800, 1500, 4000))
            provides["operations"] = {"first_token_p95_ms": spec.estimate}
        if rng.random() < 0.6:
            spec.quota_owner = account if rng.random() < 0.7 else "shared"
            provides["economics"] = {"quota_owner": spec.quota_owner}
        if schema and i:
            provides.setdefault("output", {})["json_schema"] = True
        if provides:
            route["provides"] = provides
        routes[name] = route
        specs[name] = spec
        if i:
            drop = rng.choice((0, 10_000, 50_000))
            made = _contract("w", name, how, requires, route, routes["main"], drop)
            if made:
                contracts.append(made)
            standins.append(Standin(name, how == "ok", drop, 990_000 - drop, name == "small"))
    budget: dict[str, Any] = {}
    total = 4
    if rng.random() < 0.6:
        total = budget["total_attempts"] = rng.choice((1, 2, 3, 3, 4, 5, 6))
    per_route = total if count == 1 else {"interactive": 2, "batch": 3, "effectful": 2}[kind]
    if rng.random() < 0.4:
        per_route = budget["per_route"] = rng.choice((1, 2, 3, 3))
    per_class = {"connect": 3, "silent": 1, "cut": 1, "rate": 2, "server": 2, "answer": 1, "other": 0}
    if rng.random() < 0.3:
        word = rng.choice(("server", "rate", "connect", "answer"))
        per_class[word] = rng.choice((0, 1, 2))
        budget["per_class"] = {word: per_class[word]}
    call_resends = 6
    if rng.random() < 0.15:
        call_resends = budget["call_resends"] = rng.choice((0, 1, 2))
    elapsed = rng.choice((None, None, 3_000, 9_000, 9_000, 30_000, 30_000, 60_000, 60_000, 120_000))
    budget["elapsed_ms"] = elapsed
    extra_tokens = extra_cost = None
    if rng.random() < 0.65:
        extra_tokens = budget["extra_tokens"] = rng.choice((0, 840, 1680, 20_000, 20_000, 20_000, 20_000))
    if priced and rng.random() < 0.5:
        extra_cost = rng.choice((0, 3_600_000, 7_200_000, 50_000_000, 50_000_000, 50_000_000))
        budget["extra_cost_usd"] = f"{extra_cost / 1e9:.9f}"
    quality = budget["quality_drop_ppm"] = rng.choice((0, 30_000, 100_000, 100_000))
    safe = {"interactive": "first_visible_token", "batch": "first_visible_token", "effectful": "not_sent"}[kind]
    workflow: dict[str, Any] = {"kind": kind, "routes": names, "order": "card", "budget": budget}
    after_visible = "stop"
    if kind != "effectful" and rng.random() < 0.35:
        safe = workflow["safe_replay_until"] = rng.choice(("not_sent", "accepted", "first_visible_token", "first_tool_start"))
    if safe == "first_tool_start" or (safe == "first_visible_token" and rng.random() < 0.15):
        after_visible = workflow["after_visible"] = "restart"
    silence = {"interactive": "stand_in", "batch": "any", "effectful": "none"}[kind]
    if kind != "effectful" and rng.random() < 0.15:
        silence = workflow["after_silence"] = rng.choice(("stand_in", "any"))
    hold_ms = workflow["hold_ms"] = rng.choice((0, 1_000, 3_000, 3_000))
    slow_ms = workflow["slow_failure_ms"] = rng.choice((2_500, 10_000, 10_000))
    queue = kind == "batch"
    if rng.random() < 0.3 and kind == "batch":
        queue = workflow["queue"] = False
    spill = "when_wait_does_not_fit"
    if rng.random() < 0.25:
        spill = rng.choice(("never", "when_wait_does_not_fit", "prefer_fast"))
        workflow["spill"] = {"mode": spill}
    stop_on = frozenset(("auth", "policy"))
    if rng.random() < 0.25:
        stop_on = frozenset(rng.choice(((), ("policy",), ("auth", "policy", "quota"))))
        workflow["stop_on"] = sorted(stop_on)
    first_token = None
    if rng.random() < 0.4:
        first_token = rng.choice((4_000, 8_000, 15_000))
        workflow["timeouts"] = {"first_token_ms": first_token}
    ladder: list[dict[str, Any]] = []
    if small:
        ladder.append({"step": "smaller_model", "route": "small", "min_score_ppm": rng.choice((900_000, 985_000))})
    if rng.random() < 0.25:
        ladder.append({"step": "compact", "to_tokens": 300})
    if rng.random() < 0.3:
        ladder.append({"step": "cached", "max_age_s": 600})
    if rng.random() < 0.35:
        ladder.append({"step": "preset", "text": {"en": "Please try again soon."}})
    if rng.random() < 0.2:
        rng.shuffle(ladder)
    if ladder:
        workflow["ladder"] = ladder
    if requires or rng.random() < 0.5:
        workflow["requires"] = requires
    breaker = {"consecutive": 5, "window_ms": 60_000, "min_calls": 8, "failure_ppm": 500_000, "open_ms": 10_000, "open_max_ms": 20_000, "probes": 1,
               "probe_lease_ms": 30_000, "successes": 2}
    # Learned limits are not the model's: what it knows of a route are failures, not speed. They have tests of their own.
    card: dict[str, Any] = {"version": 1, "adapt": {"limit": False, "pace": False, "probes": False}, "routes": routes, "workflows": {"w": workflow}}
    if rng.random() < 0.6:
        given = {"consecutive": rng.choice((1, 2, 3))}
        if rng.random() < 0.3:
            given["successes"] = 1
        if rng.random() < 0.3:
            given["open_ms"] = 4_000
        if rng.random() < 0.2:
            given["min_calls"] = 3
        breaker.update(given)
        card["breaker"] = given
    bucket = {"credit_milli": 100, "cap": 10_000, "start": 3_000, "trickle": 1_000}
    if rng.random() < 0.35:
        start = rng.choice((0, 1, 2))
        bucket.update(start=start * 1000, cap=max(start, 2) * 1000)
        card["retry_bucket"] = {"credit_ppm": 100_000, "cap": max(start, 2), "start": start, "trickle_per_minute": 1}
    limits: dict[str, Any] = {}
    hourly = None
    if rng.random() < 0.1:
        hourly = limits["retries_per_hour"] = rng.choice((1, 2))
    if limits:
        card["limits"] = limits
    if contracts:
        card["contracts"] = contracts
    if accounts:
        card["accounts"] = accounts
    holds = {"interactive": 1, "batch": 2, "effectful": 0}[kind]
    resolved = Spec(specs, "main", standins, kind, safe, after_visible, silence, total, per_route, per_class,
                    max({"interactive": 1, "batch": 2, "effectful": 1}[kind], per_route - 1), call_resends, elapsed, extra_tokens, extra_cost, holds,
                quality, hold_ms, slow_ms, queue, spill, stop_on, ladder, first_token, 30_000, 60_000, schema, breaker, bucket,
                {"base": 500, "rate_base": 1_000, "cap": 20_000, "hint_cap": 60_000}, hourly,
                per_class["server"] if "server" in budget.get("per_class", {}) else 1, priced)
    return card, resolved
