"""The middleware under the real anthropic SDK, against a loopback server.

tests/peers runs the same tests with the last major that sends with httpx.
"""

from __future__ import annotations

import asyncio
import copy
import gc
import gzip
import http.server
import json
import pickle
import socket
import threading
import typing
import warnings

import anthropic
import pytest

import fivegates
from fivegates.adapters.anthropic import FivegatesMiddleware
from fivegates.ledger import ListLedger

Json = typing.Dict[str, typing.Any]
Answer = typing.Callable[["Handler"], None]


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers from the server's script, in order; the last answer stays."""

    protocol_version = "HTTP/1.1"
    server: "Server"

    def log_message(self, *args: object) -> None:
        pass

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length) or b"{}")
        with self.server.lock:
            self.server.seen.append((self.path, {
                name.lower(): value for name, value in self.headers.items()},
                body))
            answer = self.server.script[0]
            if len(self.server.script) > 1:
                self.server.script.pop(0)
        try:
            answer(self)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def send(self, status: int, raw: bytes, kind: str = "application/json",
             **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(raw)))
        for name, text in headers.items():
            self.send_header(name.replace("_", "-"), text)
        self.end_headers()
        self.wfile.write(raw)

    def hang_up(self) -> None:
        self.close_connection = True
        self.wfile.flush()
        self.connection.shutdown(socket.SHUT_RDWR)


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.lock = threading.Lock()
        self.seen: "list[tuple[str, dict[str, str], Json]]" = []
        self.script: "list[Answer]" = [whole()]
        self.go_on = threading.Event()
        self.clients: "list[anthropic.Anthropic]" = []  # closed at the end
        self.url = f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request: object, client_address: object) -> None:
        pass

    @property
    def models(self) -> "list[str]":
        return [str(body["model"]) for _, _, body in self.seen]


# ---- answers


def whole(text: str = "hello") -> Answer:
    return lambda h: h.send(200, json.dumps({
        "id": "msg_1", "type": "message", "role": "assistant", "model": "m",
        "stop_reason": "end_turn", "stop_sequence": None,
        "content": [{"type": "text", "text": text}],
        "usage": {"input_tokens": 9, "output_tokens": 3}}).encode())


def echo(h: Handler) -> None:
    """What was asked, as the answer."""
    with h.server.lock:
        asked = [body["messages"][0]["content"] for _, headers, body in
                 h.server.seen if headers["x-client-request-id"]
                 == h.headers["x-client-request-id"]]
    whole(asked[-1])(h)


def error(status: int, kind: str = "api_error", **headers: str) -> Answer:
    return lambda h: h.send(status, json.dumps({
        "type": "error", "error": {"type": kind, "message": "no"},
    }).encode(), **headers)


def raw(text: str, kind: str) -> Answer:
    return lambda h: h.send(200, text.encode(), kind)


def reset(h: Handler) -> None:
    h.hang_up()


START: Json = {"type": "message_start", "message": {
    "id": "msg_1", "type": "message", "role": "assistant", "model": "m",
    "content": [], "stop_reason": None, "stop_sequence": None,
    "usage": {"input_tokens": 9, "output_tokens": 1}}}
BLOCK: Json = {"type": "content_block_start", "index": 0,
               "content_block": {"type": "text", "text": ""}}
WORDS: "list[Json]" = [{"type": "content_block_delta", "index": 0,
                        "delta": {"type": "text_delta", "text": word}}
                       for word in ("one ", "two ", "three ")]
END: "list[Json]" = [
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "usage": {"output_tokens": 5},
     "delta": {"stop_reason": "end_turn", "stop_sequence": None}},
    {"type": "message_stop"}]
OVERLOADED: Json = {"type": "error", "error": {"type": "overloaded_error",
                                               "message": "overloaded"}}
STREAM: "list[Json]" = [START, BLOCK, *WORDS, *END]


