"""What a case becomes in each API, and what comes back: bodies, headers, streams."""

from __future__ import annotations

import asyncio
import gzip
import json
import types
import typing
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fivegates
from fivegates.contract import targets
from fivegates.contract.targets import Http, Reply, Side, http_client, reply_of
from fivegates.contract.wire import CannotSay, assembled, body_of, output_limit
from fivegates.errors import StreamError

httpx = pytest.importorskip("httpx")

Json = typing.Dict[str, typing.Any]
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
CHAT: Json = {
    "messages": [
        {"role": "system", "content": "Be short."},
        {"role": "developer", "content": [{"type": "text", "text": "Be kind."}]},
        {"role": "user", "content": [
            {"type": "text", "text": "See"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}},
            {"type": "image_url", "image_url": {"url": "https://h/i.png"}}]},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": "one"},
        {"role": "user", "content": "And?"}],
    "max_completion_tokens": 7, "temperature": 0, "stop": "END",
    "parallel_tool_calls": False, "tool_choice": "required",
    "tools": [{"type": "function", "function": {
        "name": "f", "description": "d", "parameters": {"type": "object"}}}]}


def test_a_chat_request_as_it_is() -> None:
    assert body_of("chat", CHAT, "m", 5) == {
        **CHAT, "model": "m", "stream": True, "stream_options": {"include_usage": True}}


def test_a_chat_request_as_messages() -> None:
    assert body_of("messages", CHAT, "m", 5) == {
        "model": "m", "max_tokens": 7, "stream": True, "temperature": 0,
        "system": "Be short.\n\nBe kind.", "stop_sequences": ["END"],
        "tools": [{"name": "f", "description": "d", "input_schema": {"type": "object"}}],
        "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
        "messages": [
            {"role": "user", "content": [
                {"type": "text", "text": "See"},
                {"type": "image", "source": {
                    "type": "base64", "media_type": "image/png", "data": "AA=="}},
                {"type": "image", "source": {"type": "url", "url": "https://h/i.png"}}]},
            {"role": "assistant", "content": [
                {"type": "tool_use", "id": "c1", "name": "f", "input": {"a": 1}}]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": "one"},
                {"type": "text", "text": "And?"}]}]}


@pytest.mark.parametrize("change", [
    {"seed": 1}, {"logprobs": True}, {"tool_choice": "perhaps"}, {"tools": [{"type": "x"}]},
    {"messages": [{"role": "robot", "content": "x"}]},
    {"messages": [{"role": "system", "content": [{"type": "image_url"}]}]},
    {"messages": [{"role": "user", "content": [{"type": "file"}]}]}, {"tools": None},
    {"messages": [{"role": "user", "content": 5}]}, {"tools": 5},
    {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": 5}]}]},
    {"messages": [{"role": "system", "content": [{"type": "text"}]}]},
    {"messages": [{"role": "assistant", "content": "x", "tool_calls": True}]},
    {"messages": [{"role": "assistant", "tool_calls": [{"id": "c", "type": "custom"}]}]}])
def test_what_messages_cannot_say(change: Json) -> None:
    with pytest.raises(CannotSay):
        body_of("messages", {**CHAT, **change}, "m", 5)
    no_limit = {key: value for key, value in CHAT.items() if "max" not in key}
    with pytest.raises(CannotSay, match="output limit"):
        body_of("messages", no_limit, "m", None)
    assert body_of("messages", no_limit, "m", 5)["max_tokens"] == 5


def test_the_larger_of_two_limits_counts() -> None:
    """A server may know only one of them, and bill by it."""
    for limits in ({"max_tokens": 9, "max_completion_tokens": 1},
                   {"max_tokens": 1, "max_completion_tokens": 9}, {"max_tokens": 9}):
        assert output_limit(limits) == 9
    assert output_limit({"max_tokens": None}) is None


# ---- streams


def sse(*events: typing.Any, end: str = "\n\n") -> bytes:
    return "".join(f"data: {one if isinstance(one, str) else json.dumps(one, ensure_ascii=False)}"
                   f"{end}" for one in events).encode()


def chunk(finish: "str | None" = None, **delta: typing.Any) -> Json:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def tool_chunk(index: int, **fields: typing.Any) -> Json:
    function = {key: fields.pop(key) for key in ("name", "arguments") if key in fields}
    return chunk(tool_calls=[{"index": index, "function": function, **fields}])


STREAM = sse(
    chunk(role="assistant", content=""), chunk(content="Pa\u2028"), chunk(content="ris"),
    tool_chunk(1, id="b", name="g", arguments=""), tool_chunk(0, id="a", name="f"),
    tool_chunk(0, arguments='{"x"'), tool_chunk(1, arguments="{}"),
    tool_chunk(0, arguments=": 1}"), chunk("tool_calls"),
    {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 4}}, "[DONE]")
