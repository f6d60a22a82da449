"""A live region as plain data: routes, workflows, what asks for a person."""

from __future__ import annotations

import typing

from fivegates._core import Engine, Policy, Region
from fivegates.errors import FivegatesError

__all__ = ["ANSWERED", "Json", "RECOVERY", "StatusError", "live", "usd"]

Json = typing.Dict[str, typing.Any]

# How calls ended, kept apart: a good final rate never hides a broken primary.
RECOVERY = ("primary_success", "retry_recovery", "fallback_recovery", "degraded",
            "failed_closed", "queued", "cancelled")
ANSWERED = RECOVERY[:4]


class StatusError(FivegatesError):
    """A region or a ledger that cannot be looked at, and what to do."""

    result = "status"


def usd(nusd: int) -> str:
    """Decimal dollars of nano-dollars, exact."""
    sign, nusd = ("-" if nusd < 0 else ""), abs(nusd)
    whole, part = divmod(nusd, 1_000_000_000)
    text = f"{part:09d}".rstrip("0")
    return f"{sign}{whole}.{text}" if text else f"{sign}{whole}"


def _route(policy: Policy, engine: Engine, name: str) -> Json:
    info, view = policy.route(name), engine.route(name)
    return {
        "route": name, "provider": info["provider"], "model": info["model"],
        "breaker": view["breaker"], "health": view["health"],
        "open_for_ms": view["open_for_ms"], "opened_count": view["opened_count"],
        "latch": view["latch"], "latch_for_ms": view["latch_for_ms"],
        "in_flight": view["in_flight"],
        # 0: none was declared or learned
        "limit": view["limit"] or None,
        "requests_per_second": view["rate_milli"] / 1000 or None,
        "wait_ms": view["not_before_ms"],
        "retry_tokens": view["balance_milli"] / 1000,
        "attempts": view["attempts"], "successes": view["successes"],
        "failures": view["failures"], "tokens": view["tokens"],
        "window_ok": view["window_ok"], "window_failed": view["window_failed"],
        "first_token_ms": view["first_token_ms"] or None,
    }


def _limit(card: Json, *path: str) -> typing.Any:
    at: typing.Any = card
    for key in path:
        at = at.get(key) if isinstance(at, dict) else None
    return at


def _workflow(engine: Engine, card: Json, name: str) -> Json:
    counts = engine.workflow(name)
    calls = counts["calls"]
    ended = {word: counts[word] for word in RECOVERY}
    return {
        "workflow": name, "calls": calls, **ended,
        "open": max(calls - sum(ended.values()), 0),
        "answered": sum(ended[word] for word in ANSWERED),
        "retries_this_hour": counts["retries_this_hour"],
        "spent_today_usd": usd(counts["spent_today_nusd"]),
        "spend_per_day_usd": _limit(card, "workflows", name, "limits",
                                    "spend_per_day_usd"),
    }


def _attention(routes: "list[Json]", out: Json) -> "list[str]":
    """What a person has to look at, the worst first, in words."""
    latched = {"key_latched": "its key is refused",
               "quota_latched": "its account is empty",
               "model_latched": "its configuration is refused"}
    said = []
    served = sum(one[word] for one in out["workflows"] for word in RECOVERY[:3])
    if served and not any(one["attempts"] for one in routes):
        said.append(f"{served} answers, and no attempt on a route of this card: it is "
                    "not the card that the programs use; give theirs")
    for one in routes:
        if one["latch"] != "none":
            wait = one["latch_for_ms"]
            said.append(f"route {one['route']}: {latched.get(one['latch'], one['latch'])}; "
                        + (f"asked again in {wait / 1000:.0f} s" if wait
                           else "the next call asks again"))
    for one in routes:
        if one["breaker"] != "closed":
            said.append(f"route {one['route']}: breaker {one['breaker'].replace('_', ' ')}, "
                        f"opened {one['opened_count']} times so far")
        elif one["latch"] == "none" and one["health"] != "ok":
            said.append(f"route {one['route']}: {one['health'].replace('_', ' ')}")
    limit = out["limits"]["retries_per_hour"]
    if limit and out["retries_this_hour"] >= limit:
        said.append(f"no more retries this hour: {limit} were made")
    return said


def live(region: str, policy: Policy, card: Json, procs: "int | None" = None) -> Json:
    """What a region holds about a card's routes and workflows, now.

    Opens the file beside the programs that use it, and changes none of what they
    share. A route that no program has used gets its place there.
    Raises StatusError where there is none, or it is of other sizes.
    """
    try:
        engine = Engine(policy, region=Region(region, procs=procs, existing=True))
    except FivegatesError as exc:
        raise StatusError(f"{exc}; --procs tells another number of processes"
                          if " size" in str(exc) else str(exc)) from None
    routes = [_route(policy, engine, name) for name in policy.routes()]
    workflows = [_workflow(engine, card, name) for name in policy.workflows()]
    out: Json = {
        "region": region, "card": policy.fingerprint, "routes": routes,
        "workflows": workflows,
        "retries_this_hour": sum(one["retries_this_hour"] for one in workflows),
        "limits": {key: _limit(card, "limits", key)
                   for key in ("retries_per_hour", "spend_per_day_usd")},
    }
    out["attention"] = _attention(routes, out)
    return out
