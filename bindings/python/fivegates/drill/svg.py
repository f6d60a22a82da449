"""Small charts as SVG text: lines over time, and bars."""

from __future__ import annotations

import html
import math
import typing

__all__ = ["Line", "bars", "lines"]

Point = typing.Tuple[float, "float | None"]

_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 8, 24, 22


class Line(typing.NamedTuple):
    """One line: its class in the style sheet, a name, and points; None is a gap."""

    style: str
    name: str
    points: "typing.Sequence[Point]"


def _ticks(high: float, wanted: int = 4) -> "list[float]":
    """Round numbers from 0 to high."""
    step = 10.0 ** math.floor(math.log10(high / wanted))
    for times in (1, 2, 5, 10):
        if high / (step * times) <= wanted:
            step *= times
            break
    return [step * i for i in range(int(high / step + 1e-9) + 1)]


def _number(value: float) -> str:
    return f"{value:g}"


def _frame(width: int, height: int, title: str, label: str) -> "list[str]":
    return [f'<svg viewBox="0 0 {width} {height}" role="img" '
            f'aria-label="{html.escape(label, quote=True)}">',
            f'<text class="title" x="0" y="13">{html.escape(title)}</text>']


def _grid(width: int, height: int, high: float) -> "list[str]":
    out = []
    for tick in _ticks(high):
        y = height - _BOTTOM - tick / high * (height - _TOP - _BOTTOM)
        out.append(f'<line class="grid" x1="{_LEFT}" x2="{width - _RIGHT}" '
                   f'y1="{y:.1f}" y2="{y:.1f}"/>'
                   f'<text class="tick" text-anchor="end" x="{_LEFT - 5}" '
                   f'y="{y + 3.5:.1f}">{_number(tick)}</text>')
    return out


def lines(title: str, all_lines: "typing.Sequence[Line]", high: float,
          x_high: float, x_ticks: "typing.Sequence[tuple[float, str]]",
          shade: "tuple[float, float] | None" = None,
          width: int = 380, height: int = 190) -> str:
    """Lines from 0 to x_high; what is over `high` is cut at the top."""
    out = _frame(width, height, title, title + ": " + ", ".join(
        line.name for line in all_lines))

    def x_of(x: float) -> float:
        return _LEFT + x / x_high * (width - _LEFT - _RIGHT)

    def y_of(y: float) -> float:
        return height - _BOTTOM - min(y, high) / high * (height - _TOP - _BOTTOM)

    if shade is not None:
        out.append(f'<rect class="fault" x="{x_of(shade[0]):.1f}" y="{_TOP}" '
                   f'width="{x_of(shade[1]) - x_of(shade[0]):.1f}" '
                   f'height="{height - _TOP - _BOTTOM}"/>')
    out += _grid(width, height, high)
    for x, text in x_ticks:
        anchor = "end" if x >= x_high else "middle"
        out.append(f'<text class="tick" text-anchor="{anchor}" x="{x_of(x):.1f}" '
                   f'y="{height - 7}">{html.escape(text)}</text>')
    for line in all_lines:
        path, pen = [], "M"
        for x, y in line.points:
            if y is None:
                pen = "M"
                continue
            path.append(f"{pen}{x_of(x):.1f} {y_of(y):.1f}")
            pen = "L"
        out.append(f'<path class="line {line.style}" d="{"".join(path)}">'
                   f"<title>{html.escape(line.name)}</title></path>")
    return "".join([*out, "</svg>"])


def bars(title: str, groups: "typing.Sequence[tuple[str, typing.Sequence[tuple[str, float]]]]",
         high: float, unit: str, width: int = 780, height: int = 220) -> str:
    """Groups of bars; each bar is a style (and name) and a value."""
    out = _frame(width, height, title, title)
    out += _grid(width, height, high)
    each = (width - _LEFT - _RIGHT) / max(len(groups), 1)
    for n, (group, values) in enumerate(groups):
        left = _LEFT + n * each
        thick = each * 0.8 / max(len(values), 1)
        out.append(f'<text class="tick" text-anchor="middle" '
                   f'x="{left + each / 2:.1f}" y="{height - 7}">'
                   f"{html.escape(group)}</text>")
        for i, (style, value) in enumerate(values):
            tall = min(value, high) / high * (height - _TOP - _BOTTOM)
            x = left + each * 0.1 + i * thick
            out.append(f'<rect class="bar {style}" x="{x:.1f}" '
                       f'y="{height - _BOTTOM - tall:.1f}" width="{thick - 1:.1f}" '
                       f'height="{max(tall, 0.8):.1f}">'
                       f"<title>{html.escape(style)}: {value:.2f} {unit}</title></rect>")
    return "".join([*out, "</svg>"])
