"""A provider on loopback that says what its script says, byte for byte.

    with Upstream(main=[json_reply(503, ERROR), whole("hi")]) as upstream: ...

A request with /NAME/ in its path takes the next reply of NAME; the last stays.
A reply is bytes, sent as they are before the connection is closed, or a
function of the Peer.
"""

from __future__ import annotations

import contextlib
import json
import select
import socket
import struct
import threading
import time
import typing

Json = typing.Dict[str, typing.Any]
Reply = typing.Union[bytes, "typing.Callable[[Peer], None]"]

OVERLOADED = {"error": {"message": "The server is overloaded.",
                        "type": "server_error", "code": None}}
USAGE = {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}


class Peer:
    """One request, and the connection it came on."""

    def __init__(self, sock: socket.socket, path: str,
                 headers: "list[tuple[str, str]]", raw: bytes) -> None:
        self.sock = sock
        self.path = path
        self.headers = dict(headers)
        self.header_list = headers
        self.raw = raw
        self.at = time.monotonic()
        self.left = threading.Event()  # the gateway hung up
        self.left_at: "float | None" = None

    @property
    def body(self) -> Json:
        return typing.cast(Json, json.loads(self.raw))

    def send(self, raw: bytes) -> None:
        self.sock.sendall(raw)

    def wait(self, seconds: float) -> bool:
        """Waits; True as soon as the gateway hangs up."""
        ready, _, _ = select.select([self.sock], [], [], seconds)
        if ready and not self._more():
            self.left_at = self.left_at or time.monotonic()
            self.left.set()
        return self.left.is_set()

    def _more(self) -> bytes:
        try:
            return self.sock.recv(1, socket.MSG_PEEK)
        except ConnectionError:
            return b""

    def reset(self) -> None:
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                             struct.pack("ii", 1, 0))
        self.sock.close()


class Upstream:
    """The server; seen holds each route's requests."""

    def __init__(self, **scripts: "list[Reply]") -> None:
        self.scripts = scripts
        self.seen: "dict[str, list[Peer]]" = {name: [] for name in scripts}
        self.connections = 0
        self._lock = threading.Lock()
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port = self._socket.getsockname()[1]
        self._closed = False

    def base_url(self, route: str) -> str:
        return f"http://127.0.0.1:{self.port}/{route}/v1"

    def __enter__(self) -> "Upstream":
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._closed = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _accept(self) -> None:
        while not self._closed:
            try:
                sock, _ = self._socket.accept()
            except OSError:
                return
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.connections += 1
            threading.Thread(target=self._serve, args=(sock,),
                             daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        with contextlib.suppress(OSError), sock:
            reader = sock.makefile("rb")
            while (peer := _read(sock, reader)) is not None:
                self._answer(peer)
                if peer.headers.get("x-test-keep") is None and not (
                        getattr(peer, "keep", False)):
                    return

    def _answer(self, peer: Peer) -> None:
        name = next(one for one in self.scripts if f"/{one}/" in peer.path)
        with self._lock:
            self.seen[name].append(peer)
            script = self.scripts[name]
            reply = script[min(len(self.seen[name]), len(script)) - 1]
        if isinstance(reply, bytes):
            peer.send(reply)
        else:
            reply(peer)


def _read(sock: socket.socket, reader: typing.Any) -> "Peer | None":
    first = reader.readline()
    if not first:
        return None
    headers = []
    while (line := reader.readline().rstrip(b"\r\n")):
        name, _, value = line.decode("latin-1").partition(":")
        headers.append((name.lower(), value.strip()))
    length = int(dict(headers).get("content-length", 0))
    return Peer(sock, first.split()[1].decode(), headers, reader.read(length))


# ---- replies


def raw_reply(status: int, body: bytes, *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status} Text", f"Content-Length: {len(body)}",
             "Content-Type: application/json", "Connection: close", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def json_reply(status: int, value: object, *headers: str) -> bytes:
    return raw_reply(status, json.dumps(value).encode(), *headers)


def chat(text: str, finish: str = "stop") -> Json:
    return {"id": "c1", "object": "chat.completion", "created": 1,
            "model": "served", "usage": USAGE, "choices": [{
                "index": 0, "finish_reason": finish,
                "message": {"role": "assistant", "content": text}}]}


def whole(text: str = "hello") -> bytes:
    return json_reply(200, chat(text), "x-request-id: req_1")


def kept(text: str = "hello") -> "typing.Callable[[Peer], None]":
    """A whole answer on a connection that stays open."""
    def reply(peer: Peer) -> None:
        peer.keep = True  # type: ignore[attr-defined]
        body = json.dumps(chat(text)).encode()
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
                  b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
    return reply


SSE_HEAD = (b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
            b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n")


def http_chunk(raw: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(raw), raw)


def event(value: object, name: "str | None" = None) -> bytes:
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(value, ensure_ascii=False)}\n\n".encode()


def delta(text: "str | None", finish: "str | None" = None) -> bytes:
    return event({"id": "c1", "object": "chat.completion.chunk", "created": 1,
                  "model": "served", "choices": [{
                      "index": 0, "finish_reason": finish,
                      "delta": {} if text is None else {"content": text}}]})


def chat_events(*words: str) -> "list[bytes]":
    return [*(delta(word) for word in words), delta(None, "stop"),
            event({"id": "c1", "object": "chat.completion.chunk", "created": 1,
                   "model": "served", "choices": [], "usage": USAGE}),
            b"data: [DONE]\n\n"]


def stream(pieces: "list[bytes]", gap_s: float = 0.0, end: bool = True,
           reset: bool = False) -> "typing.Callable[[Peer], None]":
    """A stream of pieces, each a chunk; without its end it is cut."""
    def reply(peer: Peer) -> None:
        peer.send(SSE_HEAD)
        for piece in pieces:
            if gap_s and peer.wait(gap_s):
                return
            peer.send(http_chunk(piece))
        if end:
            peer.send(b"0\r\n\r\n")
        elif reset:
            peer.wait(0.05)
            peer.reset()
    return reply


def silent(seconds: float = 20.0) -> "typing.Callable[[Peer], None]":
    """Nothing at all, until the gateway hangs up."""
    def reply(peer: Peer) -> None:
        peer.wait(seconds)
    return reply
