"""How its provider calls an attempt: in the ledger's line of its end, whoever
sent it, so that a bill's row is found again."""

from __future__ import annotations

import asyncio
import json
import typing

import anthropic
import openai
import pytest
from support.cards import engine_of as engine_at
from support.guarded import (  # noqa: F401 - closed_clients is a fixture
    MESSAGES,
    aask,
    ask,
    async_client_of,
    client_of,
    closed_clients,
    engine_of,
)
from support.wire_server import Wire, WireServer, chat_event, error, whole

import fivegates
from fivegates import SseScanner
from fivegates.ledger import ListLedger
from fivegates.served import ids_of

Ids = typing.List[typing.Tuple[typing.Optional[str], typing.Optional[str]]]


def ids(ledger: ListLedger) -> Ids:
    """Of each attempt that has ended."""
    lines = [json.loads(line) for line in ledger.lines]
    return [(one.get("gen_ai.response.id"), one.get("server_request_id"))
            for one in lines if one["line"] == "decision" and "progress" in one]


def once(*answers: "typing.Callable[[Wire, typing.Any], None]",
         ) -> "typing.Callable[[Wire, typing.Any], None]":
    """Each answer once; the last stays."""
    left = list(answers)

    def answer(wire: Wire, body: typing.Any) -> None:
        (left.pop(0) if len(left) > 1 else left[0])(wire, body)
    return answer


def cut(wire: Wire, body: typing.Any) -> None:
    wire.sse(x_request_id="req_cut")
    wire.chunk(chat_event("hel"))
    wire.reset()


BUSY = error(503, "overloaded", x_request_id="req_busy",
             x_generation_id="gen-1")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("kind", ["transport", "async transport", "run"])
def test_chat(kind: str, stream: bool) -> None:
    ledger = ListLedger()
    with WireServer(once=once(BUSY, whole)) as server:
        engine = engine_of(server, "once", "once")
        if kind == "transport":
            client = client_of(server, engine, "once", ledger=ledger)
            assert ask(client, stream) == "hello"
        elif kind == "async transport":
            async def work() -> str:
                client = async_client_of(server, engine, "once", ledger=ledger)
                async with client:
                    return await aask(client, stream)
            assert asyncio.run(work()) == "hello"
        else:
            with openai.OpenAI(base_url=f"{server.url}/once/v1", api_key="k",
                               max_retries=0) as plain:
                def send(attempt: fivegates.Attempt) -> typing.Any:
                    answer = plain.chat.completions.create(**attempt.apply({
                        "model": "m1", "messages": MESSAGES, "stream": stream}))
                    return list(attempt.watch(answer)) if stream else answer
                engine.run("w", send, stream=stream, ledger=ledger)
    assert ids(ledger) == [("gen-1", "req_busy"), ("c1", None)]


@pytest.mark.parametrize("stream", [False, True])
def test_messages(stream: bool) -> None:
    ledger = ListLedger()
    with WireServer() as server, anthropic.Anthropic(
            base_url=f"{server.url}/ok", api_key="k", max_retries=0) as client:
        engine = engine_at(f"{server.url}/ok", f"{server.url}/ok")

        def send(attempt: fivegates.Attempt) -> typing.Any:
            answer = client.messages.create(
                model="m1", max_tokens=50, messages=MESSAGES, stream=stream)
            return list(attempt.watch(answer)) if stream else answer
        engine.run("w", send, stream=stream, ledger=ledger)
    assert ids(ledger) == [("msg_1", None)]


@pytest.mark.parametrize("kind", ["transport", "run"])
def test_a_stream_that_was_cut_is_named_too(kind: str) -> None:
    """It was billed perhaps: its row is the one to look for."""
    ledger = ListLedger()
    with WireServer(cut=cut) as server:
        engine = engine_of(server, "cut", "cut")
        with pytest.raises(Exception):  # noqa: B017 - the SDK's, or Refused
            if kind == "transport":
                ask(client_of(server, engine, "cut", ledger=ledger), True)
            else:
                with openai.OpenAI(base_url=f"{server.url}/cut/v1", api_key="k",
                                   max_retries=0) as plain:
                    engine.run("w", lambda attempt: list(attempt.watch(
                        plain.chat.completions.create(
                            model="m1", messages=MESSAGES, stream=True))),
                        ledger=ledger)
    assert ids(ledger)[-1] == ("c1", "req_cut")


class Answer:
    id = 5  # no id: not text
    _request_id = "req_1"
    headers: typing.Any = None


class Odd:
    """An answer of the caller's own, whose members are for itself."""

    def __init__(self, headers: typing.Any) -> None:
        self.headers = headers

    @property
    def id(self) -> str:
        raise RuntimeError("not loaded")

    choices = content = usage = response = id


@pytest.mark.parametrize("headers", [
    "text", ["a", "bc"], [1], 5, [("a", "b", "c")], {5: []}, object(), None])
def test_an_answer_of_anything_is_kept(headers: typing.Any) -> None:
    """It was paid for: what cannot be read of it breaks nothing."""
    ledger = ListLedger()
    engine = engine_at("http://127.0.0.1:1", "http://127.0.0.1:1")
    answer = Odd(headers)
    assert engine.run("w", lambda attempt: answer, ledger=ledger) is answer
    assert ids(ledger) == [(None, None)]


@pytest.mark.parametrize(("headers", "body", "want"), [
    (None, None, (None, None)),
    ([("X-Request-ID", "a"), ("x-request-id", "b")], b"{}", (None, "a")),
    ({"apim-request-id": "z", "request-id": "r"}, None, (None, "r")),
    ([(b"x-amzn-RequestId", b"u-1")], b'{"id": "c2"}', ("c2", "u-1")),
    ({"x-generation-id": "gen-3"}, {"id": "c3"}, ("gen-3", None)),
    (None, {"response": {"id": "resp_1"}}, ("resp_1", None)),
    (None, {"message": {"id": "msg_2"}}, ("msg_2", None)),
    (None, {"responseId": "g1"}, ("g1", None)),
    (None, Answer(), (None, "req_1")),
    (None, b"\x00 no json", (None, None)),
    (None, SseScanner(), (None, None)),
    (None, "hello", (None, None)),
    ({"x-request-id": ""}, {"id": None}, (None, None)),
])
def test_where_it_is_told(headers: typing.Any, body: typing.Any,
                          want: "tuple[str | None, str | None]") -> None:
    assert ids_of(headers, body) == want
