"""The command `fivegates contract verify`."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import pathlib
import sys
import typing
import urllib.parse

import typer
from rich.console import Console
from rich.progress import Progress

import fivegates
from fivegates.contract.cards import CardFile, ContractError
from fivegates.contract.fixtures import Fixtures, read_fixtures
from fivegates.contract.judge import the_pair
from fivegates.contract.mapping import FixtureError, canonical
from fivegates.contract.measured import (
    evidence_of_run,
    models_of,
    operations,
    quality,
    side_of,
)
from fivegates.contract.results import Results
from fivegates.contract.runs import Run, Stop, measuring_card, output_bound
from fivegates.contract.scorers import BUILT_IN, Function, ScorerError, function_of
from fivegates.contract.show import print_json
from fivegates.contract.spend import Cap, nusd_of, unbounded, usd
from fivegates.contract.targets import (
    Called,
    Http,
    Side,
    Target,
    TargetError,
    http_client,
    http_module,
)
from fivegates.contract.verify_table import terminal
from fivegates.contract.wire import CannotSay

__all__ = ["verify"]

Json = typing.Dict[str, typing.Any]
Many = typing.List[str]
_LINES = 10  # of progress, where there is no terminal
_APPROVAL = ("fingerprint", "approved_by", "price")


# ---- what is measured


def _side(card: CardFile, workflow: str, name: str, route: str, url: str) -> Side:
    facts = card.policy.route(route)
    stated = card.data["routes"][route]
    provides = stated.get("provides") or {}
    price = facts.get("price_nusd_per_million")

    def drops(tool: str) -> bool:
        return name == "route" and card.policy.drops_tool(workflow, route, tool)

    return Side(name, {**facts, "version": stated.get("version"),
                       "base_url": url or facts["base_url"]},
                price if price and price["input"] is not None else None,
                (provides.get("output") or {}).get("max_tokens"), drops)


def _functions(names: "typing.Sequence[str]") -> "tuple[str | None, dict[str, Function]]":
    """The scorer of rows without one, and the functions that may be called."""
    functions: "dict[str, Function]" = {}
    for name in names:
        if name in BUILT_IN:
            continue
        if ":" not in name:
            raise ScorerError(f"no scorer is called {name}; there are "
                              f"{', '.join(BUILT_IN)} and module:function")
        functions[name] = function_of(name)
    return (names[0] if names else None), functions


def _targets(sides: "dict[str, Side]", call: str, concurrency: int,
             ) -> "dict[str, Target]":
    """What is asked. Raises TargetError."""
    if call:
        function = function_of(call)
        return {name: Called(side, function) for name, side in sides.items()}
    for name, side in sides.items():
        if not side.route["base_url"]:
            raise TargetError(f"route {side.route['name']} has no base_url; state it in "
                              f"the card, or give --{name}-url, or a function with --call")
    http = http_module()
    client = http_client(http, concurrency)
    return {name: Http(side, http, client, side.route["base_url"])
            for name, side in sides.items()}


def _check_cases(fixtures: Fixtures, sides: "dict[str, Side]",
                 targets: "dict[str, Target]", capped: bool) -> None:
    """Refuses before anything is paid what could not be asked, or not be bounded."""
    for case in fixtures.cases:
        for name, side in sides.items():
            route = side.route["name"]
            try:
                targets[name].body(case.request)
            except CannotSay as exc:
                raise FixtureError(f"{case.place}: route {route}: {exc}") from None
            if not capped or side.price is None:
                continue
            if output_bound(side, case.request) is None:
                raise FixtureError(
                    f"{case.place}: what an answer of route {route} costs at most is not "
                    "known: state max_tokens in the request, or output.max_tokens in "
                    "what the route provides")
            what = unbounded(case.request)
            if what is not None:
                raise FixtureError(f"{case.place}: {what}: what that costs the card's "
                                   "price does not say; take it out, or run without "
                                   "--max-usd")


def _nusd(text: str) -> "int | None":
    """--max-usd in nano-dollars; None: no cap."""
    if not text:
        return None
    try:
        return nusd_of(text)
    except ValueError:
        raise typer.BadParameter("USD over 0, with 9 decimals at most, such as 2.50",
                                 param_hint="--max-usd") from None


def _identity(card: CardFile, workflow: str, fixtures: Fixtures,
              sides: "dict[str, Side]", call: str) -> Json:
    """What results belong to: other cases, another model or another check of the
    answer are another measurement."""
    flow = card.data["workflows"][workflow]
    output = json.loads(json.dumps((flow.get("requires") or {}).get("output") or {},
                                   default=float))
    out: Json = {"workflow": workflow, "fixtures": fixtures.identity,
                 "cases": len(fixtures.cases),
                 "output": hashlib.sha256(canonical(output, card.path)).hexdigest()[:16]}
    contract = card.contract(workflow, sides["route"].route["name"]) or {}
    out["drop_tools"] = sorted((contract.get("changes") or {}).get("drop_tools") or ())
    for name, side in sides.items():
        place = urllib.parse.urlsplit(side.route["base_url"] or "")
        out[name] = {key: side.route[key] for key in (
            "name", "provider", "model", "version", "api")}
        # Without a query, which may hold a key.
        out[name]["at"] = call or f"{place.scheme}://{place.netloc}{place.path}"
    return out


# ---- the run


@contextlib.contextmanager
def _progress(total: int) -> "typing.Iterator[typing.Callable[[str, str], None]]":
    """A bar on a terminal; else a line for each tenth, on standard error."""
    seen = {"passed": 0, "failed": 0, "error": 0}
    with Progress(console=Console(stderr=True), transient=True,
                  disable=not sys.stderr.isatty()) as bars:
        task = bars.add_task("cases", total=total)

        def show(side: str, result: str) -> None:
            seen[result] += 1
            count = sum(seen.values())
            words = ", ".join(f"{n} {word}" for word, n in seen.items() if n)
            if sys.stderr.isatty():
                bars.update(task, advance=1, description=words)
            elif count * _LINES // total != (count - 1) * _LINES // total:
                typer.echo(f"{count} of {total}: {words}", err=True)

        yield show


def _prints_aside() -> "contextlib.AbstractContextManager[object]":
    """What a function of the user's prints goes to standard error: the report alone
    is on standard output."""
    return contextlib.redirect_stdout(sys.stderr)


async def _run(run: Run, targets: "dict[str, Target]") -> "Stop | None":
    try:
        return await run.run()
    finally:
        for target in targets.values():
            await target.close()


def _report(results: Results, fixtures: Fixtures, identity: Json, cap: Cap,
            stopped: "Stop | None", provides: Json) -> Json:
    cases = len(fixtures.cases)
    return {
        "workflow": identity["workflow"], "primary": identity["primary"]["name"],
        "route": identity["route"]["name"], "fixtures": fixtures.identity,
        "cases": cases, "skipped": fixtures.skipped, "results": results.path,
        "stopped": None if stopped is None else {
            "kind": stopped.kind, "why": stopped.why,
            "left": 2 * cases - len(results.done)},
        "sides": {name: side_of(results, name, cases) for name in ("primary", "route")},
        "failing": [{"id": line["id"], "side": line["side"], "result": line["result"],
                     "reasons": line["reasons"]}
                    for line in results.done.values() if line["result"] != "passed"],
        "operations": operations(results, provides),
        "cost_usd": usd(cap.spent_nusd), "lost_usd": usd(results.lost_nusd),
        "lost": results.lost,
        "unbilled": sum(not line["billed"] for line in results.done.values()),
        "evidence": None, "removed": [], "quality": None}


def _write_evidence(card: CardFile, report: Json, evidence: Json) -> None:
    """Puts the evidence into the card, and takes out an approval of the old one."""
    workflow, route = report["workflow"], report["route"]
    before = card.contract(workflow, route) or {}
    report["evidence"] = evidence
    report["removed"] = [key for key in _APPROVAL if key in before]
    card.put_contract(workflow, route, {
        **dict.fromkeys(report["removed"]), "evidence": evidence})
    card.save()


def verify(
    card: typing.Annotated[str, typer.Argument(help="The card, JSON or YAML.")],
    workflow: typing.Annotated[str, typer.Option(help="The workflow.")],
    route: typing.Annotated[str, typer.Option(help="The stand-in to measure.")],
    fixtures: typing.Annotated[Many, typer.Option(
        metavar="FILE", help="Cases: rows of fivegates, promptfoo, Inspect or OpenAI "
        "evals; again for more.")],
    out: typing.Annotated[str, typer.Option(
        metavar="FILE", help="The results, a line a case; a run that was stopped goes on "
        "from them. Default: CARD.WORKFLOW.ROUTE.jsonl")] = "",
    fresh: typing.Annotated[bool, typer.Option(
        "--fresh", help="Begin anew; the old results are kept as FILE.old.")] = False,
    concurrency: typing.Annotated[int, typer.Option(
        min=1, max=256, help="Cases asked at once, both sides together.")] = 4,
    max_usd: typing.Annotated[str, typer.Option(
        metavar="USD", help="What all may cost, resumed runs included.")] = "",
    no_price: typing.Annotated[bool, typer.Option(
        "--no-price", help="Let routes without a price count as costing nothing.")] = False,
    days: typing.Annotated[int, typer.Option(
        min=1, max=3650, help="How long the evidence holds.")] = 90,
    primary_url: typing.Annotated[str, typer.Option(
        metavar="URL", help="Where the primary is asked; default: its base_url.")] = "",
    route_url: typing.Annotated[str, typer.Option(
        metavar="URL", help="Where the stand-in is asked; default: its base_url.")] = "",
    call: typing.Annotated[str, typer.Option(
        metavar="MODULE:FUNCTION", help="Ask by function(request, route) instead.")] = "",
    scorer: typing.Annotated[typing.Optional[Many], typer.Option(
        metavar="NAME", help="The scorer of rows that state only what is expected, or a "
        "module:function that rows may name; again for more.")] = None,
    skip_unsupported: typing.Annotated[bool, typer.Option(
        "--skip-unsupported", help="Leave out and count rows that cannot be mapped.")] = False,
    keep_answers: typing.Annotated[bool, typer.Option(
        "--keep-answers", help="Write the answers into the results.")] = False,
    as_json: typing.Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure a stand-in beside its primary, and write the evidence into the card.

    Exit codes: 0 the evidence is written and satisfies requires.quality; 1 it is
    written and does not; 2 bad input; 3 stopped by the cap, an outage or a signal:
    nothing was written into the card, the same command goes on.
    """
    file = CardFile.open(card)
    the_pair(file, workflow, route)
    primary = str(file.data["workflows"][workflow]["routes"][0])
    if (file.contract(workflow, route) or {}).get("twin"):
        words = f"{route} is a twin: what its model decides is the primary's, and not measured"
        if as_json:
            print_json({"workflow": workflow, "route": route, "twin": True})
        else:
            typer.echo(words)
        return
    file.check_writable()  # before anything is paid
    try:
        with _prints_aside():
            default, functions = _functions(scorer or ())
        sides = {"primary": _side(file, workflow, "primary", primary, primary_url),
                 "route": _side(file, workflow, "route", route, route_url)}
        found = read_fixtures(fixtures, default, functions, skip_unsupported)
        with _prints_aside():
            targets = _targets(sides, call, concurrency)
    except ScorerError as exc:
        raise ContractError(str(exc)) from None
    limit = _nusd(max_usd)
    _refuse_unmeasurable(file, workflow, found, sides, limit, no_price)
    _check_cases(found, sides, targets, limit is not None)
    identity = _identity(file, workflow, found, sides, call)
    path = out or f"{pathlib.Path(card).stem}.{workflow}.{route}.jsonl".replace("/", "_")
    with contextlib.closing(Results.open(path, identity, fresh)) as results:
        strange = {name for name, _ in results.done} - {one.id for one in found.cases}
        if strange:
            raise ContractError(f"{path}: has the case {min(strange)}, which the fixtures "
                                "have not; begin anew with --fresh")
        cap = Cap(limit, results.spent_nusd)
        engine = fivegates.Engine(fivegates.Policy.loads(measuring_card(
            file.data, workflow, {"primary": primary, "route": route}), json=True))
        left = 2 * len(found.cases) - sum(
            line["result"] != "error" for line in results.done.values())
        with _progress(max(left, 1)) as show, _prints_aside():
            run = Run(found.cases, sides, targets, engine, results, cap, concurrency,
                      streamed=not call, keep_answers=keep_answers, show=show,
                      say=lambda words: typer.echo(words, err=True))
            stopped = asyncio.run(_run(run, targets))
        report = _report(results, found, identity, cap, stopped,
                         file.data["routes"][route].get("provides") or {})
        code = 3
        if stopped is None:
            evidence = evidence_of_run(results, found.identity, len(found.cases), days)
            required, holds = quality(file.data, workflow, route, evidence)
            report["quality"] = {"required": required, "holds": holds}
            _write_evidence(file, report, {**evidence, **models_of(identity)})
            code = 0 if holds else 1
    if as_json:
        print_json(report)
    else:
        Console(highlight=False, soft_wrap=True).print(terminal(report, card))
    if code:
        raise typer.Exit(code)


def _refuse_unmeasurable(file: CardFile, workflow: str, found: Fixtures,
                         sides: "dict[str, Side]", limit: "int | None",
                         no_price: bool) -> None:
    """Refuses before anything is paid what could never satisfy the card."""
    required = ((file.data["workflows"][workflow].get("requires") or {})
                .get("quality") or {})
    where = f"{file.path}: workflows.{workflow}.requires.quality"
    if required.get("fixtures", found.identity) != found.identity:
        raise ContractError(f"{where}.fixtures is {required['fixtures']}, and these are "
                            f"{found.identity}; give the fixtures it names")
    if required.get("cases_min", 0) > len(found.cases):
        raise ContractError(f"{where}.cases_min is {required['cases_min']}, and there are "
                            f"{len(found.cases)} cases; give more")
    for side in sides.values():
        if limit is not None and side.price is None and not no_price:
            raise ContractError(f"{file.path}: routes.{side.route['name']}.price is "
                                "missing, so --max-usd cannot be held; state it, or say "
                                "--no-price")
