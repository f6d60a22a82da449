"""`fivegates contract show`: the eight checks of stand-ins, and what is missing."""

from __future__ import annotations

import decimal
import json
import sys
import typing

import typer
from rich.console import Console, Group, RenderableType
from rich.measure import Measurement
from rich.table import Column, Table
from rich.text import Text

from fivegates.contract.cards import CardFile, ContractError, Json
from fivegates.contract.dates import day_of, now_ms, rfc3339, unix_ms
from fivegates.contract.judge import SECTIONS, Finding, Judged, judged, near, stand_ins, the_pair

__all__ = ["details", "moment", "print_json", "print_wide", "remedies", "said", "show"]

_DAY_MS = 86_400_000
_STYLES = {"passed": "green", "failed": "red", "unknown": "yellow", "stale": "magenta"}


def moment(text: str) -> int:
    """The time of --now, milliseconds since 1970; without one the clock's."""
    found = unix_ms(text) if text else now_ms()
    if found is None:
        raise ContractError(f"--now {text}: not a date; write one such as "
                            "2027-02-01 or 2027-02-01T00:00:00Z")
    return found


def print_json(value: object) -> None:
    """A value as JSON, money as the card has it; in ASCII where nothing else can be
    written."""
    unicode = (getattr(sys.stdout, "encoding", None) or "utf-8").lower().startswith("utf")
    typer.echo(json.dumps(value, indent=2, ensure_ascii=not unicode, default=_number))


def _number(value: object) -> "int | float":
    if not isinstance(value, decimal.Decimal):
        raise TypeError(f"{value!r} is no JSON")
    return int(value) if value == value.to_integral_value() else float(value)


def print_wide(rows: RenderableType) -> None:
    """At its own width, so that a fingerprint can be copied from any terminal."""
    console = Console(highlight=False, soft_wrap=True)
    wanted = Measurement.get(console, console.options.update(max_width=1000), rows)
    console.width = max(console.width, min(wanted.maximum, 1000))
    console.print(rows)


def said(value: object) -> str:
    """A value of a card in one line."""
    return value if isinstance(value, str) else json.dumps(
        value, ensure_ascii=False, default=_number)


def _price(price: "Json | str | None") -> str:
    if not isinstance(price, dict):
        return str(price or "not stated")
    parts = ("input", "cached_input", "output")
    return ", ".join(f"{part} {price[part]}" for part in parts if part in price)


def _model(parts: Json) -> str:
    return " ".join(parts[key] for key in ("provider", "model", "version")
                    if key in parts)


def _away(ms: int) -> str:
    days = abs(ms) // _DAY_MS
    return f"{days} day{'' if days == 1 else 's'}"


def _evidence(one: Judged) -> str:
    evidence = (one.contract or {}).get("evidence")
    if not evidence:
        return "none"
    parts: "list[str]" = []
    if "passed" in evidence and "cases" in evidence:
        parts.append(f"{evidence['passed']} of {evidence['cases']} cases passed")
    for key, name in (("score_ppm", "score"), ("primary_score_ppm", "primary")):
        if key in evidence:
            parts.append(f"{name} {evidence[key] / 10_000:g} %")
    measured, expires = one.date("measured_at"), one.date("expires_at")
    if measured is not None:
        age = one.now - measured
        parts.append(f"measured {day_of(measured)}, " + (
            f"{_away(age)} ago" if age >= 0 else "which is still to come"))
    if expires is not None:
        left = expires - one.now
        parts.append(f"expire{'s' if left > 0 else 'd'} {day_of(expires)}, " + (
            f"in {_away(left)}" if left > 0 else f"{_away(left)} ago"))
    return "; ".join(parts)


def verdict(one: Judged) -> Text:
    """Approved, or the engine's reason why not."""
    return (Text("approved", style="bold green") if one.approved
            else Text(f"not approved: {one.reason}", style="bold red"))


