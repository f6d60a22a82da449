"""Servers and clients that mean no good: each gets a clear end, nothing of one
answer or request becomes another's, and the memory stays small."""

from __future__ import annotations

import json
import pathlib
import re
import socket
import time
import typing

import httpx
import pytest

from openresty.conftest import card_of
from openresty.gateway import Gateway
from openresty.upstream import (
    SSE_HEAD,
    Peer,
    Reply,
    Upstream,
    chat,
    chat_events,
    delta,
    http_chunk,
    json_reply,
    kept,
    stream,
    whole,
)

Run = typing.Callable[..., Gateway]
ASK: typing.Any = {"model": "model-of-main", "messages": [{"role": "user", "content": "hi"}]}
GOOD = json.dumps(chat("good")).encode()
BODY_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
SIZED = BODY_HEAD + b"Content-Length: %d\r\n" % len(GOOD)
CHUNKED = BODY_HEAD + b"Transfer-Encoding: chunked\r\n\r\n"


def post(gateway: Gateway, streamed: bool = False) -> httpx.Response:
    return httpx.post(f"{gateway.url}/v1/chat/completions",
                      json={**ASK, "stream": streamed}, timeout=15)


def endless(head: bytes, piece: bytes) -> Reply:
    """The head, then the piece until the gateway hangs up; 64 MiB at most."""
    def reply(peer: Peer) -> None:
        peer.send(head)
        for _ in range(64 * 1048576 // (len(piece) * 64)):
            try:
                peer.send(piece * 64)
            except OSError:
                peer.left.set()
                return
        peer.left_at = None
    return reply


def largest_kib(gateway: Gateway) -> int:
    """The most memory a worker ever had."""
    return max(int(match.group(1)) for pid in gateway.workers() if (
        match := re.search(r"VmHWM:\s+(\d+)", pathlib.Path(
            f"/proc/{pid}/status").read_text())))


HEADS = {
    "no HTTP at all": b"SSH-2.0-server\r\n\r\n",
    "HTTP/2's preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "a status of two digits": b"HTTP/1.1 20 OK\r\n\r\n" + GOOD,
    "a status of four digits": b"HTTP/1.1 2000 OK\r\n\r\n" + GOOD,
    "bare line feeds": (SIZED + b"\r\n").replace(b"\r\n", b"\n") + GOOD,
    "a bare line feed in a value": SIZED + b"X-A: b\nX-B: c\r\n\r\n" + GOOD,
    "a bare carriage return": SIZED + b"X-Request-Id: a\rSet-Cookie: b\r\n\r\n"
    + GOOD,
    "a zero byte": SIZED + b"X-A: b\0c\r\n\r\n" + GOOD,
    "a folded line": SIZED + b"X-A: b\r\n c\r\n\r\n" + GOOD,
    "a name with a space": SIZED + b"X A: b\r\n\r\n" + GOOD,
    "a name without a colon": SIZED + b"X-A\r\n\r\n" + GOOD,
    "a space before the colon": BODY_HEAD + b"Content-Length : %d\r\n\r\n" % len(
        GOOD) + GOOD,
    "two lengths": SIZED + b"Content-Length: 3\r\n\r\n" + GOOD,
    "a length and chunks": SIZED + b"Transfer-Encoding: chunked\r\n\r\n"
    + http_chunk(GOOD) + b"0\r\n\r\n",
    "a negative length": BODY_HEAD + b"Content-Length: -5\r\n\r\n" + GOOD,
    "a length with a sign": BODY_HEAD + b"Content-Length: +%d\r\n\r\n" % len(
        GOOD) + GOOD,
    "a list of lengths": BODY_HEAD + b"Content-Length: %d, 3\r\n\r\n" % len(
        GOOD) + GOOD,
    "a length of many digits": BODY_HEAD + b"Content-Length: "
    + b"9" * 40 + b"\r\n\r\n" + GOOD,
    "another coding": BODY_HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n"
    + http_chunk(GOOD) + b"0\r\n\r\n",
    "a coding twice": CHUNKED[:-2] + b"Transfer-Encoding: chunked\r\n\r\n"
    + http_chunk(GOOD) + b"0\r\n\r\n",
    "chunks in HTTP/1.0": CHUNKED.replace(b"/1.1", b"/1.0") + http_chunk(GOOD)
    + b"0\r\n\r\n",
    "an upgrade": b"HTTP/1.1 101 Switching Protocols\r\n\r\n" + SIZED + b"\r\n"
    + GOOD,
    "many interim heads": b"HTTP/1.1 100 Continue\r\n\r\n" * 50 + SIZED + b"\r\n"
    + GOOD,
    "too many headers": SIZED + b"X-A: b\r\n" * 300 + b"\r\n" + GOOD,
    "an end in the head": SIZED[:40],
    "an encoding nobody asked for": SIZED + b"Content-Encoding: br\r\n\r\n" + GOOD,
}
BODIES = {
    "an early end": SIZED + b"\r\n" + GOOD[:20],
    "an early end of chunks": CHUNKED + http_chunk(GOOD[:20]),
    "a chunk cut in the middle": CHUNKED + b"fff\r\n" + GOOD[:20],
    "an end without the last line": CHUNKED + http_chunk(GOOD) + b"0\r\n",
    "a huge chunk": CHUNKED + b"fffffffffffffffff\r\n" + GOOD,
    "a huge chunk behind zeros": CHUNKED + b"00000000fffffffff\r\n" + GOOD,
    "a huge length": BODY_HEAD + b"Content-Length: 9999999999999999\r\n\r\n" + GOOD,
    "a negative chunk": CHUNKED + b"-5\r\n" + GOOD,
    "a chunk with a sign": CHUNKED + b"+5\r\n" + GOOD,
    "a chunk with 0x": CHUNKED + b"0x10\r\n" + GOOD,
    "an empty size": CHUNKED + b"\r\n" + GOOD,
    "no line end after a chunk": CHUNKED + b"%x\r\n%sxx0\r\n\r\n" % (
        len(GOOD), GOOD),
    "a second answer in the chunk's place": CHUNKED + SIZED + b"\r\n" + GOOD,
    "a bare line feed after the size": CHUNKED + b"%x\n%s\r\n0\r\n\r\n" % (
        len(GOOD), GOOD),
    "a body that is no JSON": BODY_HEAD + b"Content-Length: 2\r\n\r\n{]",
    "JSON without end": BODY_HEAD + b"Content-Length: 5000\r\n\r\n" + b"[" * 5000,
}


@pytest.mark.parametrize("name", [*HEADS, *BODIES])
def test_another_route_answers_for_it(run: Run, name: str) -> None:
    raw = HEADS.get(name) or BODIES[name]
    upstream = Upstream(main=[raw], backup=[whole("from backup")])
    answer = post(run(upstream))
    assert answer.status_code == 200, answer.text
    assert answer.json()["choices"][0]["message"]["content"] == "from backup"
    assert "set-cookie" not in answer.headers


FINE = {
    "a length twice alike": SIZED + b"Content-Length: %d\r\n\r\n" % len(GOOD) + GOOD,
    "no length": BODY_HEAD + b"\r\n" + GOOD,
    "HTTP/1.0": (SIZED + b"\r\n").replace(b"/1.1", b"/1.0") + GOOD,
    "no reason": b"HTTP/1.1 200\r\n" + SIZED[17:] + b"\r\n" + GOOD,
    "an interim head": b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + SIZED
    + b"\r\n" + GOOD,
    "chunks with extensions and a trailer": CHUNKED + b"%X;a=b\r\n%s\r\n0;c\r\nX-T: 1\r\n\r\n" % (
        len(GOOD), GOOD),
    "a chunk's size with leading zeros": CHUNKED + b"%032x\r\n%s\r\n%s\r\n\r\n" % (
        len(GOOD), GOOD, b"0" * 40),
    "a length with leading zeros": BODY_HEAD + b"Content-Length: %020d\r\n\r\n" % len(
        GOOD) + GOOD,
    "a chunk a byte": CHUNKED + b"".join(
        http_chunk(GOOD[i:i + 1]) for i in range(len(GOOD))) + b"0\r\n\r\n",
    "more than its length": SIZED + b"\r\n" + GOOD + b"HTTP/1.1 200 OK\r\n\r\n",
}


@pytest.mark.parametrize("name", FINE)
def test_what_is_odd_but_right(run: Run, name: str) -> None:
    if name == "no reason":
        assert FINE[name].startswith(b"HTTP/1.1 200\r\nContent-Type")
    upstream = Upstream(main=[FINE[name]], backup=[whole("from backup")])
    answer = post(run(upstream))
    if name == "no reason":  # RFC 9112 wants the space, not the reason
        assert answer.json()["choices"][0]["message"]["content"] in (
            "good", "from backup")
        return
    assert answer.json() == chat("good")


def test_what_follows_an_answer_is_nobodys_answer(run: Run) -> None:
    """Bytes behind an answer on a kept connection do not answer the next."""
    def reply(peer: Peer) -> None:
        peer.keep = True  # type: ignore[attr-defined]
        poison = SIZED.replace(b"application/json", b"text/evil") + b"\r\n" + GOOD
        peer.send(SIZED + b"\r\n" + GOOD + poison)
    upstream = Upstream(main=[reply, kept("second")], backup=[whole()])
    gateway = run(upstream)
    assert post(gateway).json() == chat("good")
    assert post(gateway).json()["choices"][0]["message"]["content"] == "second"
    assert upstream.connections == 2


@pytest.mark.parametrize(("head", "piece"), [
    (SIZED, b"X-A: " + b"b" * 1000 + b"\r\n"),
    (b"HTTP/1.1 200 OK\r\nX-A: ", b"b" * 1024),
    (b"", b"x" * 1024),
    (CHUNKED, b"1" * 1024),
    (CHUNKED + b"5;", b"x" * 1024),
    (CHUNKED + b"0\r\n", b"X-A: bbb\r\n" * 100),
    (BODY_HEAD + b"\r\n", b" " * 1024),
    (b"HTTP/1.1 500 No\r\n\r\n", b"x" * 1024),
])
def test_what_never_ends(run: Run, head: bytes, piece: bytes) -> None:
    upstream = Upstream(main=[endless(head, piece)], backup=[whole("backup")])
    gateway = run(upstream, options="answer_max = 4 * 1048576,")
    answer = post(gateway)
    assert answer.json()["choices"][0]["message"]["content"] == "backup"
    assert all(peer.left.wait(2) for peer in upstream.seen["main"])
    assert largest_kib(gateway) < 64 * 1024


def test_a_stream_of_nothing(run: Run) -> None:
    """A megabyte without an event is no prologue."""
    upstream = Upstream(main=[endless(SSE_HEAD, http_chunk(b"x" * 1024))],
                        backup=[stream(chat_events("backup"))])
    gateway = run(upstream)
    answer = post(gateway, streamed=True)
    assert "backup" in answer.text and answer.headers["x-fivegates-route"]
    assert upstream.seen["main"][0].left.wait(2)
    assert largest_kib(gateway) < 64 * 1024


def test_an_event_without_end(run: Run) -> None:
    """After the first word: it goes on as it comes, and is not kept."""
    upstream = Upstream(main=[endless(
        SSE_HEAD + http_chunk(delta("one")) + http_chunk(b"data: "),
        http_chunk(b"x" * 4096))], backup=[whole()])
    gateway = run(upstream, {"timeouts": {"progress_ms": 1000,
                                          "idle_ms": 1000}})
    size = 0
    with pytest.raises(httpx.RemoteProtocolError), httpx.stream(
            "POST", f"{gateway.url}/v1/chat/completions",
            json={**ASK, "stream": True}, timeout=15) as answer:
        for chunk in answer.iter_raw():
            size += len(chunk)
    assert size > 1048576
    assert largest_kib(gateway) < 64 * 1024
    assert not upstream.seen["backup"]


def test_a_head_that_trickles(run: Run) -> None:
    """Bytes that keep coming do not keep the clocks from running out."""
    def reply(peer: Peer) -> None:
        for byte in SIZED * 20:
            if peer.wait(0.02):
                return
            peer.send(bytes([byte]))
    upstream = Upstream(main=[reply], backup=[whole("backup")])
    started = time.monotonic()
    answer = post(run(upstream, {"timeouts": {"total_ms": 300,
                                              "first_token_ms": 300}}))
    assert answer.json()["choices"][0]["message"]["content"] == "backup"
    assert time.monotonic() - started < 3
    assert upstream.seen["main"][0].left.wait(1)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 11])
