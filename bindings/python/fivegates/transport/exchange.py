"""One guarded request, without the wire: what to do next, and what came of it.

guard() is a generator. It yields what a driver must do and is sent what came
of it; exceptions of the wire are thrown into it. So the sync and the async
transport share every line that decides.

    ("open", request, trace)    send it: the response, its head read
    ("read", decoded, until)    the next bytes of its body, unpacked or as on
                                the wire, None at its end; Late when nothing
                                came until then (monotonic seconds or None)
    ("close",)                  hang up
    ("sleep", seconds)          wait
    ("ask", function, args)     call a function of the host's
"""

from __future__ import annotations

import json
import time
import typing
import warnings

from fivegates.answers import answer_of
from fivegates.attempt import Attempt
from fivegates.errors import Refused
from fivegates.evidence import evidence_of
from fivegates.runner import Driven
from fivegates.stream import StreamError, StreamWatcher
from fivegates.transport import synthetic
from fivegates.transport.options import (
    CallOptions,
    Options,
    Unreachable,
    current,
    key_headers,
)
from fivegates.transport.phases import Trace
from fivegates.transport.refusal import told
from fivegates.transport.request import ModelRequest, edited

from fivegates._core import (
    SAW_ERROR,
    SAW_MALFORMED,
    SAW_TERMINAL,
    SAW_TOKEN,
    SAW_TOOL_ARGS,
)

if typing.TYPE_CHECKING:
    from fivegates._core import Decision, Unable

__all__ = ["Exchange", "Late"]

Steps = typing.Generator[typing.Tuple[typing.Any, ...], typing.Any, typing.Any]
_CONTENT = SAW_TOKEN | SAW_TOOL_ARGS
# What is held of a stream before its first content: beyond it the head is
# released, as an endless prologue must not fill the memory.
_HELD_BYTES = 1 << 20
# Of an error answer, what is kept: the scanner reads no more.
_ERROR_BYTES = 1 << 20


class Late(Exception):
    """Nothing came before one of the engine's clocks ran out."""


class _Guarded(Driven):
    """The loop of a run, for a sender that may be unable to send."""

    def __init__(self, exchange: "Exchange", workflow: str,
                 facts: "dict[str, typing.Any]") -> None:
        options = exchange.options
        self.exchange = exchange
        super().__init__(
            options.engine, workflow, on_decision=exchange.heard,
            ledger=options.ledger,
            cached=exchange.cached if options.cached else None,
            preset=exchange.preset if options.preset else None,
            queue=None, clear=None, evidence=None, outcome=False,
            reraise=False, tick=False, call=None, facts=facts)

    def lacks(self, decision: "Decision") -> "Unable | None":
        return self.exchange.lacks(decision)


