"""The gateway under the SDKs, in the other APIs: messages and responses."""

from __future__ import annotations

import typing

import anthropic
import pytest

from openresty.test_proxy import DOWN, Run, claude_of, client, closed
from openresty.upstream import Upstream, event, json_reply, stream

__all__ = ["closed"]  # a fixture: the SDKs' clients end with their test


MESSAGE: typing.Any = {"id": "msg_1", "type": "message", "role": "assistant", "model": "model-of-main",
           "stop_reason": "end_turn", "stop_sequence": None,
           "content": [{"type": "text", "text": "hello"}],
           "usage": {"input_tokens": 9, "output_tokens": 3}}
_EVENTS: "tuple[typing.Any, ...]" = (
    {"type": "message_start", "message": {**MESSAGE, "content": [],
                                          "stop_reason": None}},
    {"type": "content_block_start", "index": 0,
     "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0,
     "delta": {"type": "text_delta", "text": "hello"}},
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "usage": {"output_tokens": 3},
     "delta": {"stop_reason": "end_turn", "stop_sequence": None}},
    {"type": "message_stop"})
MESSAGE_EVENTS = [event(one, one["type"]) for one in _EVENTS]
BROKEN = json_reply(500, {"type": "error", "error": {
    "type": "api_error", "message": "Internal server error"}})


@pytest.mark.parametrize("streamed", [False, True])
def test_messages(run: Run, streamed: bool) -> None:
    good = stream(MESSAGE_EVENTS) if streamed else json_reply(200, MESSAGE)
    upstream = Upstream(main=[BROKEN, good], backup=[DOWN])
    claude = claude_of(run(upstream))
    asked: typing.Any = {"model": "model-of-main", "max_tokens": 10,
                         "messages": [{"role": "user", "content": "hi"}]}
    if streamed:
        with claude.messages.stream(**asked) as answer:
            assert answer.get_final_text() == "hello"
    else:
        message: typing.Any = claude.messages.create(**asked)
        assert message.content[0].text == "hello"
    peer = upstream.seen["main"][1]
    assert peer.path == "/main/v1/messages"
    assert peer.headers["x-api-key"] == "key-of-main"
    assert peer.headers["anthropic-version"]
    assert "authorization" not in peer.headers


def test_messages_refused(run: Run) -> None:
    upstream = Upstream(main=[BROKEN], backup=[BROKEN])
    claude = claude_of(run(upstream), max_retries=2)
    with pytest.raises(anthropic.APIStatusError, match="fivegates"):
        claude.messages.create(model="model-of-main", max_tokens=50, messages=[
            {"role": "user", "content": "hi"}])
    made = upstream.seen["main"] + upstream.seen["backup"]
    assert len(made) <= 4  # not that for each of the SDK's three tries


def test_messages_cut(run: Run) -> None:
    upstream = Upstream(main=[stream(MESSAGE_EVENTS[:3], end=False)],
                        backup=[DOWN])
    claude = claude_of(run(upstream))
    with pytest.raises(anthropic.APIStatusError, match="partial_output"):
        with claude.messages.stream(model="model-of-main", max_tokens=50, messages=[
                {"role": "user", "content": "hi"}]) as answer:
            answer.get_final_text()


RESPONSE: typing.Any = {
    "id": "resp_1", "object": "response", "created_at": 1, "model": "model-of-main",
    "status": "completed", "error": None, "incomplete_details": None,
    "instructions": None, "metadata": {}, "parallel_tool_calls": True,
    "temperature": 1, "tool_choice": "auto", "tools": [], "top_p": 1,
    "output": [{"id": "msg_1", "type": "message", "role": "assistant",
                "status": "completed", "content": [{
                    "type": "output_text", "text": "hello",
                    "annotations": []}]}],
    "usage": {"input_tokens": 9, "output_tokens": 3, "total_tokens": 12,
              "input_tokens_details": {"cached_tokens": 0},
              "output_tokens_details": {"reasoning_tokens": 0}}}


@pytest.mark.parametrize("streamed", [False, True])
def test_responses(run: Run, streamed: bool) -> None:
    told: "list[typing.Any]" = [
        {"type": "response.created", "response": {
            **RESPONSE, "status": "in_progress", "output": []}},
        {"type": "response.output_text.delta", "item_id": "msg_1",
         "output_index": 0, "content_index": 0, "delta": "hello",
         "logprobs": []},
        {"type": "response.completed", "response": RESPONSE}]
    events = [event({**one, "sequence_number": i}, one["type"])
              for i, one in enumerate(told)]
    good = stream(events) if streamed else json_reply(200, RESPONSE)
    upstream = Upstream(main=[DOWN, good], backup=[DOWN])
    answer: typing.Any = client(run(upstream)).responses.create(
        model="model-of-main", input="hi", stream=streamed, store=False)
    if streamed:
        answer = list(answer)[-1].response
    assert answer.output_text == "hello"
    assert upstream.seen["main"][1].path == "/main/v1/responses"
