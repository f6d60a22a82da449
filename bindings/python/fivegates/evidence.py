"""Exceptions of HTTP clients and model SDKs, turned into evidence.

Nothing is imported here: a class is known by the package its module belongs
to and by its name. The phase is what the exception proves; where it proves
nothing, it stays unknown, which the engine treats as "may have been sent".
"""

from __future__ import annotations

import json
import socket
import ssl
import typing

from fivegates.errors import FivegatesError

__all__ = ["evidence_of"]

Evidence = typing.Dict[str, typing.Any]

_HTTPX = frozenset({"httpx", "httpx2", "httpcore", "httpcore2"})
_SDKS = frozenset({"openai", "anthropic"})

# What each class of httpx says of how far the request came. A class that is
# missing here proves nothing.
_HTTPX_PHASES = {
    "ConnectTimeout": "connect",
    "ConnectError": "connect",
    "PoolTimeout": "connect",
    "ProxyError": "connect",
    "UnsupportedProtocol": "connect",
    "InvalidURL": "connect",
    "WriteTimeout": "send",
    "WriteError": "send",
    "LocalProtocolError": "send",
    "ReadTimeout": "read",
    "ReadError": "read",
    "RemoteProtocolError": "read",
    "TooManyRedirects": "read",
    "DecodingError": "body",
}
_REQUESTS_PHASES = {
    "ConnectTimeout": "connect",
    "ProxyError": "connect",
    "InvalidURL": "connect",
    "MissingSchema": "connect",
    "InvalidSchema": "connect",
    "SSLError": "tls",
    "ReadTimeout": "read",
    "TooManyRedirects": "read",
    "ChunkedEncodingError": "body",
    "ContentDecodingError": "body",
}
_URLLIB3_PHASES = {
    "NewConnectionError": "connect",
    "NameResolutionError": "connect",
    "ConnectTimeoutError": "connect",
    "ProxyError": "connect",
    "SSLError": "tls",
    "ReadTimeoutError": "read",
    "IncompleteRead": "body",
    "InvalidChunkLength": "body",
    "DecodeError": "body",
}
_AIOHTTP_PHASES = {
    "ClientConnectorDNSError": "connect",
    "ClientConnectorSSLError": "tls",
    "ClientConnectorCertificateError": "tls",
    "ClientConnectorError": "connect",
    "ConnectionTimeoutError": "connect",
    "ClientProxyConnectionError": "connect",
    "InvalidURL": "connect",
    "ServerDisconnectedError": "read",
    # Before the connection stands it is one of the connector's, above.
    "ClientOSError": "read",
    "SocketTimeoutError": "read",
    "ClientPayloadError": "body",
}


def _package(kind: type) -> str:
    return kind.__module__.partition(".")[0]


def _known(exc: BaseException) -> "tuple[str, str] | None":
    """The package and the class by which an exception is known."""
    for kind in type(exc).__mro__:
        package = _package(kind)
        if package in _HTTPX or package in _SDKS or package in (
                "requests", "urllib3", "aiohttp"):
            return package, kind.__name__
    return None


def _causes(exc: BaseException) -> "typing.Iterator[BaseException]":
    """The exception and what it came from, also by urllib3's .reason."""
    seen: "set[int]" = set()
    at: "BaseException | None" = exc
    while at is not None and id(at) not in seen:
        seen.add(id(at))
        yield at
        inner = getattr(at, "reason", None)
        if not isinstance(inner, BaseException) and at.args:
            inner = at.args[0]
        at = (at.__cause__ or at.__context__
              or (inner if isinstance(inner, BaseException) else None))


def _transport(lib: str, kind: str, exc: BaseException) -> Evidence:
    out: Evidence = {"lib": lib, "kind": kind, "message": str(exc)[:2000]}
    for cause in _causes(exc):
        number = getattr(cause, "errno", None)
        if isinstance(cause, OSError) and isinstance(number, int):
            out["code"] = number
            break
    return out


def _tls(exc: BaseException) -> bool:
    return any(isinstance(cause, ssl.SSLError) for cause in _causes(exc))


def _text(value: object) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    try:
        return json.dumps(value)
    except (TypeError, ValueError):
        return str(value)


