"""A client's request as one attempt sends it: with two more headers.

By its public names that takes longer than all else that is done for a request
which goes well: each name is encoded, compared and decoded anew. So where the
classes have the parts we know these are copied; else the public names serve.
"""

from __future__ import annotations

import typing

from fivegates._core import stamped_headers

__all__ = ["Copies"]

_ID, _ATTEMPT = "X-Client-Request-Id", "X-Request-Attempt"
_RETRIES = "x-stainless-retry-count"


# What an SDK says of a request that it sends for the first time.
_FIRST = (_RETRIES.encode(), _RETRIES.encode(), b"0")
_PARTS = {"method", "url", "headers", "extensions", "stream", "_content"}


class Copies:
    """How the requests of one HTTP package, httpx or httpx2, are copied."""

    def __init__(self, http: typing.Any) -> None:
        self.headers: typing.Any = http.Headers
        self.request: typing.Any = None  # the class, where its parts are known
        one = http.Request("POST", "http://localhost", content=b"b",
                           headers=[("A", "c")])
        if vars(one).keys() == _PARTS and type(one.headers) is http.Headers and (
                vars(one.headers).keys() == {"_list", "_encoding"}
                and (b"A", b"a", b"c") in one.headers._list):
            self.request = http.Request
        self.url: typing.Any = None  # likewise
        parts = getattr(one.url, "_uri_reference", None)
        if isinstance(parts, tuple) and str(parts) == str(one.url):
            self.url = type(one.url)

    def stamped(self, own: typing.Any, call_id: str, number: int,
                extensions: "dict[str, typing.Any]") -> typing.Any:
        """A request whose body was read, as an attempt sends it."""
        if type(own) is not self.request:
            headers = self.headers(own.headers)
            headers[_ID] = call_id
            headers[_ATTEMPT] = str(number)
            return self.changed(own, headers, extensions)
        out = object.__new__(self.request)
        out.headers = object.__new__(self.headers)
        out.headers._encoding = own.headers._encoding
        out.headers._list = stamped_headers(own.headers._list, call_id, number)
        out.method = own.method
        out.url = own.url
        out.extensions = extensions
        out.stream = own.stream
        out._content = own._content
        return out

    @staticmethod
    def changed(own: typing.Any, headers: typing.Any,
                extensions: "dict[str, typing.Any]") -> typing.Any:
        """The request with other headers and extensions.

        The client may send its own again, so that stays as it is. (A copy()
        of httpx's would leave out the body.)
        """
        out = object.__new__(type(own))
        out.__dict__.update(own.__dict__, headers=headers,
                            extensions=extensions)
        return out

    def packed(self, response: typing.Any) -> bool:
        """Whether a response's body is encoded."""
        headers = response.headers
        if self.request is None or type(headers) is not self.headers:
            return "content-encoding" in headers
        return any([one[1] == b"content-encoding" for one in headers._list])

    def sdk_retries(self, own: typing.Any) -> int:
        """How often the SDK has already sent this request by itself."""
        if type(own) is self.request and _FIRST in own.headers._list:
            return 0
        try:
            return max(0, min(int(own.headers.get(_RETRIES, 0)), 1000))
        except ValueError:
            return 0
