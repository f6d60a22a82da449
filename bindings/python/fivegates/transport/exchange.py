"""One guarded request, without the wire: what to do next, and what came of it.

steps() is a generator. It yields what a driver must do and is sent what came
of it; exceptions of the wire are thrown into it. So the sync and the async
transport share every line that decides.

    ("open", request, trace, until)  send it: the response, its head read
    ("read", until)             the next bytes of its body, unpacked, None at
                                its end; Late when nothing came until then
                                (monotonic seconds or None)
    ("all", parts, most, until) the body as on the wire, or the first `most`
                                bytes of it, put into parts; then hang up
    ("close",)                  hang up
    ("sleep", seconds)          wait
    ("ask", function, args)     call a function of the host's
"""

from __future__ import annotations

import datetime
import functools
import json
import time
import typing
import warnings

from fivegates.answers import answer_of
from fivegates.attempt import Attempt, drops_of
from fivegates.edits import changes_of
from fivegates.errors import EditError, Refused
from fivegates.evidence import evidence_of
from fivegates.driven import Driven
from fivegates.stream import StreamWatcher
from fivegates.transport import synthetic
from fivegates.transport.copies import Copies
from fivegates.transport.given import GivenAway, Late, counted, ended
from fivegates.transport.kept import KeptStream, key_of, text_of_answer
from fivegates.transport.options import CURRENT, CallOptions, Options
from fivegates.transport.phases import Trace
from fivegates.transport.refusal import passing, told
from fivegates.transport.request import ModelRequest, edited
from fivegates.transport.targets import Target, Unreachable, key_headers

from fivegates._core import (
    SAW_ERROR,
    SAW_MALFORMED,
    SAW_REASONING,
    SAW_TOKEN,
    SAW_TOOL_ARGS,
    SseScanner,
)

if typing.TYPE_CHECKING:
    from fivegates._core import Call, Decision, Unable

__all__ = ["Exchange"]

Steps = typing.Generator[typing.Tuple[typing.Any, ...], typing.Any, typing.Any]
_CONTENT = SAW_TOKEN | SAW_TOOL_ARGS
# What is held of a stream before its first content: beyond it the head is
# released, as an endless prologue must not fill the memory.
_HELD_BYTES = 1 << 20
# Of an error answer, what is kept: the scanner reads no more.
_ERROR_BYTES = 1 << 20
# How long its body may pause: the status says enough.
_ERROR_S = 5.0
# Headers that belong to the account of the client's own key.
_OWN_ACCOUNT = ("cookie", "openai-organization", "openai-project")


