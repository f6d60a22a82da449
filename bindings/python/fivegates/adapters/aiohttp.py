"""aiohttp asks the engine: a client middleware around requests to models.

    policy = EngineMiddleware(engine, "support-answer")
    async with aiohttp.ClientSession(middlewares=(policy,)) as session:
        async with session.post(url, json=body, headers=key) as answer: ...

Needs aiohttp 3.12. Each request to a model that goes through it is a call of
the engine; any other passes untouched. A stand-in that speaks the same API
gets the same request at its own base_url, with its own key and model. A stream
is held until its first content, so until then another route can still serve
it; after that the caller hears of a cut as Refused while reading. A refusal
raises Refused from aiohttp's exception; with reraise=True that exception, its
.refused set, or the error's answer, its .refused set.

What it cannot see: how far a request came but for what the exception's class
proves; aiohttp's traces are the session's, not the middleware's. In doubt it
was sent, and an interactive call is not sent to the same route again. Once the
caller reads a stream, silence ends by the session's sock_read alone. The
session's total time-out runs over all attempts and waits: leave it out, or
above the card's elapsed_ms. A redirect is a failure: following it would be
another send.
"""

from __future__ import annotations

import asyncio
import time
import typing
import urllib.parse

import aiohttp
import aiohttp.payload
import yarl

from fivegates._core import SAW_ERROR, SAW_TOKEN, SAW_TOOL_ARGS
from fivegates.adapters.aim import Aim, whole_answer
from fivegates.adapters.guard import Calls, Guard
from fivegates.stream import StreamError, StreamWatcher
from fivegates.transport.targets import Targets

if typing.TYPE_CHECKING:
    from typing_extensions import Unpack

    from fivegates._core import Engine, _Options
    from fivegates.attempt import Attempt

__all__ = ["EngineMiddleware"]

_CONTENT = SAW_TOKEN | SAW_TOOL_ARGS
_HELD_BYTES = 1 << 20  # of a stream without content; an endless one is let go
_GIVEN = object()

Handler = typing.Callable[[aiohttp.ClientRequest],
                          typing.Awaitable[aiohttp.ClientResponse]]


class EngineMiddleware:
    """A middleware that sends requests to models as the engine decides.

    keys: keys of routes by name, instead of the environment's. any_model: send
    requests for another model than the card's with the card's. facts(request)
    answers facts of one request; the body's own (stream, limits, tools, an
    estimate of the tokens) are known. sleep replaces asyncio.sleep. options
    are those of engine.arun(): facts of Engine.begin(), on_decision, ledger,
    evidence, reraise.
    """

    def __init__(self, engine: "Engine", workflow: str, *,
                 keys: "typing.Mapping[str, str] | None" = None,
                 any_model: bool = False,
                 facts: "typing.Callable[[aiohttp.ClientRequest], dict[str, typing.Any]] | None" = None,
                 sleep: "typing.Callable[[float], typing.Awaitable[object]]" = asyncio.sleep,
                 **options: "Unpack[_Options]") -> None:
        self._calls = Calls(engine, workflow, **options)
        self._targets = Targets(engine.policy, keys or {}, any_model)
        self._facts = facts
        self._sleep = sleep

    async def __call__(self, request: aiohttp.ClientRequest,
                       handler: Handler) -> aiohttp.ClientResponse:
        """One request of the caller's, however many go over the wire."""
        body = request.body
        content = (await body.as_bytes()
                   if isinstance(body, aiohttp.payload.BytesPayload) else None)
        aim = Aim.of(self._targets, request.method, str(request.url),
                     request.headers, content)
        if aim is None:
            return await handler(request)
        found = aim.model.facts()
        if self._facts is not None:
            found.update(self._facts(request))
        own = request.headers.copy()
        guard = self._calls.begin(found, lacks=aim.lacks)
        while True:
            attempt = await guard.aready(self._sleep)
            limit = (attempt.first_token_s if aim.model.streamed
                     else attempt.total_s)
            response: "aiohttp.ClientResponse | None" = None
            try:
                await _aim(request, own, aim, attempt)
                response = await asyncio.wait_for(handler(request), limit)
                answer = await asyncio.wait_for(
                    _judged(response, attempt, guard, aim),
                    limit and attempt.started + limit - time.monotonic())
            except BaseException as exc:
                try:
                    guard.failed(exc)
                except aiohttp.ClientResponseError as last:  # reraise=True
                    if response is None:
                        raise
                    setattr(response, "refused", getattr(last, "refused", None))
                    return response
                except BaseException:
                    if response is not None:
                        response.close()
                    raise
                if response is not None:
                    response.close()
                continue
            if answer is _GIVEN or guard.succeeded(answer):
                return response
            response.close()


async def _aim(request: aiohttp.ClientRequest, own: typing.Any, aim: Aim,
               attempt: "Attempt") -> None:
    """Makes the request that of this attempt: URL, body, headers."""
    url, headers, content = aim.at(attempt)
    request.url = yarl.URL(url, encoded=True)
    request.headers.clear()
    request.headers.update(own)
    await request.update_body(content)
    for name, value in headers.items():
        request.headers.popall(name, None)
        if value:
            request.headers[name] = value
    request.headers["Host"] = urllib.parse.urlsplit(url).netloc


