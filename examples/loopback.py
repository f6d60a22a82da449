"""A provider on loopback that does what its script says, for the examples.

    with Loopback(main=["ok", "503"], backup=["ok"]) as provider: ...

Each request with NAME in its path takes the next word of NAME's script; the
last word stays. It speaks chat completions, whole and streamed, and keeps what
it saw.

    ok        a whole answer             silent    nothing, for a minute
    endless   a stream without an end    cut       a stream broken after a word
    tool      the first tool, called     503, 429, 400, ...   an error answer
"""

from __future__ import annotations

import contextlib
import http.server
import json
import pathlib
import select
import socket
import threading
import typing

import fivegates

Json = typing.Dict[str, typing.Any]
_CODES = {400: "invalid_value", 401: "invalid_api_key",
          429: "rate_limit_exceeded", 503: "server_is_overloaded"}
_USAGE = {"prompt_tokens": 40, "completion_tokens": 6, "total_tokens": 46}
_WORDS = ("Every ", "request ", "is ", "one ", "decision", ".")


class Request(http.server.BaseHTTPRequestHandler):
    """One request, and how to answer it."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: "Loopback"

    def log_message(self, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body: Json = json.loads(raw) if raw else {}
        word = self.server.next_word(self.path)
        try:
            self.server.answer(self, word, body)
        except OSError:
            self.server.left()
            self.close_connection = True

    do_POST = do_GET

    def json(self, status: int, value: object, **headers: str) -> None:
        raw = json.dumps(value).encode()
        self.head(status, Content_Type="application/json",
                  Content_Length=str(len(raw)), **headers)
        self.wfile.write(raw)

    def head(self, status: int, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()

    def chunk(self, raw: bytes) -> None:
        """A piece of a chunked body; an empty one ends it."""
        self.wfile.write(b"%x\r\n%s\r\n" % (len(raw), raw))

    def reset(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def wait(self, seconds: float) -> None:
        """Waits; BrokenPipeError as soon as the client hangs up."""
        ready, _, _ = select.select([self.connection], [], [], seconds)
        if ready and not self.connection.recv(1, socket.MSG_PEEK):
            raise BrokenPipeError


def chat(request: Request, word: str, body: Json) -> None:
    """Chat completions, as the script's word wants them."""
    head = {"id": "chatcmpl-1", "created": 1, "model": body.get("model")}
    if word.isdigit():
        code = _CODES.get(int(word), "error")
        request.json(int(word), {"error": {"type": code, "code": code,
                                           "message": f"A fault: {code}."}})
    elif not body.get("stream"):
        if word == "silent":
            request.wait(60)
        message: Json = {"role": "assistant", "content": "".join(_WORDS)}
        if word == "tool":
            message = {"role": "assistant", "content": None, "tool_calls": [{
                "id": "call_1", "type": "function", "function": {
                    "name": body["tools"][0]["function"]["name"],
                    "arguments": "{}"}}]}
        request.json(200, {**head, "object": "chat.completion", "choices": [{
            "index": 0, "message": message, "finish_reason":
            "tool_calls" if word == "tool" else "stop"}], "usage": _USAGE})
    else:
        _stream(request, word, head)


def _stream(request: Request, word: str, head: Json) -> None:
    def event(delta: Json, finish: "str | None" = None) -> None:
        request.chunk(b"data: " + json.dumps({
            **head, "object": "chat.completion.chunk", "choices": [{
                "index": 0, "delta": delta, "finish_reason": finish}],
        }).encode() + b"\n\n")

    request.head(200, Content_Type="text/event-stream",
                 Transfer_Encoding="chunked")
    if word == "silent":
        request.wait(60)
    for i, text in enumerate(_WORDS):
        event({"content": text})
        if word == "cut" and i == 1:
            return request.reset()
    while word == "endless":
        event({"content": "and so on, "})
        request.wait(0.01)
    event({}, "stop")
    request.chunk(b"data: [DONE]\n\n")
    request.chunk(b"")
    return None


class Loopback(http.server.ThreadingHTTPServer):
    """The provider. answer(request, word, body) answers one request."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, answer: "typing.Callable[[Request, str, Json], None]" = chat,
                 **scripts: "list[str]") -> None:
        super().__init__(("127.0.0.1", 0), Request)
        self.answer = answer
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.seen: "dict[str, list[str]]" = {name: [] for name in scripts}
        self._scripts = scripts
        self._lock = threading.Lock()
        self._hung_up = threading.Semaphore(0)
        self._thread = threading.Thread(
            target=self.serve_forever, kwargs={"poll_interval": 0.02})

    def policy(self, card: pathlib.Path) -> fivegates.Policy:
        """A card whose routes are at http://127.0.0.1:0/NAME: here."""
        return fivegates.Policy.loads(card.read_text(encoding="utf-8").replace(
            "http://127.0.0.1:0", self.url))

    def next_word(self, path: str) -> str:
        name = next(name for name in self._scripts if f"/{name}/" in path)
        with self._lock:
            script = self._scripts[name]
            word = script.pop(0) if len(script) > 1 else script[0]
            self.seen[name].append(word)
            return word

    def left(self) -> None:
        self._hung_up.release()

    def hung_up(self) -> bool:
        """Waits until a client has hung up."""
        return self._hung_up.acquire(timeout=5)

    def handle_error(self, request: object, client_address: object) -> None:
        pass  # a client that went away is no news

    def __enter__(self) -> "Loopback":
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.shutdown()
        self._thread.join()
        with contextlib.suppress(OSError):
            self.server_close()
