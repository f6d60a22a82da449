"""Middleware for agents of langchain 1.x: models and tools, sync and async.

    models = {"main": ChatOpenAI(model="gpt-4o", max_retries=0),
              "backup": ChatAnthropic(model="claude-sonnet", max_retries=0)}
    agent = create_agent("openai:gpt-4o", tools, middleware=[
        FivegatesMiddleware(engine, "support-agent", models)])

A run of the agent is one call of the engine's, each request to a model one of
its steps; each goes to the model of the route the engine names, so the agent's
own model is not used. Tools are told to the engine: requested, started, then
committed or failed. After a tool whose end is not known a failed step is not
sent again (reconcile_first): refused.call.resolved(tool_call_id, effect) is
for what you look up. A refusal is both Refused and the exception of the chat
model, and marked as not retryable for layers outside.

Name it last in middleware=[...]: what is inside of it (a retry or a fallback
of langchain's own) is hidden from the engine, and repeats what it must not.

What cannot be seen here:

- Retries of a chat model's own client: give each max_retries=0. Those the SDK
  counts in a header are counted as inner attempts.
- Time-outs are the chat models' own (timeout=...) in sync code. In async code
  an attempt past the engine's clocks is cancelled.
- Without facts={"stream": True} answers count as whole: nothing of them is
  shown before their end. Say it where tokens are shown as they come
  (stream_mode="messages"): a token then is visible, and what follows a cut is
  a refusal, not a second beginning.
- A tool that raises, or answers with an error message, may have acted: its
  effect is unknown, unless the arguments were invalid, or tool_failed(message)
  says that nothing was done. Tools that may run twice without harm (look-ups
  too) are named in idempotent. Tools the provider runs are not seen.
- An agent that goes on in another process begins a call anew, and so does one
  that goes on after a refusal: an effect left open there is not known here.
- Requests are not edited, so steps of a ladder that need it are skipped, and
  settings of one provider (cache marks, tool_choice) go to the next unchanged.
"""

from __future__ import annotations

import collections
import importlib
import threading
import typing
import uuid

from fivegates.adapters.joined import joined
from fivegates.errors import ArgumentError, Refused

if typing.TYPE_CHECKING:
    from fivegates._core import Call, Decision, Engine, ToolState
    from fivegates.attempt import Attempt
    from fivegates.runner import Outcome

__all__ = ["FivegatesMiddleware"]

# Not import statements: type checkers need not have langchain.
_agents: typing.Any = importlib.import_module("langchain.agents.middleware.types")
_messages: typing.Any = importlib.import_module("langchain_core.messages")
_exceptions: typing.Any = importlib.import_module("langchain_core.exceptions")
_callbacks: typing.Any = importlib.import_module("langchain_core.callbacks")
_tool_node: typing.Any = importlib.import_module("langgraph.prebuilt.tool_node")
_Middleware: typing.Any = _agents.AgentMiddleware
_Handler: typing.Any = _callbacks.BaseCallbackHandler
# Before langchain-core 1.8 there is only the base of all its exceptions.
_ModelError: typing.Any = getattr(_exceptions, "ModelError",
                                  _exceptions.LangChainException)

_RUN = "fivegates_run"
_typed_dict: typing.Any = typing.TypedDict
# The name of the run, in the state the graph keeps for it.
_State: typing.Any = _typed_dict("_State", {
    _RUN: typing.Annotated[str, _agents.PrivateStateAttr]}, total=False)
# Runs that die between two steps leave their call behind: the oldest go.
_MOST_RUNS = 10_000

Facts = typing.Dict[str, typing.Any]


