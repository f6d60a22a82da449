"""A fast loopback provider in a process of its own, for many requests.

python -m support.fault_server prints its port. The answer is named by the
first part of the path: ok, 429, 500, reset, cut, event, slow (nothing comes),
stall (nothing comes after the first content), big-N (N events of 32 KiB) and
crowd-N-M (M events each, once N streams are open).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pathlib
import subprocess
import sys
import typing

__all__ = ["big_event", "fault_server"]

_HEAD = (b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
         b"Transfer-Encoding: chunked\r\n\r\n")


def event(content: "str | None", finish: "str | None" = None) -> bytes:
    delta = {"content": content} if content is not None else {}
    return b"data: " + json.dumps({
        "id": "c1", "object": "chat.completion.chunk", "created": 1,
        "model": "m1", "choices": [{"index": 0, "delta": delta,
                                    "finish_reason": finish}]}).encode() + b"\n\n"


END = event(None, "stop") + b"data: [DONE]\n\n"


def big_event(i: int) -> bytes:
    return event(f"{i:08d}" + "x" * 32600)


def chunk(raw: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(raw), raw)


def whole(status: int, value: object, headers: bytes = b"") -> bytes:
    raw = json.dumps(value).encode()
    return (b"HTTP/1.1 %d X\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n%s\r\n%s" % (status, len(raw), headers, raw))


def fault(status: int, code: str, headers: bytes = b"") -> bytes:
    return whole(status, {"error": {"type": code, "code": code,
                                    "message": f"fault {code}"}}, headers)


OK = whole(200, {
    "id": "c1", "object": "chat.completion", "created": 1, "model": "m1",
    "choices": [{"index": 0, "finish_reason": "stop",
                 "message": {"role": "assistant", "content": "hello"}}],
    "usage": {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}})
STREAM = _HEAD + chunk(event("hel")) + chunk(event("lo")) + chunk(END) + chunk(b"")
FAULTS = {"429": fault(429, "rate_limit_exceeded", b"retry-after-ms: 1\r\n"),
          "500": fault(500, "server_error")}
ERROR_EVENT = (b'data: {"error": {"type": "server_error", "code": '
               b'"server_error", "message": "overloaded"}}\n\n')


class Server:
    def __init__(self) -> None:
        self.waiting = 0
        self.crowded = asyncio.Event()

    async def connection(self, reader: asyncio.StreamReader,
                         writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while await self.request(reader, writer):
                await writer.drain()
        writer.close()

    async def request(self, reader: asyncio.StreamReader,
                      writer: asyncio.StreamWriter) -> bool:
        """Answers one request; False: the connection ends."""
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        size = int(head.partition(b"content-length: ")[2].split(b"\r\n")[0])
        stream = b'"stream":true' in (await reader.readexactly(size)).replace(
            b" ", b"")
        name, *numbers = head.split(b"/")[1].decode().split("-")
        if name in FAULTS:
            writer.write(FAULTS[name])
        elif name == "ok":
            writer.write(STREAM if stream else OK)
        elif name == "reset":
            return False
        elif name in ("slow", "stall"):
            if name == "stall":
                writer.write(_HEAD + chunk(event("some")))
            await reader.read(1)  # until the client hangs up
            return False
        elif name in ("cut", "event"):
            writer.write(_HEAD + chunk(event("some")))
            if name == "cut":
                return False
            writer.write(chunk(ERROR_EVENT) + chunk(b""))
        elif name == "big":
            writer.write(_HEAD)
            for i in range(int(numbers[0])):
                writer.write(chunk(big_event(i)))
                await writer.drain()
            writer.write(chunk(END) + chunk(b""))
        elif name == "crowd":
            writer.write(_HEAD + chunk(event("0 ")))
            self.waiting += 1
            if self.waiting == int(numbers[0]):
                self.crowded.set()
            await self.crowded.wait()
            for i in range(1, int(numbers[1])):
                writer.write(chunk(event(f"{i} ")))
                await writer.drain()
                await asyncio.sleep(0)
            writer.write(chunk(END) + chunk(b""))
        return True

    async def main(self) -> None:
        server = await asyncio.start_server(self.connection, "127.0.0.1", 0,
                                            backlog=2048)
        print(server.sockets[0].getsockname()[1], flush=True)
        async with server:
            await asyncio.to_thread(sys.stdin.read)  # until the parent is gone
            sys.stdin.close()


@contextlib.contextmanager
def fault_server() -> "typing.Iterator[str]":
    """Runs it: its URL."""
    # It has no extension for a sanitizer to watch.
    env = {name: value for name, value in os.environ.items()
           if name not in ("LD_PRELOAD", "PYTHONMALLOC")}
    with subprocess.Popen(
            [sys.executable, "-m", "support.fault_server"],
            cwd=pathlib.Path(__file__).parents[1], env=env, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE) as process:
        assert process.stdin and process.stdout
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.stdin.close()
            process.kill()


if __name__ == "__main__":
    asyncio.run(Server().main())
