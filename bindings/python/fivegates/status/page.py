"""The report as one HTML file that needs nothing else: read in a minute."""

from __future__ import annotations

import decimal
import html
import typing

from fivegates.status.live import RECOVERY, Json

__all__ = ["page", "sentences"]

_ROWS = 50  # alerts on the page; all are in --json
_WORDS = {
    "primary_success": "primary", "retry_recovery": "after a retry",
    "fallback_recovery": "by a stand-in", "degraded": "degraded",
    "failed_closed": "failed closed", "queued": "queued",
    "cancelled": "caller left", "unknown": "not known"}
_COLORS = {
    "primary_success": "#12733c", "retry_recovery": "#6fae4f",
    "fallback_recovery": "#2d6fb7", "degraded": "#e0a33c",
    "failed_closed": "#c2382c", "queued": "#8a4fb0", "cancelled": "#99a2ac",
    "unknown": "#444b54"}
_STYLE = """
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 1120px; padding: 0 1rem; color: #1c2530; background: #fff; }
h1 { font-size: 1.6rem; margin-bottom: .2rem; } h2 { font-size: 1.15rem; margin: 2rem 0 .3rem; }
.big { font-size: 1.15rem; font-weight: 600; margin: .4rem 0; } .note { color: #55606d; font-size: .9rem; margin: .3rem 0; }
.bad { color: #a32a20; } svg { width: 100%; height: auto; display: block; } text { font: 12px system-ui, sans-serif; fill: #1c2530; }
.axis { stroke: #99a2ac; } .legend i { display: inline-block; width: .9rem; height: .7rem; margin: 0 .35rem 0 0; } .legend span { margin-right: 1rem; white-space: nowrap; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-size: 13px; font-variant-numeric: tabular-nums; }
th, td { padding: .2rem .7rem .2rem 0; text-align: left; vertical-align: top; } th { border-bottom: 1px solid #99a2ac; } td.n, th.n { text-align: right; white-space: nowrap; }
"""


def _text(value: object) -> str:
    return html.escape("" if value is None else str(value), quote=True)


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "no calls"


def _span(low: str, high: str) -> str:
    return low if low == high else f"{low} to {high}"


def sentences(summary: Json) -> "list[str]":
    """The answer in words, for the page and the terminal."""
    total, waste = summary["total"], summary["waste"]
    calls = total["calls"]
    less = total["results"]["degraded"]
    full = total["answered"] - less
    out = [f"{full} of {calls} calls were answered in full ({_percent(full, calls)}), "
           f"{less} by the ladder; by their primary without help "
           f"{total['results']['primary_success']} "
           f"({_percent(total['results']['primary_success'], calls)})"]
    held = ("" if total["held_usd"] == "0" else
            f", {total['held_usd']} of them held because no usage was told")
    out.append(f"{total['cost_usd']} USD were spent{held}; "
               f"{_span(waste['at_least_usd'], waste['at_most_usd'])} USD on "
               f"{waste['attempts']} attempts that brought no answer")
    if summary["alerts"]:
        kinds = dict.fromkeys(row["alert"].replace("_", " ") for row in summary["alerts"])
        out.append("alerts: " + ", ".join(kinds))
    else:
        out.append("no alert")
    return out


def _faults(summary: Json) -> "list[str]":
    broken, out = summary["broken"], []
    if summary["total"]["unfinished"]:
        out.append(f"{summary['total']['unfinished']} calls have no end in the "
                   "ledger: they run still, or their program was stopped")
    if broken["torn_lines"]:
        out.append(f"{broken['torn_lines']} torn lines: {', '.join(broken['torn_at'])}")
    if broken["lines_without_call"]:
        out.append(f"{broken['lines_without_call']} lines of calls that began "
                   "before the ledger are in no number; give its earlier files too")
    return out


def _legend(words: "typing.Iterable[str]") -> str:
    return "<p class=legend>" + "".join(
        f'<span><i style="background:{_COLORS[word]}"></i>{_WORDS[word]}</span>'
        for word in words) + "</p>"


def _kinds(results: "dict[str, int]") -> str:
    """One bar of all calls."""
    whole, x = sum(results.values()) or 1, 0.0
    out = ['<svg viewBox="0 0 960 34" role="img" aria-label="How calls ended">']
    for word, count in results.items():
        width = 960 * count / whole
        out.append(f'<rect x="{x:.2f}" y="0" width="{width:.2f}" height="34" fill="{_COLORS[word]}">'
                   f"<title>{_WORDS[word]}: {count}</title></rect>")
        if width > 60:
            out.append(f'<text x="{x + 6:.2f}" y="22" style="fill:#fff">{count}</text>')
        x += width
    return "".join(out) + "</svg>"


def _time(pieces: Json) -> str:
    """Columns of calls over time, the helped ones over those that needed none."""
    rows = pieces["pieces"]
    sums = [sum(row.get(word, 0) for word in _WORDS) for row in rows]
    high, step = max(sums, default=0) or 1, 940 / max(len(rows), 1)
    out = ['<svg viewBox="0 0 960 190" role="img" aria-label="How calls ended, over time">',
           '<line class="axis" x1="10" x2="950" y1="160" y2="160"/>']
    for i, row in enumerate(rows):
        y = 160.0
        for word in _WORDS:
            if word in row:
                height = 150 * row[word] / high
                y -= height
                out.append(f'<rect x="{10 + i * step:.2f}" y="{y:.2f}" width="{max(step - 1, .5):.2f}" '
                           f'height="{height:.2f}" fill="{_COLORS[word]}"><title>{_text(row["at"])} '
                           f"{_WORDS[word]}: {row[word]}</title></rect>")
    for i in (0, len(rows) - 1) if len(rows) > 1 else (0,):
        if rows and rows[i]["at"]:
            out.append(f'<text x="{950 if i else 10}" y="180" text-anchor="{"end" if i else "start"}">'
                       f'{_text(rows[i]["at"][5:16].replace("T", " "))}</text>')
    return "".join(out) + "</svg>"


