"""How far a request came is told where it failed or was left, from the HTTP
client's own trace."""

from __future__ import annotations

import json
import typing

import pytest
from support.guarded import HTTP

import fivegates
from fivegates import transport
from fivegates.transport.phases import Trace

URL = "http://127.0.0.1:9/v1"
SENT = ["connection.connect_tcp.started", "http11.send_request_headers.started"]
READ = [*SENT, "http11.receive_response_headers.started"]


class Asked(typing.NamedTuple):
    """As the backend's request: a proxy's, or the client's."""

    method: bytes


class Ledger:
    def __init__(self) -> None:
        self.lines: "list[dict[str, typing.Any]]" = []

    def write(self, line: str) -> None:
        self.lines.append(json.loads(line))


class Stopped(HTTP.BaseTransport):  # type: ignore[misc]
    """Traces some events, then raises."""

    def __init__(self, events: "list[str]", error: BaseException) -> None:
        self.events = events
        self.error = error

    def handle_request(self, request: typing.Any) -> typing.Any:
        for name in self.events:
            request.extensions["trace"](name, {})
        raise self.error


def post(events: "list[str]", error: BaseException,
         **extensions: typing.Any) -> "dict[str, typing.Any]":
    """The ledger's last line of a request that went as far as that."""
    engine = fivegates.Engine({
        "version": 1, "routes": {"main": {
            "provider": "openai", "model": "m1", "base_url": URL,
            "price": {"input": 2.5, "output": 10}}},
        "workflows": {"w": {"routes": ["main"]}}})
    ledger = Ledger()
    with transport.client(HTTP, engine, "w", ledger=ledger,
                          inner=Stopped(events, error)) as client:
        with pytest.raises(type(error)):
            client.post(f"{URL}/chat/completions", extensions=extensions,
                        json={"model": "m1", "messages": []})
    assert engine.route("main")["in_flight"] == 0
    return ledger.lines[-1]


@pytest.mark.parametrize("events, held", [
    ([], False), (SENT[:1], False), (SENT, True), (READ, True)])
@pytest.mark.parametrize("error", [KeyboardInterrupt(), TypeError("a bug")])
def test_who_leaves_after_the_first_byte_may_pay(
        events: "list[str]", held: bool, error: BaseException) -> None:
    end = post(events, error)
    assert end["result"] == "cancelled"
    assert (float(end["held_usd"]) > 0) == held


def test_the_clients_own_trace_hears_all() -> None:
    heard: "list[str]" = []
    end = post(READ, KeyboardInterrupt(),
               trace=lambda name, info: heard.append(name))
    assert heard == READ
    assert float(end["held_usd"]) > 0


@pytest.mark.parametrize("events, phase", [
    ([], None),
    ([("connection.connect_tcp.started", b"POST")], "connect"),
    ([("http11.send_request_headers.started", b"CONNECT"),
      ("http11.receive_response_headers.started", b"CONNECT")], "connect"),
    ([("http11.receive_response_headers.started", b"CONNECT"),
      ("connection.start_tls.started", b"POST")], "tls"),
    ([("http11.send_request_headers.started", b"CONNECT"),
      ("http11.receive_response_headers.started", b"CONNECT"),
      ("http11.send_request_headers.started", b"POST")], "send"),
    ([("http2.send_request_headers.started", b"POST"),
      ("http2.receive_response_headers.started", b"POST")], "read")])
def test_phase(events: "list[tuple[str, bytes]]", phase: "str | None") -> None:
    trace = Trace(None)
    for name, method in events:
        trace.callback(name, {"request": Asked(method)})
    assert trace.phase == phase
    trace.clear()
    assert trace.phase is None
