"""The command `fivegates provider`."""

from __future__ import annotations

import asyncio
import signal
import sys
import typing

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fivegates.provider.journal import Journal
from fivegates.provider.registry import FAULTS, GROUPS, step_of_text
from fivegates.provider.script import Script, plain_script, read_script
from fivegates.provider.server import Provider
from fivegates.provider.settings import SettingsError, read_file

__all__ = ["provider"]


def _list() -> None:
    table = Table("fault", "what it does", "numbers and their defaults",
                  box=None, pad_edge=False)
    for group in GROUPS:
        table.add_row(Text(f"[{group}]", style="bold"))
        for one in FAULTS.values():
            if one.group == group:
                table.add_row(Text(one.name), Text(one.why), Text(", ".join(
                    f"{name}={param.default:g}"
                    for name, param in one.params.items())))
    Console(highlight=False).print(table)


async def _serve(script: Script, journal: Journal, port: int) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for one in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(one, stopped.set)
    server = Provider(script, journal)
    await server.start(port)
    try:
        typer.echo(server.url)
        typer.echo(f"OPENAI_BASE_URL={server.url}/v1 ANTHROPIC_BASE_URL="
                   f"{server.url}", err=True)
        sys.stdout.flush()
        await stopped.wait()
    finally:
        await server.stop()
    state = server.state()
    typer.echo(f"requests {state['requests']}, whole answers {state['whole']}, "
               f"tokens billed {state['billed']}", err=True)


def provider(
    fault: typing.Annotated[typing.Optional[typing.List[str]], typer.Option(help="What a request meets: NAME or NAME:number=value,...; again for the requests after it, the last stays.")] = None,
    script: typing.Annotated[str, typer.Option(help="YAML or JSON file with faults, phases, routes and the model's speed.")] = "",
    port: typing.Annotated[int, typer.Option(help="Port on 127.0.0.1; 0: one that is free.", min=0, max=65535)] = 0,
    journal: typing.Annotated[str, typer.Option(help="Append what happens to this file, as JSON lines.")] = "",
    bodies: typing.Annotated[bool, typer.Option("--bodies", help="Keep what was asked in the journal too, prompts and all.")] = False,
    list_faults: typing.Annotated[bool, typer.Option("--list", help="Print all faults.")] = False,
) -> None:
    """A provider on loopback that fails as it is told.

    It speaks OpenAI chat completions and responses and Anthropic messages,
    prints its URL, and ends on Ctrl-C or SIGTERM.
    """
    if list_faults:
        _list()
        return
    if fault and script:
        raise SettingsError("--fault and --script: give one of them")
    read = (read_script(read_file(script)) if script else plain_script(
        [step_of_text(one, "--fault") for one in fault or ["ok"]]))
    written = Journal(journal, bodies)
    try:
        asyncio.run(_serve(read, written, port))
    finally:
        written.close()
