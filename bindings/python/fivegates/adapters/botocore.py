"""botocore asks the engine: Bedrock calls of a boto3 client.

    client = boto3.client("bedrock-runtime", config=Config(retries={"total_max_attempts": 1}))
    guard(client, engine, "support-answer")
    answer = client.converse(modelId=model, messages=messages)

From then on each converse, converse_stream, invoke_model and
invoke_model_with_response_stream is a call of the engine. botocore's own retry
handler is taken out, so total_max_attempts bounds nothing any more; the other
operations of this client are sent once. A stream is held until its first
content: until then it may be sent again, after that the caller hears of a cut
as Refused while iterating. A refusal raises Refused from botocore's exception;
with reraise=True that exception, with the refusal as its .refused, or under
"Refused" in the .response of a ClientError.

A stand-in must be another model of the same endpoint and credentials (the same
base_url and key_env in the card): another region needs a client of its own, by
engine.run(). The model of a request is the card's. Bodies are not edited, so
steps of the ladder that edit are skipped.

What it cannot see: how far a request came but for what botocore's exception
proves (in doubt it was sent), and silence: botocore's read_timeout, 60 s of
its own, ends it. KeyboardInterrupt during a send, missing credentials and an
asynchronous client's cancellation pass by every hook: the call is dropped and
nobody blamed.
"""

from __future__ import annotations

import io
import json
import time
import typing
import urllib.parse

import botocore.eventstream  # type: ignore[import-untyped]
import botocore.exceptions  # type: ignore[import-untyped]
import botocore.response  # type: ignore[import-untyped]

from fivegates.adapters.bedrock import Observer, converse_answer, facts_of
from fivegates.adapters.guard import Calls, Guard
from fivegates.errors import ArgumentError
from fivegates.evidence import evidence_of
from fivegates.stream import StreamError

if typing.TYPE_CHECKING:
    from typing_extensions import Unpack

    from fivegates._core import Decision, Engine, Unable, _Options
    from fivegates.attempt import Attempt

__all__ = ["guard", "evidence"]

Json = typing.Dict[str, typing.Any]

_SERVICE = "bedrock-runtime"
# Operation -> where its stream is in the parsed answer.
_OPERATIONS: "dict[str, str | None]" = {
    "Converse": None, "ConverseStream": "stream", "InvokeModel": None,
    "InvokeModelWithResponseStream": "body"}
_KEPT = "fivegates"  # the name of a call in botocore's request context

# What botocore's exceptions prove of how far a request came.
_PHASES = {
    "EndpointConnectionError": "connect",
    "ConnectTimeoutError": "connect",
    "ProxyConnectionError": "connect",
    "SSLError": "tls",
    "ReadTimeoutError": "read",
    "ConnectionClosedError": "read",
    "ResponseStreamingError": "body",
    "IncompleteReadError": "body",
}


def evidence(exc: BaseException) -> "Json | None":
    """Evidence of a failed AWS request, for Engine.run(evidence=...) too.

    Knows botocore's transport errors, ClientError and EventStreamError.
    """
    known = getattr(exc, "evidence", None)
    if isinstance(known, dict):
        return known
    if isinstance(exc, botocore.exceptions.EventStreamError):
        error = exc.response.get("Error", {})
        return {"phase": "stream", "status": 200, "provider": "bedrock",
                "body": json.dumps({str(error.get("Code")): {
                    "message": error.get("Message")}})}
    if isinstance(exc, botocore.exceptions.ClientError):
        meta = exc.response.get("ResponseMetadata", {})
        error = exc.response.get("Error", {})
        headers = dict(meta.get("HTTPHeaders") or {})
        headers.setdefault("x-amzn-errortype", str(error.get("Code")))
        return {"phase": "response", "status": meta.get("HTTPStatusCode"),
                "headers": headers, "provider": "bedrock",
                "body": json.dumps({"message": error.get("Message")}),
                "inner_attempts": meta.get("RetryAttempts", 0) + 1}
    if isinstance(exc, botocore.eventstream.ParserError):
        return {"phase": "stream", "status": 200,
                "transport": _transport(exc)}
    if isinstance(exc, (botocore.exceptions.HTTPClientError,
                        botocore.exceptions.ConnectionError,
                        botocore.exceptions.IncompleteReadError)):
        return {"phase": _PHASES.get(type(exc).__name__, "unknown"),
                "transport": _transport(exc)}
    return None


def _transport(exc: BaseException) -> "dict[str, str]":
    return {"lib": "botocore", "kind": type(exc).__name__,
            "message": str(exc)[:2000]}


def guard(client: typing.Any, engine: "Engine", workflow: str, *,
          facts: "typing.Callable[[str, dict[str, typing.Any]], dict[str, typing.Any]] | None" = None,
          sleep: "typing.Callable[[float], object]" = time.sleep,
          **options: "Unpack[_Options]") -> None:
    """Puts the engine in place of a bedrock-runtime client's own retries.

    facts(operation, body) answers facts of one request; stream, limits and an
    estimate of the tokens are known. sleep replaces time.sleep. options are
    those of engine.run(): facts of Engine.begin(), on_decision, ledger,
    evidence, reraise. Raises ArgumentError for a client of another service,
    one in retry mode adaptive, or one that is guarded already.
    """
    service = client.meta.service_model.service_id.hyphenize()
    if service != _SERVICE:
        raise ArgumentError(f"a client of {service}; only {_SERVICE} is known")
    if (client.meta.config.retries or {}).get("mode") == "adaptive":
        raise ArgumentError("retry mode adaptive holds sends back after they "
                            "were permitted; make the client with mode standard")
    if getattr(client.meta, _KEPT, None) is not None:
        raise ArgumentError("this client is guarded already; make another")
    own = options.get("evidence")
    options["evidence"] = lambda exc: (
        (own(exc) if own else None) or evidence(exc) or evidence_of(exc))
    hooks = _Hooks(client, Calls(engine, workflow, **options), facts, sleep)
    events = client.meta.events
    events.unregister(f"needs-retry.{_SERVICE}",
                      unique_id=f"retry-config-{_SERVICE}")
    events.register(f"before-call.{_SERVICE}", hooks.before_call)
    events.register_first(f"needs-retry.{_SERVICE}", hooks.needs_retry)
    setattr(client.meta, _KEPT, hooks)


