"""Lines of a ledger, one by one, with their places."""

from __future__ import annotations

import dataclasses
import heapq
import json
import os
import typing

from fivegates.errors import FivegatesError

__all__ = ["Json", "Line", "Progress", "ReplayError", "WORDS", "at_ms",
           "edited", "in_order", "nusd_of", "read"]

Json = typing.Dict[str, typing.Any]
Progress = typing.Callable[[int], object]

# The core's three kinds, and what no decision tells, where a host wrote it down.
WORDS = ("call", "decision", "end", "event")


class ReplayError(FivegatesError):
    """A ledger or a card that cannot be replayed: where it is wrong, and the
    remedy."""

    result = "replay"


@dataclasses.dataclass(frozen=True, slots=True)
class Line:
    """One line: its place, its bytes without the end, and what it says.

    facts is None where the line is torn: no JSON object.
    """

    file: str
    number: int
    raw: str
    facts: "Json | None"

    @property
    def place(self) -> str:
        return f"{self.file}:{self.number}"


def read(paths: "typing.Sequence[str]", progress: "Progress | None" = None,
         ) -> "typing.Iterator[Line]":
    """The lines of ledgers, rotated ones in order; streamed.

    progress(bytes) hears how much was read. Raises ReplayError for a file
    that cannot be read, and for a whole line that is no ledger's.
    """
    for path in paths:
        good = False
        read_bytes = 0
        try:
            with open(path, "rb") as file:
                for number, raw in enumerate(file, 1):
                    read_bytes += len(raw)
                    if number % 1024 == 0 and progress is not None:
                        progress(read_bytes)
                        read_bytes = 0
                    if raw.isspace():
                        continue
                    line = _line(path, number, raw)
                    good = good or line.facts is not None
                    yield line
        except OSError as exc:
            raise ReplayError(f"{path}: {exc.strerror or exc}; name a ledger "
                              "that can be read") from None
        if progress is not None:
            progress(read_bytes)
        if not good and os.path.getsize(path):
            raise ReplayError(f"{path}:1: no line of it is a ledger's; give a "
                              "file written with engine.run(ledger=...)")


def _line(path: str, number: int, raw: bytes) -> Line:
    try:
        text = raw.rstrip(b"\r\n").decode()
        facts = json.loads(text)
    except (ValueError, RecursionError):
        return Line(path, number, "", None)
    if not isinstance(facts, dict):
        return Line(path, number, "", None)
    if facts.get("line") not in WORDS:
        raise ReplayError(f"{path}:{number}: not a line of this engine's "
                          "ledger; give a file written with engine.run("
                          "ledger=...)")
    if facts.get("v") != 1:
        raise ReplayError(
            f"{path}:{number}: a ledger of version {facts.get('v')}, this "
            "program reads version 1; use the program that wrote it, or newer")
    return Line(path, number, text, facts)


def edited(place: str, exc: Exception) -> ReplayError:
    """A line that lacks what every line of its kind has, or has it otherwise."""
    what = f"without its member {exc}" if isinstance(exc, KeyError) else f"that cannot be: {exc}"
    return ReplayError(f"{place}: a ledger's line {what}; it was edited, or is of "
                       "an older version: give the ledger as this version wrote it")


def at_ms(facts: Json, began_ms: int) -> int:
    """When a decision was made, on the host's clock: its line may have been
    written a little later."""
    return began_ms + int(facts["elapsed_ms"])


# Lines of one moment may be written out of order by so much, by threads and
# processes that share a file.
_LATE_MS = 5_000


def in_order(lines: "typing.Iterable[Line]") -> "typing.Iterator[tuple[Line, bool]]":
    """Each line twice: when what it tells of was done (False), and when it was
    written (True), in the order of these times; those of one millisecond and
    those of one call as they stand. Torn lines are left out.

    Raises ReplayError for a line without its time.
    """
    waiting: "list[tuple[int, int, Line, bool]]" = []
    began: "dict[str, int]" = {}
    latest: "dict[str, int]" = {}
    newest = 0
    for serial, line in enumerate(lines):
        if line.facts is None:
            continue
        try:
            done, written = _times(line.facts, began, latest)
        except (KeyError, TypeError, ValueError) as exc:
            raise edited(line.place, exc) from None
        newest = max(newest, written)
        heapq.heappush(waiting, (done, 2 * serial, line, False))
        heapq.heappush(waiting, (written, 2 * serial + 1, line, True))
        while waiting and waiting[0][0] < newest - _LATE_MS:
            yield heapq.heappop(waiting)[2:]
    while waiting:
        yield heapq.heappop(waiting)[2:]


def _times(facts: Json, began: "dict[str, int]", latest: "dict[str, int]",
           ) -> "tuple[int, int]":
    """When what a line tells of was done, and when it was written."""
    word, name = facts["line"], facts["call"]
    done = written = int(facts["now_ms"])
    if word == "call" and facts["step"] == 0:
        done = began[name] = int(facts["began_ms"])
        latest[name] = done
    elif word == "decision" and name in began:
        done = at_ms(facts, began[name])
    if name in latest:
        done = max(done, latest[name])
        written = latest[name] = max(done, written)
    if word == "end":
        began.pop(name, None)
        latest.pop(name, None)
    return done, written


def nusd_of(usd: "str | None") -> int:
    """Nano-dollars of a line's decimal dollars."""
    if not usd:
        return 0
    whole, _, part = usd.partition(".")
    sign = -1 if whole.startswith("-") else 1
    return int(whole) * 1_000_000_000 + sign * int((part + "0" * 9)[:9])
