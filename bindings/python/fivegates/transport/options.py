"""What a guarded client is told once, and what one call is told apart."""

from __future__ import annotations

import contextlib
import contextvars
import os
import typing
import urllib.parse

from fivegates.errors import ArgumentError
from fivegates.runner import unable
from fivegates.transport.request import ModelRequest, url_for

if typing.TYPE_CHECKING:
    from fivegates._core import Call, Decision, Engine

__all__ = ["CallOptions", "Options", "Unreachable", "current", "guarded",
           "key_headers"]

Json = typing.Dict[str, typing.Any]
# Headers that carry a key, and what stands before it.
_KEY_HEADERS = (("authorization", "Bearer "), ("x-api-key", ""),
                ("api-key", ""), ("x-goog-api-key", ""))
# URLs are the same for all requests of a client but those with the model in
# the path.
_URLS_KEPT = 256


class Unreachable(ArgumentError):
    """A route this client cannot send to."""


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


_current: "contextvars.ContextVar[CallOptions | None]" = (
    contextvars.ContextVar("fivegates_call", default=None))


def current() -> "CallOptions | None":
    """The options of the guarded() block this code runs in."""
    return _current.get()


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
    options = CallOptions(workflow, facts)
    token = _current.set(options)
    try:
        yield options
    finally:
        _current.reset(token)


class Options:
    """How a guarded client works: see fivegates.transport.client()."""

    def __init__(self, engine: "Engine", workflow: "str | None", *,
                 keys: "typing.Mapping[str, str] | None" = None,
                 facts: "typing.Mapping[str, typing.Any] | None" = None,
                 prompt_tokens: "typing.Callable[[Json], int] | None" = None,
                 compact: "typing.Callable[[Json, int], Json] | None" = None,
                 cached: "typing.Callable[[Json, Decision], str | None] | None" = None,
                 preset: "typing.Callable[[Decision], str | None] | bool" = True,
                 on_decision: "typing.Callable[[Decision, Call], object] | None" = None,
                 ledger: typing.Any = None) -> None:
        known = engine.policy.workflows()
        if workflow is not None and workflow not in known:
            raise ArgumentError(
                f"no workflow {workflow!r} in the card; it has "
                f"{', '.join(known)}")
        self.engine = engine
        self.workflow = workflow
        self.keys = dict(keys or {})
        self.facts = dict(facts or {})
        self.prompt_tokens = prompt_tokens
        self.compact = compact
        self.cached = cached
        self.preset = preset
        self.on_decision = on_decision
        self.ledger = ledger
        self._unable = unable(None, False, cached or None, preset or None,
                              None, False)
        self._apis: "dict[str, tuple[str, str] | None]" = {}
        self._urls: "dict[tuple[str, str], str]" = {}
        self._routes: "dict[str, Json]" = {}

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
                self.cached or None, self.preset or None, None, False)
        else:
            facts["unable"] = self._unable
        return facts

    def api(self, request: typing.Any, url: str) -> "tuple[str, str] | None":
        """The API a request asks, by its URL, and the path below the base
        URL; None for other requests. url is the request's own as text."""
        if request.method != "POST":
            return None
        try:
            return self._apis[url]
        except KeyError:
            if len(self._apis) >= _URLS_KEPT:
                self._apis.clear()
            found = ModelRequest.api("POST", request.url.path)
            self._apis[url] = found
            return found

    def route(self, name: str) -> Json:
        """A route of the card, which does not change."""
        found = self._routes.get(name)
        if found is None:
            found = self._routes[name] = self.engine.policy.route(name)
        return found

    def target(self, route: "dict[str, typing.Any]", primary: bool,
               request: ModelRequest, sent: typing.Any, own: str,
               ) -> "tuple[str, str | None, bool]":
        """Where a route is: its URL, its key, whether the client's own key
        stays. sent is the URL the client aims at, own the same as text.

        The client's key goes to no other host than the client's own.
        """
        place = (route["name"], own)
        url = self._urls.get(place)
        if url is None:
            url = _url(route, request, sent, own)
            if len(self._urls) >= _URLS_KEPT:  # a client aims at few
                self._urls.clear()
            self._urls[place] = url
        home = url == own or _origin(url) == _origin(own)
        if primary and not home:
            raise ArgumentError(
                f"the client is aimed at {_origin(own)} but the card has route "
                f"{route['name']} at {_origin(url)}; give both the same "
                f"base_url")
        key = self.keys.get(route["name"])
        if key is not None or (primary and home):
            return url, key, key is None
        key = os.environ.get(route["key_env"] or "")
        if key is None and route["key_env"]:
            raise Unreachable(
                f"no key for route {route['name']}: set {route['key_env']}, "
                f"or pass keys={{{route['name']!r}: ...}} when the client is "
                f"made")
        return url, key, key is None and home


def _url(route: "dict[str, typing.Any]", request: ModelRequest,
         sent: typing.Any, own: str) -> str:
    base = route["base_url"]
    if base is None:
        if request.wire != "generateContent":
            return own
        base = own.partition("?")[0].removesuffix(request.path)
    return _with_query(url_for(base, request, route["model"]), sent)


def _origin(url: str) -> str:
    return "/".join(url.split("/", 3)[:3]).lower()


def _with_query(url: str, sent: typing.Any) -> str:
    """The request's own query, without a key in it, where a base has none."""
    if "?" in url or not sent.query:
        return url
    pairs = [(name, value) for name, value in sent.params.multi_items()
             if name != "key"]
    return f"{url}?{urllib.parse.urlencode(pairs)}" if pairs else url


def key_headers(headers: typing.Any, provider: str,
                 key: "str | None") -> "dict[str, str]":
    """A key in the header the client uses; "" for those to be taken out."""
    out = {name: "" for name, _ in _KEY_HEADERS if name in headers}
    if key is None:
        return out
    used = [pair for pair in _KEY_HEADERS if pair[0] in headers]
    name, before = used[0] if used else _KEY_HEADERS[0]
    if provider == "azure-openai" and name == "authorization":
        name, before = "api-key", ""
    out[name] = before + key
    return out
