"""The policy transport where the wire, the SDK or the host misbehaves."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import gzip
import json
import socket
import sys
import threading
import types
import typing
import warnings

import anthropic
import openai
import pytest
from support.cards import engine_of as engine_at
from support.guarded import (  # noqa: F401 - closed_clients is a fixture
    BUDGET,
    HTTP,
    KINDS,
    MESSAGES,
    STREAMS,
    anything,
    ask,
    async_client_of,
    client_of,
    closed_clients,
    engine_of,
    idle,
    kept,
)
from support.wire_server import (
    CHAT_END,
    CHAT_WHOLE,
    Wire,
    WireServer,
    chat_event,
    error,
    reset,
)

import fivegates
from fivegates import transport

Json = typing.Dict[str, typing.Any]
WHOLE = json.dumps(CHAT_WHOLE).encode()


def raw(body: bytes, status: int = 200, **headers: str) -> "typing.Callable[[Wire, Json], None]":
    """An answer of these bytes; then the connection ends."""
    def answer(wire: Wire, _: Json) -> None:
        headers.setdefault("Content_Type", "application/json")
        headers.setdefault("Content_Length", str(len(body)))
        wire.head(status, Connection="close", **headers)
        wire.wfile.write(body)
        wire.reset()
    return answer


def sse(*parts: bytes) -> "typing.Callable[[Wire, Json], None]":
    def answer(wire: Wire, _: Json) -> None:
        wire.sse()
        for part in parts:
            wire.chunk(part)
        wire.end()
    return answer


# ---- answers that are none


@KINDS
@pytest.mark.parametrize("body, headers", [
    (b"", {}),
    (WHOLE[:-20], {}),
    (WHOLE.replace(b"hello", b"\xff\xfe"), {}),
    (b'"hi"', {}),
    (json.dumps({**CHAT_WHOLE, "choices": []}).encode(), {}),
    (gzip.compress(WHOLE)[:-30], {"Content_Encoding": "gzip"}),
    (b"no gzip", {"Content_Encoding": "gzip"}),
])
def test_a_body_that_is_no_answer_is_a_failure(
        body: bytes, headers: "dict[str, str]", kind: str) -> None:
    with WireServer(bad=raw(body, **headers)) as server:
        engine = engine_of(server, "bad")
        # A stand-in may serve, or the engine refuse; never a bare exception.
        try:
            assert anything(server, engine, "bad", kind) == "hello"
        except openai.APIError as told:
            assert isinstance(told, fivegates.Refused)
        assert engine.workflow("w")["primary_success"] == 0
        assert engine.workflow("w")["cancelled"] == 0 and idle(engine)


@STREAMS
def test_a_whole_answer_to_a_stream_is_no_answer(kind: str) -> None:
    """The SDK would show it as an empty stream."""
    with WireServer(bad=raw(WHOLE)) as server:
        engine = engine_of(server, "bad")
        with pytest.raises(openai.APIError) as caught:
            anything(server, engine, "bad", kind)
        assert isinstance(caught.value, fivegates.Refused) and idle(engine)


@STREAMS
@pytest.mark.parametrize("events", [
    [b"data: [DONE]\n\n"], [b'data: {"choices": []}\n\n', b"data: [DONE]\n\n"],
    [chat_event(""), CHAT_END]])
def test_an_empty_stream_is_no_answer(events: "list[bytes]", kind: str) -> None:
    with WireServer(empty=sse(*events)) as server:
        engine = engine_of(server, "empty")
        assert anything(server, engine, "empty", kind) == "hello"
        assert server.names()[-1] == "ok" and idle(engine)


@KINDS
@pytest.mark.parametrize("status, code, bad", [
    (400, "request_invalid", raw(b"no gzip", 400, Content_Encoding="gzip")),
    (400, "request_invalid", raw(b"{}", 400, Content_Length="100")),
    (401, "key_rejected", raw(b"\xff", 401))])
def test_an_error_answer_counts_by_its_status(
        status: int, code: str, bad: typing.Any, kind: str) -> None:
    """However little of its body comes, or can be read."""
    with WireServer(bad=bad) as server:
        engine = engine_of(server, "bad", "bad")
        with pytest.raises(openai.APIStatusError) as caught:
            anything(server, engine, "bad", kind)
        assert isinstance(caught.value, fivegates.Refused)
        assert caught.value.decision.reason == code
        assert caught.value.status_code == status
        assert server.names() == ["bad"] and idle(engine)


@KINDS
def test_a_redirect_is_not_followed(kind: str) -> None:
    """The key, or the whole prompt, would go where no card says."""
    to = raw(b"", 307, Location="/ok/v1/chat/completions")
    with WireServer(moved=to, found=raw(b"", 302, Location="/ok/v1/models"),
                    ) as server:
        for name in ("moved", "found"):
            server.seen.clear()
            engine = engine_of(server, name, name)
            with pytest.raises(openai.APIStatusError) as caught:
                anything(server, engine, name, kind)
            assert isinstance(caught.value, fivegates.Refused)
            assert server.names() == [name] and idle(engine)
        engine = engine_of(server, "moved", "moved")
        with transport.client(HTTP, engine, "w") as client:
            server.seen.clear()
            answer = client.post(f"{server.url}/moved/v1/chat/completions",
                                 json={"model": "m1", "messages": MESSAGES})
            assert answer.status_code == 307 and not answer.history


@STREAMS
def test_a_cut_after_the_finish_reason_loses_nothing(kind: str) -> None:
    def cut(wire: Wire, body: Json) -> None:
        wire.sse()
        wire.chunk(chat_event("all of it"))
        wire.chunk(chat_event(None, "stop"))
        wire.reset()

    with WireServer(cut=cut) as server:
        engine = engine_of(server, "cut")
        assert anything(server, engine, "cut", kind) == "all of it"
        assert engine.workflow("w")["primary_success"] == 1 and idle(engine)


def test_endless_interim_answers_are_no_answer_in_time() -> None:
    gone = threading.Event()

    def early(wire: Wire, body: Json) -> None:
        for _ in range(200):
            wire.wfile.write(b"HTTP/1.1 103 Early Hints\r\n\r\n")
            if wire.left(0.02):
                gone.set()
                return

    with WireServer(early=early) as server:
        engine = engine_of(server, "early", timeouts={"first_token_ms": 300})
        assert anything(server, engine, "early", "async stream") == "hello"
        assert gone.wait(5), "the time-out was begun anew by each of them"
        assert server.names() == ["early", "ok"] and idle(engine)


# ---- SDKs


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("how", ["reset", "slow"])
def test_no_sdk_sends_again_what_was_refused(stream: bool, how: str) -> None:
    """With its own retries on: anthropic's sends again after any connection
    error, and the request may have run."""
    def slow(wire: Wire, body: Json) -> None:
        wire.left(3)

    with WireServer(reset=reset, slow=slow) as server:
        engine = engine_of(server, how, how, kind="effectful", budget={},
                           timeouts={"first_token_ms": 200, "total_ms": 200})
        client = kept(anthropic.Anthropic(
            base_url=f"{server.url}/{how}", api_key="k", max_retries=2,
            http_client=transport.client(HTTP, engine, "w",
                                         keys={"backup": "k"})))
        with pytest.raises(anthropic.APIConnectionError) as caught:
            client.messages.create(model="m1", max_tokens=5, stream=stream,
                                   messages=MESSAGES)
        assert isinstance(caught.value, fivegates.Refused)
        assert caught.value.decision.reason == "may_have_run"
        assert isinstance(caught.value, anthropic.APITimeoutError) == (
            how == "slow")
        assert server.names() == [how]
        assert engine.workflow("w")["calls"] == 1
        with pytest.raises(openai.APIConnectionError) as again:
            ask(client_of(server, engine, how), stream)
        assert not isinstance(again.value, openai.APIStatusError)
        assert server.names() == [how, how]


def test_an_sdk_that_retries_exceptions_gets_a_response() -> None:
    other = types.ModuleType("otherai")  # another SDK of the family
    setattr(other, "APIStatusError", RuntimeError)
    sys.modules["otherai"] = other
    try:
        with WireServer(reset=reset) as server:
            engine = engine_of(server, "reset", "reset")
            with transport.client(HTTP, engine, "w") as client, \
                    warnings.catch_warnings():
                warnings.simplefilter("ignore")
                answer = client.post(
                    f"{server.url}/reset/v1/chat/completions",
                    json={"model": "m1", "messages": MESSAGES},
                    headers={"x-stainless-lang": "python",
                             "user-agent": "OtherAI/Python 1.0"})
            assert answer.status_code >= 500
            assert answer.headers["x-should-retry"] == "false"
            assert isinstance(answer.extensions["fivegates"],
                              fivegates.Refused)
    finally:
        del sys.modules["otherai"]


class Mine(Exception):
    pass


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("sdk", [openai, anthropic])
@pytest.mark.parametrize("at", ["proceed", "accept", "prompt_tokens"])
def test_the_hosts_exception_arrives_and_nothing_is_sent_again(
        sdk: typing.Any, at: str, stream: bool) -> None:
    def bug(decision: fivegates.Decision, call: fivegates.Call) -> None:
        if decision.action == at:
            raise Mine("a bug")

    def count(body: Json) -> int:
        if at == "prompt_tokens":
            raise Mine("a bug")
        return 9

    with WireServer() as server:
        engine = engine_of(server)
        http = transport.client(HTTP, engine, "w", on_decision=bug,
                                prompt_tokens=count)
        client: typing.Any
        if sdk is openai:
            client = kept(openai.OpenAI(base_url=f"{server.url}/ok/v1",
                                        api_key="k", http_client=http))
            create = client.chat.completions.create
        else:
            client = kept(anthropic.Anthropic(base_url=f"{server.url}/ok",
                                              api_key="k", http_client=http))
            create = client.messages.create
        with pytest.raises(Mine, match="a bug"):
            answer = create(model="m1", max_tokens=5, messages=MESSAGES,
                            stream=stream)
            if stream:
                list(answer)
        assert len(server.seen) == (1 if at == "accept" else 0)
        assert idle(engine)
        assert not any(
            connection.is_idle() is False for connection
            in http._transport.inner._pool.connections)


def test_a_request_may_be_sent_again_by_its_owner() -> None:
    """Nothing is written into the client's own request."""
    with WireServer() as server:
        engine = engine_of(server)
        with transport.client(HTTP, engine, "w") as client:
            request = client.build_request(
                "POST", f"{server.url}/ok/v1/chat/completions",
                json={"model": "m1", "messages": MESSAGES})
            headers = request.headers.multi_items()
            extensions = dict(request.extensions)
            for _ in range(2):
                assert client.send(request).json() == CHAT_WHOLE
            assert request.headers.multi_items() == headers
            assert request.extensions == extensions
        assert engine.workflow("w")["primary_success"] == 2


