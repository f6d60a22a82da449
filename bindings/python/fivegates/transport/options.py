"""What a guarded client is told once, and what one call is told apart."""

from __future__ import annotations

import contextlib
import contextvars
import difflib
import typing

from fivegates._core import Engine
from fivegates.errors import ArgumentError
from fivegates.driven import unable
from fivegates.compact import compact as built_in
from fivegates.edits import Compact
from fivegates.transport.copies import Copies
from fivegates.transport.pooled import Template
from fivegates.transport.request import ModelRequest
from fivegates.transport.targets import Targets

if typing.TYPE_CHECKING:
    from fivegates._core import Call, Decision, Unable
    from fivegates.cache import AnswerCache, AsyncAnswerCache

__all__ = ["CallOptions", "Options", "current", "guarded"]

Json = typing.Dict[str, typing.Any]
# What Engine.begin() may be told of a call.
_FACTS = ("call_id", "prompt_tokens", "max_output_tokens", "request_bytes",
          "stream", "delivery", "features", "tools", "tool_choice",
          "data_class", "region", "tenant", "affinity", "account",
          "server_state", "unable", "max_wait_ms", "prior", "language", "resume")
# What a URL asks is kept: a client has few, but with the model in the path.
_URLS_KEPT = 256


class Asked:
    """What requests to one URL ask: the URL as text, the API, and the path
    below the base URL."""

    def __init__(self, url: str, api: "tuple[str, str]") -> None:
        self.url = url
        self.api = api
        self.chat = api[0] == "chat"
        # Routes of which Targets.is_own() is true.
        self.own: "set[str]" = set()
        # How a request to it is made for the pool, None: it is not; and
        # whether that has been found out.
        self.pooled: "Template | None" = None
        self.watched = False


class CallOptions:
    """One call's own options, and what was decided for it.

    decisions holds every decision in order; call is the engine's call once
    the request has begun; attempts counts what was sent.
    """

    def __init__(self, workflow: "str | None",
                 facts: "dict[str, typing.Any]") -> None:
        self.workflow = workflow
        self.facts = facts
        self.decisions: "list[Decision]" = []
        self.call: "Call | None" = None
        self.attempts = 0

    @property
    def decision(self) -> "Decision | None":
        """The latest decision; None before the request began."""
        return self.decisions[-1] if self.decisions else None


CURRENT: "contextvars.ContextVar[CallOptions | None]" = (
    contextvars.ContextVar("fivegates_call", default=None))


def _known(facts: "typing.Mapping[str, typing.Any]") -> "dict[str, typing.Any]":
    """The facts, if begin() knows them all."""
    for name in facts:
        if name not in _FACTS:
            near = difflib.get_close_matches(name, _FACTS, 1)
            raise ArgumentError(
                f"{name!r} is no fact of a call"
                + (f"; did you mean {near[0]}?" if near else
                   f"; there are {', '.join(_FACTS)}"))
    return dict(facts)


def current() -> "CallOptions | None":
    """The options of the guarded() block this code runs in."""
    return CURRENT.get()


@contextlib.contextmanager
def guarded(workflow: "str | None" = None,
            **facts: typing.Any) -> "typing.Iterator[CallOptions]":
    """Options of the calls made inside the block, in this task or thread.

        with transport.guarded("support-answer", tenant="t1") as seen:
            client.chat.completions.create(...)
        print(seen.decision.explain())

    facts are those of Engine.begin(); they win over what the request's body
    says and over the client's own.
    """
    options = CallOptions(workflow, _known(facts))
    token = CURRENT.set(options)
    try:
        yield options
    finally:
        CURRENT.reset(token)


def _shortener(compact: "Compact | bool",
               count: "typing.Callable[[Json], int] | None") -> Compact:
    """What the ladder's compact does: the card names the step, so that is
    consent enough, as it is for the card's preset."""
    if callable(compact):
        return compact
    return ((lambda body, tokens: built_in(body, tokens, count)) if compact
            else lambda body, tokens: None)


