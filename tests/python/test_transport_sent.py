"""begin_chat() with a request's headers: what is permitted, and what an attempt
sends of the request; chat_success() with those of the response."""

from __future__ import annotations

import json
import typing

import httpx
import httpx2
import pytest

import fivegates
from fivegates.transport.copies import Copies
from fivegates.transport.exchange import shortened

Facts = typing.Dict[str, typing.Any]
REQUEST: Facts = {"model": "m1", "messages": [{"role": "user", "content": "hi"}]}
ANSWER: Facts = {
    "id": "c1", "object": "chat.completion", "created": 1, "model": "m1",
    "choices": [{"index": 0, "finish_reason": "stop",
                 "message": {"role": "assistant", "content": "hello"}}]}


def _permitting(**route: typing.Any) -> fivegates.Engine:
    return fivegates.Engine({
        "version": 1, "routes": {"main": {
            "provider": "openai", "model": "m1",
            "price": {"input": 2.5, "output": 10}, **route}},
        "workflows": {"w": {"routes": ["main"], "timeouts": {
            "connect_ms": 1500, "total_ms": 60000}}}}, clock=lambda: 5_000_000)


PLAIN = json.dumps(REQUEST).encode()


@pytest.mark.parametrize("http", [httpx, httpx2], ids=["httpx", "httpx2"])
@pytest.mark.parametrize("own", [
    {}, {"connect": 5.0, "read": 600.0, "write": 600.0, "pool": 600.0},
    {"connect": 1, "read": 2, "write": None, "pool": 1.5, "more": 1.0},
    {"connect": None, "read": None}], ids=repr)
def test_what_is_sent_is_what_python_would_send(http: typing.Any, own: Facts) -> None:
    request = http.Request(
        "POST", "http://a/v1/chat/completions", content=PLAIN, headers=[
            ("A", "1"), ("X-REQUEST-Attempt", "7"), ("x-stainless-retry-count", "0")])
    before = list(request.headers._list)
    found = _permitting().begin_chat("w", PLAIN, ["hedge"], request.headers._list, own)
    assert found is not None and request.headers._list == before
    call, model, streamed, permit, sent = found
    assert permit is not None and sent is not None
    assert (model, streamed, permit.action, permit.attempt) == ("m1", False, "proceed", 1)
    route, headers, timeouts, total, label = sent
    assert headers == Copies(http).stamped(request, call.id, 1, {}).headers.raw
    assert timeouts == shortened(own, 1.5, 60.0) and timeouts is not own
    assert (route, total) == ("main", 60.0)
    assert label == {"call": call.id, "route": "main", "attempt": 1}


@pytest.mark.parametrize("headers", [
    (), {}, [()], [(b"a", b"a")], [(b"a", "a", b"1")], [None], [[b"a", b"a", b"1"]],
    [(b"x", b"x-stainless-retry-count", "0")],
    [(b"x", b"x-stainless-retry-count", b"1")]], ids=repr)
def test_headers_of_another_send_or_shape_begin_nothing(headers: typing.Any) -> None:
    engine = _permitting()
    assert engine.begin_chat("w", PLAIN, None, headers) is None
    assert engine.workflow("w")["calls"] == 0


@pytest.mark.parametrize("timeouts", [
    "x", [], object(), {"read": "x"}, {"connect": []}], ids=lambda one: type(one).__name__)
def test_timeouts_that_are_none_are_left_to_who_sends(timeouts: typing.Any) -> None:
    found = _permitting().begin_chat("w", PLAIN, None, [], timeouts)
    assert found is not None and found[3] is not None and found[4] is None


def test_only_what_goes_as_it_is_is_permitted() -> None:
    def asked(engine: fivegates.Engine, body: bytes) -> typing.Any:
        found = engine.begin_chat("w", body, None, [])
        return found and found[3:]

    assert asked(_permitting(model="m2"), PLAIN) == (None, None)
    streams = json.dumps({**REQUEST, "stream": True}).encode()
    assert asked(_permitting(), streams) == (None, None)
    permit, sent = asked(_permitting(), PLAIN)
    assert permit.action == "proceed" and sent[3] == 60.0


def test_a_body_said_to_be_encoded_is_another() -> None:
    answer = json.dumps(ANSWER).encode()
    for headers, plain in (([(b"A", b"a", b"1")], True), ([], True), ((), True),
                           ([(b"Content-Encoding", b"content-encoding", b"gzip")], False)):
        call = _permitting().begin("w")
        call.begin_attempt()
        assert (call.chat_success(answer, headers) is not None) is plain  # type: ignore[arg-type]
