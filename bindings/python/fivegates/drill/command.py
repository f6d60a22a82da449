"""The command `fivegates drill`."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import sys
import time
import typing

import typer
from rich.console import Console
from rich.progress import Progress

from fivegates.console import print_wide
from fivegates.drill.goals import check_goals
from fivegates.drill.live import LIVE_LIMITS, live_table, run_live
from fivegates.drill.report import SPARE, picture_svg, report_html
from fivegates.drill.runs import (STRATEGIES, DrillError, Results, fault_names,
                                  run)
from fivegates.drill.table import (csv_text, goals_table, missed,
                                   sensitivity_table, summary, table)
from fivegates.errors import PolicyError
from fivegates.yaml import to_json

__all__ = ["drill"]

Json = typing.Dict[str, typing.Any]


def _read(path: str) -> str:
    try:
        return pathlib.Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        what = exc.strerror if isinstance(exc, OSError) else "not UTF-8 text"
        raise DrillError(f"{path}: {what or exc}") from None


def _card(path: str) -> str:
    """A card file, JSON or YAML, as a part of a configuration."""
    text = _read(path)
    if path.lower().endswith((".yaml", ".yml")):
        try:
            text = to_json(text)[0]
        except PolicyError as exc:
            exc.file = path
            raise
    # As it stands, not read and written again: keys given twice must be seen.
    return '{"card":' + text.strip() + "}"


@contextlib.contextmanager
def _progress() -> "typing.Iterator[typing.Callable[[str, int, int], None]]":
    """A bar on the terminal; nothing where there is none."""
    with Progress(console=Console(stderr=True), transient=True,
                  disable=not sys.stderr.isatty()) as bars:
        tasks: "dict[str, typing.Any]" = {}

        def show(name: str, done: int, total: int) -> None:
            if name not in tasks:
                tasks[name] = bars.add_task(name, total=total)
            bars.update(tasks[name], completed=done)

        yield show


def _configs(config: str, card: str, options: Json) -> "tuple[list[str], list[str]]":
    """Texts and their files' names, weakest first."""
    texts, files = [], []
    if config:
        texts.append(_read(config))
        files.append(config)
    if card:
        texts.append(_card(card))
        files.append(card)
    return [*texts, json.dumps(options)], [*files, ""]


def _goals(base: "list[str]", files: "list[str]", seeds: int, seed: int,
           threads: int, as_json: bool) -> None:
    with _progress() as show:
        checks = check_goals(seeds, seed, threads or None, show, base, files)
    if as_json:
        typer.echo(json.dumps([
            {"rig": one.rig, "fault": one.fault, "metric": one.metric,
             "got": one.got, "sd": one.sd, "limit": one.limit,
             "at_least": one.at_least, "margin": one.margin,
             "passed": one.passed} for one in checks], indent=2))
    else:
        print_wide(goals_table(checks))
        lines = missed(checks)
        typer.echo(f"\n{len(checks) - len(lines)} of {len(checks)} goals "
                   f"reached, mean of {seeds} seeds")
        for line in lines:
            typer.echo("  " + line)
    if not all(one.passed for one in checks):
        raise typer.Exit(1)


def _live(texts: "list[str]", files: "list[str]", programs: str, threads: int,
          as_json: bool) -> None:
    with _progress() as show:
        cells = run_live(*texts, files=files, programs=programs,
                         at_once=threads or 2,
                         progress=lambda done, total: show("live drills", done, total))
    if as_json:
        typer.echo(json.dumps([
            {"fault": one.fault, "strategy": one.strategy, "agrees": one.agrees,
             "late_s": one.late_s, "tries": one.tries,
             "live": one.live["metrics"], "simulated": one.simulated["metrics"]}
            for one in cells]))
    else:
        print_wide(live_table(cells))
        limits = ", ".join(f"{name} by at most {limit:g}"
                           for name, limit in LIVE_LIMITS.items())
        typer.echo(f"{sum(one.agrees for one in cells)} of {len(cells)} agree: {limits}")
    if not all(one.agrees for one in cells):
        raise typer.Exit(1)


def _sensitivity(texts: "list[str]", files: "list[str]", seeds: "int | None",
                 threads: int) -> "dict[float, Results]":
    """The runs again for each spare capacity of the backups."""
    out: "dict[float, Results]" = {}
    with _progress() as show:
        for i, spare in enumerate(SPARE):
            over: Json = {"spare": spare, "slots": {"backup": 0}}
            if seeds is not None:
                over["seeds"] = seeds
            out[spare] = run(*texts, over, files=files, threads=threads or None)
            show("spare capacity", i + 1, len(SPARE))
    return out


