"""Middleware for the anthropic SDK, 0.108 and newer: sync and async.

    engine = fivegates.Engine("card.yaml")
    client = anthropic.Anthropic(max_retries=0, middleware=[
        FivegatesMiddleware(engine, "support-answer")])

client.messages.create(...) is then one call of the engine's, streamed or not:
retried, sent to a stand-in, answered from the ladder, or refused with an
exception that is both Refused (.decision) and the error the SDK would have
raised. Requests to other endpoints than /v1/messages pass untouched. Give the
same object to AsyncAnthropic.

A route without a base_url is the client's own address and key, with the
route's model. A route with one is sent there, and needs a key: that of its
key_env, or of keys={route: key}. Every route must speak the Messages API.

A stream is held until its first content (text, thinking, or a tool's
arguments), so that what fails before it can still be sent elsewhere. From
there on events pass as they come; a cut or an error event is a failure to the
engine and raised to whoever reads, never sent again.

What cannot be seen here:

- The SDK's own retries run around the middleware. An answer's refusal stops
  them; a refused connection error does not, because the SDK retries every
  APIConnectionError. Nothing is sent then, but the SDK sleeps in between:
  max_retries=0 avoids that.
- Connecting and sending look alike until the SDK raises, and a time-out that
  did not connect is told by its cause only. What has no cause counts as sent.
- What an inner middleware sends by itself is one attempt to the engine: put
  this one last.
- A credentials provider renews its token by a retry of the SDK's, after a 401;
  here a 401 is an answer like others. Keep the token fresh, or use keys.
- Bytes are watched, not what is shown: content passed on counts as shown.
- Tools run outside. Tell of them: agents with tools that act on the world want
  engine.run(), or call.tool() on .call of an on_decision hook.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import importlib
import json
import os
import time
import typing
import warnings

from fivegates.adapters.anthropic_stream import Watched
from fivegates.adapters.joined import joined
from fivegates.errors import ArgumentError, EditError, Refused
from fivegates.driven import Driven
from fivegates.transport.request import ModelRequest, url_for

if typing.TYPE_CHECKING:
    from fivegates._core import Call, Decision, Engine, Unable
    from fivegates.attempt import Attempt

__all__ = ["FivegatesMiddleware"]

# Not an import statement: type checkers need not have the SDK.
_sdk: typing.Any = importlib.import_module("anthropic")
_Middleware: typing.Any = _sdk.Middleware

Json = typing.Dict[str, typing.Any]
Steps = typing.Generator[typing.Tuple[typing.Any, ...], typing.Any, typing.Any]

# The last refusal in this thread or task, with the request's key: the SDK
# asks again after a connection error, and gets the same answer.
_refused: "contextvars.ContextVar[tuple[str, BaseException] | None]" = (
    contextvars.ContextVar("fivegates_anthropic_refused", default=None))


class FivegatesMiddleware(_Middleware):  # type: ignore[misc]
    """Every request to /v1/messages is a call of a workflow.

    facts are more arguments of Engine.begin(), or a function of the SDK's
    APIRequest that answers them; they win over what the body says. keys are
    API keys by route. on_decision and ledger are those of Engine.run().
    cached(decision, request) and preset(decision, request) answer what the
    caller of create() gets: a Message, or for a stream an iterable of events;
    None means cannot.
    """

    def __init__(self, engine: "Engine", workflow: str, *,
                 facts: "typing.Mapping[str, typing.Any] | typing.Callable[[typing.Any], typing.Mapping[str, typing.Any]] | None" = None,
                 keys: "typing.Mapping[str, str] | None" = None,
                 on_decision: "typing.Callable[[Decision, Call], object] | None" = None,
                 ledger: typing.Any = None,
                 cached: "typing.Callable[[Decision, typing.Any], typing.Any] | None" = None,
                 preset: "typing.Callable[[Decision, typing.Any], typing.Any] | None" = None) -> None:
        if workflow not in engine.policy.workflows():
            raise ArgumentError(
                f"no workflow {workflow!r} in the card; it has "
                f"{', '.join(engine.policy.workflows())}")
        unknown = set(keys or ()) - set(engine.policy.routes())
        if unknown:
            raise ArgumentError(
                f"keys for {', '.join(sorted(unknown))}, but the card has the "
                f"routes {', '.join(engine.policy.routes())}")
        self.engine = engine
        self.workflow = workflow
        self.facts = facts
        self.keys = dict(keys or {})
        self.on_decision = on_decision
        self.ledger = ledger
        self.cached = cached
        self.preset = preset

    def handle(self, request: typing.Any,
               call_next: "typing.Callable[[typing.Any], typing.Any]") -> typing.Any:
        """What the SDK calls for each request of a sync client."""
        if not _to_messages(request):
            return call_next(request)
        _refuse_again(request)
        call = _Call(self, request)
        steps = call.steps()
        reply: typing.Any = None
        error: "Exception | None" = None
        try:
            while True:
                todo = steps.send(reply) if error is None else steps.throw(error)
                reply = error = None
                try:
                    reply = _do(todo, call_next)
                except Exception as exc:
                    error = exc
        except StopIteration as stop:
            return call.answer(stop.value)
        except BaseException as exc:
            raise call.ended_by(exc)
        finally:
            steps.close()

    async def handle_async(self, request: typing.Any,
                           call_next: "typing.Callable[[typing.Any], typing.Awaitable[typing.Any]]") -> typing.Any:
        """The same for an async client."""
        if not _to_messages(request):
            return await call_next(request)
        _refuse_again(request)
        call = _Call(self, request)
        steps = call.steps()
        reply: typing.Any = None
        error: "Exception | None" = None
        try:
            while True:
                todo = steps.send(reply) if error is None else steps.throw(error)
                reply = error = None
                try:
                    reply = await _ado(todo, call_next)
                except Exception as exc:
                    error = exc
        except StopIteration as stop:
            return call.answer(stop.value)
        except BaseException as exc:
            raise call.ended_by(exc)
        finally:
            steps.close()


def _do(todo: "tuple[typing.Any, ...]",
        call_next: "typing.Callable[[typing.Any], typing.Any]") -> typing.Any:
    """One step of a call, by a sync client's means."""
    kind = todo[0]
    if kind == "send":
        return call_next(todo[1])
    if kind == "parse":
        return todo[1].parse()
    if kind == "chunks":
        return todo[1].iter_bytes()
    if kind == "next":
        return next(todo[1], None)
    if kind == "read":
        return todo[1].read()
    if kind == "close":
        return todo[1].close()
    if kind == "sleep":
        return time.sleep(todo[1])
    return todo[1](*todo[2])


