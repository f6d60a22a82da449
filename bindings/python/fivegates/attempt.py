"""One permitted request: what send(attempt) is given, and reports to."""

from __future__ import annotations

import contextvars
import json
import time
import typing

from fivegates.answers import (
    answer_of,
    choices_of,
    finish_word,
    is_event,
    member,
    progress_of,
)
from fivegates.edits import Drops, api_of, changes_of, edit
from fivegates.errors import EditError, StreamError

if typing.TYPE_CHECKING:
    from fivegates._core import (
        Call,
        Decision,
        EventKind,
        Policy,
        Resume,
        ToolState,
    )

__all__ = ["CURRENT", "Attempt"]

T = typing.TypeVar("T")

# The attempt that code runs in. In a thread of its own it is in none.
CURRENT: "contextvars.ContextVar[Attempt | None]" = contextvars.ContextVar(
    "fivegates_attempt", default=None)
# A reader that takes longer over a chunk holds its stream back.
READER_S = 0.05


class Attempt:
    """One permitted request: where to send it, and how to tell of it.

    route, model, base_url, key_env, provider: from the card. number: 1, 2, ...
    changes: edits the engine asks for ({"max_tokens": 200, "drop_tools":
    "some"}: see fivegates.edits), which apply() makes. headers: one id per call and the attempt's number. Time-outs are
    in seconds, None where the engine names none.
    """

    # As they are until something came.
    sent_said = False
    head_seen = False
    event_seen = False  # of an API this package can read
    finish: "str | None" = None
    # Evidence of the clock that ended it: transport.timed_client() tells.
    over: "dict[str, typing.Any] | None" = None
    # What names it as its provider does: its answer's headers, and a scanner
    # of it, its bytes, or an SDK's object.
    head: typing.Any = None
    body: typing.Any = None

    def __init__(self, call: "Call", decision: "Decision",
                 route: "dict[str, typing.Any]", streamed: bool,
                 workflow: str) -> None:
        self.call = call
        self.workflow = workflow
        self.decision = decision
        self.number = decision.attempt
        self.route = decision.route
        self._card = route
        self.streamed = streamed
        self.started = time.monotonic()
        self.seen: "dict[str, int]" = {"visible": 0, "lifecycle": 0,
                                       "reasoning": 0, "tool_args_bytes": 0}
        self._usage: "dict[str, typing.Any]" = {}
        # Of a stream's choices seen: has each given its finish reason?
        self._choices: "dict[int, bool]" = {}
        self.changes = changes_of(decision) if decision.change else {}
        self.headers = {"X-Client-Request-Id": call.id,
                        "X-Request-Attempt": str(self.number)}
        # None, not 0: the engine names no time-out.
        self.connect_s = decision.connect_ms / 1000 or None
        self.first_token_s = decision.first_token_ms / 1000 or None
        self.total_s = decision.total_ms / 1000 or None

    def __repr__(self) -> str:
        return f"<Attempt {self.number} on {self.route}>"

    # What many requests never ask for.

    @property
    def model(self) -> typing.Any:
        return self._card["model"]

    @property
    def base_url(self) -> typing.Any:
        return self._card["base_url"]

    @property
    def key_env(self) -> typing.Any:
        return self._card["key_env"]

    @property
    def provider(self) -> typing.Any:
        return self._card["provider"]

    @property
    def api(self) -> typing.Any:
        return self._card["api"]

    @property
    def resume_from(self) -> "Resume":
        return self.decision.resume_from

    @property
    def idle_s(self) -> "float | None":
        return self.decision.idle_ms / 1000 or None

    @property
    def read_s(self) -> "float | None":
        """A time-out for clients that have one for each read, or the answer.

        Where it is for each read, an answer of keep-alives never exceeds it:
        see transport.timed_client().
        """
        if not self.streamed:
            return self.total_s or self.first_token_s
        waits = [s for s in (self.first_token_s, self.idle_s) if s]
        return max(waits) if waits else None

    def timeout(self, http: typing.Any) -> typing.Any:
        """A Timeout of the given module, httpx or httpx2: see read_s."""
        return http.Timeout(self.read_s, connect=self.connect_s,
                            write=self.connect_s, pool=self.connect_s)

    def apply(self, request: "dict[str, typing.Any]",
              ) -> "dict[str, typing.Any]":
        """A copy of a request's arguments as this attempt must send them.

        For clients in the form of openai and anthropic: sets the model,
        adds the headers, makes the changes. Raises EditError where one of
        these cannot be made: let it through.
        """
        out = edit(request, self.changes, self.drops,
                   api_of(request, self.api, self.provider), self.provider)
        if out is None:
            raise EditError("this request cannot be edited as the engine asks: "
                            + ", ".join(self.changes))
        if self.model is not None:
            out["model"] = self.model
        out["extra_headers"] = {**(request.get("extra_headers") or {}),
                                **self.headers}
        if self.changes.get("stream"):
            out["stream"] = True
        if self.changes.get("no_stream"):
            out["stream"] = False
            out.pop("stream_options", None)
        return out

    def drops(self, tool: str) -> bool:
        """Whether this attempt must not offer a tool.

        A contract may name the tools its route is not given; the ladder's
        without_tools takes out all.
        """
        return drops_of(self.decision, self.call.engine.policy,
                        self.workflow)(tool)

    # ---- progress

    def _event(self, kind: "EventKind", value: "int | str | None" = None) -> None:
        self.call.event(kind, value, attempt=self.number)
        self.sent_said = True  # not before: an interrupt may come in between

    def sent(self) -> None:
        """The request is on its way."""
        self._event("sent")

    def accepted(self) -> None:
        """A 2xx head came."""
        self.head_seen = True
        self._event("accepted")

    def lifecycle(self) -> None:
        """A ping or a created event came: bytes, not content."""
        self.seen["lifecycle"] += 1
        self._event("lifecycle")

    def reasoning(self, count: int = 1) -> None:
        """Reasoning came."""
        self.seen["reasoning"] += count
        self._event("reasoning", count)

    def token(self, count: int = 1) -> None:
        """Text the user sees came."""
        self.seen["visible"] += count
        self._event("token", count)

    def tool_args(self, count: int) -> None:
        """Bytes of a tool call's arguments came."""
        self.seen["tool_args_bytes"] += count
        self._event("tool_args", count)

    def tool(self, op_id: str, state: "ToolState",
             idempotent: bool = False) -> None:
        """An operation of a tool: requested, started, committed,
        acknowledged, failed."""
        self.call.tool(op_id, state, idempotent, attempt=self.number)

    def usage(self, **facts: typing.Any) -> None:
        """Usage as the provider reports it: prompt_tokens, output_tokens,
        cached_tokens, cost_usd, final."""
        self._usage.update(facts)
        self.call.usage(attempt=self.number, **facts)

    def terminal(self, reason: "str | None" = "stop") -> None:
        """The answer's own end came, with its finish reason."""
        self.finish = finish_word(reason)
        self._event("terminal", self.finish)

    def wanted_more(self, gave: float) -> None:
        """The reader asks for more, having been given some at `gave` (of
        time.monotonic()). The engine measures how fast a route writes; how
        slowly its reader reads must not look like a slow route."""
        if time.monotonic() - gave > READER_S:
            self._event("lifecycle")

    def observe(self, chunk: object) -> None:
        """Reports one parsed event of an openai or anthropic stream."""
        if not self.head_seen:
            self.accepted()
            self.body = chunk
        self.event_seen = self.event_seen or is_event(chunk)
        facts = progress_of(chunk)
        if facts.get("text"):
            self.token(max(1, len(facts["text"]) // 4))
        if facts.get("reasoning"):
            self.reasoning()
        if facts.get("tool_args"):
            self.tool_args(facts["tool_args"])
        if facts.get("lifecycle"):
            self.lifecycle()
        if facts.get("usage"):
            self.usage(**facts["usage"])
        self._choices.update(
            {index: done for index, done in choices_of(chunk).items()
             if done or index not in self._choices})
        if facts.get("finish") and all(self._choices.values()):
            self.terminal(facts["finish"])

    def watch(self, stream: "typing.Iterable[T]") -> "typing.Iterator[T]":
        """The stream's events, each reported before it is passed on.

        Raises StreamError where the stream ends without the answer's own end,
        or an event cannot be read.
        """
        events = iter(stream)
        self.head = member(stream, "response", "headers")
        while True:
            try:
                chunk = next(events)
            except StopIteration:
                break
            except (json.JSONDecodeError, UnicodeDecodeError) as exc:
                raise _garbage(exc) from exc
            self.observe(chunk)
            gave = time.monotonic()
            yield chunk
            self.wanted_more(gave)
        self._ended()

    async def awatch(self, stream: "typing.AsyncIterable[T]",
                     ) -> "typing.AsyncIterator[T]":
        """The same for async code."""
        events = stream.__aiter__()
        self.head = member(stream, "response", "headers")
        while True:
            try:
                chunk = await events.__anext__()
            except StopAsyncIteration:
                break
            except (json.JSONDecodeError, UnicodeDecodeError) as exc:
                raise _garbage(exc) from exc
            self.observe(chunk)
            gave = time.monotonic()
            yield chunk
            self.wanted_more(gave)
        self._ended()

    def _ended(self) -> None:
        if self.finish is None and self.event_seen:
            raise StreamError("the stream ended without its end", {
                "phase": "stream", "status": 200, "whole_body": True})

    # ---- how it ended

    def _elapsed_ms(self) -> int:
        return int((time.monotonic() - self.started) * 1000)

    def facts(self, result: object) -> "dict[str, typing.Any]":
        """Arguments for Call.success()."""
        out = answer_of(result)
        if self.body is None:
            self.body = result
        for name, value in self._usage.items():
            out.setdefault(name, value)
        if self.finish is not None:
            out["finish_reason"] = self.finish
        if self.seen["visible"] and "output" not in out:
            out["visible"] = self.seen["visible"]
        return out

    def evidence(self, found: "dict[str, typing.Any]",
                 ) -> "dict[str, typing.Any]":
        """What was seen of this attempt, joined to an exception's evidence."""
        out = {**found, **(self.over or {})}
        if self.head is None:
            self.head = out.get("headers")
        out.setdefault("provider", self.provider)
        if self.api:
            out.setdefault("api", self.api)
        out.setdefault("elapsed_ms", self._elapsed_ms())
        if any(self.seen.values()) or self.head_seen:
            out.setdefault("progress", {**self.seen, "terminal": self.finish})
            if out.get("phase") in (None, "unknown", "read", "body"):
                out["phase"] = "stream"
                out.setdefault("status", 200)
        late = self.decision.first_token_ms
        if (late and not self.seen["visible"] and self.streamed
                and out.get("phase") == "read"
                and "imeout" in out.get("transport", {}).get("kind", "")
                and out["elapsed_ms"] >= late):
            out.setdefault("timeout", "first_token_timeout")
        return out


def _garbage(exc: ValueError) -> StreamError:
    """An event that is no JSON, or no text, is the provider's fault."""
    return StreamError(f"an event that cannot be read: {exc}", {
        "phase": "stream", "status": 200, "transport": {
            "lib": "json", "kind": "JSONDecodeError", "message": str(exc)}})


def drops_of(decision: "Decision", policy: "Policy", workflow: str) -> Drops:
    """Which tools a send by this decision must not offer."""
    def drops(tool: str) -> bool:
        return "drop_tools" in decision.change and (
            decision.ladder_step == "without_tools"
            or policy.drops_tool(workflow, decision.route or "", tool))
    return drops