def _body_of(response: typing.Any, fallback: object = None) -> str:
    """The response's text where it has been read; never reads a stream."""
    for name in ("content", "_content"):
        try:
            content = getattr(response, name, None)
        except Exception:  # httpx raises its own class for unread streams
            content = None
        if isinstance(content, bytes):
            return content.decode("utf-8", "replace")
    return _text(fallback)


def _headers_of(response: typing.Any) -> "list[tuple[str, str]]":
    headers = getattr(response, "headers", None)
    if headers is None:
        return []
    multi = getattr(headers, "multi_items", None)
    items = multi() if callable(multi) else headers.items()
    return [(str(name), str(value)) for name, value in items]


def _answered(response: typing.Any, body: object = None) -> "Evidence | None":
    status = getattr(response, "status_code", None)
    if status is None:
        status = getattr(response, "status", None)
    if not isinstance(status, int):
        return None
    return {"phase": "response", "status": status,
            "headers": _headers_of(response),
            "body": _body_of(response, body)}


def _httpx(kind: str, lib: str, exc: BaseException) -> Evidence:
    response = getattr(exc, "_response", None) or (
        getattr(exc, "response", None) if kind == "HTTPStatusError" else None)
    found = _answered(response) if response is not None else None
    if found is not None:
        return found
    # Under an aiohttp backend the class of httpx lies: a request that was
    # sent may come back as ConnectTimeout. The exception beneath decides.
    for cause in _causes(exc):
        if cause is not exc and _package(type(cause)) == "aiohttp":
            return _aiohttp(type(cause).__name__, cause)
    phase = _HTTPX_PHASES.get(kind, "unknown")
    message = str(exc)
    if kind == "RemoteProtocolError" and "complete message body" in message:
        phase = "stream" if "chunked" in message else "body"
    if kind in ("ConnectError", "ReadError", "WriteError") and _tls(exc):
        phase = "tls" if kind == "ConnectError" else phase
    out: Evidence = {"phase": phase,
                     "transport": _transport(_lib(lib), kind, exc)}
    if kind == "PoolTimeout":
        out["origin"] = "local"
    return out


def _lib(package: str) -> str:
    """The rules speak of httpx; its fork has the same classes."""
    return {"httpx2": "httpx", "httpcore": "httpx",
            "httpcore2": "httpx"}.get(package, package)


def _requests(kind: str, exc: BaseException) -> Evidence:
    response = getattr(exc, "response", None)
    if kind == "HTTPError" and response is not None:
        found = _answered(response)
        if found is not None:
            return found
    phase = _REQUESTS_PHASES.get(kind, "unknown")
    if kind == "ConnectionError":  # what urllib3 met says how far it came
        for cause in _causes(exc):
            inner = _known(cause)
            if inner and inner[0] == "urllib3":
                phase = _URLLIB3_PHASES.get(inner[1], phase)
            if isinstance(cause, ConnectionResetError) or (
                    inner and inner[1] == "ProtocolError"):
                phase = "read"
    return {"phase": phase, "transport": _transport("requests", kind, exc)}


def _urllib3(kind: str, exc: BaseException) -> Evidence:
    phase = "unknown"
    for cause in _causes(exc):
        inner = _known(cause)
        name = inner[1] if inner else ""
        if name in _URLLIB3_PHASES:
            phase = _URLLIB3_PHASES[name]
            break
        if name == "ProtocolError":
            phase = "read"
    return {"phase": phase, "transport": _transport("urllib3", kind, exc)}


def _aiohttp(kind: str, exc: BaseException) -> Evidence:
    status = getattr(exc, "status", None)
    if kind == "ClientResponseError" and isinstance(status, int) and status:
        return {"phase": "response", "status": status,
                "headers": _headers_of(exc)}
    phase = "unknown"
    for base in type(exc).__mro__:
        if base.__name__ in _AIOHTTP_PHASES:
            phase = _AIOHTTP_PHASES[base.__name__]
            break
    return {"phase": phase, "transport": _transport("aiohttp", kind, exc)}


