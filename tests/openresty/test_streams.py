"""The end of a stream, and what is no end: clocks behind the last word, cuts
between and inside events, errors that come with the first word."""

from __future__ import annotations

import threading
import typing

import httpx
import pytest

from openresty.conftest import card_of
from openresty.gateway import Gateway
from openresty.upstream import (
    OVERLOADED,
    SSE_HEAD,
    USAGE,
    Peer,
    Upstream,
    chat_events,
    delta,
    event,
    http_chunk,
    stream,
    whole,
)

Run = typing.Callable[..., Gateway]
ASK: typing.Any = {"model": "model-of-main", "stream": True,
                   "messages": [{"role": "user", "content": "hi"}]}
CLOCKS = {"timeouts": {"idle_ms": 300, "progress_ms": 1000}}
PING = b": ping\n\n"
DONE = b"data: [DONE]\n\n"


class Got(typing.NamedTuple):
    raw: bytes
    clean: bool  # the answer came to an end of its own


def ask(gateway: Gateway, path: str = "/v1/chat/completions",
        **more: typing.Any) -> Got:
    raw = b""
    with httpx.stream("POST", gateway.url + path, json={**ASK, **more},
                      timeout=15) as answer:
        try:
            for chunk in answer.iter_raw():
                raw += chunk
        except httpx.RemoteProtocolError:
            return Got(raw, False)
    return Got(raw, True)


def of_choice(index: int, text: "str | None", finish: "str | None" = None
              ) -> bytes:
    return event({"id": "c1", "object": "chat.completion.chunk", "created": 1,
                  "model": "served", "choices": [{
                      "index": index, "finish_reason": finish,
                      "delta": {} if text is None else {"content": text}}]})


def test_what_follows_the_last_word_has_time(run: Run) -> None:
    """Bytes behind the finish reason renew the clocks until the server's end."""
    tail = [PING, PING, *chat_events()[1:]]  # usage and [DONE]
    events = [delta("one"), delta(None, "stop"), *tail]
    upstream = Upstream(main=[stream(events, 0.2)], backup=[whole()])
    gateway = run(upstream, CLOCKS)
    assert ask(gateway) == Got(b"".join(events), True)
    end, = gateway.ended()
    assert (end["result"], end["tokens"]) == ("primary_success",
                                              USAGE["total_tokens"])


def test_another_choice_goes_on(run: Run) -> None:
    events = [of_choice(0, "a"), of_choice(1, "b"), of_choice(0, None, "stop"),
              *(of_choice(1, str(i)) for i in range(5)),
              of_choice(1, None, "stop"), DONE]
    upstream = Upstream(main=[stream(events, 0.15)], backup=[whole()])
    gateway = run(upstream, CLOCKS)
    assert ask(gateway, n=2) == Got(b"".join(events), True)
    assert gateway.ended()[0]["result"] == "primary_success"


def test_an_end_that_never_comes_is_bounded(run: Run) -> None:
    """Signs of life behind the last word are no answer; nor is it a fault."""
    left: "list[Peer]" = []

    def reply(peer: Peer) -> None:
        left.append(peer)
        peer.send(SSE_HEAD)
        for one in (delta("one"), delta(None, "stop")):
            peer.send(http_chunk(one))
        for _ in range(100):
            if peer.wait(0.05):
                return
            peer.send(http_chunk(PING))
    upstream = Upstream(main=[reply], backup=[whole()])
    gateway = run(upstream, CLOCKS)
    got = ask(gateway)
    assert got.clean and got.raw.startswith(delta("one") + delta(None, "stop"))
    assert left[0].left.wait(1)
    assert gateway.ended()[0]["result"] == "primary_success"


@pytest.mark.parametrize("end", [True, False])
def test_half_an_event_behind_the_end_is_not_passed_on(run: Run, end: bool
                                                       ) -> None:
    events = [delta("one"), delta(None, "stop"), b'data: {"choi']
    upstream = Upstream(main=[stream(events, end=end)], backup=[whole()])
    gateway = run(upstream)
    assert ask(gateway) == Got(b"".join(events[:2]), True)
    assert gateway.ended()[0]["result"] == "primary_success"


@pytest.mark.parametrize("last", [
    b"data: [DONE]", b"data: [DONE]\n", b"data: [DONE]\r\n",
    delta(None, "stop").rstrip(), delta(None, "stop").rstrip() + b"\n"])
def test_a_last_event_without_its_blank_line(run: Run, last: bytes) -> None:
    """It is a whole one: the client gets it whole."""
    events = [delta("one"), *([delta(None, "stop")] if b"DONE" in last else []),
              last]
    upstream = Upstream(main=[stream(events)], backup=[whole()])
    gateway = run(upstream)
    got = ask(gateway)
    assert got.clean and got.raw.replace(b"\r", b"").rstrip(b"\n") == b"".join(
        events).replace(b"\r", b"").rstrip(b"\n")
    assert got.raw.endswith(b"\n\n") or got.raw.endswith(b"\n\r\n")
    assert gateway.ended()[0]["result"] == "primary_success"


def test_no_error_is_glued_to_a_long_event(run: Run) -> None:
    """It went on unfinished: its line cannot be taken back, so the connection
    alone says that it broke."""
    upstream = Upstream(main=[stream(
        [delta("one"), b'data: {"a": "' + b"x" * 3_000_000], end=False)],
        backup=[whole()])
    gateway = run(upstream)
    got = ask(gateway)
    assert not got.clean and len(got.raw) > 1_000_000
    assert b"fivegates" not in got.raw
    assert gateway.ended()[0]["reason"] == "partial_output"


