"""The eight checks of a stand-in, each key of them judged by the engine.

Nothing is compared here. For each thing that is required the engine is asked
about a card that requires only this one, so what is said of a key cannot differ
from what the engine makes of it; the verdict on the whole is the engine's on
the whole card.
"""

from __future__ import annotations

import dataclasses
import json
import shlex
import typing

from fivegates._core import Policy
from fivegates.contract.cards import CardFile, ContractError, Json
from fivegates.contract.dates import barred_by_dates, day_of, rfc3339, unix_ms

__all__ = ["SECTIONS", "Check", "Finding", "Judged", "command", "judged", "near",
           "stand_ins", "the_pair"]

SECTIONS = ("input", "output", "tools", "safety", "data", "operations",
            "economics", "quality")
_OF_THE_MODEL = ("input", "output", "tools", "quality")  # what a twin inherits
_NEEDED = ("cases", "passed", "score_ppm", "measured_at", "expires_at")
_GOOD = {"cases": 10**9, "passed": 10**9, "score_ppm": 10**6,
         "primary_score_ppm": 10**6, "measured_at": "2000-01-01",
         "expires_at": "9999-01-01"}
_MODELS = ("route", "primary")  # of the evidence: what was measured
_WORST = ("failed", "unknown", "stale")


@dataclasses.dataclass
class Finding:
    """One thing that a check lacks.

    key: its name as section.key, or evidence.key, fingerprint, price; state:
    failed (it is known not to hold), unknown (nobody has stated it), stale (it
    held for what was measured or approved, and no longer; of evidence.route and
    evidence.primary required is what the card names now). required and
    provided are as the card states them, None where it does not.
    """

    key: str
    state: str
    required: object
    provided: object
    remedy: str


@dataclasses.dataclass
class Check:
    """One of the eight sections: passed, or the worst state of its findings.

    required: how many keys the workflow requires here; inherited: a twin has
    this from the primary, and it is not looked at.
    """

    section: str
    required: int = 0
    inherited: bool = False
    findings: "list[Finding]" = dataclasses.field(default_factory=list)

    @property
    def state(self) -> str:
        states = {one.state for one in self.findings}
        return next((one for one in _WORST if one in states), "passed")


@dataclasses.dataclass
class Judged:
    """A stand-in: the engine's verdict, and the eight checks that explain it.

    approved and reason are the engine's own, dates included; fingerprint is
    that of the card as it is, to be approved or approved; path is the card's.
    """

    path: str
    workflow: str
    route: str
    approved: bool
    reason: "str | None"
    fingerprint: str
    contract: "Json | None"
    price: "Json | str | None"
    now: int
    checks: "list[Check]"

    @property
    def findings(self) -> "list[Finding]":
        return [one for check in self.checks for one in check.findings]

    def command(self, name: str, more: str = "") -> str:
        """The command that does something to this stand-in, to be copied."""
        return command(self.path, self.workflow, self.route, name, more)

    def date(self, key: str) -> "int | None":
        """measured_at or expires_at, in milliseconds since 1970."""
        evidence = (self.contract or {}).get("evidence") or {}
        return unix_ms(evidence.get(key) or "")

    def to_dict(self) -> Json:
        contract = self.contract or {}
        return {
            "workflow": self.workflow, "route": self.route,
            "approved": self.approved, "reason": self.reason,
            "fingerprint": self.fingerprint,
            "approved_fingerprint": contract.get("fingerprint"),
            "approved_by": contract.get("approved_by"),
            "price": self.price, "approved_price": contract.get("price"),
            "evidence": contract.get("evidence"), "now": rfc3339(self.now),
            "checks": [{"section": one.section, "state": one.state,
                        "required": one.required, "inherited": one.inherited,
                        "findings": [dataclasses.asdict(each)
                                     for each in one.findings]}
                       for one in self.checks]}


def command(path: str, workflow: str, route: str, name: str, more: str = "") -> str:
    """A command about a stand-in, to be copied; more: what a person fills in."""
    words = (path, "--workflow", workflow, "--route", route)
    return f"fivegates contract {name} {shlex.join(words)} {more}".rstrip()


# ---- which stand-ins a card has


def stand_ins(card: Json) -> "list[tuple[str, str]]":
    """Every stand-in of every workflow of a card that loads: (workflow, route)."""
    out: "list[tuple[str, str]]" = []
    for name, workflow in card["workflows"].items():
        routes = list(workflow["routes"])[1:] + [
            step["route"] for step in workflow.get("ladder") or ()
            if "route" in step]
        out += [(name, route) for route in dict.fromkeys(routes)]
    return out


