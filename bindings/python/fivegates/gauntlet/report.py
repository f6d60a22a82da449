"""The report: one HTML file that needs nothing else, with a picture of every
run."""

from __future__ import annotations

import html
import shlex
import typing

from fivegates.gauntlet.play import Played, Result
from fivegates.gauntlet.tables import summary
from fivegates.provider.journal import Record

__all__ = ["report_html"]

_WIDTH, _LEFT, _LANE, _FOOT = 560, 8, 11, 18
_LANES = 24  # requests drawn; the others are counted
_SHORT_S = 0.3  # the least that a picture spans

_STYLE = """
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 1180px; padding: 0 1rem; color: #1c2530; background: #fff; }
h1 { font-size: 1.6rem; margin-bottom: .2rem; } h2 { font-size: 1.1rem; margin: 0; } p { margin: .2rem 0 .6rem; }
code { font-size: .9em; background: #f2f4f6; padding: .1rem .3rem; border-radius: 3px; overflow-wrap: anywhere; } .note { color: #55606d; font-size: .9rem; }
.verdict { font-size: 1.15rem; font-weight: 600; } .passed { color: #12733c; } .failed { color: #b3261e; }
.key span { margin-right: 1.1rem; white-space: nowrap; } .key i { display: inline-block; width: 1.1rem; height: .55rem; margin-right: .35rem; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-size: 13px; font-variant-numeric: tabular-nums; margin: .8rem 0 1.6rem; }
th, td { padding: .16rem .6rem; text-align: right; white-space: nowrap; } th { border-bottom: 1px solid #99a2ac; } th:nth-child(-n+3), td:nth-child(-n+3) { text-align: left; }
tr.bad td { background: #fdf1f0; } td a { color: inherit; } td .bar { display: inline-block; height: .6rem; background: #2d6fb7; vertical-align: baseline; margin-left: .5rem; } td .bar.over { background: #b3261e; }
section { border-top: 1px solid #e3e7eb; padding: .9rem 0; display: grid; grid-template-columns: minmax(280px, 1fr) minmax(300px, 1.3fr); gap: 0 1.4rem; }
@media (max-width: 760px) { section { grid-template-columns: 1fr; } }
ul { margin: .2rem 0; padding-left: 1.1rem; } li.bad { color: #b3261e; } pre { font-size: 12px; background: #f6f7f9; padding: .5rem; overflow: auto; max-height: 15rem; white-space: pre-wrap; overflow-wrap: anywhere; }
svg { width: 100%; height: auto; display: block; } text { font: 10px system-ui, sans-serif; fill: #55606d; } .axis { stroke: #c5ccd3; }
.whole { fill: #12733c; background: #12733c; } .part { fill: #d98a00; background: #d98a00; } .refused { fill: #b3261e; background: #b3261e; } .none { fill: #8a94a0; background: #8a94a0; }
.zombie { fill: #d9c3e6; background: #d9c3e6; } .effect { fill: #1c2530; } i.effect { background: #1c2530; width: .55rem; border-radius: 50%; }
"""


def _kind(record: Record) -> str:
    """What a request came to, as a class of the style sheet."""
    if record.whole:
        return "whole"
    if record.status is not None and record.status >= 400:
        return "refused"
    return "part" if record.sent_tokens or record.cut else "none"


def _told(record: Record, start: float) -> str:
    """A request in a line, for the pointer."""
    parts = [f"request {record.number} at {record.at - start:.2f} s",
             f"status {record.status}" if record.status else "no head",
             f"{record.billed} tokens billed", f"{record.sent_tokens} sent"]
    if record.ran_on_s > 0.05:
        parts.append(f"went on {record.ran_on_s:.1f} s for nobody")
    return ", ".join(parts)