def _write(path: str, text: str) -> None:
    try:
        with open(path, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
    except OSError as exc:
        raise DrillError(f"{path}: {exc.strerror or exc}") from None


def drill(
    config: typing.Annotated[str, typer.Option(help="JSON file with the rig, the faults and the strategies.")] = "",
    fault: typing.Annotated[typing.Optional[typing.List[str]], typer.Option(help="Only this fault; again for more.")] = None,
    strategy: typing.Annotated[typing.Optional[typing.List[str]], typer.Option(help="Only this strategy; again for more.")] = None,
    seeds: typing.Annotated[typing.Optional[int], typer.Option(help="Runs of each cell; 20 when neither this nor the file says.")] = None,
    seed: typing.Annotated[typing.Optional[int], typer.Option(help="Seed of the first run.")] = None,
    spare: typing.Annotated[typing.Optional[float], typer.Option(help="Capacity of the backups beyond their own users' needs, as a share of A's load.")] = None,
    ladder: typing.Annotated[typing.Optional[bool], typer.Option("--ladder/--no-ladder", help="Is a smaller model a way out.")] = None,
    card: typing.Annotated[str, typer.Option(help="Another card for the engine, JSON or YAML.")] = "",
    ledger: typing.Annotated[str, typer.Option(help="Write the engine's ledger to this file: one fault, --strategy fivegates, --seeds 1.")] = "",
    threads: typing.Annotated[int, typer.Option(help="Threads; 0: one for each processor.", min=0)] = 0,
    report: typing.Annotated[str, typer.Option(help="Write a report with pictures to this HTML file.")] = "",
    picture: typing.Annotated[str, typer.Option(help="Write one picture of all faults to this SVG file.")] = "",
    sensitivity: typing.Annotated[bool, typer.Option("--sensitivity", help="Answers by the backup's spare capacity instead of the table.")] = False,
    goals: typing.Annotated[bool, typer.Option("--goals", help="Judge the goals instead; exit 1 when one is missed.")] = False,
    live: typing.Annotated[bool, typer.Option("--live", help="Over loopback HTTP with real streams, ten times faster, beside the simulation; exit 1 where they disagree.")] = False,
    programs: typing.Annotated[str, typer.Option(help="Folder of fivegates-drill-client and fivegates-drill-server, for --live; the PATH when not given.")] = "",
    faults: typing.Annotated[bool, typer.Option("--faults", help="Print the faults that have names.")] = False,
    as_csv: typing.Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    as_json: typing.Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Fault drills, simulated: what a client's recovery does to everyone."""
    if faults:
        typer.echo("\n".join(fault_names()))
        return
    unknown = [name for name in strategy or () if name not in STRATEGIES]
    if unknown:
        raise DrillError(f"--strategy {unknown[0]}: no such strategy; there are "
                         + ", ".join(STRATEGIES))
    unknown = [name for name in fault or () if name not in fault_names()]
    if unknown:
        raise DrillError(f"--fault {unknown[0]}: no such fault; there are "
                         + ", ".join(fault_names()))
    options: Json = {}
    for key, value in (("faults", fault), ("strategies", strategy),
                       ("seeds", seeds), ("seed", seed), ("ladder", ladder)):
        if value is not None and value != []:
            options[key] = value
    if spare is not None:
        options.update(spare=spare, slots={"backup": 0})
    texts, files = _configs(config, card, options)
    if live:
        if goals or sensitivity or report or picture or ledger or as_csv or seeds is not None:
            raise DrillError("--live has one seed and a table of its own; give it "
                             "--config, --card, --fault, --strategy, --seed, --spare, "
                             "--ladder, --threads, --programs or --json only")
        _live(texts, files, programs, threads, as_json)
        return
    if programs:
        raise DrillError("--programs is for --live")
    texts, files = ['{"seeds":20}', *texts], ["", *files]
    if goals:
        if fault or strategy or report or picture or sensitivity or as_csv or spare is not None or ladder is not None:
            raise DrillError("--goals has rigs, faults and strategies of its own; "
                             "give it --config, --card, --seeds, --seed, --threads "
                             "or --json only")
        _goals(texts, files, seeds or 20, seed or 1, threads, as_json)
        return
    if sensitivity:
        if report or picture or as_csv or spare is not None:
            raise DrillError("--sensitivity goes without --report, --picture, "
                             "--csv and --spare")
        by_spare = _sensitivity(texts, files, seeds, threads)
        if as_json:
            typer.echo(json.dumps({f"{s:g}": one for s, one in by_spare.items()}))
        else:
            print_wide(sensitivity_table(by_spare, "useful"))
        return
    began = time.monotonic()
    with _progress() as show:
        results = run(*texts, files=files, threads=threads or None,
                      pictures=bool(report), ledger=ledger or None,
                      progress=lambda done, total: show("drills", done, total))
    took = max(time.monotonic() - began, 1e-3)
    if report:
        _write(report, report_html(results, _sensitivity(
            texts, files, min(results["seeds"], 5), threads)))
    if picture:
        _write(picture, picture_svg(results))
    if as_csv:
        typer.echo(csv_text(results), nl=False)
    elif as_json:
        typer.echo(json.dumps(results))
    else:
        print_wide(table(results))
        typer.echo(summary(results))
    typer.echo(f"{took:.1f} s, {results['events'] / took:,.0f} events a second", err=True)
    for file in filter(None, (report, picture)):
        typer.echo(f"written: {os.path.abspath(file)}", err=True)
