"""Results for a terminal and as CSV."""

from __future__ import annotations

import csv
import io
import typing

from rich.table import Table
from rich.text import Text

from fivegates.drill.goals import Check
from fivegates.drill.runs import Results, Row

__all__ = ["COLUMNS", "cell", "csv_text", "goals_table", "missed",
           "sensitivity_table", "summary", "table"]

# metric, heading, decimals
COLUMNS: "tuple[tuple[str, str, int], ...]" = (
    ("load", "load", 3), ("useful", "useful %", 2), ("within", "in 20 s %", 1),
    ("full", "full %", 1), ("refused", "told no %", 1), ("p50", "p50 s", 2),
    ("p95", "p95 s", 2), ("detected", "found s", 1), ("normal", "normal s", 0),
    ("primary", "back s", 0), ("abandoned", "left", 0), ("extra", "extra %", 1),
    ("cost", "m$", 2), ("b_during", "B ok %", 1), ("b_harm", "B later s", 2))

_GOALS: "tuple[tuple[str, str, int], ...]" = (
    ("load", "load", 3), ("useful", "useful %", 2), ("full", "full %", 1),
    ("p95", "p95 s", 2), ("abandoned", "left", 0), ("extra", "extra %", 1),
    ("detected", "found s", 1), ("normal", "normal s", 0),
    ("primary", "back s", 0), ("b_during", "B ok %", 1),
    ("b_harm", "B later s", 2))


def cell(row: Row, metric: str, decimals: int) -> str:
    """A value for people; - when no run had it."""
    one = row["metrics"][metric]
    return "-" if one is None else f"{one['mean']:.{decimals}f}"


def table(results: Results) -> Table:
    """One row for each fault and strategy."""
    out = Table(box=None, pad_edge=False)
    out.add_column("fault", no_wrap=True)
    out.add_column("strategy", no_wrap=True)
    for _, heading, _ in COLUMNS:
        out.add_column(heading, justify="right", no_wrap=True)
    before = ""
    for row in results["rows"]:
        style = "bold" if row["strategy"] == "fivegates" else ""
        out.add_row(row["fault"] if row["fault"] != before else "",
                    row["strategy"],
                    *(cell(row, metric, n) for metric, _, n in COLUMNS),
                    style=style)
        before = row["fault"]
    return out


def summary(results: Results) -> str:
    """The line under the table."""
    last = results["seed"] + results["seeds"] - 1
    return (f"seeds {results['seed']} to {last}, config {results['config']}, "
            f"{results['events']:,} events")


def csv_text(results: Results) -> str:
    """Every metric's mean and standard deviation, a line a row."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    names = list(results["rows"][0]["metrics"]) if results["rows"] else []
    writer.writerow(["fault", "strategy", "seeds", *(
        word for name in names for word in (name, name + "_sd"))])
    for row in results["rows"]:
        values: "list[object]" = [row["fault"], row["strategy"], results["seeds"]]
        for name in names:
            one = row["metrics"][name]
            values += ["", ""] if one is None else [one["mean"], one["sd"]]
        writer.writerow(values)
    return out.getvalue()


def sensitivity_table(runs: "typing.Mapping[float, Results]", metric: str) -> Table:
    """One metric by the backup's spare capacity, and the bound at full quality."""
    out = Table(box=None, pad_edge=False)
    for heading in ("fault", "strategy", *(f"s={spare:g}" for spare in runs)):
        out.add_column(heading, no_wrap=True,
                       justify="right" if "=" in heading else "left")
    cells: "dict[tuple[str, str], list[str]]" = {}
    for results in runs.values():
        for row in results["rows"]:
            cells.setdefault((row["fault"], row["strategy"]), []).append(cell(row, metric, 2))
        for fault in dict.fromkeys(row["fault"] for row in results["rows"]):
            one = next(row for row in results["rows"] if row["fault"] == fault)
            cells.setdefault((fault, "bound"), []).append(cell(one, "bound", 2))
    before = ""
    for fault, strategy in sorted(cells, key=lambda key: list(
            dict.fromkeys(name for name, _ in cells)).index(key[0])):
        out.add_row(fault if fault != before else "", strategy, *cells[fault, strategy],
                    style="bold" if strategy == "fivegates" else "")
        before = fault
    return out


# ---- goals


def _judged(check: Check, decimals: int) -> Text:
    got = "-" if check.got is None else f"{check.got:.{decimals}f}"
    sign = "≥" if check.at_least else "≤"
    style = "green" if check.passed else "bold red"
    return Text.assemble((got, style), (f" {sign}{check.limit:g}", "dim"))


def goals_table(checks: "typing.Sequence[Check]") -> Table:
    """A row for each rig and fault; what was measured, and the limit."""
    out = Table(box=None, pad_edge=False)
    out.add_column("rig", no_wrap=True)
    out.add_column("fault", no_wrap=True)
    for _, heading, _ in _GOALS:
        out.add_column(heading, justify="right", no_wrap=True)
    rows: "dict[tuple[str, str], dict[str, Check]]" = {}
    for check in checks:
        rows.setdefault((check.rig, check.fault), {})[check.metric] = check
    before = ""
    for (rig, fault), of in rows.items():
        cells = [_judged(of[metric], n) if metric in of else Text("")
                 for metric, _, n in _GOALS]
        out.add_row(rig if rig != before else "", fault, *cells)
        before = rig
    return out


def missed(checks: "typing.Sequence[Check]") -> "list[str]":
    """A line for each goal that is not reached."""
    out: "list[str]" = []
    for check in checks:
        if not check.passed:
            sign = "at least" if check.at_least else "at most"
            got = "never measured" if check.got is None else (
                f"{check.got:g} (sd {check.sd:g})")
            by = "" if check.margin is None else f", missed by {-check.margin:.3g}"
            out.append(f"{check.rig}, {check.fault}: {check.metric} is {got}, "
                       f"must be {sign} {check.limit:g}{by}")
    return out