MESSAGES = sse(
    {"type": "message_start", "message": {"usage": {
        "input_tokens": 9, "cache_read_input_tokens": 2, "output_tokens": 1}}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking"}},
    {"type": "content_block_delta", "index": 0, "delta": {
        "type": "thinking_delta", "thinking": "hm"}},
    {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "Pa\u2028"}},
    {"type": "ping"},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "ris"}},
    {"type": "content_block_start", "index": 2, "content_block": {
        "type": "tool_use", "id": "a", "name": "f", "input": {}}},
    {"type": "content_block_delta", "index": 2, "delta": {
        "type": "input_json_delta", "partial_json": '{"x"'}},
    {"type": "content_block_delta", "index": 2, "delta": {
        "type": "input_json_delta", "partial_json": ": 1}"}},
    {"type": "content_block_start", "index": 3, "content_block": {
        "type": "tool_use", "id": "b", "name": "g", "input": {}}},
    {"type": "message_delta", "delta": {"stop_reason": "tool_use"},
     "usage": {"output_tokens": 4}}, {"type": "message_stop"})
STREAMS = {"chat": STREAM, "messages": MESSAGES}


def answered(wire: typing.Any, handler: typing.Callable[..., typing.Any],
             **route: typing.Any) -> Reply:
    """One send to a server that is a function, by a permit of the engine."""
    card = {"version": 1, "routes": {"r": {"provider": "openai", "model": "m", **route}},
            "workflows": {"w": {"routes": ["r"]}}}
    engine = fivegates.Engine(fivegates.Policy.loads(card))
    facts = {"version": None, **engine.policy.route("r"), "api": wire}

    def served(request: typing.Any) -> typing.Any:  # packed, as from a socket
        found = handler(request)
        return httpx.Response(found.status_code, headers=found.headers, stream=(
            httpx.ByteStream(found.content) if found.is_stream_consumed else found.stream))

    http = types.SimpleNamespace(
        Limits=httpx.Limits, Timeout=httpx.Timeout,
        AsyncClient=lambda **options: httpx.AsyncClient(
            transport=httpx.MockTransport(served), **options))
    target = Http(Side("route", facts, None, 50, lambda tool: False), http,
                  http_client(http, 1), route.get("base_url", "http://h/v1"))

    async def go() -> typing.Any:
        try:
            return await engine.arun("w", lambda attempt: send(attempt), outcome=True)
        finally:
            await target.close()

    replies: "list[Reply]" = []

    async def send(attempt: typing.Any) -> typing.Any:
        replies.append(await target.send(attempt, target.body(
            {"messages": [{"role": "user", "content": "q"}]})))
        return replies[-1].result

    asyncio.run(go())
    return replies[-1]


@pytest.mark.parametrize("wire", ["chat", "messages"])
@pytest.mark.parametrize("end", ["\n\n", "\r\n\r\n", "\r\r"])
@pytest.mark.parametrize("kind", ["text/event-stream; charset=utf-8", "application/json"])
def test_a_stream_is_read_whole(wire: str, end: str, kind: str) -> None:
    raw = STREAMS[wire].replace(b"\n\n", end.encode())
    reply = answered(wire, lambda request: httpx.Response(
        200, headers={"content-type": kind}, content=raw))
    assert reply.answer.text == "Pa\u2028ris"
    assert [(one["id"], one["name"], json.loads(one["arguments"]))
            for one in reply.answer.tool_calls] == [("a", "f", {"x": 1}), ("b", "g", {})]
    assert reply.answer.finish == "tool_calls" and reply.first_token_ms is not None
    assert reply.usage == ((9, 0, 4) if wire == "chat" else (11, 2, 4))


@given(st.binary(max_size=200), st.integers(0, 400))
def test_a_stream_of_anything_is_an_answer_or_a_value_error(extra: bytes, at: int) -> None:
    for wire, raw in STREAMS.items():
        try:
            assembled(typing.cast(typing.Any, wire), raw[:at] + extra + raw[at:])
        except (ValueError, KeyError, TypeError, AttributeError):
            pass  # what a target takes for an answer that cannot be read


@pytest.mark.parametrize("wire", ["chat", "messages"])
def test_usage_that_is_not_told_is_none(wire: str) -> None:
    """Also where only a beginning's placeholder is told."""
    raw = STREAMS[wire].replace(b'"completion_tokens": 4', b'"other": 4').replace(
        b'"usage": {"output_tokens": 4}', b'"usage": null')
    assert answered(wire, lambda request: httpx.Response(200, content=raw)).usage is None