def test_letters_cut_anywhere(run: Run, size: int) -> None:
    """UTF-8, lines and events cut by chunks: the client gets the same bytes,
    whole events at a time."""
    raw = b"".join(chat_events("Grüße ", "你好", "🙂")).replace(b"\n\n", b"\r\n\r\n")
    pieces = [raw[i:i + size] for i in range(0, len(raw), size)]
    upstream = Upstream(main=[stream(pieces)], backup=[whole()])
    gateway = run(upstream)
    with httpx.stream("POST", f"{gateway.url}/v1/chat/completions",
                      json={**ASK, "stream": True}) as answer:
        chunks = [chunk for chunk in answer.iter_raw() if chunk]
    assert b"".join(chunks) == raw
    for chunk in chunks:
        chunk.decode()  # no letter is cut


def test_headers_that_are_no_ones_business(run: Run) -> None:
    raw = json_reply(200, chat("x"), "Set-Cookie: a=b", "X-Accel-Redirect: /etc",
                     "Server: evil", "Location: http://evil", "X-Request-Id: r1",
                     "Strict-Transport-Security: max-age=1",
                     "X-RateLimit-Remaining-Requests: 7",
                     "X-Fivegates-Route: forged", "X-Should-Retry: true")
    upstream = Upstream(main=[raw], backup=[whole()])
    headers = post(run(upstream)).headers
    assert headers["x-request-id"] == "r1"
    assert headers["x-ratelimit-remaining-requests"] == "7"
    assert headers["server"].startswith("nginx")
    assert not {"set-cookie", "x-accel-redirect", "location", "x-should-retry",
                "strict-transport-security", "x-fivegates-route"} & set(headers)


