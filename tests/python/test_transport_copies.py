"""The quick copy of a request is what the public names of httpx would make."""

from __future__ import annotations

import types
import typing

import httpx
import httpx2
import pytest

import fivegates
from fivegates._core import stamped_headers
from fivegates.transport.copies import Copies
from fivegates.transport.options import Options

Pairs = typing.List[typing.Tuple[typing.Any, typing.Any]]

HEADERS: "list[Pairs]" = [
    [],
    [("Authorization", "Bearer k"), ("x-stainless-retry-count", "0")],
    [("x-client-request-id", "mine"), ("A", "1"), ("X-Request-Attempt", "7"),
     ("X-CLIENT-REQUEST-ID", "again"), ("a", "2")],
    [(b"Name", b"caf\xe9"), (b"X-Stainless-Retry-Count", b"2")],
]


def made(http: typing.Any, headers: Pairs, kind: typing.Any = None) -> typing.Any:
    request = (kind or http.Request)(
        "POST", "https://api.test/v1/chat/completions?x=1", content=b"{}",
        headers=headers, extensions={"timeout": {"read": 1.0}})
    request.read()
    return request


def sent(request: typing.Any) -> typing.Any:
    """All that a transport may read of a request."""
    return (request.method, str(request.url), request.content,
            b"".join(request.stream), sorted(
                (name.lower(), value) for name, value in request.headers.raw))


@pytest.mark.parametrize("http", [httpx, httpx2], ids=["httpx", "httpx2"])
@pytest.mark.parametrize("headers", HEADERS)
def test_both_ways_make_the_same_request(http: typing.Any, headers: Pairs) -> None:
    class Own(http.Request):  # type: ignore[misc]
        """One whose parts are not known."""

    copies, ways = Copies(http), []
    for request in (made(http, headers), made(http, headers, Own)):
        before = sent(request), dict(request.extensions)
        out = copies.stamped(request, "fg-1", 2, {"trace": None})
        assert type(out) is type(request) and out.headers is not request.headers
        assert out.headers["X-Client-Request-Id"] == "fg-1"
        assert out.headers["x-request-attempt"] == "2"
        assert out.extensions == {"trace": None}
        out.headers["A"] = "changed"
        assert (sent(request), dict(request.extensions)) == before
        ways.append((sent(out), copies.sdk_retries(request)))
    assert ways[0] == ways[1]


@pytest.mark.parametrize("http", [httpx, httpx2], ids=["httpx", "httpx2"])
def test_the_quick_way_is_taken_where_the_parts_are_known(
        http: typing.Any, monkeypatch: pytest.MonkeyPatch) -> None:
    copies, request = Copies(http), made(http, HEADERS[1])
    monkeypatch.setattr(http.Headers, "__setitem__", None)
    out = copies.stamped(request, "fg-1", 1, {})
    assert out.headers["x-client-request-id"] == "fg-1"


def test_another_release_is_asked_by_its_public_names() -> None:
    class Other(httpx.Headers):
        """Keeps something more."""

        def __init__(self, *args: typing.Any) -> None:
            super().__init__(*args)
            self.more = True

    class Request(httpx.Request):
        def __init__(self, *args: typing.Any, **more: typing.Any) -> None:
            super().__init__(*args, **more)
            self.headers = Other(self.headers)

    http = types.SimpleNamespace(Request=Request, Headers=Other)
    out = Copies(http).stamped(made(http, HEADERS[2]), "fg-1", 3, {})
    assert out.headers.more and out.headers["x-request-attempt"] == "3"
    assert out.headers["x-client-request-id"] == "fg-1"


@pytest.mark.parametrize("http", [httpx, httpx2], ids=["httpx", "httpx2"])
def test_packed_by_either_way(http: typing.Any) -> None:
    class Own(http.Headers):  # type: ignore[misc]
        """One whose parts are not known."""

    copies = Copies(http)
    for headers, packed in (([("Content-Encoding", "gzip")], True), ([], False),
                            ([("content-type", "content-encoding")], False)):
        response = http.Response(200, headers=headers,
                                 stream=http.ByteStream(b""))
        assert copies.packed(response) is packed
        response.headers = Own(headers)
        assert copies.packed(response) is packed


@pytest.mark.parametrize("http", [httpx, httpx2], ids=["httpx", "httpx2"])
def test_what_each_url_asks(http: typing.Any) -> None:
    class Own(http.URL):  # type: ignore[misc]
        """One whose parts are not known."""

    options = Options(fivegates.Engine({
        "version": 1, "routes": {"main": {"provider": "openai", "model": "m1"}},
        "workflows": {"w": {"routes": ["main"]}}}), "w")
    copies, end = Copies(http), "/chat/completions"
    urls = [f"https://{url}" for url in (
        f"a/v1{end}", f"a/v1{end}?", f"a/v1{end}?x=1", f"a/V1{end}",
        f"a:8443/v1{end}", f"u@a/v1{end}", f"a/v1{end}#f")]

    def asked(url: typing.Any, method: str = "POST") -> typing.Any:
        return options.asked(types.SimpleNamespace(method=method, url=url), copies)

    found = [asked(http.URL(url)) for url in urls]
    assert [one.url for one in found] == urls and {one.api for one in found} == {
        ("chat", end)}
    assert asked(http.URL(urls[0])) is found[0]
    assert asked(Own(urls[1])).url == urls[1]
    assert asked(http.URL(urls[0]), "GET") is None
    assert asked(http.URL("https://a/v1/models")) is None


@pytest.mark.parametrize(("said", "retries"), [
    ("0", 0), ("3", 3), ("-1", 0), ("x", 0), ("99999", 1000), (None, 0)])
def test_retries_of_the_sdk(said: "str | None", retries: int) -> None:
    headers = [] if said is None else [("X-Stainless-Retry-Count", said)]
    assert Copies(httpx2).sdk_retries(made(httpx2, headers)) == retries


def test_stamps_refuse_what_is_no_stamp() -> None:
    for args in (((), "fg", 1), (None, "fg", 1), ([], 1, 1), ([], "fg", "1"), ([], "fg")):
        with pytest.raises(TypeError):
            stamped_headers(*args)  # type: ignore[arg-type]
