"""A streamed answer of the anthropic SDK: held, given away, watched.

The SDK reads a stream by iter_bytes() of the response beneath, decoded. That
method and close() are replaced on the one response, so that every way to read
it is seen: events, text_stream, raw lines.
"""

from __future__ import annotations

import json
import time
import typing

from fivegates._core import (
    SAW_ERROR,
    SAW_REASONING,
    SAW_TOKEN,
    SAW_TOOL_ARGS,
)
from fivegates.errors import Refused
from fivegates.evidence import evidence_of
from fivegates.stream import StreamError, StreamWatcher

if typing.TYPE_CHECKING:
    from fivegates._core import Decision
    from fivegates.attempt import Attempt
    from fivegates.driven import Driven

__all__ = ["Watched"]

Steps = typing.Generator[typing.Tuple[typing.Any, ...], typing.Any, typing.Any]
Told = typing.Callable[[Refused], BaseException]

_CONTENT = SAW_TOKEN | SAW_REASONING | SAW_TOOL_ARGS
# What is held at most: an endless prologue must not fill the memory.
_HELD_BYTES = 1 << 20
_ERROR_EVENT = b"event: error"


class Watched:
    """One attempt's stream. told(refused) makes the exception to raise."""

    def __init__(self, driven: "Driven", attempt: "Attempt",
                 response: typing.Any, told: Told) -> None:
        self.driven = driven
        self.attempt = attempt
        # Not the response itself: it keeps the stream that is read, which
        # then would not be closed when its reader drops it.
        self.client = response._client
        self.raw = response.http_response
        self.told = told
        self.watcher = StreamWatcher(attempt, "messages")
        self.held: "list[bytes]" = []
        self.chunks: typing.Any = None
        self.reading = False  # httpx closes a response it has read to its end
        self.ended = False

    # ---- before the first content

    def hold(self) -> Steps:
        """Reads on until the first content. False: the answer ended without.

        Raises what ends it before that.
        """
        first = self.attempt.first_token_s
        until = self.attempt.started + first if first else None
        size = 0
        try:
            self.chunks = yield "chunks", self.raw
            while (chunk := (yield "next", self.chunks)) is not None:
                if self.watcher.feed(chunk) & SAW_ERROR:
                    raise self._error_event()
                self.held.append(chunk)
                size += len(chunk)
                if self.watcher.saw & _CONTENT or size > _HELD_BYTES:
                    return True
                if until is not None and time.monotonic() > until:
                    raise StreamError("no content in time", {
                        "phase": "stream", "status": 200,
                        "timeout": "first_token_timeout"})
            self.watcher.close()
            return False
        except Exception:
            yield "close", self.raw
            raise

    def _error_event(self) -> Exception:
        """What the SDK raises for an error event: made on the 2xx answer."""
        text = self.watcher.scanner.evidence()["body"]
        try:
            body = json.loads(text)
        except ValueError:
            body = text
        error: Exception = self.client._make_status_error(
            str(body), body=body, response=self.raw)
        return error

    # ---- given to the caller

    def open(self) -> None:
        """From here on the caller reads, and the engine hears of it."""
        if not self.attempt.seen["visible"]:
            self.attempt.token(1)  # given away: it cannot be taken back
        self._install()

    def replay(self) -> None:
        """The caller reads what was held of an answer that has ended."""
        self.ended = True
        self._install()

    def _install(self) -> None:
        if hasattr(self.chunks, "__anext__"):
            self.raw.aiter_bytes = self._aiter
            self.raw.aclose = self._aclose
        else:
            self.raw.iter_bytes = self._iter
            self.raw.close = self._close

    def _iter(self, chunk_size: "int | None" = None) -> "typing.Iterator[bytes]":
        """iter_bytes(), in chunks as they come whatever the size asked for."""
        try:
            while self.held:
                yield self.held.pop(0)
            while True:
                self.reading = True
                try:
                    chunk = next(self.chunks, None)
                except Exception as exc:
                    raise self._broke(exc)
                finally:
                    self.reading = False
                if chunk is None:
                    return self._done()
                yield from self._heard(chunk)
        finally:
            self._left()
            self.chunks.close()

    async def _aiter(self, chunk_size: "int | None" = None,
                     ) -> "typing.AsyncIterator[bytes]":
        try:
            while self.held:
                yield self.held.pop(0)
            while True:
                self.reading = True
                try:
                    chunk = await anext(self.chunks, None)
                except Exception as exc:
                    raise self._broke(exc)
                finally:
                    self.reading = False
                if chunk is None:
                    self._done()
                    return
                for part in self._heard(chunk):
                    yield part
        finally:
            self._left()
            await self.chunks.aclose()

    def _close(self) -> None:
        if not self.reading:
            self._left()
        type(self.raw).close(self.raw)

    async def _aclose(self) -> None:
        if not self.reading:
            self._left()
        await type(self.raw).aclose(self.raw)

    def _heard(self, chunk: bytes) -> "typing.Iterator[bytes]":
        """Passes a chunk on, told before; raises at an error event."""
        if self.ended or not self.watcher.feed(chunk) & SAW_ERROR:
            yield chunk
            return
        before, _, _ = chunk.partition(_ERROR_EVENT)
        if before != chunk and before:
            yield before
        raise self._broke(self._error_event())

    # ---- how it ended

    def _end(self) -> None:
        """Leaves the response as it was: no cycle keeps it from closing."""
        self.ended = True
        for name in ("iter_bytes", "close", "aiter_bytes", "aclose"):
            self.raw.__dict__.pop(name, None)

    def _left(self) -> None:
        """Nobody reads on: the caller left, unless the answer was there."""
        if self.ended:
            return
        if not self.watcher.whole:
            self._end()
            self.driven.gone()
            return
        try:
            self._done()
        except Refused:
            pass  # told to the ledger; there is nobody to raise it to

    def _done(self) -> None:
        """The bytes have ended."""
        if self.ended:
            return
        try:
            self.watcher.close()
        except StreamError as exc:
            raise self._broke(exc)
        self._end()
        try:
            self._decided(self.driven.call.success(
                attempt=self.attempt.number, **self.attempt.facts(None)))
        except Refused as refused:
            raise self.told(refused)

    def _broke(self, exc: Exception) -> BaseException:
        """The engine hears of a failure: what the caller gets for it."""
        self._end()
        found = evidence_of(exc)
        if found is None:
            self.driven.broken(exc)
            return exc
        self.driven.error = exc
        try:
            self._decided(self.driven.call.failure(
                self.attempt.evidence(found), attempt=self.attempt.number))
        except Refused as refused:
            return self.told(refused)
        return exc

    def _decided(self, decision: "Decision") -> None:
        self.driven.told(decision)
        if decision.action == "accept":
            self.driven.end(decision, None)
        else:
            self.driven.refuse(decision)
