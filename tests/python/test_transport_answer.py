"""chat_answer() and chat_request() say of a body what parsing it says, or
nothing; chat_success() tells the engine what chat_answer() says, begin_chat()
what chat_request() says."""

from __future__ import annotations

import copy
import json
import random
import typing

import pytest

import fivegates
from fivegates._core import (
    SAW_ERROR,
    SAW_MALFORMED,
    SseScanner,
    chat_answer,
    chat_request,
)
from fivegates.answers import answer_of
from fivegates.transport.given import counted
from fivegates.transport.request import ModelRequest

ROUNDS = 6000
Facts = typing.Dict[str, typing.Any]
PLAIN: Facts = {
    "id": "c1", "object": "chat.completion", "created": 1, "model": "m1",
    "choices": [{"index": 0, "logprobs": None, "finish_reason": "stop",
                 "message": {"role": "assistant", "content": "h\u00e9 \"q\"\n",
                             "refusal": None, "annotations": []}}],
    "usage": {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12,
              "prompt_tokens_details": {"cached_tokens": 2},
              "completion_tokens_details": {"reasoning_tokens": 0}},
    "service_tier": "default", "system_fingerprint": None}
UNUSED = {"prompt_tokens": 0, "output_tokens": 0, "cached_tokens": 0}
REQUEST: Facts = {
    "model": "m1", "stream": False, "temperature": 0.5, "max_tokens": 50,
    "max_completion_tokens": None, "stop": ["x"], "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "h\u00e9"}]},
        {"role": "assistant", "content": "", "refusal": None},
        {"role": "tool", "tool_call_id": "t", "content": "4"}]}
KEYS = [*PLAIN, *PLAIN["choices"][0], *PLAIN["choices"][0]["message"],
        *PLAIN["usage"], "cached_tokens", "tool_calls", "function_call", "cost",
        "Cost", "error", "status", "code", "Choices", "input_tokens", "audio",
        "base_resp", "text", "stop_reason", "output_tokens", *REQUEST, "role",
        "type", "parts", "tools", "system", "instructions", "store", "thinking",
        "max_output_tokens", "response_format", "functionResponse"]
VALUES: "list[typing.Any]" = [
    None, True, False, 0, 1, -1, 7, 1.5, 10**12, 10**30, "", "x", "stop",
    "length", "error", "tool_calls", "content_filter", "STOP", "\U0001f600",
    [], {}, [1], {"a": 1}, [{}], {"cost": 1}, [[]], {"cached_tokens": 3},
    {"text": "z"}, {"error": "boom"}, {"usage": {"prompt_tokens": 5}},
    [{"message": {"content": "q"}, "finish_reason": "stop"}],
    "assistant", "developer", "function", [{"type": "text", "text": "t"}],
    [{"type": "image_url"}], [{"role": "model", "content": "p"}]]


def parsed(body: bytes) -> "Facts | None":
    """What the transport makes of a body by parsing it."""
    scanner = SseScanner("chat", True)
    if scanner.feed(body) & (SAW_ERROR | SAW_MALFORMED):
        return None
    try:
        answer = json.loads(body)
    except ValueError:
        return None
    if not isinstance(answer, dict) or not answer.get("choices"):
        return None
    return {**UNUSED, **counted(scanner), **answer_of(answer)}


def nodes(value: typing.Any) -> "list[typing.Any]":
    """The objects and lists of a value, itself among them."""
    inner = (value.values() if isinstance(value, dict)
             else value if isinstance(value, list) else ())
    return ([value] if isinstance(value, (dict, list)) else []) + [
        node for one in inner for node in nodes(one)]


def changed(rng: random.Random, plain: Facts) -> bytes:
    """A plain body with a few members changed, doubled, or bytes broken."""
    body = copy.deepcopy(plain)
    for _ in range(rng.choice((1, 1, 2, 3))):
        node = rng.choice(nodes(body))
        value = copy.deepcopy(rng.choice(VALUES))
        if isinstance(node, list):
            node[:] = rng.choice(([*node, value], node[1:]))
        elif rng.random() < 0.25 and node:
            del node[rng.choice(list(node))]
        else:
            node[rng.choice([*node, *KEYS])] = value
    text = json.dumps(body, ensure_ascii=rng.random() < 0.5)
    if rng.random() < 0.1:
        at = rng.choice([i for i, c in enumerate(text) if c == "{"]) + 1
        comma = "" if text[at] == "}" else ","
        text = (f"{text[:at]}{json.dumps(rng.choice(KEYS))}:"
                f"{json.dumps(rng.choice(VALUES))}{comma}{text[at:]}")
    out = bytearray(text.encode())
    if rng.random() < 0.1:
        out[rng.randrange(len(out))] = rng.randrange(256)
    return bytes(out[:rng.randrange(len(out))] if rng.random() < 0.03 else out)


@pytest.mark.parametrize("written", [
    json.dumps(PLAIN), json.dumps(PLAIN, ensure_ascii=False),
    json.dumps(PLAIN, indent=1) + "\n",
    json.dumps({"choices": PLAIN["choices"]}),
    json.dumps({**PLAIN, "usage": None})])
def test_plain(written: str) -> None:
    facts = chat_answer(written.encode())
    assert facts is not None
    assert {**UNUSED, **facts} == parsed(written.encode())


@pytest.mark.parametrize("change", [
    {"error": {"message": "overloaded"}}, {"choices": []}, {"object": "error"},
    {"choices": PLAIN["choices"] * 2},
    {"usage": {**PLAIN["usage"], "cost": 0.25}},
    {"choices": [{"finish_reason": "tool_calls", "message": {
        "content": "x", "tool_calls": [{"id": "t"}]}}]}])