def test_answers_look_as_without_the_transport() -> None:
    with WireServer() as server:
        engine = engine_of(server)
        client = client_of(server, engine)
        answer = client.chat.completions.with_raw_response.create(
            model="m1", messages=MESSAGES)
        assert answer.elapsed.total_seconds() > 0
        assert answer.http_response.is_closed
        assert answer.parse().choices[0].message.content == "hello"
        with client.chat.completions.with_streaming_response.create(
                model="m1", messages=MESSAGES) as streaming:
            assert b"".join(streaming.http_response.iter_raw()) == WHOLE


def test_messages_of_a_thread_are_no_call_to_a_model() -> None:
    with WireServer() as server:
        engine = engine_of(server)
        client = client_of(server, engine)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an API of the past
            client.beta.threads.messages.create("t1", role="user", content="x")
        assert server.seen[0][3] == "/ok/v1/threads/t1/messages"
        assert engine.workflow("w")["calls"] == 0


def test_a_stand_in_gets_nothing_of_the_clients_account() -> None:
    with WireServer(reset=reset) as server:
        engine = engine_of(server, "reset")
        client = kept(openai.OpenAI(
            base_url=f"{server.url}/reset/v1", api_key="key-a",
            organization="org-a", project="project-a",
            default_headers={"cookie": "session=1", "x-mine": "kept"},
            http_client=transport.client(HTTP, engine, "w",
                                         keys={"backup": "key-b"})))
        assert ask(client, False) == "hello"
        first, second = (one[1] for one in server.seen)
        assert first["openai-organization"] == "org-a"
        assert first["cookie"] == "session=1"
        assert not {"cookie", "openai-organization", "openai-project"} & set(
            second)
        assert second["x-mine"] == "kept"


