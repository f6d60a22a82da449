"""The report for a terminal, and as CSV."""

from __future__ import annotations

import csv
import io
import itertools
import typing

from rich import box
from rich.console import Group, RenderableType
from rich.table import Column, Table
from rich.text import Text

from fivegates.reconcile.report import FINDING_FIELDS, Json, Report

__all__ = ["csv_lines", "headlines", "interval", "sentences", "terminal"]

_LOOK: typing.Dict[str, typing.Any] = {
    "box": box.SIMPLE_HEAD, "title_justify": "left", "pad_edge": False}
SHOWN = 20  # findings in the table; all are in --json and --csv


def interval(lo: "str | None", hi: "str | None") -> str:
    """Two amounts, once when they are one."""
    if lo is None or hi is None:
        return "no price"
    return lo if lo == hi else f"{lo} to {hi}"


def headlines(summary: Json) -> "list[str]":
    """The answer, one sentence for each currency."""
    out = []
    cover = summary["coverage"]
    nothing = "nothing wasted in what the exports cover"
    if cover["attempts"] and not cover["explained"]:
        nothing = ("what was wasted is not known: the exports tell of none of the "
                   "ledger's attempts")
    for coin, one in summary["money"].items():
        said = (f"{coin}: wasted at least {one['wasted_at_least']} (certain), probably "
                f"{interval(*one['wasted_probably'])}, at most {one['wasted_at_most']}, of "
                "what the exports cover")
        if all(span == ["0", "0"] for span in one["wasted"].values()):
            said = f"{coin}: {nothing}"
        if one["without_price"]:
            said += (f"; {one['without_price']} without a price: give --price or an "
                     "export with money")
        out.append(said)
    return out or [nothing]


def sentences(summary: Json) -> "list[str]":
    """What the answer rests on, and what it leaves out."""
    out = [f"{provider} billed {bill['amount']} {coin} ({bill['from']})"
           for coin, one in summary["money"].items()
           for provider, bill in one["billed"].items()]
    cover = summary["coverage"]
    ledger = summary["ledger"]
    out.append(f"{cover['explained']} of {cover['attempts']} attempts explained "
               f"({cover['ppm'] / 10_000:.1f} %), {cover['export_tokens_explained']} of "
               f"{cover['export_tokens']} tokens of the exports")
    for provider, count in cover["uncovered"].items():
        out.append(f"not told: {count} attempts at {provider} are outside of its "
                   "exports, too recent, or in cells that do not add up")
    given = ", ".join(provider for one in summary["money"].values()
                      for provider in one["billed"])
    for provider in cover["no_export"]:
        out.append(f"not covered: no export of {provider} was given"
                   + (f"; those given are of {given} (a route's provider in the card "
                      "is who bills it)" if given else ""))
    if cover["served_without_row"]:
        out.append(f"{cover['served_without_row']} answers that were served have no "
                   "row: rows that come late, or another period")
    if ledger["torn_lines"]:
        out.append(f"{ledger['torn_lines']} torn lines of the ledger were passed over, "
                   f"the first at {ledger['torn_at'][0]}")
    if ledger["attempts_without_their_lines"]:
        out.append(f"{ledger['attempts_without_their_lines']} attempts lack lines in "
                   "the ledger: a crash, or a part of it that was not given")
    for one in summary["not_in_ledger"]:
        out.append(f"{one['requests']} requests at {one['provider']} are not in the "
                   f"ledger ({one['cost']} {one['currency']}): other software on the "
                   "key, or lines that are missing"
                   + (f"; {one['perhaps_hidden_resends']} look like resends hidden in "
                      "an SDK or a gateway" if one["perhaps_hidden_resends"] else ""))
    for what, count in summary["counted_once"].items():
        if count:
            out.append(f"counted once: {count} {what}")
    for export in summary["exports"]:
        out += [f"{export['file']}: {note}" for note in export["notes"]]
    return out


def terminal(report: Report) -> RenderableType:
    """Sentences and tables: findings, cells without explanation, what was learned."""
    summary = report.summary
    parts: "list[RenderableType]" = [
        *(Text(one, style="bold") for one in headlines(summary)),
        *map(Text, sentences(summary))]
    found = Table(*(Column(name, overflow="fold") for name in (
        "call", "verdict", "confidence", "where", "attempts")),
        Column("wasted", justify="right"), title="paid for nothing", **_LOOK)
    some = list(itertools.islice(report.findings(), SHOWN + 1))
    for one in some[:SHOWN]:
        found.add_row(*map(Text, (
            one["call"], one["verdict"], one["confidence"],
            f"{one['provider']} {one['model']}", ", ".join(f"{n} {kind}" for n, kind in zip(
                one["attempts"], one["kinds"])),
            f"{interval(one['wasted_lo'], one['wasted_hi'])} {one['currency']}")))
    if some:
        parts.append(found)
    if len(some) > SHOWN:
        parts.append(Text(f"the first {SHOWN}; all of them with --json, --csv or --html"))
    left = Table("provider", Column("model", overflow="fold"), "from", "to", Column("input tokens", justify="right"),
                 Column("output tokens", justify="right"), "why", title="not explained", **_LOOK)
    for cell in summary["unexplained"][:SHOWN]:
        left.add_row(*map(Text, (
            cell["provider"], cell["model"], cell["from"], cell["to"],
            str(cell["input_tokens"]), str(cell["output_tokens"]), cell["why"])))
    if left.row_count:
        parts.append(left)
    learned = Table(*(Column(name, overflow="fold") for name in ("where", "ended by")), *(
        Column(name, justify="right", no_wrap=True) for name in
        ("attempts", "billed", "not billed", "not told", "%")),
        title="how often an attempt without an answer was billed", **_LOOK)
    for row in summary["learned"]:
        learned.add_row(*map(Text, (
            f"{row['provider']} {row['model']}" + (f" ({row['route']})" if row["route"] else ""),
            row["kind"] or "",
            str(row["attempts"]), str(row["billed"]), str(row["not_billed"]),
            str(row["perhaps_billed"] + row["not_told"]),
            "" if row["billed_ppm"] is None else f"{row['billed_ppm'] / 10_000:.0f}")))
    if learned.row_count:
        parts.append(learned)
    return Group(*parts)


def csv_lines(report: Report) -> "typing.Iterator[str]":
    """The findings as CSV, with a header."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(FINDING_FIELDS)
    for one in report.findings():
        writer.writerow([" ".join(map(str, value)) if isinstance(value, list) else value
                         for value in (one[name] for name in FINDING_FIELDS)])
        yield text.getvalue()
        text.seek(0)
        text.truncate()
    yield text.getvalue()
