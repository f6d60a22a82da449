"""A loopback server whose answers are written by the test, byte by byte."""

from __future__ import annotations

import contextlib
import http.server
import json
import select
import socket
import threading
import typing

Json = typing.Dict[str, typing.Any]
Answer = typing.Callable[["Wire", Json], None]
HEAD = {"id": "c1", "created": 1, "model": "m1"}


def chat_event(content: "str | None", finish: "str | None" = None) -> bytes:
    delta = {"content": content} if content is not None else {}
    return b"data: " + json.dumps({
        **HEAD, "object": "chat.completion.chunk", "choices": [
            {"index": 0, "delta": delta, "finish_reason": finish}],
    }).encode() + b"\n\n"


CHAT_END = chat_event(None, "stop") + b"data: [DONE]\n\n"
CHAT_WHOLE: Json = {
    **HEAD, "object": "chat.completion", "choices": [{
        "index": 0, "finish_reason": "stop",
        "message": {"role": "assistant", "content": "hello"}}],
    "usage": {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}}


class Wire(http.server.BaseHTTPRequestHandler):
    """One request: /NAME/..., NAME being a key of server.answers."""

    protocol_version = "HTTP/1.1"
    server: "WireServer"

    def log_message(self, *args: object) -> None:
        pass

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(
            int(self.headers.get("Content-Length") or 0)) or b"{}")
        name = self.path.split("/")[1]
        with self.server.lock:
            self.server.seen.append((name, {
                k.lower(): v for k, v in self.headers.items()}, body,
                self.path))
        try:
            self.server.answers[name](self, body)
        except OSError:
            self.close_connection = True

    do_GET = do_POST

    # ---- for answers

    def json(self, status: int, value: object, **headers: str) -> None:
        raw = json.dumps(value).encode()
        self.head(status, Content_Type="application/json",
                  Content_Length=str(len(raw)), **headers)
        self.wfile.write(raw)

    def head(self, status: int = 200, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()

    def sse(self, **headers: str) -> None:
        self.head(200, Content_Type="text/event-stream",
                  Transfer_Encoding="chunked", **headers)

    def chunk(self, raw: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(raw), raw))
        self.wfile.flush()

    def end(self) -> None:
        self.wfile.write(b"0\r\n\r\n")

    def reset(self) -> None:
        self.close_connection = True
        self.wfile.flush()
        self.connection.shutdown(socket.SHUT_RDWR)

    def left(self, seconds: float) -> bool:
        """Waits for the client to hang up."""
        ready, _, _ = select.select([self.connection], [], [], seconds)
        with contextlib.suppress(OSError):
            return bool(ready) and not self.connection.recv(1, socket.MSG_PEEK)
        return True


def whole(wire: Wire, body: Json) -> None:
    """A good answer in the form that was asked for, by the path's API."""
    if wire.path.endswith("/messages"):
        message = {"id": "msg_1", "type": "message", "role": "assistant",
                   "model": body.get("model"), "stop_sequence": None,
                   "usage": {"input_tokens": 9, "output_tokens": 3}}
        if not body.get("stream"):
            wire.json(200, {**message, "stop_reason": "end_turn", "content": [
                {"type": "text", "text": "hello"}]})
            return
        wire.sse()
        for one in (
                {"type": "message_start", "message": {
                    **message, "stop_reason": None, "content": []}},
                {"type": "content_block_start", "index": 0,
                 "content_block": {"type": "text", "text": ""}},
                {"type": "content_block_delta", "index": 0,
                 "delta": {"type": "text_delta", "text": "hello"}},
                {"type": "content_block_stop", "index": 0},
                {"type": "message_delta", "usage": {"output_tokens": 3},
                 "delta": {"stop_reason": "end_turn", "stop_sequence": None}},
                {"type": "message_stop"}):
            wire.chunk(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n"
                       .encode())
        wire.end()
    elif body.get("stream"):
        wire.sse()
        wire.chunk(chat_event("hel"))
        wire.chunk(chat_event("lo"))
        wire.chunk(CHAT_END)
        wire.end()
    else:
        wire.json(200, CHAT_WHOLE)


def error(status: int, code: str, **headers: str) -> Answer:
    """An error answer in the form of the path's API."""
    def answer(wire: Wire, body: Json) -> None:
        inner = {"type": code, "code": code, "message": f"fault {code}"}
        wire.json(status, {"type": "error", "error": inner}
                  if wire.path.endswith("/messages") else {"error": inner},
                  **headers)
    return answer


def reset(wire: Wire, body: Json) -> None:
    wire.reset()


class WireServer(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 1024

    def __init__(self, **answers: Answer) -> None:
        super().__init__(("127.0.0.1", 0), Wire)
        self.answers: "dict[str, Answer]" = {"ok": whole, **answers}
        self.lock = threading.Lock()
        self.seen: "list[tuple[str, dict[str, str], Json, str]]" = []
        self.url = f"http://127.0.0.1:{self.server_port}"
        self._thread = threading.Thread(
            target=self.serve_forever, kwargs={"poll_interval": 0.02},
            daemon=True)

    def handle_error(self, request: object, client_address: object) -> None:
        pass

    def names(self) -> "list[str]":
        """Which answers were asked for, in order."""
        with self.lock:
            return [one[0] for one in self.seen]

    def __enter__(self) -> "WireServer":
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.shutdown()
        self.server_close()
        self._thread.join()
