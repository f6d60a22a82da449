"""requests asks the engine: an adapter that sends each request to a model.

    session = requests.Session()
    session.mount("https://api.openai.com/", EngineAdapter(engine, "support-answer"))
    answer = session.post(url, json=body, headers=key)

Each request to a model that goes through the adapter is a call of the engine;
any other passes untouched. A stand-in that speaks the same API gets the same
request at its own base_url, with its own key and model. A stream is held until
its first content, so until then another route can still serve it; after that
the caller hears of a cut as Refused while reading. A refusal raises Refused
from requests' exception; with reraise=True that exception, its .refused set,
or the error's answer, its .refused set.

What it cannot see: how far a request came but for what the exception's class
proves (in doubt it was sent, and an interactive call is not sent to the same
route again), and silence while requests waits: the read time-out ends it. A
streamed body that is read without stream=True is shown to nobody before its
end, so all of it may be sent again; it counts as a whole answer. A redirect is
a failure: following it would be another send.
"""

from __future__ import annotations

import time
import typing

import requests
import requests.adapters

from urllib3.exceptions import DecodeError, ProtocolError, TimeoutError

from fivegates._core import (
    SAW_ERROR,
    SAW_TOKEN,
    SAW_TOOL_ARGS,
)
from fivegates.adapters.aim import Aim, whole_answer
from fivegates.adapters.guard import Calls, Guard
from fivegates.errors import ArgumentError
from fivegates.stream import StreamError, StreamWatcher
from fivegates.transport.targets import Targets

if typing.TYPE_CHECKING:
    from typing_extensions import Unpack

    from fivegates._core import Engine, _Options
    from fivegates.attempt import Attempt

__all__ = ["EngineAdapter"]

_CONTENT = SAW_TOKEN | SAW_TOOL_ARGS
_HELD_BYTES = 1 << 20  # of a stream without content; an endless one is let go


class EngineAdapter(requests.adapters.HTTPAdapter):
    """An HTTPAdapter that sends requests to models as the engine decides.

    keys: keys of routes by name, instead of the environment's. any_model: send
    requests for another model than the card's with the card's. facts(request)
    answers facts of one request; the body's own (stream, limits, tools, an
    estimate of the tokens) are known. sleep replaces time.sleep. pool: other
    arguments of HTTPAdapter. options are those of engine.run(): facts of
    Engine.begin(), on_decision, ledger, evidence, reraise.
    """

    def __init__(self, engine: "Engine", workflow: str, *,
                 keys: "typing.Mapping[str, str] | None" = None,
                 any_model: bool = False,
                 facts: "typing.Callable[[requests.PreparedRequest], dict[str, typing.Any]] | None" = None,
                 sleep: "typing.Callable[[float], object]" = time.sleep,
                 pool: "typing.Mapping[str, typing.Any] | None" = None,
                 **options: "Unpack[_Options]") -> None:
        if pool and pool.get("max_retries"):
            raise ArgumentError("max_retries: the engine retries; leave it out")
        super().__init__(**dict(pool or {}))
        self._calls = Calls(engine, workflow, **options)
        self._targets = Targets(engine.policy, keys or {}, any_model)
        self._facts = facts
        self._sleep = sleep

    def send(self, request: requests.PreparedRequest, stream: bool = False,
             timeout: typing.Any = None, verify: typing.Any = True,
             cert: typing.Any = None, proxies: typing.Any = None,
             ) -> requests.Response:
        """One request of the caller's, however many go over the wire."""
        aim = Aim.of(self._targets, str(request.method), str(request.url),
                     request.headers, request.body)

        def wire(sent: requests.PreparedRequest, limit: typing.Any,
                 streamed: bool) -> requests.Response:
            return super(EngineAdapter, self).send(
                sent, stream=streamed, timeout=limit, verify=verify, cert=cert,
                proxies=proxies)

        if aim is None:
            return wire(request, timeout, stream)
        found = aim.model.facts()
        if not stream:
            found["delivery"] = "whole"  # the caller sees nothing before its end
        if self._facts is not None:
            found.update(self._facts(request))
        try:
            guard = self._calls.begin(found, lacks=aim.lacks)
            while True:
                attempt = guard.ready(self._sleep)
                try:
                    response = wire(_aimed(request, aim, attempt),
                                    timeout or _timeout(attempt),
                                    aim.model.streamed)
                    answer = _judged(response, attempt, guard, aim, stream)
                except BaseException as exc:
                    guard.failed(exc)
                    continue
                if answer is _GIVEN or guard.succeeded(answer):
                    return response
                response.close()
        except requests.HTTPError as exc:  # reraise=True: as without an engine
            last: typing.Any = exc.response
            if last is None or not hasattr(exc, "refused"):
                raise
            last.refused = exc.refused
            return typing.cast(requests.Response, last)


