"""`fivegates contract approve`: the signature under what was measured."""

from __future__ import annotations

import sys
import typing

import typer

from fivegates.contract.cards import CardFile, ContractError, Json
from fivegates.contract.dates import now_ms, rfc3339, unix_ms
from fivegates.contract.judge import Finding, Judged, judged, the_pair
from fivegates.contract.show import details, moment, print_json, print_wide, remedies

__all__ = ["approve"]

_DAY_MS = 86_400_000


def _until(one: Judged, expires: str, days: "int | None") -> "str | None":
    """The new expires_at; None: that of the evidence stays.

    An approval may end before its evidence, not outlive it.
    """
    if not expires and days is None:
        return None
    if expires and days is not None:
        raise ContractError("--expires and --days: give one of them")
    given = f"--days {days}" if days is not None else f"--expires {expires}"
    at = unix_ms(expires) if days is None else one.now + days * _DAY_MS
    if at is None:
        raise ContractError(f"{given}: not a date; write one such as 2027-02-01")
    if at <= one.now:
        raise ContractError(f"{given}: that is over already; name a later day")
    evidence = one.date("expires_at")
    if evidence is not None and at > evidence:
        raise ContractError(
            f"{given}: the evidence expires before that, "
            f"{(one.contract or {})['evidence']['expires_at']}; name an earlier "
            "day, or measure again for a later one")
    return expires or rfc3339(at)


def _against(one: Judged, until: "str | None", holds: bool) -> "list[Finding]":
    """What no signature mends."""
    evidence = (one.contract or {}).get("evidence")
    measured = not holds and bool(evidence)  # of a twin nothing was measured

    def mended(found: Finding) -> bool:
        if found.key == "price":  # the new one is what is approved
            return one.price is not None
        if found.key == "fingerprint":
            return not measured
        return (found.key, found.state) == ("evidence.expires_at", "unknown") and (
            until is not None)

    return [found for found in one.findings if not mended(found)]


def _values(one: Judged, by: str, until: "str | None") -> Json:
    contract = one.contract or {}
    before = [name.strip() for name in (contract.get("approved_by") or "").split(",")]
    names = [name for name in before if name and one.approved]
    values: Json = {"fingerprint": one.fingerprint,
                    "approved_by": ", ".join(dict.fromkeys([*names, by])),
                    "price": one.price}
    if until is not None:
        values["evidence"] = {**(contract.get("evidence") or {}), "expires_at": until}
    return values


def _report(one: Judged, written: bool, missing: "list[str]") -> Json:
    return {"approved": one.approved, "written": written, "missing": missing,
            "stand_in": one.to_dict()}


def _sure(one: Judged, yes: bool, question: str, as_json: bool) -> None:
    """Asks on a terminal; elsewhere --yes has to say it."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise ContractError("nobody is there to ask; say --yes to approve "
                            f"{one.route} for {one.workflow}")
    if not typer.confirm(question, err=True):
        typer.echo("nothing was written", err=True)
        if as_json:
            print_json(_report(one, False, []))
        raise typer.Exit(1)


def approve(
    card: typing.Annotated[str, typer.Argument(help="The card, JSON or YAML.")],
    workflow: typing.Annotated[str, typer.Option(help="The workflow.")],
    route: typing.Annotated[str, typer.Option(help="Its stand-in.")],
    by: typing.Annotated[str, typer.Option(
        metavar="WHO", help="Who approves, such as a mail address.")],
    expires: typing.Annotated[str, typer.Option(
        metavar="DATE", help="When the approval ends, at latest with its "
        "evidence. Default: with it.")] = "",
    days: typing.Annotated[typing.Optional[int], typer.Option(
        min=1, max=36500, help="The same, in days from now.")] = None,
    evidence_holds: typing.Annotated[bool, typer.Option(
        "--evidence-holds", help="What changed since the approval is neither the "
        "model nor its version nor what the fixtures test: what was measured "
        "then holds.")] = False,
    yes: typing.Annotated[bool, typer.Option(
        "--yes", help="Do not ask.")] = False,
    now: typing.Annotated[str, typer.Option(
        metavar="DATE", help="As if it were this time, RFC 3339 or a day.")] = "",
    as_json: typing.Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Approve a stand-in: write the fingerprint, the price and who says so.

    Exit code 1: one of the eight checks does not hold, or the answer was no;
    then nothing is written.
    """
    by = by.strip()
    if not by or not by.isprintable() or len(by.encode()) > 200:
        raise ContractError("--by: name who approves, in 1 to 200 bytes of printable text")
    file = CardFile.open(card)
    the_pair(file, workflow, route)
    one = judged(file, workflow, route, moment(now))
    until = _until(one, expires, days)
    missing = _against(one, until, evidence_holds)
    if not as_json:
        print_wide(details(one, remedies(one) if missing or one.contract is None
                           else ()))
    if missing or one.contract is None:
        _refuse(one, missing, as_json)
    file.put_contract(workflow, route, _values(one, by, until))
    if not file.changed:
        _say(one, False, f"already approved by {one.contract['approved_by']}; "
             "nothing was written", as_json)
        return
    if one.approved:
        typer.echo(f"already approved by {one.contract.get('approved_by', 'nobody named')}"
                   "; this changes that approval", err=True)
    after = judged(file, workflow, route, one.now)
    if not after.approved:
        raise ContractError(f"{card}: the engine would not approve: {after.reason}; "
                            "nothing was written")
    _sure(one, yes, f"approve {route} as a stand-in for {workflow}, as {by}?", as_json)
    file.save()
    written = judged(CardFile.open(card), workflow, route, one.now)
    if not written.approved:
        raise ContractError(f"{card}: another program changed it: {written.reason}; "
                            "look at it with fivegates contract show")
    if now:
        _by_the_clock(judged(CardFile.open(card), workflow, route, now_ms()))
    _say(written, True, f"approved: {route} may stand in for {workflow}", as_json)


def _by_the_clock(one: Judged) -> None:
    """--now is no time that a call knows."""
    if not one.approved:
        typer.echo(f"by the clock of this machine it is {one.reason}: no call uses "
                   f"{one.route} before that is mended", err=True)


def _refuse(one: Judged, missing: "list[Finding]", as_json: bool) -> typing.NoReturn:
    if as_json:
        print_json({**_report(one, False, remedies(one)), "approved": False})
    else:
        typer.echo("not approved; nothing was written", err=True)
    keys = {found.key for found in missing}
    if "fingerprint" in keys and not keys & {"evidence.route", "evidence.primary"}:
        typer.echo("where the model, its version and what the fixtures test are what "
                   "they were, --evidence-holds says so", err=True)
    raise typer.Exit(1)


def _say(one: Judged, written: bool, text: str, as_json: bool) -> None:
    if as_json:
        print_json(_report(one, written, []))
    else:
        typer.echo(text)
