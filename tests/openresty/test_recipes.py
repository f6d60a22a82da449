"""The recipes around nginx's own proxying, as examples/openresty has them."""

from __future__ import annotations

import socket
import time
import typing

import httpx
import pytest

from openresty.conftest import card_of
from openresty.gateway import ROOT, Gateway, Json
from openresty.upstream import (
    OVERLOADED,
    Peer,
    Upstream,
    chat,
    chat_events,
    delta,
    json_reply,
    silent,
    stream,
    whole,
)

Run = typing.Callable[..., Gateway]
ASK: typing.Any = {"model": "model-of-main", "messages": [
    {"role": "user", "content": "hi"}]}
DOWN = json_reply(503, OVERLOADED)
BALANCER = """upstream fivegates {
    server 0.0.0.1;
    balancer_by_lua_block { require("fivegates.resty.balancer").pick() }
    keepalive 32;
}"""


def recipe(name: str) -> str:
    text = (ROOT / f"examples/openresty/recipes/{name}.conf").read_text()
    return text.replace('"chat"', '"w"')


def post(gateway: Gateway, streamed: bool = False) -> httpx.Response:
    return httpx.post(f"{gateway.url}/v1/chat/completions", json={
        **ASK, "stream": streamed}, headers={"authorization": "Bearer theirs"})


def waits_until(test: typing.Callable[[], object]) -> None:
    until = time.monotonic() + 5
    while not test():
        assert time.monotonic() < until, "it did not come to that"
        time.sleep(0.005)


def leave(gateway: Gateway, upstream: Upstream) -> None:
    """Asks, and leaves once the request is upstream."""
    sock = socket.create_connection(("127.0.0.1", gateway.port))
    body = b'{"model":"model-of-main","stream":true,"messages":[]}'
    sock.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"
                 b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
    waits_until(lambda: upstream.seen["main"])
    time.sleep(0.02)
    sock.close()


# ---- error_page


@pytest.fixture
def paged(run: Run) -> Run:
    return lambda upstream, **more: run(
        upstream, server=recipe("error_page"), **more)


@pytest.mark.parametrize("streamed", [False, True])
def test_error_page_retries_and_falls_back(paged: Run, streamed: bool) -> None:
    good = stream(chat_events("from ", "backup")) if streamed else whole(
        "from backup")
    upstream = Upstream(main=[DOWN], backup=[good])
    gateway = paged(upstream)
    answer = post(gateway, streamed)
    assert answer.status_code == 200 and "backup" in answer.text
    assert len(upstream.seen["main"]) == 2
    peer, = upstream.seen["backup"]
    assert peer.body == {**ASK, "model": "model-of-backup", "stream": streamed}
    assert peer.headers["authorization"] == "Bearer key-of-backup"
    assert "theirs" not in str(peer.header_list + upstream.seen["main"][0].header_list)
    end, = gateway.ended()
    assert (end["result"], end["action"]) == ("fallback_recovery", "accept")
    assert end["tokens"] >= 12


@pytest.mark.parametrize("fault", [
    lambda peer: peer.reset(), json_reply(529, OVERLOADED),
    json_reply(429, OVERLOADED, "Retry-After: 30")])
def test_error_page_sees(paged: Run, fault: typing.Any) -> None:
    upstream = Upstream(main=[fault], backup=[whole("from backup")])
    gateway = paged(upstream)
    assert "from backup" in post(gateway).text


def test_error_page_refuses(paged: Run) -> None:
    upstream = Upstream(main=[DOWN], backup=[DOWN])
    gateway = paged(upstream)
    answer = post(gateway)
    assert answer.status_code == 503
    assert answer.json()["error"]["type"] == "fivegates"
    assert answer.headers["x-should-retry"] == "false"
    end, = gateway.ended()
    assert end["action"] == "fail_closed"
    assert gateway.engine().route("main")["in_flight"] == 0


def test_error_page_is_left(paged: Run) -> None:
    upstream = Upstream(main=[silent()], backup=[whole()])
    gateway = paged(upstream)
    leave(gateway, upstream)
    end, = gateway.ended()
    assert end["reason"] == "client_gone" and not upstream.seen["backup"]
    assert gateway.engine().route("main")["in_flight"] == 0


def test_error_page_tells_of_a_cut(paged: Run) -> None:
    upstream = Upstream(main=[stream([delta("one")], end=False, reset=True)],
                        backup=[whole()])
    gateway = paged(upstream)
    with pytest.raises(httpx.RemoteProtocolError):
        post(gateway, streamed=True)
    end, = gateway.ended()
    assert end["reason"] == "partial_output"


# ---- balancer


class Two:
    """Two servers, as a balancer cannot change the path."""

    def __init__(self, main: typing.Any, backup: typing.Any) -> None:
        self.main, self.backup = Upstream(api=main), Upstream(api=backup)

    def __enter__(self) -> "Two":
        self.main.__enter__()
        self.backup.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self.main.__exit__()
        self.backup.__exit__()

    def base_url(self, route: str) -> str:
        return typing.cast(Upstream, getattr(self, route)).base_url("api")


@pytest.fixture
def balanced(run: Run) -> Run:
    return lambda two, **more: run(
        two, card=card_of(two), http=BALANCER, server=recipe("balancer"), **more)


