"""The goals, and how far the strategy fivegates is from each."""

from __future__ import annotations

import dataclasses
import functools
import typing

from fivegates.drill.runs import Progress, Results, run

__all__ = ["Check", "RIGS", "Rig", "check_goals"]

Json = typing.Dict[str, typing.Any]

# Metrics that must be at least the limit; the others must be at most.
_AT_LEAST = ("useful", "full", "b_during")
_BROWNOUTS = ("brownout", "brownout_layered", "brownout_cancel")
_SOON = {"detected": 1.5, "normal": 10.0, "primary": 30.0}
_RATE = {"detected": 1.5, "normal": 10.0, "primary": 180.0}


@dataclasses.dataclass(frozen=True)
class Rig:
    """One set-up, and for each fault the limits of the metrics.

    A limit is a number, or (strategy, factor): that strategy's value, times
    the factor.
    """

    name: str
    config: Json
    limits: "dict[str, dict[str, float | tuple[str, float]]]"


@dataclasses.dataclass(frozen=True)
class Check:
    """One goal: what was measured, what it must be, by how much it is beaten.

    got is None when no run had the value; margin is negative when missed.
    """

    rig: str
    fault: str
    metric: str
    got: "float | None"
    sd: float
    limit: float
    at_least: bool

    @property
    def margin(self) -> "float | None":
        if self.got is None:
            return None
        return self.got - self.limit if self.at_least else self.limit - self.got

    @property
    def passed(self) -> bool:
        return self.margin is not None and self.margin >= -1e-9


def _of(names: "typing.Sequence[str]", *parts: "typing.Mapping[str, float]",
        **limits: float) -> "dict[str, dict[str, float | tuple[str, float]]]":
    merged: "dict[str, float | tuple[str, float]]" = {}
    for part in (*parts, limits):
        merged.update(part)
    return {name: dict(merged) for name in names}


_TENANTS = {"tenants": 2000, "backups": 3, "spare": 1,
            "population": {"a_per_s": 200, "b_per_s": 33.333},
            "slots": {"primary": 1200}}

RIGS: "tuple[Rig, ...]" = (
    Rig("26 slots, ladder", {}, {
        **_of(_BROWNOUTS, _SOON, load=1.01, useful=99.5, full=96, p95=14,
              abandoned=10, extra=1, b_during=99.9, b_harm=0.2),
        **_of(["blackout"], _SOON, load=1.02, useful=99.5, full=65, p95=5,
              abandoned=1, extra=1, b_during=99.9, b_harm=0.8),
        **_of(["ratelimit"], _RATE, load=1.02, useful=99.5, full=96, p95=5,
              abandoned=1, extra=1, b_during=99.9, b_harm=0.2),
        **_of(["trickle"], _SOON, load=1.03, useful=99.5, full=65, p95=5,
              abandoned=60, extra=2, b_during=99.9, b_harm=0.8)}),
    Rig("26 slots, no ladder", {"ladder": False}, {
        **_of(["brownout", "brownout_cancel"], _SOON, load=1.02, useful=99.5,
              p95=14, abandoned=10, extra=1, b_during=99.9, b_harm=0.3),
        **_of(["ratelimit"], _RATE, load=1.02, useful=99.5, p95=5, abandoned=10,
              extra=1, b_during=99.9, b_harm=0.3),
        **_of(["blackout", "trickle"], _SOON, load=1.01, useful=94, p95=7.5,
              abandoned=70, extra=3, b_during=99.9, b_harm=1.1)}),
    Rig("s = 0.25, ladder", {"spare": 0.25}, {
        **_of(["brownout"], _SOON, load=1.01, useful=99, p95=14, abandoned=70,
              extra=3, b_during=99.9, b_harm=1.2),
        **_of(["ratelimit"], _RATE, load=1.01, useful=99, p95=5, abandoned=70,
              extra=3, b_during=99.9, b_harm=1.2),
        **_of(["blackout"], _SOON, load=1.01, useful=94, p95=6, abandoned=70,
              extra=3, b_during=99.9, b_harm=1.2),
        **_of(["trickle"], _SOON, load=1.01, useful=94, p95=5, abandoned=70,
              extra=3, b_during=99.9, b_harm=1.2)}),
    Rig("s = 0, no ladder", {"spare": 0, "ladder": False}, {
        fault: {"load": 1.0, "useful": ("oracle", 0.9), "abandoned": 60,
                "detected": 1.5, "b_during": 99.9, "b_harm": 1.8}
        for fault in ("brownout", "blackout", "ratelimit", "trickle")}),
    Rig("no fault, bursts", {}, {"burst": {
        "load": 1.001, "useful": ("plain", 1.0), "abandoned": 2, "extra": 0.1,
        "b_during": 99.9, "b_harm": 0.1}}),
    Rig("2,000 tenants, shared", {**_TENANTS, "shared": True},
        _of(["blackout"], load=1.01, useful=99.5, b_during=99.8)),
    Rig("2,000 tenants, independent", {**_TENANTS, "shared": False},
        _of(["blackout"], load=1.10, useful=99.5, b_during=99.8)),
)


def _value(results: Results, fault: str, strategy: str,
           metric: str) -> "tuple[float | None, float]":
    for row in results["rows"]:
        if row["fault"] == fault and row["strategy"] == strategy:
            one = row["metrics"][metric]
            return (one["mean"], one["sd"]) if one is not None else (None, 0.0)
    raise KeyError(f"{fault}, {strategy}")


def _checks(rig: Rig, results: Results) -> "list[Check]":
    out: "list[Check]" = []
    for fault, limits in rig.limits.items():
        for metric, limit in limits.items():
            if isinstance(limit, tuple):
                other, _ = _value(results, fault, limit[0], metric)
                limit = (other or 0.0) * limit[1]
            got, sd = _value(results, fault, "fivegates", metric)
            out.append(Check(rig.name, fault, metric, got, sd, limit,
                             metric in _AT_LEAST))
    return out


def check_goals(seeds: int = 20, seed: int = 1, threads: "int | None" = None,
                progress: "typing.Callable[[str, int, int], object] | None" = None,
                base: "typing.Sequence[str]" = (), files: "typing.Sequence[str]" = (),
                rigs: "typing.Sequence[Rig]" = RIGS) -> "list[Check]":
    """Runs every rig and compares.

    base: configurations (JSON) under all rigs, such as another card; files:
    their names. progress(rig's name, done, total) as in run().
    """
    out: "list[Check]" = []
    for rig in rigs:
        compared = {limit[0] for limits in rig.limits.values()
                    for limit in limits.values() if isinstance(limit, tuple)}
        asked = {"seed": seed, "seeds": seeds, "faults": list(rig.limits),
                 "strategies": ["fivegates", *sorted(compared)]}
        report: "Progress | None" = None
        if progress is not None:
            report = functools.partial(progress, rig.name)
        out += _checks(rig, run(*base, rig.config, asked, files=files,
                                threads=threads, progress=report))
    return out