def test_a_redirect_is_not_followed(run: Run) -> None:
    upstream = Upstream(
        main=[b"HTTP/1.1 307 T\r\nLocation: http://127.0.0.1:1/\r\n"
              b"Content-Length: 0\r\n\r\n"], backup=[whole("backup")])
    answer = post(run(upstream))
    assert "location" not in answer.headers and answer.status_code in (200, 503)


# ---- clients


def talk(gateway: Gateway, raw: bytes) -> bytes:
    """All that comes back for some bytes."""
    with socket.create_connection(("127.0.0.1", gateway.port), 5) as sock:
        sock.sendall(raw)
        sock.settimeout(1)
        got = b""
        try:
            while (data := sock.recv(65536)):
                got += data
        except TimeoutError:
            pass
    return got


BODY = json.dumps(ASK).encode()
LINE = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"
INNER = (b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nX-Inner: 1\r\n"
         b"Content-Length: 2\r\n\r\n{}")
SMUGGLES = {
    "a length and chunks": LINE + b"Content-Length: %d\r\nTransfer-Encoding: "
    b"chunked\r\n\r\n0\r\n\r\n" % len(BODY) + INNER,
    "two lengths": LINE + b"Content-Length: %d\r\nContent-Length: 5\r\n\r\n" % len(
        BODY) + BODY,
    "a coding that is none": LINE + b"Transfer-Encoding: xchunked\r\n\r\n" + BODY,
    "a carriage return in a value": LINE + b"Anthropic-Beta: a\rAuthorization: b"
    b"\r\nContent-Length: %d\r\n\r\n" % len(BODY) + BODY,
    "a zero byte in a value": LINE + b"Anthropic-Beta: a\0b\r\nContent-Length: "
    b"%d\r\n\r\n" % len(BODY) + BODY,
    "a line feed in the path": LINE.replace(
        b"completions ", b"completions%0d%0aX-Evil:%201 ")
    + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY,
    "a raw space in the query": LINE.replace(
        b"completions ", b"completions?a=b HTTP/1.1 ")
    + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY,
    "control letters in forwarded headers": LINE
    + b"User-Agent: a\x01b\r\nAccept: \x7f\r\nOpenAI-Beta: ok\r\nContent-Length: "
    b"%d\r\n\r\n" % len(BODY) + BODY,
    "the gateway's own headers": LINE
    + b"Authorization: Bearer theirs\r\nX-Api-Key: theirs\r\nApi-Key: theirs\r\n"
    b"Cookie: theirs\r\nX-Client-Request-Id: theirs\r\nX-Request-Attempt: 99\r\n"
    b"OpenAI-Organization: theirs\r\nConnection: close, Authorization\r\n"
    b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY,
}


