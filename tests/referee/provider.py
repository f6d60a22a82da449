"""The loopback provider: chat completions of several routes, with faults.

    /RUN/ROUTE/v1/chat/completions   what the run's script says for ROUTE
    /RUN/tool/NAME                   POST {op, about}: a tool acts on the world
    /RUN/tool/NAME/OP                GET: did it?

One asyncio server serves all runs. Each request has a connection of its own,
so that a client that leaves is seen at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct
import typing

from referee.journal import Effect, Journal, Request

__all__ = ["Exchange", "Gone", "Provider", "Script", "World"]

Json = typing.Dict[str, typing.Any]
Fault = typing.Callable[["Exchange"], typing.Awaitable[None]]
Script = typing.Mapping[str, typing.Sequence[Fault]]

WORDS = 12  # output tokens of an answer
PROMPT_TOKENS = 50
PRICES = {"input": 2.5, "output": 10.0}
_REASONS = {200: "OK", 400: "Bad Request", 401: "Unauthorized",
            404: "Not Found", 429: "Too Many Requests",
            500: "Internal Server Error", 503: "Service Unavailable"}


class Gone(Exception):
    """The client has hung up."""


class World:
    """One scenario being played to one system."""

    def __init__(self, name: str, script: Script,
                 tool_script: "typing.Sequence[str]" = ("done",),
                 models: "dict[str, str] | None" = None) -> None:
        self.name = name
        self.script = script
        self.tool_script = tool_script
        self.models = models or {}
        self.journal = Journal(PRICES)
        self.open: "set[asyncio.Task[None]]" = set()

    def fault(self, request: Request) -> Fault:
        """The n-th request of a route gets the n-th entry; the last stays."""
        entries = self.script[request.route]
        return entries[min(request.nth, len(entries)) - 1]

    async def settle(self, seconds: float) -> None:
        """Lets answers that are still being made come to an end."""
        if self.open:
            await asyncio.wait(self.open, timeout=seconds)
        for task in list(self.open):
            task.cancel()
        if self.open:
            await asyncio.wait(self.open, timeout=1)
        for one in self.journal.requests:
            if one.ended_at is None:
                one.ended_at = self.journal.now()


class Exchange:
    """One request being answered: what a fault has to play with."""

    def __init__(self, world: World, request: Request,
                 reader: asyncio.StreamReader,
                 writer: asyncio.StreamWriter) -> None:
        self.world = world
        self.request = request
        self.writer = writer
        self.streamed = bool(request.body.get("stream"))
        self.model = world.models.get(request.route, request.route)
        self.words = [f"{request.route}{request.nth}.{i}" for i in range(WORDS)]
        request.text = " ".join(self.words)
        self._left = asyncio.ensure_future(self._watch(reader))

    async def _watch(self, reader: asyncio.StreamReader) -> None:
        """Ends when the client hangs up."""
        with contextlib.suppress(ConnectionError):
            while await reader.read(1024):
                pass
        if self.request.left_at is None and not self.request.whole:
            self.request.left_at = self.world.journal.now()

    @property
    def gone(self) -> bool:
        return self._left.done()

    async def pause(self, seconds: float, deaf: bool = False) -> None:
        """Works for a while; Gone when the client leaves, unless deaf to it."""
        if deaf:
            await asyncio.sleep(seconds)
            return
        await asyncio.wait({self._left}, timeout=seconds)
        if self.gone:
            raise Gone

    def bill(self, prompt: bool = False, output: int = 0) -> None:
        if prompt:
            self.request.billed_prompt = PROMPT_TOKENS
        self.request.billed_output += output

    async def _write(self, raw: bytes) -> None:
        if self.gone:
            raise Gone
        self.writer.write(raw)
        await self.writer.drain()

    async def head(self, status: int, headers: "dict[str, str]") -> None:
        self.request.status = status
        self.request.answered_at = self.world.journal.now()
        lines = [f"HTTP/1.1 {status} {_REASONS.get(status, 'Unknown')}",
                 "Connection: close", "x-request-id: "
                 f"req_{self.world.name}_{self.request.number}",
                 *(f"{name}: {value}" for name, value in headers.items())]
        await self._write("\r\n".join(lines).encode() + b"\r\n\r\n")

    async def json(self, status: int, value: object,
                   headers: "dict[str, str] | None" = None,
                   keep: "int | None" = None) -> None:
        """A whole body; keep: only so many of its bytes."""
        raw = json.dumps(value).encode()
        await self.head(status, {"Content-Type": "application/json",
                                 "Content-Length": str(len(raw)),
                                 **(headers or {})})
        await self._write(raw[:keep])

    async def begin_stream(self) -> None:
        await self.head(200, {"Content-Type": "text/event-stream",
                              "Transfer-Encoding": "chunked"})

    async def raw(self, text: str) -> None:
        """Text as one piece of the stream."""
        raw = text.encode()
        await self._write(b"%x\r\n%s\r\n" % (len(raw), raw))

    async def event(self, value: object) -> None:
        await self.raw(f"data: {json.dumps(value)}\n\n")

    async def end_stream(self) -> None:
        await self._write(b"0\r\n\r\n")

    def reset(self) -> None:
        """Cuts the connection the hard way."""
        raw = self.writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                       struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    # ---- the shapes of chat completions

    def chunk(self, delta: Json, finish: "str | None" = None) -> Json:
        return {"id": f"c{self.request.number}", "created": 1,
                "object": "chat.completion.chunk", "model": self.model,
                "choices": [{"index": 0, "delta": delta,
                             "finish_reason": finish}]}

    def usage(self) -> Json:
        prompt, output = self.request.billed_prompt, self.request.billed_output
        return {"prompt_tokens": prompt, "completion_tokens": output,
                "total_tokens": prompt + output}

    def completion(self, message: "Json | None", finish: str = "stop") -> Json:
        choices = [] if message is None else [{
            "index": 0, "finish_reason": finish,
            "message": {"role": "assistant", **message}}]
        return {"id": f"c{self.request.number}", "created": 1,
                "object": "chat.completion", "model": self.model,
                "choices": choices, "usage": self.usage()}

    async def play(self, fault: Fault) -> None:
        self.request.fault = getattr(fault, "__name__", "?")
        try:
            await fault(self)
        except (Gone, ConnectionError):
            if self.request.left_at is None:
                self.request.left_at = self.world.journal.now()
        finally:
            self.request.ended_at = self.world.journal.now()
            self._left.cancel()


class Provider:
    """The server. Worlds are put in with add()."""

    def __init__(self) -> None:
        self.worlds: "dict[str, World]" = {}
        self.url = ""
        self._open: "set[asyncio.Task[None]]" = set()

    async def __aenter__(self) -> "Provider":
        self.server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        port = self.server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.server.close()
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)
        await self.server.wait_closed()

    def add(self, world: World) -> str:
        """The world's URL."""
        self.worlds[world.name] = world
        return f"{self.url}/{world.name}"

    def _accept(self, reader: asyncio.StreamReader,
                writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    async def _serve(self, reader: asyncio.StreamReader,
                     writer: asyncio.StreamWriter) -> None:
        try:
            await self._answer(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader,
                      writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.rstrip().split("\r\n")
        method, path, _ = first.split(" ", 2)
        headers = {name.strip().lower(): value.strip() for name, _, value in (
            line.partition(":") for line in lines)}
        raw = await reader.readexactly(int(headers.get("content-length", 0)))
        _, run, route, *rest = path.split("/")
        world = self.worlds[run]
        if route == "tool":
            await _tool(world, method, rest, raw, writer)
            return
        request = world.journal.arrive(route, headers, json.loads(raw))
        exchange = Exchange(world, request, reader, writer)
        task = asyncio.ensure_future(exchange.play(world.fault(request)))
        world.open.add(task)
        task.add_done_callback(world.open.discard)
        await asyncio.wait({task})


async def _tool(world: World, method: str, rest: "list[str]", raw: bytes,
                writer: asyncio.StreamWriter) -> None:
    """The tool's own service. It acts each time it is asked: no key is
    honoured, as with most that a model can reach."""
    journal, name = world.journal, rest[0]
    if method == "GET":
        journal.lookups.append(rest[1])
        status, body = 200, json.dumps({"done": any(
            one.op == rest[1] for one in journal.effects)})
    else:
        asked = json.loads(raw)
        journal.effects.append(Effect(journal.now(), name, asked["op"],
                                      asked["about"]))
        script = world.tool_script
        word = script[min(len(journal.effects), len(script)) - 1]
        status, body = (200, '{"done": true}') if word == "done" else (
            500, '{"error": "the acknowledgement was lost"}')
    writer.write(f"HTTP/1.1 {status} {_REASONS[status]}\r\nConnection: close"
                 "\r\nContent-Type: application/json\r\nContent-Length: "
                 f"{len(body)}\r\n\r\n{body}".encode())
    await writer.drain()