class FivegatesMiddleware(_Middleware):  # type: ignore[misc]
    """Every run of the agent is a call of a workflow.

    models has a chat model for each route; a route without one is passed over.
    facts are more arguments of
    Engine.begin(), or a function of the ModelRequest that answers them; they
    win over what the request says. cached(decision, request) and
    preset(decision, request) answer with an AIMessage or a ModelResponse; None
    means cannot. on_decision and ledger are those of Engine.run().
    """

    state_schema = _State

    def __init__(self, engine: "Engine", workflow: str,
                 models: "typing.Mapping[str, typing.Any]", *,
                 facts: "typing.Mapping[str, typing.Any] | typing.Callable[[typing.Any], typing.Mapping[str, typing.Any]] | None" = None,
                 idempotent: "typing.Iterable[str]" = (),
                 tool_failed: "typing.Callable[[typing.Any], bool] | None" = None,
                 on_decision: "typing.Callable[[Decision, Call], object] | None" = None,
                 ledger: typing.Any = None,
                 cached: "typing.Callable[[Decision, typing.Any], typing.Any] | None" = None,
                 preset: "typing.Callable[[Decision, typing.Any], typing.Any] | None" = None) -> None:
        super().__init__()
        policy = engine.policy
        if workflow not in policy.workflows():
            raise ArgumentError(f"no workflow {workflow!r} in the card; it has "
                                f"{', '.join(policy.workflows())}")
        unknown = sorted(set(models) - set(policy.routes()))
        if unknown or not models:
            raise ArgumentError(
                f"models for {', '.join(unknown) or 'no route'}, but the card "
                f"has the routes {', '.join(policy.routes())}")
        if isinstance(idempotent, str):
            raise ArgumentError("idempotent is a list of tool names, not a str")
        self.engine = engine
        self.workflow = workflow
        self.models = dict(models)
        self.facts = facts
        self.idempotent = frozenset(idempotent)
        self.tool_failed = tool_failed
        self.on_decision = on_decision
        self.ledger = ledger
        self.cached = cached
        self.preset = preset
        self._calls: "collections.OrderedDict[str, Call]" = (
            collections.OrderedDict())
        self._lock = threading.Lock()  # tools of a step run in threads

    def before_agent(self, state: typing.Any,
                     runtime: typing.Any) -> "dict[str, str]":
        """Names the run, so that its steps and tools find their call."""
        return {_RUN: uuid.uuid4().hex}

    # ---- models

    def wrap_model_call(self, request: typing.Any,
                        handler: "typing.Callable[[typing.Any], typing.Any]") -> typing.Any:
        """One step: as many requests as the engine permits."""

        def send(attempt: "Attempt") -> "_Answer":
            return _Answer(handler(self._prepared(request, attempt)))

        try:
            return self._done(request, self.engine.run(
                self.workflow, dict.fromkeys(self.models, send), outcome=True,
                **self._options(request)))
        except Refused as refused:
            raise self._told(request, refused) from refused.__cause__

    async def awrap_model_call(self, request: typing.Any,
                               handler: "typing.Callable[[typing.Any], typing.Awaitable[typing.Any]]") -> typing.Any:
        """The same for async code."""

        async def send(attempt: "Attempt") -> "_Answer":
            return _Answer(await handler(self._prepared(request, attempt)))

        try:
            return self._done(request, await self.engine.arun(
                self.workflow, dict.fromkeys(self.models, send), outcome=True,
                **self._options(request)))
        except Refused as refused:
            raise self._told(request, refused) from refused.__cause__

    def _options(self, request: typing.Any) -> "dict[str, typing.Any]":
        facts = _facts(request)
        given = self.facts
        facts.update(given(request) if callable(given) else given or {})
        words = facts.get("unable") or ()
        facts["unable"] = ["edit", *([words] if isinstance(words, str)
                                     else words)]
        with self._lock:
            facts["call"] = self._calls.get(_run_of(request.state))
        for name in ("cached", "preset"):
            hook = getattr(self, name)
            if hook is not None:
                facts[name] = lambda decision, hook=hook: hook(
                    decision, request)
        # Each step is a request of its own, so a failed one can go alone.
        return {**facts, "resume": True, "on_decision": self.on_decision,
                "ledger": self.ledger}

    def _prepared(self, request: typing.Any, attempt: "Attempt") -> typing.Any:
        """The request for the model of the attempt's route."""
        if attempt.resume_from == "prefill":
            raise ArgumentError(
                f"workflow {self.workflow} has after_visible: continue, and an "
                f"agent cannot go on behind half an answer; say stop")
        model = self.models[attempt.route or ""]
        heard = _Tokens(attempt)
        callbacks = model.callbacks
        if callbacks is None or isinstance(callbacks, list):
            callbacks = [*(callbacks or ()), heard]
        else:
            callbacks = callbacks.copy()
            callbacks.add_handler(heard)
        return request.override(
            model=model.model_copy(update={"callbacks": callbacks}))

    def _done(self, request: typing.Any, outcome: "Outcome") -> typing.Any:
        """What the agent gets; the call is kept while tools are to run."""
        answer = outcome.value
        message = None
        if isinstance(answer, _Answer):
            message, answer = answer.message, answer.response
        run = _run_of(request.state)
        asked = message.tool_calls if message is not None else ()
        with self._lock:
            self._calls.pop(run, None)
            if asked and run:
                self._calls[run] = outcome.call
                while len(self._calls) > _MOST_RUNS:
                    self._calls.popitem(last=False)
            for tool_call in asked:
                self._tell(outcome.call, tool_call, "requested")
        return answer

    def _told(self, request: typing.Any, refused: Refused) -> Refused:
        """The refusal as the chat model's own exception, not to be retried."""
        with self._lock:
            self._calls.pop(_run_of(request.state), None)
        if isinstance(refused.answer, _Answer):
            refused.answer = refused.answer.response
        error = refused.__cause__ or _ModelError(str(refused))
        return joined(refused, error, _ModelError, is_retryable=False)

    # ---- tools

    def wrap_tool_call(self, request: typing.Any,
                       handler: "typing.Callable[[typing.Any], typing.Any]") -> typing.Any:
        """Tells of a tool before and after. An exception leaves it started:
        nobody knows what it did."""
        self._tool(request, "started")
        answer = handler(request)
        self._tool(request, self._ended(request, answer))
        return answer

    async def awrap_tool_call(self, request: typing.Any,
                              handler: "typing.Callable[[typing.Any], typing.Awaitable[typing.Any]]") -> typing.Any:
        """The same for async code."""
        self._tool(request, "started")
        answer = await handler(request)
        self._tool(request, self._ended(request, answer))
        return answer

    def _ended(self, request: typing.Any,
               answer: typing.Any) -> "ToolState | None":
        if getattr(answer, "status", None) != "error":
            return "committed"
        if _never_ran(request, answer) or (
                self.tool_failed is not None and self.tool_failed(answer)):
            return "failed"
        return None

    def _tool(self, request: typing.Any, state: "ToolState | None") -> None:
        if state is None:
            return
        with self._lock:
            call = self._calls.get(_run_of(request.state))
            if call is not None:
                self._tell(call, request.tool_call, state)

    def _tell(self, call: "Call", tool_call: Facts, state: "ToolState") -> None:
        name = tool_call["name"]
        call.tool(tool_call.get("id") or name, state, name in self.idempotent)


