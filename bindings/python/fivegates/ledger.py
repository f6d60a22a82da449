"""Sinks for the ledger: where engine.run(ledger=...) writes its lines.

The core writes the text of a line; a sink carries it. The line of a decision
to send is written before the send, so a crash leaves the attempt as lost.
Further sinks, each imported by its own name: fivegates.sinks.

What a sink does when it cannot carry a line is decided once, in Sink: the
guarded call goes on, the line is counted, and the log is told at the beginning
of each outage. With strict=True nothing is sent that is not written down.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import stat
import threading
import time
import typing
import weakref

from fivegates.errors import FivegatesError

__all__ = ["FileLedger", "LedgerError", "ListLedger", "Sink", "Tee"]

_log = logging.getLogger("fivegates.ledger")

# How long a line waits for another process that is writing one. Who holds the
# lock longer has been stopped; lines after that one do not wait again.
_PATIENCE_S = 1.0


class LedgerError(FivegatesError):
    """A ledger that cannot be opened, or a line that cannot be written."""

    result = "ledger"


class _Writer(typing.Protocol):
    def write(self, line: str, /) -> object: ...


def permits_a_send(line: str) -> bool:
    """Whether nothing may be sent before this line is written."""
    return '"action":"proceed"' in line  # names have their quotes escaped


class ListLedger:
    """Keeps the lines in a list."""

    def __init__(self) -> None:
        self.lines: "list[str]" = []

    def write(self, line: str) -> None:
        self.lines.append(line)


class Sink:
    """A sink that fails without breaking the call it writes of.

    A line that cannot be carried is counted in .lost; the first one of an
    outage is told to the logger fivegates.ledger. With strict=True the line
    that permits a send raises LedgerError instead, and run() then sends
    nothing. Lines of what already happened never raise: an answer that is
    there, and paid for, is not thrown away.

    Subclasses carry a line in _carry(); any Exception from it is a loss.
    """

    def __init__(self, strict: bool = False) -> None:
        self.strict = strict
        self.lost = 0
        self.failing = False

    def __str__(self) -> str:
        return type(self).__name__

    def _carry(self, line: str) -> None:
        raise NotImplementedError

    def write(self, line: str) -> None:
        """Carries one line, given without its end."""
        try:
            self._carry(line)
        except Exception as exc:
            self._failed(line, exc)
        else:
            self.failing = False

    def _failed(self, line: str, exc: Exception) -> None:
        self.lost += 1
        began, self.failing = not self.failing, True
        if self.strict and permits_a_send(line):
            raise LedgerError(
                f"{self} cannot be written, so nothing is sent: {exc}; make "
                "it writable, or use strict=False to send without its line"
            ) from exc
        if began:
            _log.warning("%s cannot be written, its lines are lost until it "
                         "can: %s", self, exc)


class Tee:
    """Gives each line to several sinks, in order.

    Every sink gets the line, also after one before it raised; the first
    error is raised then.
    """

    def __init__(self, *sinks: "_Writer") -> None:
        self.sinks = sinks

    def write(self, line: str) -> None:
        first: "Exception | None" = None
        for sink in self.sinks:
            try:
                sink.write(line)
            except Exception as exc:
                first = first or exc
        if first is not None:
            raise first


_F = typing.TypeVar("_F", bound="FileLedger")


class FileLedger(Sink):
    """Appends lines to a file that many threads and processes may share.

    A kill loses at most the line being written, and spoils no other: whoever
    writes next ends what was left torn. A line that does not fit on the disk
    leaves nothing behind. sync=True also waits for the disk, so that a power
    cut loses no line. A file that was moved away or removed is begun anew.

    Writers take turns by flock(2): the file belongs on a local file system.
    LedgerError where the file cannot be opened at the beginning; after that,
    see Sink.
    """

    def __init__(self, path: "str | os.PathLike[str]", sync: bool = False, *,
                 strict: bool = False) -> None:
        super().__init__(strict)
        self.path = os.path.abspath(path)
        self._sync = sync
        self._fd = -1
        self._closed = False
        self._lock = threading.Lock()
        try:
            self._open()
        except OSError as exc:
            raise LedgerError(
                f"cannot open the ledger {self.path}: {exc.strerror}; name a "
                "file, in a directory that exists, that this process may "
                "write") from exc
        _open_files.add(self)

    def __str__(self) -> str:
        return f"the ledger {self.path}"

    def _open(self) -> None:
        # Also for reading: the last byte says whether a line was torn.
        self._fd = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT,
                           0o640)

    def _carry(self, line: str) -> None:
        text = line.encode() + b"\n"
        with self._lock:
            if self._closed:
                raise OSError(errno.EBADF, "it was closed")
            try:
                self._append(text, self._ours(len(text)))
            finally:
                if self._fd >= 0:
                    fcntl.flock(self._fd, fcntl.LOCK_UN)

    def _ours(self, length: int) -> os.stat_result:
        """Holds the file that has the name now; its state."""
        while True:
            if self._fd < 0:
                self._open()
            self._hold()
            here = os.fstat(self._fd)
            if self._named(here) and not self._turned(here, length):
                return here
            self._drop()

    def _hold(self) -> None:
        until = time.monotonic() + (0 if self.failing else _PATIENCE_S)
        pause = 0.00005
        while True:
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() >= until:
                    raise TimeoutError(
                        errno.ETIMEDOUT,
                        "another process keeps it locked") from None
            time.sleep(pause)
            pause = min(2 * pause, 0.005)

    def _named(self, here: os.stat_result) -> bool:
        try:
            return os.path.samestat(here, os.stat(self.path))
        except FileNotFoundError:
            return False

    def _turned(self, here: os.stat_result, length: int) -> bool:
        """Whether the file was put away to make room for this line."""
        return False

    def _append(self, text: bytes, here: os.stat_result) -> None:
        size = here.st_size if stat.S_ISREG(here.st_mode) else 0
        if self._torn(size):
            text = b"\n" + text
        done = 0
        try:
            while done < len(text):
                done += os.write(self._fd, text[done:])
            if self._sync:
                os.fdatasync(self._fd)
        except BaseException:
            if 0 < done < len(text) and stat.S_ISREG(here.st_mode):
                os.ftruncate(self._fd, size)
            raise

    def _torn(self, size: int) -> bool:
        """Whether who wrote the last of these bytes was killed in the middle."""
        return size > 0 and os.pread(self._fd, 1, size - 1) != b"\n"

    def _drop(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def _forked(self) -> None:
        """In a forked child. The parent's descriptor also is its turn to
        write, and another thread of it may have been in the middle."""
        self._lock = threading.Lock()
        self._drop()

    def close(self) -> None:
        """Lines that come after are lost. Twice is fine."""
        with self._lock:
            self._closed = True
            self._drop()

    def __enter__(self: "_F") -> "_F":
        return self

    def __exit__(self, *exc: typing.Any) -> None:
        self.close()


_open_files: "weakref.WeakSet[FileLedger]" = weakref.WeakSet()


def _after_fork() -> None:
    for one in list(_open_files):
        one._forked()


os.register_at_fork(after_in_child=_after_fork)
