"""The provider: a server on loopback that does what its script says."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import errno
import json
import time
import typing

from fivegates.provider.answers import make_answer
from fivegates.provider.asked import api_of, read_asked
from fivegates.provider.control import other_answer
from fivegates.provider.exchange import Exchange
from fivegates.provider.incoming import (BadRequest, Incoming, Received,
                                         need_h11)
from fivegates.provider.journal import Journal
from fivegates.provider.script import Script
from fivegates.provider.settings import SettingsError

__all__ = ["HOST", "Provider"]

Json = typing.Dict[str, typing.Any]
HOST = "127.0.0.1"
_BACKLOG = 1024
_KINDS = 100  # of unknown requests that are told apart


class Provider:
    """The server. Use it as an async context manager, or start() and stop()."""

    def __init__(self, script: Script, journal: "Journal | None" = None) -> None:
        self.journal = journal or Journal()
        self.port = 0
        # Requests that no API answers, by method and path.
        self.unknown: "collections.Counter[str]" = collections.Counter()
        self._open: "set[asyncio.Task[None]]" = set()
        self._exchanges = 0
        self._connections = 0
        self._server: "asyncio.Server | None" = None
        self.switch(script)

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def switch(self, script: Script) -> None:
        """Another script, from its beginning, for the requests to come."""
        self.script = script
        self._began = time.monotonic()
        slots = script.speed.slots
        self._slots = asyncio.Semaphore(slots) if slots else None

    def state(self) -> Json:
        """What is going on, in short."""
        records = self.journal.records
        phase, _ = self.script.phase_at(time.monotonic() - self._began)
        return {"faults": self.script.describe(), "phase": phase,
                "requests": len(records), "open": self._exchanges,
                "billed": sum(one.billed for one in records),
                "whole": sum(one.whole for one in records),
                "effects": len(self.journal.effects)}

    async def start(self, port: int = 0) -> None:
        """Listens; port 0: on one that is free."""
        need_h11()
        try:
            self._server = await asyncio.start_server(
                self._accept, HOST, port, backlog=_BACKLOG)
        except (OSError, OverflowError) as exc:
            taken = getattr(exc, "errno", 0) == errno.EADDRINUSE
            why = ("is taken by another program; choose another, or 0 for one "
                   "that is free" if taken else
                   getattr(exc, "strerror", None) or str(exc))
            raise SettingsError(f"port {port} {why}") from None
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Ends all exchanges; their records are written."""
        if self._server is not None:
            self._server.close()
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)
        if self._server is not None:
            await self._server.wait_closed()

    async def settle(self, seconds: float) -> None:
        """Lets work that goes on without its client come to an end."""
        end = time.monotonic() + seconds
        while self._exchanges and time.monotonic() < end:
            await asyncio.sleep(0.01)

    async def __aenter__(self) -> "Provider":
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    def _accept(self, reader: asyncio.StreamReader,
                writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        task = asyncio.ensure_future(self._serve(
            reader, writer, self._connections))
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    async def _serve(self, reader: asyncio.StreamReader,
                     writer: asyncio.StreamWriter, connection: int) -> None:
        incoming = Incoming(reader, writer)
        try:
            keep = True
            while keep:
                request = await incoming.next()
                if request is None:
                    break
                keep = await self._answer(request, incoming, reader, writer,
                                          connection)
        except BadRequest as exc:
            await self._send(writer, 400, {"error": {"message": str(exc)}})
        except ConnectionError:
            pass
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _send(self, writer: asyncio.StreamWriter, status: int,
                    value: Json) -> None:
        """An answer of the server's own, which no fault touches."""
        raw = json.dumps(value).encode()
        writer.write(b"HTTP/1.1 %d X\r\nContent-Type: application/json\r\n"
                     b"Content-Length: %d\r\n\r\n" % (status, len(raw)) + raw)
        with contextlib.suppress(ConnectionError):
            await writer.drain()

    async def _answer(self, request: Received, incoming: Incoming,
                      reader: asyncio.StreamReader,
                      writer: asyncio.StreamWriter, connection: int) -> bool:
        """Answers a request; whether the connection stays open."""
        api = api_of(request.path)
        if api is None or request.method != "POST":
            status, value = other_answer(self, request)
            if status == 404 and len(self.unknown) < _KINDS:
                self.unknown[f"{request.method} {request.path[:200]}"] += 1
            await self._send(writer, status, value)
            return request.keep
        try:
            body = json.loads(request.body)
            if not isinstance(body, dict):
                raise ValueError("not an object")
            asked = read_asked(api, body)
        except (ValueError, RecursionError) as exc:
            await self._send(writer, 400, {"error": {
                "type": "invalid_request_error", "code": "invalid_json",
                "message": f"We could not parse the JSON body: {exc}"}})
            return request.keep
        script = self.script
        record = self.journal.received(asked, request.path, request.headers,
                                       connection)
        step = script.next(request.path, asked.key,
                           time.monotonic() - self._began)
        record.fault = step.fault.name
        x = Exchange(asked, make_answer(asked, script.speed.output_tokens),
                     record, self.journal, script.speed, self._slots, reader,
                     writer)
        self._exchanges += 1
        try:
            await x.run(step.play(x))
        finally:
            self._exchanges -= 1
        incoming.put_back(x.extra)
        return x.keep and request.keep