class _Answer:
    """A step's answer, in the form that attempt.facts() reads."""

    def __init__(self, response: typing.Any) -> None:
        self.response = response
        self.message = _message_of(response)
        self.content: "list[Facts]" = []
        self.stop_reason: typing.Any = None
        self.usage: "Facts | None" = None
        if self.message is None:
            return
        self.content.append({"type": "text", "text": str(self.message.text)})
        self.content += [
            {"type": "tool_use", "id": one.get("id"), "name": one["name"],
             "input": one["args"]} for one in self.message.tool_calls]
        self.content += [  # cut off, most often
            {"type": "function_call", "id": one.get("id"),
             "name": one.get("name"), "arguments": one.get("args") or ""}
            for one in self.message.invalid_tool_calls]
        meta = self.message.response_metadata
        self.stop_reason = (meta.get("finish_reason") or meta.get("stop_reason")
                            or meta.get("stopReason"))
        usage = self.message.usage_metadata
        if usage:
            details = usage.get("input_token_details") or {}
            self.usage = {
                "prompt_tokens": usage.get("input_tokens"),
                "completion_tokens": usage.get("output_tokens"),
                "prompt_tokens_details": {
                    "cached_tokens": details.get("cache_read")}}


class _Tokens(_Handler):  # type: ignore[misc]
    """Tells an attempt of the tokens a streaming model passes on."""

    run_inline = True  # in the task that runs the attempt, in no thread

    def __init__(self, attempt: "Attempt") -> None:
        self.attempt = attempt

    def on_llm_new_token(self, token: typing.Any, **more: typing.Any) -> None:
        if token:
            self.attempt.token(1)
        else:
            self.attempt.lifecycle()


def _facts(request: typing.Any) -> Facts:
    """Arguments of Engine.begin(), as far as a request tells them."""
    messages = list(request.messages)
    features = []
    if request.system_message is not None:
        messages.insert(0, request.system_message)
        features.append("system_prompt")
    if request.tools:
        features.append("tools")
    if any(isinstance(one, _messages.ToolMessage) for one in messages):
        features.append("tool_round_trip")
    out: Facts = {
        "prompt_tokens": _messages.utils.count_tokens_approximately(messages),
        "stream": False, "features": features,
        "tools": [one["name"] if "name" in one else str(one.get("type"))
                  for one in map(_named, request.tools)]}
    limit = request.model_settings.get("max_tokens")
    if isinstance(limit, int):
        out["max_output_tokens"] = limit
    return out


def _named(tool: typing.Any) -> Facts:
    """A tool's declaration, wherever its name stands."""
    if not isinstance(tool, dict):
        return {"name": tool.name}
    inner = tool.get("function")
    return inner if isinstance(inner, dict) else tool


def _message_of(response: typing.Any) -> typing.Any:
    """The model's message of whatever a handler may answer."""
    response = getattr(response, "model_response", response)
    for one in getattr(response, "result", [response]):
        if isinstance(one, _messages.AIMessage):
            return one
    return None


def _run_of(state: typing.Any) -> str:
    if isinstance(state, dict):
        return str(state.get(_RUN) or "")
    return str(getattr(state, _RUN, ""))


def _never_ran(request: typing.Any, answer: typing.Any) -> bool:
    """Whether the error message is langgraph's own, written before a run: of
    an unknown tool, or of arguments that do not fit."""
    if request.tool is None:
        return True
    start = _tool_node.TOOL_INVOCATION_ERROR_TEMPLATE.partition("{")[0]
    return str(answer.content).startswith(
        f"{start}{request.tool_call['name']}'")
