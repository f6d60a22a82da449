"""What one run of a call used: a ledger's sums are those of the whole call.

A call may go on for many runs (steps of an agent's loop, a redelivery from a
queue). Tokens, money and time in its lines grow over all of them; what is to
be counted is what each run added.
"""

from __future__ import annotations

import collections
import threading
import typing

Line = typing.Dict[str, typing.Any]

# Calls remembered after a run, for their next one; about 1 MiB. A forgotten
# call's next run still knows its sums, by its first decision, but not what
# of them was held.
_REMEMBERED = 4096


class Used(typing.NamedTuple):
    """Sums of a call; or what a run added to them, never less than nothing.

    held_usd is money whose bill is not known. Held at one run's end and
    settled in the next, it counts in both.
    """

    elapsed_s: float = 0.0
    tokens: int = 0
    settled_usd: float = 0.0
    held_usd: float = 0.0

    def since(self, base: "Used") -> "Used":
        return Used(max(0.0, self.elapsed_s - base.elapsed_s),
                    max(0, self.tokens - base.tokens),
                    max(0.0, self.settled_usd - base.settled_usd),
                    max(0.0, self.held_usd - base.held_usd))


def _sums(line: Line, held_usd: float) -> Used:
    return Used(line["elapsed_ms"] / 1000, line["tokens"],
                float(line["cost_usd"]) - held_usd, held_usd)


def is_permit(line: Line) -> bool:
    """Whether a decision is the permission to send; the plan of a first
    attempt has the same action, but holds no money yet."""
    return line["action"] == "proceed" and "held_usd" in line


class Runs:
    """Follows calls through their lines."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bases: "collections.OrderedDict[str, Used]" = collections.OrderedDict()
        self._begun: "collections.OrderedDict[str, None]" = collections.OrderedDict()

    def began(self, line: Line) -> None:
        """A call line came: the next decision has the sums it starts from."""
        with self._lock:
            _keep(self._begun, line["call"], None)

    def decided(self, line: Line) -> None:
        """A decision line came."""
        call = line["call"]
        with self._lock:
            if call in self._begun:
                del self._begun[call]
                before = self._bases.get(call, Used())
                _keep(self._bases, call, _sums(line, before.held_usd))

    def ended(self, line: Line) -> Used:
        """An end line came: what the run used."""
        call = line["call"]
        now = _sums(line, float(line["held_usd"]))
        with self._lock:
            self._begun.pop(call, None)
            base = self._bases.get(call, Used())
            _keep(self._bases, call, now)
        return now.since(base)


_V = typing.TypeVar("_V")


def _keep(table: "collections.OrderedDict[str, _V]", call: str,
          value: _V) -> None:
    table[call] = value
    table.move_to_end(call)
    if len(table) > _REMEMBERED:
        table.popitem(last=False)
