"""A file ledger that is put away by size or age.

    ledger.jsonl       being written
    ledger.jsonl.1     the one before
    ledger.jsonl.2     the one before that
"""

from __future__ import annotations

import os
import time

from fivegates.errors import ArgumentError
from fivegates.ledger import FileLedger, _log

__all__ = ["RotatingFileLedger"]


class RotatingFileLedger(FileLedger):
    """A FileLedger whose file is renamed to PATH.1 when it is full or old.

    max_bytes: no file grows past it (a longer line has a file of its own).
    max_age_s: a file holds lines of one period, counted from 1970 in UTC:
    86400 is a file a day. One of the two is needed. keep: how many old files
    stay, besides the one being written; the oldest beyond is deleted, and
    its lines with it.

    Any number of processes may share one path, with the same arguments.
    Whoever finds the file full turns it, holding the lock that all writers
    take, so that no line goes to a file put away, and none is lost or torn.
    A kill in the middle leaves a gap in the numbers, which the next turn
    fills. Where files cannot be renamed the file grows on, and the log is
    told.
    """

    def __init__(self, path: "str | os.PathLike[str]", *,
                 max_bytes: "int | None" = None,
                 max_age_s: "int | None" = None, keep: int = 10,
                 sync: bool = False, strict: bool = False) -> None:
        if max_bytes is None and max_age_s is None:
            raise ArgumentError("a rotating ledger needs max_bytes or "
                                "max_age_s; without a limit use FileLedger")
        for name, value in (("max_bytes", max_bytes), ("max_age_s", max_age_s),
                            ("keep", keep)):
            if value is not None and value < 1:
                raise ArgumentError(f"{name} is {value}; give 1 or more")
        self._max_bytes = max_bytes
        self._max_age_s = max_age_s
        self._keep = keep
        self._stuck = False
        super().__init__(path, sync, strict=strict)

    def _turned(self, here: os.stat_result, length: int) -> bool:
        if not self._due(here, length):
            return False
        try:
            if self._torn(here.st_size):  # else it runs into the next file's
                os.write(self._fd, b"\n")
            self._turn()
        except OSError as exc:  # a line in too large a file is not lost
            if not self._stuck:
                _log.warning("%s cannot be rotated and grows on: %s", self, exc)
            self._stuck = True
            return False
        self._stuck = False
        return True

    def _due(self, here: os.stat_result, length: int) -> bool:
        if here.st_size == 0:
            return False
        if (self._max_bytes is not None
                and here.st_size + length > self._max_bytes):
            return True
        # The period of the last line: needs no memory of when a file began.
        return (self._max_age_s is not None
                and here.st_mtime // self._max_age_s
                < time.time() // self._max_age_s)

    def _old(self, number: int) -> str:
        return f"{self.path}.{number}"

    def _turn(self) -> None:
        """Moves files up to the first gap, so that none is deleted early."""
        free = 1
        while free < self._keep and os.path.lexists(self._old(free)):
            free += 1
        for number in range(free - 1, 0, -1):
            os.replace(self._old(number), self._old(number + 1))
        os.replace(self.path, self._old(1))
