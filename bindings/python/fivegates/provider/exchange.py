"""One request being answered: what a fault has to play with.

An answer is billed as providers do: an error bills nothing; an answer that was
begun bills its prompt and the tokens made, whether or not they arrive. When the
client leaves, the work goes on and keeps its slot, unless the speed says that
the provider frees it.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import socket
import struct
import typing

from fivegates.provider.answers import Answer
from fivegates.provider.asked import Asked
from fivegates.provider.chat import Chat
from fivegates.provider.journal import Journal, Record
from fivegates.provider.messages import Messages
from fivegates.provider.refusals import body_of, status_of
from fivegates.provider.responses import Responses
from fivegates.provider.shape import Shape

__all__ = ["Exchange", "Gone", "Speed"]

Json = typing.Dict[str, typing.Any]
_SHAPES: "dict[str, type[Shape]]" = {
    "chat": Chat, "responses": Responses, "messages": Messages}
_REASONS = {200: "OK", 400: "Bad Request", 401: "Unauthorized",
            404: "Not Found", 413: "Payload Too Large",
            429: "Too Many Requests", 500: "Internal Server Error",
            502: "Bad Gateway", 503: "Service Unavailable",
            504: "Gateway Timeout", 529: "Site is overloaded"}
_PIPELINED = 1 << 20  # bytes of a next request kept while this one is answered


class Gone(Exception):
    """The client has hung up, or the connection was closed on it."""


@dataclasses.dataclass(frozen=True)
class Speed:
    """How fast the model is. The defaults are those of the drills' provider,
    with shorter answers and room for everybody."""

    first_token_s: float = 0.144  # for an empty prompt
    prompt_tokens_per_s: float = 2000.0
    tokens_per_s: float = 71.11
    output_tokens: int = 32  # of an answer in words
    slots: int = 0  # answers made at once, others queue; 0: no limit
    frees_when_left: bool = False  # an answer stops when its client leaves


class Exchange:
    """A request, its answer, and the connection's own bytes."""

    def __init__(self, asked: Asked, answer: Answer, record: Record,
                 journal: Journal, speed: Speed,
                 slots: "asyncio.Semaphore | None",
                 reader: asyncio.StreamReader,
                 writer: asyncio.StreamWriter) -> None:
        self.asked = asked
        self.answer = answer
        self.record = record
        self.journal = journal
        self.speed = speed
        self.state: Json = {}  # of the fault, across requests
        self.keep = True  # the connection stays open after the answer
        self.extra = b""  # what the client sent meanwhile
        self._slots = slots
        self._writer = writer
        self._left = asyncio.ensure_future(self._watch(reader))
        self.shape = self._shape_of(answer)

    def _shape_of(self, answer: Answer) -> Shape:
        return _SHAPES[self.asked.api](self.asked, answer)

    def say(self, answer: Answer) -> None:
        """Another answer than the one that was to be given."""
        self.answer = answer
        self.shape = self._shape_of(answer)

    async def _watch(self, reader: asyncio.StreamReader) -> None:
        """Ends when the client hangs up."""
        with contextlib.suppress(OSError):
            while len(self.extra) < _PIPELINED:
                raw = await reader.read(65536)
                if not raw:
                    break
                self.extra += raw
            else:
                await asyncio.get_running_loop().create_future()
        if self.record.left_at is None and not self.record.whole:
            self.record.left_at = self.journal.now()

    @property
    def gone(self) -> bool:
        return self._left.done()

    # ---- time

    async def work(self, seconds: float) -> None:
        """Time in which the model works."""
        if not self.speed.frees_when_left:
            await asyncio.sleep(seconds)
            return
        await self.silence(seconds)

    async def silence(self, seconds: float) -> None:
        """Time in which nothing is sent; Gone as soon as the client leaves."""
        if not self.gone:
            await asyncio.wait({self._left}, timeout=seconds)
        if self.gone:
            raise Gone

    @contextlib.asynccontextmanager
    async def slot(self) -> "typing.AsyncIterator[None]":
        """A place at the model; first come, first served."""
        if self._slots is None:
            yield
            return
        async with self._slots:
            yield

    def bill(self, prompt: bool = False, output: int = 0) -> None:
        if prompt:
            self.record.billed_prompt += self.asked.prompt_tokens
        self.record.billed_output += output

    async def prefill(self, slower: float = 1.0) -> None:
        """Reads the prompt."""
        self.bill(prompt=True)
        speed = self.speed
        await self.work(slower * (speed.first_token_s + self.asked.prompt_tokens
                                  / speed.prompt_tokens_per_s))

    # ---- bytes

    async def write(self, raw: bytes) -> None:
        """Bytes as they are. To a client that left: nothing, or Gone where the
        provider stops for that."""
        if self.gone:
            if self.speed.frees_when_left:
                raise Gone
            return
        try:
            self._writer.write(raw)
            await self._writer.drain()
        except ConnectionError:
            if self.speed.frees_when_left:
                raise Gone from None

    async def head(self, status: int, headers: "dict[str, str]") -> None:
        self.record.status = status
        self.record.answered_at = self.journal.now()
        lines = [f"HTTP/1.1 {status} {_REASONS.get(status, 'Unknown')}",
                 f"x-request-id: req_{self.record.number:06d}"]
        if "Content-Length" not in headers and "Transfer-Encoding" not in headers:
            self.keep = False
        if not self.keep:
            lines.append("Connection: close")
        lines += [f"{name}: {value}" for name, value in headers.items()]
        await self.write("\r\n".join(lines).encode() + b"\r\n\r\n")

    async def body(self, status: int, raw: bytes, kind: str = "application/json",
                   headers: "dict[str, str] | None" = None) -> None:
        """A whole body of the right length."""
        await self.head(status, {"Content-Type": kind, "Content-Length":
                                 str(len(raw)), **(headers or {})})
        await self.write(raw)

    async def refuse(self, name: str, headers: "dict[str, str] | None" = None,
                     status: "int | None" = None) -> None:
        """An error answer. It bills nothing."""
        api = self.asked.api
        await self.body(status or status_of(api, name),
                        json.dumps(body_of(api, name)).encode(),
                        headers=headers)

    async def begin_stream(self, kind: str = "text/event-stream") -> None:
        await self.head(200, {"Content-Type": kind,
                              "Transfer-Encoding": "chunked"})

    async def part(self, raw: bytes) -> None:
        """Bytes as one chunk of the stream."""
        await self.write(b"%x\r\n%s\r\n" % (len(raw), raw))

    async def parts(self, events: "typing.Iterable[bytes]") -> None:
        for one in events:
            await self.part(one)

    async def end_stream(self) -> None:
        await self.write(b"0\r\n\r\n")

    def delivered(self) -> None:
        """The answer is complete; a client that is there has all of it."""
        if not self.gone:
            self.record.whole = True

    def close(self) -> None:
        """Ends the connection politely, after what was written."""
        self.keep = False

    def reset(self) -> None:
        """Ends the connection the hard way: TCP RST."""
        self.keep = False
        raw = self._writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                       struct.pack("ii", 1, 0))
        self._writer.transport.abort()

    # ---- the life of an exchange

    async def run(self, playing: "typing.Awaitable[None]") -> None:
        """Lets a fault play; writes the record whatever happens."""
        try:
            await playing
        except (Gone, ConnectionError):
            self.keep = False
        finally:
            if self.gone:
                self.keep = False
            self._left.cancel()
            await asyncio.wait({self._left})  # it no longer reads
            self.journal.ended(self.record)
