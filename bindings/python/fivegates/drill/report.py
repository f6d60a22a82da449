"""The report: one HTML file that needs nothing else."""

from __future__ import annotations

import html
import typing

from fivegates.drill.runs import BUCKET, Results, Row
from fivegates.drill.svg import Line, bars, lines
from fivegates.drill.table import COLUMNS, cell, summary

__all__ = ["SPARE", "picture_svg", "report_html"]

# Spare capacity of the backups, as a share of A's load: the axis of the last pictures.
SPARE = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25)

_SMOOTH = 3  # buckets of 5 s that are seen as one point

_WORDS = {
    "brownout": "The primary is three times slower.",
    "blackout": "The primary answers 503 in 40 ms.",
    "ratelimit": "The primary takes two requests a second and answers 429 to the rest.",
    "trickle": "The primary's first token is in time; the rest comes 70 times slower.",
    "brownout_layered": "As brownout; an SDK under the naive client tries twice more by itself.",
    "brownout_cancel": "As brownout, at a provider that stops when the client hangs up.",
}

_STYLE = """
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 1180px; padding: 0 1rem; color: #1c2530; background: #fff; }
h1 { font-size: 1.6rem; margin-bottom: .2rem; } h2 { font-size: 1.15rem; margin: 2.2rem 0 .2rem; }
p { margin: .3rem 0 .8rem; max-width: 52rem; } .note { color: #55606d; font-size: .9rem; }
.row { display: grid; grid-template-columns: repeat(auto-fit, minmax(265px, 1fr)); gap: .8rem; }
svg { width: 100%; height: auto; display: block; } text { font: 11px system-ui, sans-serif; fill: #55606d; }
text.title { font-size: 12px; font-weight: 600; fill: #1c2530; } .grid { stroke: #e3e7eb; } .fault { fill: #fdf0e2; }
.line { fill: none; stroke-width: 1.6; stroke-linejoin: round; }
.naive { stroke: #c2382c; } .backoff { stroke: #d98a00; } .disciplined { stroke: #2d6fb7; } .plain { stroke: #8a4fb0; }
.fivegates { stroke: #12733c; stroke-width: 2.6; } .oracle { stroke: #77828e; stroke-dasharray: 4 3; } .bound { stroke: #1c2530; stroke-dasharray: 1 3; }
.bar { stroke: none; } .bar.naive, i.naive { fill: #c2382c; background: #c2382c; } .bar.backoff, i.backoff { fill: #d98a00; background: #d98a00; }
.bar.disciplined, i.disciplined { fill: #2d6fb7; background: #2d6fb7; } .bar.plain, i.plain { fill: #8a4fb0; background: #8a4fb0; }
.bar.fivegates, i.fivegates { fill: #12733c; background: #12733c; } .bar.oracle, i.oracle { fill: #77828e; background: #77828e; } i.bound { background: #1c2530; }
.legend { position: sticky; top: 0; background: #fffffff2; padding: .5rem 0; border-bottom: 1px solid #e3e7eb; }
.legend span { margin-right: 1.2rem; white-space: nowrap; } .legend i { display: inline-block; width: 1.1rem; height: .28rem; margin-right: .4rem; vertical-align: middle; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-size: 12.5px; font-variant-numeric: tabular-nums; }
th, td { padding: .18rem .36rem; text-align: right; white-space: nowrap; } th { border-bottom: 1px solid #99a2ac; font-weight: 600; }
td:nth-child(-n+2), th:nth-child(-n+2) { text-align: left; } tr.fivegates td { font-weight: 600; background: #eef7f1; } tr.first td { border-top: 1px solid #e3e7eb; }
"""


def _series(row: Row, value: "typing.Callable[[dict[str, float | None]], float | None]",
            seconds: int) -> "list[tuple[float, float | None]]":
    """A value of every few buckets, at their middle; times take the largest."""
    out: "list[tuple[float, float | None]]" = []
    buckets = row["buckets"]
    for at in range(0, len(buckets), _SMOOTH):
        piece = [dict(zip(BUCKET, bucket)) for bucket in buckets[at:at + _SMOOTH]]
        merged: "dict[str, float | None]" = {}
        for name in BUCKET:
            there = [one[name] for one in piece if one[name] is not None]
            some = [float(x) for x in there if x is not None]
            if name in ("p50", "p95", "b_first_token_p95"):
                merged[name] = max(some) if some else None
            else:
                merged[name] = sum(some)
        out.append(((at + len(piece) / 2) * seconds, value(merged)))
    return out


