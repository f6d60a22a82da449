"""A gate for litellm's Router (1.110): the engine picks, and hears the outcome.

    gate = FivegatesGate(engine, {"gpt-4o": "support-answer"})
    litellm.callbacks = [gate]
    router = litellm.Router(model_list, num_retries=0, disable_cooldowns=True)

Keys are the Router's model groups, values workflows of the card. A deployment
is the route of its model_info id, or of routes={id: route}; of a group's
deployments the Router is left those of the route the engine permits, and what
came of the attempt is told back. When no route may be used, acompletion()
raises an exception that is both Refused (.decision) and the Router's own
RouterRateLimitError. Groups that are not named pass untouched.

This is a gate and no loop: each attempt of the Router's is a call of its own.
With num_retries=0 and no fallbacks a failure ends the request, and what the
engine would do next is heard by on_decision only; the next request is sent
where it says. A Router with retries of its own is told to do without; give it no
fallbacks either: each is a call with a budget of its own. For retries and
stand-ins as the engine decides them put engine.arun() around
litellm.acompletion(num_retries=0, max_retries=0).

What cannot be seen here:

- Router.completion() (sync) has no hook before a deployment is picked: for a
  guarded group it raises. Use acompletion().
- A fallback to a group that is not named here is sent without being asked for.
- A stream is seen at its end: no time to the first token is learned, and a cut
  does not tell how much of the answer was shown. A stream dropped before its
  end, or whose end litellm's background worker does not come to report, is a
  call dropped without a word: nobody is blamed.
- litellm swallows what a callback raises after the answer: an answer the output
  check rejects is told to the engine and still reaches the caller.
- What litellm raises of itself before a request counts like an answer of the
  provider's where it carries a status.
"""

from __future__ import annotations

import asyncio
import contextvars
import importlib
import json
import typing
import weakref

from fivegates.adapters.guard import Calls, Guard
from fivegates.adapters.joined import joined
from fivegates.errors import ArgumentError, Refused
from fivegates.evidence import evidence_of
from fivegates.transport.request import ModelRequest

if typing.TYPE_CHECKING:
    from typing_extensions import Unpack

    from fivegates._core import Decision, Engine, Unable, _Options

__all__ = ["FivegatesGate"]

# Not import statements: type checkers need not have litellm.
_Logger: typing.Any = importlib.import_module(
    "litellm.integrations.custom_logger").CustomLogger
_types: typing.Any = importlib.import_module("litellm.types.router")

Json = typing.Dict[str, typing.Any]

# Exceptions with what the wire said are those of these packages; litellm's own
# are made from them, and lose the body.
_WIRE = frozenset({"openai", "anthropic", "httpx", "httpx2", "aiohttp",
                   "requests", "urllib3"})


class _NotHere(Exception):
    """The route the engine insists on has no deployment among those given."""


class _Running:
    """A permitted attempt, from the pick to its outcome."""

    def __init__(self, guard: Guard, ids: "frozenset[str]") -> None:
        self.guard = guard
        self.ids = ids

    def succeeded(self, answer: object) -> None:
        """The caller gets the answer, whatever the engine thinks of it."""
        self.guard.finished(answer)

    def failed(self, exc: BaseException) -> None:
        """The Router raises its own; nothing is sent again."""
        if not self.guard.ended:
            try:
                self.guard.cut(exc)
            except (Refused, type(exc)):
                pass


# What the filter permitted, until the Router says which deployment it took.
_picked: "contextvars.ContextVar[_Running | None]" = contextvars.ContextVar(
    "fivegates_litellm_picked", default=None)


