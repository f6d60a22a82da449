"""What the tests of the Python package share: a card, and a loopback provider
whose fault is named in the path."""

from __future__ import annotations

import copy
import http.server
import json
import pathlib
import socket
import threading
import time
import typing

import pytest

import fivegates

ROOT = pathlib.Path(__file__).resolve().parents[2]
CARD: "dict[str, typing.Any]" = {
    "version": 1,
    "routes": {
        "main": {
            "provider": "openai", "model": "m1", "account": "a",
            "base_url": "http://127.0.0.1:1/v1", "key_env": "KEY_A",
            "price": {"input": 2.5, "output": 10},
            "provides": {"input": {"context_tokens": 100000},
                         "output": {"max_tokens": 4000}}},
        "backup": {
            "provider": "azure-openai", "model": "m1", "account": "b",
            "base_url": "http://127.0.0.1:2/v1", "key_env": "KEY_B",
            "price": {"input": 2.5, "output": 10},
            "provides": {"input": {"context_tokens": 100000},
                         "output": {"max_tokens": 4000}}},
    },
    "workflows": {
        "w": {"routes": ["main", "backup"],
              "ladder": [{"step": "cached", "max_age_s": 60},
                         {"step": "preset", "text": {"en": "Sorry.",
                                                     "de": "Leider."}}]},
        "bare": {"routes": ["main"]},
        "batch": {"kind": "batch", "routes": ["main"],
                  "queue": {"max_age_ms": 3600000}},
    },
    "contracts": [{
        "workflow": "w", "route": "backup", "fingerprint": "auto",
        "approved_by": "test@example.com",
        "evidence": {"fixtures": "sha256:" + "0" * 64, "cases": 10,
                     "passed": 10, "score_ppm": 990000,
                     "primary_score_ppm": 990000,
                     "measured_at": "2026-11-01T00:00:00Z",
                     "expires_at": "2027-02-01T00:00:00Z"}}],
}
UNIX_MS = 1796000000000  # 2026-11-30


@pytest.fixture
def card() -> "dict[str, typing.Any]":
    return copy.deepcopy(CARD)


@pytest.fixture
def policy(card: "dict[str, typing.Any]") -> fivegates.Policy:
    return fivegates.Policy.loads(card, auto_fingerprint=True)