def _share(part: "float | None", whole: "float | None") -> "float | None":
    return part / whole if whole and part is not None else None


def _percent(part: "float | None", whole: "float | None") -> "float | None":
    share = _share(part, whole)
    return None if share is None else share * 100


def _seconds(ms: "float | None") -> "float | None":
    return None if ms is None else ms / 1000


def _pictures(results: Results, rows: "list[Row]") -> str:
    """Load, answers, latency of A, and what B sees, over time."""
    seconds = results["bucket_s"]
    warm, fault = results["warm_s"], results["fault_s"]
    total = warm + fault + results["after_s"]
    ticks = [(float(t), f"{(t - warm) / 60:g} min") for t in (warm, warm + fault, total)]
    kinds: "list[tuple[str, float, typing.Callable[[dict[str, float | None]], float | None]]]" = [
        ("Requests sent for each request of a user", 4.2,
         lambda b: _share(b["attempts"], b["requests"])),
        ("Users of A answered within a minute, %", 105,
         lambda b: _percent(b["useful"], b["requests"])),
        ("A: 95 of 100 have their answer in, s", 45, lambda b: _seconds(b["p95"])),
        ("B: 95 of 100 see the first token in, s", 6,
         lambda b: _seconds(b["b_first_token_p95"])),
    ]
    return '<div class="row">' + "".join(
        lines(title, [Line(row["strategy"], row["strategy"], _series(row, value, seconds))
                      for row in rows],
              high, total, ticks, (warm, warm + fault))
        for title, high, value in kinds) + "</div>"


def _mean(row: Row, metric: str) -> "float | None":
    one = row["metrics"][metric]
    return None if one is None else one["mean"]


def _waste(results: Results, faults: "list[str]") -> str:
    groups = []
    highest = 1.0
    for fault in faults:
        values = [(row["strategy"], _mean(row, "extra") or 0.0)
                  for row in results["rows"] if row["fault"] == fault]
        highest = max(highest, *(value for _, value in values))
        groups.append((fault, values))
    return bars("Tokens made and thrown away, for 100 delivered", groups,
                highest * 1.05, "%")


_PICTURE = """
text { font: 11px system-ui, sans-serif; fill: #55606d; } text.title { font-size: 13px; font-weight: 600; fill: #1c2530; } .grid { stroke: #e3e7eb; }
.naive { fill: #c2382c; } .backoff { fill: #d98a00; } .disciplined { fill: #2d6fb7; } .fivegates { fill: #12733c; } .oracle { fill: #77828e; } .plain { fill: #8a4fb0; }
"""


def picture_svg(results: Results) -> str:
    """One picture of all faults: what is sent, and how many are answered while
    they wait; a file of its own."""
    faults = list(dict.fromkeys(row["fault"] for row in results["rows"]))
    strategies = list(dict.fromkeys(row["strategy"] for row in results["rows"]))

    def groups(metric: str) -> "list[tuple[str, list[tuple[str, float]]]]":
        return [(fault, [(row["strategy"], _mean(row, metric) or 0.0)
                         for row in results["rows"] if row["fault"] == fault])
                for fault in faults]

    width, height = 780, 200
    load = groups("load")
    highest = max([1.0, *(value for _, values in load for _, value in values)])
    key = "".join(f'<rect class="{name}" x="{8 + 110 * i}" y="8" width="12" height="12"/>'
                  f'<text x="{25 + 110 * i}" y="18">{name}</text>'
                  for i, name in enumerate(strategies))
    panels = (bars("Requests sent for each request of a user, during the fault", load,
                   highest * 1.05, "", width, height),
              bars("Users answered within 20 s, %", groups("within"), 105.0, "%",
                   width, height))
    placed = "".join(
        panel.replace("<svg ", f'<svg x="8" y="{34 + i * (height + 14)}" width="{width}" '
                      f'height="{height}" ', 1) for i, panel in enumerate(panels))
    total = 34 + 2 * (height + 14)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width + 16} {total}" '
            f'width="{width + 16}" height="{total}"><style>{_PICTURE}</style>'
            f'<rect fill="#fff" width="100%" height="100%"/>{key}{placed}</svg>\n')


