"""Reads the ledgers into the store; great ones in a process of their own, so
that one core parses them while the other fills the store and reads the exports.

What the reading tells goes through one function in both cases: attempts, bytes
read, then what the ledgers were, or what is wrong with them. The process writes
it to its standard output, each time a length of four bytes and a marshalled
pair. Where that ends before the last word the process was killed, and nothing
is believed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import marshal
import os
import queue
import stat
import subprocess
import sys
import threading
import traceback
import typing

from fivegates.reconcile.ledgers import LedgerFacts, read_ledgers
from fivegates.reconcile.rows import ReconcileError
from fivegates.reconcile.store import BATCH, Store

__all__ = ["Ledgers", "serve"]

# Of ledgers that are read in a process of their own: about a second of reading,
# of which the start of a process takes a fifth.
_GREAT = 256 << 20
_AHEAD = 32  # frames that wait for the store, about 20 MB
_PIPE = 1 << 20  # a frame and more, where the system allows it
_READY = b"fivegates ledgers 1\n"
_CODE = ("import marshal, sys; path, ledgers = marshal.load(sys.stdin.buffer); "
         "sys.path[:] = path; from fivegates.reconcile.reader import serve; serve(ledgers)")

Tell = typing.Callable[[str, typing.Any], object]


def _read(paths: "typing.Sequence[str]", tell: Tell) -> None:
    facts = LedgerFacts([])
    rows = read_ledgers(paths, facts, lambda count: tell("bytes", count))
    try:
        while batch := list(itertools.islice(rows, BATCH)):
            tell("attempts", batch)
    except ReconcileError as exc:
        tell("error", str(exc))
    else:
        tell("facts", {one.name: getattr(facts, one.name)
                       for one in dataclasses.fields(facts) if one.name != "files"})


def serve(paths: "typing.Sequence[str]") -> typing.NoReturn:
    """The process of its own: reads, tells, and ends when nobody listens."""
    out = sys.stdout.buffer

    def tell(what: str, said: typing.Any) -> None:
        frame = marshal.dumps((what, said))
        out.write(len(frame).to_bytes(4, "little") + frame)
        out.flush()

    with contextlib.suppress(BrokenPipeError):
        out.write(_READY)
        out.flush()
        try:
            _read(paths, tell)
        except Exception:
            tell("broken", traceback.format_exc())
    os._exit(0)  # without a flush into a broken pipe


def _alone(paths: "typing.Sequence[str]") -> bool:
    """Whether a second process would gain nothing, or not see the same files."""
    cores = (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity")
             else os.cpu_count() or 1)
    # A program that embeds Python, or is frozen, is no interpreter to start.
    python = os.path.basename(sys.executable or "").lower().startswith(("python", "pypy"))
    if cores < 2 or not python:
        return True
    try:
        found = [os.stat(path) for path in paths]
    except OSError:
        return True  # which is told when the reading comes to it
    # A pipe is read once; /dev/fd and /proc/self name files of this process.
    if any(not stat.S_ISREG(one.st_mode) or os.path.abspath(path).startswith(("/dev/", "/proc/"))
           for path, one in zip(paths, found)):
        return True
    return sum(one.st_size for one in found) < _GREAT


class _Child:
    """The process that reads, and the thread that listens to it."""

    def __init__(self, paths: "typing.Sequence[str]") -> None:
        """OSError, EOFError, RuntimeError (no thread): it cannot be started."""
        # A session of its own: what ends this process ends it too, by the broken
        # pipe, and an interrupt from the keyboard is not told twice.
        self._process = subprocess.Popen(
            [sys.executable, *(["-I"] if sys.flags.isolated else []), "-c", _CODE],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            pipesize=_PIPE, start_new_session=True)
        self.frames: "queue.Queue[bytes | None]" = queue.Queue(_AHEAD)
        self._thread = threading.Thread(target=self._listen, daemon=True)
        try:
            with self._input as stdin:
                marshal.dump(([one for one in sys.path if isinstance(one, str)],
                              list(paths)), stdin)
            for byte in _READY:  # one by one: not to wait for more of something else
                if self._output.read(1) != bytes((byte,)):
                    raise EOFError
            self._thread.start()
        except BaseException:
            self.close()
            raise

    @property
    def _input(self) -> "typing.IO[bytes]":
        assert self._process.stdin is not None
        return self._process.stdin

    @property
    def _output(self) -> "typing.IO[bytes]":
        assert self._process.stdout is not None
        return self._process.stdout

    def _listen(self) -> None:
        try:
            while len(head := self._output.read(4)) == 4:
                size = int.from_bytes(head, "little")
                frame = self._output.read(size)
                if len(frame) < size:
                    break
                self.frames.put(frame)
        finally:
            self.frames.put(None)

    def code(self) -> int:
        """How it ended; it has closed its output."""
        return self._process.wait()

    def close(self) -> None:
        """Ends it, wherever it is."""
        self._process.kill()
        while self._thread.is_alive():  # it may wait for room
            with contextlib.suppress(queue.Empty):
                self.frames.get(timeout=0.05)
        self._process.wait()
        self._output.close()


class Ledgers:
    """Ledgers on their way into a store. Use it in a `with`."""

    def __init__(self, paths: "typing.Sequence[str]", store: Store, facts: LedgerFacts,
                 progress: "typing.Callable[[int], object]") -> None:
        """facts: filled by the time finish() returns; progress(bytes) hears how
        much was read."""
        self._paths, self._store, self._facts, self._progress = paths, store, facts, progress
        self._child: "_Child | None" = None
        self._error: "ReconcileError | None" = None
        self.done = False  # whether all of it is in the store

    def __enter__(self) -> "Ledgers":
        if not _alone(self._paths):
            with contextlib.suppress(OSError, EOFError, RuntimeError):
                self._child = _Child(self._paths)
        return self

    def __exit__(self, *exc: object) -> None:
        if self._child is not None:
            self._child.close()

    def take(self) -> None:
        """Stores what a process of its own has read so far; without one, all.

        Raises ReconcileError where a ledger cannot be used.
        """
        if self._child is None:
            self.finish()
            return
        with contextlib.suppress(queue.Empty):
            while not self.done:
                self._hear(self._child, self._child.frames.get_nowait())
        self._judge()

    def finish(self) -> None:
        """Stores the rest. Raises as take() does, each time."""
        if self._child is None and not self.done:
            _read(self._paths, self._tell)
        while self._child is not None and not self.done:
            self._hear(self._child, self._child.frames.get())
        self._judge()

    def _judge(self) -> None:
        if self._error is not None:
            raise self._error

    def _hear(self, child: _Child, frame: "bytes | None") -> None:
        if frame is not None:
            self._tell(*marshal.loads(frame))
            return
        code = child.code()
        self._tell("error", "the process that reads the ledgers was ended "
                   + (f"by signal {-code}" if code < 0 else f"with code {code}")
                   + ", as a system does that runs short of memory; nothing was added up: "
                   "run it again where more memory is free")

    def _tell(self, what: str, said: typing.Any) -> None:
        if what == "bytes":
            self._progress(said)
        elif what == "attempts":
            self._store.add_attempts(said)
        elif what == "error":
            self._error = ReconcileError(said)
            self.done = True
        elif what == "broken":
            raise RuntimeError(said)
        else:
            for name, value in said.items():
                setattr(self._facts, name, value)
            self.done = True