@pytest.mark.parametrize("name", SMUGGLES)
def test_a_request_stays_one_request(run: Run, name: str) -> None:
    upstream = Upstream(main=[whole()], backup=[whole()])
    gateway = run(upstream)
    talk(gateway, SMUGGLES[name])
    made = upstream.seen["main"]
    assert len(made) <= 1
    for peer in made:
        assert peer.body == {**ASK, "model": "model-of-main"}
        names = [one for one, _ in peer.header_list]
        assert len(names) == len(set(names))
        assert set(names) <= {
            "host", "content-type", "content-length", "accept-encoding",
            "x-client-request-id", "x-request-attempt", "authorization",
            "accept", "user-agent", "openai-beta"}
        assert peer.headers["authorization"] == "Bearer key-of-main"
        assert "theirs" not in str(peer.header_list)
        assert not re.search(r"[\x00-\x1f\x7f]", "".join(
            name + value for name, value in peer.header_list))


def test_a_second_request_behind_the_first(run: Run) -> None:
    """Pipelined: both are answered, in order, each for itself."""
    upstream = Upstream(main=[whole("one"), whole("two")], backup=[whole()])
    gateway = run(upstream)
    one = LINE + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY
    got = talk(gateway, one + one)
    assert got.count(b"HTTP/1.1 200") == 2
    assert got.index(b'"one"') < got.index(b'"two"')


