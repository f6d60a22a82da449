"""The command line: check, classify, explain, vectors, schema, drill, reconcile.

Exit codes: 0 all is well; 1 the answer is no (a vector failed, check --strict
found warnings); 2 bad input or usage, with the file, the place in it and what
to do.
"""

from __future__ import annotations

import importlib.resources
import io
import json
import os
import pathlib
import sys
import time
import typing

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Column, Table
from rich.text import Text

import fivegates
from fivegates import vectors as vector_files
from fivegates.contract.command import contract
from fivegates.contract.dates import barred_by_dates, now_ms
from fivegates.contract.judge import stand_ins
from fivegates.contract.show import print_json
from fivegates.curl import evidence_from_text
from fivegates.drill.command import drill
from fivegates.errors import FivegatesError, PolicyError
from fivegates.reconcile.command import reconcile
from fivegates.replay.command import replay
from fivegates.status.command import report, status
from fivegates.gauntlet.command import gauntlet
from fivegates.provider.command import provider
from fivegates.testing import ManualClock
from fivegates.yaml import place_of, to_json

__all__ = ["app", "run"]

Json = typing.Dict[str, typing.Any]

app = typer.Typer(
    name="fivegates", no_args_is_help=True, add_completion=False,
    pretty_exceptions_enable=False,
    help="What to do after a call to a large model fails.",
    epilog="Exit codes: 0 all is well; 1 the answer is no (a vector failed, "
           "check --strict found warnings); 2 bad input or usage.")
AsJson = typing.Annotated[bool, typer.Option("--json", help="Print JSON.")]

# Keys of a line that label it and are no evidence.
_LABELS = ("id", "expect", "alt_owners", "why", "source", "tricky")
_SCORED = ("owner", "overload", "trips_breaker", "billed", "commit",
           "retry_after_ms", "scope")


class Bad(Exception):
    """Bad input: what is wrong, where, and what to do."""


def _out() -> Console:
    return Console(highlight=False, soft_wrap=True)


def _say(text: str) -> None:
    typer.echo(text)


def _read(path: str) -> str:
    """A file's text; - is standard input."""
    try:
        raw = (sys.stdin.buffer.read() if path == "-"
               else pathlib.Path(path).read_bytes())
    except OSError as exc:
        raise Bad(f"{path}: {exc.strerror or exc}; name a file that can be "
                  "read") from None
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        line = raw.count(b"\n", 0, exc.start) + 1
        raise Bad(f"{path}:{line}: the text is not UTF-8; save it as UTF-8"
                  ) from None


def _many(things: "typing.Sized", what: str) -> str:
    return f"{len(things)} {what}{'s' * (len(things) != 1)}"


def _policy(path: str) -> fivegates.Policy:
    try:
        if path == "-":
            return fivegates.Policy.loads(_read(path))
        return fivegates.Policy.load(path)
    except OSError as exc:
        raise Bad(f"{path}: {exc.strerror or exc}; name a file that can be "
                  "read") from None


@app.callback(invoke_without_command=True)
def top(version: typing.Annotated[
        bool, typer.Option("--version", help="Print the version.")] = False,
        ) -> None:
    if version:
        _say(fivegates.__version__)
        raise typer.Exit(0)


# ---- check


Places = typing.Dict[str, typing.Tuple[int, int]]


def _card_json(path: str) -> "tuple[str, Places | None]":
    """The card as JSON text, and the places of a YAML card."""
    text = _read(path)
    if text.lstrip()[:1] == "{" and not path.lower().endswith(
            (".yaml", ".yml")):
        return text, None
    try:
        return to_json(text)
    except PolicyError as exc:
        exc.file = path
        raise


def _contracts(policy: fivegates.Policy, card: Json) -> "list[Json]":
    """Every stand-in of every workflow, and whether it is approved."""
    stated = {(one["workflow"], one["route"]): one
              for one in card.get("contracts") or ()}
    out: "list[Json]" = []
    for name, route in stand_ins(card):
        row = {"workflow": name, "route": route, **policy.contract(name, route)}
        if row["approved"]:  # of dates the policy knows nothing
            row["barred"] = barred_by_dates(stated[name, route], now_ms())
            row["approved"] = row["barred"] is None
        out.append(row)
    return out


def _problem(exc: PolicyError) -> Json:
    return {"file": exc.file, "line": exc.line, "column": exc.column,
            "path": exc.path, "code": exc.code, "message": exc.message}