async def _judged(response: aiohttp.ClientResponse, attempt: "Attempt",
                  guard: Guard, aim: Aim) -> object:
    """The answer for the engine; _GIVEN where the caller reads it. Raises
    what failed."""
    if not 200 <= response.status < 300:
        error = aiohttp.ClientResponseError(
            response.request_info, response.history, status=response.status,
            message=response.reason or "", headers=response.headers)
        setattr(error, "evidence", {
            "phase": "response", "status": response.status,
            "headers": list(response.headers.items()),
            "body": await response.read()})
        raise error
    attempt.accepted()
    if not aim.model.streamed:
        return whole_answer(response.status, response.headers,
                            await response.read())
    content = _Content(response.content, guard, StreamWatcher(attempt))
    more = await content.hold()
    response.content = typing.cast(aiohttp.StreamReader, content)
    if not more:
        return None  # it has ended, and the attempt has heard all of it
    guard.given()
    return _GIVEN


class _Content:
    """The body of a stream, heard by the engine as the caller reads: a
    StreamReader that asks another for what comes."""

    def __init__(self, source: aiohttp.StreamReader, guard: Guard,
                 watcher: StreamWatcher) -> None:
        self._source = source
        self._guard = guard
        self._watcher = watcher
        self._buffer = bytearray()
        self._ended = False
        self._left: "BaseException | None" = None  # how the caller closed it

    def __getattr__(self, name: str) -> typing.Any:
        return getattr(self._source, name)

    async def _read(self) -> bool:
        """One more chunk into the buffer; False at the answer's end."""
        chunk = b"" if self._ended else await self._source.readany()
        if chunk and not self._watcher.feed(chunk) & SAW_ERROR:
            self._buffer += chunk
            return True
        if not self._ended:
            self._ended = True
            self._watcher.close()
        return False

    async def hold(self) -> bool:
        """Reads up to the first content. False: it has ended well."""
        while await self._read():
            if (self._watcher.saw & _CONTENT
                    or len(self._buffer) > _HELD_BYTES):
                return True
        return False

    async def _more(self) -> bool:
        """The same for the caller, who hears of a refusal."""
        if self._left is not None and not self._ended:
            raise self._left
        try:
            if await self._read():
                return True
        except BaseException as exc:
            self._ended = True
            self._guard.cut(exc)
        self._guard.finished()
        return False

    def _take(self, n: int) -> bytes:
        out = bytes(self._buffer if n < 0 else self._buffer[:n])
        del self._buffer[:len(out)]
        return out

    async def read(self, n: int = -1) -> bytes:
        """As StreamReader's, as are all of the following."""
        while (n < 0 or (n and not self._buffer)) and await self._more():
            pass
        return self._take(n)

    async def readany(self) -> bytes:
        while not self._buffer and await self._more():
            pass
        return self._take(-1)

    async def readchunk(self) -> "tuple[bytes, bool]":
        chunk = await self.readany()
        return chunk, bool(chunk)

    async def readexactly(self, n: int) -> bytes:
        while len(self._buffer) < n and await self._more():
            pass
        if len(self._buffer) < n:
            raise asyncio.IncompleteReadError(self._take(-1), n)
        return self._take(n)

    async def readuntil(self, separator: bytes = b"\n", *,
                        max_size: "int | None" = None) -> bytes:
        most = max_size or _HELD_BYTES
        while (at := self._buffer.find(separator)) < 0:
            if len(self._buffer) > most:
                raise ValueError("Chunk too big")
            if not await self._more():
                return self._take(-1)
        return self._take(at + len(separator))

    async def readline(self, *, max_line_length: "int | None" = None) -> bytes:
        return await self.readuntil(max_size=max_line_length)

    def read_nowait(self, n: int = -1) -> bytes:
        return self._take(n)

    def is_eof(self) -> bool:
        return self._ended

    def at_eof(self) -> bool:
        return self._ended and not self._buffer

    def __aiter__(self) -> "typing.AsyncIterator[bytes]":
        return self._each(self.readline)

    def iter_chunked(self, n: int) -> "typing.AsyncIterator[bytes]":
        return self._each(lambda: self.read(n))

    def iter_any(self) -> "typing.AsyncIterator[bytes]":
        return self._each(self.readany)

    async def iter_chunks(self) -> "typing.AsyncIterator[tuple[bytes, bool]]":
        while (chunk := await self.readany()):
            yield chunk, True

    async def _each(self, read: "typing.Callable[[], typing.Awaitable[bytes]]",
                    ) -> "typing.AsyncIterator[bytes]":
        while (chunk := await read()):
            yield chunk

    def set_exception(self, exc: BaseException, *cause: BaseException) -> None:
        """Called as the response is closed: the caller has enough."""
        self._guard.closed(self._watcher.whole)
        self._left = exc
        self._source.set_exception(exc, *cause)
