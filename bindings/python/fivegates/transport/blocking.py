"""The transport of blocking clients, and the stream it gives them."""

from __future__ import annotations

import contextlib
import time
import typing
import weakref

from fivegates.transport.copies import Copies
from fivegates.transport.exchange import Exchange
from fivegates.transport.given import GivenAway, Late
from fivegates.transport.options import Options
from fivegates.transport.phases import Trace
from fivegates.transport.plain import Plain, begun
from fivegates.transport.pooled import Pooled
from fivegates.transport.refusal import passing
from fivegates.transport.watchdog import WATCHDOG, Alarm, socket_of

__all__ = ["make"]


def make(http: typing.Any) -> type:
    """The transport for one HTTP package: httpx or httpx2."""
    copies = Copies(http)

    class GuardedStream(http.SyncByteStream):  # type: ignore[misc]
        """What is left of an answer, watched while the client reads it."""

        def __init__(self, given: GivenAway, wire: "Wire",
                     dropped: "Dropped") -> None:
            self._given = given
            self._wire = wire
            # Keeps what must be closed out of the collector's hands: that
            # runs anywhere, also where the pool's own lock is held.
            self._drop = weakref.finalize(self, dropped.append, (given, wire))
            self._drop.atexit = False

        def __iter__(self) -> "typing.Iterator[bytes]":
            given, wire = self._given, self._wire
            held, given.held = given.held, []
            try:
                yield from held
                given.wanted_more()
                for chunk in wire.chunks:
                    given.heard(chunk)
                    yield chunk
                    given.wanted_more()
            except GeneratorExit:  # the stream may be closed later
                raise
            except Exception as exc:
                wire.close()
                given.broke(exc)
            except BaseException:
                self.close()
                raise
            else:
                given.ended()
                given.store()

        def close(self) -> None:
            self._drop.detach()
            try:
                self._given.left()
                self._given.store()
            finally:
                self._wire.close()

    class GuardedTransport(http.BaseTransport):  # type: ignore[misc]
        """Sends each request to a model through an engine."""

        def __init__(self, inner: typing.Any, options: Options) -> None:
            self._pooled = Pooled(http, http.HTTPTransport, inner)
            self.options = options
            self._dropped: "Dropped" = []

        @property
        def inner(self) -> typing.Any:
            """What sends the requests; others may be put around it later."""
            return self._pooled.inner

        @inner.setter
        def inner(self, inner: typing.Any) -> None:
            self._pooled = Pooled(http, http.HTTPTransport, inner)

        def handle_request(self, request: typing.Any) -> typing.Any:
            if self._dropped:
                _close(self._dropped)
            asked = self.options.asked(request, copies)
            if asked is None:
                return self.inner.handle_request(request)
            content, pooled = request.read(), self._pooled
            try:
                call = begun(http, copies, self.options, pooled, request, asked,
                             content)
            except Exception as exc:
                raise passing(exc, request, asked.api[0])
            if call is None:
                return self.inner.handle_request(request)
            if isinstance(call, Plain):
                stream = None  # of a response, until somebody closes it
                try:
                    response = call.response = pooled.ask(call.request)
                    stream = response.stream
                    if response.status_code < 300:
                        reading, stream = stream, None
                        parts: "list[bytes]" = []
                        _read(reading, parts, None, call.until)
                        if call.answered(parts):
                            return response
                except BaseException as exc:
                    call.error = exc
                wire = Wire(self.inner)
                if stream is not None:
                    wire.opened(call.response)
                return wire.drive(call)
            wire, dropped = Wire(self.inner), self._dropped
            call.body = lambda given: GuardedStream(given, wire, dropped)
            return wire.drive(call)

        def __enter__(self) -> "typing.Any":
            self.inner.__enter__()
            return self

        def __exit__(self, *exc: typing.Any) -> None:
            self.inner.__exit__(*exc)

        def close(self) -> None:
            _close(self._dropped)
            self.inner.close()

    return GuardedTransport