_GIVEN = object()


def _aimed(request: requests.PreparedRequest, aim: Aim,
           attempt: "Attempt") -> requests.PreparedRequest:
    url, headers, content = aim.at(attempt)
    out = request.copy()
    out.url, out.body = url, content
    for name, value in headers.items():
        out.headers.pop(name, None)
        if value:
            out.headers[name] = value
    return out


def _timeout(attempt: "Attempt") -> "tuple[float | None, float | None]":
    return attempt.connect_s, attempt.read_s


def _judged(response: requests.Response, attempt: "Attempt", guard: Guard,
            aim: Aim, stream: bool) -> object:
    """The answer for the engine; _GIVEN where the caller reads it. Raises
    what failed."""
    if not 200 <= response.status_code < 300:
        response.content  # noqa: B018: read it, and free the connection
        raise requests.HTTPError(f"{response.status_code} {response.reason}",
                                 response=response)
    attempt.accepted()
    if not aim.model.streamed:
        return whole_answer(response.status_code, response.headers,
                            response.content)
    watched = _Watched(response.raw, guard, StreamWatcher(attempt))
    try:
        more = watched.hold(attempt, whole=not stream)
    except BaseException:
        response.close()
        raise
    response.raw = watched
    if not more:
        return None  # it has ended, and the attempt has heard all of it
    guard.given()
    return _GIVEN


class _Watched:
    """The raw body of a stream, heard by the engine as the caller reads."""

    def __init__(self, raw: typing.Any, guard: Guard,
                 watcher: StreamWatcher) -> None:
        self._raw = raw
        self._guard = guard
        self._watcher = watcher
        self._held: "list[bytes]" = []
        self._chunks = self._read()

    def __getattr__(self, name: str) -> typing.Any:
        return getattr(self._raw, name)

    def _read(self) -> "typing.Iterator[bytes]":
        """What came, as it came; StreamError at a bad end."""
        chunks = (self._raw.stream(65536, decode_content=True)
                  if self._raw.chunked else
                  iter(lambda: self._raw.read1(65536, decode_content=True), b""))
        try:
            for chunk in chunks:
                if self._watcher.feed(chunk) & SAW_ERROR:
                    break
                if chunk:
                    yield chunk
        except (ProtocolError, DecodeError) as exc:
            raise requests.exceptions.ChunkedEncodingError(exc) from exc
        except TimeoutError as exc:
            raise requests.exceptions.ReadTimeout(exc) from exc
        self._watcher.close()

    def hold(self, attempt: "Attempt", whole: bool) -> bool:
        """Reads up to the first content, or all. False: it has ended well."""
        size = 0
        for chunk in self._chunks:
            self._held.append(chunk)
            size += len(chunk)
            if not whole and (self._watcher.saw & _CONTENT
                              or size > _HELD_BYTES):
                return True
            late = attempt.first_token_s
            if (late and not self._watcher.saw & _CONTENT
                    and time.monotonic() - attempt.started > late):
                raise StreamError("no content in time", {
                    "phase": "stream", "status": 200,
                    "timeout": "first_token_timeout"})
        return False

    def stream(self, amt: "int | None" = 65536,
               decode_content: "bool | None" = None) -> "typing.Iterator[bytes]":
        """Chunks as they come, whatever their size."""
        while True:
            while self._held:
                yield self._held.pop(0)
            try:
                chunk = next(self._chunks, None)
            except BaseException as exc:
                self._raw.close()
                self._guard.cut(exc)
            if chunk is None:
                self._guard.finished()
                return
            yield chunk

    def read(self, amt: "int | None" = None,
             decode_content: "bool | None" = None,
             cache_content: bool = False) -> bytes:
        """At least one byte, or all; b"" at the end. Chunks as they come."""
        if amt is None:
            return b"".join(self.stream())
        for chunk in self.stream():
            if len(chunk) > amt:
                self._held.insert(0, chunk[amt:])
            return chunk[:amt]
        return b""

    def close(self) -> None:
        """The caller has enough."""
        self._guard.closed(self._watcher.whole)
        self._raw.close()
