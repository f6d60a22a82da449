"""The file of a run: one line a finished case, appended; what a resume reads.

    run   what is measured, by what: a resume must be of the same
    sent  a request is about to leave, and the most it can cost
    case  a case is finished on one side
    left  a call ended without a result, and what it cost

A line is in the file before the next thing happens, so that a program killed
in between has paid for nothing that is not written here.
"""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import json
import os
import stat
import typing

from fivegates.errors import FivegatesError

__all__ = ["Results", "ResultsError", "SIDES"]

Json = typing.Dict[str, typing.Any]
Key = typing.Tuple[str, str]  # a case's id, and the side

_VERSION = 1
SIDES = ("primary", "route")
# Lines between two waits for the disk: what a loss of power may take back.
_SYNC_EVERY = 32


class ResultsError(FivegatesError):
    """A file of results that cannot be used: which, why, and the remedy."""

    result = "arg"


class Results:
    """An open file of results, locked. identity: as of the run line.

    done: the last line of each finished case. spent_nusd: of all calls so far.
    lost_nusd: the part of it held for sends of which nothing more was written:
    the program was stopped, and they may have been billed.
    """

    def __init__(self, path: str, file: int) -> None:
        self.path = path
        self.done: "dict[Key, Json]" = {}
        self.spent_nusd = 0
        self.lost_nusd = 0
        self.lost = 0
        self._file = file
        self._calls = 0
        self._unsynced = 0

    @classmethod
    def open(cls, path: str, identity: Json, fresh: bool = False) -> "Results":
        """Opens or begins a file. fresh: what is there is kept beside it, as
        PATH.old, and a new one begun. Raises ResultsError."""
        try:
            out = cls(path, _locked(path))
        except OSError as exc:
            raise ResultsError(f"{path}: {exc.strerror or exc}; name a file that can "
                               "be written with --out") from None
        try:
            lines = out._whole_lines()
            if lines and fresh:
                _run_of(path, lines)
                os.replace(path, path + ".old")
                out.close()
                return cls.open(path, identity)
            if lines:
                out._read(lines, identity)
            else:
                out._write({"line": "run", "v": _VERSION, "identity": identity})
        except OSError as exc:
            out.close()
            raise ResultsError(f"{path}: {exc.strerror or exc}") from None
        except BaseException:
            out.close()
            raise
        return out

    # ---- reading

    def _whole_lines(self) -> "list[bytes]":
        """The lines; half a line at the end is cut off, as its writer was."""
        with open(self._file, "rb", closefd=False) as file:
            raw = file.read()
        end = raw.rfind(b"\n") + 1
        if end < len(raw):
            if end:  # of no other file is anything cut off
                _run_of(self.path, raw[:end].splitlines())
            elif not b'{"line": "run"'.startswith(raw[:14]):
                raise _no_results(self.path)
            os.ftruncate(self._file, end)
        return raw[:end].splitlines()

    def _read(self, lines: "list[bytes]", identity: Json) -> None:
        before = _run_of(self.path, lines)
        other = [f"{key}: {_short(was)} there, {_short(now)} now"
                 for key, was, now in _differences(before, identity)]
        if other:
            raise ResultsError(f"{self.path}: results of something else ({'; '.join(other)}"
                               "); name another file with --out, or begin anew with "
                               "--fresh")
        held: "dict[int, int]" = {}
        for number, raw in enumerate(lines[1:], 2):
            try:
                self._take(json.loads(raw), held)
            except (ValueError, KeyError, TypeError, RecursionError):
                raise ResultsError(f"{self.path}:{number}: a line that is none of a run; "
                                   "begin anew with --fresh") from None
        self.lost, self.lost_nusd = len(held), sum(held.values())
        self.spent_nusd += self.lost_nusd

    def _take(self, line: Json, held: "dict[int, int]") -> None:
        call, kind = _whole(line["call"]), line["line"]
        self._calls = max(self._calls, call)
        if kind == "sent":
            held[call] = held.get(call, 0) + _whole(line["held_nusd"])
            return
        if kind not in ("case", "left"):
            raise ValueError(kind)
        held.pop(call, None)
        self.spent_nusd += _whole(line["cost_nusd"])
        if kind == "case":
            _check_case(line)
            self.done[line["id"], line["side"]] = line

    # ---- writing

    def call(self) -> int:
        """A number for a call to come."""
        self._calls += 1
        return self._calls

    def sent(self, call: int, key: Key, held_nusd: int) -> None:
        """A request is about to leave."""
        self._write({"line": "sent", "call": call, "id": key[0], "side": key[1],
                     "held_nusd": held_nusd})

    def left(self, call: int, cost_nusd: int) -> None:
        """A call ended without a result for its case."""
        self._write({"line": "left", "call": call, "cost_nusd": cost_nusd})

    def case(self, call: int, key: Key, facts: Json) -> None:
        """A case is finished on one side; facts has result, score_ppm, at, cost_nusd."""
        line = {"line": "case", "call": call, "id": key[0], "side": key[1], **facts}
        self._write(line)
        self.done[key] = line

    def _write(self, line: Json) -> None:
        raw = json.dumps(line, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
        try:
            while raw:
                raw = raw[os.write(self._file, raw):]
        except OSError as exc:  # half a line, at worst: a resume cuts it off
            raise ResultsError(f"{self.path}: {exc.strerror or exc}; what was written "
                               "before stays, run again when there is room") from None
        self._unsynced += 1
        if self._unsynced >= _SYNC_EVERY:
            self.sync()

    def sync(self) -> None:
        """Waits until the lines are on the disk."""
        with contextlib.suppress(OSError):  # a pipe, or a disk that cannot
            os.fsync(self._file)
        self._unsynced = 0

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def _whole(value: object) -> int:
    """A count, or an amount in nano-dollars. ValueError."""
    if type(value) is not int or value < 0:
        raise ValueError(value)
    return value


def _check_case(line: Json) -> None:
    """What the evidence and the report are made of. ValueError, KeyError, TypeError."""
    if line["result"] not in ("passed", "failed", "error") or (
            line["side"] not in SIDES) or _whole(line["score_ppm"]) > 1_000_000:
        raise ValueError(line)
    datetime.datetime.strptime(line["at"], "%Y-%m-%dT%H:%M:%SZ")
    for key, kind in (("id", str), ("billed", bool), ("reasons", list)):
        if not isinstance(line[key], kind):
            raise ValueError(line[key])
    for key in ("first_token_ms", "latency_ms"):
        if line.get(key) is not None:
            _whole(line[key])


def _locked(path: str) -> int:
    # Not to wait for the other end of a pipe, which is refused below.
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
                   | os.O_NONBLOCK, 0o600)
    try:
        there = os.fstat(file)
        if not stat.S_ISREG(there.st_mode):
            raise ResultsError(f"{path}: no plain file, so no run could go on from it; "
                               "name another one with --out")
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Another run with --fresh may have put it away between the two lines above.
        if not os.path.samestat(there, os.stat(path)):
            raise BlockingIOError
    except (BlockingIOError, FileNotFoundError):
        os.close(file)
        raise ResultsError(f"{path}: another run is writing it; wait for it, or name "
                           "another file with --out") from None
    except BaseException:
        os.close(file)
        raise
    return file


def _no_results(path: str) -> ResultsError:
    return ResultsError(f"{path}: no results of fivegates contract verify; name another "
                        "file with --out")


def _run_of(path: str, lines: "list[bytes]") -> Json:
    """The identity of the file's run; ResultsError: it is another kind of file."""
    try:
        first = json.loads(lines[0])
        if first["line"] == "run" and first["v"] == _VERSION:
            found: Json = dict(first["identity"])
            return found
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    raise _no_results(path)


def _differences(was: object, now: object, path: str = "",
                 ) -> "typing.Iterator[tuple[str, object, object]]":
    if isinstance(was, dict) and isinstance(now, dict):
        for key in sorted({*was, *now}):
            yield from _differences(was.get(key), now.get(key),
                                    f"{path}.{key}" if path else key)
    elif was != now:
        yield path, was, now


def _short(value: object) -> str:
    text = "nothing" if value is None else str(value)
    return text if len(text) <= 24 else text[:23] + "…"
