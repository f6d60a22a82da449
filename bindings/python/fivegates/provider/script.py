"""A script: which fault a request meets.

    speed: {tokens_per_s: 700, output_tokens: 12}
    faults: [server_error, {fault: cut, after_tokens: 3}, ok]

The first request meets the first fault, the second the second; the last stays.
`per: conversation` counts the sendings of each conversation by itself.
`routes` has lists for paths that begin with a name (/main/v1/...), `phases`
has lists for spans of time.
"""

from __future__ import annotations

import collections
import dataclasses
import typing

from fivegates.provider import (faults_answer, faults_load, faults_status,
                                faults_stream, faults_wire)
from fivegates.provider.exchange import Speed
from fivegates.provider.registry import FAULTS, Step, step_of
from fivegates.provider.settings import Node

__all__ = ["Phase", "Script", "plain_script", "read_script"]

# Importing these registers their faults.
_GROUPS = (faults_load, faults_status, faults_stream, faults_answer,
           faults_wire)

_SPEED: "dict[str, tuple[float, float, bool]]" = {
    "first_token_s": (0, 3600, False),
    "prompt_tokens_per_s": (0.1, 1e9, False),
    "tokens_per_s": (0.01, 1e6, False),
    "output_tokens": (1, 100_000, True),
    "slots": (0, 100_000, True),
}


@dataclasses.dataclass
class Phase:
    """A span of time; for_s None: it has no end."""

    for_s: "float | None"
    faults: "list[Step]"
    routes: "dict[str, list[Step]]"


@dataclasses.dataclass
class Script:
    """What read_script() read, and how far it has been played."""

    speed: Speed
    phases: "list[Phase]"
    per_conversation: bool = False
    _seen: "collections.Counter[tuple[int, str, str]]" = dataclasses.field(
        default_factory=collections.Counter)

    def phase_at(self, seconds: float) -> "tuple[int, Phase]":
        """The phase so long after the script began."""
        for number, phase in enumerate(self.phases):
            if phase.for_s is None or seconds < phase.for_s:
                return number, phase
            seconds -= phase.for_s
        return len(self.phases) - 1, self.phases[-1]

    def next(self, path: str, key: str, seconds: float) -> Step:
        """The fault of the next request with this path and conversation."""
        number, phase = self.phase_at(seconds)
        first = path.lstrip("/").partition("/")[0]
        route = first if first in phase.routes else ""
        steps = phase.routes.get(route, phase.faults)
        place = (number, route, key if self.per_conversation else "")
        self._seen[place] += 1
        return steps[min(self._seen[place], len(steps)) - 1]

    def describe(self) -> "list[str]":
        """The names of the faults of each phase, for people."""
        return [", ".join([step.fault.name for step in phase.faults] + [
            f"{route}: " + " ".join(step.fault.name for step in steps)
            for route, steps in phase.routes.items()])
            for phase in self.phases]


def plain_script(steps: "list[Step]", speed: Speed = Speed(),
                 per_conversation: bool = False) -> Script:
    """A script of one list."""
    return Script(speed, [Phase(None, steps, {})], per_conversation)


def _read_speed(node: "Node | None") -> Speed:
    if node is None:
        return Speed()
    table = node.table([*_SPEED, "frees_when_left"])
    values: "dict[str, typing.Any]" = {}
    for name, one in table.items():
        if name == "frees_when_left":
            values[name] = one.flag()
        else:
            values[name] = one.number(*_SPEED[name])
    return Speed(**values)


def _read_steps(node: Node) -> "list[Step]":
    if isinstance(node.value, str):
        return [step_of(node)]
    return [step_of(one) for one in node.items()]


def _read_phase(node: Node, table: "dict[str, Node]") -> Phase:
    if "faults" not in table and "routes" not in table:
        raise node.error('"faults" is missing: a list of faults, like '
                         "[server_error, ok]")
    routes = {name: _read_steps(one) for name, one in (
        table["routes"].entries() if "routes" in table else {}).items()}
    faults = (_read_steps(table["faults"]) if "faults" in table
              else [Step(FAULTS["ok"], {}, {})])
    for_s = table["for_s"].number(0.01, 1e9) if "for_s" in table else None
    return Phase(for_s, faults, routes)


def read_script(node: Node) -> Script:
    """A script; SettingsError where it is not one."""
    table = node.table(["speed", "per", "faults", "routes", "phases"])
    per = table["per"].text() if "per" in table else "server"
    if per not in ("server", "conversation"):
        raise table["per"].error(f"must be server or conversation, not {per}")
    speed = _read_speed(table.get("speed"))
    if "phases" not in table:
        return Script(speed, [_read_phase(node, table)], per == "conversation")
    for other in ("faults", "routes"):
        if other in table:
            raise table[other].error("stands beside phases; put it into one "
                                     "of them")
    phases = []
    items = table["phases"].items()
    for i, one in enumerate(items):
        phase = _read_phase(one, one.table(["for_s", "faults", "routes"]))
        if phase.for_s is None and i < len(items) - 1:
            raise one.error('"for_s" is missing: only the last phase has no '
                            "end")
        phases.append(phase)
    return Script(speed, phases, per == "conversation")