class Exchange:
    """One request of the client's, however many go over the wire for it."""

    def __init__(self, http: typing.Any, options: Options, request: typing.Any,
                 model: ModelRequest, body: "typing.Callable[[GivenAway], typing.Any]") -> None:
        self.http = http
        self.options = options
        self.request = request
        self.extensions = request.extensions
        self.timeouts = request.extensions.get("timeout") or {}
        self.model = model
        self.body = body  # makes the client's stream of a GivenAway
        self.seen: "CallOptions | None" = current()
        self.response: typing.Any = None  # the last error answer
        self.error: "BaseException | None" = None
        facts = options.facts_of(model, self.seen)
        inner = _sdk_retries(request.headers)
        if inner and "prior" not in facts:
            facts["prior"] = {"attempts": inner}
        if self.seen is not None:
            self.seen.decisions.clear()
        self.driven = _Guarded(self, options.workflow_of(self.seen), facts)
        self.call = self.driven.call
        self.primary = self.driven.primary
        if self.seen is not None:
            self.seen.call = self.call

    # ---- what the loop asks

    def heard(self, decision: "Decision", call: typing.Any) -> None:
        if self.seen is not None:
            self.seen.decisions.append(decision)
        if self.options.on_decision is not None:
            self.options.on_decision(decision, call)

    def lacks(self, decision: "Decision") -> "Unable | None":
        """What of a decision this client cannot do."""
        if "compact" in decision.change and self.options.compact is None:
            return "edit"
        if "no_stream" in decision.change or "stream" in decision.change:
            return "edit"
        if decision.route is None or decision.route == self.primary:
            return None
        route = self.options.engine.policy.route(decision.route)
        if route["api"] and route["api"] != self.model.wire:
            return "reroute"
        try:
            self._target(route)
        except Unreachable as why:
            warnings.warn(str(why), RuntimeWarning, stacklevel=2)
            return "reroute"
        return None

    def preset(self, decision: "Decision") -> typing.Any:
        make = self.options.preset
        text = make(decision) if callable(make) else decision.text
        return None if text is None else synthetic.text_response(
            self.http, self.model, text, decision)

    def cached(self, decision: "Decision") -> typing.Any:
        assert self.options.cached is not None
        text = self.options.cached(self.model.body, decision)
        return None if text is None else synthetic.text_response(
            self.http, self.model, text, decision)

    # ---- requests

    def _target(self, route: "dict[str, typing.Any]") -> "tuple[str, str | None, bool]":
        return self.options.target(route, route["name"] == self.primary,
                                   self.model, self.request)

    def _prepared(self, attempt: Attempt, route: "dict[str, typing.Any]",
                  ) -> typing.Any:
        """The request as this attempt sends it: the client's own, edited."""
        url, key, own_key = self._target(route)
        changes = attempt.changes
        compacted = None
        if "compact" in changes and self.options.compact is not None:
            compacted = self.options.compact(self.model.body,
                                             changes["compact"])
        content = edited(self.model, route["model"], changes, attempt.drops,
                         compacted)
        own = self.request
        out = own
        if (content is not self.model.content or not own_key
                or url != str(own.url)):
            headers = own.headers.copy()
            if content is not self.model.content:
                headers["content-length"] = str(len(content))
            if url != str(own.url):
                headers.pop("host", None)
            if not own_key:
                for name, value in key_headers(own.headers, route["provider"],
                                               key).items():
                    headers.pop(name, None)
                    if value:
                        headers[name] = value
            out = self.http.Request(own.method, url, headers=headers,
                                    content=content)
        for name, value in attempt.headers.items():
            out.headers[name] = value
        out.extensions = {**self.extensions, "timeout": self._timeouts(attempt)}
        return out

    def _timeouts(self, attempt: Attempt) -> "dict[str, float | None]":
        """The client's time-outs, cut to the engine's."""
        first = (attempt.first_token_s if self.model.streamed
                 else attempt.total_s or attempt.first_token_s)
        own, connect = self.timeouts.get, attempt.connect_s
        return {"connect": _least(own("connect"), connect),
                "write": _least(own("write"), connect),
                "pool": _least(own("pool"), connect),
                "read": _least(own("read"), first)}

    def refused(self, refused: Refused) -> typing.Any:
        """Raises what the SDK's callers catch, or answers a response."""
        out = told(refused, self.http, self.request, self.model.wire,
                   self.response, self.error)
        if isinstance(out, BaseException):
            raise out
        return out

    # ---- the loop

    def guard(self) -> Steps:
        """Runs the call; returns what the client gets: a response."""
        steps = self.driven.steps()
        reply: typing.Any = None
        while True:
            try:
                todo = steps.send(reply)
            except StopIteration as stop:
                return stop.value
            if todo[0] == "send":
                reply = yield from self._send(todo[1])
            else:
                reply = yield todo

    def _send(self, attempt: Attempt) -> Steps:
        route = self.options.engine.policy.route(attempt.route or "")
        trace = Trace(attempt.sent, self.extensions.get("trace"))
        try:
            request = self._prepared(attempt, route)
        except Unreachable as why:
            return self._failed(attempt, why, {
                "origin": "local", "phase": "connect",
                "transport": {"lib": "fivegates", "kind": "Unreachable",
                              "message": str(why)}})
        if self.seen is not None:
            self.seen.attempts += 1
        try:
            response = yield "open", request, trace
        except Exception as exc:
            return self._broken(attempt, exc, trace)
        if not attempt.sent_said:
            attempt.sent()
        if 300 <= response.status_code < 400:
            self.call.end()  # the client follows it, or not
            return "begun", response
        if response.status_code >= 400:
            return (yield from self._refused(attempt, response, trace))
        attempt.accepted()
        if self.model.streamed and "json" not in str(
                response.headers.get("content-type")):
            # From the head on a read waits for bytes, not for the answer. The
            # client's HTTP package looks this up when the body is first read.
            request.extensions["timeout"]["read"] = _least(
                self.timeouts.get("read"), attempt.idle_s)
            return (yield from self._streamed(attempt, response, trace))
        return (yield from self._whole(attempt, response, trace))

    def _failed(self, attempt: Attempt, error: "BaseException | None",
                evidence: "dict[str, typing.Any]") -> "tuple[str, Decision]":
        self.error = self.driven.error = error
        self.response = None
        return "decided", self.call.failure(attempt.evidence(evidence),
                                            attempt=attempt.number)

    def _broken(self, attempt: Attempt, exc: Exception, trace: Trace,
                ) -> "tuple[str, Decision]":
        """An exception of the wire."""
        if isinstance(exc, Late):
            return self._failed(attempt, exc, {
                "phase": "stream" if attempt.head_seen else "read",
                "timeout": "first_token_timeout" if self.model.streamed
                and not attempt.seen["visible"] else "total_timeout"})
        found = evidence_of(exc)
        if found is None:
            self.driven.gone()
            raise exc  # not of the wire: somebody's bug
        trace.correct(found)
        if found.get("phase") != "connect" and not attempt.sent_said:
            attempt.sent()
        return self._failed(attempt, exc, found)

    def _refused(self, attempt: Attempt, response: typing.Any, trace: Trace,
                 ) -> Steps:
        """An error answer: read whole, told, kept for the client."""
        try:
            yield from self._read_all(response, attempt, _ERROR_BYTES)
        except Exception as exc:
            return self._broken(attempt, exc, trace)
        headers = response.headers.multi_items()
        response.headers["x-should-retry"] = "false"
        response.request = self.request
        self.response = response
        self.error = self.driven.error = None
        return "decided", self.call.failure(attempt.evidence({
            "phase": "response", "status": response.status_code,
            "headers": headers, "body": response.content}),
            attempt=attempt.number)

    def _read_all(self, response: typing.Any, attempt: Attempt,
                  most: "int | None") -> Steps:
        """Puts the body into memory, as far as it is kept."""
        parts: "list[bytes]" = []
        size = 0
        until = (attempt.started + attempt.total_s) if attempt.total_s else None
        while (chunk := (yield "read", False, until)) is not None:
            parts.append(chunk)
            size += len(chunk)
            if most is not None and size > most:
                break
            if until is not None and time.monotonic() > until:
                raise Late("the answer did not end in time")
        yield "close",
        # What came over the wire becomes the body, still packed.
        response.stream = self.http.ByteStream(b"".join(parts))
        response.read()

    def _whole(self, attempt: Attempt, response: typing.Any, trace: Trace,
               ) -> Steps:
        try:
            yield from self._read_all(response, attempt, None)
        except Exception as exc:
            return self._broken(attempt, exc, trace)
        watcher = StreamWatcher(None, self.model.wire, whole=True)  # type: ignore[arg-type]
        body = response.content
        if watcher.feed(body) & (SAW_ERROR | SAW_MALFORMED):
            return self._failed(attempt, None, {
                "phase": "body", "status": response.status_code,
                "headers": response.headers.multi_items(), "body": body,
                "whole_body": True})
        self._label(response, attempt)
        self.driven.result = response
        facts = {**counted(watcher), **answer_of(json.loads(body))}
        return "decided", self.call.success(attempt=attempt.number, **facts)

    def _streamed(self, attempt: Attempt, response: typing.Any, trace: Trace,
                  ) -> Steps:
        """Holds a stream until its first content, or its end."""
        watcher = StreamWatcher(attempt, self.model.wire)  # type: ignore[arg-type]
        held: "list[bytes]" = []
        size = 0
        first = attempt.first_token_s
        until = attempt.started + first if first else None
        try:
            while True:
                chunk = yield "read", True, until
                if chunk is None or watcher.feed(chunk) & SAW_ERROR:
                    break
                held.append(chunk)
                size += len(chunk)
                if watcher.saw & _CONTENT or size > _HELD_BYTES:
                    if not attempt.seen["visible"]:
                        attempt.token(1)  # given away: no way to take it back
                    return "begun", self._response(response, self.body(
                        GivenAway(self, attempt, watcher, held)), attempt)
                if until is not None and time.monotonic() > until:
                    raise Late("no content in time")
        except Exception as exc:
            yield "close",
            return self._broken(attempt, exc, trace)
        yield "close",
        evidence = ended(watcher)
        if evidence is not None:
            return self._failed(attempt, None, evidence)
        self.driven.result = self._response(
            response, self.http.ByteStream(b"".join(held)), attempt)
        return "decided", self.call.success(attempt=attempt.number,
                                            **counted(watcher))

    def _response(self, wire: typing.Any, stream: typing.Any,
                  attempt: Attempt) -> typing.Any:
        """A stream's answer for the client: unpacked, and labelled."""
        headers = wire.headers.copy()
        if "content-encoding" in headers:
            headers.pop("content-encoding")
            headers.pop("content-length", None)
        out = self.http.Response(wire.status_code, headers=headers,
                                 stream=stream, extensions=wire.extensions)
        self._label(out, attempt)
        return out

    def _label(self, response: typing.Any, attempt: Attempt) -> None:
        response.extensions["fivegates"] = {
            "call": self.call.id, "route": attempt.route,
            "attempt": attempt.number}
        if attempt.route != self.primary:
            response.headers["x-fivegates-route"] = str(attempt.route)