def _sdk(package: str, exc: BaseException) -> Evidence:
    response = getattr(exc, "response", None)
    body = getattr(exc, "body", None)
    names = {kind.__name__ for kind in type(exc).__mro__}
    if response is not None:
        found = _answered(response, body)
        if found is not None:
            if "APIResponseValidationError" in names:
                found["phase"] = "body"
            elif found["status"] < 400:  # an error inside a stream
                found.update(phase="stream", body=_in_band(body, exc))
            return found
    if "APIConnectionError" in names:
        for cause in _causes(exc):
            if cause is exc:
                continue
            known = _known(cause)
            if known and known[0] in _HTTPX:
                return _httpx(known[1], known[0], cause)
            if isinstance(cause, OSError):
                return _builtin(cause) or {}
        timed_out = "APITimeoutError" in names
        return {"phase": "read" if timed_out else "unknown",
                "transport": _transport(package, type(exc).__name__, exc)}
    if body is not None:  # openai raises a bare APIError for an error event
        return {"phase": "stream", "status": 200, "body": _in_band(body, exc)}
    return {"transport": _transport(package, type(exc).__name__, exc)}


def _requests_made(exc: BaseException) -> int:
    """How many requests the SDK's own retries made, as it tells the server."""
    request: typing.Any = getattr(exc, "request", None) or getattr(
        getattr(exc, "response", None), "request", None)
    try:
        count = request.headers.get("x-stainless-retry-count", "0")
        return int(count) + 1
    except (AttributeError, TypeError, ValueError):
        return 1


def _in_band(body: object, exc: BaseException) -> str:
    if isinstance(body, dict) and "error" not in body:
        return json.dumps({"error": body}, default=str)
    return _text(body) or json.dumps({"error": {"message": str(exc)}})


def _builtin(exc: BaseException) -> "Evidence | None":
    name = type(exc).__name__
    if isinstance(exc, ssl.SSLError):
        return {"phase": "tls", "transport": _transport("ssl", name, exc)}
    if isinstance(exc, socket.gaierror):
        return {"phase": "connect",
                "transport": _transport("socket", "gaierror", exc)}
    if isinstance(exc, ConnectionRefusedError):
        return {"phase": "connect", "transport": _transport("socket", name, exc)}
    if isinstance(exc, (ConnectionResetError, BrokenPipeError,
                        ConnectionAbortedError)):
        return {"phase": "read", "transport": _transport("socket", name, exc)}
    # asyncio.TimeoutError is its own class before Python 3.11.
    if isinstance(exc, TimeoutError) or (
            name == "TimeoutError" and _package(type(exc)) == "asyncio"):
        lib = "asyncio" if not exc.args else "socket"
        return {"phase": "read", "transport": _transport(lib, "TimeoutError", exc)}
    if isinstance(exc, OSError) and isinstance(exc.errno, int):
        return {"transport": _transport("socket", name, exc)}
    return None


def evidence_of(exc: BaseException, *, provider: "str | None" = None,
                api: "str | None" = None) -> "Evidence | None":
    """Evidence of a failed attempt, or None where the exception is not one.

    Knows httpx, httpx2, requests, urllib3, aiohttp, openai, anthropic, and
    the built-in exceptions of sockets, TLS and asyncio. An exception of
    another library counts when it carries a response, or came from one of
    these. What an engine decided (Refused, Queued) is no failed attempt, so
    that a run inside a run is not sent again by the outer one.
    """
    if isinstance(exc, FivegatesError):
        return None  # decided already: a layer outside does not ask again
    own = getattr(exc, "evidence", None)
    found: "Evidence | None" = dict(own) if isinstance(own, dict) else None
    known = _known(exc)
    if found is None and known is not None:
        package, kind = known
        if package in _SDKS:
            found = _sdk(package, exc)
            made = _requests_made(exc)
            if made > 1:
                found["inner_attempts"] = made
        elif package in _HTTPX:
            found = _httpx(kind, package, exc)
        elif package == "requests":
            found = _requests(kind, exc)
        elif package == "urllib3":
            found = _urllib3(kind, exc)
        else:
            found = _aiohttp(kind, exc)
    if found is None:
        found = _builtin(exc)
    if found is None:
        response = getattr(exc, "response", None)
        if response is not None:
            found = _answered(response)
    if found is None and exc.__cause__ is not None:
        found = evidence_of(exc.__cause__)
    if found is None:
        return None
    if provider is not None:
        found.setdefault("provider", provider)
    if api is not None:
        found.setdefault("api", api)
    return found
