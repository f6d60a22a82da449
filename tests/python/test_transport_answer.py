"""chat_answer() says of a body what parsing it says, or nothing."""

from __future__ import annotations

import copy
import json
import random
import typing

import pytest

from fivegates._core import (
    SAW_ERROR,
    SAW_MALFORMED,
    SseScanner,
    chat_answer,
)
from fivegates.answers import answer_of
from fivegates.transport.given import counted

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
KEYS = [*PLAIN, *PLAIN["choices"][0], *PLAIN["choices"][0]["message"],
        *PLAIN["usage"], "cached_tokens", "tool_calls", "function_call", "cost",
        "Cost", "error", "status", "code", "Choices", "input_tokens", "audio",
        "base_resp", "text", "stop_reason", "output_tokens"]
VALUES: "list[typing.Any]" = [
    None, True, False, 0, 1, -1, 7, 1.5, 10**12, 10**30, "", "x", "stop",
    "length", "error", "tool_calls", "content_filter", "STOP", "\U0001f600",
    [], {}, [1], {"a": 1}, [{}], {"cost": 1}, [[]], {"cached_tokens": 3},
    {"text": "z"}, {"error": "boom"}, {"usage": {"prompt_tokens": 5}},
    [{"message": {"content": "q"}, "finish_reason": "stop"}]]


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


def changed(rng: random.Random) -> bytes:
    """A plain body with a few members changed, doubled, or bytes broken."""
    body = copy.deepcopy(PLAIN)
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
    for _ in range(6000):
        body = changed(rng)
        facts = chat_answer(body)
        if facts is not None:
            plain += 1
            assert {**UNUSED, **facts} == parsed(body), body
    assert plain > 600


def test_bytes_only() -> None:
    with pytest.raises(TypeError):
        chat_answer("{}")  # type: ignore[arg-type]
