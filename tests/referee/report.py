"""The table: a row for each scenario, a column for each system."""

from __future__ import annotations

import json
import typing

from rich.console import Console
from rich.table import Table
from rich.text import Text

from referee.play import Played
from referee.scenarios import SCENARIOS

__all__ = ["as_json", "as_markdown", "print_table", "totals"]

Versions = typing.Mapping[str, typing.Mapping[str, str]]
_STYLES = {"pass": "green", "advisory": "yellow", "failed": "bold red"}
_ORDER = {one.name: i for i, one in enumerate(SCENARIOS)}


class _Grid:
    """Cells by scenario and system, in order."""

    def __init__(self, played: "list[Played]", systems: "list[str]") -> None:
        self.systems = systems
        self.cells = {(one.scenario.name, one.system): one for one in played}
        self.scenarios = sorted({one.scenario.name for one in played},
                                key=_ORDER.__getitem__)

    def row(self, scenario: str) -> "list[Played]":
        return [self.cells[scenario, system] for system in self.systems]

    def column(self, system: str) -> "list[Played]":
        return [self.cells[name, system] for name in self.scenarios]


def _effects(one: Played) -> str:
    done = len(one.seen.journal.effects)
    return f", {done} effect{'s' * (done != 1)}" if one.seen.ask.agent else ""


def _cell(one: Played) -> str:
    """requests, tokens billed / delivered, effects"""
    journal = one.seen.journal
    return (f"{len(journal.requests)}, {journal.billed}/{one.seen.delivered}"
            f"{_effects(one)}")


def totals(cells: "list[Played]") -> "dict[str, typing.Any]":
    """A system's sums over its scenarios."""
    count = {word: sum(one.status == word for one in cells)
             for word in ("pass", "advisory", "failed")}
    users = sum(len(one.seen.got) for one in cells)
    requests = sum(len(one.seen.journal.requests) for one in cells)
    billed = sum(one.seen.journal.billed for one in cells)
    delivered = sum(one.seen.delivered for one in cells)
    return {**count, "users": users, "requests": requests, "billed": billed,
            "delivered": delivered,
            "double_effects": sum(max(0, len(one.seen.journal.effects) - 1)
                                  for one in cells)}


def _sums(grid: _Grid) -> "list[tuple[str, list[str]]]":
    sums = [totals(grid.column(system)) for system in grid.systems]
    return [
        ("pass / advisory / failed", [
            f"{one['pass']} / {one['advisory']} / {one['failed']}"
            for one in sums]),
        ("requests a user", [f"{one['requests'] / one['users']:.2f}"
                             for one in sums]),
        ("billed / delivered", [f"{one['billed']}/{one['delivered']}"
                                for one in sums]),
        ("double effects", [str(one["double_effects"]) for one in sums])]


def _versions(systems: "list[str]", versions: Versions) -> str:
    return "; ".join(f"{system}: " + ", ".join(
        f"{name} {version}" for name, version in versions[system].items())
        for system in systems)


def print_table(console: Console, played: "list[Played]",
                systems: "list[str]", versions: Versions) -> None:
    """The table, then what was missed, system by system."""
    grid = _Grid(played, systems)
    table = Table("scenario", *systems, caption=(
        f"requests, tokens billed/delivered, effects\n"
        f"{_versions(systems, versions)}"))
    for name in grid.scenarios:
        table.add_row(name, *(Text(f"{one.status}\n{_cell(one)}",
                                   _STYLES[one.status])
                              for one in grid.row(name)))
    table.add_section()
    for name, texts in _sums(grid):
        table.add_row(name, *texts)
    console.print(table)
    for system in systems:
        for one in grid.column(system):
            for check, what in one.failed:
                word = "failed" if check.required else "advisory"
                console.print(Text(f"{system}: {one.scenario.name}: "
                                   f"{check.name}: {what}", _STYLES[word]),
                              soft_wrap=True)


def as_markdown(played: "list[Played]", systems: "list[str]",
                versions: Versions) -> str:
    grid = _Grid(played, systems)
    marks = {"pass": "pass", "advisory": "*advisory*", "failed": "**failed**"}
    lines = [" | ".join(("scenario", *systems)),
             " | ".join(["---"] * (1 + len(systems)))]
    for name in grid.scenarios:
        lines.append(" | ".join((name, *(
            f"{marks[one.status]} {_cell(one)}" for one in grid.row(name)))))
    for name, texts in _sums(grid):
        lines.append(" | ".join((f"**{name}**", *texts)))
    return "\n".join([*(f"| {line} |" for line in lines), "",
                      f"{_versions(systems, versions)}."])


def as_json(played: "list[Played]", versions: Versions) -> str:
    """Everything: each cell with its checks, the journal and the users."""
    return json.dumps({"versions": versions, "cells": [{
        "system": one.system, "scenario": one.scenario.name,
        "status": one.status, "delivered": one.seen.delivered,
        "failed": [{"check": check.name, "required": check.required,
                    "seen": what} for check, what in one.failed],
        "server": one.seen.journal.report(),
        "users": [vars(got) for got in one.seen.got],
    } for one in sorted(played, key=lambda one: (
        one.system, _ORDER[one.scenario.name]))]}, indent=1)