def near(name: str, names: "typing.Iterable[str]") -> str:
    """What was meant by a name that there is not, as the end of a sentence."""
    import difflib

    names = list(names)
    found = difflib.get_close_matches(name, names, 1, 0.5)
    if found:
        return f"did you mean {found[0]}?"
    return f"there is {', '.join(names[:8])}{' ...' if names[8:] else ''}" if (
        names) else "there is none"


def the_pair(card: CardFile, workflow: str, route: str) -> None:
    """ContractError where a workflow has no such stand-in, with what was meant."""
    pairs = stand_ins(card.data)
    if workflow not in card.policy.workflows():
        raise ContractError(f"{card.path}: no workflow is called {workflow}; "
                            + near(workflow, card.policy.workflows()))
    if (workflow, route) in pairs:
        return
    own = [name for of, name in pairs if of == workflow]
    primary = card.data["workflows"][workflow]["routes"][0]
    if route == primary:
        raise ContractError(f"{card.path}: {route} is the primary of {workflow} "
                            "and needs no contract; name a stand-in, "
                            + near(route, own))
    if route in card.policy.routes():
        raise ContractError(f"{card.path}: workflow {workflow} does not use route "
                            f"{route}; add it to workflows.{workflow}.routes")
    raise ContractError(f"{card.path}: no route is called {route}; "
                        + near(route, own or card.policy.routes()))


# ---- the engine, asked for one thing at a time


class _Probe:
    """Cards of two routes that differ from the real one in what they require."""

    def __init__(self, card: CardFile, workflow: str, route: str) -> None:
        data, self.route = card.data, route
        self.primary = data["workflows"][workflow]["routes"][0]
        self.twin = bool((card.contract(workflow, route) or {}).get("twin"))
        keys = ("provider", "model", "version", "price", "provides")
        self.routes = {name: {key: data["routes"][name][key] for key in keys
                              if key in data["routes"][name]}
                       for name in (self.primary, route)}

    def barred(self, requires: Json, evidence: Json,
               floor: "int | None" = None) -> "str | None":
        """The engine's reason against a stand-in that only this is required
        of; floor: the least score of a smaller model's step."""
        workflow: Json = {"routes": [self.primary], "requires": requires}
        if floor is None:
            workflow["routes"].append(self.route)
        else:
            workflow["ladder"] = [{"step": "smaller_model", "route": self.route,
                                   "min_score_ppm": floor}]
        contract = {"workflow": "w", "route": self.route, "fingerprint": "auto",
                    "twin": self.twin, "evidence": evidence}
        text = json.dumps({"version": 1, "routes": self.routes, "workflows": {
            "w": workflow}, "contracts": [contract]}, default=float)
        policy = Policy.loads(text, auto_fingerprint=True, json=True)
        said = policy.contract("w", self.route)
        return None if said["approved"] else str(said["barred"])


def judged(card: CardFile, workflow: str, route: str, now: int) -> Judged:
    """Judges a stand-in at a wall time (milliseconds since 1970)."""
    contract = card.contract(workflow, route)
    said = card.policy.contract(workflow, route)
    reason = said["barred"]
    if said["approved"]:
        reason = barred_by_dates(contract or {}, now)
    price = card.data["routes"][route].get("price")
    probe = _Probe(card, workflow, route)
    checks = {one: Check(one, inherited=probe.twin and one in _OF_THE_MODEL)
              for one in SECTIONS}
    out = Judged(card.path, workflow, route, bool(said["approved"]) and reason is None, reason,
                 said["fingerprint"], contract, price, now, list(checks.values()))
    requires = card.data["workflows"][workflow].get("requires") or {}
    for section, keys in requires.items():
        for key, wanted in (keys or {}).items():
            checks[section].required += 1
            if section != "quality" and probe.barred(
                    {section: {key: wanted}}, _GOOD) is not None:
                checks[section].findings.append(
                    _lacking(out, card, section, key, wanted))
    _evidence(out, checks["quality"], probe, requires.get("quality") or {},
              _floor(card, workflow, route))
    _stale(out, checks)
    return out


def _lacking(out: Judged, card: CardFile, section: str, key: str,
             wanted: object) -> Finding:
    """A required key that the engine says does not hold."""
    at = f"routes.{out.route}"
    if (section, key) == ("economics", "price_max"):
        has, place = out.price, f"{at}.price"
    else:
        provides = card.data["routes"][out.route].get("provides") or {}
        has, place = (provides.get(section) or {}).get(key), (
            f"{at}.provides.{section}.{key}")
    if has is None:
        return Finding(f"{section}.{key}", "unknown", wanted, None,
                       f"find out, and state {place}")
    return Finding(
        f"{section}.{key}", "failed", wanted, has,
        f"another route, or workflows.{out.workflow}.requires.{section}.{key} less "
        f"strict; correct {place} if it is wrong")