class Exchange(Driven):
    """One request of the client's, however many go over the wire for it."""

    response: typing.Any = None  # the last error answer
    trace: "Trace | None" = None
    # Makes the client's stream of a GivenAway; whoever drives it has it.
    body: "typing.Callable[[GivenAway], typing.Any]"
    made: "tuple[typing.Any, bytes | None] | None" = None  # the last edit
    facts: "dict[str, typing.Any]"  # those of begin(), where answers are kept
    text: "str | None" = None  # of the answer that is kept
    # What is left of the first attempt, where it was permitted before.
    going: "Steps | None" = None

    def __init__(self, http: typing.Any, copies: Copies, options: Options,
                 request: typing.Any, url: str, model: ModelRequest,
                 seen: "CallOptions | None", call: "Call | None" = None,
                 permit: "Decision | None" = None) -> None:
        """call: one that has begun, permit: a decision of its begin_attempt()."""
        self.http = http
        self.copies = copies
        self.options = options
        self.request = request
        self.url = url  # of the request, as text
        self.extensions = request.extensions
        self.timeouts = request.extensions.get("timeout") or {}
        self.model = model
        self.on_decision = options.on_decision
        self.ledger = options.ledger
        self.seen = seen
        self.since = time.monotonic()
        self.heard = not (seen is None and self.ledger is None
                          and self.on_decision is None)
        if call is not None:
            assert options.workflow is not None
            self.begun(options.engine, options.workflow, model.streamed, call,
                       permit or call.decision)
            return
        facts = options.facts_of(model, seen)
        inner = copies.sdk_retries(request)
        if inner and "prior" not in facts:
            facts["prior"] = {"attempts": inner}
        if seen is not None:
            seen.decisions.clear()
        self.begin(options.engine, options.workflow_of(seen), facts)
        if seen is not None:
            seen.call = self.call
        if options.cache is not None:
            self.cache = options.cache
            self.facts = facts

    def permitted(self, permit: "Decision",
                  started: "float | None" = None) -> Attempt:
        """The first attempt, permitted before; started: of time.monotonic()."""
        attempt = self.attempt = Attempt(
            self.call, permit, self.route(permit.route or ""), self.streamed,
            self.workflow)
        if started is not None:
            attempt.started = self.since = started
        self.attempts = 1
        return attempt

    # ---- what the loop asks

    def _next(self, decision: "Decision") -> typing.Generator[
            typing.Tuple[typing.Any, ...], typing.Any, "Decision | None"]:
        if self.going is None:
            return (yield from super()._next(decision))
        going, self.going = self.going, None
        kind, value = yield from going
        if kind == "begun":
            self.result = value
            return None
        return typing.cast("Decision", value)

    def told(self, decision: "Decision") -> None:
        if self.seen is not None:
            self.seen.decisions.append(decision)
        super().told(decision)

    def lacks(self, decision: "Decision") -> "Unable | None":
        """What of a decision this client cannot do."""
        change, route = decision.change, decision.route
        if change and ("no_stream" in change or "stream" in change
                       or self._content(decision) is None):
            return "edit"
        if route is None or route == self.primary:
            return None
        try:
            self._target(route)
        except Unreachable as why:
            warnings.warn(str(why), RuntimeWarning, stacklevel=2)
            return "reroute"
        return None

    def route(self, name: str) -> "dict[str, typing.Any]":
        return self.options.targets.routes[name]

    def key_of_answer(self) -> str:
        """The key of this request's answer in the cache."""
        assert self.cache is not None
        return key_of(self.cache, self.workflow, self.model, self.facts)

    def kept(self) -> "str | None":
        return self.text

    def _stand_in(self, decision: "Decision") -> Steps:
        made = synthetic.StandIns(self.http, self.model, self.options)
        if decision.ladder_step == "cached" and self.cache is not None:
            found = yield "ask", self.cache.lookup, (self.key_of_answer(),
                                                     decision.max_age_s)
            out = found and made.found(found, decision)
        else:
            self.cached = made.cached if self.options.cached else None
            self.preset = made.preset if self.options.preset else None
            _, out = yield from super()._stand_in(decision)
        if out is not None:
            self._timed(out)
        return out is not None, out

    def _timed(self, response: typing.Any) -> None:
        """A response that no client reads anew: those time what they read."""
        response.elapsed = datetime.timedelta(
            seconds=time.monotonic() - self.since)

    # ---- requests

    def _target(self, name: str) -> Target:
        targets, primary = self.options.targets, self.primary or name
        if name == primary:
            return targets.primary(name, self.model, self.url)
        return targets.stand_in(name, primary, self.model, self.url)

    def _content(self, decision: "Decision") -> "bytes | None":
        """The body as a send by this decision has it; None: no such edit."""
        name = decision.route or ""
        model = self.options.targets.routes[name]["model"]
        if not decision.change:
            if model is None or model == self.model.model:
                return self.model.content
            return edited(self.model, model, {}, _keeps)
        changes = changes_of(decision)
        if self.made is None or self.made[0] != (name, changes):
            self.made = (name, changes), edited(
                self.model, model, changes,
                drops_of(decision, self.engine.policy, self.workflow),
                self.options.targets.routes[name]["provider"],
                self.options.shorten)
        return self.made[1]

    def _prepared(self, attempt: Attempt) -> typing.Any:
        """The request as this attempt sends it: the client's own, edited."""
        url, key, own_key = self._target(attempt.route or "")
        content = self._content(attempt.decision)
        if content is None:  # lacks() was not asked: another decision now
            raise EditError("this request cannot be edited as the engine asks")
        own = self.request
        extensions = {**self.extensions, "timeout": self._timeouts(attempt)}
        if own_key and content is self.model.content and url == self.url:
            return self.copies.stamped(own, self.call.id, attempt.number,
                                       extensions)
        headers = self.http.Headers(own.headers)
        if not own_key:
            for name in [n for n in _OWN_ACCOUNT if n in headers]:
                del headers[name]
            for name, value in key_headers(own.headers, attempt.provider,
                                           key).items():
                headers.pop(name, None)
                if value:
                    headers[name] = value
        for name, value in attempt.headers.items():
            headers[name] = value
        if content is self.model.content and url == self.url:
            return self.copies.changed(own, headers, extensions)
        for name in ("host", "content-length", "transfer-encoding"):
            headers.pop(name, None)  # made anew
        return self.http.Request(own.method, url, headers=headers,
                                 content=content, extensions=extensions)

    def _timeouts(self, attempt: Attempt) -> "dict[str, float | None]":
        """The client's time-outs, cut to the engine's."""
        return shortened(self.timeouts, attempt.connect_s,
                         attempt.first_token_s if self.model.streamed
                         else attempt.total_s or attempt.first_token_s)

    def over(self, exc: BaseException) -> typing.Any:
        """What the client gets when the loop ends by an exception: another
        exception, or for a refusal perhaps a response."""
        self.broken(exc)
        if isinstance(exc, Refused) and exc.call is self.call:
            error, self.error = self.error, None
            return told(exc, self.http, self.request, self.model.wire,
                        self.response, error)
        return passing(exc, self.request, self.model.wire)

    def gone(self) -> None:
        """The caller left: whether something went out is told before."""
        if self.attempt is not None and self.trace is not None:
            if self.trace.sent and not self.attempt.sent_said:
                self.attempt.sent()
            self.trace.clear()
        super().gone()

    # ---- sending

    def send(self, attempt: Attempt) -> Steps:
        """Sends one request; tells the engine what came of it."""
        trace = self.trace = Trace(self.extensions.get("trace"))
        self.attempt = attempt
        total = attempt.total_s
        until = attempt.started + total if total else None  # it must be whole
        try:
            request = self._prepared(attempt)
        except Unreachable as why:
            return self._failed(attempt, why, {
                "origin": "local", "phase": "connect",
                "transport": {"lib": "fivegates", "kind": "Unreachable",
                              "message": str(why)}})
        except EditError as why:
            self.call.unable("edit")
            return self._failed(attempt, why, why.evidence)
        if self.seen is not None:
            self.seen.attempts += 1
        extensions = request.extensions  # whatever is set or taken beneath
        timeouts = extensions["timeout"]
        try:
            response = yield "open", request, trace, (
                _first(attempt) if self.model.streamed else until)
        except Exception as exc:
            return self._broken(attempt, exc, trace)
        if trace.chained is None:  # nobody asks what comes after the head
            extensions.pop("trace", None)
        return (yield from self._opened(attempt, timeouts, trace, response))

    def came(self, attempt: Attempt, timeouts: "dict[str, float | None]",
             response: typing.Any, body: "bytes | None",
             decision: "Decision | None", error: "BaseException | None",
             ) -> Steps:
        """Goes on with an attempt that went out before with self.trace: its
        response, once the head was there, its body, once that was whole, what
        the engine said of it; and the exception that came instead of one of
        these."""
        trace = self.trace
        assert trace is not None
        try:
            if response is not None and response.status_code < 300:
                attempt.head = response.headers
                if decision is None:
                    attempt.accepted()
        except Exception:
            if error is None:
                raise
        if error is not None:
            try:
                # Of the wire, until the body is there.
                if body is None and isinstance(error, Exception):
                    return self._broken(attempt, error, trace)
                raise error
            finally:
                del error  # its traceback holds this frame
        if body is not None:
            return self._whole(attempt, response, body, decision)
        return (yield from self._opened(attempt, timeouts, trace, response))

    def _opened(self, attempt: Attempt, timeouts: "dict[str, float | None]",
                trace: Trace, response: typing.Any) -> Steps:
        """The head of a response came; timeouts: those it was sent with."""
        total = attempt.total_s
        until = attempt.started + total if total else None  # it must be whole
        if response.status_code >= 300:  # a redirect is not followed
            attempt.sent()
            timeouts["read"] = _least(
                self.timeouts.get("read"), _ERROR_S)
            return (yield from self._refused(attempt, response, until))
        if not attempt.head_seen:
            attempt.head = response.headers
            attempt.accepted()
        if self.model.streamed and "json" not in str(
                response.headers.get("content-type")):
            return (yield from self._streamed(
                attempt, response, trace, timeouts))
        parts: "list[bytes]" = []
        try:
            yield "all", parts, None, until
            body = b"".join(parts)
            if self.copies.packed(response):
                body = unpacked(self.http, response, body)
            else:
                response.stream = self.http.ByteStream(body)
        except Exception as exc:
            return self._broken(attempt, exc, trace)
        return self._whole(attempt, response, body)

    def _failed(self, attempt: Attempt, error: "BaseException | None",
                evidence: "dict[str, typing.Any]") -> "tuple[str, Decision]":
        self.error = error
        self.response = None
        return "decided", self.call.failure(attempt.evidence(evidence),
                                            attempt=attempt.number)

    def _broken(self, attempt: Attempt, exc: Exception, trace: Trace,
                ) -> "tuple[str, Decision]":
        """An exception of the wire."""
        found = (trace.late(attempt.head_seen, self.model.streamed
                            and not attempt.seen["visible"])
                 if isinstance(exc, Late) else evidence_of(exc))
        if found is None:
            self.gone()
            try:
                raise exc  # not of the wire: somebody's bug
            finally:
                del exc  # its traceback holds this frame
        trace.correct(found)
        trace.clear()
        if found.get("phase") not in ("connect", "tls") and not attempt.sent_said:
            attempt.sent()
        return self._failed(attempt, exc, found)

    def _refused(self, attempt: Attempt, response: typing.Any,
                 until: "float | None") -> Steps:
        """An error answer: read as far as it comes, told, kept."""
        parts: "list[bytes]" = []
        try:
            yield "all", parts, _ERROR_BYTES, until
        except Exception as exc:
            if not isinstance(exc, Late) and evidence_of(exc) is None:
                raise  # not of the wire: somebody's bug
        # What came of the body does: the status is whole.
        headers = response.headers.multi_items()
        response = self._kept(response, b"".join(parts))
        self.response, self.error = response, None
        return "decided", self.call.failure(attempt.evidence({
            "phase": "response", "status": response.status_code,
            "headers": headers, "body": response.content}),
            attempt=attempt.number)

    def _kept(self, response: typing.Any, raw: bytes) -> typing.Any:
        """An error answer for the client: read, and the last of its kind."""
        headers = response.headers.copy()
        headers["x-should-retry"] = "false"
        headers.pop("location", None)  # the client would send it there itself
        make = functools.partial(self.http.Response, response.status_code,
                                 request=self.request,
                                 extensions=response.extensions)
        try:
            out = make(headers=headers, stream=self.http.ByteStream(raw))
            out.read()
        except self.http.DecodingError:
            headers.pop("content-encoding", None)
            out = make(headers=headers, stream=self.http.ByteStream(raw))
            out.read()
        self._timed(out)
        return out

    def _whole(self, attempt: Attempt, response: typing.Any, body: bytes,
               decision: "Decision | None" = None) -> "tuple[str, Decision]":
        """An answer that is there as a whole; decision: what it was given."""
        model, number = self.model, attempt.number
        attempt.body = body
        if decision is None and model.wire == "chat" and not model.streamed:
            decision = self.call.chat_success(body, attempt=number)
        if decision is None:
            facts = _answered(model, body)
            if facts is None:
                return self._failed(attempt, None, {
                    "phase": "body", "status": response.status_code,
                    "headers": response.headers.multi_items(), "body": body,
                    "whole_body": True})
            decision = self.call.success(attempt=number, **facts)
        if (self.cache is not None and decision.action == "accept"
                and attempt.decision.ladder_step is None):
            self.text = text_of_answer(body)
            self.keep = self.text is not None
            self.key = self.key_of_answer() if self.keep else ""
        self._label(response, attempt)
        self.result, self.error = response, None
        return "decided", decision

    def _streamed(self, attempt: Attempt, response: typing.Any, trace: Trace,
                  timeouts: "dict[str, float | None]") -> Steps:
        """Holds a stream until its first content, or its end."""
        # From the head on a read waits for bytes, not for the answer. Over
        # HTTP/1 that is looked up when the body is first read; over HTTP/2 at
        # every read, and no watchdog ends one: many share its socket.
        idle = _least(self.timeouts.get("read"), attempt.idle_s)
        timeouts["read"] = idle
        if response.extensions.get("http_version") == b"HTTP/2":
            timeouts["read"] = _least(idle, attempt.first_token_s)
        watcher = StreamWatcher(attempt, self.model.wire)  # type: ignore[arg-type]
        held: "list[bytes]" = []
        size = 0
        until = _first(attempt)
        try:
            while True:
                chunk = yield "read", until
                if chunk is None or watcher.feed(chunk) & SAW_ERROR:
                    break
                held.append(chunk)
                size += len(chunk)
                if watcher.saw & _CONTENT or size > _HELD_BYTES:
                    if not attempt.seen["visible"]:
                        attempt.token(1)  # given away: no way to take it back
                    timeouts["read"] = idle
                    return "begun", self._response(response, self.body(
                        (GivenAway if self.cache is None else KeptStream)(
                            self, attempt, watcher, held)), attempt)
                if until is not None and time.monotonic() > until:
                    raise Late("no content in time")
        except Exception as exc:
            yield "close",
            return self._broken(attempt, exc, trace)
        yield "close",
        evidence = ended(watcher)
        if evidence is not None:
            return self._failed(attempt, None, evidence)
        self.error = None
        self.result = self._response(
            response, self.http.ByteStream(b"".join(held)), attempt)
        facts = counted(watcher.scanner)
        if self.model.wants_text and not watcher.saw & SAW_REASONING:
            facts["output"] = ""
        return "decided", self.call.success(attempt=attempt.number, **facts)

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
        if attempt.decision.ladder_step is not None:
            response.headers["x-fivegates-step"] = attempt.decision.ladder_step


