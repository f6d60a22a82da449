"""What a run has measured: whom, scores, evidence, times, and whether it is enough."""

from __future__ import annotations

import datetime
import json
import typing

import fivegates
from fivegates.contract.results import Results

__all__ = ["evidence_of_run", "models_of", "operations", "percentile_95", "quality", "side_of"]

Json = typing.Dict[str, typing.Any]


def side_of(results: Results, name: str, cases: int) -> Json:
    """One side's counts. score_ppm: the mean of the cases' scores, rounded down,
    and null until all of them are finished."""
    lines = [line for (_, side), line in results.done.items() if side == name]
    counts = {word: sum(line["result"] == word for line in lines)
              for word in ("passed", "failed", "error")}
    return {"finished": len(lines), **counts,
            "score_ppm": (sum(line["score_ppm"] for line in lines) // cases
                          if len(lines) == cases else None)}


def evidence_of_run(results: Results, fixtures: str, cases: int, days: int) -> Json:
    """The evidence of a whole run. measured_at: when the oldest case was answered;
    from it on the days count, also where a run was resumed much later."""
    assert len(results.done) == 2 * cases  # evidence is of all cases on both sides
    primary, route = (side_of(results, name, cases) for name in ("primary", "route"))
    measured = min(line["at"] for line in results.done.values())
    expires = datetime.datetime.strptime(
        measured, "%Y-%m-%dT%H:%M:%SZ") + datetime.timedelta(days=days)
    return {"fixtures": fixtures, "cases": cases, "passed": route["passed"],
            "score_ppm": route["score_ppm"], "primary_score_ppm": primary["score_ppm"],
            "measured_at": measured,
            "expires_at": expires.strftime("%Y-%m-%dT%H:%M:%SZ")}


def models_of(identity: Json) -> Json:
    """Who was measured, as evidence names it: route and primary by provider, model
    and, where the card stated one, version. identity: what the run's results belong
    to."""
    return {side: {key: identity[side][key] for key in ("provider", "model", "version")
                   if identity[side][key] is not None}
            for side in ("route", "primary")}


def quality(card: Json, workflow: str, route: str, evidence: Json) -> "tuple[Json, bool]":
    """What is required of quality, and whether the evidence satisfies it, as the
    engine sees it: by a card that requires nothing else. A route that serves only
    as a smaller model must reach that step's score too."""
    flow = card["workflows"][workflow]
    required = dict((flow.get("requires") or {}).get("quality") or {})
    steps = [step.get("min_score_ppm", 0) for step in flow.get("ladder") or ()
             if step.get("route") == route]
    if route not in flow["routes"] and steps:
        required["min_score_ppm"] = max([required.get("min_score_ppm", 0), *steps])
    bare = {"provider": "measured", "model": "measured"}
    alone = {"version": 1, "routes": {"primary": bare, "route": bare},
             "workflows": {"w": {"routes": ["primary", "route"],
                                 "requires": {"quality": required}}},
             "contracts": [{"workflow": "w", "route": "route", "fingerprint": "auto",
                            "evidence": evidence}]}
    policy = fivegates.Policy.loads(json.dumps(alone, default=float), json=True,
                                    auto_fingerprint=True)
    return required, bool(policy.contract("w", "route")["approved"])


def percentile_95(values: "typing.Sequence[int]") -> "int | None":
    """The nearest rank; None: there are no values."""
    return sorted(values)[-(-95 * len(values) // 100) - 1] if values else None


def operations(results: Results, provides: Json) -> Json:
    """The route's measured times beside what it states, in milliseconds."""
    lines = [line for (_, side), line in results.done.items()
             if side == "route" and line["result"] != "error"]
    stated = provides.get("operations") or {}
    out: Json = {}
    for key, name in (("first_token_p95_ms", "first_token_ms"),
                      ("latency_p95_ms", "latency_ms")):
        out[key] = {"measured": percentile_95([
            line[name] for line in lines if line.get(name) is not None]),
            "stated": stated.get(key)}
    return out
