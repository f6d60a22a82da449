"""The command `fivegates gauntlet`."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import typing

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from fivegates.console import print_wide
from fivegates.gauntlet.plan import (STANDARD, Plan, choose, read_plan,
                                     standard_plan)
from fivegates.gauntlet.play import Result, play
from fivegates.gauntlet.program import GauntletError
from fivegates.gauntlet.report import report_html
from fivegates.gauntlet.tables import (findings_text, result_json,
                                       result_junit, result_table, summary)
from fivegates.provider.settings import read_file

__all__ = ["gauntlet"]


def _list() -> None:
    table = Table("fault", "why", box=None, pad_edge=False)
    for one in STANDARD:
        table.add_row(Text(one.name), Text(one.why))
    Console(highlight=False).print(table)


async def _play(command: "list[str]", plan: Plan, jobs: int) -> Result:
    """play(), cancelled by the signals that end a command."""
    loop = asyncio.get_running_loop()
    with Progress(console=Console(stderr=True), transient=True,
                  disable=not sys.stderr.isatty()) as bars:
        bar = bars.add_task("without a fault", total=len(plan.trials) + 1)
        task = asyncio.ensure_future(play(
            command, plan, jobs, lambda name: bars.update(
                bar, advance=1, description="under faults")))
        for one in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(one, task.cancel)
        return await task


def _try(path: str) -> None:
    """Whether a report can be written there: rather known now than after all the
    runs. What is there already stays, and nothing else is left."""
    new = not os.path.lexists(path)
    _write(path, "", "a")
    if new:
        os.unlink(path)


def _write(path: str, text: str, mode: str = "w") -> None:
    try:
        with open(path, mode, encoding="utf-8", newline="\n") as file:
            file.write(text)
    except OSError as exc:
        raise GauntletError(f"{path}: {exc.strerror or exc}") from None


def gauntlet(
    command: typing.Annotated[typing.Optional[typing.List[str]], typer.Argument(metavar="-- CMD...", help="The program: it asks what it has to, and ends; exit code 0 says that all is well.", show_default=False)] = None,
    plan: typing.Annotated[str, typer.Option(help="YAML or JSON file with limits and faults.")] = "",
    fault: typing.Annotated[typing.Optional[typing.List[str]], typer.Option(help="Only this fault; again for more.")] = None,
    jobs: typing.Annotated[int, typer.Option(help="Programs that run at once; 0: one for each processor.", min=0, max=64)] = 0,
    report: typing.Annotated[str, typer.Option(help="Write a report with pictures to this HTML file.")] = "",
    junit: typing.Annotated[str, typer.Option(help="Write the result as JUnit's XML to this file.")] = "",
    as_json: typing.Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    list_faults: typing.Annotated[bool, typer.Option("--list", help="Print the standard faults.")] = False,
) -> None:
    """Run a program against a provider with faults, and judge what it does.

    The program gets OPENAI_BASE_URL, ANTHROPIC_BASE_URL and keys that open
    nothing; it may be of any language. Exit code 1: it failed.
    """
    if list_faults:
        _list()
        return
    if not command:
        raise GauntletError("name a program after --, like: fivegates gauntlet "
                            "-- python app.py")
    chosen = read_plan(read_file(plan)) if plan else standard_plan()
    if fault:
        chosen = choose(chosen, fault)
    for path in filter(None, (report, junit)):
        _try(path)
    try:
        result = asyncio.run(_play(command, chosen,
                                   jobs or os.cpu_count() or 1))
    except asyncio.CancelledError:
        typer.echo("fivegates: interrupted; everything that was started is "
                   "ended", err=True)
        raise typer.Exit(130) from None
    if report:
        _write(report, report_html(result))
    if junit:
        _write(junit, result_junit(result))
    if as_json:
        typer.echo(json.dumps(result_json(result), indent=2))
    else:
        print_wide(result_table(result), *map(Text, findings_text(result)),
                   Text(summary(result)))
    for path in filter(None, (report, junit)):
        typer.echo(f"report: {os.path.abspath(path)}", err=True)
    if not result.passed:
        raise typer.Exit(1)
