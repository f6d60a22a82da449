"""The commands `fivegates status` and `fivegates report`."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import sys
import typing

import typer
from rich.console import Console
from rich.progress import Progress
from rich.text import Text

from fivegates.console import print_wide
from fivegates.replay.cards import load
from fivegates.status.day import report as sum_up
from fivegates.status.live import StatusError, live
from fivegates.status.page import page, sentences
from fivegates.status.table import terminal

__all__ = ["report", "status"]

AsJson = typing.Annotated[bool, typer.Option("--json", help="Print JSON.")]


def status(
    region: typing.Annotated[str, typer.Argument(
        help="The region's path, as Engine(region=...) was given it.")],
    card: typing.Annotated[str, typer.Option(
        help="The card its programs use, JSON or YAML: a region holds no names.")],
    procs: typing.Annotated[typing.Optional[int], typer.Option(
        help="Processes the region was made for, where it was not 64.")] = None,
    prometheus: typing.Annotated[bool, typer.Option(
        "--prometheus", help="Print Prometheus text.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show a live region: routes, breakers, latches, budgets, limits, recoveries."""
    if as_json and prometheus:
        raise StatusError("--json and --prometheus are two outputs; give one")
    given = load(card)
    state = live(region, given.policy, given.card, procs)
    if as_json:
        typer.echo(json.dumps(state, indent=2, ensure_ascii=False))
    elif prometheus:
        try:
            from fivegates.status.metrics import text
        except ImportError:
            raise StatusError("--prometheus needs prometheus-client; pip install "
                              "'fivegates[prometheus]'") from None
        typer.echo(text(state), nl=False)
    else:
        print_wide(terminal(state))


@contextlib.contextmanager
def _progress(ledgers: "list[str]") -> "typing.Iterator[typing.Callable[[int], object]]":
    size = sum(os.path.getsize(path) for path in ledgers if os.path.exists(path))
    with Progress(console=Console(stderr=True), transient=True,
                  disable=not sys.stderr.isatty()) as bars:
        bar = bars.add_task("reading", total=size)
        yield lambda more: bars.advance(bar, more)


def _write(path: str, text: str) -> None:
    try:
        with open(path, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
    except OSError as exc:
        raise StatusError(f"{path}: {exc.strerror or exc}; name a file that can be "
                          "written") from None


def report(
    ledgers: typing.Annotated[typing.List[str], typer.Argument(
        metavar="LEDGER...", help="Ledgers; rotated ones in order.")],
    html: typing.Annotated[str, typer.Option(
        metavar="FILE", help="Write a page with pictures.")] = "",
    day: typing.Annotated[str, typer.Option(
        metavar="YYYY-MM-DD", help="Only calls that began on this day (UTC).")] = "",
    as_json: AsJson = False,
) -> None:
    """Sum a ledger up: how calls ended, what was wasted, what raised an alert."""
    try:
        when = datetime.date.fromisoformat(day) if day else None
    except ValueError:
        raise StatusError(f"--day {day}: not a day; write it as 2026-12-01") from None
    with _progress(ledgers) as show:
        summary = sum_up(ledgers, when, show).summary
    if html:
        _write(html, page(summary))
        typer.echo(f"written: {os.path.abspath(html)}", err=True)
    if as_json:
        typer.echo(json.dumps(summary, indent=2, ensure_ascii=False))
    else:
        print_wide(*map(Text, sentences(summary)))
