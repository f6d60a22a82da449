"""Ends a blocking read when a moment has passed.

A blocking client cannot be told "the first content must be here by then": its
time-out is for each read, and a server that sends pings never exceeds it.
So one thread, started when first needed and gone when idle, shuts the socket
of a stream whose moment has passed; the read ends, and its reader asks why.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import os
import socket
import threading
import time
import typing

__all__ = ["Alarm", "Watchdog"]

_IDLE_S = 5.0  # a thread with nothing to watch ends
_SWEEP = 4096  # entries of the heap before cancelled ones are dropped


class Alarm:
    """One moment and the socket to shut then."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock: "socket.socket | None" = sock  # None: no longer needed
        self.fired = False


class Watchdog:
    """Alarms of one process."""

    def __init__(self) -> None:
        self._forget()
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        """A forked child has no thread, and nothing to watch."""
        self._changed = threading.Condition()
        self._heap: "list[tuple[float, int, Alarm]]" = []
        self._order = itertools.count()
        self._thread: "threading.Thread | None" = None

    def arm(self, until: float, sock: socket.socket) -> Alarm:
        """Shuts the socket at a moment of time.monotonic()."""
        alarm = Alarm(sock)
        with self._changed:
            first = not self._heap or until < self._heap[0][0]
            if len(self._heap) > _SWEEP:
                self._heap = [one for one in self._heap if one[2].sock]
                heapq.heapify(self._heap)
            heapq.heappush(self._heap, (until, next(self._order), alarm))
            if self._thread is None:
                thread = threading.Thread(
                    target=self._watch, name="fivegates-watchdog", daemon=True)
                thread.start()  # may raise: the next one tries again
                self._thread = thread
            elif first:
                self._changed.notify()
        return alarm

    def disarm(self, alarm: Alarm) -> bool:
        """No longer needed; whether it had fired."""
        with self._changed:
            alarm.sock = None
            return alarm.fired

    def _watch(self) -> None:
        with self._changed:
            while True:
                while self._heap and self._heap[0][2].sock is None:
                    heapq.heappop(self._heap)
                if not self._heap:
                    self._changed.wait(_IDLE_S)
                    if not self._heap:
                        self._thread = None
                        return
                    continue
                left = self._heap[0][0] - time.monotonic()
                if left > 0:
                    self._changed.wait(left)
                    continue
                alarm = heapq.heappop(self._heap)[2]
                sock, alarm.sock = alarm.sock, None
                alarm.fired = True
                # The plain method: that of a TLS socket would also drop the
                # session from under the thread that reads.
                if sock is not None:
                    with contextlib.suppress(OSError):
                        socket.socket.shutdown(sock, socket.SHUT_RDWR)


WATCHDOG = Watchdog()


def socket_of(response: typing.Any) -> "socket.socket | None":
    """The socket of an answer, where it is that answer's alone."""
    if response.extensions.get("http_version") == b"HTTP/2":
        return None
    stream = response.extensions.get("network_stream")
    found = stream.get_extra_info("socket") if stream is not None else None
    return found if isinstance(found, socket.socket) else None
