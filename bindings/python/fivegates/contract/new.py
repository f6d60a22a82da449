"""`fivegates contract new`: the static part of a contract, drafted from data."""

from __future__ import annotations

import dataclasses
import typing

import typer
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fivegates.contract.cards import CardFile, ContractError
from fivegates.contract.draft import Question, Row, draft, questions, write
from fivegates.contract.judge import command, the_pair
from fivegates.contract.show import print_json, print_wide, said
from fivegates.contract.sources import Source, genai_prices, litellm

__all__ = ["new"]

_ALWAYS = ("safety", "data", "operations")


def _sources(card: CardFile, route: str, called: str, file: str,
             update: bool) -> "list[Source]":
    """The data that knows the model. ContractError where none does."""
    here = card.data["routes"][route]
    provider, model, version = (here["provider"], here["model"],
                                here.get("version") or "")
    if called:
        provider, _, model = called.partition("/")
        version = ""
        if not provider or not model:
            raise ContractError(f"--as {called}: write PROVIDER/MODEL, such as "
                                "openai/gpt-4o")
    asked = [genai_prices(provider, model, version, update),
             litellm(provider, model, version, file)]
    found = [one for one in asked if one is not None]
    if not found:
        raise ContractError(
            "no data: neither genai-prices nor litellm is installed; pip install "
            "'fivegates[contract]', name LiteLLM's table with --litellm FILE, or go "
            "without with --no-data")
    known = [one for one in found if one.model]
    if not known:
        name = f"{provider} {model}{' ' + version if version else ''}"
        where = f"--as {called}" if called else f"{card.path}: routes.{route}.model"
        raise ContractError(
            f"{where}: no data knows {name} ("
            + "; ".join(f"{one.made}: {one.near}" for one in found)
            + "); name the model as the data does with --as PROVIDER/MODEL, or go "
            "without with --no-data")
    return found


def new(
    card: typing.Annotated[str, typer.Argument(help="The card, JSON or YAML.")],
    workflow: typing.Annotated[str, typer.Option(help="The workflow.")],
    route: typing.Annotated[str, typer.Option(help="Its stand-in to be.")],
    called: typing.Annotated[str, typer.Option(
        "--as", metavar="PROVIDER/MODEL", help="The model as the data calls it, where "
        "the card calls it otherwise (a deployment, a proxy).")] = "",
    litellm_: typing.Annotated[str, typer.Option(
        "--litellm", metavar="FILE", help="LiteLLM's model_prices_and_context_"
        "window.json; default: the installed package's.")] = "",
    update: typing.Annotated[bool, typer.Option(
        "--update", help="Fetch the newest prices of genai-prices first.")] = False,
    no_data: typing.Annotated[bool, typer.Option(
        "--no-data", help="Look nothing up: the contract and the questions.")] = False,
    overwrite: typing.Annotated[bool, typer.Option(
        "--overwrite", help="Take the data's value where the card states another "
        "one.")] = False,
    dry_run: typing.Annotated[bool, typer.Option(
        "--dry-run", help="Print what would change, and change nothing.")] = False,
    as_json: typing.Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Draft a contract: price and abilities from data, and what you must find out.

    Only what is known is written; what the card states stays.
    """
    if no_data and (called or litellm_ or update):
        raise ContractError("--no-data: nothing is looked up then; leave --as, "
                            "--litellm and --update out")
    file = CardFile.open(card)
    the_pair(file, workflow, route)
    sources = [] if no_data else _sources(file, route, called, litellm_, update)
    rows = [] if no_data else draft(file, route, sources)
    write(file, route, rows, overwrite)
    made = file.contract(workflow, route) is None
    if made:
        file.put_contract(workflow, route, {})
    asked = questions(file, workflow, route)
    following = command(card, workflow, route, "verify", "--fixtures FILE")
    if not dry_run:
        file.save()
    if as_json:
        print_json({
            "workflow": workflow, "route": route, "new_contract": made,
            "written": file.changed and not dry_run, "diff": file.diff(),
            "sources": [dataclasses.asdict(one) for one in sources],
            "rows": [dataclasses.asdict(one) for one in rows],
            "questions": [dataclasses.asdict(one) for one in asked],
            "next": following})
        return
    print_wide(_report(file, route, sources, rows, overwrite, asked))
    if dry_run:
        typer.echo(file.diff() or "nothing would change")
        return
    typer.echo(f"{card}: " + ("a contract was added" if made else
                              "the contract is there already"))
    typer.echo(f"next: {following}")


def _report(card: CardFile, route: str, sources: "list[Source]", rows: "list[Row]",
            overwrite: bool, asked: "list[Question]") -> RenderableType:
    parts: "list[RenderableType]" = []
    for one in sources:
        parts.append(Text(f"{one.made}: {one.model or 'unknown, ' + one.near}"))
        parts += [Text(f"  {note}") for note in one.notes]
    if rows:
        parts += [Text(), _table(rows, overwrite)]
        unknown = ", ".join(row.key for row in rows
                            if row.state == "unknown" and row.card is None)
        if unknown:
            parts.append(Text(f"unknown, neither yes nor no: {unknown}", "yellow"))
            if all(one.name != "litellm" for one in sources):
                parts.append(Text("LiteLLM's table, which knows abilities, is not "
                                  "installed; --litellm FILE names one", "yellow"))
    needed = [one for one in asked if one.required is not None]
    if needed:
        parts += [Text(f"\nrequired, and nobody states it: fill in "
                       f"routes.{route}.provides"), _asked(needed)]
    others = [one for one in asked if one.required is None
              and one.key.partition(".")[0] in _ALWAYS]
    if others:
        parts += [Text("\nnot required, and not stated; worth knowing before you "
                       "approve"), _asked(others)]
    return Group(*parts, Text())


def _table(rows: "list[Row]", overwrite: bool) -> Table:
    table = Table("key", "value", "", "from", box=None, pad_edge=False)
    for row in rows:
        by = ", ".join(row.said)
        if row.state == "disputed":
            table.add_row(row.key, "", Text("not taken: the data disagrees", "yellow"),
                          Text("; ".join(f"{name} {said(value)}"
                                         for name, value in row.said.items())))
        elif row.state == "differs":
            note = (f"taken; the card said {said(row.card)}" if overwrite else
                    f"the card says {said(row.card)}, which stays; --overwrite")
            table.add_row(row.key, Text(said(row.value)), Text(note, "magenta"), by)
        elif row.state != "unknown":
            note = "new" if row.state == "new" else "as the card states"
            table.add_row(row.key, Text(said(row.value)), Text(note), by)
    return table


def _asked(asked: "list[Question]") -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    for one in asked:
        table.add_row(f"  {one.key}", Text(one.text), Text(
            "" if one.required is None else f"required {said(one.required)}"))
    return table
