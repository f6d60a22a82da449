"""A client that leaves: at every point no further attempt, nobody blamed, and
no gauge that stays up."""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import time
import typing

import pytest

from openresty.gateway import Gateway
from openresty.upstream import (
    OVERLOADED,
    Peer,
    Upstream,
    chat_events,
    delta,
    json_reply,
    silent,
    stream,
    whole,
)

Run = typing.Callable[..., Gateway]


def ask(gateway: Gateway, streamed: bool = True) -> socket.socket:
    """Sends a request; the connection, to be left."""
    body = json.dumps({"model": "model-of-main", "stream": streamed, "messages": [
        {"role": "user", "content": "hi"}]}).encode()
    sock = socket.create_connection(("127.0.0.1", gateway.port))
    sock.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"
                 b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
    return sock


def waits_until(test: typing.Callable[[], object], seconds: float = 5) -> None:
    until = time.monotonic() + seconds
    while not test():
        assert time.monotonic() < until, "it did not come to that"
        time.sleep(0.005)


def all_quiet(gateway: Gateway, upstream: Upstream, attempts: int,
              reason: str = "client_gone") -> None:
    """The call has ended for the client's leaving, and nothing goes on."""
    end, = gateway.ended()
    assert end["reason"] == reason
    engine = gateway.engine()
    for name in upstream.scripts:
        view = engine.route(name)
        assert view["in_flight"] == 0 and view["breaker"] == "closed"
        assert view["run"] == 0  # no failure was blamed on it
    assert sum(map(len, upstream.seen.values())) == attempts
    time.sleep(0.1)
    assert sum(map(len, upstream.seen.values())) == attempts
    assert len(gateway.ended()) == 1
    assert "[error]" not in gateway.log()


@pytest.mark.parametrize("streamed", [True, False])
def test_before_the_head(run: Run, streamed: bool) -> None:
    upstream = Upstream(main=[silent()], backup=[whole()])
    gateway = run(upstream)
    sock = ask(gateway, streamed)
    waits_until(lambda: upstream.seen["main"])
    assert gateway.engine().route("main")["in_flight"] == 1
    sock.close()
    assert upstream.seen["main"][0].left.wait(1)
    all_quiet(gateway, upstream, 1)


@pytest.mark.parametrize("how", ["closed", "reset", "half closed", "pipelined"])
def test_before_nginx_looks(run: Run, how: str) -> None:
    """Its request and its leaving come in one: nothing is sent."""
    upstream = Upstream(main=[silent()], backup=[whole()])
    gateway = run(upstream)
    waits_until(lambda: len(gateway.workers()) == 1)
    worker, = gateway.workers()
    os.kill(worker, signal.SIGSTOP)
    try:
        sock = ask(gateway, streamed=False)
        if how == "pipelined":
            sock.sendall(b"POST / HTTP/1.1\r\nHost: x\r\n\r\n")
        if how == "reset":
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                            struct.pack("ii", 1, 0))
        if how == "half closed":
            sock.shutdown(socket.SHUT_WR)
        else:
            sock.close()
    finally:
        os.kill(worker, signal.SIGCONT)
    if how == "reset":  # nginx may drop it unread
        waits_until(lambda: gateway.engine().route("main")["in_flight"] == 0)
        time.sleep(0.2)
        assert not upstream.seen["main"]
    else:
        all_quiet(gateway, upstream, 0)
    sock.close()


def test_behind_bytes_that_nobody_reads(run: Run) -> None:
    """A second request lies unread before the end of the connection."""
    upstream = Upstream(main=[silent()], backup=[whole()])
    gateway = run(upstream, {"timeouts": {"first_token_ms": 4000}})
    sock = ask(gateway)
    waits_until(lambda: upstream.seen["main"])
    sock.sendall(b"POST / HTTP/1.1\r\nHost: x\r\n\r\n")
    time.sleep(0.05)
    sock.close()
    assert upstream.seen["main"][0].left.wait(2)
    all_quiet(gateway, upstream, 1)


def test_while_held_before_the_first_word(run: Run) -> None:
    def pings(peer: Peer) -> None:
        stream([b": ping\n\n"] * 100, 0.02)(peer)
    upstream = Upstream(main=[pings], backup=[whole()])
    gateway = run(upstream)
    sock = ask(gateway)
    waits_until(lambda: upstream.seen["main"])
    time.sleep(0.05)
    sock.close()
    assert upstream.seen["main"][0].left.wait(1)
    all_quiet(gateway, upstream, 1)


def test_in_the_stream(run: Run) -> None:
    """The upstream is closed within a chunk, not at the next write to a client
    that is gone."""
    upstream = Upstream(main=[stream([delta(str(i)) for i in range(99)], 0.1)],
                        backup=[whole()])
    gateway = run(upstream)
    sock = ask(gateway)
    got = b""
    while b'"1"' not in got:
        got += sock.recv(65536)
    sock.close()
    left_at = time.monotonic()
    peer = upstream.seen["main"][0]
    assert peer.left.wait(1)
    assert peer.left_at is not None and peer.left_at - left_at < 0.1
    all_quiet(gateway, upstream, 1)


