"""A replay's report for a terminal."""

from __future__ import annotations

import typing

from rich import box
from rich.console import Group, RenderableType
from rich.table import Column, Table
from rich.text import Text

from fivegates.replay.lines import Json

__all__ = ["terminal"]

_LOOK: typing.Dict[str, typing.Any] = {
    "box": box.SIMPLE_HEAD, "title_justify": "left", "pad_edge": False}
_SHOWN = 5  # differences and places; more are in --json


def _plural(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"


def _faults(ledger: Json) -> "list[str]":
    """What of the ledger is broken, where, and what to do."""
    out = []
    if ledger["torn_lines"]:
        out.append(f"{_plural(ledger['torn_lines'], 'line')} torn, as a stopped "
                   f"program leaves them: {', '.join(ledger['torn_at'][:_SHOWN])}")
    if ledger["lines_without_call"]:
        out.append(f"{_plural(ledger['lines_without_call'], 'line')} of calls "
                   "that began before the ledger; give its earlier files first: "
                   f"{', '.join(ledger['without_call_at'][:_SHOWN])}")
    if ledger["broken_calls"]:
        out.append(f"{_plural(ledger['broken_calls'], 'call')} with lines "
                   "missing, in no total:")
        out += [f"  {one}" for one in ledger["broken_at"][:_SHOWN]]
    return out


def _head(report: Json) -> "list[RenderableType]":
    ledger = report["ledger"]
    span = f", {ledger['from']} to {ledger['to']}" if ledger["from"] else ""
    out: "list[RenderableType]" = [Text(
        f"{ledger['calls']} calls, {ledger['decisions']} decisions{span}")]
    return out + [Text(line, style="yellow") for line in _faults(ledger)]


def _check(report: Json) -> "list[RenderableType]":
    found = report["check"]
    out: "list[RenderableType]" = [Text(
        f"{found['decisions_equal']} of {found['decisions']} decisions and "
        f"{found['other_lines_equal']} of {found['other_lines']} other lines "
        "come out as they were written, to the byte",
        style="green" if found["exact"] else "bold")]
    if found["not_followed"]:
        out.append(Text(f"{_plural(found['not_followed'], 'line')} of calls that "
                        "the engine would not have let go on so"))
    for one in found["differences"][:_SHOWN]:
        out.append(Text(f"{one['at']}: {one['line']}: " + "; ".join(
            f"{key} {pair['recorded']!r} is now {pair['now']!r}"
            for key, pair in list(one["members"].items())[:4])))
    if found["differences"]:
        out.append(Text("what calls share parts with the first difference: those "
                        "after it may follow from it. Threads and processes that "
                        "decide in one millisecond have no order in a ledger"))
    if not found["exact"] and not report["ledger"]["event_lines"]:
        out.append(Text("the ledger has no event lines, so when tokens came and "
                        "clocks were looked at is guessed"))
    return out


def _answers(one: Json) -> str:
    """Answers in full lost and won: certain ones, and how many more by estimate."""
    answers = one["answers"]
    return ", ".join(
        f"{answers[word + '_certain']}"
        + (f" (+{answers[word + '_estimated']}?)" if answers[word + "_estimated"] else "")
        + f" {word}" for word in ("lost", "won"))


def _row(table: Table, name: str, one: Json) -> None:
    was, will, change = one["recorded"], one["forecast"], one["change"]
    table.add_row(
        Text(name), str(one["calls"]),
        f"{was['attempts']} → {will['attempts']}",
        f"{was['cost_usd']} → {will['cost_usd']}",
        f"{was['held_usd']} → {will['held_usd']}",
        f"{was['in_full']} → {will['in_full']}", _answers(one),
        " → ".join(str(sums["results"].get("degraded", 0)) for sums in (was, will)),
        f"{will['calls_estimated']}", f"{will['calls_unknown']}")


def _forecast(report: Json) -> "list[RenderableType]":
    found = report["forecast"]
    out: "list[RenderableType]" = []
    if report["differences"] is None:
        out.append(Text("what the cards say otherwise: give the ledger's card "
                        "with --old"))
    elif report["differences"]:
        out.append(Text("what the card says otherwise:"))
        out += [Text("  " + line) for line in report["differences"]]
    else:
        out.append(Text("the cards say the same"))
    right: "dict[str, typing.Any]" = {"justify": "right"}
    table = Table("workflow", Column("calls", **right), Column("attempts", **right),
                  Column("spent, USD", **right), Column("of it held", **right),
                  Column("answered in full", **right), Column("of these", **right),
                  Column("by the ladder", **right),
                  Column("estimated", **right), Column("not known", **right), **_LOOK)
    for name, one in found["workflows"].items():
        _row(table, name, one)
    if len(found["workflows"]) > 1:
        _row(table, "all", found["total"])
    if found["own_error"] is not None:
        _row(table, "the same card, to compare", found["own_error"])
    out.append(table)
    net = found["change_less_own_error"]
    if net is not None:
        out.append(Text(f"the change alone: attempts {net['attempts']:+}, spent "
                        f"{net['cost_usd']} USD, of it held {net['held_usd']} USD",
                        style="bold"))
    for title, reasons in (("estimated", found["estimated_because"]),
                           ("not known", found["unknown_because"])):
        for why, count in list(reasons.items())[:_SHOWN]:
            out.append(Text(f"{title}: {_plural(count, 'call')}: {why}"))
    out.append(Text("what a ledger cannot tell:"))
    out += [Text("  " + line) for line in found["cannot_tell"]]
    return out


def terminal(report: Json) -> RenderableType:
    """The whole report."""
    body = _check(report) if report["kind"] == "check" else _forecast(report)
    return Group(*_head(report), *body)
