"""Watching a raw stream: bytes of an answer in, progress out.

    watcher = StreamWatcher(attempt)
    for chunk in response.iter_raw():
        watcher.feed(chunk)
        ...
    watcher.close()

Bytes must be decoded (no gzip). Parsed events of an SDK are for
Attempt.watch() instead.
"""

from __future__ import annotations

import typing

from fivegates._core import (
    SAW_ERROR,
    SAW_LIFECYCLE,
    SAW_REASONING,
    SAW_TERMINAL,
    SAW_TOKEN,
    SAW_TOOL_ARGS,
    SAW_USAGE,
    SseScanner,
)
from fivegates.attempt import Attempt
from fivegates.errors import StreamError

if typing.TYPE_CHECKING:
    from fivegates._core import Wire

__all__ = ["StreamError", "StreamWatcher", "aiter_bytes", "iter_bytes"]


class StreamWatcher:
    """Feeds a scanner and tells an attempt what came."""

    def __init__(self, attempt: "Attempt | None" = None, wire: "Wire" = "auto",
                 whole: bool = False) -> None:
        self.attempt = attempt
        self.scanner = SseScanner(wire, whole)
        self.saw = 0
        if attempt is not None:
            attempt.body = self.scanner
        self._before: "dict[str, typing.Any]" = self.scanner.answer()
        self._rest = 0  # characters that made no token yet

    def feed(self, chunk: "bytes | bytearray | memoryview | str") -> int:
        """Reads a chunk; the SAW_* bits of what it held."""
        saw = self.scanner.feed(chunk)
        self.saw |= saw
        if self.attempt is not None:
            self._tell(self.attempt, saw, chunk)
        return saw

    def _tell(self, attempt: Attempt, saw: int,
              chunk: "bytes | bytearray | memoryview | str") -> None:
        if not attempt.head_seen:
            attempt.accepted()
        if saw & SAW_LIFECYCLE:
            attempt.lifecycle()
        if saw & SAW_REASONING:
            attempt.reasoning()
        if saw & SAW_TOOL_ARGS:
            attempt.tool_args(1)
        if not saw & (SAW_TOKEN | SAW_USAGE | SAW_TERMINAL):
            return
        now = self.scanner.answer()
        if saw & SAW_TOKEN:
            fresh = now["visible"] - self._before["visible"] + self._rest
            count = max(1, _events(chunk), fresh // 4)
            self._rest = max(0, fresh - 4 * count)
            attempt.token(count)
        if saw & SAW_USAGE:
            attempt.usage(prompt_tokens=now["prompt_tokens"],
                          output_tokens=now["output_tokens"],
                          cached_tokens=now["cached_tokens"],
                          final=now["final"])
        if saw & SAW_TERMINAL:
            attempt.terminal(now["finish_reason"])
        self._before = now

    @property
    def whole(self) -> bool:
        """Whether the answer's own end came, and no error: with several
        choices (n > 1) the end of each."""
        return (self.saw & (SAW_ERROR | SAW_TERMINAL) == SAW_TERMINAL
                and self.scanner.answer()["finish_reason"] != "none")

    def close(self) -> "dict[str, typing.Any]":
        """The stream has ended: usage and finish reason, or StreamError."""
        if not self.whole:
            evidence = self.scanner.evidence()
            evidence["whole_body"] = True
            evidence["phase"] = "stream"
            evidence.setdefault("status", 200)
            raise StreamError(
                "an error event in the stream" if self.saw & SAW_ERROR
                else "the stream ended without its end", evidence)
        return self.scanner.answer()


def _events(chunk: "bytes | bytearray | memoryview | str") -> int:
    """About how many events a chunk holds. Most bring a token; and so the
    tokens told do not depend on how the network cut the stream."""
    if isinstance(chunk, str):
        return chunk.count("data:")
    return bytes(chunk).count(b"data:")


def iter_bytes(stream: "typing.Iterable[bytes]", attempt: Attempt,
               wire: "Wire" = "auto") -> "typing.Iterator[bytes]":
    """Passes a stream's chunks on, each told before; StreamError at a cut."""
    watcher = StreamWatcher(attempt, wire)
    for chunk in stream:
        watcher.feed(chunk)
        yield chunk
    watcher.close()


async def aiter_bytes(stream: "typing.AsyncIterable[bytes]", attempt: Attempt,
                      wire: "Wire" = "auto") -> "typing.AsyncIterator[bytes]":
    """The same for async code."""
    watcher = StreamWatcher(attempt, wire)
    async for chunk in stream:
        watcher.feed(chunk)
        yield chunk
    watcher.close()
