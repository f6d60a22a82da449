"""What the engine learns through nginx of how much a route takes, and that no
client can make it learn what is not so."""

from __future__ import annotations

import concurrent.futures
import json
import socket
import threading
import time
import typing

import httpx
import pytest

from openresty.conftest import card_of
from openresty.gateway import Gateway
from openresty.upstream import (
    SSE_HEAD,
    Peer,
    Upstream,
    chat_events,
    event,
    http_chunk,
    stream,
)

Run = typing.Callable[..., Gateway]
ASK: typing.Any = {"model": "model-of-main", "stream": True,
                   "messages": [{"role": "user", "content": "hi"}]}
PAGES = """
    location = /fivegates { content_by_lua_block { require("fivegates.resty.status").page() } }
    location = /metrics { content_by_lua_block { require("fivegates.resty.status").metrics() } }
"""
WORDS = 40
GAP_S = 0.008


def post(gateway: Gateway, **more: typing.Any) -> httpx.Response:
    return httpx.post(f"{gateway.url}/v1/chat/completions",
                      json={**ASK, **more}, timeout=20)


def many(gateway: Gateway, count: int, **more: typing.Any
         ) -> "list[httpx.Response]":
    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        return [one.result() for one in [
            pool.submit(post, gateway, **more) for _ in range(count)]]


def unread(gateway: Gateway) -> socket.socket:
    """A client that asks, and reads nothing."""
    body = json.dumps(ASK).encode()
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.connect(("127.0.0.1", gateway.port))
    sock.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"
                 b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
    return sock


def padded() -> bytes:
    """A word, and so much beside it that a client's buffers are soon full."""
    return event({"id": "c1", "object": "chat.completion.chunk", "created": 1,
                  "model": "served", "obfuscation": "x" * 30_000, "choices": [{
                      "index": 0, "finish_reason": None,
                      "delta": {"content": "word"}}]})


def endless(peer: Peer) -> None:
    peer.send(SSE_HEAD)
    while not peer.wait(GAP_S):
        peer.send(http_chunk(padded()))


def test_clients_that_do_not_read_shut_no_route(run: Run) -> None:
    """Their streams stand still, and the route does not: it serves others."""
    usual = stream(chat_events(*["word"] * WORDS), GAP_S)
    upstream = Upstream(main=[*[usual] * 10, *[endless] * 4, usual],
                        backup=[usual])
    gateway = run(upstream, server=PAGES, listen="sndbuf=16k")
    assert {one.status_code for one in many(gateway, 10)} == {200}
    socks = [unread(gateway) for _ in range(4)]
    until = time.monotonic() + 3.5  # from 2 s on a stream counts as stuck
    while time.monotonic() < until:
        assert gateway.engine().route("main")["breaker"] == "closed"
        time.sleep(0.1)
    view = gateway.engine().route("main")
    assert (view["in_flight"], view["limit"]) == (4, 0)
    assert "x-fivegates-route" not in post(gateway).headers
    for sock in socks:
        sock.close()


def test_a_client_that_does_not_read_has_its_time(run: Run) -> None:
    """Its attempt holds no place for longer than an answer may take."""
    upstream = Upstream(main=[endless], backup=[endless])
    gateway = run(upstream, {"timeouts": {"total_ms": 1000}},
                  listen="sndbuf=16k")
    sock = unread(gateway)
    end, = gateway.ended()
    assert end["reason"] == "client_gone"
    assert gateway.engine().route("main")["in_flight"] == 0
    sock.close()


def test_first_tokens_that_queue_make_a_limit(run: Run) -> None:
    slow = threading.Event()

    def reply(peer: Peer) -> None:
        if slow.is_set():
            peer.wait(0.8)
        stream(chat_events("word"))(peer)
    upstream = Upstream(main=[reply], backup=[stream(chat_events("other"))])
    gateway = run(upstream, server=PAGES, workers=2)
    many(gateway, 10)
    assert gateway.engine().route("main")["samples"] >= 8
    slow.set()
    many(gateway, 16)
    told = httpx.get(f"{gateway.url}/fivegates").json()
    view = next(one for one in told["routes"] if one["name"] == "main")
    assert view["breaker"] == "closed" and 3 <= view["limit"] < 16
    assert f'region_in_flight_limit{{route="main"}} {view["limit"]}' in httpx.get(
        f"{gateway.url}/metrics").text
    page = httpx.get(f"{gateway.url}/fivegates", headers={"accept": "text/html"})
    assert f"<td>{view['limit']}</td>" in page.text
    # What goes over it is served at once by the other route.
    routes = [one.headers.get("x-fivegates-route") for one in many(gateway, 24)]
    assert routes.count("backup") >= 24 - view["limit"] - 4


@pytest.mark.parametrize("part", [
    {"type": "text", "text": "eA" * 40_000 + " base64"},
    {"type": "text", "text": "eA" * 40_000, "url": "base64"},
])
def test_a_text_counts_as_long_as_it_is(run: Run, part: typing.Any) -> None:
    """Else a long prompt would look like a short one that the route is slow at."""
    upstream = Upstream(main=[stream(chat_events("word"))], backup=[stream([])])
    gateway = run(upstream, card=card_of(upstream))
    assert post(gateway, messages=[{"role": "user", "content": [part]}]
                ).status_code == 200
    call = next(one for one in gateway.ledger() if one["line"] == "call")
    assert call["prompt_tokens"] >= 20_000