def _table(results: Results) -> str:
    head = "".join(f"<th>{html.escape(heading)}</th>" for heading in
                   ("fault", "strategy", *(heading for _, heading, _ in COLUMNS)))
    body, before = [], ""
    for row in results["rows"]:
        first = row["fault"] != before
        before = row["fault"]
        cells = []
        for metric, _, decimals in COLUMNS:
            one = row["metrics"][metric]
            spread = "" if one is None else (
                f' title="± {one["sd"]:.{decimals}f}, {one["n"]} runs"')
            cells.append(f"<td{spread}>{cell(row, metric, decimals)}</td>")
        body.append(f'<tr class="{row["strategy"]}{" first" if first else ""}">'
                    f'<td>{html.escape(row["fault"]) if first else ""}</td>'
                    f'<td>{row["strategy"]}</td>{"".join(cells)}</tr>')
    return (f'<div class="scroll"><table><thead><tr>{head}</tr></thead>'
            f'<tbody>{"".join(body)}</tbody></table></div>')


def _sensitivity(runs: "typing.Mapping[float, Results]", faults: "list[str]",
                 metric: str, title: str, high: float, bound: bool) -> str:
    out = []
    x_high = max(runs)
    ticks = [(spare, f"{spare:g}") for spare in runs]
    for fault in faults:
        found: "dict[str, list[tuple[float, float | None]]]" = {}
        limit: "list[tuple[float, float | None]]" = []
        for spare, results in runs.items():
            of = [row for row in results["rows"] if row["fault"] == fault]
            for row in of:
                found.setdefault(row["strategy"], []).append((spare, _mean(row, metric)))
            limit.append((spare, _mean(of[0], "bound") if of else None))
        drawn = [Line(name, name, points) for name, points in found.items()]
        if bound:
            drawn.append(Line("bound", "bound at full quality", limit))
        out.append(lines(f"{fault}: {title}", drawn, high, x_high, ticks))
    return '<div class="row">' + "".join(out) + "</div>"


def report_html(results: Results, spare: "typing.Mapping[float, Results]") -> str:
    """The report. results must have been run with pictures; spare: the same
    runs by spare capacity."""
    faults = list(dict.fromkeys(row["fault"] for row in results["rows"]))
    strategies = list(dict.fromkeys(row["strategy"] for row in results["rows"]))
    legend = "".join(f'<span><i class="{name}"></i>{name}</span>'
                     for name in (*strategies, "bound"))
    # Layers above or below change no picture of the spare capacity.
    plain = [name for name in faults if name not in ("brownout_layered", "brownout_cancel")]
    parts = [
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>fivegates drill</title><style>{_STYLE}</style></head><body>"
        "<h1>Fault drills</h1>"
        "<p>Users A ask a primary provider, which has a fault for "
        f"{results['fault_s'] / 60:g} minutes (shaded). Users B ask the provider that stands in "
        "for it: what A's clients do must not hurt them. Each line is a client strategy; "
        "<b>oracle</b> knows every queue and is what is possible at best.</p>"
        f'<p class="note">{html.escape(summary(results))}; primary {results["primary_slots"]} '
        f'slots, backup {results["backup_slots"]}. Pictures are of the first seed.</p>'
        f'<div class="legend">{legend}</div>',
    ]
    for fault in faults:
        rows = [row for row in results["rows"] if row["fault"] == fault]
        parts.append(f"<h2>{html.escape(fault)}</h2><p>{html.escape(_WORDS.get(fault, ''))}</p>"
                     + _pictures(results, rows))
    parts += [
        "<h2>Waste</h2><p>Attempts the client left go on at most providers, and are billed.</p>",
        _waste(results, faults),
        "<h2>All of it</h2><p class='note'>During the fault, mean over the seeds; the pointer shows the "
        "spread. load: requests sent for each. full: by the model asked for or its equal. found, normal, "
        "back: seconds to the first sign, and after the fault to normal answers and to the primary. left: "
        "attempts the client gave up. m$: thousandths of a dollar an answer. B later: what A's clients add "
        "to B's first token.</p>",
        _table(results),
        "<h2>When the backup has less to spare</h2><p>Across: what the backup can serve beyond its own "
        "users' needs, as a share of A's load.</p>",
        _sensitivity(spare, plain, "useful", "answered, %", 105, True),
        _sensitivity(spare, plain, "b_during", "B answered, %", 105, False),
        "</body></html>\n",
    ]
    return "".join(parts)