class _Hooks:
    """What botocore calls for each request of one client."""

    def __init__(self, client: typing.Any, calls: Calls, facts: typing.Any,
                 sleep: "typing.Callable[[float], object]") -> None:
        self._typed = client.exceptions.from_code
        self._calls = calls
        self._facts = facts
        self._sleep = sleep

    def before_call(self, model: typing.Any, params: Json, context: Json,
                    **_: object) -> None:
        """Begins the call; asks permission for the first send."""
        if model.name not in _OPERATIONS:
            return
        body = _json(params["body"])
        found = facts_of(model.name, body, len(params["body"] or b""))
        if self._facts is not None:
            found.update(self._facts(model.name, body))
        call = self._calls.begin(found, unable=("edit",), lacks=self._lacks)
        context[_KEPT] = call
        _aim(params, call.ready(self._sleep))

    def _lacks(self, decision: "Decision") -> "Unable | None":
        if decision.route is None or decision.route == decision.requested:
            return None
        policy = self._calls.engine.policy
        route = policy.route(decision.route)
        own = policy.route(decision.requested or decision.route)
        same = all(route[name] == own[name]
                   for name in ("base_url", "key_env", "api"))
        return None if same and route["model"] else "reroute"

    def needs_retry(self, response: typing.Any, operation: typing.Any,
                    caught_exception: "BaseException | None",
                    request_dict: Json, **_: object) -> "float | bool | None":
        """Tells the engine how it went; waits and asks for another send."""
        call: "Guard | None" = request_dict["context"].get(_KEPT)
        if call is None:
            return None
        try:
            if caught_exception is not None:
                raise caught_exception
            over = self._judge(call, operation.name, response)
        except BaseException as exc:
            try:
                call.failed(exc)
            except botocore.exceptions.ClientError as last:
                if last is not exc or response is None or isinstance(
                        exc, botocore.exceptions.EventStreamError):
                    raise
                response[1]["Refused"] = getattr(last, "refused", None)
                return False  # reraise=True: botocore raises its own
        else:
            if over:
                return False
        _aim(request_dict, call.ready(self._sleep))
        return 0

    def _judge(self, call: Guard, operation: str, response: typing.Any) -> bool:
        """Whether the answer is one. Raises what failed."""
        http, parsed = response
        if http.status_code >= 300:
            error = self._typed(parsed.get("Error", {}).get("Code"))(
                parsed, operation)
            error.evidence = {**(evidence(error) or {}), "body": http.content,
                              "inner_attempts": 1}
            raise error
        attempt = call.attempt
        assert attempt is not None
        attempt.accepted()
        place = _OPERATIONS[operation]
        if place is not None:
            events = _Events(parsed[place], call, attempt)
            more = events.hold()
            parsed[place] = events
            if more:
                call.given()
                return True
            return call.succeeded()
        if operation == "Converse":
            return call.succeeded(converse_answer(parsed))
        data = parsed["body"].read()
        parsed["body"] = botocore.response.StreamingBody(
            io.BytesIO(data), len(data))
        return call.succeeded(_json(data))


class _Events:
    """An event stream, heard by the engine as the caller iterates."""

    def __init__(self, source: typing.Any, call: Guard,
                 attempt: "Attempt") -> None:
        self._source = source
        self._call = call
        self._attempt = attempt
        self._held: "list[Json]" = []
        self._events = self._read()

    def __getattr__(self, name: str) -> typing.Any:
        return getattr(self._source, name)

    def _read(self) -> "typing.Iterator[Json]":
        observer = Observer(self._attempt)
        for event in self._source:
            observer.hear(event)
            yield event
        if self._attempt.finish is None:
            raise StreamError("the stream ended without its end", {
                "phase": "stream", "status": 200, "whole_body": True})

    def hold(self) -> bool:
        """Reads up to the first content. False: it has ended well."""
        try:
            for event in self._events:
                self._held.append(event)
                seen = self._attempt.seen
                if seen["visible"] or seen["tool_args_bytes"]:
                    return True
            return False
        except BaseException:
            self._source.close()
            raise

    def __iter__(self) -> "typing.Iterator[Json]":
        while True:
            while self._held:
                yield self._held.pop(0)
            try:
                event = next(self._events, None)
            except BaseException as exc:
                self._source.close()
                self._call.cut(exc)
            if event is None:
                self._call.finished()
                return
            yield event

    def close(self) -> None:
        """The caller has enough."""
        self._call.closed(self._attempt.finish is not None)
        self._source.close()


def _aim(request: Json, attempt: "Attempt") -> None:
    """Puts the attempt's model into the path; botocore signs what it sends."""
    if attempt.model is None:
        return
    name = urllib.parse.quote(attempt.model, safe="-_.~")
    for place in ("url", "url_path"):
        before, mark, rest = request[place].partition("/model/")
        if mark:
            _, slash, operation = rest.partition("/")
            request[place] = before + mark + name + slash + operation


def _json(raw: object) -> Json:
    try:
        value = json.loads(raw) if isinstance(raw, (str, bytes)) else None
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {}
