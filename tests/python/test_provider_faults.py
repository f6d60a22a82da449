"""Each fault of the provider, on the wire and in its books."""

from __future__ import annotations

import asyncio
import json

import pytest

from fivegates.provider import FAULTS

from .test_provider import (BODIES, MESSAGES, SCHEMA, ask, last, run, serving)

QUICK = {"seconds": 0.05, "after_s": 0.01, "first_token_s": 0.01,
         "every_s": 0.02, "slower": 2}
# Answers that are whole in spite of it; those of a kind of request only.
WHOLE = {"ok", "brownout", "brownout_cancel", "brownout_layered", "trickle",
         "slow_first_token", "ratelimit", "tool_then_error", "split_events",
         "wrong_type", "refusal", "filtered", "truncated_tool_call"}
# Bytes of an answer that cannot be whole for anybody.
CUT = {"cut", "body_cut", "stall", "no_terminal"}
UNREADABLE = {"bad_chunk", "bad_status_line", "head_cut", "empty_body", "garbage"}  # whoever answers for himself then is right


@pytest.mark.parametrize("path", sorted(BODIES))
def test_every_fault_is_played(path: str) -> None:
    async def one(name: str, stream: bool) -> None:
        numbers = {key: value for key, value in QUICK.items()
                   if key in FAULTS[name].params}
        async with serving({"fault": name, **numbers}, "ok") as server:
            got, end = await ask(server, path, stream)
            record = last(server)
            await server.settle(1)
            label = f"{name} {path} stream={stream}"
            assert record.fault == name and record.ended_at is not None, label
            assert end != "open", label
            if name in WHOLE:
                assert record.whole and record.billed and not record.cut, label
                assert record.status == 200, label
            elif FAULTS[name].group == "status":
                assert not record.whole, label
                assert record.status is not None and record.status >= 400, label
                assert b'"error"' in got or b"<html>" in got, label
                assert name == "gateway_timeout" or not record.billed, label
            elif name in CUT:
                assert record.cut and not record.whole and record.billed, label
                assert end == ("closed" if name in ("body_cut", "no_terminal")
                               else "reset"), label
            elif name in UNREADABLE:
                assert not record.cut and not record.whole, label
                assert not record.sent_tokens, label
            elif name != "long_header":
                assert not record.whole, label
            # The server has survived it.
            got, _ = await ask(server, path, stream)
            assert last(server).whole and b"This" in got, label

    async def scene() -> None:
        await asyncio.gather(*(one(name, stream) for name in FAULTS
                               for stream in (False, True)))
    run(scene())


@pytest.mark.parametrize("fault, stream, words, end", [
    ("closed", False, [], "closed"),
    ("reset", False, [], "reset"),
    ("head_cut", False, [b"HTTP/1.1 200", b"applica"], "closed"),
    ("bad_status_line", True, [b"SSH-2.0"], "closed"),
    ("bad_chunk", False, [b"chunked", b"\r\nzz\r\n"], "closed"),
    ("empty_body", False, [b"Content-Length: 0"], "closed"),
    ("wrong_encoding", False, [b"Content-Encoding: gzip", b'"choices"'],
     "closed"),
    ("wrong_type", True, [b"application/json", b"[DONE]"], "closed"),
    ("html_page", True, [b"text/html"], "closed"),
    ("empty_choices", True, [b'"choices": []', b"[DONE]"], "closed"),
    ("empty_choices", False, [b'"choices": []'], "closed"),
    ("refusal", False, [b'"refusal": "I cannot'], "closed"),
    ("filtered", True, [b'"finish_reason": "content_filter"'], "closed"),
    ("quota_in_stream", True, [b"200 OK", b"insufficient_quota"], "closed"),
    ("error_event", True, [b'"role": "assistant"', b"server_is_overloaded"],
     "closed"),
    ("malformed_chunk", True, [b'data: {"id": "x", "object"'], "closed"),
    ("context_length", False, [b"400", b"context_length_exceeded"], "closed"),
    ("content_filter", False, [b"400", b'"content_filter"'], "closed"),
    ("quota_exhausted", False, [b"429", b"insufficient_quota"], "closed"),
    ("rate_limited_retry_after", False, [b"Retry-After: 1\r", b"retry-after-ms:"
                                         b" 1000"], "closed"),
    ("bad_gateway", False, [b"502", b"text/html"], "closed"),
])
def test_faults_on_the_wire(fault: str, stream: bool, words: "list[bytes]",
                            end: str) -> None:
    async def scene() -> None:
        async with serving(fault) as server:
            got, ended = await ask(server, stream=stream)
            assert ended == end
            assert got.startswith(b"HTTP/1.1") or not got or words[0] in got
            for word in words:
                assert word in got
    run(scene())


def test_a_limit_does_not_say_when() -> None:
    async def scene() -> None:
        async with serving("rate_limited") as server:
            got, _ = await ask(server)
            assert b" 429 " in got and b"retry-after" not in got.lower()
    run(scene())


def test_a_cut_stream_has_some_tokens_and_no_end() -> None:
    async def scene() -> None:
        for fault, tokens in (("cut", 3), ("no_terminal", 3)):
            async with serving({"fault": fault, "after_tokens": tokens}) as server:
                got, _ = await ask(server, stream=True)
                assert got.count(b'"content": ') == tokens + 1  # the role's is ""
                assert b"[DONE]" not in got and b'"stop"' not in got
                assert got.endswith(b"0\r\n\r\n") is (fault == "no_terminal")
                assert last(server).sent_tokens == tokens
                assert last(server).billed_output == tokens
    run(scene())


def test_a_truncated_tool_call() -> None:
    async def scene() -> None:
        async with serving("truncated_tool_call") as server:
            got, _ = await ask(server, body={"tools": [{
                "type": "function", "function": {"name": "f",
                                                 "parameters": SCHEMA}}]})
            choice, = json.loads(got.partition(b"\r\n\r\n")[2])["choices"]
            assert choice["finish_reason"] == "length"
            arguments = choice["message"]["tool_calls"][0]["function"]["arguments"]
            with pytest.raises(ValueError):
                json.loads(arguments)
            assert last(server).cut and last(server).call
    run(scene())


def test_a_tool_acts_and_then_the_model_fails() -> None:
    async def scene() -> None:
        result = {"messages": [*MESSAGES, {"role": "tool", "tool_call_id": "c",
                                           "content": "done"}]}
        async with serving({"fault": "tool_then_error", "times": 2}) as server:
            for body in ({}, result, result, result):
                await ask(server, body=body)
            assert [one.status for one in server.journal.records] == [
                200, 500, 500, 200]
    run(scene())


def test_rate_limit_windows() -> None:
    async def scene() -> None:
        limit = {"fault": "ratelimit", "requests": 2, "window_s": 0.4}
        async with serving(limit) as server:
            await asyncio.gather(*(ask(server) for _ in range(4)))
            statuses = [one.status for one in server.journal.records]
            assert sorted(map(str, statuses)) == ["200", "200", "429", "429"]
            waits = [one.wait_s for one in server.journal.records if one.wait_s]
            assert len(waits) == 2 and 0 < max(waits) <= 0.4
            await asyncio.sleep(max(waits))
            await ask(server)
            assert last(server).status == 200
    run(scene())