@app.command()
def check(
    card: typing.Annotated[str, typer.Argument(help="The card, JSON or YAML; - is standard input.")],
    as_json: typing.Annotated[bool, typer.Option(
        "--json", help="Write the card as JSON to standard output.")] = False,
    strict: typing.Annotated[bool, typer.Option(
        help="Exit 1 when there are warnings.")] = False,
) -> None:
    """Validate a card, and warn of what is likely a mistake."""
    text, places = _card_json(card)
    policy = (fivegates.Policy.loads(text, json=True) if card == "-"
              else _policy(card))
    parsed: Json = json.loads(text)
    lint = policy.lint()
    if as_json:
        print_json(parsed)
        for one in lint:
            typer.echo(f"{card}: {one['path']}: {one['message']}", err=True)
    else:
        console = _out()
        console.print(Text(f"{card}: {_many(policy.workflows(), 'workflow')}, "
                           f"{_many(policy.routes(), 'route')}, "
                           f"{policy.fingerprint}"))
        for one in lint:
            line = (one["line"] if places is None
                    else place_of(one["path"], places)[0])
            place = f":{line}" if line else ""
            console.print(Text(f"warning: {card}{place}: {one['path']}: "
                               f"{one['message']}", style="yellow"))
        # No frame and no folding: a fingerprint is there to be copied.
        table = Table("workflow", "stand-in", "contract",
                      Column("fingerprint", no_wrap=True), box=None,
                      pad_edge=False)
        for row in _contracts(policy, parsed):
            table.add_row(Text(row["workflow"]), Text(row["route"]),
                          "approved" if row["approved"]
                          else Text(row["barred"]),
                          Text(row["fingerprint"] or ""))
        if table.row_count:
            console.width = 1000
            console.print(table, crop=False)
    if lint and strict:
        raise typer.Exit(1)


# ---- classify