# Streams that nobody closed.
Dropped = typing.List[typing.Tuple[GivenAway, "Wire"]]


def _close(dropped: Dropped) -> None:
    """Hangs them up: with the next request, or at the client's end."""
    while dropped:
        with contextlib.suppress(Exception):  # nobody's to hear of
            given, wire = dropped.pop()
            try:
                given.left()
            finally:
                wire.close()


def _read(stream: typing.Any, parts: "list[bytes]", most: "int | None",
          until: "float | None") -> None:
    """A body into parts, or the first `most` bytes of it; then it hangs up."""
    size = 0
    try:
        for chunk in stream:
            parts.append(chunk)
            size += len(chunk)
            if most is not None and size > most:
                return
            if until is not None and time.monotonic() > until:
                raise Late("the answer did not end in time")
    finally:
        stream.close()


class Wire:
    """Does what an exchange asks for, one request at a time."""

    # Until there is a response.
    chunks: "typing.Iterator[bytes]" = iter(())
    _response: typing.Any = None
    _stream: typing.Any = None  # its body, while it is open
    _fresh = False  # the response's body has not been read yet
    _alarm: "Alarm | None" = None

    def __init__(self, inner: typing.Any) -> None:
        self.inner = inner

    def drive(self, exchange: "Exchange | Plain") -> typing.Any:
        reply: typing.Any = None
        error: "Exception | None" = None
        out: typing.Any = None
        try:
            if isinstance(exchange, Plain):
                exchange = exchange.exchange()
            steps = exchange.steps()
            while True:
                todo = steps.throw(error) if error else steps.send(reply)
                reply = error = None
                try:
                    reply = getattr(self, todo[0])(*todo[1:])
                except Exception as exc:
                    error = exc
        except StopIteration as stop:
            if self._alarm is not None:
                self._disarm()
            assert isinstance(exchange, Exchange)
            exchange.result = None  # a stream's leads back here
            return stop.value
        except BaseException as exc:
            try:
                out = exchange.over(exc)
            finally:
                self.close()
            if isinstance(out, BaseException):
                raise out
            return out
        finally:
            error = out = None  # their tracebacks hold this frame

    # ---- what an exchange yields, by name

    def open(self, request: typing.Any, trace: Trace,
             until: "float | None") -> typing.Any:  # httpx keeps the head's time
        request.extensions["trace"] = trace.callback
        if self._stream is not None:
            self.close()
        response = self.inner.handle_request(request)
        self.opened(response)
        return response

    def opened(self, response: typing.Any) -> None:
        """A response whose body is to be read."""
        self._response = response
        self._stream = response.stream
        self._fresh = True

    def all(self, parts: "list[bytes]", most: "int | None",
            until: "float | None") -> None:
        stream, self._stream = self._stream, None
        _read(stream, parts, most, until)

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def ask(self, function: "typing.Callable[..., typing.Any]",
            args: "tuple[typing.Any, ...]") -> typing.Any:
        return function(*args)

    def read(self, until: "float | None") -> "bytes | None":
        if self._fresh:
            self._fresh = False
            self.chunks = (self._response.iter_bytes()
                           if "content-encoding" in self._response.headers
                           else iter(self._stream))
            if until is not None:
                sock = socket_of(self._response)
                if sock is not None:
                    self._alarm = WATCHDOG.arm(until, sock)
        try:
            chunk = next(self.chunks, None)
        except Exception as exc:
            if self._alarm is not None and self._alarm.fired:
                raise Late("no content in time") from exc
            raise
        if self._alarm is not None and self._alarm.fired:
            raise Late("no content in time")
        return chunk

    def _disarm(self) -> None:
        assert self._alarm is not None
        WATCHDOG.disarm(self._alarm)
        self._alarm = None

    def close(self) -> None:
        """Hangs up, where a request is open."""
        if self._alarm is not None:
            self._disarm()
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()