async def _ado(todo: "tuple[typing.Any, ...]",
               call_next: "typing.Callable[[typing.Any], typing.Awaitable[typing.Any]]") -> typing.Any:
    kind = todo[0]
    if kind == "send":
        return await call_next(todo[1])
    if kind == "parse":
        return await todo[1].parse()
    if kind == "chunks":
        return todo[1].aiter_bytes()
    if kind == "next":
        return await anext(todo[1], None)
    if kind == "read":
        return await todo[1].aread()
    if kind == "close":
        return await todo[1].aclose()
    if kind == "sleep":
        return await asyncio.sleep(todo[1])
    return todo[1](*todo[2])


def _refuse_again(request: typing.Any) -> None:
    """The SDK asks again for a refused connection error: nothing is sent."""
    last = _refused.get()
    _refused.set(None)
    if last is None or not request.retries_taken or (
            last[0] != request.options.idempotency_key):
        return
    _refused.set(last)
    raise last[1]


class _Driven(Driven):
    """A run that says what this adapter cannot do of a decision."""

    unfit: "typing.Callable[[Decision], Unable | None]"

    def lacks(self, decision: "Decision") -> "Unable | None":
        return self.unfit(decision)


class _Call:
    """One request of the client's, however many are sent for it.

    steps() yields what must be done ("send", "next", "sleep", ...), so that
    the sync and the async client share what decides.
    """

    def __init__(self, owner: FivegatesMiddleware, request: typing.Any) -> None:
        self.owner = owner
        self.request = request
        self.body: Json = request.json
        self.model = ModelRequest(
            "messages", "/v1/messages",
            json.dumps(self.body, default=str).encode(), self.body)
        self.response: typing.Any = None  # the last attempt's
        self.stood_in = False
        self.driven = _Driven(
            owner.engine, owner.workflow, on_decision=owner.on_decision,
            ledger=owner.ledger, cached=self._asking(owner.cached),
            preset=self._asking(owner.preset), queue=None, clear=None,
            evidence=None, outcome=False, reraise=False, tick=False, call=None,
            facts=self._facts())
        self.driven.unfit = self._unfit

    def _facts(self) -> Json:
        facts = self.model.facts()
        given = self.owner.facts
        facts.update(given(self.request) if callable(given) else given or {})
        if self.request.stream:  # what is passed on cannot be taken back
            facts["delivery"] = "stream"
        if self.request.retries_taken:
            facts.setdefault("prior", {"attempts": self.request.retries_taken})
        return facts

    def _asking(self, hook: "typing.Callable[[Decision, typing.Any], typing.Any] | None") -> "typing.Callable[[Decision], typing.Any] | None":
        if hook is None:
            return None

        def ask(decision: "Decision") -> typing.Any:
            value = hook(decision, self.request)
            self.stood_in = value is not None
            return value

        return ask

    def _unfit(self, decision: "Decision") -> "Unable | None":
        """What of a decision cannot be done here."""
        if {"stream", "no_stream"} & set(decision.change):
            return "edit"
        if decision.route in (None, self.driven.primary):
            return None
        try:
            self._key(self.owner.engine.policy.route(decision.route))
        except ArgumentError as why:
            warnings.warn(str(why), RuntimeWarning, stacklevel=2)
            return "reroute"
        return None

    def _key(self, route: Json) -> "str | None":
        """The key of a route; None: the client's own, sent where it goes."""
        if route["api"] not in (None, "messages"):
            raise ArgumentError(
                f"route {route['name']} speaks {route['api']}, and the "
                f"anthropic SDK speaks messages; use engine.run() for it")
        key = self.owner.keys.get(route["name"])
        if key is not None or route["base_url"] is None:
            return key
        if route["key_env"] is None:
            raise ArgumentError(
                f"route {route['name']} has a base_url and no key; give it a "
                f"key_env in the card, or pass keys={{{route['name']!r}: ...}}")
        key = os.environ.get(route["key_env"])
        if key is None:
            raise ArgumentError(
                f"no key for route {route['name']}; set {route['key_env']}, "
                f"or pass keys={{{route['name']!r}: ...}}")
        return key

    def _prepared(self, attempt: "Attempt") -> typing.Any:
        """The request as this attempt sends it."""
        route = self.owner.engine.policy.route(attempt.route or "")
        body = attempt.apply(self.body)
        headers = {**self.request.headers, **body.pop("extra_headers")}
        key = self._key(route)
        if key is not None:  # and nothing else that proves who the client is
            name, before = _key_header()
            headers.update({"X-Api-Key": _sdk.omit, "Authorization": _sdk.omit})
            headers[name] = before + key
        changed: Json = {"body": body, "headers": headers,
                         "timeout": self._timeout(attempt)}
        if attempt.base_url is not None:
            path, mark, query = self.request.url.partition("?")
            changed["url"] = (
                url_for(attempt.base_url, self.model, None) + mark + query)
        return self.request.copy(**changed)

    def _timeout(self, attempt: "Attempt") -> typing.Any:
        """The engine's time-outs, or the request's own where shorter."""
        ours = attempt.timeout(_sdk)
        given = self.request.timeout
        if given is None or not isinstance(given, (int, float, _sdk.Timeout)):
            return ours
        own = _sdk.Timeout(given)
        return _sdk.Timeout(**{
            name: min((n for n in (getattr(own, name), getattr(ours, name))
                       if n is not None), default=None)
            for name in ("connect", "read", "write", "pool")})

    # ---- the loop

    def steps(self) -> Steps:
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

    def _send(self, attempt: "Attempt") -> Steps:
        """One attempt: ("ok" | "begun", answer), or ("error", exception)."""
        try:
            prepared = self._prepared(attempt)
        except EditError as exc:
            return "error", exc
        try:
            self.response = response = yield "send", prepared
            raw = getattr(response, "http_response", None)
            if raw is None:  # an inner middleware answered by itself
                return "ok", response
            if not raw.is_success:
                yield "read", raw
                return "error", _status_error(response)
            attempt.accepted()
            if not self.request.stream:
                return "ok", (yield from self._whole(response))
            watched = Watched(self.driven, attempt, response, self.told)
            if (yield from watched.hold()):
                watched.open()
                return "begun", response
            watched.replay()
            return "ok", ""  # the answer had no content
        except Exception as exc:
            return "error", exc

    def _whole(self, response: typing.Any) -> Steps:
        """The answer, parsed; what is no Message is the SDK's own error."""
        raw = response.http_response
        try:
            value = yield "parse", response
        except ValueError as exc:
            raise _sdk.APIResponseValidationError(
                response=raw, body=raw.text, message=str(exc)) from exc
        if isinstance(value, str):  # the SDK passes on what is not JSON
            raise _sdk.APIResponseValidationError(response=raw, body=value)
        return value

    # ---- how it ended

    def answer(self, value: typing.Any) -> typing.Any:
        """What the SDK is given: it parses its own response, once.

        Nothing here keeps it: a stream is closed when its reader drops it.
        """
        response, self.response, self.driven.result = self.response, None, None
        return value if self.stood_in else response

    def ended_by(self, exc: BaseException) -> BaseException:
        """What is raised to the SDK instead of exc."""
        self.driven.broken(exc)
        if not isinstance(exc, Refused):
            return exc
        told = self.told(exc)
        error = exc.__cause__
        if isinstance(error, _sdk.APIStatusError):
            error.response.headers["x-should-retry"] = "false"
        elif isinstance(told, _sdk.APIConnectionError):
            key = self.request.options.idempotency_key
            _refused.set((key, told))
        return told

    def told(self, refused: Refused) -> Refused:
        """The refusal as the SDK's own error."""
        error = refused.__cause__
        if isinstance(error, _sdk.AnthropicError):
            out = joined(refused, error)
        elif error is None:
            out = joined(refused, _sdk.APIError.__new__(_sdk.APIError),
                         message=str(refused), request=None, body=None)
        else:  # of httpx, which the SDK lets through while an answer is read
            out = joined(refused, error, _sdk.APIConnectionError,
                         message=str(error), body=None)
        out.__cause__ = error
        return out


@functools.lru_cache(maxsize=1)
def _key_header() -> "tuple[str, str]":
    """The header this version of the SDK sends a key in, and what stands
    before the key: it has changed with its major versions."""
    with _sdk.Anthropic(api_key="key", base_url="http://127.0.0.1") as client:
        for name, value in client.auth_headers.items():
            if value.endswith("key"):
                return str(name), str(value).removesuffix("key")
    return "X-Api-Key", ""


def _to_messages(request: typing.Any) -> bool:
    path = request.url.partition("?")[0]
    return request.method.lower() == "post" and bool(
        path.rstrip("/").endswith("/v1/messages"))


def _status_error(response: typing.Any) -> Exception:
    """The SDK's own error for an error answer, its body read."""
    error: Exception = response._client._make_status_error_from_response(
        response.http_response)
    return error
