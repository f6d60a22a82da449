"""A refusal as the SDK's own error: what callers already catch.

An SDK built on one of the generated clients (openai, anthropic, groq, ...)
lets its own exceptions pass through from a transport, and retries any other.
So the exception made here is both: Refused, with the decision, and the class
the SDK would have raised for the same failure.
"""

from __future__ import annotations

import json
import sys
import typing

from fivegates.errors import Queued, Refused

__all__ = ["told"]

_CLASSES: "dict[tuple[type, type], type]" = {}
# A refusal before any request has no answer of a server; the status an outer
# layer is told, where the decision names none: unavailable.
_UNAVAILABLE = 503


class _Family(typing.NamedTuple):
    """The errors of one SDK."""

    module: typing.Any

    def for_status(self, status: int) -> type:
        """The class of an error answer: by its status, as the SDK does."""
        base: type = self.module.APIStatusError
        for value in list(vars(self.module).values()):  # SDKs load lazily
            if (isinstance(value, type) and issubclass(value, base)
                    and vars(value).get("status_code") == status):
                return value
        if status >= 500:
            return typing.cast(
                type, getattr(self.module, "InternalServerError", base))
        return base


def _family(headers: typing.Any, wire: str) -> "_Family | None":
    """Which SDK made a request, told by its own headers."""
    if "x-stainless-lang" not in headers:
        return None
    agent = str(headers.get("user-agent", "")).partition("/")[0].lower()
    guess = "anthropic" if wire == "messages" else "openai"
    for name in (agent.removeprefix("async"), guess):
        module = sys.modules.get(name)
        if module is not None and hasattr(module, "APIStatusError"):
            return _Family(module)
    return None


def _joined(kind: "type[Refused]", base: type) -> type:
    """The class that is both; made once."""
    found = _CLASSES.get((kind, base))
    if found is None:
        found = _CLASSES[kind, base] = type(
            kind.__name__ + base.__name__, (kind, base),
            {"__module__": __name__, "__doc__":
             f"{base.__name__}, and what fivegates decided: .decision",
             "__init__": getattr(base, "__init__"),  # noqa: B009 - not Refused's
             "__str__": _text,
             "__reduce__": _plain})
    return found


def _text(self: typing.Any) -> str:
    own = Refused.__str__(self)
    message = getattr(self, "message", None)
    return f"{own} ({message})" if message else own


def _plain(self: typing.Any) -> "tuple[typing.Any, ...]":
    """To another process it goes as a plain refusal."""
    plain = (Queued if isinstance(self, Queued) else Refused)(self.decision)
    if isinstance(plain, Queued):
        plain.prior = self.prior
    return plain.__reduce__()


def _body(response: typing.Any) -> object:
    try:
        body = json.loads(response.content)
    except ValueError:
        return response.text or None
    # The SDKs keep the inner object of an error's envelope.
    if isinstance(body, dict) and isinstance(body.get("error"), dict) and (
            "type" not in body):
        return body["error"]
    return body


def _message(response: typing.Any, body: object) -> str:
    inner = body
    if isinstance(body, dict) and isinstance(body.get("error"), dict):
        inner = body["error"]
    if isinstance(inner, dict) and inner.get("message"):
        return str(inner["message"])
    return f"Error code: {response.status_code}"


def _timed_out(error: object) -> bool:
    return isinstance(error, TimeoutError) or (
        "Timeout" in type(error).__name__ and not _connecting(error))


def _connecting(error: object) -> bool:
    return type(error).__name__ in ("ConnectTimeout", "PoolTimeout")


def told(refused: Refused, http: typing.Any, request: typing.Any,
         wire: str, response: typing.Any,
         error: "BaseException | None") -> typing.Any:
    """What the client gets for a refusal: an exception, or a response.

    A client of no known SDK gets the last error answer as the response it
    waits for, with the refusal in its extensions["fivegates"]. http is httpx
    or httpx2; response the last error answer, read, or None; error the last
    exception of the wire, or None.
    """
    family = _family(request.headers, wire)
    genai = sys.modules.get("google.genai.errors")
    if response is None and error is None:
        response = _hinted(refused, http, request)
    out: typing.Any
    if response is not None and family is not None:
        body = _body(response)
        base = family.for_status(response.status_code)
        out = _joined(type(refused), base)(
            _message(response, body), response=response, body=body)
    elif response is not None and genai is not None and (
            wire == "generateContent"):
        base = (genai.ClientError if response.status_code < 500
                else genai.ServerError)
        body = _body(response)
        out = _joined(type(refused), base)(
            response.status_code,
            body if isinstance(body, dict) else {"message": str(body)},
            response)
    elif response is not None:
        response.headers["x-should-retry"] = "false"
        response.extensions["fivegates"] = refused
        return response
    elif family is not None and _timed_out(error):
        out = _joined(type(refused), family.module.APITimeoutError)(
            request=request)
    elif family is not None:
        out = _joined(type(refused), family.module.APIConnectionError)(
            message=str(error), request=request)
    else:
        base = (type(error) if isinstance(error, http.TransportError)
                else http.ReadTimeout if _timed_out(error)
                else http.RemoteProtocolError)
        out = _joined(type(refused), base)(str(error), request=request)
    out.decision, out.call = refused.decision, refused.call
    out.answer = refused.answer
    if isinstance(refused, Queued):
        out.prior = refused.prior
    out.__cause__ = error
    return out


def _hinted(refused: Refused, http: typing.Any, request: typing.Any) -> typing.Any:
    """An answer in words for a call that was refused before any request."""
    decision = refused.decision
    headers = {"x-should-retry": "false", "content-type": "application/json"}
    if decision.hint_retry_after_ms:
        headers["retry-after"] = str(-(-decision.hint_retry_after_ms // 1000))
    message = f"fivegates: {decision.reason}"
    return http.Response(
        decision.hint_status or _UNAVAILABLE, headers=headers, request=request,
        content=json.dumps({"error": {
            "message": message, "type": "fivegates",
            "code": decision.reason}}).encode())