def _lines(path: str) -> "typing.Iterator[tuple[int, Json]]":
    for number, line in enumerate(_read(path).splitlines(), 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as exc:
            raise Bad(f"{path}:{number}: not JSON: {exc}; write one object a "
                      "line") from None
        if not isinstance(value, dict):
            raise Bad(f"{path}:{number}: not an object")
        yield number, value


def _right(field: str, case: Json, got: Json) -> bool:
    want = case["expect"].get(field)
    if field == "owner":
        return got["owner"] == want or got["owner"] in case.get("alt_owners", [])
    return bool(got.get(field) == want)


def _score(cases: "list[tuple[Json, Json]]", as_json: bool) -> None:
    counted = [(case, got) for case, got in cases
               if isinstance(case.get("expect"), dict)]
    tally = {field: [0, 0] for field in _SCORED}
    misses: "list[Json]" = []
    for case, got in counted:
        for field in _SCORED:
            if field not in case["expect"]:
                continue
            tally[field][1] += 1
            if _right(field, case, got):
                tally[field][0] += 1
            else:
                misses.append({"id": case.get("id"), "field": field,
                               "expected": case["expect"][field],
                               "got": got.get(field), "kind": got["kind"]})
    if as_json:
        print_json({"cases": len(counted), "misses": misses,
                     "right": {f: n[0] for f, n in tally.items()},
                     "counted": {f: n[1] for f, n in tally.items()}})
        return
    console = _out()
    for field, (right, of) in tally.items():
        if of:
            console.print(f"{field:<15} {right}/{of}  {100 * right / of:.1f} %")
    for miss in misses:
        console.print(Text(f"miss {miss['id']}: {miss['field']}: expected "
                           f"{miss['expected']}, got {miss['got']} "
                           f"({miss['kind']})"))


@app.command()
def classify(
    file: typing.Annotated[str, typer.Argument(help="One failure a line, as JSON; - is standard input.")],
    card: typing.Annotated[str, typer.Option(help="A card whose rules come first.")] = "",
    score: typing.Annotated[bool, typer.Option(
        help="Compare with each line's expect and alt_owners; print the "
             "accuracy and the misses.")] = False,
    as_json: AsJson = False,
) -> None:
    """Say whose fault each failure is: one JSON line for each."""
    policy = _policy(card) if card else None
    cases: "list[tuple[Json, Json]]" = []
    for number, case in _lines(file):
        evidence = {k: v for k, v in case.items() if k not in _LABELS}
        try:
            failure = fivegates.classify(evidence, policy)
        except (TypeError, ValueError) as exc:
            raise Bad(f"{file}:{number}: {exc}") from None
        got = failure.to_dict()
        if score:
            cases.append((case, got))
        else:
            _say(json.dumps({"id": case.get("id"), **got},
                            ensure_ascii=False))
    if score:
        _score(cases, as_json)


# ---- explain


@app.command()
def explain(
    card: typing.Annotated[str, typer.Argument(help="The card, JSON or YAML.")],
    file: typing.Annotated[str, typer.Argument(help="Pasted `curl -i` output, or JSON evidence; - is standard input.")],
    workflow: typing.Annotated[str, typer.Option(help="The workflow whose call failed.")],
    prompt_tokens: typing.Annotated[int, typer.Option(min=0, help="Of the request.")] = 1000,
    max_output_tokens: typing.Annotated[int, typer.Option(min=0, help="Of the request.")] = 500,
    stream: typing.Annotated[bool, typer.Option(help="Whether the answer streams.")] = True,
    elapsed_ms: typing.Annotated[int, typer.Option(min=0, help="How long the attempt took.")] = 400,
    as_json: AsJson = False,
) -> None:
    """Show the five gates for one failure of a first attempt, and the decision."""
    policy = _policy(card)
    try:
        evidence = evidence_from_text(_read(file))
    except ValueError as exc:
        raise Bad(f"{file}: {exc}") from None
    clock = ManualClock(unix_ms=int(time.time() * 1000))
    engine = fivegates.Engine(policy, clock=clock, seed=1)
    call = engine.begin(workflow, prompt_tokens=prompt_tokens,
                        max_output_tokens=max_output_tokens, stream=stream)
    first = call.begin_attempt()
    failure = None
    if first.action == "proceed":
        call.event("connected")
        clock.advance(elapsed_ms)
        if first.route is not None:
            info = policy.route(first.route)
            evidence.setdefault("provider", info["provider"])
        evidence.setdefault("elapsed_ms", elapsed_ms)
        try:
            failure = fivegates.classify(evidence, policy)
            decision = call.failure(evidence)
        except (TypeError, ValueError) as exc:
            raise Bad(f"{file}: {exc}") from None
    else:
        decision = first
    if as_json:
        print_json({"failure": failure.to_dict() if failure else None,
                     "why": failure.why if failure else None,
                     "decision": decision.to_dict(),
                     "explanation": decision.explain()})
        return
    if failure is not None:
        why = f" ({failure.why})" if failure.why else ""
        _say(f"{failure.owner}: {failure.kind}{why}")
    _say(decision.explain().rstrip("\n"))


# ---- vectors


@app.command()
def vectors(
    paths: typing.Annotated[typing.List[str], typer.Argument(help="Vector files, or folders of them.")],
    dump: typing.Annotated[str, typer.Option(help="Write one line per op with its full answer.")] = "",
    as_json: AsJson = False,
) -> None:
    """Replay vector files; exit 1 if any case failed."""
    said: "list[str]" = []
    out: "typing.TextIO | None" = None
    for path in paths:
        if not os.path.exists(path):
            raise Bad(f"{path}: no such file or folder")
    try:
        out = open(dump, "w", encoding="utf-8", newline="\n") if dump else None
    except OSError as exc:
        raise Bad(f"{dump}: {exc.strerror or exc}") from None
    files = [file for path in paths for file in vector_files.vector_files(path)]
    with Progress(console=Console(stderr=True), transient=True,
                  disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task("replaying", total=len(files))
        report = vector_files.replay(
            files, said.append if as_json else _say, out,
            lambda _: progress.advance(task))
    if out is not None:
        out.close()
    if as_json:
        print_json({"passed": report.passed, "failed": report.failed,
                     "failures": said})
    else:
        _say(f"{report.passed} passed, {report.failed} failed")
    if report.failed:
        raise typer.Exit(1)


# ---- schema


@app.command()
def schema() -> None:
    """Print the card's JSON Schema, for editors."""
    file = importlib.resources.files("fivegates") / "card.schema.json"
    _say(file.read_text(encoding="utf-8").rstrip("\n"))


app.command()(drill)
app.command()(reconcile)
app.command()(replay)
app.command()(status)
app.command()(report)
app.command()(provider)
app.command()(gauntlet)
app.add_typer(contract)


def run() -> None:
    """The command `fivegates`: never a traceback on bad input."""
    wants_json = "--json" in sys.argv
    for stream in (sys.stdout, sys.stderr):  # a name is no reason to fail in any locale
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        app()
    except PolicyError as exc:
        if wants_json:
            print_json({"error": _problem(exc)})
        typer.echo(f"fivegates: {exc}", err=True)
        sys.exit(2)
    except (Bad, FivegatesError, KeyError) as exc:
        message = str(exc.args[0]) if isinstance(exc, KeyError) else str(exc)
        if wants_json:
            print_json({"error": {"message": message}})
        typer.echo(f"fivegates: {message}", err=True)
        sys.exit(2)
    except SystemExit as exc:  # how a mistake in the arguments ends, and an interrupt
        said = _said(exc.__context__)
        if wants_json and said is not None:
            print_json({"error": {"message": said}})
        raise
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(0)


def _said(cause: "BaseException | None") -> "str | None":
    """What the argument parser said on standard error, where it ended the command."""
    if isinstance(cause, typer.Abort):
        return "aborted"
    if isinstance(cause, typer.Exit):
        return "interrupted" if cause.exit_code == 130 else None
    say = getattr(cause, "format_message", None)
    return None if say is None else str(say())