def test_a_long_event_cut_behind_the_end(run: Run) -> None:
    upstream = Upstream(main=[stream(
        [delta("one"), delta(None, "stop"), b'data: {"a": "' + b"x" * 3_000_000])],
        backup=[whole()])
    got = ask(run(upstream))
    assert not got.clean and b"fivegates" not in got.raw


MESSAGE: typing.Any = {"id": "msg_1", "type": "message", "role": "assistant", "content": [],
    "model": "model-of-main", "stop_reason": None, "stop_sequence": None,
           "usage": {"input_tokens": 9, "output_tokens": 1}}
EVENTS = [event(one, str(one["type"])) for one in (
    {"type": "message_start", "message": MESSAGE},
    {"type": "content_block_start", "index": 0,
     "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0,
     "delta": {"type": "text_delta", "text": 'say "type":"message_stop"'}},
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "usage": {"output_tokens": 3},
     "delta": {"stop_reason": "end_turn", "stop_sequence": None}},
    {"type": "message_stop"})]


@pytest.mark.parametrize("end", [True, False])
def test_a_message_ends_with_its_own_stop(run: Run, end: bool) -> None:
    """A stop reason is not the end of this API's stream."""
    upstream = Upstream(main=[stream(EVENTS[:-1], end=end)], backup=[whole()])
    gateway = run(upstream)
    got = ask(gateway, "/v1/messages", max_tokens=9)
    assert not got.clean and b'"type":"partial_output"' in got.raw
    ended, = gateway.ended()
    assert ended["reason"] == "partial_output"
    assert gateway.ledger()[-2]["kind"] == "stream_cut"


@pytest.mark.parametrize("size", [1, 5, 17, 10_000])
def test_a_message_cut_anywhere_but_whole(run: Run, size: int) -> None:
    raw = b"".join(EVENTS)
    pieces = [raw[i:i + size] for i in range(0, len(raw), size)]
    upstream = Upstream(main=[stream(pieces, end=False)], backup=[whole()])
    gateway = run(upstream)
    assert ask(gateway, "/v1/messages", max_tokens=9) == Got(raw, True)
    assert gateway.ended()[0]["result"] == "primary_success"


@pytest.mark.parametrize("first", [
    delta("one"),
    event({"choices": [{"index": 0, "finish_reason": None, "delta": {
        "tool_calls": [{"index": 0, "id": "t", "type": "function", "function": {
            "name": "a", "arguments": "{"}}]}}]})])
def test_an_error_with_the_first_word(run: Run, first: bytes) -> None:
    """In one read: nothing was shown, so another route may still answer."""
    upstream = Upstream(main=[stream([first + event(OVERLOADED)])],
                        backup=[stream(chat_events("from backup"))])
    gateway = run(upstream, {"budget": {"per_route": 1, "extra_tokens": 1000000,
                                        "extra_cost_usd": None}})
    got = ask(gateway)
    assert got == Got(b"".join(chat_events("from backup")), True)
    assert gateway.ended()[0]["result"] == "fallback_recovery"


def test_a_silent_whole_answer_has_the_total_time(run: Run) -> None:
    """The first-token clock is for streams: a whole answer comes in one piece."""
    def reply(peer: Peer) -> None:
        peer.wait(0.5)
        peer.send(whole("late"))
    upstream = Upstream(main=[reply], backup=[whole("backup")])
    card = card_of(upstream, timeouts={"first_token_ms": 100})
    answer = httpx.post(f"{run(upstream, card=card).url}/v1/chat/completions",
                        json={**ASK, "stream": False}, timeout=15)
    assert answer.json()["choices"][0]["message"]["content"] == "late"


@pytest.mark.parametrize("line_end", [b"\r", b"\r\n"])
def test_events_with_other_line_ends_come_as_they_are_made(
        run: Run, line_end: bytes) -> None:
    """All three line ends are in the specification of event streams."""
    said = threading.Event()
    events = [one.replace(b"\n", line_end) for one in chat_events("one", "two")]

    def reply(peer: Peer) -> None:
        peer.send(SSE_HEAD + http_chunk(events[0]))
        assert said.wait(10)
        for one in events[1:]:
            peer.send(http_chunk(one))
        peer.send(b"0\r\n\r\n")
    upstream = Upstream(main=[reply], backup=[whole()])
    gateway = run(upstream)
    raw = b""
    with httpx.stream("POST", gateway.url + "/v1/chat/completions", json=ASK,
                      timeout=15) as answer:
        for chunk in answer.iter_raw():
            raw += chunk
            if b"one" in raw:
                said.set()
    assert raw == b"".join(events)
    assert gateway.ended()[0]["result"] == "primary_success"


def test_a_stream_that_never_ends_has_its_time(run: Run) -> None:
    """However fast its words come."""
    def reply(peer: Peer) -> None:
        peer.send(SSE_HEAD)
        for _ in range(500):  # long enough
            if peer.wait(0.01):
                return
            peer.send(http_chunk(delta("word")))
    upstream = Upstream(main=[reply], backup=[whole()])
    gateway = run(upstream, {"timeouts": {"total_ms": 500}})
    got = ask(gateway)
    assert not got.clean and b"total_timeout" in got.raw[-300:]
    assert upstream.seen["main"][0].left.wait(1)
    assert gateway.ended()[0]["reason"] == "partial_output"