def _floor(card: CardFile, workflow: str, route: str) -> "int | None":
    """The least score of a smaller model that is no other stand-in too."""
    here = card.data["workflows"][workflow]
    if route in here["routes"]:
        return None
    return max((step["min_score_ppm"] for step in here.get("ladder") or ()
                if step.get("route") == route and "min_score_ppm" in step), default=None)


def _evidence(out: Judged, check: Check, probe: _Probe, requires: Json,
              floor: "int | None") -> None:
    """What is missing of the evidence, or not good enough."""
    stated: Json = (out.contract or {}).get("evidence") or {}
    verify = out.command("verify", "--fixtures FILE")
    for side, name in zip(_MODELS, (out.route, probe.primary)):
        if side in stated and probe.barred({}, {**_GOOD, side: stated[side]}) is not None:
            check.findings.append(Finding(
                f"evidence.{side}", "stale",
                {key: probe.routes[name][key] for key in ("provider", "model", "version")
                 if key in probe.routes[name]}, stated[side],
                "measure again: " + verify))
    evidence = {key: value for key, value in stated.items() if key not in _MODELS}
    if probe.barred({}, evidence) == "missing_evidence":
        for key in _NEEDED:
            if not evidence.get(key) and (key == "cases" or key not in evidence):
                check.findings.append(Finding(f"evidence.{key}", "unknown", None,
                                              evidence.get(key), verify))
        return
    asked: "list[tuple[Json, int | None, str, object]]" = [
        ({"quality": {key: wanted}}, None, f"quality.{key}", wanted)
        for key, wanted in requires.items()]
    if floor is not None:
        asked.append(({}, floor, "ladder.min_score_ppm", floor))
        check.required += 1
    for need, least, key, wanted in asked:
        if probe.barred(need, evidence, least) is not None:
            check.findings.append(Finding(
                key, "failed", wanted, _measured(key, evidence),
                "another route, or fixtures that show more: " + verify))
    dates = barred_by_dates(out.contract or {}, out.now)
    if dates == "contract_expired":
        check.findings.append(Finding(
            "evidence.expires_at", "stale", f"after {day_of(out.now)}",
            evidence["expires_at"], "measure again: " + verify))
    elif dates is not None:
        check.findings.append(Finding(
            "evidence.measured_at", "unknown", f"not after {day_of(out.now)}",
            evidence["measured_at"], "set the clock of this machine, or correct "
            "the date"))


def _measured(key: str, evidence: Json) -> object:
    if key == "quality.max_drop_ppm":
        best = evidence.get("primary_score_ppm", 10**6)
        return max(best - evidence["score_ppm"], 0)
    names = {"quality.cases_min": "cases", "quality.fixtures": "fixtures"}
    return evidence.get(names.get(key, "score_ppm"))


def _stale(out: Judged, checks: "dict[str, Check]") -> None:
    """What was approved, and is another thing now."""
    contract = out.contract or {}
    approved = contract.get("fingerprint")
    if approved and approved != out.fingerprint:
        checks["quality"].findings.append(Finding(
            "fingerprint", "stale", out.fingerprint, approved,
            "the model, its version, or what is required or provided changed since "
            "the approval; measure again: "
            + out.command("verify", "--fixtures FILE")))
    if "price" in contract and not _same_price(contract["price"], out.price):
        checks["economics"].findings.append(Finding(
            "price", "stale", contract["price"], out.price,
            "look at what it costs now, and approve again" if out.price is not None
            else f"state routes.{out.route}.price"))


def _same_price(approved: "Json | str", now: "Json | str | None") -> bool:
    """As the engine compares them: asked of a card with these two."""
    route: Json = {"provider": "p", "model": "m"}
    if now is not None:
        route["price"] = now
    contract = {"workflow": "w", "route": "b", "fingerprint": "auto",
                "evidence": _GOOD, "price": approved}
    text = json.dumps({
        "version": 1, "routes": {"a": {"provider": "p", "model": "m"}, "b": route},
        "workflows": {"w": {"routes": ["a", "b"]}}, "contracts": [contract]},
        default=float)
    return bool(Policy.loads(text, auto_fingerprint=True, json=True).contract(
        "w", "b")["approved"])
