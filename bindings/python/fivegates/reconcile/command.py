"""The command `fivegates reconcile`."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import sys
import typing

import typer
from rich.console import Console
from rich.progress import Progress

import fivegates
from fivegates.console import print_wide
from fivegates.errors import PolicyError
from fivegates.reconcile.page import page
from fivegates.reconcile.report import Report
from fivegates.reconcile.rows import ReconcileError, instant
from fivegates.reconcile.run import reconcile as run
from fivegates.reconcile.table import csv_lines, terminal
from fivegates.yaml import to_json

__all__ = ["reconcile"]

Many = typing.List[str]


@contextlib.contextmanager
def _progress(ledgers: "list[str]") -> "typing.Iterator[typing.Callable[[str, int], object]]":
    """Bytes of the ledgers as a bar, the rest by name; nothing without a terminal."""
    size = sum(os.path.getsize(path) for path in ledgers if os.path.exists(path))
    with Progress(console=Console(stderr=True), transient=True,
                  disable=not sys.stderr.isatty()) as bars:
        bar = bars.add_task("ledgers", total=size)

        def show(what: str, count: int) -> None:
            if what == "ledger":
                bars.advance(bar, count)
            else:
                bars.update(bar, description=what, total=None)

        yield show


def _card(path: str) -> "tuple[str, dict[str, typing.Any]]":
    try:
        text = pathlib.Path(path).read_text(encoding="utf-8")
        policy = fivegates.Policy.load(path)
    except (OSError, UnicodeDecodeError) as exc:
        raise ReconcileError(f"{path}: {getattr(exc, 'strerror', None) or exc}; "
                             "name a card that can be read") from None
    except PolicyError as exc:
        exc.file = path
        raise
    if path.lower().endswith((".yaml", ".yml")):
        text = to_json(text)[0]
    return policy.fingerprint, json.loads(text)


def _write(path: str, parts: "typing.Iterable[str]") -> None:
    try:
        with open(path, "w", encoding="utf-8", newline="") as file:
            file.writelines(parts)
    except OSError as exc:
        raise ReconcileError(f"{path}: {exc.strerror or exc}; name a file that "
                             "can be written") from None


def _out(report: Report, as_json: bool, csv: str, html: str, learned: str) -> None:
    if csv:
        _write(csv, csv_lines(report))
    if html:
        _write(html, [page(report)])
    if learned:
        _write(learned, [json.dumps(report.summary["learned"], indent=2,
                                    ensure_ascii=False) + "\n"])
    if as_json:
        report.write_json(sys.stdout.write)
    else:
        print_wide(terminal(report))


def reconcile(
    ledgers: typing.Annotated[Many, typer.Argument(
        metavar="LEDGER...", help="Ledgers; rotated ones in order.")],
    bill: typing.Annotated[Many, typer.Option(
        "--bill", metavar="EXPORT", help="An export of a provider, cloud or gateway; "
        "give it for each.")],
    as_of: typing.Annotated[str, typer.Option(
        metavar="TIME", help="When the exports were made, ISO 8601; what is younger than "
        "an export's lag stays open. Default: now.")] = "",
    key: typing.Annotated[typing.Optional[Many], typer.Option(
        help="Count only this API key's rows of the exports; may be given again.")] = None,
    price: typing.Annotated[typing.Optional[Many], typer.Option(
        metavar="PROVIDER/MODEL=IN,OUT", help="USD per million tokens, for exports "
        "without money (then also cache read and write).")] = None,
    card: typing.Annotated[str, typer.Option(
        help="The card the ledger was made with, for its prices.")] = "",
    as_json: typing.Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    csv: typing.Annotated[str, typer.Option(
        metavar="FILE", help="Write the findings as CSV.")] = "",
    html: typing.Annotated[str, typer.Option(
        metavar="FILE", help="Write the report as a page.")] = "",
    learned: typing.Annotated[str, typer.Option(
        metavar="FILE", help="Write how often attempts without an answer were billed, "
        "by route, as JSON.")] = "",
) -> None:
    """Compare ledgers with bills: what failures cost, and how sure that is."""
    when = instant(as_of, "--as-of", "TIME", remedy="write it as "
                   "2026-12-01T08:00:00Z") if as_of else None
    with _progress(ledgers) as show:
        report = run(ledgers, bill, as_of_ms=when, keys=key or (), prices=price or (),
                     card=_card(card) if card else None, progress=show)
    with report:
        _out(report, as_json, csv, html, learned)
