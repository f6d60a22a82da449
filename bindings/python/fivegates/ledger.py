"""Sinks for the ledger: where engine.run(ledger=...) writes its lines.

The core writes the text of a line; a sink carries it. The line of a decision
to send is written before the send, so a crash leaves the attempt as lost.
"""

from __future__ import annotations

import os
import threading
import typing

__all__ = ["FileLedger", "ListLedger"]


class ListLedger:
    """Keeps the lines in a list."""

    def __init__(self) -> None:
        self.lines: "list[str]" = []

    def write(self, line: str) -> None:
        self.lines.append(line)


class FileLedger:
    """Appends lines to a file, each in one write: processes may share it."""

    def __init__(self, path: "str | os.PathLike[str]",
                 sync: bool = False) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o640)
        self._sync = sync
        self._lock = threading.Lock()

    def write(self, line: str) -> None:
        rest = line.encode() + b"\n"
        with self._lock:
            while rest:
                rest = rest[os.write(self._fd, rest):]
            if self._sync:
                os.fdatasync(self._fd)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> "FileLedger":
        return self

    def __exit__(self, *exc: typing.Any) -> None:
        self.close()
