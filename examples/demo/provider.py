"""A small OpenAI-compatible provider with faults, for the demo.

It serves chat completions, streamed and whole, with tool calls, and keeps a
journal: every request, every token it would bill, every effect of a tool.
Faults are drawn from a seed, the user, and how often that user has asked, so
two clients with the same seed meet the same provider.

    /main/v1/chat/completions     with faults
    /backup/v1/chat/completions   without, a little slower
    /effects                      POST {op, user}: does it, once for each POST
    /effects/OP                   GET: was it done?
    /journal, /run                GET the journal; POST {"name"} starts anew
    /bill                         GET a row for each generation billed since then
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import http.server
import json
import select
import socket
import threading
import time
import typing

PROMPT_TOKENS = 400
OUTPUT_TOKENS = 60
COST_USD = (PROMPT_TOKENS * 2.5 + OUTPUT_TOKENS * 10) / 1e6  # the card's price
TOKEN_S = 0.0015  # between tokens of a stream
FIRST_S = 0.03
SLOW_S = 1.6  # a slow first token
LIMIT_AT, LIMIT_S = 60, 2.0  # the user that starts the 429s, and how long
BURST_AT, BURST_S = 150, 2.0  # the same for the 503s

Json = typing.Dict[str, typing.Any]


def draw(seed: int, *parts: object) -> float:
    """A number in [0, 1) that depends on nothing else."""
    text = ":".join(map(str, (seed, *parts)))
    digest = hashlib.sha256(text.encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2.0**64


class Journal:
    """What the provider saw since the last run began."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.lock = threading.Lock()
        self.active = 0  # requests being answered
        self.begin("none")

    def begin(self, name: str) -> None:
        with self.lock:
            self.name = name
            self.requests = 0
            self.asked: "dict[str, int]" = {}
            self.billed = 0
            self.rows: "list[Json]" = []  # the bill, as OpenRouter's export has it
            self.whole: "dict[str, int]" = {}  # tokens of one whole answer
            self.whole_count = 0
            self.effects: "dict[str, list[str]]" = {}
            self.ops: "set[str]" = set()
            self.statuses: "dict[str, int]" = {}
            self.windows: "dict[str, float]" = {}

    def arrive(self, user: str) -> int:
        """Counts a request; how many this user has sent."""
        with self.lock:
            self.requests += 1
            self.active += 1
            self.asked[user] = self.asked.get(user, 0) + 1
            return self.asked[user]

    def leave(self) -> None:
        with self.lock:
            self.active -= 1

    def bill(self, model: str) -> str:
        """Bills one generation, however it ends; its id."""
        now = datetime.datetime.now(datetime.timezone.utc)
        with self.lock:
            self.billed += PROMPT_TOKENS + OUTPUT_TOKENS
            name = f"gen-{len(self.rows) + 1:04d}"
            self.rows.append({
                "created_at": now.strftime("%Y-%m-%d %H:%M:%S.%f"),
                "generation_id": name, "model_permaslug": model,
                "cost_total": f"{COST_USD:.6f}", "tokens_prompt": PROMPT_TOKENS,
                "tokens_completion": OUTPUT_TOKENS})
            return name

    def delivered(self, user: str, tokens: int) -> None:
        with self.lock:
            self.whole[user] = tokens
            self.whole_count += 1

    def note(self, status: str) -> None:
        with self.lock:
            self.statuses[status] = self.statuses.get(status, 0) + 1

    def effect(self, op: str, user: str) -> None:
        with self.lock:
            self.effects.setdefault(user, []).append(op)
            self.ops.add(op)

    def window(self, name: str, starts: bool, length: float) -> float:
        """Seconds left of a fault that began with one request; 0: none."""
        now = time.monotonic()
        with self.lock:
            if starts and name not in self.windows:
                self.windows[name] = now + length
            return max(0.0, self.windows.get(name, 0.0) - now)

    def report(self) -> Json:
        with self.lock:
            return {"name": self.name, "active": self.active,
                    "requests": self.requests,
                    "users": len(self.asked), "billed": self.billed,
                    "delivered": sum(self.whole.values()),
                    "answers": len(self.whole),
                    "answers_sent": self.whole_count,
                    "effects": sum(map(len, self.effects.values())),
                    "double_effects": sum(max(0, len(ops) - 1) for ops
                                          in self.effects.values()),
                    "statuses": dict(self.statuses)}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    journal: Journal

    def log_message(self, *args: object) -> None:
        pass

    # ---- plumbing

    def reply(self, status: int, body: Json,
              headers: "dict[str, str] | None" = None) -> None:
        raw = json.dumps(body).encode()
        self.journal.note(str(status))
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(raw)

    def error(self, status: int, kind: str, code: str, message: str,
              headers: "dict[str, str] | None" = None) -> None:
        self.reply(status, {"error": {"message": message, "type": kind,
                                      "code": code, "param": None}}, headers)

    def gone(self) -> bool:
        """Whether the client has hung up."""
        ready, _, _ = select.select([self.connection], [], [], 0)
        try:
            return bool(ready) and not self.connection.recv(1, socket.MSG_PEEK)
        except OSError:
            return True

    def body(self) -> Json:
        length = int(self.headers.get("Content-Length") or 0)
        value = json.loads(self.rfile.read(length) or b"{}")
        return value if isinstance(value, dict) else {}

    # ---- routes

    def do_GET(self) -> None:
        if self.path == "/journal":
            self.reply(200, self.journal.report())
        elif self.path == "/bill":
            self.reply(200, {"rows": self.journal.rows})
        elif self.path.startswith("/effects/"):
            op = self.path.rpartition("/")[2]
            self.reply(200, {"done": op in self.journal.ops})
        else:
            self.error(404, "invalid_request_error", "not_found", "no such path")

    def do_POST(self) -> None:
        try:
            body = self.body()
            if self.path.endswith("/chat/completions"):
                self.chat(body, self.path.startswith("/main/"))
            elif self.path == "/effects":
                self.effect(body)
            elif self.path == "/run":
                self.journal.begin(str(body.get("name")))
                self.reply(200, {})
            else:
                self.error(404, "invalid_request_error", "not_found",
                           "no such path")
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def effect(self, body: Json) -> None:
        """The effect happens; then, for some, the acknowledgement is lost."""
        user = str(body.get("user"))
        first = user not in self.journal.effects
        self.journal.effect(str(body.get("op")), user)
        if first and draw(self.journal.seed, "ack", user) < 0.25:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        self.reply(200, {"done": True})

    def chat(self, body: Json, faults: bool) -> None:
        journal = self.journal
        user = self.headers.get("X-Demo-User", "u0")
        number = int(user.lstrip("u") or 0)
        asked = journal.arrive(user)
        try:
            self.answer(body, faults, user, number, asked)
        finally:
            journal.leave()

    def answer(self, body: Json, faults: bool, user: str, number: int,
               asked: int) -> None:
        journal = self.journal
        seed = journal.seed
        if faults:
            if journal.window("burst", number >= BURST_AT, BURST_S) > 0:
                self.error(503, "service_unavailable_error",
                           "server_is_overloaded",
                           "The server is overloaded, please try again later.")
                return
            left = journal.window("limit", number >= LIMIT_AT, LIMIT_S)
            if left > 0:
                self.error(429, "requests", "rate_limit_exceeded",
                           "Rate limit reached for requests per minute.",
                           {"Retry-After": str(int(left) + 1)})
                return
        slow = faults and draw(seed, "slow", user, asked) < 0.20
        cut = (faults and bool(body.get("stream")) and asked == 1 and not slow
               and draw(seed, "cut", user) < 0.04)
        # The request runs on when the client hangs up: it is billed whole.
        name = journal.bill(str(body.get("model")))
        time.sleep(SLOW_S if slow else FIRST_S * (1 if faults else 1.5))
        if self.gone():
            journal.note("hung up")
            self.close_connection = True
            return
        if body.get("stream"):
            self.stream(body, user, name, cut)
        else:
            self.whole(body, user, name)

    # ---- answers

    def usage(self) -> Json:
        return {"prompt_tokens": PROMPT_TOKENS,
                "completion_tokens": OUTPUT_TOKENS,
                "total_tokens": PROMPT_TOKENS + OUTPUT_TOKENS}

    def whole(self, body: Json, user: str, name: str) -> None:
        message: Json = {"role": "assistant", "content": "word " * OUTPUT_TOKENS}
        reason = "stop"
        if body.get("tools"):
            tool = body["tools"][0]["function"]["name"]
            message = {"role": "assistant", "content": None, "tool_calls": [{
                "id": f"call_{user}", "type": "function",
                "function": {"name": tool,
                             "arguments": json.dumps({"order": user})}}]}
            reason = "tool_calls"
        self.reply(200, {
            "id": name, "object": "chat.completion",
            "created": int(time.time()), "model": body.get("model"),
            "choices": [{"index": 0, "message": message,
                         "finish_reason": reason}],
            "usage": self.usage()})
        self.journal.delivered(user, OUTPUT_TOKENS)

    def chunk(self, payload: str) -> None:
        raw = f"data: {payload}\n\n".encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(raw), raw))

    def stream(self, body: Json, user: str, name: str, cut: bool) -> None:
        head = {"id": name, "object": "chat.completion.chunk",
                "created": int(time.time()), "model": body.get("model")}
        self.journal.note("200")
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for i in range(OUTPUT_TOKENS):
            if cut and i == OUTPUT_TOKENS // 2:
                self.journal.note("cut")
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            self.chunk(json.dumps({**head, "choices": [{
                "index": 0, "delta": {"content": f"word{i} "},
                "finish_reason": None}]}))
            time.sleep(TOKEN_S)
            if i % 10 == 9 and self.gone():
                self.journal.note("hung up")
                self.close_connection = True
                return
        self.chunk(json.dumps({**head, "choices": [{
            "index": 0, "delta": {}, "finish_reason": "stop"}]}))
        self.chunk(json.dumps({**head, "choices": [], "usage": self.usage()}))
        self.chunk("[DONE]")
        self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()
        self.journal.delivered(user, OUTPUT_TOKENS)


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        pass  # a client that went away is no news


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    Handler.journal = Journal(options.seed)
    server = Server(("127.0.0.1", options.port), Handler)
    print(server.server_port, flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
