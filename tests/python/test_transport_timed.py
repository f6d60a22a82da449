"""transport.timed_client: what a send of engine.run() asks ends with its attempt."""

from __future__ import annotations

import asyncio
import json
import typing
import zlib

import anthropic
import openai
import pytest
from support.guarded import BUDGET, HTTP, MESSAGES, engine_of, idle
from support.wire_server import (
    CHAT_END,
    CHAT_WHOLE,
    Answer,
    Wire,
    WireServer,
    chat_event,
)

import fivegates
from fivegates import transport
from fivegates.adapters import current_attempt
from fivegates.transport.watchdog import WATCHDOG

Json = typing.Dict[str, typing.Any]
SDKS = pytest.mark.parametrize("sdk", ["openai", "anthropic"])
STREAMED = pytest.mark.parametrize("stream", [False, True],
                                   ids=["whole", "streamed"])
_MOST = 250  # of all that drips: a client that is not ended fails, in 5 s


def pings(wire: Wire, body: Json) -> None:
    """Bytes for as long as anybody reads, and no word."""
    ping = b"\n"
    if body.get("stream"):
        wire.sse()
        ping = (b'event: ping\ndata: {"type": "ping"}\n\n'
                if wire.path.endswith("/messages") else b": ping\n\n")
    else:
        wire.head(200, Content_Type="application/json",
                  Transfer_Encoding="chunked")
    for _ in range(_MOST):
        wire.chunk(ping)
        if wire.left(0.02):
            return
    wire.reset()


def words_then_pings(wire: Wire, body: Json) -> None:
    wire.sse()
    wire.chunk(chat_event("a word"))
    for _ in range(_MOST):
        wire.chunk(b": ping\n\n")
        if wire.left(0.02):
            return
    wire.reset()


def silence(wire: Wire, body: Json) -> None:
    wire.left(5)


def endless_body(wire: Wire, body: Json) -> None:
    """A body that only the connection's end ends."""
    wire.head(200, Content_Type="application/json", Connection="close")
    wire.close_connection = True
    wire.wfile.write(json.dumps(CHAT_WHOLE).encode())
    silence(wire, body)


def slow_words(encoded: bool) -> Answer:
    def answer(wire: Wire, body: Json) -> None:
        pack = zlib.compressobj(wbits=31)

        def part(raw: bytes) -> None:
            wire.chunk(pack.compress(raw) + pack.flush(zlib.Z_SYNC_FLUSH)
                       if encoded else raw)

        wire.sse(**{"Content_Encoding": "gzip"} if encoded else {})
        for _ in range(15):
            part(chat_event("word "))
            wire.left(0.02)
        part(CHAT_END)
        wire.end()
    return answer


class Asking:
    """Calls through engine.run(), sent by one SDK with a timed client."""

    def __init__(self, server: WireServer, sdk: str = "openai", *,
                 max_retries: int = 0, **workflow: typing.Any) -> None:
        self.server = server
        self.engine = engine_of(server, "main", budget=BUDGET, **workflow)
        self.decisions: "list[fivegates.Decision]" = []
        self.attempts: "list[fivegates.Attempt]" = []
        make: typing.Any = {"openai": openai.OpenAI,
                            "anthropic": anthropic.Anthropic}[sdk]
        # Without certificates to load a client is made faster.
        self.http = transport.timed_client(
            HTTP, inner=HTTP.HTTPTransport(verify=False))
        self.client = make(api_key="k", http_client=self.http,
                           max_retries=max_retries)

    def __enter__(self) -> "Asking":
        return self

    def __exit__(self, *exc: object) -> None:
        self.client.close()

    def send(self, attempt: fivegates.Attempt) -> str:
        assert current_attempt() is attempt
        self.attempts.append(attempt)
        answer = asked(self.client, attempt)
        for _ in attempt.watch(answer) if attempt.streamed else ():
            pass
        return "it came"

    def run(self, stream: bool) -> str:
        return self.engine.run(
            "w", self.send, stream=stream, prompt_tokens=9,
            on_decision=lambda decision, call: self.decisions.append(decision))

    def failures(self) -> "list[tuple[str, str]]":
        """What was decided after a failure, and of which kind it was."""
        return [(one.action, one.kind) for one in self.decisions
                if one.kind != "unknown" and one.action != "proceed"]


def asked(client: typing.Any, attempt: fivegates.Attempt) -> typing.Any:
    base = str(attempt.base_url)
    request = attempt.apply({"model": "m", "messages": MESSAGES,
                             "max_tokens": 9, "stream": attempt.streamed})
    if isinstance(client, (anthropic.Anthropic, anthropic.AsyncAnthropic)):
        return client.with_options(
            base_url=base.removesuffix("/v1")).messages.create(**request)
    return client.with_options(base_url=base).chat.completions.create(**request)


