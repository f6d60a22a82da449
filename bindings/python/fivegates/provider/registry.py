"""The register of faults: name, meaning, parameters, and what plays it."""

from __future__ import annotations

import difflib
import typing

from fivegates.provider.exchange import Exchange
from fivegates.provider.settings import Node, SettingsError, read_value

__all__ = ["FAULTS", "Fault", "GROUPS", "Param", "Step", "fault", "step_of",
           "step_of_text"]

Json = typing.Dict[str, typing.Any]
Play = typing.Callable[..., typing.Awaitable[None]]


class Param(typing.NamedTuple):
    """A number that a fault can be given."""

    default: float
    low: float
    high: float
    why: str
    whole: bool = False


class Fault(typing.NamedTuple):
    """Something that can be done to a request."""

    name: str
    group: str
    why: str
    params: "dict[str, Param]"
    play: Play


class Step(typing.NamedTuple):
    """A fault with its numbers, as one entry of a script."""

    fault: Fault
    values: "dict[str, float]"
    state: Json  # of the fault, across requests

    async def play(self, x: Exchange) -> None:
        x.state = self.state
        await self.fault.play(x, **self.values)


FAULTS: "dict[str, Fault]" = {}
# From what every provider does under load down to the connection's bytes.
GROUPS = ("load", "status", "answer", "stream", "wire")


def fault(group: str, why: str, **params: Param,
          ) -> "typing.Callable[[Play], Play]":
    """Registers a coroutine function of (exchange, **numbers) by its name."""
    def register(play: Play) -> Play:
        FAULTS[play.__name__] = Fault(play.__name__, group, why, params, play)
        return play
    return register


def _find(name: str, at: Node) -> Fault:
    if name not in FAULTS:
        near = difflib.get_close_matches(name, FAULTS, 1)
        hint = f"did you mean {near[0]}?" if near else "see --list"
        raise at.error(f"no fault is called {name}; {hint}")
    return FAULTS[name]


def step_of(node: Node) -> Step:
    """A fault's name, or {fault: name, number: value, ...}."""
    if isinstance(node.value, str):
        return _step(_find(node.value, node), {})
    entries = node.entries()
    if "fault" not in entries:
        raise node.error('a fault is a name, or an object with "fault"')
    found = _find(entries["fault"].text(), entries["fault"])
    table = node.table(["fault", *found.params])
    return _step(found, {key: one for key, one in table.items()
                         if key != "fault"})


def _step(found: Fault, given: "dict[str, Node]") -> Step:
    values = {name: one.default for name, one in found.params.items()}
    for name, node in given.items():
        param = found.params[name]
        values[name] = node.number(param.low, param.high, param.whole)
    for name, param in found.params.items():
        if param.whole:
            values[name] = int(values[name])
    return Step(found, values, {})


def step_of_text(text: str, option: str) -> Step:
    """NAME or NAME:number=value,... of the command line."""
    name, _, rest = text.partition(":")
    value: Json = {"fault": name}
    for pair in filter(None, rest.split(",")):
        key, mark, number = pair.partition("=")
        try:
            value[key] = float(number)
        except ValueError:
            raise SettingsError(f"{option} {text}: {pair} is not number=value"
                                ) from None
    return step_of(read_value(value, f"{option} {text}"))