def _money(routes: "dict[str, Json]") -> str:
    """A bar a route: spent on answers, wasted for certain, perhaps wasted."""
    parts = {name: [decimal.Decimal(one["answers_usd"]), decimal.Decimal(one["wasted_at_least_usd"]),
                    decimal.Decimal(one["wasted_at_most_usd"]) - decimal.Decimal(one["wasted_at_least_usd"])]
             for name, one in routes.items()}
    high = max((sum(one) for one in parts.values()), default=decimal.Decimal(0)) or decimal.Decimal(1)
    height = 26 * len(parts) + 6
    out = [f'<svg viewBox="0 0 960 {height}" role="img" aria-label="Money by route">']
    for i, (name, three) in enumerate(parts.items()):
        x, y = decimal.Decimal(170), 26 * i + 4
        out.append(f'<text x="162" y="{y + 14}" text-anchor="end">{_text(name)}</text>')
        for amount, color, what in zip(three, ("#12733c", "#c2382c", "#e9c98f"),
                                       ("answers", "wasted", "perhaps wasted")):
            width = amount * 600 / high
            out.append(f'<rect x="{x:.2f}" y="{y}" width="{width:.2f}" height="18" fill="{color}">'
                       f"<title>{what}: {amount} USD</title></rect>")
            x += width
        out.append(f'<text x="{x + 6:.2f}" y="{y + 14}">{sum(three, decimal.Decimal(0)).normalize():f}</text>')
    return "".join(out) + "</svg>"


def _table(names: "typing.Sequence[str]", rows: "typing.Iterable[typing.Sequence[object]]",
           words: int = 1) -> str:
    """The first `words` columns are text, the others numbers."""
    kind = ["" if i < words else ' class="n"' for i in range(len(names))]
    out = ["<div class=scroll><table><tr>",
           *(f"<th{k}>{_text(name)}</th>" for k, name in zip(kind, names)), "</tr>"]
    for row in rows:
        out += ["<tr>", *(f"<td{k}>{_text(cell)}</td>" for k, cell in zip(kind, row)), "</tr>\n"]
    return "".join(out) + "</table></div>"


def _flows(summary: Json) -> str:
    flows = dict(summary["workflows"])
    if len(flows) > 1:
        flows["all"] = summary["total"]
    return _table(
        ("workflow", "calls", *(_WORDS[word] for word in RECOVERY), "unfinished",
         "spent, USD", "of it held", "answer p50, ms", "p95, ms"),
        [(name, one["calls"], *(one["results"][word] for word in RECOVERY),
          one["unfinished"], one["cost_usd"], one["held_usd"],
          one["answer_p50_ms"], one["answer_p95_ms"]) for name, one in flows.items()])


def _routes(routes: "dict[str, Json]") -> str:
    return _table(
        ("route", "failed as", "attempts", "answered", "failed", "no end", "answers, USD",
         "wasted at least", "at most"),
        [(name, ", ".join(f"{kind} {count}" for kind, count in list(one["kinds"].items())[:4]),
          one["attempts"], one["answered"], one["failed"], one["lost"], one["answers_usd"],
          one["wasted_at_least_usd"], one["wasted_at_most_usd"])
         for name, one in routes.items()], words=2)


def _alerts(rows: "list[Json]") -> str:
    if not rows:
        return "<p>none</p>"
    more = f"<p class=note>and {len(rows) - _ROWS} more</p>" if len(rows) > _ROWS else ""
    return _table(("alert", "route", "workflow", "first", "last", "times"),
                  [(row["alert"].replace("_", " "), row["route"], row["workflow"],
                    row["first"], row["last"], row["times"]) for row in rows[:_ROWS]],
                  words=5) + more


def page(summary: Json) -> str:
    """The whole page: the answer, the pictures, the alerts, the tables."""
    first, *others = sentences(summary)
    results = {word: count for word, count in summary["total"]["results"].items() if count}
    span = f"{summary['from']} to {summary['to']}" if summary["from"] else ""
    width = summary["pieces"]["seconds"]
    return "".join([
        '<!doctype html><html lang="en"><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width"><title>What became of the calls</title>',
        f"<style>{_STYLE}</style><h1>What became of the calls</h1><p class=note>{_text(span)}</p>",
        f"<p class=big>{_text(first)}</p>",
        *(f"<p>{_text(line)}</p>" for line in others),
        *(f'<p class="note bad">{_text(line)}</p>' for line in _faults(summary)),
        "<h2>How they ended</h2>", _kinds(results), _legend(results),
        _time(summary["pieces"]),
        f"<p class=note>each column {width} s</p>" if width else "",
        "<h2>Money by route, USD</h2>", _money(summary["routes"]),
        '<p class=legend><span><i style="background:#12733c"></i>answers</span>'
        '<span><i style="background:#c2382c"></i>billed without an answer</span>'
        '<span><i style="background:#e9c98f"></i>held: the bill is not known</span></p>',
        "<h2>Alerts</h2>", _alerts(summary["alerts"]),
        "<h2>Workflows</h2>", _flows(summary), "<h2>Routes</h2>", _routes(summary["routes"]),
        "</html>\n"])