def test_many_headers_and_long_ones(run: Run) -> None:
    upstream = Upstream(main=[whole()], backup=[whole()])
    gateway = run(upstream)
    flood = b"".join(b"X-%d: y\r\n" % i for i in range(2000))
    assert b" 400 " in talk(gateway, LINE + flood + b"\r\n").split(b"\n")[0]
    many = b"".join(b"X-%d: y\r\n" % i for i in range(300))
    got = talk(gateway, LINE + many + b"Content-Length: %d\r\n\r\n" % len(
        BODY) + BODY)
    assert b" 200 " in got.split(b"\n")[0]


def test_a_body_that_never_comes(run: Run) -> None:
    """The engine hears of a request once it is there."""
    upstream = Upstream(main=[whole()], backup=[whole()])
    gateway = run(upstream, http="client_body_timeout 200ms;")
    got = talk(gateway, LINE + b"Content-Length: 999\r\n\r\n{")
    assert b" 200 " not in got.split(b"\n")[0]
    assert not upstream.seen["main"] and not gateway.ledger()


def test_tls_is_verified(run: Run, tmp_path: pathlib.Path) -> None:
    """A certificate nobody vouches for: nothing is sent. (nginx compares a host
    with the certificate's DNS names only, so an address must be one.)"""
    import ssl
    import subprocess
    import threading
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days",
         "1", "-subj", "/CN=localhost", "-addext",
         "subjectAltName=DNS:127.0.0.1", "-keyout",
         tmp_path / "key.pem", "-out", tmp_path / "cert.pem"],
        check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    server = socket.create_server(("127.0.0.1", 0))
    heard: "list[bytes]" = []

    def serve() -> None:
        while True:
            try:
                sock, _ = server.accept()
                with context.wrap_socket(sock, server_side=True) as tls:
                    heard.append(tls.recv(65536))
                    tls.sendall(SIZED + b"\r\n" + GOOD)
            except ssl.SSLError:
                continue
            except OSError:
                return

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    upstream = Upstream(main=[whole()], backup=[whole("backup")])
    card = card_of(upstream)
    card["routes"]["main"]["base_url"] = (
        f"https://127.0.0.1:{server.getsockname()[1]}/v1")
    try:
        gateway = run(upstream, card=card)
        answer = post(gateway)
        assert answer.status_code in (200, 503) and not any(heard)
        assert [line for line in gateway.ledger() if line.get("kind") in (
            "certificate", "tls_failed")]
        # Where the certificate is trusted the same route serves.
        gateway.stop()
        conf = gateway.dir / "nginx.conf"
        conf.write_text(conf.read_text().replace(
            "lua_check_client_abort on;", "lua_check_client_abort on;"
            f"lua_ssl_trusted_certificate {tmp_path}/cert.pem;").replace(
            "/region", "/region2"))
        gateway.start()
        assert post(gateway).json() == chat("good")
        assert b"key-of-main" in heard[-1]
    finally:
        server.close()
        thread.join(0.1)