def test_cached_may_be_a_coroutine_function() -> None:
    async def cached(body: Json, decision: fivegates.Decision) -> str:
        await asyncio.sleep(0)
        return "from before"

    with WireServer(bad=error(500, "server_error")) as server:
        engine = engine_of(server, "bad", "bad", ladder=[
            {"step": "cached", "max_age_s": 60}])
        assert anything(server, engine, "bad", "async",
                        cached=cached) == "from before"


def test_a_body_in_pieces_goes_to_a_stand_in_whole() -> None:
    with WireServer(reset=reset) as server:
        engine = engine_of(server, "reset")
        with transport.client(HTTP, engine, "w",
                              keys={"backup": "k"}) as client:
            content = json.dumps({"model": "m1", "messages": MESSAGES}).encode()
            answer = client.post(f"{server.url}/reset/v1/chat/completions",
                                 content=iter([content[:9], content[9:]]))
            assert answer.json() == CHAT_WHOLE
        assert server.seen[-1][2] == {"model": "m2", "messages": MESSAGES}
        assert "transfer-encoding" not in server.seen[-1][1]


# ---- proxies, cycles


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_proxys_refusal_means_never_sent(kind: str) -> None:
    """CONNECT is a request too, but not the client's."""
    asked: "list[bytes]" = []

    def serve(listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                asked.append(connection.recv(65536))
                connection.sendall(b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n"
                                   b"Connection: close\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,), daemon=True)
        thread.start()
        proxy = f"http://127.0.0.1:{listener.getsockname()[1]}"
        engine = fivegates.Engine(fivegates.Policy.loads({
            "version": 1, "backoff": {"base_ms": 1},
            "routes": {"main": {"provider": "openai", "model": "m1",
                                "base_url": "https://127.0.0.2/v1"}},
            "workflows": {"w": {"routes": ["main"], "kind": "effectful"}}}))
        with pytest.raises(openai.APIConnectionError) as caught:
            if kind == "sync":
                ask(kept(openai.OpenAI(
                    base_url="https://127.0.0.2/v1", api_key="k",
                    http_client=transport.client(
                        HTTP, engine, "w", inner=HTTP.HTTPTransport(
                            proxy=proxy, verify=False)))), False)
            else:
                async def main() -> None:
                    async with openai.AsyncOpenAI(
                            base_url="https://127.0.0.2/v1", api_key="k",
                            http_client=transport.async_client(
                                HTTP, engine, "w",
                                inner=HTTP.AsyncHTTPTransport(
                                    proxy=proxy, verify=False))) as client:
                        await client.chat.completions.create(
                            model="m1", messages=MESSAGES)
                asyncio.run(main())
        assert isinstance(caught.value, fivegates.Refused)
        assert caught.value.decision.reason != "may_have_run"
        assert len(asked) == 4 and asked[0].startswith(b"CONNECT")
        assert b"Bearer" not in b"".join(asked)
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(5)


@pytest.mark.skipif(HTTP.__name__ == "httpx",
                    reason="a response of httpx is a cycle by itself")
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", ["ok", "late", "bad", "reset"])
def test_a_request_leaves_no_garbage(name: str, stream: bool) -> None:
    """Its memory goes with it, not when the collector comes round."""
    def late(wire: Wire, body: Json) -> None:
        if len(server.seen) % 2:
            error(429, "rate_limit_exceeded", retry_after_ms="1")(wire, body)
        else:
            server.answers["ok"](wire, body)

    with WireServer(late=late, bad=error(401, "invalid_api_key"), reset=reset,
                    ) as server:
        engine = engine_of(server, name, name)
        client = client_of(server, engine, name)

        def once() -> None:
            try:
                ask(client, stream)
            except openai.APIError:
                pass

        once()
        gc.collect()
        gc.disable()
        try:
            for _ in range(2):
                once()
            assert gc.collect() == 0
        finally:
            gc.enable()


def test_a_dropped_stream_is_hung_up_with_the_next_request() -> None:
    """Not by the collector: it runs anywhere, also in a thread that holds
    the lock of the very pool."""
    gone = threading.Event()

    def some(wire: Wire, body: Json) -> None:
        wire.sse()
        wire.chunk(chat_event("some"))
        if wire.left(5):
            gone.set()

    with WireServer(some=some) as server:
        engine = engine_of(server, "some")
        with transport.client(HTTP, engine, "w") as client:
            def drop() -> None:
                request = client.build_request(
                    "POST", f"{server.url}/some/v1/chat/completions",
                    json={"model": "m1", "messages": MESSAGES, "stream": True})
                answer = client.send(request, stream=True)
                cycle: "list[typing.Any]" = [answer]
                cycle.append(cycle)
                del answer, cycle
                with client._transport.inner._pool._optional_thread_lock:
                    gc.collect()

            thread = threading.Thread(target=drop, daemon=True)
            thread.start()
            thread.join(10)
            assert not thread.is_alive(), "the collector waits for the lock"
            client.get(f"{server.url}/ok/v1/models")
            assert gone.wait(5) and idle(engine)
            assert engine.workflow("w")["cancelled"] == 1


def test_content_must_come_in_time_over_http2_too() -> None:
    connection = pytest.importorskip("h2.connection")
    events = pytest.importorskip("h2.events")
    config = pytest.importorskip("h2.config")

    def serve(sock: socket.socket) -> None:
        state = connection.H2Connection(config.H2Configuration(
            client_side=False))
        state.initiate_connection()
        with sock:
            sock.sendall(state.data_to_send())
            while raw := sock.recv(65536):
                for event in state.receive_data(raw):
                    if isinstance(event, events.RequestReceived):
                        path = dict(event.headers)[b":path"]
                        state.send_headers(event.stream_id, [
                            (":status", "200"),
                            ("content-type", "text/event-stream")])
                        if path.startswith(b"/ok/"):
                            state.send_data(event.stream_id, chat_event(
                                "hello") + CHAT_END, end_stream=True)
                sock.sendall(state.data_to_send())

    def accept(listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = listener.accept()
                threading.Thread(target=serve, args=(sock,),
                                 daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, args=(listener,), daemon=True).start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        engine = engine_at(f"{url}/silent/v1", f"{url}/ok/v1",
                           timeouts={"first_token_ms": 200, "idle_ms": 12000},
                           budget={**BUDGET, "elapsed_ms": 5000})
        client = kept(openai.OpenAI(
            base_url=f"{url}/silent/v1", api_key="k",
            http_client=transport.client(
                HTTP, engine, "w", keys={"backup": "k"},
                inner=HTTP.HTTPTransport(http1=False, http2=True,
                                         verify=False))))
        # A wait for idle_ms would leave no time for the stand-in.
        assert ask(client, True) == "hello" and idle(engine)
        listener.shutdown(socket.SHUT_RDWR)