def details(one: Judged, todo: "typing.Sequence[str]") -> RenderableType:
    """A stand-in's checks, evidence, price and fingerprint for people, and what
    is to be done."""
    checks = Table(box=None, pad_edge=False, show_header=False)
    for check in one.checks:
        state = Text(check.state, style=_STYLES[check.state])
        if not check.findings:
            checks.add_row(check.section, state, (
                "inherited from the primary" if check.inherited else
                f"{check.required} required" if check.required else "nothing required"))
        for i, found in enumerate(check.findings):
            checks.add_row("" if i else check.section,
                           Text(found.state, style=_STYLES[found.state]),
                           Text(_what(found)))
    contract = one.contract or {}
    checks.add_section()
    checks.add_row("evidence", "", Text(_evidence(one)))
    price = _price(one.price)
    if "price" in contract:
        price += f"; approved {_price(contract['price'])}"
    checks.add_row("price", "", Text(price))
    checks.add_row("fingerprint", "", Text(one.fingerprint))
    if contract.get("approved_by"):
        checks.add_row("approved by", "", Text(contract["approved_by"]))
    head = Text(f"{one.workflow} / {one.route}: ").append_text(verdict(one))
    lines = [Text("\nto do"), *(Text(f"  {line}") for line in todo)] if todo else []
    return Group(head, Text(), checks, *lines)


def remedies(one: Judged) -> "list[str]":
    """What would mend what is missing, a line each; the same remedy once."""
    keys: "dict[str, list[str]]" = {}
    for found in one.findings:
        keys.setdefault(found.remedy, []).append(found.key)
    out = [f"{', '.join(names)}: {remedy}" for remedy, names in keys.items()]
    if one.contract is None:
        out.insert(0, f"no contract: {one.command('new')}")
    elif not out and not one.approved:
        out.append(f"all eight hold: {one.command('approve', '--by WHO')}")
    return out


def _what(found: Finding) -> str:
    if found.key == "price":
        was, now = (typing.cast("Json | str | None", one)
                    for one in (found.required, found.provided))
        return f"price: approved {_price(was)}, now {_price(now)}"
    if found.key in ("evidence.route", "evidence.primary"):
        now, then = (_model(typing.cast(Json, one))
                     for one in (found.required, found.provided))
        return f"{found.key}: measured {then}, now {now}"
    has = "not stated" if found.provided is None else said(found.provided)
    if found.key == "fingerprint":
        return f"fingerprint: approved {has}"
    return f"{found.key}: {has}" if found.required is None else (
        f"{found.key}: {has}, required {said(found.required)}")


def _table(rows: "list[Judged]") -> Table:
    table = Table("workflow", "stand-in", "verdict", *SECTIONS, "expires",
                  Column("missing", no_wrap=True), box=None, pad_edge=False)
    for one in rows:
        expires = one.date("expires_at")
        table.add_row(
            Text(one.workflow), Text(one.route), verdict(one),
            *(Text(check.state, style=_STYLES[check.state]) for check in one.checks),
            "" if expires is None else day_of(expires),
            Text(", ".join(found.key for found in one.findings)))
    return table


def show(
    card: typing.Annotated[str, typer.Argument(help="The card, JSON or YAML.")],
    workflow: typing.Annotated[str, typer.Option(
        help="Only this workflow's stand-ins.")] = "",
    route: typing.Annotated[str, typer.Option(help="Only this stand-in.")] = "",
    now: typing.Annotated[str, typer.Option(
        metavar="DATE", help="As if it were this time, RFC 3339 or a day.")] = "",
    as_json: typing.Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show the eight checks of every stand-in, and what is missing.

    Exit code 1: one of those asked for is not approved.
    """
    file, at = CardFile.open(card), moment(now)
    chosen = _chosen(file, workflow, route)
    rows = [judged(file, *pair, at) for pair in chosen]
    if as_json:
        print_json({"card": card, "now": rfc3339(at),
                    "stand_ins": [one.to_dict() for one in rows]})
    elif not rows:
        typer.echo(f"{card}: no workflow has a stand-in")
    else:
        print_wide(details(rows[0], remedies(rows[0])) if len(rows) == 1
                   else _table(rows))
    if not all(one.approved for one in rows):
        raise typer.Exit(1)


def _chosen(file: CardFile, workflow: str, route: str) -> "list[tuple[str, str]]":
    if workflow and route:
        the_pair(file, workflow, route)
    if workflow and workflow not in file.policy.workflows():
        raise ContractError(f"{file.path}: no workflow is called {workflow}; "
                            + near(workflow, file.policy.workflows()))
    pairs = stand_ins(file.data)
    if route and not any(route == one for _, one in pairs):
        raise ContractError(f"{file.path}: no workflow has a stand-in {route}; "
                            + near(route, sorted({one for _, one in pairs})))
    return [(of, name) for of, name in pairs
            if workflow in ("", of) and route in ("", name)]