@pytest.mark.parametrize("wire", ["chat", "messages"])
def test_half_a_stream_is_no_answer(wire: str) -> None:
    raw = STREAMS[wire]
    with pytest.raises((fivegates.Refused, StreamError)):
        answered(wire, lambda request: httpx.Response(200, content=raw[:len(raw) // 2]))


def test_a_whole_answer_where_a_stream_was_asked_for() -> None:
    reply = answered("chat", lambda request: httpx.Response(200, json={
        "choices": [{"finish_reason": "stop", "message": {"content": "Paris"}}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 1}}))
    assert reply.answer.text == "Paris" and reply.first_token_ms is None
    assert reply.usage == (3, 0, 1)


@pytest.mark.parametrize("prompt, output, text, usage", [
    (0, 0, "Paris", None), (0, 1, "Paris", None), (3, 0, "Paris", None),
    (3, 0, "", (3, 0, 0)), (2**32, 1, "Paris", None), (True, False, "Paris", None)])
def test_a_gateway_that_does_not_count(prompt: int, output: int, text: str,
                                       usage: typing.Any) -> None:
    """What it says would make a call free: the hold stays."""
    assert reply_of({"choices": [{"finish_reason": "stop", "message": {"content": text}}],
                     "usage": {"prompt_tokens": prompt, "completion_tokens": output}},
                    None, 1).usage == usage


@pytest.mark.parametrize("packing, good", [
    ("gzip", True), ("deflate", True), ("identity", True), ("zstd", False)])
@pytest.mark.parametrize("status", [200, 400])
def test_a_packed_answer(packing: str, good: bool, status: int) -> None:
    pack = {"gzip": gzip.compress, "deflate": zlib.compress}.get(packing, bytes)
    raw = STREAM if status == 200 else b'{"error": {"code": "insufficient_quota"}}'
    asked: "list[str]" = []

    def handler(request: typing.Any) -> typing.Any:
        asked.append(request.headers["accept-encoding"])
        return httpx.Response(status, headers={"content-encoding": packing},
                              stream=httpx.ByteStream(pack(raw)))

    if good and status == 200:
        assert answered("chat", handler).answer.text == "Pa\u2028ris"
    else:
        with pytest.raises(fivegates.Refused) as stopped:
            answered("chat", handler)
        kind = stopped.value.decision.kind
        assert (kind == "malformed") == (status == 200)
        assert (kind == "no_credit") == (good and status == 400), kind
    assert set(asked) == {"identity"}


def test_a_bomb_is_left_early() -> None:
    """However much is packed into how little, it comes in small pieces."""
    bomb = gzip.compress(bytes(1 << 24), 1)
    pieces: "list[int]" = []

    class Response:
        headers = {"content-encoding": "gzip"}
        status_code = 200

        async def aiter_raw(self) -> "typing.AsyncIterator[bytes]":
            yield bomb

    async def read() -> None:
        async for piece in targets._pieces(Response()):
            pieces.append(len(piece))
            if len(pieces) > 8:
                break

    asyncio.run(read())
    assert max(pieces) <= 1 << 16


# ---- where it goes


@pytest.mark.parametrize("wire, provider, url, want, header", [
    ("chat", "openai", "http://h/v1", "http://h/v1/chat/completions", "authorization"),
    ("chat", "azure-openai", "http://h/d?api-version=1", "http://h/d/chat/completions"
     "?api-version=1", "api-key"),
    ("messages", "anthropic", "http://h", "http://h/v1/messages", "x-api-key"),
    ("messages", "anthropic", "http://h/v1/", "http://h/v1/messages", "x-api-key")])
def test_url_and_key(monkeypatch: pytest.MonkeyPatch, wire: str, provider: str, url: str,
                     want: str, header: str) -> None:
    monkeypatch.setenv("A_KEY", "s3cret")
    seen: "list[typing.Any]" = []

    def handler(request: typing.Any) -> typing.Any:
        seen.append(request)
        return httpx.Response(200, content=STREAMS[wire])

    answered(wire, handler, provider=provider, base_url=url, key_env="A_KEY")
    [request] = seen
    assert str(request.url) == want
    assert [name for name, value in request.headers.items() if "s3cret" in value] == [header]
    assert ("anthropic-version" in request.headers) == (wire == "messages")
    assert request.headers["x-request-attempt"] == "1"


def test_a_key_follows_no_redirect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_KEY", "s3cret")
    hosts: "list[str]" = []

    def handler(request: typing.Any) -> typing.Any:
        hosts.append(request.url.host)
        return httpx.Response(307, headers={"location": "http://elsewhere/v1"})

    with pytest.raises((fivegates.Refused, StreamError)):
        answered("chat", handler, key_env="A_KEY")
    assert set(hosts) == {"h"}