class FivegatesGate(_Logger):  # type: ignore[misc]
    """A callback of litellm's, for the Routers of this process.

    options are facts of Engine.begin() and the hooks of Engine.run() that need
    no send: on_decision, ledger, evidence.
    """

    def __init__(self, engine: "Engine",
                 workflows: "typing.Mapping[str, str]", *,
                 routes: "typing.Mapping[str, str] | None" = None,
                 **options: "Unpack[_Options]") -> None:
        super().__init__()
        known = engine.policy.routes()
        unknown = sorted(set((routes or {}).values()) - set(known))
        if unknown:
            raise ArgumentError(f"no route {', '.join(unknown)} in the card; "
                                f"it has {', '.join(known)}")
        own: "_Options" = {**options, "evidence": options.get("evidence")
                           or _evidence}
        self.routes = dict(routes if routes is not None
                           else {name: name for name in known})
        self.groups = {group: Calls(engine, workflow, **own)
                       for group, workflow in workflows.items()}
        # By litellm's id of an attempt. Its logging object holds the value,
        # so that an attempt litellm forgets is dropped here as well.
        self._running: "weakref.WeakValueDictionary[str, _Running]" = (
            weakref.WeakValueDictionary())

    # ---- the gate

    async def async_filter_deployments(
            self, model: str, healthy_deployments: typing.Any,
            messages: typing.Any = None,
            request_kwargs: "Json | None" = None,
            parent_otel_span: typing.Any = None) -> "list[Json]":
        """Leaves the deployments of the route that may be sent to."""
        given: "list[Json]" = (
            [healthy_deployments] if isinstance(healthy_deployments, dict)
            else list(healthy_deployments))
        calls = self.groups.get(model)
        if calls is None or not given:
            return given
        here: "dict[str, list[Json]]" = {}
        for one in given:
            route = self.routes.get(str(one["model_info"]["id"]))
            if route is not None:
                here.setdefault(route, []).append(one)
        if not here:
            raise ArgumentError(
                f"no deployment of {model} is a route of the card; give them "
                f"model_info={{'id': route}}, or the gate routes={{id: route}}")
        before = _picked.get()
        if before is not None:
            before.guard.gone()  # picked, and never sent
            _picked.set(None)
        try:
            guard = calls.begin(_facts(messages, request_kwargs or {}),
                                lacks=_only(here), unable=["edit"])
            attempt = await guard.aready(asyncio.sleep)
        except _NotHere:
            return []  # the Router says what it has
        except Refused as refused:
            own = _types.RouterRateLimitError(
                model=model, cooldown_time=refused.decision.wait_ms / 1000,
                enable_pre_call_checks=False, cooldown_list=[])
            raise joined(refused, own) from refused.__cause__
        left = here.get(attempt.route or "")
        if left is None:
            guard.gone()
            return []
        _picked.set(_Running(guard, frozenset(
            str(one["model_info"]["id"]) for one in left)))
        return left

    def pre_call_check(self, deployment: Json) -> None:
        """Where the sync Router asks, too late for a gate."""
        if deployment.get("model_name") in self.groups:
            raise ArgumentError(
                f"Router.completion() cannot be guarded: litellm has no hook "
                f"before it picks; use acompletion() for "
                f"{deployment['model_name']}")

    async def async_pre_call_deployment_hook(
            self, kwargs: Json, call_type: typing.Any) -> None:
        """The Router took a deployment and is about to send."""
        running = _picked.get()
        taken = str((kwargs.get("model_info") or {}).get("id"))
        if running is None or taken not in running.ids:
            return
        _picked.set(None)
        self._running[str(kwargs["litellm_call_id"])] = running
        kwargs["litellm_logging_obj"].fivegates = running
        task = asyncio.current_task()
        if task is not None:
            task.add_done_callback(_left(weakref.ref(running)))

    # ---- what came of it

    async def async_post_call_success_deployment_hook(
            self, request_data: Json, response: typing.Any,
            call_type: typing.Any) -> None:
        """A whole answer."""
        running = self._running.get(str(request_data.get("litellm_call_id")))
        if running is not None:
            running.succeeded(response)

    async def async_post_call_failure_deployment_hook(
            self, request_data: "typing.Mapping[str, typing.Any]",
            exception: Exception, call_type: typing.Any,
            fallback_depth: "int | None" = None) -> None:
        """An attempt that failed before there was an answer."""
        running = self._running.get(str(request_data.get("litellm_call_id")))
        if running is not None:
            running.failed(exception)

    async def async_log_success_event(
            self, kwargs: Json, response_obj: typing.Any,
            start_time: typing.Any, end_time: typing.Any) -> None:
        """A stream's end: the answer put together."""
        running = self._running.get(str(kwargs.get("litellm_call_id")))
        if running is not None:
            running.succeeded(response_obj)

    async def async_log_failure_event(
            self, kwargs: Json, response_obj: typing.Any,
            start_time: typing.Any, end_time: typing.Any) -> None:
        """A stream that broke: others were told of before."""
        running = self._running.get(str(kwargs.get("litellm_call_id")))
        exc = kwargs.get("exception")
        if running is None or running.guard.ended or exc is None:
            return
        if running.guard.attempt is not None:
            running.guard.attempt.accepted()
        running.failed(exc)


def _only(here: "typing.Mapping[str, object]") -> "typing.Callable[[Decision], Unable | None]":
    """What cannot be done of a decision: a send to a route that is not here.
    Told once; a second time there is nothing else."""
    said: "list[str | None]" = []

    def lacks(decision: "Decision") -> "Unable | None":
        if decision.route in here:
            return None
        if decision.route in said:
            raise _NotHere(decision.route)
        said.append(decision.route)
        return "reroute"

    return lacks


def _left(running: "weakref.ref[_Running]") -> "typing.Callable[[asyncio.Task[typing.Any]], None]":
    """litellm has no hook for a request that was cancelled."""

    def done(task: "asyncio.Task[typing.Any]") -> None:
        found = running()
        if found is not None and task.cancelled():
            found.guard.gone()

    return done


def _facts(messages: typing.Any, request: Json) -> Json:
    """Arguments of Engine.begin(), as far as the request tells them."""
    body = {name: request[name] for name in (
        "tools", "tool_choice", "max_tokens", "max_completion_tokens",
        "response_format", "reasoning_effort", "stream",
        "parallel_tool_calls") if request.get(name) is not None}
    body["messages"] = messages or request.get("messages") or []
    facts = ModelRequest("chat", "/chat/completions", json.dumps(
        body, default=str).encode(), body).facts()
    meta = request.get("metadata") or {}
    if meta.get("max_retries"):
        raise ArgumentError(
            f"the Router retries {meta['max_retries']} times by itself, also "
            f"what the engine refuses; make it with num_retries=0")
    return facts


def _evidence(exc: BaseException) -> "Json | None":
    """The evidence of the exception beneath litellm's own."""
    at: "BaseException | None" = exc
    while at is not None:
        if type(at).__module__.partition(".")[0] in _WIRE:
            return evidence_of(at)
        at = at.__cause__ or at.__context__
    return evidence_of(exc)