def test_in_a_silent_stream(run: Run) -> None:
    def reply(peer: Peer) -> None:
        stream([delta("one")], end=False)(peer)
        peer.wait(10)
    upstream = Upstream(main=[reply], backup=[whole()])
    gateway = run(upstream)
    sock = ask(gateway)
    while b"one" not in sock.recv(65536):
        pass
    sock.close()
    assert upstream.seen["main"][0].left.wait(1)
    all_quiet(gateway, upstream, 1)


def test_while_it_waits_to_retry(run: Run) -> None:
    rated = json_reply(429, {"error": {
        "message": "Slow down.", "type": "requests",
        "code": "rate_limit_exceeded"}}, "Retry-After: 1")
    upstream = Upstream(main=[rated, whole()], backup=[whole()])
    gateway = run(upstream)
    sock = ask(gateway)
    waits_until(lambda: len(gateway.ledger()) == 4)  # the retry is decided
    assert gateway.ledger()[3]["action"] == "retry"
    sock.close()
    waits_until(lambda: gateway.ended())
    time.sleep(1.2)
    assert len(upstream.seen["main"]) == 1 and not upstream.seen["backup"]
    assert gateway.engine().route("main")["in_flight"] == 0


def test_while_it_connects(run: Run) -> None:
    """To a port that takes no more connections."""
    full = socket.create_server(("127.0.0.1", 0), backlog=0)
    stuffed = []
    for _ in range(4):
        one = socket.socket()
        one.setblocking(False)
        one.connect_ex(full.getsockname())
        stuffed.append(one)
    upstream = Upstream(main=[whole()], backup=[whole()])
    upstream.base_url = (  # type: ignore[method-assign]
        lambda route: f"http://127.0.0.1:{full.getsockname()[1]}/{route}/v1")
    gateway = run(upstream)
    sock = ask(gateway)
    waits_until(lambda: len(gateway.ledger()) == 3)  # permitted
    time.sleep(0.05)
    sock.close()
    all_quiet(gateway, upstream, 0)
    for one in [full, *stuffed]:
        one.close()


def test_a_client_that_has_read_all(run: Run) -> None:
    """Who leaves at [DONE] has its answer: that is a success."""
    def reply(peer: Peer) -> None:
        stream(chat_events("one"), end=False)(peer)
        peer.wait(10)
    upstream = Upstream(main=[reply], backup=[whole()])
    gateway = run(upstream)
    sock = ask(gateway)
    got = b""
    while b"[DONE]" not in got:
        got += sock.recv(65536)
    sock.close()
    end, = gateway.ended()
    assert (end["result"], end["tokens"]) == ("primary_success", 12)
    assert gateway.engine().route("main")["in_flight"] == 0


def test_a_client_that_never_reads(run: Run) -> None:
    """It is dropped after send_timeout, and what comes for it is not kept."""
    piece = delta("x" * 60_000)
    upstream = Upstream(main=[stream([piece] * 1000)], backup=[whole()])
    gateway = run(upstream, http="send_timeout 300ms;",
                  listen="sndbuf=16k")
    sock = ask(gateway)
    assert upstream.seen["main"] or True
    end, = gateway.ended()
    assert end["reason"] == "client_gone"
    assert gateway.engine().route("main")["in_flight"] == 0
    sock.close()


def test_the_next_one_is_served(run: Run) -> None:
    upstream = Upstream(main=[silent(), json_reply(503, OVERLOADED), whole()],
                        backup=[whole()])
    gateway = run(upstream)
    sock = ask(gateway)
    waits_until(lambda: upstream.seen["main"])
    sock.close()
    gateway.ended()
    with ask(gateway, streamed=False) as sock:
        assert b"200 OK" in sock.recv(65536)


def test_a_client_that_pauses_is_not_the_routes_fault(run: Run) -> None:
    """It reads nothing for longer than the route may be silent; the route had
    more to give all the time."""
    words = ["x" * 20_000] * 400
    upstream = Upstream(main=[stream(chat_events(*words))], backup=[whole()])
    gateway = run(upstream, {"timeouts": {"idle_ms": 200, "progress_ms": 200}},
                  listen="sndbuf=256k")
    sock = ask(gateway)
    got = sock.recv(100)
    time.sleep(1.2)
    while b"[DONE]" not in got[-100:]:
        data = sock.recv(1 << 20)
        assert data, got[-300:]
        got = got[-300:] + data
    sock.close()
    end, = gateway.ended()
    assert end["result"] == "primary_success"


def test_an_older_http_client_has_not_left(run: Run) -> None:
    """HTTP/1.0: the stream is kept until its end, and then whole."""
    upstream = Upstream(main=[stream(chat_events("one ", "two ", "three"))],
                        backup=[whole()])
    gateway = run(upstream)
    body = json.dumps({"model": "model-of-main", "stream": True, "messages": [
        {"role": "user", "content": "hi"}]}).encode()
    with socket.create_connection(("127.0.0.1", gateway.port)) as sock:
        sock.sendall(b"POST /v1/chat/completions HTTP/1.0\r\nHost: x\r\n"
                     b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        got = b""
        while part := sock.recv(65536):
            got += part
    assert b"three" in got and got.rstrip().endswith(b"data: [DONE]")
    end, = gateway.ended()
    assert end["result"] == "primary_success"