def stream(events: "list[Json]" = STREAM, *, cut: bool = False,
           split: int = 0, packed: bool = False, wait_after: int = 0) -> Answer:
    """Events in chunks of their own; cut: no end of the chunks."""

    def answer(h: Handler) -> None:
        h.send_response(200)
        h.send_header("Content-Type", "text/event-stream")
        h.send_header("Transfer-Encoding", "chunked")
        if packed:
            h.send_header("Content-Encoding", "gzip")
        h.end_headers()
        parts = [f"event: {one['type']}\ndata: {json.dumps(one)}\n\n".encode()
                 for one in events]
        if packed:
            parts = [gzip.compress(b"".join(parts))]
        if split:
            text = b"".join(parts)
            parts = [text[i:i + split] for i in range(0, len(text), split)]
        for i, part in enumerate(parts):
            h.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
            h.wfile.flush()
            if wait_after and i + 1 == wait_after:
                h.server.go_on.wait(5)
        if cut:
            return h.hang_up()
        h.wfile.write(b"0\r\n\r\n")

    return answer


# ---- the rig


@pytest.fixture
def server() -> "typing.Iterator[Server]":
    one = Server()
    thread = threading.Thread(target=one.serve_forever,
                              kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield one
    one.go_on.set()
    for client in one.clients:
        client.close()
    one.shutdown()
    one.server_close()
    thread.join()


def route(account: str, model: str) -> Json:
    return {"provider": "anthropic", "model": model, "account": account,
            "price": {"input": 3, "output": 15},
            "provides": {"input": {"context_tokens": 200000, "prefill": True,
                                   "system_prompt": True},
                         "output": {"max_tokens": 8000}}}


CARD: Json = {
    "version": 1,
    "backoff": {"base_ms": 1, "rate_base_ms": 1, "cap_ms": 5},
    "routes": {"main": route("a", "m-main"), "backup": route("b", "m-backup")},
    "workflows": {
        "alone": {"routes": ["main"]},
        "w": {"routes": ["main", "backup"],
              "budget": {"per_class": {"server": 0}}},
        "kind": {"routes": ["main"], "budget": {"per_class": {"server": 0}},
                 "ladder": [{"step": "preset", "text": {"en": "Later."}}]}},
    "contracts": [{
        "workflow": "w", "route": "backup", "fingerprint": "auto",
        "approved_by": "test@example.com",
        "evidence": {"fixtures": "sha256:" + "0" * 64, "cases": 10,
                     "passed": 10, "score_ppm": 990000,
                     "primary_score_ppm": 990000,
                     "measured_at": "2020-01-01T00:00:00Z",
                     "expires_at": "2999-01-01T00:00:00Z"}}]}


class Rig:
    """Clients with the middleware, and what was decided."""

    def __init__(self, server: Server, workflow: str = "w",
                 card: Json = CARD, retries: int = 0,
                 url: "str | None" = None, **options: typing.Any) -> None:
        policy = fivegates.Policy.loads(card, auto_fingerprint=True)
        self.engine = fivegates.Engine(policy, seed=1)
        self.decisions: "list[fivegates.Decision]" = []
        self.call: typing.Any = None
        self.ledger = ListLedger()
        self.middleware = FivegatesMiddleware(
            self.engine, workflow, on_decision=self.heard, ledger=self.ledger,
            **options)
        self.made: Json = {"api_key": "sk-client", "max_retries": retries,
                           "base_url": url or server.url,
                           "middleware": [self.middleware]}
        self.client = anthropic.Anthropic(**self.made)
        server.clients.append(self.client)

    def heard(self, decision: "fivegates.Decision",
              call: "fivegates.Call") -> None:
        self.decisions.append(decision)
        self.call = call

    @property
    def actions(self) -> "list[str]":
        return [decision.action for decision in self.decisions]

    @property
    def reason(self) -> str:
        return self.decisions[-1].reason

    def aclient(self) -> anthropic.AsyncAnthropic:
        return anthropic.AsyncAnthropic(**self.made)

    def main(self) -> Json:
        return self.engine.route("main")


ASK: Json = {"model": "m-asked", "max_tokens": 100,
             "messages": [{"role": "user", "content": "hi"}]}


def create(rig: Rig, use_async: bool, **more: typing.Any) -> typing.Any:
    """create() by one of the clients; of a stream, the text that came."""
    if not use_async:
        answer = rig.client.messages.create(**ASK, **more)
        if not more.get("stream"):
            return answer
        return "".join(event.delta.text for event in answer
                       if event.type == "content_block_delta")

    async def go() -> typing.Any:
        async with rig.aclient() as client:
            answer = await client.messages.create(**ASK, **more)
            if not more.get("stream"):
                return answer
            text = ""
            async for event in answer:
                if event.type == "content_block_delta":
                    text += event.delta.text
            return text

    return asyncio.run(go())


def key_of(headers: "dict[str, str]") -> str:
    """The one key that was sent, in whichever header this SDK uses."""
    found = [headers[name] for name in ("x-api-key", "authorization")
             if name in headers]
    assert len(found) == 1
    return found[0].removeprefix("Bearer ")


both = pytest.mark.parametrize("use_async", [False, True],
                               ids=["sync", "async"])


# ---- whole answers


@both
def test_an_answer(server: Server, use_async: bool) -> None:
    rig = Rig(server)
    answer = create(rig, use_async)
    assert answer.content[0].text == "hello"
    assert rig.actions == ["proceed", "proceed", "accept"]
    path, headers, body = server.seen[0]
    assert (path, body["model"]) == ("/v1/messages", "m-main")
    assert headers["x-client-request-id"] == rig.call.id
    assert headers["x-request-attempt"] == "1"
    assert key_of(headers) == "sk-client"
    end = json.loads(rig.ledger.lines[-1])
    assert end["tokens"] == 12


@both
def test_a_stand_in_answers(server: Server, use_async: bool) -> None:
    server.script = [error(529, "overloaded_error"), whole()]
    rig = Rig(server)
    assert create(rig, use_async).content[0].text == "hello"
    assert server.models == ["m-main", "m-backup"]
    assert "fallback" in rig.actions and rig.actions[-1] == "accept"


@both
def test_a_retry_is_the_engines(server: Server, use_async: bool) -> None:
    server.script = [error(500), whole()]
    rig = Rig(server, "alone", retries=5)
    assert create(rig, use_async).content[0].text == "hello"
    assert [h["x-request-attempt"] for _, h, _ in server.seen] == ["1", "2"]
    assert [h["x-stainless-retry-count"] for _, h, _ in server.seen] == [
        "0", "0"]


@both
@pytest.mark.parametrize("status, kind, name", [
    (529, "overloaded_error", "OverloadedError"),
    (401, "authentication_error", "AuthenticationError"),
    (400, "invalid_request_error", "BadRequestError"),
    (429, "rate_limit_error", "RateLimitError")])
def test_a_refusal_is_the_sdks_error(server: Server, use_async: bool,
                                     status: int, kind: str, name: str) -> None:
    wait = {"retry_after": "300"} if status == 429 else {}
    server.script = [error(status, kind, **wait)]
    rig = Rig(server, "alone", retries=3)
    with pytest.raises(getattr(anthropic, name)) as caught:
        create(rig, use_async)
    assert isinstance(caught.value, fivegates.Refused)
    assert caught.value.decision.action == "fail_closed"
    assert caught.value.status_code == status  # type: ignore[attr-defined]
    assert type(caught.value.__cause__) is getattr(anthropic, name)
    attempts = sum(1 for one in rig.actions if one == "proceed") - 1
    assert len(server.seen) == attempts  # the SDK sent nothing by itself
    again = pickle.loads(pickle.dumps(caught.value))
    assert type(again) is fivegates.Refused
    assert again.decision.reason == rig.reason


@both
def test_the_servers_word_against_a_retry_is_heard(
        server: Server, use_async: bool) -> None:
    server.script = [error(500, x_should_retry="false"), whole()]
    rig = Rig(server, "alone")
    with pytest.raises(anthropic.InternalServerError):
        create(rig, use_async)
    assert rig.reason == "server_forbade_retry"


@both
def test_a_reset_is_a_connection_error(server: Server, use_async: bool) -> None:
    server.script = [reset]
    rig = Rig(server, "alone")
    with pytest.raises(anthropic.APIConnectionError) as caught:
        create(rig, use_async)
    assert isinstance(caught.value, fivegates.Refused)
    assert len(server.seen) == 1


def test_the_sdk_asks_again_and_is_refused_again(
        server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """It retries every APIConnectionError; nothing may be sent for that."""
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    server.script = [reset]
    rig = Rig(server, "alone", retries=2)
    with pytest.raises(anthropic.APIConnectionError) as caught:
        create(rig, False)
    assert isinstance(caught.value, fivegates.Refused)
    assert len(server.seen) == 1
    server.script = [whole()]
    assert create(rig, False).content[0].text == "hello"  # a call of its own


def test_a_retry_of_somebody_else_is_counted(server: Server) -> None:
    class Stubborn(anthropic.Middleware):
        def handle(self, request: typing.Any, call_next: typing.Any) -> typing.Any:
            answer = call_next(request)
            if request.retries_taken == 0:
                raise anthropic.RetryableError("once more")
            return answer

    rig = Rig(server, "alone")
    client = rig.client.with_options(
        max_retries=1, middleware=[Stubborn(), rig.middleware])
    client.messages.create(**ASK)
    assert len(server.seen) == 2
    calls = [json.loads(line) for line in rig.ledger.lines
             if '"call"' in line[:40] or '"attempts_used"' in line]
    assert calls[-1]["attempts_used"] == 2


@both
@pytest.mark.parametrize("body, kind", [
    ("{ not json", "application/json"), ("<html>hello</html>", "text/html")])
def test_an_answer_that_is_no_message(server: Server, use_async: bool,
                                      body: str, kind: str) -> None:
    server.script = [raw(body, kind)]
    rig = Rig(server, "alone")
    with pytest.raises(anthropic.APIResponseValidationError) as caught:
        create(rig, use_async)
    assert isinstance(caught.value, fivegates.Refused)


def test_refused_before_anything_is_sent(server: Server) -> None:
    rig = Rig(server, "alone", facts={"prompt_tokens": 10_000_000})
    with pytest.raises(anthropic.APIError) as caught:
        create(rig, False)
    assert isinstance(caught.value, fivegates.Refused)
    assert caught.value.decision.reason == "does_not_fit_tokens"
    assert server.seen == []


@both
def test_a_preset_answers(server: Server, use_async: bool) -> None:
    server.script = [error(500)]
    rig = Rig(server, "kind", preset=lambda decision, request:
              (decision.text, request.json["messages"][0]["content"]))
    assert create(rig, use_async) == ("Later.", "hi")
    assert rig.actions[-1] == "degrade"


def test_raw_responses(server: Server) -> None:
    rig = Rig(server)
    answer = rig.client.messages.with_raw_response.create(**ASK)
    assert answer.headers["content-type"] == "application/json"
    assert answer.parse().content[0].text == "hello"  # type: ignore[union-attr]
    with rig.client.messages.with_streaming_response.create(**ASK) as streamed:
        assert b"hello" in b"".join(streamed.iter_bytes())
    assert rig.actions[-1] == "accept"


def test_other_endpoints_pass(server: Server) -> None:
    server.script = [lambda h: h.send(200, b'{"input_tokens": 4}')]
    rig = Rig(server)
    counted = rig.client.messages.count_tokens(
        model="m-asked", messages=ASK["messages"])
    assert counted.input_tokens == 4
    assert server.models == ["m-asked"] and rig.actions == []


def test_a_bug_goes_through_unchanged(server: Server) -> None:
    def preset(decision: object, request: object) -> object:
        raise LookupError("mine")

    server.script = [error(500)]
    rig = Rig(server, "kind", preset=preset)
    with pytest.raises(LookupError, match="mine"):
        create(rig, False)
    assert rig.main()["in_flight"] == 0


def test_the_callers_own_exceptions(server: Server) -> None:
    def stop(h: Handler) -> None:
        raise AssertionError("not reached")

    def inner(request: object, call_next: object) -> object:
        raise KeyboardInterrupt

    rig = Rig(server)
    client = rig.client.with_options(middleware=[rig.middleware, inner])
    with pytest.raises(KeyboardInterrupt):
        client.messages.create(**ASK)
    assert json.loads(rig.ledger.lines[-1])["reason"] == "client_gone"
    assert server.seen == []


def test_cancelled_while_it_waits(server: Server) -> None:
    server.script = [stream(wait_after=1)]
    rig = Rig(server)

    async def go() -> None:
        async with rig.aclient() as client:
            task = asyncio.ensure_future(
                client.messages.create(**ASK, stream=True))
            while not server.seen:
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(go())
    assert json.loads(rig.ledger.lines[-1])["reason"] == "client_gone"
    assert len(server.seen) == 1 and rig.main()["in_flight"] == 0


# ---- streams


@both
@pytest.mark.parametrize("answer", [
    stream(), stream(split=7), stream(packed=True)],
    ids=["events", "split", "gzip"])
def test_a_stream(server: Server, use_async: bool, answer: Answer) -> None:
    server.script = [answer]
    rig = Rig(server)
    assert create(rig, use_async, stream=True) == "one two three "
    assert rig.actions == ["proceed", "proceed", "accept"]
    assert json.loads(rig.ledger.lines[-1])["tokens"] == 14


def test_a_stream_comes_as_it_is_sent(server: Server) -> None:
    server.script = [stream(wait_after=3)]
    rig = Rig(server)
    events = rig.client.messages.create(**ASK, stream=True)
    first = [next(events).type for _ in range(3)]
    assert first == ["message_start", "content_block_start",
                     "content_block_delta"]
    assert rig.actions == ["proceed", "proceed"]
    server.go_on.set()
    assert [event.type for event in events][-1] == "message_stop"
    assert rig.actions[-1] == "accept"


def test_the_stream_helper(server: Server) -> None:
    server.script = [stream()]
    rig = Rig(server)
    with rig.client.messages.stream(**ASK) as helper:
        assert "".join(helper.text_stream) == "one two three "
        assert helper.get_final_message().stop_reason == "end_turn"
    assert rig.actions[-1] == "accept"


def test_raw_lines_of_a_stream(server: Server) -> None:
    server.script = [stream()]
    rig = Rig(server)
    with rig.client.messages.with_streaming_response.create(
            **ASK, stream=True) as response:
        lines = [line for line in response.iter_lines() if line]
    assert lines[-1] == 'data: {"type": "message_stop"}'
    assert rig.actions[-1] == "accept"


@both
@pytest.mark.parametrize("failed", [
    stream([START, BLOCK], cut=True), stream([START, OVERLOADED]),
    stream([START, BLOCK]), error(503), reset],
    ids=["cut", "error event", "no end", "status", "reset"])
def test_what_fails_before_the_first_content_is_sent_elsewhere(
        server: Server, use_async: bool, failed: Answer) -> None:
    server.script = [failed, stream()]
    rig = Rig(server)
    assert create(rig, use_async, stream=True) == "one two three "
    assert server.models == ["m-main", "m-backup"]
    assert rig.actions[-1] == "accept"
    assert rig.main()["in_flight"] == 0


@both
@pytest.mark.parametrize("failed, kind", [
    (stream([START, BLOCK], cut=True), "APIConnectionError"),
    (stream([START, OVERLOADED]), "APIStatusError"),
    (stream([START, BLOCK]), "APIConnectionError")],
    ids=["cut", "error event", "no end"])
def test_a_first_token_failure_is_no_success(
        server: Server, use_async: bool, failed: Answer, kind: str) -> None:
    server.script = [failed]
    rig = Rig(server, "alone", card={**CARD, "workflows": {
        "alone": {"routes": ["main"], "budget": {"total_attempts": 1}}},
        "contracts": []})
    with pytest.raises(getattr(anthropic, kind)) as caught:
        create(rig, use_async, stream=True)
    assert isinstance(caught.value, fivegates.Refused)
    assert "accept" not in rig.actions and len(server.seen) == 1


@both
@pytest.mark.parametrize("failed, kind", [
    (stream([START, BLOCK, *WORDS[:1]], cut=True), "APIConnectionError"),
    (stream([START, BLOCK, *WORDS[:1], OVERLOADED]), "APIStatusError"),
    (stream([START, BLOCK, *WORDS[:1], OVERLOADED], split=11),
     "APIStatusError"),
    (stream([START, BLOCK, *WORDS[:1]]), "APIConnectionError")],
    ids=["cut", "error event", "split error event", "no end"])
def test_mid_stream_failures_are_told_and_never_sent_again(
        server: Server, use_async: bool, failed: Answer, kind: str) -> None:
    server.script = [failed, stream()]
    rig = Rig(server, retries=2)
    with pytest.raises(getattr(anthropic, kind)) as caught:
        create(rig, use_async, stream=True)
    assert isinstance(caught.value, fivegates.Refused)
    assert caught.value.decision.reason == "partial_output"
    assert rig.reason == "partial_output" and len(server.seen) == 1
    assert rig.main()["in_flight"] == 0


def test_mid_stream_text_before_an_error_event_is_read(server: Server) -> None:
    events = [START, BLOCK, *WORDS[:2], OVERLOADED]
    server.script = [stream(events, split=100_000)]
    rig = Rig(server)
    got = ""
    with pytest.raises(anthropic.APIStatusError):
        for event in rig.client.messages.create(**ASK, stream=True):
            if event.type == "content_block_delta":
                got += event.delta.text  # type: ignore[union-attr]
    assert got in ("", "one two ")  # one chunk: held whole, never given
    server.script = [stream(events)]
    rig = Rig(server)
    got = ""
    with pytest.raises(anthropic.APIStatusError):
        for event in rig.client.messages.create(**ASK, stream=True):
            if event.type == "content_block_delta":
                got += event.delta.text  # type: ignore[union-attr]
    assert got == "one two "


@both
def test_thinking_that_was_passed_on_is_not_sent_again(
        server: Server, use_async: bool) -> None:
    thought: Json = {"type": "content_block_delta", "index": 0, "delta": {
        "type": "thinking_delta", "thinking": "hm"}}
    start: Json = {"type": "content_block_start", "index": 0,
                   "content_block": {"type": "thinking", "thinking": "",
                                     "signature": ""}}
    server.script = [stream([START, start, thought], cut=True), stream()]
    rig = Rig(server, facts={"stream": True})
    with pytest.raises(anthropic.APIConnectionError) as caught:
        if use_async:
            async def go() -> None:
                async with rig.aclient() as client:
                    async for _ in await client.messages.create(
                            **ASK, stream=True):
                        pass
            asyncio.run(go())
        else:
            for _ in rig.client.messages.create(**ASK, stream=True):
                pass
    assert caught.value.decision.reason == "partial_output"  # type: ignore[attr-defined]
    assert len(server.seen) == 1


@both
def test_a_reader_who_leaves(server: Server, use_async: bool) -> None:
    server.script = [stream(wait_after=3)]
    rig = Rig(server)
    if use_async:
        async def go() -> None:
            async with rig.aclient() as client:
                async with await client.messages.create(
                        **ASK, stream=True) as events:
                    async for event in events:
                        if event.type == "content_block_delta":
                            break
        asyncio.run(go())
    else:
        with rig.client.messages.create(**ASK, stream=True) as events:
            for event in events:
                if event.type == "content_block_delta":
                    break
    assert json.loads(rig.ledger.lines[-1])["reason"] == "client_gone"
    assert rig.main()["in_flight"] == 0


@both
def test_a_stream_that_is_dropped_is_closed_at_once(
        server: Server, use_async: bool) -> None:
    """No cycle keeps it: it does not wait for the garbage collector."""
    server.script = [stream(wait_after=3)]
    rig = Rig(server)

    async def first(client: anthropic.AsyncAnthropic) -> str:
        async for event in await client.messages.create(**ASK, stream=True):
            return event.type
        return "nothing"

    async def go() -> None:
        async with rig.aclient() as client:
            assert await first(client) == "message_start"
            for _ in range(20):
                await asyncio.sleep(0.01)
                if "client_gone" in rig.ledger.lines[-1]:
                    break

    gc.disable()
    try:
        if use_async:
            asyncio.run(go())
        else:
            for _ in rig.client.messages.create(**ASK, stream=True):
                break
    finally:
        gc.enable()
    assert json.loads(rig.ledger.lines[-1])["reason"] == "client_gone"


def test_a_reader_who_leaves_after_the_end(server: Server) -> None:
    server.script = [stream()]
    rig = Rig(server)
    with rig.client.messages.create(**ASK, stream=True) as events:
        for event in events:
            if event.type == "message_stop":
                break
    assert rig.actions[-1] == "accept"


def test_an_unread_stream_that_is_closed(server: Server) -> None:
    server.script = [stream(wait_after=3)]
    rig = Rig(server)
    rig.client.messages.create(**ASK, stream=True).close()
    assert json.loads(rig.ledger.lines[-1])["reason"] == "client_gone"


@both
def test_a_stream_without_content(server: Server, use_async: bool) -> None:
    """Nothing was given to the caller: the stand-in answers."""
    server.script = [stream([START, *END[1:]]), stream()]
    rig = Rig(server)
    assert create(rig, use_async, stream=True) == "one two three "
    assert rig.actions[-1] == "accept"


@both
def test_an_accepted_stream_without_content(server: Server,
                                            use_async: bool) -> None:
    paused: Json = {"type": "message_delta", "usage": {"output_tokens": 5},
                    "delta": {"stop_reason": "pause_turn",
                              "stop_sequence": None}}
    server.script = [stream([START, paused, END[2]])]
    rig = Rig(server)
    if use_async:
        async def go() -> "list[str]":
            async with rig.aclient() as client:
                return [event.type async for event in
                        await client.messages.create(**ASK, stream=True)]
        types = asyncio.run(go())
    else:
        types = [event.type for event in
                 rig.client.messages.create(**ASK, stream=True)]
    assert types == ["message_start", "message_delta", "message_stop"]
    assert rig.actions == ["proceed", "proceed", "accept"]


# ---- routes


def elsewhere(server: Server, key_env: "str | None" = "KEY_B") -> Json:
    card = copy.deepcopy(CARD)
    card["routes"]["backup"]["base_url"] = server.url + "/other"
    if key_env:
        card["routes"]["backup"]["key_env"] = key_env
    return card


@both
def test_a_route_elsewhere_gets_its_own_key(
        server: Server, use_async: bool,
        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY_B", "sk-b")
    server.script = [error(503), whole()]
    rig = Rig(server, card=elsewhere(server))
    create(rig, use_async, extra_headers={"X-Api-Key": "mine",
                                          "Authorization": "Bearer mine"})
    path, headers, _ = server.seen[1]
    assert path == "/other/v1/messages"
    assert key_of(headers) == "sk-b"


def test_beta_requests_are_guarded_too(server: Server) -> None:
    server.script = [error(503), whole()]
    rig = Rig(server, card=elsewhere(server), keys={"backup": "sk-k"})
    answer = rig.client.beta.messages.create(**ASK, betas=["some-beta"])
    assert answer.content[0].text == "hello"  # type: ignore[union-attr]
    first, second = (path for path, _, _ in server.seen)
    assert first.startswith("/v1/messages")  # the old SDK adds ?beta=true
    assert second == "/other" + first
    assert server.seen[1][1]["anthropic-beta"] == "some-beta"


def test_a_key_given_by_route(server: Server) -> None:
    server.script = [error(503), whole()]
    rig = Rig(server, card=elsewhere(server, None), keys={"backup": "sk-k"})
    create(rig, False)
    assert key_of(server.seen[1][1]) == "sk-k"


@pytest.mark.parametrize("key_env, said", [
    ("KEY_NONE", "set KEY_NONE"), (None, "has a base_url and no key")])
def test_the_clients_key_goes_nowhere_else(
        server: Server, key_env: "str | None", said: str) -> None:
    server.script = [error(503)]
    rig = Rig(server, card=elsewhere(server, key_env))
    with pytest.raises(anthropic.InternalServerError), warnings.catch_warnings(
            record=True) as caught:
        warnings.simplefilter("always")
        create(rig, False)
    assert said in str(caught[0].message)
    assert [path for path, _, _ in server.seen] == ["/v1/messages"]


def test_a_primary_without_a_key(server: Server) -> None:
    card = copy.deepcopy(CARD)
    card["routes"]["main"]["base_url"] = server.url
    rig = Rig(server, card=card)
    with pytest.raises(fivegates.ArgumentError, match="has a base_url and no"):
        create(rig, False)
    assert server.seen == []


@pytest.mark.parametrize("name", ["main", "backup"])
def test_a_route_of_another_api(server: Server, name: str) -> None:
    """A stand-in is passed over, with a warning; a primary is a mistake."""
    card = copy.deepcopy(CARD)
    card["routes"][name]["api"] = "chat"
    server.script = [error(503)]
    rig = Rig(server, card=card)
    if name == "main":
        with pytest.raises(fivegates.ArgumentError, match="speaks chat"):
            create(rig, False)
    else:
        with pytest.raises(anthropic.InternalServerError), pytest.warns(
                RuntimeWarning, match="route backup speaks chat"):
            create(rig, False)
    assert server.models == (["m-main"] if name == "backup" else [])


def test_time_outs_are_the_shorter_of_two(server: Server) -> None:
    rig = Rig(server)
    sent: "list[typing.Any]" = []

    def inner(request: typing.Any, call_next: typing.Any) -> typing.Any:
        sent.append(request.timeout)
        return call_next(request)

    client = rig.client.with_options(middleware=[rig.middleware, inner])
    client.messages.create(**ASK)
    client.messages.create(**ASK, timeout=0.75)
    assert 0.75 < sent[0].read < 60 and sent[0].connect == 5.0
    assert sent[1].read == sent[1].connect == 0.75


def test_names_are_checked(server: Server) -> None:
    with pytest.raises(fivegates.ArgumentError,
                       match="no workflow 'no' in the card; it has alone"):
        Rig(server, "no")
    with pytest.raises(fivegates.ArgumentError, match="keys for nobody"):
        Rig(server, keys={"nobody": "k"})


def test_facts_may_come_from_the_request(server: Server) -> None:
    rig = Rig(server, facts=lambda request: {
        "tenant": request.json["metadata"]["user_id"]})
    rig.client.messages.create(**ASK, metadata={"user_id": "t1"})
    line = json.loads(rig.ledger.lines[0])
    assert line["gen_ai.request.max_tokens"] == 100
    assert line["tenant"] and line["stream"] == "false"


# ---- many at once


def test_fifty_at_once_keep_apart(server: Server) -> None:
    """Every other first answer fails; each caller gets its own answer."""

    def answer(h: Handler) -> None:
        with h.server.lock:
            _, _, body = next(
                one for one in reversed(h.server.seen)
                if one[1]["x-client-request-id"]
                == h.headers["x-client-request-id"])
        odd = int(body["messages"][0]["content"]) % 2
        if odd and h.headers["x-request-attempt"] == "1":
            error(500)(h)
        else:
            echo(h)

    server.script = [answer]
    card = copy.deepcopy(CARD)
    card["retry_bucket"] = {"cap": 1000, "start": 1000}
    card["breaker"] = {"consecutive": 1000, "min_calls": 1000}
    rig = Rig(server, card=card)

    async def go() -> "list[str]":
        async with rig.aclient() as client:
            async def one(i: int) -> str:
                made = await client.messages.create(**{
                    **ASK, "messages": [{"role": "user", "content": str(i)}]})
                return str(made.content[0].text)  # type: ignore[union-attr]
            return await asyncio.gather(*(one(i) for i in range(50)))

    assert asyncio.run(go()) == [str(i) for i in range(50)]
    calls = {headers["x-client-request-id"] for _, headers, _ in server.seen}
    assert len(calls) == 50 and len(server.seen) == 75
    assert rig.main()["in_flight"] == 0
