"""The pool of connections of an HTTP package's own transport, asked directly.

Between its transport and the pool httpx makes each request anew: URL and headers
are encoded and checked that a client's request had encoded and checked before.
For a request that is the client's but for two headers that is the dearest part
of guarding it, so such a one is made here; once for each URL the package's own
code is watched making one, and only where it does what is done here. Whoever
stands in the way, as instrumentation does that replaces handle_request(), is
not passed by. Nor is a proxy's pool asked: if that fails, only a trace tells
whether the proxy did not answer or the provider.
"""

from __future__ import annotations

import types
import typing

__all__ = ["Pooled", "Sent", "Template"]


class Sent:
    """The body of a request, which knows whether it was asked for: no byte of
    it is out before."""

    asked = False

    def __init__(self, stream: typing.Any) -> None:
        """stream: the request's own, as an event hook may have left it."""
        self._own = stream

    def __iter__(self) -> "typing.Iterator[bytes]":
        self.asked = True
        return iter(self._own)

    def __aiter__(self) -> "typing.AsyncIterator[bytes]":
        self.asked = True
        return typing.cast("typing.AsyncIterator[bytes]", self._own.__aiter__())

    def __deepcopy__(self, memo: object) -> "Sent":
        return self  # whoever sends the copy asks for this one's body


class Template(typing.NamedTuple):
    """What requests to one URL are made of."""

    kind: type  # of the pool's requests
    place: type  # of their URLs
    parts: "dict[str, typing.Any]"  # of the URL

    def request(self, headers: "list[tuple[bytes, bytes]]", body: Sent,
                timeouts: typing.Any) -> typing.Any:
        """One for the pool. timeouts: as httpx has them in extensions."""
        out: typing.Any = object.__new__(self.kind)
        out.method = b"POST"
        out.url = object.__new__(self.place)  # the pool may change it
        out.url.__dict__.update(self.parts)
        out.headers = headers
        out.stream = body
        out.extensions = {"timeout": timeouts}
        return out


_PARTS = {"method", "url", "headers", "stream", "extensions"}


class _Watch:
    """A transport for the package's own code: its pool only looks."""

    def __init__(self) -> None:
        self._pool = self
        self.request: typing.Any = None
        self.status = 200
        self.headers = [(b"A", b"b")]
        self.stream = Sent(())
        self.extensions: "dict[str, typing.Any]" = {}

    def handle_request(self, request: typing.Any) -> typing.Any:
        self.request = request
        return self

    async def handle_async_request(self, request: typing.Any) -> typing.Any:
        return self.handle_request(request)


class Pooled:
    """The pool of one transport, sync or async."""

    def __init__(self, http: typing.Any, kind: type, inner: typing.Any) -> None:
        """kind: http.HTTPTransport or http.AsyncHTTPTransport; inner: perhaps
        one of these."""
        blocks = kind is http.HTTPTransport
        self._name = "handle_request" if blocks else "handle_async_request"
        self.inner = inner
        self._response: typing.Any = http.Response
        send = vars(kind).get(self._name)
        own = getattr(send, "__globals__", {})
        self._stream: typing.Any = own.get(
            "ResponseStream" if blocks else "AsyncResponseStream")
        self._mapped: typing.Any = own.get("map_httpcore_exceptions")
        pool = getattr(inner, "_pool", None)
        direct = all(getattr(pool, name, None) is None
                     for name in ("_proxy", "_proxy_url"))
        # The package's own function, by what is in its module. None: somebody
        # has wrapped it, or its parts are not known, or it is not to be used.
        # (By type(): a wrapper may pretend to be what it wraps.)
        self._send: typing.Any = send if (
            type(send) is types.FunctionType and direct
            and None not in (self._stream, self._mapped)) else None

    def open(self) -> bool:
        """Whether it may be asked directly."""
        send = getattr(self.inner, self._name, None)
        return (self._send is not None and type(send) is types.MethodType
                and send.__func__ is self._send
                and send.__self__ is self.inner)

    def template(self, request: typing.Any) -> "Template | None":
        """What requests like this one of a client are made of; None: they, or
        the responses to them, are made in another way than here."""
        watch, before = _Watch(), _sent(request)
        try:
            try:
                response = self._send(watch, request)
                if not isinstance(response, self._response):  # a coroutine
                    response.send(None)
            except StopIteration as stop:
                response = stop.value
            made = watch.request
            if (vars(made).keys() == _PARTS and made.method == b"POST"
                    and before == (made.headers, id(made.stream),
                                   id(made.extensions), made.extensions)
                    and _parts(response) == _parts(self.response(watch))):
                return Template(type(made), type(made.url), vars(made.url))
        except Exception:  # whoever sends it will say why, if there is a reason
            pass
        return None

    def ask(self, request: typing.Any) -> typing.Any:
        """The response to a request of Template.request()."""
        try:
            answer = self.inner._pool.handle_request(request)
        except Exception:
            with self._mapped():
                raise
        return self.response(answer)

    async def aask(self, request: typing.Any) -> typing.Any:
        """The same of an async transport."""
        try:
            answer = await self.inner._pool.handle_async_request(request)
        except Exception:
            with self._mapped():
                raise
        return self.response(answer)

    def response(self, answer: typing.Any) -> typing.Any:
        """The client's response, of the pool's."""
        return self._response(
            answer.status, headers=answer.headers,
            stream=self._stream(answer.stream), extensions=answer.extensions)


def _sent(request: typing.Any) -> "tuple[typing.Any, ...]":
    """What the pool should be asked with for a request, by what it is now."""
    return (request.headers.raw, id(request.stream), id(request.extensions),
            dict(request.extensions))


def _parts(response: typing.Any) -> "dict[str, typing.Any]":
    """What a response is made of, its stream by its kind."""
    return {**vars(response), "stream": type(response.stream)}
