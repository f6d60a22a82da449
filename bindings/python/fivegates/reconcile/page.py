"""The report as one HTML file that needs nothing else."""

from __future__ import annotations

import decimal
import html
import itertools
import typing

from fivegates.reconcile.report import CONFIDENCES, Json, Report
from fivegates.reconcile.table import headlines, interval, sentences

__all__ = ["page"]

_ROWS = 1000  # findings on the page; all are in --json and --csv

_STYLE = """
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 1100px; padding: 0 1rem; color: #1c2530; background: #fff; }
h1 { font-size: 1.6rem; margin-bottom: .2rem; } h2 { font-size: 1.15rem; margin: 2rem 0 .3rem; }
.big { font-size: 1.1rem; font-weight: 600; } .note { color: #55606d; font-size: .9rem; }
svg { width: 100%; height: auto; display: block; max-width: 760px; } text { font: 12px system-ui, sans-serif; fill: #1c2530; }
.axis { stroke: #99a2ac; } .certain { fill: #c2382c; background: #c2382c; } .probable { fill: #e08a3c; background: #e08a3c; }
.possible { fill: #e9c98f; background: #e9c98f; } .legend i { display: inline-block; width: .9rem; height: .7rem; margin: 0 .35rem 0 1rem; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-size: 13px; font-variant-numeric: tabular-nums; }
th, td { padding: .2rem .6rem .2rem 0; text-align: left; vertical-align: top; } th { border-bottom: 1px solid #99a2ac; } td:last-child { min-width: 15rem; } td:nth-child(-n+2) { white-space: nowrap; } td.n, th.n { text-align: right; white-space: nowrap; }
"""


def _text(value: object) -> str:
    return html.escape("" if value is None else str(value), quote=True)


def _bars(rows: "typing.Sequence[tuple[str, str, dict[str, decimal.Decimal]]]") -> str:
    """One bar for each provider: what was wasted there at most, by confidence.

    Each currency has its own scale; the number beside the bar is the sum.
    """
    height = 26 * len(rows) + 8
    out = [f'<svg viewBox="0 0 760 {height}" role="img" aria-label="Money wasted by provider">',
           f'<line class="axis" x1="150" x2="150" y1="0" y2="{height}"/>']
    highest = {coin: max(sum(parts.values()) for _, other, parts in rows if other == coin)
               for _, coin, _ in rows}
    for i, (provider, coin, parts) in enumerate(rows):
        x, y = decimal.Decimal(150), 26 * i + 4
        out.append(f'<text x="142" y="{y + 14}" text-anchor="end">{_text(provider)}</text>')
        for word in CONFIDENCES:
            width = parts[word] * 420 / (highest[coin] or 1)
            out.append(f'<rect class="{word}" x="{x:.1f}" y="{y}" width="{width:.1f}" '
                       f'height="18"><title>{word}: {parts[word]} {_text(coin)}</title></rect>')
            x += width
        out.append(f'<text x="{x + 6:.1f}" y="{y + 14}">{sum(parts.values())} {_text(coin)}</text>')
    return "".join(out) + "</svg>"


def _table(names: "typing.Sequence[str]", rows: "typing.Iterable[typing.Sequence[object]]",
           numbers: "typing.Container[str]" = ()) -> str:
    kind = ['class="n"' if name in numbers else "" for name in names]
    out = ["<div class=scroll><table><tr>",
           *(f"<th {k}>{_text(name)}</th>" for k, name in zip(kind, names)), "</tr>"]
    for row in rows:
        out += ["<tr>", *(f"<td {k}>{_text(cell)}</td>" for k, cell in zip(kind, row)), "</tr>\n"]
    return "".join(out) + "</table></div>"


def page(report: Report) -> str:
    """The whole page: the answer, the picture, the findings, what was learned."""
    summary = report.summary
    rows = [(provider, coin, {word: decimal.Decimal(spans[word][1]) for word in CONFIDENCES})
            for coin, one in summary["money"].items()
            for provider, spans in one["wasted_by_provider"].items()]
    rows.sort(key=lambda row: (row[1], -sum(row[2].values())))
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><title>What failures cost</title>",
        f"<style>{_STYLE}</style><h1>What failures cost</h1>",
        f"<p class=note>{_text(summary['ledger']['calls'])} calls, "
        f"{_text(summary['ledger']['attempts'])} attempts; as of {_text(summary['as_of'])}</p>",
        *(f"<p class=big>{_text(one)}</p>" for one in headlines(summary))]
    if rows:
        parts += ["<p class=legend>wasted at most:", *(
            f"<i class={word}></i>{word}" for word in CONFIDENCES), "</p>", _bars(rows)]
    parts += ["<ul>", *(f"<li>{_text(one)}</li>" for one in sentences(summary)), "</ul>",
              "<h2>Paid for nothing</h2>", _findings(report),
              "<h2>Not explained</h2>", _left(summary),
              "<h2>How often an attempt without an answer was billed</h2>", _learned(summary)]
    return "\n".join(parts) + "\n</html>\n"


def _findings(report: Report) -> str:
    names = ("call", "at", "verdict", "confidence", "provider", "model", "attempts",
             "wasted", "currency", "evidence")
    return _table(names, (
        (one["call"], one["at"], one["verdict"], one["confidence"], one["provider"],
         one["model"], ", ".join(f"{n} {kind}" for n, kind in zip(one["attempts"], one["kinds"])),
         interval(one["wasted_lo"], one["wasted_hi"]), one["currency"], one["evidence"])
        for one in itertools.islice(report.findings(), _ROWS)), ("wasted",))


def _left(summary: Json) -> str:
    if not summary["unexplained"]:
        return "<p>Every cell of the exports adds up.</p>"
    names = ("provider", "model", "from", "to", "requests", "input_tokens",
             "output_tokens", "why")
    return _table(names, ([one[name] for name in names]
                          for one in summary["unexplained"][:_ROWS]),
                  ("requests", "input_tokens", "output_tokens"))


def _learned(summary: Json) -> str:
    names = ("provider", "model", "route", "kind", "attempts", "billed",
             "perhaps_billed", "not_billed", "not_told")
    return _table(names, ([one[name] for name in names] for one in summary["learned"]),
                  names[4:])