@SDKS
@STREAMED
def test_keep_alives_do_not_outlast_an_attempt(sdk: str, stream: bool) -> None:
    kind = "first_token_timeout" if stream else "total_timeout"
    clock = {"first_token_ms" if stream else "total_ms": 150}
    with WireServer(main=pings) as server, Asking(
            server, sdk, timeouts=clock) as asking:
        assert asking.run(stream)
        assert server.names() == ["main", "ok"] and idle(asking.engine)
    assert asking.failures() == [("fallback", kind)]
    assert asking.attempts[0].over == {"phase": "stream", "timeout": kind}
    assert asking.attempts[1].over is None and current_attempt() is None


@SDKS
@STREAMED
def test_the_same_without_blocking(sdk: str, stream: bool) -> None:
    """arun() ends it by the engine's own clocks, with any client."""
    make: typing.Any = {"openai": openai.AsyncOpenAI,
                        "anthropic": anthropic.AsyncAnthropic}[sdk]
    decisions: "list[fivegates.Decision]" = []

    async def scene(engine: fivegates.Engine) -> None:
        async with make(api_key="k", max_retries=0, http_client=HTTP.AsyncClient(
                verify=False)) as client:
            async def send(attempt: fivegates.Attempt) -> str:
                assert current_attempt() is attempt
                answer = await asked(client, attempt)
                if stream:
                    async for _ in attempt.awatch(answer):
                        pass
                return "it came"

            assert await engine.arun(
                "w", send, stream=stream, prompt_tokens=9,
                on_decision=lambda one, call: decisions.append(one)) == "it came"

    with WireServer(main=pings) as server:
        clock = {"first_token_ms" if stream else "total_ms": 150}
        engine = engine_of(server, "main", budget=BUDGET, timeouts=clock)
        asyncio.run(scene(engine))
        assert server.names() == ["main", "ok"] and idle(engine)
    assert [one.kind for one in decisions if one.action == "fallback"] == [
        "first_token_timeout" if stream else "total_timeout"]


@STREAMED
def test_silence_before_the_head(stream: bool) -> None:
    """The SDK's own retry comes too late to be sent."""
    with WireServer(main=silence) as server, Asking(
            server, max_retries=1, timeouts={"first_token_ms": 150,
                                             "total_ms": 150}) as asking:
        assert asking.run(stream)
        assert server.names() == ["main", "ok"] and idle(asking.engine)
    [(action, kind)] = asking.failures()
    assert (action, asking.attempts[0].over) == (
        "fallback", {"phase": "read", "timeout": kind})
    assert kind == ("first_token_timeout" if stream else "total_timeout")


def test_after_a_word_the_whole_time_counts() -> None:
    with WireServer(main=words_then_pings) as server, Asking(
            server, timeouts={"first_token_ms": 100, "total_ms": 250}) as asking:
        with pytest.raises(fivegates.Refused) as caught:
            asking.run(True)
        assert caught.value.decision.reason == "partial_output"
        assert server.names() == ["main"] and idle(asking.engine)
    assert asking.failures() == [("fail_closed", "total_timeout")]


@pytest.mark.parametrize("encoded", [False, True], ids=["plain", "gzip"])
def test_slow_words_are_no_silence(encoded: bool) -> None:
    with WireServer(main=slow_words(encoded)) as server, Asking(
            server, timeouts={"first_token_ms": 100}) as asking:
        assert asking.run(True)
        assert server.names() == ["main"] and idle(asking.engine)
    assert asking.failures() == []


def test_a_shut_socket_is_no_end_of_an_answer() -> None:
    """All bytes of an answer are there, and nobody can know it."""
    with WireServer(main=endless_body) as server, Asking(
            server, timeouts={"total_ms": 150}) as asking:
        assert asking.run(False)
        assert server.names() == ["main", "ok"]
    assert asking.failures() == [("fallback", "total_timeout")]


def test_a_connection_outlives_its_answer() -> None:
    """Nothing shuts it later; and no clock runs outside of an attempt."""
    ports: "list[int]" = []

    def counted(wire: Wire, body: Json) -> None:
        ports.append(wire.client_address[1])
        server.answers["ok"](wire, body)

    with WireServer(main=counted) as server, Asking(
            server, timeouts={"total_ms": 60_000}) as asking:
        assert asking.run(False) and asking.run(False)
        assert all(alarm.sock is None for _, _, alarm in WATCHDOG._heap)
        asking.client.with_options(
            base_url=f"{server.url}/main/v1").chat.completions.create(
                model="m", messages=MESSAGES)
    assert len(ports) == 3 and len(set(ports)) == 1
    assert asking.failures() == []