@pytest.mark.parametrize("streamed", [False, True])
def test_balancer_fails_over(balanced: Run, streamed: bool) -> None:
    good = stream(chat_events("from ", "backup")) if streamed else whole(
        "from backup")
    two = Two([DOWN], [good])
    gateway = balanced(two)
    answer = post(gateway, streamed)
    assert answer.status_code == 200 and "backup" in answer.text
    peer, = two.backup.seen["api"]
    assert peer.body["model"] == "model-of-backup"
    assert peer.headers["authorization"] == "Bearer key-of-backup"
    assert peer.headers["host"] == f"127.0.0.1:{two.backup.port}"
    first, = two.main.seen["api"]
    assert first.headers["authorization"] == "Bearer key-of-main"
    assert first.body["model"] == "model-of-main"
    end, = gateway.ended()
    assert end["result"] == "fallback_recovery"


def test_balancer_skips_an_open_route(balanced: Run) -> None:
    two = Two([DOWN], [whole("from backup")])
    gateway = balanced(two)
    for _ in range(6):
        assert post(gateway).status_code == 200
    assert gateway.engine().route("main")["breaker"] == "open"
    made = len(two.main.seen["api"])
    assert post(gateway).status_code == 200
    assert len(two.main.seen["api"]) == made


def test_balancer_gives_up(balanced: Run) -> None:
    two = Two([DOWN], [DOWN])
    gateway = balanced(two)
    assert post(gateway).status_code == 500  # all that nginx can say there
    end, = gateway.ended()
    assert end["action"] == "fail_closed"
    assert gateway.engine().route("backup")["in_flight"] == 0


# ---- log


@pytest.fixture
def logged(run: Run) -> Run:
    return lambda upstream, **more: run(
        upstream, http=f"upstream provider {{ server 127.0.0.1:{upstream.port}; }}",
        server=recipe("log").replace(
            "http://provider", "http://provider/main/v1/"), **more)


def counters(gateway: Gateway) -> Json:
    gateway.ended()
    return typing.cast(Json, gateway.engine().workflow("w"))


@pytest.mark.parametrize("streamed", [False, True])
def test_log_hears_of_success(logged: Run, streamed: bool) -> None:
    good = stream(chat_events("a")) if streamed else whole("a")
    upstream = Upstream(main=[good], backup=[whole()])
    gateway = logged(upstream)
    assert post(gateway, streamed).status_code == 200
    told = counters(gateway)
    assert told["primary_success"] == 1
    view = gateway.engine().route("main")
    assert (view["successes"], view["in_flight"]) == (1, 0)
    end, = gateway.ended()
    assert end["tokens"] == 12


def test_log_opens_the_breaker_and_gate_refuses(logged: Run) -> None:
    upstream = Upstream(main=[DOWN], backup=[whole()])
    gateway = logged(upstream)
    for i in range(5):
        answer = post(gateway)
        assert answer.status_code == 503 and answer.json() == OVERLOADED
        gateway.ended(i + 1)
    assert gateway.engine().route("main")["breaker"] == "open"
    answer = post(gateway)
    assert answer.status_code == 503
    assert answer.json()["error"]["type"] == "fivegates"
    assert len(upstream.seen["main"]) == 5 and not upstream.seen["backup"]


@pytest.mark.parametrize(("fault", "kind"), [
    (stream([delta("one")], end=False, reset=True), "stream_cut"),
    (stream([delta("one")]), "stream_cut"),
    (lambda peer: peer.reset(), "reset"),
    (json_reply(200, {**chat("x"), "choices": []}), None)])
def test_log_hears_of_faults(logged: Run, fault: typing.Any,
                             kind: "str | None") -> None:
    upstream = Upstream(main=[fault], backup=[whole()])
    gateway = logged(upstream)
    try:
        post(gateway, streamed=kind is not None)
    except httpx.TransportError:
        pass
    gateway.ended()
    found = [one["kind"] for one in gateway.ledger() if one["line"] == "decision"]
    assert kind is None or found[-1] == kind
    named = {one.get("gen_ai.response.id") for one in gateway.ledger()} - {None}
    assert named == (set() if kind == "reset" else {"c1"})
    assert gateway.engine().route("main")["in_flight"] == 0


def test_log_blames_nobody_for_a_client_that_leaves(logged: Run) -> None:
    def reply(peer: Peer) -> None:
        stream([delta("one")], end=False)(peer)
        peer.wait(10)
    upstream = Upstream(main=[reply], backup=[whole()])
    gateway = logged(upstream)
    leave(gateway, upstream)
    end, = gateway.ended()
    assert end["reason"] == "client_gone"
    view = gateway.engine().route("main")
    assert (view["failures"], view["in_flight"]) == (0, 0)


# ---- a gateway without the primary's key


def test_error_page_without_a_key(paged: Run) -> None:
    upstream = Upstream(main=[whole()], backup=[whole("from backup")])
    gateway = paged(upstream, env={"KEY_BACKUP": "b"})
    assert "from backup" in post(gateway).text
    assert not upstream.seen["main"]


@pytest.mark.parametrize("env, status", [({"KEY_BACKUP": "b"}, 200), ({}, 503)])
def test_balancer_without_a_key(run: Run, env: "dict[str, str]",
                                status: int) -> None:
    upstream = Upstream(main=[whole()], backup=[whole("from backup")])
    card = card_of(upstream)
    for name in card["routes"]:
        card["routes"][name]["base_url"] = upstream.base_url("main")
    gateway = run(upstream, card=card, http=BALANCER, env=env,
                  server=recipe("balancer"))
    assert post(gateway).status_code == status
    assert "no key for route main: set KEY_MAIN" in gateway.log()


def test_balancer_wants_an_address(run: Run) -> None:
    upstream = Upstream(main=[whole()], backup=[whole()])
    card = card_of(upstream)
    card["routes"]["main"]["base_url"] = "http://localhost:1/v1"
    gateway = run(upstream, card=card, http=BALANCER, server=recipe("balancer"))
    assert post(gateway).status_code == 503
    assert "needs an address in base_url, not the name localhost" in gateway.log()
