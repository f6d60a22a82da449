"""What a server's answer is taken for: answers that come early, that are none,
and what of them the client may see."""

from __future__ import annotations

import json
import socket
import threading
import typing

import httpx
import pytest

from openresty.conftest import card_of
from openresty.gateway import Gateway
from openresty.upstream import Upstream, chat, json_reply, raw_reply, whole

Run = typing.Callable[..., Gateway]
ASK: typing.Any = {"model": "model-of-main",
                   "messages": [{"role": "user", "content": "hi"}]}
GOOD = json.dumps(chat("good")).encode()
LARGE = "client_max_body_size 32m;"


def post(gateway: Gateway, path: str = "/v1/chat/completions",
         **more: typing.Any) -> httpx.Response:
    return httpx.post(gateway.url + path, json={**ASK, **more}, timeout=20)


@pytest.mark.parametrize(("reply", "kind", "status"), [
    (json_reply(413, {"error": {"message": "too large", "type": "x"}}),
     "request_too_large", 413),
    (json_reply(429, {"error": {"message": "Slow down.", "type": "requests",
                                "code": "rate_limit_exceeded"}}, "retry-after: 40"),
     "rate_limited", 200),
    (whole("early"), None, 200)])
def test_an_answer_before_the_request_is_all_sent(
        run: Run, reply: bytes, kind: "str | None", status: int) -> None:
    """The server reads the head alone, answers and hangs up."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        sock, _ = server.accept()
        with sock:
            sock.recv(1000)
            sock.sendall(reply)
    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    upstream = Upstream(main=[whole()], backup=[whole("backup")])
    card = card_of(upstream, budget={"extra_tokens": 100000000,
                                     "extra_cost_usd": None, "elapsed_ms": 9000})
    for one in card["routes"].values():
        one["provides"]["input"]["context_tokens"] = 100_000_000
    card["routes"]["main"]["base_url"] = (
        f"http://127.0.0.1:{server.getsockname()[1]}/v1")
    gateway = run(upstream, card=card, server=LARGE)
    try:
        answer = post(gateway, user="x y " * 4_000_000)
    finally:
        server.close()
        thread.join(1)
    assert answer.status_code == status, answer.text
    kinds = [one.get("kind") for one in gateway.ledger()]
    assert "send_failed" not in kinds
    if kind:
        assert kind in kinds
    else:
        assert answer.json()["choices"][0]["message"]["content"] == "early"


@pytest.mark.parametrize(("raw", "kind"), [
    (raw_reply(205, GOOD), "malformed"), (raw_reply(206, GOOD), "malformed"),
    (raw_reply(200, GOOD, "content-encoding: gzip"), "malformed"),
])
def test_what_would_come_again_is_not_asked_again(run: Run, raw: bytes,
                                                  kind: str) -> None:
    upstream = Upstream(main=[raw], backup=[whole("backup")])
    gateway = run(upstream)
    answer = post(gateway)
    assert answer.json()["choices"][0]["message"]["content"] == "backup"
    assert len(upstream.seen["main"]) == 1
    assert kind in [one.get("kind") for one in gateway.ledger()]


def test_a_number_beyond_numbers(run: Run) -> None:
    """A tool's input goes on as it is, whatever its numbers."""
    body = json.dumps({
        "id": "m", "type": "message", "role": "assistant", "model": "x",
        "stop_reason": "tool_use", "stop_sequence": None,
        "usage": {"input_tokens": 9, "output_tokens": 3},
        "content": [{"type": "tool_use", "id": "t", "name": "a",
                     "input": {"n": 7, "list": []}}]}).replace("7", "1e400").encode()
    upstream = Upstream(main=[raw_reply(200, body)], backup=[whole()])
    answer = post(run(upstream), "/v1/messages", max_tokens=9)
    assert answer.status_code == 200 and answer.content == body


@pytest.mark.parametrize("said", ["key-of-main", "key-of-\\u006dain"])
def test_a_key_is_never_shown(run: Run, said: str) -> None:
    body = ('{"error": {"message": "bad header Bearer %s", "type": '
            '"invalid_request_error", "code": "invalid_value"}}' % said).encode()
    upstream = Upstream(
        main=[raw_reply(400, body)], backup=[whole()])
    answer = post(run(upstream))
    assert answer.status_code == 400
    assert "key-of-main" not in str(answer.json())


def test_a_key_in_a_header_is_never_shown(run: Run) -> None:
    upstream = Upstream(main=[json_reply(
        200, chat("x"), "x-request-id: for key-of-main")], backup=[whole()])
    answer = post(run(upstream))
    assert answer.headers["x-request-id"] == "for [redacted]"


@pytest.mark.parametrize("said", [
    "sk-0123456789abcdef", "SK-0123456789ABCDEF", "c2s%2D0123456789abcdef",
    "sk-0123456789abcdef+"])
def test_no_part_of_a_key_is_shown(run: Run, said: str) -> None:
    """However the server wrote it: cut, encoded, in other letters."""
    upstream = Upstream(main=[
        json_reply(400, {"error": {"message": said, "code": "invalid_value",
                                   "type": "invalid_request_error"}}),
        json_reply(200, chat("x"), f"x-request-id: {said}")], backup=[whole()])
    gateway = run(upstream, env={"KEY_MAIN": "sk-0123456789abcdef+/ghij",
                                 "KEY_BACKUP": "key-of-backup"})
    for _ in range(2):
        answer = post(gateway)
        told = (answer.text + str(answer.headers)).lower()
        assert "0123456789ab" not in told
    assert "0123456789" not in gateway.log()
