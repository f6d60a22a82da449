"""The transport of async clients (asyncio, trio), and the stream it gives them."""

from __future__ import annotations

import inspect
import time
import typing

import anyio

from fivegates.transport.copies import Copies
from fivegates.transport.exchange import Exchange
from fivegates.transport.given import GivenAway, Late
from fivegates.transport.options import Options
from fivegates.transport.phases import Trace
from fivegates.transport.plain import Plain, begun
from fivegates.transport.pooled import Pooled
from fivegates.transport.refusal import passing

__all__ = ["make"]

_CLOSE_S = 1.0  # for hanging up after a cancellation


def make(http: typing.Any) -> type:
    """The transport for one HTTP package: httpx or httpx2."""
    copies = Copies(http)

    class AsyncGuardedStream(http.AsyncByteStream):  # type: ignore[misc]
        """What is left of an answer, watched while the client reads it."""

        def __init__(self, given: GivenAway, wire: "AsyncWire") -> None:
            self._given = given
            self._wire = wire

        async def __aiter__(self) -> "typing.AsyncIterator[bytes]":
            given, wire = self._given, self._wire
            held, given.held = given.held, []
            try:
                for chunk in held:
                    yield chunk
                given.wanted_more()
                async for chunk in wire.chunks:
                    given.heard(chunk)
                    yield chunk
                    given.wanted_more()
            except GeneratorExit:  # dropped; perhaps by the garbage collector
                raise
            except Exception as exc:
                await wire.close()
                given.broke(exc)
            except BaseException:  # cancelled
                await self.aclose()
                raise
            else:
                given.ended()
                await _stored(given)

        async def aclose(self) -> None:
            try:
                self._given.left()
                await _stored(self._given)
            finally:
                await self._wire.close()

    class AsyncGuardedTransport(http.AsyncBaseTransport):  # type: ignore[misc]
        """Sends each request to a model through an engine."""

        def __init__(self, inner: typing.Any, options: Options) -> None:
            self._pooled = Pooled(http, http.AsyncHTTPTransport, inner)
            self.options = options

        @property
        def inner(self) -> typing.Any:
            """What sends the requests; others may be put around it later."""
            return self._pooled.inner

        @inner.setter
        def inner(self, inner: typing.Any) -> None:
            self._pooled = Pooled(http, http.AsyncHTTPTransport, inner)

        async def handle_async_request(self, request: typing.Any) -> typing.Any:
            asked = self.options.asked(request, copies)
            if asked is None:
                return await self.inner.handle_async_request(request)
            content, pooled = await request.aread(), self._pooled
            try:
                call = begun(http, copies, self.options, pooled, request, asked,
                             content)
            except Exception as exc:
                raise passing(exc, request, asked.api[0])
            if call is None:
                return await self.inner.handle_async_request(request)
            wire = AsyncWire(self.inner)
            if isinstance(call, Plain):
                try:
                    if await wire.plain(call, pooled):
                        return call.response
                except BaseException as exc:
                    call.error = exc
            else:
                call.body = lambda given: AsyncGuardedStream(given, wire)
            return await wire.drive(call)

        async def __aenter__(self) -> "typing.Any":
            await self.inner.__aenter__()
            return self

        async def __aexit__(self, *exc: typing.Any) -> None:
            await self.inner.__aexit__(*exc)

        async def aclose(self) -> None:
            await self.inner.aclose()

    return AsyncGuardedTransport


class AsyncWire:
    """Does what an exchange asks for, one request at a time."""

    # Until there is a response.
    chunks: typing.Any = None
    _response: typing.Any = None
    _stream: typing.Any = None  # its body, while it is open
    _fresh = False  # the response's body has not been read yet

    def __init__(self, inner: typing.Any) -> None:
        self.inner = inner

    async def plain(self, call: Plain, pooled: Pooled) -> bool:
        """Sends a plain request; whether an accepted answer came whole."""
        parts: "list[bytes]" = []
        whole = False
        try:
            # One for all: each costs as much as the engine.
            with anyio.move_on_after(_left(call.until)) as scope:
                response = call.response = await pooled.aask(call.request)
                self.opened(response)
                if response.status_code >= 300:
                    return False
                stream = self._stream
                async for chunk in stream:
                    parts.append(chunk)
                whole = True
                await stream.aclose()
                self._stream = None
            if scope.cancelled_caught:
                if not whole:
                    raise Late("no whole answer in time")
                await self.close()
        except BaseException:
            await self.close()
            raise
        return call.answered(parts)

    async def drive(self, exchange: "Exchange | Plain") -> typing.Any:
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
                    reply = await getattr(self, todo[0])(*todo[1:])
                except Exception as exc:
                    error = exc
        except StopIteration as stop:
            assert isinstance(exchange, Exchange)
            exchange.result = None  # a stream's leads back here
            return stop.value
        except BaseException as exc:
            try:
                out = exchange.over(exc)
            finally:
                await self.close()
            if isinstance(out, BaseException):
                raise out
            return out
        finally:
            error = out = None  # their tracebacks hold this frame

    # ---- what an exchange yields, by name

    async def open(self, request: typing.Any, trace: Trace,
                   until: "float | None") -> typing.Any:
        request.extensions["trace"] = trace.acallback
        if self._stream is not None:
            await self.close()
        with anyio.move_on_after(_left(until)) as scope:
            response = await self.inner.handle_async_request(request)
        if scope.cancelled_caught:
            raise Late("no answer in time")
        self.opened(response)
        return response

    def opened(self, response: typing.Any) -> None:
        """A response whose body is to be read."""
        self._response = response
        self._stream = response.stream
        self._fresh = True

    async def sleep(self, seconds: float) -> None:
        await anyio.sleep(seconds)

    async def ask(self, function: "typing.Callable[..., typing.Any]",
                  args: "tuple[typing.Any, ...]") -> typing.Any:
        reply = function(*args)
        return await reply if inspect.isawaitable(reply) else reply

    async def all(self, parts: "list[bytes]", most: "int | None",
                  until: "float | None") -> None:
        size = 0
        try:
            with anyio.move_on_after(_left(until)) as scope:
                async for chunk in self._stream:
                    parts.append(chunk)
                    size += len(chunk)
                    if most is not None and size > most:
                        return
            if scope.cancelled_caught:
                raise Late("the answer did not end in time")
        finally:
            await self.close()

    async def read(self, until: "float | None") -> "bytes | None":
        if self._fresh:
            self._fresh = False
            self.chunks = (self._response.aiter_bytes()
                           if "content-encoding" in self._response.headers
                           else aiter(self._stream))
        with anyio.move_on_after(_left(until)):
            try:
                return typing.cast(bytes, await self.chunks.__anext__())
            except StopAsyncIteration:
                return None
        raise Late("no content in time")

    async def close(self) -> None:
        """Hangs up, where a request is open; also when cancelled."""
        stream, self._stream = self._stream, None
        if stream is not None:
            with anyio.move_on_after(_CLOSE_S, shield=True):
                await stream.aclose()


async def _stored(given: GivenAway) -> None:
    storing = given.store()
    if inspect.isawaitable(storing):
        await storing


def _left(until: "float | None") -> "float | None":
    return None if until is None else max(0.0, until - time.monotonic())
