"""How its provider calls an attempt: the id of the answer, and of the request.

They stand in the ledger's line of its end, and a bill's row is found again by
them: fivegates.reconcile. Read only where a ledger is written.
"""

from __future__ import annotations

import typing

from fivegates._core import SseScanner
from fivegates.answers import member

__all__ = ["ids_of"]

# The header of the answer's own id (OpenRouter sends it before the answer); and
# those of the request's: OpenAI and most gateways, Anthropic, AWS, Azure.
_ANSWER = "x-generation-id"
_REQUEST = ("x-request-id", "request-id", "x-amzn-requestid", "apim-request-id")
# Where the APIs' answers and events have it.
_PLACES = (("id",), ("response", "id"), ("message", "id"), ("responseId",),
           ("response_id",))


def _text(value: object) -> "str | None":
    if isinstance(value, bytes):
        value = value.decode("latin-1")
    return value if isinstance(value, str) and value else None


def _named(headers: typing.Any) -> "dict[str, str | None]":
    """Headers by their names in lower case: of a mapping, or of pairs; of
    anything else none."""
    found: "dict[str, str | None]" = {}
    try:
        for name, value in headers.items() if hasattr(headers, "items") else headers:
            found.setdefault((_text(name) or "").lower(), _text(value))
    except Exception:
        pass  # no headers: an answer may have a member of that name for itself
    return found


def _id(body: typing.Any) -> "str | None":
    if isinstance(body, SseScanner):
        return body.response_id()
    if isinstance(body, (bytes, bytearray)):
        scanner = SseScanner(whole=True)
        scanner.feed(body)
        return scanner.response_id()
    told = (_text(member(body, *place)) for place in _PLACES)
    return next(filter(None, told), None)


def ids_of(headers: typing.Any, body: typing.Any) -> "tuple[str | None, str | None]":
    """(answer's id, request's id), None what was not told.

    headers: of the answer, a mapping or pairs. body: a scanner that read it, a
    whole body's bytes, or an SDK's object or event.
    """
    found = _named(headers if headers is not None else member(body, "headers"))
    request = next((found[name] for name in _REQUEST if found.get(name)), None)
    return (found.get(_ANSWER) or _id(body),
            request or _text(member(body, "_request_id")))
