"""The fault-injecting provider: its answers as the real SDKs read them, what it
bills, its slots, its connections, its scripts."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import typing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fivegates.errors import FivegatesError
from fivegates.provider import (Provider, Record, plain_script, read_script,
                                read_value)
from fivegates.provider.answers import make_answer
from fivegates.provider.asked import read_asked
from fivegates.provider.chat import Chat
from fivegates.provider.exchange import Speed
from fivegates.provider.messages import Messages
from fivegates.provider.registry import step_of
from fivegates.provider.responses import Responses

pytest.importorskip("h11")
if os.environ.get("FIVEGATES_SANITIZE"):
    pytest.skip("nothing of the library is in it", allow_module_level=True)

Json = typing.Dict[str, typing.Any]
FAST = Speed(first_token_s=0.002, prompt_tokens_per_s=1e6, tokens_per_s=4000,
             output_tokens=8)
TEXT = "This answer was made on loopback, one word"
SCHEMA = {"type": "object", "properties": {
    "order": {"type": "string"}, "kind": {"enum": ["all", "part"]},
    "amount": {"type": "integer", "minimum": 5}}}
ARGUMENTS = {"order": "one", "kind": "all", "amount": 5}
MESSAGES: "list[typing.Any]" = [{"role": "user", "content": "Hello."}]
BODIES = {"/v1/chat/completions": {"model": "m", "messages": MESSAGES},
          "/v1/responses": {"model": "m", "input": "Hello."},
          "/v1/messages": {"model": "m", "max_tokens": 90, "messages": MESSAGES}}


def serving(*faults: typing.Any, speed: Speed = FAST) -> Provider:
    return Provider(plain_script(
        [step_of(read_value(one)) for one in faults or ("ok",)], speed))


def head_of(path: str, raw: bytes, *more: str) -> bytes:
    return "\r\n".join([f"POST {path} HTTP/1.1", "Host: localhost",
                        f"Content-Length: {len(raw)}", *more, "", ""]
                       ).encode() + raw


async def ask(server: Provider, path: str = "/v1/chat/completions",
              stream: bool = False, body: "Json | None" = None,
              until: float = 1.0) -> "tuple[bytes, str]":
    """All bytes of the answer, and how the connection ended: closed, reset,
    open (nothing came for so long)."""
    raw = json.dumps({**BODIES[path], "stream": stream, **(body or {})}).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(head_of(path, raw, "Connection: close"))
    got = b""
    try:
        while True:
            part = await asyncio.wait_for(reader.read(65536), until)
            if not part:
                return got, "closed"
            got += part
    except ConnectionResetError:
        return got, "reset"
    except asyncio.TimeoutError:
        return got, "open"
    finally:
        writer.transport.abort()


def last(server: Provider) -> Record:
    return server.journal.records[-1]


def run(scene: "typing.Coroutine[typing.Any, typing.Any, None]") -> None:
    asyncio.run(asyncio.wait_for(scene, 20))


# ---- answers, as the SDKs read them


def test_openai_chat() -> None:
    openai = pytest.importorskip("openai")
    tools: "list[typing.Any]" = [{"type": "function", "function": {
        "name": "refund", "parameters": SCHEMA}}]

    async def scene() -> None:
        async with serving() as server, openai.AsyncOpenAI(
                base_url=server.url + "/v1", api_key="k", max_retries=0) as client:
            whole = await client.chat.completions.create(
                model="m", messages=MESSAGES)
            assert whole.choices[0].message.content == TEXT
            assert whole.usage.completion_tokens == 8
            assert last(server).whole and last(server).billed == (
                whole.usage.total_tokens)
            async with client.chat.completions.stream(
                    model="m", messages=MESSAGES, tools=tools,
                    stream_options={"include_usage": True}) as stream:
                done = await stream.get_final_completion()
            call, = done.choices[0].message.tool_calls
            assert json.loads(call.function.arguments) == ARGUMENTS
            assert done.choices[0].finish_reason == "tool_calls"
            assert done.usage.completion_tokens == last(server).billed_output
            assert last(server).call == call.id and last(server).has_tools
            after = await client.chat.completions.create(
                model="m", tools=tools, messages=[
                    *MESSAGES, done.choices[0].message.model_dump(
                        include={"role", "content", "tool_calls"}),
                    {"role": "tool", "tool_call_id": call.id, "content": "x"}])
            assert after.choices[0].message.content == TEXT
            assert last(server).results == [call.id]
            short = await client.chat.completions.create(
                model="m", messages=MESSAGES, tools=tools, tool_choice="none",
                max_completion_tokens=2)
            assert short.choices[0].message.content == "This answer"
            assert short.choices[0].finish_reason == "length"
            assert [one.id async for one in client.models.list()] == ["model"]
    run(scene())


def test_openai_responses() -> None:
    openai = pytest.importorskip("openai")

    async def scene() -> None:
        async with serving() as server, openai.AsyncOpenAI(
                base_url=server.url + "/v1", api_key="k", max_retries=0) as client:
            whole = await client.responses.create(model="m", input="Hello.")
            assert (whole.output_text, whole.status) == (TEXT, "completed")
            assert whole.usage.total_tokens == last(server).billed
            async with client.responses.stream(
                    model="m", input="Hello.", tools=[{
                        "type": "function", "name": "refund", "strict": False,
                        "parameters": SCHEMA}]) as stream:
                done = await stream.get_final_response()
            call, = done.output
            assert json.loads(call.arguments) == ARGUMENTS
            done = await client.responses.create(
                model="m", max_output_tokens=3, input=[
                    {"role": "user", "content": "Hello."},
                    {"type": "function_call_output", "output": "x",
                     "call_id": call.call_id}])
            assert done.output_text == "This answer was"
            assert done.status == "incomplete"
            assert last(server).results == [call.call_id]
    run(scene())


def test_anthropic_messages() -> None:
    anthropic = pytest.importorskip("anthropic")

    async def scene() -> None:
        async with serving() as server, anthropic.AsyncAnthropic(
                base_url=server.url, api_key="k", max_retries=0) as client:
            whole = await client.messages.create(
                model="m", max_tokens=90, messages=MESSAGES)
            assert whole.content[0].text == TEXT
            assert whole.usage.output_tokens == 8
            async with client.messages.stream(
                    model="m", max_tokens=90, messages=MESSAGES, tools=[{
                        "name": "refund", "input_schema": SCHEMA}]) as stream:
                done = await stream.get_final_message()
            call, = done.content
            assert call.input == ARGUMENTS and done.stop_reason == "tool_use"
            async with client.messages.stream(
                    model="m", max_tokens=3, messages=[
                        *MESSAGES, {"role": "assistant", "content": [
                            {"type": "tool_use", "id": call.id, "name": "refund",
                             "input": {}}]},
                        {"role": "user", "content": [
                            {"type": "tool_result", "tool_use_id": call.id,
                             "content": "x"}]}]) as stream:
                done = await stream.get_final_message()
            assert done.content[0].text == "This answer was"
            assert done.stop_reason == "max_tokens"
            assert last(server).results == [call.id]
    run(scene())


def test_a_conversation_sent_again_has_its_key() -> None:
    def key(call: str, result: str, text: str) -> str:
        return read_asked("chat", {"messages": [
            {"role": "user", "content": text},
            {"role": "assistant", "tool_calls": [{
                "id": call, "function": {"name": "f", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": call, "content": result}]}).key
    assert key("c1", "a", "x") == key("c2", "b", "x") != key("c1", "a", "y")


_KEYS = st.sampled_from([
    "messages", "input", "system", "tools", "tool_choice", "function", "name",
    "parameters", "input_schema", "type", "role", "content", "properties", "enum",
    "anyOf", "max_tokens", "stream", "stream_options", "include_usage", "model",
    "tool_call_id", "minimum", "const"])
_LEAVES = st.none() | st.booleans() | st.integers() | st.sampled_from([
    "", "tool", "function", "none", "result", "tool_result", "object", "string"])


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(_KEYS, st.recursive(
    _LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        _KEYS, inner, max_size=5), max_leaves=25), max_size=8))
def test_any_body_has_an_answer(body: Json) -> None:
    shapes: "list[tuple[typing.Any, typing.Any]]" = [
        ("chat", Chat), ("responses", Responses), ("messages", Messages)]
    for api, shape in shapes:
        asked = read_asked(api, body)
        answer = make_answer(asked, 3)
        said = shape(asked, answer)
        assert json.loads(json.dumps(said.whole(1)))
        events = [*said.begin(), *map(said.piece, answer.pieces), *said.end(1)]
        assert all(one.endswith(b"\n\n") for one in events)


# ---- clients that leave, slots


async def leave(server: Provider, stream: bool) -> Record:
    """Leaves as soon as the request has arrived and made some tokens."""
    raw = json.dumps({**BODIES["/v1/chat/completions"], "stream": stream}).encode()
    _, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(head_of("/v1/chat/completions", raw))
    while not server.journal.records or last(server).billed_output < 2:
        await asyncio.sleep(0.002)
    writer.transport.abort()
    await server.settle(5)
    return last(server)


@pytest.mark.parametrize("stream", [False, True])
def test_work_for_nobody(stream: bool) -> None:
    slow = Speed(0.001, 1e6, 100, 16)

    async def scene() -> None:
        async with serving("ok", speed=slow) as server:
            record = await leave(server, stream)
            assert record.billed_output == 16 and not record.whole
            assert record.left_at is not None and record.ran_on_s > 0.02
            assert record.sent_tokens < 16
        async with serving("brownout_cancel", speed=slow) as server:
            record = await leave(server, stream)
            assert record.billed_output < 16 and not record.whole
            assert record.left_at is not None and record.ran_on_s < 0.05
    run(scene())


def test_hidden_tries_are_billed() -> None:
    async def scene() -> None:
        async with serving({"fault": "brownout_layered", "tries": 3}) as server:
            await ask(server)
            assert last(server).billed_prompt == 3 * last(server).prompt_tokens
            assert last(server).whole
    run(scene())


def test_slots_are_queued_for_first_come_first_served() -> None:
    async def scene() -> None:
        speed = Speed(0.01, 1e6, 1000, 4, slots=1)
        async with serving("ok", speed=speed) as server:
            await asyncio.gather(*(ask(server, stream=True) for _ in range(3)))
            firsts = [one.first_token_at or 0 for one in server.journal.records]
            for before, after in zip(firsts, firsts[1:]):
                assert after - before > 0.01
    run(scene())


# ---- the connection


def test_connections_carry_many_requests() -> None:
    """Kept alive, pipelined, with a chunked body, and 100-continue."""
    async def scene() -> None:
        async with serving() as server:
            raw = json.dumps(BODIES["/v1/chat/completions"]).encode()
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", server.port)
            one = head_of("/v1/chat/completions", raw)
            writer.write(one + one)
            chunked = (b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"
                       b"Transfer-Encoding: chunked\r\nExpect: 100-continue"
                       b"\r\n\r\n")
            for _ in range(2):
                await reader.readuntil(b'"total_tokens"')
                await reader.readuntil(b"}}")
            writer.write(chunked)
            assert await reader.readuntil(b"\r\n\r\n") == (
                b"HTTP/1.1 100 Continue\r\n\r\n")
            writer.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(raw), raw))
            await reader.readuntil(b'"total_tokens"')
            records = server.journal.records
            assert [one.whole for one in records] == [True] * 3
            assert {one.connection for one in records} == {1}
            writer.close()
    run(scene())


@pytest.mark.parametrize("raw, word", [
    (b"NONSENSE\r\n\r\n", b" 400 "),
    (head_of("/v1/chat/completions", b"{"), b"invalid_json"),
    (head_of("/v1/chat/completions", b"[1]"), b"not an object"),
    (head_of("/v1/chat/completions", b'{"messages":' * 60_000), b"invalid_json"),
    (head_of("/v1/embeddings", b"{}"), b"/chat/completions"),
    (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * 300_000, b" 400 "),
])
def test_requests_that_are_none(raw: bytes, word: bytes) -> None:
    async def scene() -> None:
        async with serving() as server:
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", server.port)
            writer.write(raw)
            got = await asyncio.wait_for(reader.read(4000), 2)
            assert word in got
            assert not server.journal.records
            writer.close()
    run(scene())


def test_a_port_that_is_taken() -> None:
    async def scene() -> None:
        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            other.listen()
            with pytest.raises(FivegatesError, match="is taken"):
                await serving().start(other.getsockname()[1])
    run(scene())


def test_scripts() -> None:
    async def scene() -> None:
        script = read_script(read_value({
            "speed": {"first_token_s": 0.001, "tokens_per_s": 4000,
                      "output_tokens": 2, "frees_when_left": True},
            "per": "conversation", "faults": ["server_error", "ok"],
            "routes": {"spare": [{"fault": "server_error", "status": 599}]}}))
        assert script.speed.output_tokens == 2 and script.speed.frees_when_left
        async with Provider(script) as server:
            for text in ("a", "b", "a", "b", "a"):
                await ask(server, body={"messages": [
                    {"role": "user", "content": text}]})
            assert [one.status for one in server.journal.records] == [
                500, 500, 200, 200, 200]
        # Per server, the same requests go through the list once.
        assert script.next("/spare/v1/x", "k", 0).values["status"] == 599
    run(scene())


def test_phases() -> None:
    script = read_script(read_value({"phases": [
        {"for_s": 10, "faults": ["ok"]},
        {"for_s": 5, "faults": ["blackout", "trickle"],
         "routes": {"b": "brownout"}}, {"faults": "ok"}]}))

    def names(*times: float, path: str = "/v1") -> "list[str]":
        return [script.next(path, "", at).fault.name for at in times]

    assert names(0, 9.9, 10, 11, 14.9, 15, 1e9) == [
        "ok", "ok", "blackout", "trickle", "trickle", "ok", "ok"]
    assert names(12, 16, path="/b/v1") == ["brownout", "ok"]