class Options:
    """How a guarded client works: see fivegates.transport.client()."""

    def __init__(self, engine: "Engine", workflow: "str | None", *,
                 keys: "typing.Mapping[str, str] | None" = None,
                 any_model: bool = False,
                 facts: "typing.Mapping[str, typing.Any] | None" = None,
                 prompt_tokens: "typing.Callable[[Json], int] | None" = None,
                 compact: "Compact | bool" = True,
                 cached: "typing.Callable[[Json, Decision], str | None] | None" = None,
                 cache: "AnswerCache | AsyncAnswerCache | None" = None,
                 preset: "typing.Callable[[Decision], str | None] | bool" = True,
                 on_decision: "typing.Callable[[Decision, Call], object] | None" = None,
                 ledger: typing.Any = None) -> None:
        if not isinstance(engine, Engine):
            raise ArgumentError(
                f"the second argument must be an Engine, not "
                f"{type(engine).__name__}; fivegates.Engine(\"card.yaml\") "
                f"makes one")
        known = engine.policy.workflows()
        if workflow is not None and workflow not in known:
            raise ArgumentError(
                f"no workflow {workflow!r} in the card; it has "
                f"{', '.join(known)}")
        self.engine = engine
        self.workflow = workflow
        self.targets = Targets(engine.policy, keys or {}, any_model)
        self.facts = _known(facts or {})
        self.prompt_tokens = prompt_tokens
        self.shorten = _shortener(compact, prompt_tokens)
        if cache is not None and cached is not None:
            raise ArgumentError("cached= and cache= are two answers to one "
                                "step; give one of them")
        self.cached = cached
        self.cache = cache
        self.preset = preset
        self.on_decision = on_decision
        self.ledger = ledger
        self.unable = typing.cast("list[Unable]", unable(
            None, False, cached or cache, preset or None, None, False))
        # Whether all that begin() is told of a call is in its body.
        self.told_by_body = (workflow is not None and not self.facts
                             and prompt_tokens is None and cache is None)
        # Whether nobody is told of each decision.
        self.untold = on_decision is None and ledger is None
        self._asked: "dict[typing.Hashable, Asked | None]" = {}
        # The latest of these, as most clients have one: it needs no hash.
        self._last: "tuple[typing.Hashable, Asked | None]" = (None, None)

    def workflow_of(self, call: "CallOptions | None") -> str:
        name = (call.workflow if call is not None else None) or self.workflow
        if name is None:
            raise ArgumentError(
                "no workflow for this request; name one when the client is "
                "made, or around the call: with transport.guarded(\"name\")")
        return name

    def facts_of(self, request: ModelRequest,
                 call: "CallOptions | None") -> "dict[str, typing.Any]":
        """Arguments of Engine.begin(): the body's, the client's, the call's."""
        facts = request.facts()
        if self.prompt_tokens is not None:
            facts["prompt_tokens"] = self.prompt_tokens(request.body)
        facts.update(self.facts)
        if call is not None:
            facts.update(call.facts)
        if "unable" in facts or "resume" in facts:
            facts["unable"] = unable(
                facts.get("unable"), facts.pop("resume", False),
                self.cached or self.cache, self.preset or None, None, False)
        else:
            facts["unable"] = self.unable
        return facts

    def asked(self, request: typing.Any, copies: Copies) -> "Asked | None":
        """What a request asks; None for requests to no model."""
        if request.method != "POST":
            return None
        url = request.url
        # The same for the same URL, and for no other.
        place = url._uri_reference if type(url) is copies.url else str(url)
        last = self._last
        if place == last[0]:
            return last[1]
        try:
            found = self._asked[place]
        except KeyError:
            if len(self._asked) >= _URLS_KEPT:
                self._asked.clear()
            api = ModelRequest.api("POST", url.path)
            found = None if api is None else Asked(str(url), api)
            self._asked[place] = found
        self._last = place, found
        return found

    def is_own(self, asked: Asked, route: str, model: str) -> bool:
        """Targets.is_own() for a model that the route serves; kept in
        asked.own where it is true."""
        found = self.targets.is_own(route, model, asked.url, asked.api)
        if found:
            asked.own.add(route)
        return found