class Handler(http.server.BaseHTTPRequestHandler):
    """/MODE/..., MODE being one of the words below, or a status."""

    protocol_version = "HTTP/1.1"
    server: "Provider"

    def log_message(self, *args: object) -> None:
        pass

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length) or b"{}")
        mode = self.path.split("/")[1]
        with self.server.lock:
            headers = {k.lower(): v for k, v in self.headers.items()}
            self.server.seen.append((mode, headers, body))
        try:
            self.answer(mode, body)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def answer(self, mode: str, body: "dict[str, typing.Any]") -> None:
        messages = self.path.endswith("/messages")
        if mode == "reset":
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
        elif mode == "slow":
            time.sleep(0.6)
            self.whole(messages)
        elif mode == "cut" and body.get("stream"):
            self.stream(messages, cut=True)
        elif mode == "event" and body.get("stream"):
            self.stream(messages, event=True)
        elif mode == "short":
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", "5000")
            self.end_headers()
            self.wfile.write(b'{"id": "x"')
            self.wfile.flush()
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
        elif mode.isdigit():
            self.error(int(mode), messages)
        elif body.get("stream"):
            self.stream(messages)
        else:
            self.whole(messages)

    def send_json(self, status: int, value: object,
                  headers: "dict[str, str]") -> None:
        raw = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        for name, text in headers.items():
            self.send_header(name, text)
        self.end_headers()
        self.wfile.write(raw)

    def error(self, status: int, messages: bool) -> None:
        kinds = {429: ("rate_limit_error", "rate_limit_exceeded"),
                 401: ("authentication_error", "invalid_api_key"),
                 400: ("invalid_request_error", "invalid_value"),
                 529: ("overloaded_error", "overloaded_error")}
        kind, code = kinds.get(status, ("server_error", "server_error"))
        headers = {"Retry-After": "1"} if status == 429 else {}
        inner = {"type": kind, "message": f"fault {status}", "code": code}
        self.send_json(status, {"type": "error", "error": inner}
                       if messages else {"error": inner}, headers)

    def whole(self, messages: bool) -> None:
        if messages:
            self.send_json(200, {
                "id": "msg_1", "type": "message", "role": "assistant",
                "model": "m1", "stop_reason": "end_turn", "stop_sequence": None,
                "content": [{"type": "text", "text": "hello"}],
                "usage": {"input_tokens": 9, "output_tokens": 3}}, {})
            return
        self.send_json(200, {
            "id": "c1", "object": "chat.completion", "created": 1,
            "model": "m1", "choices": [{
                "index": 0, "finish_reason": "stop",
                "message": {"role": "assistant", "content": "hello"}}],
            "usage": {"prompt_tokens": 9, "completion_tokens": 3,
                      "total_tokens": 12}}, {})

    def stream(self, messages: bool, cut: bool = False,
               event: bool = False) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        lines = self.messages_lines() if messages else self.chat_lines()
        for i, line in enumerate(lines):
            if i == 3 and (cut or event):
                if event:
                    self.part("event: error\n" if messages else "")
                    self.part('data: {"type": "error", "error": {"type": '
                              '"overloaded_error", "code": "server_error", '
                              '"message": "overloaded"}}\n\n')
                self.close_connection = True
                self.wfile.flush()
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            self.part(line)
        self.wfile.write(b"0\r\n\r\n")

    def part(self, text: str) -> None:
        if text:
            raw = text.encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(raw), raw))

    def chat_lines(self) -> "list[str]":
        head = {"id": "c1", "object": "chat.completion.chunk", "created": 1,
                "model": "m1"}
        out = [{**head, "choices": [{"index": 0, "delta": {"content": word},
                                     "finish_reason": None}]}
               for word in ("one ", "two ", "three ", "four ", "five ")]
        out.append({**head, "choices": [{"index": 0, "delta": {},
                                         "finish_reason": "stop"}]})
        out.append({**head, "choices": [], "usage": {
            "prompt_tokens": 9, "completion_tokens": 5, "total_tokens": 14}})
        return [f"data: {json.dumps(one)}\n\n" for one in out] + [
            "data: [DONE]\n\n"]

    def messages_lines(self) -> "list[str]":
        out: "list[dict[str, typing.Any]]" = [
            {"type": "message_start", "message": {
                "id": "msg_1", "type": "message", "role": "assistant",
                "model": "m1", "content": [], "stop_reason": None,
                "stop_sequence": None,
                "usage": {"input_tokens": 9, "output_tokens": 1}}},
            {"type": "content_block_start", "index": 0,
             "content_block": {"type": "text", "text": ""}}]
        out += [{"type": "content_block_delta", "index": 0,
                 "delta": {"type": "text_delta", "text": word}}
                for word in ("one ", "two ", "three ")]
        out += [{"type": "content_block_stop", "index": 0},
                {"type": "message_delta",
                 "delta": {"stop_reason": "end_turn", "stop_sequence": None},
                 "usage": {"output_tokens": 5}},
                {"type": "message_stop"}]
        return [f"event: {one['type']}\ndata: {json.dumps(one)}\n\n"
                for one in out]


class Provider(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.lock = threading.Lock()
        self.seen: "list[tuple[str, dict[str, str], dict[str, typing.Any]]]" = []
        self.url = f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request: object, client_address: object) -> None:
        pass


@pytest.fixture
def provider() -> "typing.Iterator[Provider]":
    server = Provider()
    thread = threading.Thread(target=server.serve_forever,
                              kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def closed_port() -> int:
    """A port nobody listens on."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])