def _picture(one: Played) -> str:
    """Each request a bar from its arrival to its end, over time."""
    records = sorted(one.records, key=lambda record: record.at)
    if not records:
        return "<p class='note'>No request arrived.</p>"
    start = records[0].at
    ends = [record.ended_at or record.at for record in records]
    span = max(_SHORT_S, max(ends) - start)
    drawn = records[:_LANES]
    height = len(drawn) * _LANE + _FOOT

    def x_of(at: float) -> float:
        return _LEFT + (at - start) / span * (_WIDTH - 2 * _LEFT)

    def bar(style: str, left: float, right: float, y: int, title: str) -> str:
        wide = max(2.0, x_of(right) - x_of(left))
        return (f'<rect class="{style}" x="{x_of(left):.1f}" y="{y}" '
                f'width="{wide:.1f}" height="{_LANE - 3}">'
                f"<title>{html.escape(title)}</title></rect>")

    out = [f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="'
           f'{len(records)} requests over {span:.1f} seconds">']
    for lane, record in enumerate(drawn):
        end = record.ended_at or record.at
        until = min(end, record.left_at) if record.left_at else end
        told = _told(record, start)
        out.append(bar(_kind(record), record.at, until, lane * _LANE, told))
        if end - until > 0.01:
            out.append(bar("zombie", until, end, lane * _LANE, told))
    bottom = height - _FOOT + 3
    for effect in one.effects:
        if start <= effect.at <= start + span:
            out.append(f'<circle class="effect" cx="{x_of(effect.at):.1f}" '
                       f'cy="{bottom}" r="3"><title>'
                       f"{html.escape(effect.tool)} acts</title></circle>")
    out.append(f'<line class="axis" x1="{_LEFT}" x2="{_WIDTH - _LEFT}" '
               f'y1="{bottom}" y2="{bottom}"/>')
    digits = 1 if span > 2 else 2
    for part, anchor in ((0.0, "start"), (0.5, "middle"), (1.0, "end")):
        out.append(f'<text text-anchor="{anchor}" x="{x_of(start + part * span):.1f}"'
                   f' y="{height - 4}">{part * span:.{digits}f} s</text>')
    more = len(records) - len(drawn)
    return "".join([*out, "</svg>"]) + (
        f"<p class='note'>and {more} requests more</p>" if more else "")


def _row(one: Played, widest: float) -> str:
    m = one.measures
    limit = one.trial.limits.requests_per_user_request
    over = " over" if m.fan_out > limit else ""
    cells = [
        f'<a href="#{html.escape(one.trial.name)}">{html.escape(one.trial.name)}</a>',
        '<b class="passed">passed</b>' if one.passed else
        '<b class="failed">failed</b>',
        html.escape(one.verdict.result),
        f'{m.fan_out:.1f}<span class="bar{over}" style="width:'
        f'{100 * m.fan_out / widest:.0f}px"></span>',
        " x ".join(str(layer.tries) for layer in m.layers), str(m.billed),
        str(m.delivered), str(m.doubled or ""), f"{one.outcome.seconds:.1f}"]
    return (f'<tr class="{"" if one.passed else "bad"}">'
            + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")


def _table(result: Result) -> str:
    head = "".join(f"<th>{name}</th>" for name in (
        "fault", "", "ended with", "requests for one of a user",
        "layers (tries)", "tokens billed", "delivered", "doubled effects",
        "seconds"))
    widest = max([1.0, *(one.measures.fan_out for one in result.played)])
    return (f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>'
            + "".join(_row(one, widest) for one in result.played)
            + "</tbody></table></div>")


def _section(one: Played) -> str:
    points = [f'<li class="bad">{html.escape(finding.text)}</li>'
              for finding in one.verdict.findings]
    points += [f"<li>{html.escape(note)}</li>" for note in one.verdict.notes]
    said = one.outcome.said()
    name = html.escape(one.trial.name)
    word = ("passed", "passed") if one.passed else ("failed", "failed")
    return (f'<section id="{name}"><div><h2>{name} <span class="{word[0]}">'
            f"{word[1]}</span></h2><p class='note'>"
            f"{html.escape(one.trial.why)}</p><ul>{''.join(points)}</ul>"
            + (f"<details><summary class='note'>the program's last words"
               f"</summary><pre>{html.escape(said)}</pre></details>" if said
               else "") + f"</div><div>{_picture(one)}</div></section>")


def report_html(result: Result) -> str:
    """The report of a result."""
    failed = [one for one in result.played if not one.passed]
    command = html.escape(shlex.join(result.command))
    key = (("whole", "answered"), ("part", "a part, then cut"),
           ("refused", "an error answer"), ("none", "no answer"),
           ("zombie", "work after the client had left"),
           ("effect", "a tool acts"))
    word: "typing.Tuple[str, str]" = (
        ("passed", "It passes.") if result.passed else
        ("failed", f"It fails under {len(failed)} of {len(result.played)} "
                   "faults."))
    return "".join([
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>fivegates gauntlet</title><style>{_STYLE}</style></head><body>"
        f"<h1>The gauntlet</h1><p><code>{command}</code></p>"
        f'<p class="verdict {word[0]}">{word[1]}</p>'
        f'<p class="note">{html.escape(summary(result))}</p>',
        _table(result),
        '<p class="key">' + "".join(
            f'<span><i class="{style}"></i>{text}</span>'
            for style, text in key) + "</p>",
        *map(_section, [*failed, *(one for one in result.played if one.passed)]),
        "</body></html>\n"])
