"""A client for the sends of engine.run(): what it asks ends with the attempt.

A time-out of httpx is for each read. Keep-alives, or an answer that drips,
never exceed it, and a thread that waits in an SDK cannot be told to stop. So
this transport knows the attempt it sends for, cuts the time-outs to its
clocks, and ends the answer when the attempt's time is over, by the watchdog.

A head that drips is not seen: there is no response yet whose socket could be
shut. Nor is an attempt, in a thread that send() has started itself.
"""

from __future__ import annotations

import socket
import time
import typing

from fivegates._core import (
    SAW_REASONING,
    SAW_TOKEN,
    SAW_TOOL_ARGS,
    SseScanner,
)
from fivegates.attempt import CURRENT, Attempt
from fivegates.transport.watchdog import WATCHDOG, Alarm, socket_of

__all__ = ["make"]

_CONTENT = SAW_TOKEN | SAW_TOOL_ARGS | SAW_REASONING
_EARLY_S = 0.002  # a read may time out a little before its moment
Timeouts = typing.Dict[str, typing.Optional[float]]


def make(http: typing.Any) -> type:
    """The transport for one HTTP package: httpx or httpx2."""

    class TimedStream(http.SyncByteStream):  # type: ignore[misc]
        """A body that ends when its clock says so."""

        def __init__(self, stream: typing.Any, clock: Clock) -> None:
            self._stream = stream
            self._clock = clock

        def __iter__(self) -> "typing.Iterator[bytes]":
            clock = self._clock
            try:
                for chunk in self._stream:
                    clock.heard(chunk)
                    if clock.over():
                        raise http.ReadTimeout("bytes, and no end")
                    yield chunk
                if clock.fired:  # a shut socket may look like the body's end
                    raise http.ReadTimeout("cut short")
            except Exception as exc:
                if not clock.over(_EARLY_S):
                    raise
                raise http.ReadTimeout(clock.tell("stream")) from exc

        def close(self) -> None:
            self._clock.disarm()  # before the connection is another request's
            self._stream.close()

    class TimedTransport(http.BaseTransport):  # type: ignore[misc]
        """Sends each request within the attempt it belongs to."""

        def __init__(self, inner: typing.Any) -> None:
            self.inner = inner

        def handle_request(self, request: typing.Any) -> typing.Any:
            attempt = CURRENT.get()
            if attempt is None:
                return self.inner.handle_request(request)
            clock = Clock(attempt, request.extensions.get("timeout") or {})
            if clock.over():  # the SDK sends again by itself
                raise http.ReadTimeout(clock.tell("read"))
            request.extensions = {**request.extensions,
                                  "timeout": clock.timeouts}
            try:
                response = self.inner.handle_request(request)
            except http.ReadTimeout as exc:
                if not clock.over(_EARLY_S):
                    raise
                raise http.ReadTimeout(clock.tell("read")) from exc
            clock.watch(response)
            response.stream = TimedStream(response.stream, clock)
            return response

        def __enter__(self) -> "typing.Any":
            self.inner.__enter__()
            return self

        def __exit__(self, *exc: typing.Any) -> None:
            self.inner.__exit__(*exc)

        def close(self) -> None:
            self.inner.close()

    return TimedTransport


class Clock:
    """When one request of an attempt must be over, and what is done then.

    timeouts: of the request, as httpx's extension has them; the client's own,
    cut to the attempt's.
    """

    _alarm: "Alarm | None" = None
    _scanner: "SseScanner | None" = None  # of a stream without content so far
    _sock: "socket.socket | None" = None
    _one_read = True  # the body's reads look their time-out up once

    def __init__(self, attempt: Attempt, own: Timeouts) -> None:
        self._attempt = attempt
        self._own = own.get("read")
        first, total = attempt.first_token_s, attempt.total_s
        self._total = attempt.started + total if total else None
        self._until, self._name = self._total, "total_timeout"
        if first and (attempt.streamed or not total) and (
                not total or first <= total):
            self._until = attempt.started + first
            self._name = ("first_token_timeout" if attempt.streamed
                          else "total_timeout")
        connect = _least(attempt.connect_s, self._left())
        self.timeouts: Timeouts = {
            **own, "read": _least(self._own, self._left()),
            **{name: _least(own.get(name), connect)
               for name in ("connect", "write", "pool")}}

    def watch(self, response: typing.Any) -> None:
        """The head is there: from now on the socket can be shut."""
        headers = response.headers
        if self._attempt.streamed and "content-encoding" not in headers and str(
                headers.get("content-type")).startswith("text/event-stream"):
            self._scanner = SseScanner("auto")
        else:  # no words of it are seen before its end
            self._until = self._total or self._until
            self._name = "total_timeout"
        self._one_read = response.extensions.get("http_version") != b"HTTP/2"
        self._sock = socket_of(response)
        self._arm()

    def _arm(self) -> None:
        self.disarm()
        if self._until is not None and self._sock is not None:
            self._alarm = WATCHDOG.arm(self._until, self._sock)
        self.timeouts["read"] = self._reading()

    def _reading(self) -> "float | None":
        """Of one read of the body. Where an alarm ends the last one, they all
        have the same."""
        idle = _least(self._own, self._attempt.idle_s)
        return idle if self._alarm is not None else _least(idle, self._left())

    def heard(self, chunk: bytes) -> None:
        """Bytes of the body came."""
        if self._scanner is not None and self._scanner.feed(chunk) & _CONTENT:
            self._scanner = None
            if not self.over():
                self._until, self._name = self._total, "total_timeout"
                self._arm()
        elif not self._one_read:
            self.timeouts["read"] = self._reading()

    def over(self, early_s: float = 0.0) -> bool:
        """Whether the time is over."""
        return self._until is not None and (
            time.monotonic() + early_s >= self._until)

    @property
    def fired(self) -> bool:
        """Whether the socket was shut."""
        return self._alarm is not None and self._alarm.fired

    def tell(self, phase: str) -> str:
        """Tells the attempt which of its clocks ended it; a message."""
        self._attempt.over = {"phase": phase, "timeout": self._name}
        what = ("no content of the answer" if self._name == "first_token_timeout"
                else "no whole answer")
        return (f"attempt {self._attempt.number} on {self._attempt.route}: "
                f"{what} in time ({self._name})")

    def disarm(self) -> None:
        """The socket is shut no more."""
        if self._alarm is not None:
            WATCHDOG.disarm(self._alarm)
            self._alarm = None

    def _left(self) -> "float | None":
        return (None if self._until is None
                else max(0.001, self._until - time.monotonic()))


def _least(a: "float | None", b: "float | None") -> "float | None":
    return b if a is None else a if b is None else min(a, b)
