"""Plays every scenario to every system and prints what came of it.

    cd tests && ../.venv/bin/python -m referee
    ... -m referee --system fivegates --scenario "stream cut" --json

Exit code: 0; 1 when a check failed on a row of fivegates; 2 for bad input or a
system that could not be run.
"""

from __future__ import annotations

import argparse
import asyncio
import sys

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
)

from referee.play import SYSTEMS, Played, missing, play
from referee.report import as_json, as_markdown, print_table
from referee.scenarios import SCENARIOS, Scenario


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m referee", description="What each way of retrying "
        "really does, told by the server it talks to.")
    parser.add_argument("--system", action="append", choices=list(SYSTEMS),
                        help="only this one (may be repeated)")
    parser.add_argument("--scenario", action="append", metavar="TEXT",
                        help="only those with TEXT in their name")
    parser.add_argument("--list", action="store_true",
                        help="say what the scenarios are, and play nothing")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true")
    form.add_argument("--markdown", action="store_true")
    return parser.parse_args()


def _chosen(words: "list[str] | None") -> "list[Scenario]":
    return [one for one in SCENARIOS
            if not words or any(word in one.name for word in words)]


def _list(scenarios: "list[Scenario]") -> None:
    for one in scenarios:
        print(f"{one.name}: {one.why}")
        for check in one.all_checks():
            print(f"  {'required' if check.required else 'advisory'}: "
                  f"{check.name}")


def _installed(systems: "list[str]", asked: bool) -> "list[str]":
    """Those whose environment is there; all that were asked for by name."""
    out = [name for name in systems if asked or missing(name) is None]
    for name in sorted(set(systems) - set(out)):
        print(f"referee: {name} left out: {missing(name)}", file=sys.stderr)
    return out


def main() -> int:
    options = _options()
    scenarios = _chosen(options.scenario)
    if not scenarios:
        print(f"referee: no scenario has {options.scenario} in its name; "
              "--list names them", file=sys.stderr)
        return 2
    if options.list:
        _list(scenarios)
        return 0
    systems = _installed(options.system or list(SYSTEMS), bool(options.system))
    with Progress(TextColumn("{task.description}"), BarColumn(),
                  MofNCompleteColumn(), TimeElapsedColumn(),
                  console=Console(stderr=True)) as progress:
        task = progress.add_task("playing", total=len(systems) * len(scenarios))

        def heard(played: Played) -> None:
            progress.advance(task)

        try:
            played, versions = asyncio.run(play(systems, scenarios, heard))
        except RuntimeError as broken:
            print(f"referee: {broken}", file=sys.stderr)
            return 2
    if options.json:
        print(as_json(played, versions))
    elif options.markdown:
        print(as_markdown(played, systems, versions))
    else:
        print_table(Console(highlight=False), played, systems, versions)
    return int(any(one.failed for one in played
                   if one.system.startswith(("fivegates", "gateway"))))


if __name__ == "__main__":
    sys.exit(main())