ASKED = b'{"model":"model-of-main","messages":[%s]}'
UNREADABLE = {
    "bytes that are no UTF-8": ASKED % b'{"role":"user","content":"\xff\xfe"}',
    "an overlong slash": ASKED % b'{"role":"user","content":"\xc0\xaf"}',
    "half a surrogate pair": ASKED % b'{"role":"user","content":"\xed\xa0\x80"}',
    "half a surrogate pair, escaped": ASKED % b'{"role":"user","content":"\\ud800"}',
    "a letter cut in two": ASKED % b'{"role":"user","content":"\xe4\xbd"}',
    "a byte order mark": b"\xef\xbb\xbf" + ASKED % b"",
    "a role twice": ASKED % b'{"role":"user","role":"system","content":"x"}',
    "a tool's name twice": ASKED[:-1] % b"" + b',"tools":[{"type":"function",'
    b'"function":{"name":"a","n\\u0061me":"b"}}]}',
    "a long key twice": '{{"a{0}":[1],"a{0}":[2]}}'.format("é" * 40).encode(),
    "a model twice, escaped": b'{"model":"model-of-main","mod\\u0065l":"x"}',
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_a_body_that_two_readers_would_read_differently(run: Run, name: str
                                                       ) -> None:
    upstream = Upstream(main=[whole()], backup=[whole()])
    answer = httpx.post(run(upstream).url + "/v1/chat/completions",
                        content=UNREADABLE[name])
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] in ("invalid_json", "duplicate_key")
    assert not upstream.seen["main"]


@pytest.mark.parametrize("content", [
    '"\u00e9 \u4f60 \U0001f600"', '"\\ud83d\\ude00"', '"{\\"a\\":1,\\"a\\":2}"',
    '[{"type":"text","text":"a"},{"type":"text","text":"a"}]', '"[,]"'])
def test_a_body_that_is_odd_but_right(run: Run, content: str) -> None:
    upstream = Upstream(main=[whole()], backup=[whole()])
    body = ASKED % b'{"role":"user","content":%s},{"role":"user","content":""}' % (
        content.encode())
    assert httpx.post(run(upstream).url + "/v1/chat/completions",
                      content=body).status_code == 200
    assert upstream.seen["main"][0].raw == body
