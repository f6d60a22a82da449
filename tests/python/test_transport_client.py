"""What a guarded client does as a plain one would: proxies of the environment,
times of answers; and what it says of options that it does not have."""

from __future__ import annotations

import asyncio
import datetime
import http.server
import json
import threading
import typing

import httpx
import httpx2
import pytest
from support.cards import card_of

import fivegates
from fivegates import transport

Json = typing.Dict[str, typing.Any]
_ANSWER = json.dumps({
    "id": "c1", "object": "chat.completion", "created": 1, "model": "m1",
    "choices": [{"index": 0, "finish_reason": "stop",
                 "message": {"role": "assistant", "content": "hello"}}]}).encode()
_HTTP = pytest.mark.parametrize("package", [httpx, httpx2], ids=["httpx", "httpx2"])
_WAYS = pytest.mark.parametrize("blocks", [True, False], ids=["sync", "async"])


class Proxy(http.server.BaseHTTPRequestHandler):
    """Answers for every host; keeps the URLs and stamps it was asked with."""

    seen: "list[tuple[str, str | None]]"
    status = 200

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.seen.append((self.path, self.headers.get("x-request-attempt")))
        self.send_response(self.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(_ANSWER)))
        self.end_headers()
        self.wfile.write(_ANSWER)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> "typing.Iterator[tuple[str, typing.Any]]":
    for name in ("http", "https", "all", "no"):
        monkeypatch.delenv(f"{name}_proxy", raising=False)
        monkeypatch.delenv(f"{name}_proxy".upper(), raising=False)
    handler = type("Handler", (Proxy,), {"seen": []})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", handler
        server.shutdown()
        thread.join()


def _engine(url: str = "http://a.invalid/v1", **workflow: typing.Any) -> fivegates.Engine:
    return fivegates.Engine(fivegates.Policy.loads(
        card_of(url, "http://b.invalid/v1", **workflow), auto_fingerprint=True))


def _asked(client: typing.Any, url: str = "http://a.invalid/v1") -> typing.Any:
    request = client.build_request(
        "POST", f"{url}/chat/completions", json={
            "model": "m1", "messages": [{"role": "user", "content": "hi"}]})
    out = client.send(request)
    return asyncio.run(out) if asyncio.iscoroutine(out) else out


def _client(package: typing.Any, blocks: bool, engine: fivegates.Engine,
            **more: typing.Any) -> typing.Any:
    return (transport.client if blocks else transport.async_client)(
        package, engine, "bare", **more)


@_HTTP
@_WAYS
@pytest.mark.parametrize("name", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
def test_proxies_of_the_environment_are_used(
        package: typing.Any, blocks: bool, name: str,
        proxy: "tuple[str, typing.Any]", monkeypatch: pytest.MonkeyPatch) -> None:
    url, handler = proxy
    monkeypatch.setenv(name, url)
    engine = _engine()
    client = _client(package, blocks, engine)
    assert _asked(client).content == _ANSWER
    assert handler.seen == [("http://a.invalid/v1/chat/completions", "1")]
    assert engine.workflow("bare")["primary_success"] == 1  # guarded there too


@_HTTP
@_WAYS
def test_hosts_without_a_proxy_and_clients_without_an_environment(
        package: typing.Any, blocks: bool, proxy: "tuple[str, typing.Any]",
        monkeypatch: pytest.MonkeyPatch) -> None:
    """As a plain client: what NO_PROXY names goes straight; so does all that is
    sent by a transport of the caller's own."""
    url, handler = proxy
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")  # nobody's
    monkeypatch.setenv("NO_PROXY", "b.test,127.0.0.1")
    kind = package.HTTPTransport if blocks else package.AsyncHTTPTransport
    engine = _engine(f"{url}/v1")
    assert _asked(_client(package, blocks, engine), f"{url}/v1").content == _ANSWER
    monkeypatch.delenv("NO_PROXY")
    own = _client(package, blocks, engine, inner=kind())
    assert _asked(own, f"{url}/v1").content == _ANSWER
    assert handler.seen == [("/v1/chat/completions", "1")] * 2
    with pytest.raises(package.ConnectError):
        _asked(_client(package, blocks, engine), f"{url}/v1")


@_HTTP
def test_a_timed_client_uses_them_too(
        package: typing.Any, proxy: "tuple[str, typing.Any]",
        monkeypatch: pytest.MonkeyPatch) -> None:
    url, handler = proxy
    monkeypatch.setenv("HTTP_PROXY", url)
    client = transport.timed_client(package)
    assert _asked(client).content == _ANSWER and len(handler.seen) == 1


@_HTTP
@_WAYS
def test_proxies_that_cannot_be_found_are_not_passed_by(
        package: typing.Any, blocks: bool, proxy: "tuple[str, typing.Any]",
        monkeypatch: pytest.MonkeyPatch) -> None:
    name = "Client" if blocks else "AsyncClient"
    own = getattr(package, name)

    class Another(own):  # type: ignore[misc, valid-type]
        """Of a release that keeps its mounts elsewhere."""

        def __init__(self, **more: typing.Any) -> None:
            super().__init__(**more)
            del self._mounts

    monkeypatch.setattr(package, name, Another)
    engine = _engine()
    assert _client(package, blocks, engine) is not None  # there are none
    monkeypatch.setenv("HTTPS_PROXY", proxy[0])
    with pytest.raises(fivegates.ArgumentError, match="inner="):
        _client(package, blocks, engine)


@_HTTP
@_WAYS
@pytest.mark.parametrize("option", ["event_hooks", "http2", "keyz"])
def test_what_is_no_option_is_told_where_it_goes(
        package: typing.Any, blocks: bool, option: str) -> None:
    with pytest.raises(fivegates.ArgumentError) as caught:
        _client(package, blocks, _engine(), **{option: {}})
    said = str(caught.value)
    assert f"'{option}'" in said and "inner=" in said and "preset" in said


@_HTTP
@_WAYS
@pytest.mark.parametrize("status", [200, 401, 503])
def test_answers_of_every_kind_know_how_long_they_took(
        package: typing.Any, blocks: bool, status: int,
        proxy: "tuple[str, typing.Any]", monkeypatch: pytest.MonkeyPatch) -> None:
    url, handler = proxy
    handler.status = status
    for card in ({}, {"ladder": [{"step": "preset", "text": {"en": "later"}}]}):
        client = _client(package, blocks, fivegates.Engine(fivegates.Policy.loads({
            "version": 1, "routes": {"main": {
                "provider": "openai", "model": "m1", "base_url": f"{url}/v1",
                "price": {"input": 2.5, "output": 10}}},
            "workflows": {"bare": {"routes": ["main"], **card}}})))
        try:
            response = _asked(client, f"{url}/v1")
        except fivegates.Refused as exc:
            response = exc.response  # type: ignore[attr-defined]
        assert (response.status_code == status) or card
        assert datetime.timedelta() <= response.elapsed < datetime.timedelta(minutes=1)
