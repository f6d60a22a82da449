"""A verification for people."""

from __future__ import annotations

import typing

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

__all__ = ["terminal"]

Json = typing.Dict[str, typing.Any]
_SHOWN = 40  # failing cases; the file of results has all


def _score(ppm: "int | None") -> str:
    return "" if ppm is None else f"{ppm / 10_000:.2f} %"


def _sides(report: Json) -> Table:
    table = Table("", "route", "finished", "passed", "failed", "errors", "score",
                  box=None, pad_edge=False)
    for name, words in (("primary", "primary"), ("route", "stand-in")):
        side = report["sides"][name]
        table.add_row(words, Text(report[name]), f"{side['finished']}/{report['cases']}",
                      str(side["passed"]), str(side["failed"]), str(side["error"]),
                      _score(side["score_ppm"]))
    return table


def _failing(report: Json) -> "list[RenderableType]":
    rows = report["failing"]
    if not rows:
        return []
    table = Table("failing", "side", "why", box=None, pad_edge=False)
    for row in rows[:_SHOWN]:
        table.add_row(Text(row["id"]), "primary" if row["side"] == "primary"
                      else "stand-in", Text("; ".join(row["reasons"])))
    out: "list[RenderableType]" = [Text(), table]
    if len(rows) > _SHOWN:
        out.append(Text(f"and {len(rows) - _SHOWN} more, in {report['results']}"))
    return out


def _operations(report: Json) -> "list[RenderableType]":
    out: "list[RenderableType]" = []
    for key, one in report["operations"].items():
        if one["measured"] is not None:
            stated = "nothing" if one["stated"] is None else f"{one['stated']} ms"
            out.append(Text(f"{key}: measured {one['measured']} ms, the route states "
                            f"{stated}"))
    return out


def _end(report: Json, card: str) -> "list[RenderableType]":
    stopped = report["stopped"]
    if stopped is not None:
        return [Text(f"stopped: {stopped['why']}; {stopped['left']} of "
                     f"{2 * report['cases']} answers are missing, and the card is as it "
                     "was. Run the same command again: what is finished is in "
                     f"{report['results']}", style="yellow")]
    evidence, quality = report["evidence"], report["quality"]
    out: "list[RenderableType]" = [Text(
        f"evidence written into {card}: {evidence['passed']} of {evidence['cases']} "
        f"passed, measured {evidence['measured_at']}, until {evidence['expires_at']}")]
    if report["removed"]:
        out.append(Text(f"taken out of the contract: {', '.join(report['removed'])}; "
                        "they were of the old evidence", style="yellow"))
    wanted = ", ".join(f"{key} {value}" for key, value in quality["required"].items())
    if not quality["holds"]:
        out.append(Text(f"too low: requires.quality is {wanted}", style="red"))
    else:
        out.append(Text(f"requires.quality holds{': ' + wanted if wanted else ''}; next: "
                        f"fivegates contract approve {card} --workflow "
                        f"{report['workflow']} --route {report['route']} --by WHO"))
    return out


def terminal(report: Json, card: str) -> RenderableType:
    """The report of a run, for a terminal."""
    rows: "list[RenderableType]" = [
        Text(f"{report['cases']} cases, {report['fixtures']}"), _sides(report)]
    for what, count in report["skipped"].items():
        rows.append(Text(f"left out: {count} rows: {what}", style="yellow"))
    rows += _failing(report)
    rows.append(Text())
    rows += _operations(report)
    at_most = (f" at most: {report['unbilled']} answers came without usage, or after a "
               "send that may have been billed" if report["unbilled"] else "")
    rows.append(Text(f"cost: ${report['cost_usd']}{at_most}"))
    if report["lost"]:
        rows.append(Text(f"of it ${report['lost_usd']} held for {report['lost']} calls "
                         "that were on their way when a run was killed: they may have "
                         "been billed", style="yellow"))
    return Group(*rows, *_end(report, card))
