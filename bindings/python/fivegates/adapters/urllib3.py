"""urllib3 asks the engine: a Retry that is made for one request.

    retries = EngineRetry(engine, "support-answer", prompt_tokens=900)
    http.request("POST", url, json=body, headers=retries.attempt.headers | key,
                 retries=retries, timeout=retries.timeout())

urllib3 has no hook before the first send, so permission for it is asked when
the object is made: that is where a Refused of an untouched request comes from
and where it may wait. Make it right before the request, one for each; as the
default of a pool it is refused at its second use.

A refusal after a failure raises MaxRetryRefused: urllib3's own MaxRetryError
and fivegates.Refused in one, with .reason (what failed) and .decision (why it
ends). With raise_on_status=False the last answer is returned instead, its
.retries.refused set.

What it cannot see: the body of a good answer. Usage, finish reason, an error
inside a 200, a rejected output and a stream that breaks off stay unknown: the
worst case stays charged to the budget, and a stream is taken as answered at
its head. It cannot change the host, the key or the body either, so nothing
falls back and no step of the ladder is sent; fivegates.adapters.requests can.
Redirects are not followed: each would be another send. A full pool
(EmptyPoolError) and an interrupted request pass by unseen; the call is
dropped, and nobody blamed.
"""

from __future__ import annotations

import copy
import time
import typing

import urllib3
from urllib3.exceptions import HTTPError, MaxRetryError, ResponseError
from urllib3.util.retry import RequestHistory, Retry

from fivegates.adapters.guard import Calls, Guard
from fivegates.errors import Refused, StateError

if typing.TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Unpack
    from urllib3.connectionpool import ConnectionPool
    from urllib3.response import BaseHTTPResponse

    from fivegates._core import Engine, _Options
    from fivegates.attempt import Attempt

__all__ = ["EngineRetry", "MaxRetryRefused"]

_BODY_BYTES = 65536  # of an error's answer, as the engine reads no more


class MaxRetryRefused(MaxRetryError, Refused):
    """The engine ended the request: decision and call say why, reason and
    __cause__ what failed."""

    def __init__(self, pool: typing.Any, url: str, reason: Exception,
                 refused: Refused) -> None:
        MaxRetryError.__init__(self, pool, url, reason)
        self.decision = refused.decision
        self.call = refused.call

    def __str__(self) -> str:
        return f"{self.args[0]}: {Refused.__str__(self)}"

    def __reduce__(self) -> "tuple[typing.Any, ...]":
        return Refused(self.decision).__reduce__()


class _Answered(ResponseError):
    """An error's answer, with what the engine needs of it."""

    def __init__(self, response: "BaseHTTPResponse") -> None:
        super().__init__(self.SPECIFIC_ERROR.format(
            status_code=response.status))
        self.evidence = {"phase": "response", "status": response.status,
                         "headers": list(response.headers.items()),
                         "body": _body(response)}


def _body(response: "BaseHTTPResponse") -> bytes:
    try:
        return response.read(_BODY_BYTES, decode_content=True) or response.data
    except HTTPError:  # the head says enough
        return b""


class _Request:
    """What the steps of one request share: urllib3 copies its Retry."""

    def __init__(self, guard: Guard) -> None:
        self.guard = guard
        self.refused: "Refused | None" = None
        self.failed: "tuple[typing.Any, str, Exception] | None" = None

    def refuse(self) -> typing.NoReturn:
        """Raises what ended the request, or says that it was answered."""
        if self.failed is None:
            raise StateError("this EngineRetry has served its request; make "
                             "one for each")
        if self.refused is None:
            raise MaxRetryError(*self.failed) from self.failed[2]
        raise MaxRetryRefused(*self.failed, self.refused) from self.failed[2]


class EngineRetry(Retry):
    """The retries of one request, decided by the engine.

    call is the engine's. sleep replaces time.sleep; raise_on_status is
    urllib3's. options are those of engine.run(): facts of Engine.begin(),
    on_decision, ledger, evidence. Raises Refused when not even a first send
    is allowed.
    """

    def __init__(self, engine: "Engine", workflow: str, *,
                 sleep: "typing.Callable[[float], object]" = time.sleep,
                 raise_on_status: bool = True,
                 **options: "Unpack[_Options]") -> None:
        super().__init__(total=None, allowed_methods=None,
                         raise_on_status=raise_on_status,
                         raise_on_redirect=raise_on_status)
        self._sleep = sleep
        calls = Calls(engine, workflow, **options)
        calls.reraise = False  # MaxRetryRefused is urllib3's own error already
        guard = calls.begin({}, unable=("reroute", "edit"))
        self._request = _Request(guard)
        self.call = guard.call
        guard.ready(sleep)

    @property
    def refused(self) -> "Refused | None":
        """The refusal, once there is one."""
        return self._request.refused

    @property
    def attempt(self) -> "Attempt":
        """The attempt that may be sent, or runs."""
        attempt = self._request.guard.attempt
        if attempt is None:
            raise StateError("no attempt is running")
        return attempt

    def timeout(self) -> urllib3.Timeout:
        """The engine's time-outs, for urlopen(timeout=...)."""
        return urllib3.Timeout(connect=self.attempt.connect_s,
                               read=self.attempt.read_s)

    def new(self, **kw: typing.Any) -> "EngineRetry":
        """The same request's, later: urllib3 makes one for each step."""
        out = copy.copy(self)
        for name, value in kw.items():
            setattr(out, name, value)
        return out

    def is_retry(self, method: str, status_code: int,
                 has_retry_after: bool = False) -> bool:
        """Hears of every answer's status; True leads to increment()."""
        guard = self._request.guard
        if guard.ended:
            self._request.refuse()
        if not 200 <= status_code < 300:
            return True
        self.attempt.accepted()
        guard.finished()
        self._request.failed = None
        return False

    def increment(self, method: "str | None" = None, url: "str | None" = None,
                  response: "BaseHTTPResponse | None" = None,
                  error: "Exception | None" = None,
                  _pool: "ConnectionPool | None" = None,
                  _stacktrace: "TracebackType | None" = None) -> "EngineRetry":
        """Tells the engine what failed; raises MaxRetryRefused."""
        request = self._request
        if request.guard.ended:
            request.refuse()
        reason = error or (_Answered(response) if response is not None
                           else ResponseError(ResponseError.GENERIC_ERROR))
        pool: typing.Any = _pool
        request.failed = (pool, url or "", reason)
        try:
            request.guard.failed(reason)
        except Refused as refused:
            request.refused = refused
            request.refuse()
        if response is not None and response.get_redirect_location():
            request.guard.gone()
            request.refuse()
        return self.new(history=self.history + (RequestHistory(
            method, url, error, response.status if response else None, None),))

    def sleep(self, response: "BaseHTTPResponse | None" = None) -> None:
        """Waits as decided and asks permission for the next send."""
        try:
            self._request.guard.ready(self._sleep)
        except Refused as refused:
            self._request.refused = refused
            self._request.refuse()
