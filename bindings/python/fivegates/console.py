"""What the commands print: tables keep their width, whatever the terminal's."""

from __future__ import annotations

from rich.console import Console, RenderableType
from rich.measure import Measurement

__all__ = ["print_wide"]

_WIDEST = 1000  # columns


def print_wide(*rows: RenderableType) -> None:
    """Prints to standard output, as wide as the widest of rows wants: ids and words
    stay whole where the terminal is narrower or there is none."""
    console = Console(highlight=False, soft_wrap=True)
    options = console.options.update(max_width=_WIDEST)
    wanted = max(Measurement.get(console, options, one).maximum for one in rows)
    console.width = max(console.width, min(wanted, _WIDEST))
    for one in rows:
        console.print(one)