def unpacked(http: typing.Any, response: typing.Any, raw: bytes) -> bytes:
    """An encoded body, decoded; so the client reads it again."""
    headers = response.headers
    body: bytes = http.Response(
        200, headers={"content-encoding": headers["content-encoding"]},
        stream=http.ByteStream(raw)).read()
    del headers["content-encoding"]
    headers.pop("content-length", None)
    response.stream = http.ByteStream(body)
    return body


def _keeps(tool: str) -> bool:
    return False  # no tool is taken out


def shortened(timeouts: "dict[str, float | None]", connect: "float | None",
              read: "float | None") -> "dict[str, float | None]":
    """A client's time-outs, cut to the engine's; None: it names none."""
    out = dict(timeouts)
    if connect is not None:
        for name in ("connect", "write", "pool"):
            own = out.get(name)
            if own is None or connect < own:
                out[name] = connect
    if read is not None:
        own = out.get("read")
        if own is None or read < own:
            out["read"] = read
    return out


def _first(attempt: Attempt) -> "float | None":
    """When the first content must have come."""
    limit = attempt.first_token_s
    return attempt.started + limit if limit else None


def _answered(model: ModelRequest, body: bytes) -> "dict[str, typing.Any] | None":
    """Arguments of Call.success() for a whole body; None: no answer to this
    request. What is in one the engine judges."""
    scanner = SseScanner(model.wire, True)  # type: ignore[arg-type]
    if scanner.feed(body) & (SAW_ERROR | SAW_MALFORMED):
        return None
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not model.answered_by(answer):
        return None
    return {**counted(scanner), **answer_of(answer)}


def _least(a: "float | None", b: "float | None") -> "float | None":
    return b if a is None else a if b is None else min(a, b)