def test_not_plain(change: Facts) -> None:
    assert chat_answer(json.dumps({**PLAIN, **change}).encode()) is None


def test_the_same_as_parsed() -> None:
    rng = random.Random(7)
    plain = 0
    for _ in range(ROUNDS):
        body = changed(rng, PLAIN)
        facts = chat_answer(body)
        if facts is not None:
            plain += 1
            assert {**UNUSED, **facts} == parsed(body), body
    assert plain > 600


def test_told_at_once_is_the_same() -> None:
    engine = fivegates.Engine({
        "version": 1, "routes": {"main": {
            "provider": "openai", "model": "m1",
            "price": {"input": 2.5, "output": 10}}},
        "workflows": {"w": {"routes": ["main"]}}}, clock=lambda: 5_000_000)
    rng = random.Random(9)
    told = 0
    for _ in range(ROUNDS // 4):
        body = changed(rng, PLAIN)
        facts = chat_answer(body)
        one, other = (engine.begin("w", prompt_tokens=9, call_id="c")
                      for _ in range(2))
        for call in (one, other):
            call.begin_attempt()
        decision = one.chat_success(body, attempt=1)
        if facts is None:
            assert decision is None, body
            assert one.decision.reason == other.decision.reason
            continue
        told += 1
        assert decision is not None
        other.success(attempt=1, **facts)
        ends = [json.loads(call.ledger_line("end")) for call in (one, other)]
        assert ends[0] == ends[1], body
        assert decision.json() == other.decision.json(), body
    assert told > 150


def read(body: bytes) -> "tuple[object, bool, Facts] | None":
    """What is read from a request by parsing it."""
    try:
        value = json.loads(body)
    except ValueError:
        return None
    if not isinstance(value, dict):
        return None
    request = ModelRequest("chat", "/chat/completions", body, value)
    return request.model, request.streamed, request.facts()


def plainly(body: bytes) -> "tuple[object, bool, Facts] | None":
    """The same without parsing; None: not plain."""
    plain = chat_request(body)
    if plain is None:
        return None
    request = ModelRequest("chat", "/chat/completions", body, None,
                           (plain[0], plain[1]["stream"]), plain[1])
    assert request.body == json.loads(body)
    return request.model, request.streamed, request.facts()


@pytest.mark.parametrize("change", [
    {}, {"stream": True}, {"stream": None}, {"messages": []}, {"seed": 7},
    {"messages": REQUEST["messages"][:3]}, {"max_completion_tokens": 70},
    {"messages": [{"role": "user", "content": "word " * 2000}]},
    {"metadata": {"a": [{"content": [{"type": "image_url"}]}]}},
    {"messages": [{"role": "assistant", "content": None, "tool_calls": [
        {"id": "t", "type": "function", "function": {"name": "f"}}]}]}])
def test_plain_request(change: Facts) -> None:
    body = json.dumps({**REQUEST, **change}).encode()
    assert plainly(body) is not None
    assert plainly(body) == read(body)


@pytest.mark.parametrize("change", [
    {"tools": []}, {"store": True}, {"modalities": ["audio"]}, {"model": 1},
    {"response_format": {"type": "json_schema"}}, {"max_tokens": 1.5},
    {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
    {"messages": [{"role": "user", "content": "BASE64," + "A" * 2000}]},
    {"messages": "hi"}, {"messages": [{"role": "user", "parts": []}]}])
def test_not_a_plain_request(change: Facts) -> None:
    assert chat_request(json.dumps({**REQUEST, **change}).encode()) is None


def test_a_request_the_same_as_parsed() -> None:
    rng = random.Random(8)
    plain = 0
    for _ in range(ROUNDS):
        body = changed(rng, REQUEST)
        found = plainly(body)
        if found is not None:
            plain += 1
            assert found == read(body), body
    assert plain > 600


def test_begin_chat_tells_the_engine_the_same() -> None:
    engine = fivegates.Engine({
        "version": 1, "routes": {"main": {
            "provider": "openai", "model": "m1",
            "price": {"input": 2.5, "output": 10}}},
        "workflows": {"w": {"routes": ["main"]}}}, clock=lambda: 5_000_000)
    rng = random.Random(10)
    began = 0
    for _ in range(ROUNDS // 4):
        body = changed(rng, REQUEST)
        facts = chat_request(body)
        found = engine.begin_chat("w", body, ["tick", "hedge"])
        assert (facts is None) == (found is None), body
        if facts is None or found is None:
            continue
        began += 1
        call, model, streamed, permit, sent = found
        assert permit is None and sent is None
        other = engine.begin("w", call_id=call.id, unable=["tick", "hedge"],
                             **facts[1])
        assert (model, streamed) == (facts[0], facts[1]["stream"])
        assert call.decision.json() == other.decision.json(), body
        lines = [json.loads(one.ledger_line("call")) for one in (call, other)]
        assert lines[0] == lines[1], body
    assert began > 150


def test_bytes_only() -> None:
    with pytest.raises(TypeError):
        chat_answer("{}")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        chat_request("{}")  # type: ignore[arg-type]
    engine = fivegates.Engine({
        "version": 1, "routes": {"main": {"provider": "openai", "model": "m1"}},
        "workflows": {"w": {"routes": ["main"]}}})
    with pytest.raises(TypeError):
        engine.begin("w").chat_success("{}")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        engine.begin_chat("w", "{}", None)  # type: ignore[arg-type]
    with pytest.raises(fivegates.ArgumentError, match="no workflow"):
        engine.begin_chat("v", json.dumps(REQUEST).encode(), None)
