"""The command `fivegates replay`."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import typing

import typer
from rich.console import Console
from rich.progress import Progress

from fivegates.console import print_wide
from fivegates.replay.cards import Card, load, what_if
from fivegates.replay.check import check
from fivegates.replay.forecast import forecast
from fivegates.replay.lines import Json, ReplayError
from fivegates.replay.report import check_report, forecast_report
from fivegates.replay.survey import Survey, survey
from fivegates.replay.table import terminal

__all__ = ["replay", "run"]

Many = typing.List[str]
Show = typing.Callable[[str, int, int], object]


@contextlib.contextmanager
def _progress() -> "typing.Iterator[Show]":
    """Bars on the terminal; nothing where there is none."""
    with Progress(console=Console(stderr=True), transient=True,
                  disable=not sys.stderr.isatty()) as bars:
        tasks: "dict[str, typing.Any]" = {}

        def show(name: str, more: int, total: int) -> None:
            if name not in tasks:
                tasks[name] = bars.add_task(name, total=total)
            bars.advance(tasks[name], more)

        yield show


def _old(cards: "list[Card]", seen: Survey) -> "Card | None":
    """The ledger's own card among those given; the one of most calls."""
    ours = [card for card in cards if card.fingerprint in seen.per_policy]
    return max(ours, key=lambda card: seen.per_policy[card.fingerprint],
               default=None)


def run(ledgers: "typing.Sequence[str]", card: Card,
        old: "typing.Sequence[Card]" = (), show: "Show | None" = None) -> Json:
    """Replays ledgers by a card: a check where they were decided by it, a
    forecast where not. Answers the report. show(name, more, total) hears of
    progress. Raises ReplayError.
    """
    def bar(name: str, total: int) -> "typing.Callable[[int], object]":
        return lambda more: show(name, more, total) if show is not None else None

    size = sum(os.path.getsize(path) for path in ledgers if os.path.exists(path))
    seen = survey(ledgers, bar("reading", size))
    for one in old:
        if one.fingerprint not in seen.policies:
            name, place = next(iter(seen.policies.items()))
            raise ReplayError(f"{place}: decided by {name}, and {one.name} is "
                              f"{one.fingerprint}; give the card as it was then")
    if card.fingerprint in seen.policies:
        policies = {one.fingerprint: one.policy for one in (*old, card)}
        return check_report(seen, card, check(seen, policies,
                                              bar("checking", size)))
    count = len(seen.whole)
    found = forecast(seen, card.policy, bar("forecasting", count))
    before = _old(list(old), seen)
    again = None if before is None else forecast(
        seen, before.policy, bar("the same card, to compare", count))
    return forecast_report(seen, card, found, before, again)


def replay(
    ledgers: typing.Annotated[Many, typer.Argument(
        metavar="LEDGER...", help="Ledgers; rotated ones in order.")],
    card: typing.Annotated[str, typer.Option(
        help="The card to decide by: the ledger's own, as a check, or another one, "
        "as a forecast. JSON or YAML.")],
    what_if_: typing.Annotated[typing.Optional[Many], typer.Option(
        "--what-if", metavar="KEY=VALUE", help="Change one key of the card, such as "
        "retry_bucket.cap=5; again for more.")] = None,
    old: typing.Annotated[typing.Optional[Many], typer.Option(
        help="A card the ledger was decided by, to say what differs and how good the "
        "forecast is; again where it was several.")] = None,
    as_json: typing.Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Decide every call of a ledger again, by its own card or another one.

    Exit code 1: by its own card not every line came out as it was written.
    """
    base = load(card)
    cards = [load(path) for path in old or ()]
    new = what_if(base, what_if_) if what_if_ else base
    with _progress() as show:
        if what_if_:
            cards = cards or [base]
        report = run(ledgers, new, cards, show)
    if as_json:
        typer.echo(json.dumps(report, indent=2, ensure_ascii=False))
    else:
        print_wide(terminal(report))
    if report["kind"] == "check" and not report["check"]["exact"]:
        raise typer.Exit(1)