class GivenAway:
    """A stream whose first content the client has: nothing is sent again.

    Hears every later chunk, and tells the engine how the stream ended, once.
    """

    def __init__(self, exchange: Exchange, attempt: Attempt,
                 watcher: StreamWatcher, held: "list[bytes]") -> None:
        self.exchange = exchange
        self.held = held
        self.over = False
        self._attempt = attempt
        self._watcher = watcher
        self._look_at = attempt.started + (attempt.decision.wake_ms or 0) / 1000

    def heard(self, chunk: bytes) -> None:
        """A chunk came; raises when the stream has failed with it."""
        if self._watcher.feed(chunk) & SAW_ERROR:
            self.ended()
        elif time.monotonic() >= self._look_at:
            self._look()

    def _look(self) -> None:
        """The engine's clocks: content may pause though bytes come."""
        decision = self.exchange.call.deadline()
        if decision.action != "keep_waiting":
            self._finish(decision, Late(f"{decision.kind} in a stream"))
        wait = decision.wake_ms or decision.wait_ms or 1000
        self._look_at = time.monotonic() + wait / 1000

    def ended(self) -> None:
        """The stream is at its end, or has carried an error event."""
        if self.over:
            return
        call, number = self.exchange.call, self._attempt.number
        evidence = ended(self._watcher)
        if evidence is None:
            self._finish(call.success(attempt=number,
                                      **counted(self._watcher)), None)
            return
        error = StreamError("an error event in the stream"
                            if self._watcher.saw & SAW_ERROR
                            else "the stream ended without its end", evidence)
        self._finish(call.failure(self._attempt.evidence(evidence),
                                  attempt=number), error)

    def broke(self, exc: Exception) -> None:
        """The wire raised; raises a refusal, or the exception itself."""
        if self.over:
            raise exc
        found = evidence_of(exc)
        if found is None:
            self.left()
            raise exc
        self._finish(self.exchange.call.failure(
            self._attempt.evidence(found), attempt=self._attempt.number), exc)

    def left(self) -> None:
        """The client closed: after the answer's own end that is the end."""
        if self.over:
            return
        if self._watcher.saw & SAW_TERMINAL and not self._watcher.saw & SAW_ERROR:
            self.ended()
            return
        self.over = True
        self.exchange.driven.gone()

    def _finish(self, decision: "Decision", error: "BaseException | None") -> None:
        self.over = True
        driven = self.exchange.driven
        driven.told(decision)
        driven.end(decision, None)
        if error is not None:
            raise told(Refused(decision, driven.call), self.exchange.http,
                       self.exchange.request, self.exchange.model.wire, None,
                       error)


def ended(watcher: StreamWatcher) -> "dict[str, typing.Any] | None":
    """Evidence of a stream that has ended badly; None: it ended well."""
    if not watcher.saw & SAW_ERROR and watcher.saw & SAW_TERMINAL:
        return None
    evidence = watcher.scanner.evidence()
    evidence["whole_body"] = True
    return evidence


def counted(watcher: StreamWatcher) -> "dict[str, typing.Any]":
    """Arguments of Call.success() that the scanner knows."""
    answer = watcher.scanner.answer()
    out = {name: answer[name] for name in (
        "prompt_tokens", "output_tokens", "cached_tokens", "cost_nusd")
        if answer[name]}
    out["visible"] = answer["visible"]
    if answer["finish_reason"] != "none":
        out["finish_reason"] = answer["finish_reason"]
    if answer["final"]:
        out["final"] = True
    return out


def _least(a: "float | None", b: "float | None") -> "float | None":
    return min(n for n in (a, b) if n is not None) if (
        a is not None or b is not None) else None


def _sdk_retries(headers: typing.Any) -> int:
    """How often the SDK has already sent this request by itself."""
    try:
        return max(0, min(int(headers.get("x-stainless-retry-count", "0")),
                          1000))
    except ValueError:
        return 0
