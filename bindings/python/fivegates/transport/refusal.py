"""A refusal as the SDK's own error: what callers already catch.

An SDK built on one of the generated clients (openai, anthropic, groq, ...)
lets its own exceptions pass through from a transport, and retries any other.
So the exception made here is both: Refused, with the decision, and the class
the SDK would have raised for the same failure.
"""

from __future__ import annotations

import datetime
import json
import sys
import typing

from fivegates.errors import Queued, Refused

__all__ = ["passing", "told"]

_CLASSES: "dict[tuple[type, ...], type]" = {}
# A refusal before any request has no answer of a server; the status an outer
# layer is told, where the decision names none: unavailable.
_UNAVAILABLE = 503
# But a key that was rejected, a limit or an empty account is the same error
# to the caller whether it was just heard of or is remembered.
_REMEMBERED = {"auth": 401, "quota": 429, "rate": 429}
# SDKs that let their own exceptions pass through from a transport. Others
# retry any exception, but heed x-should-retry on a response.
_PASSING = {"openai": "OpenAIError", "anthropic": "AnthropicError"}


class _Family(typing.NamedTuple):
    """The errors of one SDK."""

    module: typing.Any

    @property
    def passing(self) -> "type[Exception] | None":
        """The base of those it lets pass through; None: of none."""
        return getattr(self.module, _PASSING.get(self.module.__name__, ""),
                       None)

    def for_status(self, status: int) -> type:
        """The class of an error answer: by its status, as the SDK does."""
        base: type = self.module.APIStatusError
        for value in list(vars(self.module).values()):  # SDKs load lazily
            # isinstance() would wake what the SDK loads when it is first used.
            if (type(value) is type and issubclass(value, base)
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


def _joined(kind: "type[Refused]", base: type, *more: type) -> type:
    """The class that is all of them, made as the last one; made once."""
    key = (kind, base, *more)
    if key not in _CLASSES:
        _CLASSES[key] = type(
            kind.__name__ + base.__name__, key,
            {"__module__": __name__, "__doc__":
             f"{base.__name__}, and what fivegates decided: .decision",
             "__init__": getattr(key[-1], "__init__"),  # noqa: B009 - not Refused's
             "__str__": _text})
    return _CLASSES[key]


def _text(self: typing.Any) -> str:
    own = Refused.__str__(self)
    message = getattr(self, "message", None)
    return f"{own} ({message})" if message else own


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
    if "x-stainless-lang" in request.headers and (
            family is None or family.passing is None):
        family, error = None, None  # it gets a response, which it heeds
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
        # It is not raised here, and its traceback leads back to the response.
        response.extensions["fivegates"] = refused.with_traceback(None)
        return response
    elif family is not None:
        base = (family.module.APITimeoutError if _timed_out(error)
                else family.module.APIConnectionError)
        out = _disconnected(family, type(refused), base)(
            str(error), _hinted(refused, http, request))
    else:
        base = (type(error) if isinstance(error, http.TransportError)
                else http.ReadTimeout if _timed_out(error)
                else http.RemoteProtocolError)
        out = _joined(type(refused), base)(str(error), request=request)
    out.decision, out.call = refused.decision, refused.call
    out.answer, out.at_s = refused.answer, refused.at_s
    if isinstance(refused, Queued):
        out.prior = refused.prior
    out.__cause__ = error
    return out


def _disconnected(family: _Family, kind: "type[Refused]", base: type,
                  ) -> "typing.Callable[[str, typing.Any], typing.Any]":
    """Makes a connection error of a message and a response in words."""
    if family.module.__name__ == "anthropic":
        # This SDK sends again after any connection error; but of one that has
        # a status it asks the response.
        status = family.module.APIStatusError
        return lambda message, response: _joined(kind, base, status)(
            message, response=response, body=_body(response))
    if issubclass(base, family.module.APITimeoutError):
        return lambda message, response: _joined(kind, base)(
            request=response.request)
    return lambda message, response: _joined(kind, base)(
        message=message, request=response.request)


def passing(exc: BaseException, request: typing.Any,
            wire: str) -> BaseException:
    """An exception of the host's as one that no SDK retries: its own class
    and the SDK's in one, caused by it. Without an SDK it is the same."""
    family = _family(request.headers, wire)
    base = family.passing if family is not None else None
    if base is None or not isinstance(exc, Exception) or isinstance(exc, base):
        return exc
    key = (type(exc), base)
    try:
        if key not in _CLASSES:
            _CLASSES[key] = type(type(exc).__name__, key, {
                "__module__": type(exc).__module__,
                "__doc__": type(exc).__doc__})
        out = typing.cast(Exception, _CLASSES[key].__new__(
            _CLASSES[key], *exc.args))
    except TypeError:  # classes that Python cannot join, or make so
        return exc
    out.__dict__.update(exc.__dict__)
    out.args, out.__cause__ = exc.args, exc
    return out


def _hinted(refused: Refused, http: typing.Any, request: typing.Any) -> typing.Any:
    """An answer in words for a call that was refused before any request."""
    decision = refused.decision
    headers = {"x-should-retry": "false", "content-type": "application/json"}
    if decision.hint_retry_after_ms:
        headers["retry-after"] = str(-(-decision.hint_retry_after_ms // 1000))
    message = f"fivegates: {decision.reason}"
    status = decision.hint_status or _UNAVAILABLE
    if status == _UNAVAILABLE:
        status = _REMEMBERED.get(decision.owner, status)
    out = http.Response(
        status, headers=headers, request=request,
        content=json.dumps({"error": {
            "message": message, "type": "fivegates",
            "code": decision.reason}}).encode())
    out.elapsed = datetime.timedelta()
    return out
