"""A guarded HTTP client for the SDKs people already use.

    client = openai.OpenAI(http_client=transport.client(
        httpx2, engine, "support-answer"))

Works under every SDK that sends with httpx or httpx2: openai, anthropic,
google-genai, and what is built on them (langchain-openai, llama-index,
pydantic-ai, ...). Each request to a model is one call of the engine: it is
sent when the engine permits, again or elsewhere when the engine says so, and
never after its first content was handed on. A refusal is an exception of the
SDK's own class that carries the decision:

    except openai.APIError as error:
        decision = fivegates.decision_of(error)

What it cannot do: take back what was shown, turn a stream into a whole answer
or back, send to a stand-in that speaks another API (engine.run with one
callable a route can). A redirect is not followed: a key, or a prompt, would go
where no card says. A blocking client notices that it was left behind only when
it reads; a stream it dropped without closing is hung up with its next request.
"""

from __future__ import annotations

import functools
import inspect
import typing
import urllib.request

from fivegates.errors import ArgumentError
from fivegates.transport.options import CallOptions, Options, current, guarded

if typing.TYPE_CHECKING:
    from fivegates._core import Engine

__all__ = ["CallOptions", "async_client", "async_transport", "client",
           "current", "guarded", "timed_client", "transport"]

# What the SDKs use for clients of their own.
_TIMEOUT_S = 600
_CONNECT_S = 5.0
_CONNECTIONS = 1000
_KEPT = 100


def _checked(http: typing.Any) -> typing.Any:
    """The module, if it is one."""
    if not hasattr(http, "AsyncHTTPTransport"):
        raise ArgumentError(
            f"the first argument must be the module httpx or httpx2, whichever "
            f"the SDK sends with, not {http!r:.60}")
    return http


@functools.cache
def _blocking(http: typing.Any) -> typing.Any:
    from fivegates.transport.blocking import make
    return make(http)


@functools.cache
def _asynchronous(http: typing.Any) -> typing.Any:
    from fivegates.transport.asynchronous import make
    return make(http)


@functools.cache
def _timed(http: typing.Any) -> typing.Any:
    from fivegates.transport.timed import make
    return make(http)


def _limits(http: typing.Any) -> typing.Any:
    return http.Limits(max_connections=_CONNECTIONS,
                       max_keepalive_connections=_KEPT)


def _defaults(http: typing.Any) -> "dict[str, typing.Any]":
    return {"timeout": http.Timeout(_TIMEOUT_S, connect=_CONNECT_S),
            "follow_redirects": True}


def _mounts(http: typing.Any, kind: str,
            guard: "typing.Callable[[typing.Any], typing.Any]",
            ) -> "dict[str, typing.Any]":
    """What the environment's proxies add to a client: a client that is given a
    transport does not ask for them, so one without is asked what it has."""
    found = urllib.request.getproxies()
    if not any(found.get(scheme) for scheme in ("http", "https", "all")):
        return {}
    own = getattr(getattr(http, kind)(limits=_limits(http)), "_mounts", None)
    if own is None:
        raise ArgumentError(
            f"the environment names proxies, and where this {http.__name__} keeps "
            f"them is not known; give inner={http.__name__}.HTTPTransport(proxy=...) "
            f"(AsyncHTTPTransport for an async client), or unset HTTP_PROXY, "
            f"HTTPS_PROXY and ALL_PROXY")
    return {"mounts": {pattern.pattern: None if one is None else guard(one)
                       for pattern, one in own.items()}}


def _options(engine: "Engine", workflow: "str | None",
             given: "dict[str, typing.Any]") -> Options:
    known = inspect.getfullargspec(Options.__init__).kwonlyargs
    for name in given:
        if name not in known:
            raise ArgumentError(
                f"{name!r} is no option of a guarded client; it has "
                f"{', '.join(['inner', *known])}. What httpx's clients are given "
                f"goes to inner=HTTPTransport(http2=..., verify=..., proxy=...), "
                f"or is set on the client that is returned")
    return Options(engine, workflow, **given)


def transport(http: typing.Any, engine: "Engine",
              workflow: "str | None" = None, *, inner: typing.Any = None,
              **options: typing.Any) -> typing.Any:
    """A transport for http.Client: http is the module httpx or httpx2.

    inner sends the requests: http.HTTPTransport() when not given; whatever
    has handle_request() will do. Options:

    workflow: of the calls, where transport.guarded() names no other.
    keys: {route: API key} where it is not in the environment under the
      route's key_env. The primary uses the client's own key. A key is sent
      to its own route only.
    any_model: a request for another model than the card's is an ArgumentError;
      True sends it with the card's.
    facts: of Engine.begin() for every call: {"tenant": ..., "region": ...}.
    prompt_tokens(body): counts a prompt; by default estimated by its length.
    compact: True: where the card's ladder says so, the oldest turns are left
      out (fivegates.compact); False: never; or a function of the body and the
      tokens that answers a body, or None where there is none.
    cache: a fivegates.cache.AnswerCache (or AsyncAnswerCache, for an async
      client), for the ladder's cached: keeps the text of each accepted answer
      under its request, tenant and language. Or, for a cache of your own,
      cached(body, decision): a text kept from before, or None.
    preset: True: the card's text (the answer's model is fivegates/preset, and
      the logger fivegates warns); False: none; or a function of the decision.
      Never for a request that wants JSON, or the call of a tool.
    on_decision(decision, call), ledger: as of Engine.run().
    """
    if inspect.iscoroutinefunction(getattr(options.get("cache"), "lookup", None)):
        raise ArgumentError("a blocking client cannot wait for an async cache; "
                            "give an AnswerCache")
    made = _options(engine, workflow, options)
    return _blocking(_checked(http))(
        inner or http.HTTPTransport(limits=_limits(http)), made)


def async_transport(http: typing.Any, engine: "Engine",
                    workflow: "str | None" = None, *,
                    inner: typing.Any = None,
                    **options: typing.Any) -> typing.Any:
    """The same for http.AsyncClient; cached may be a coroutine function."""
    made = _options(engine, workflow, options)
    return _asynchronous(_checked(http))(
        inner or http.AsyncHTTPTransport(limits=_limits(http)), made)


def client(http: typing.Any, engine: "Engine", workflow: "str | None" = None,
           *, inner: typing.Any = None, **options: typing.Any) -> typing.Any:
    """An http.Client with the SDKs' own settings and a guarded transport.

    For the http_client of openai, anthropic and their kin; options are those
    of transport(). Without an inner transport it sends through the proxies that
    the environment names (HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, NO_PROXY), as
    theirs do.
    """
    made = transport(http, engine, workflow, inner=inner, **options)
    return http.Client(transport=made, **_defaults(http), **(
        {} if inner is not None else _mounts(http, "Client", lambda proxy: (
            _blocking(http)(proxy, made.options)))))


def async_client(http: typing.Any, engine: "Engine",
                 workflow: "str | None" = None, *, inner: typing.Any = None,
                 **options: typing.Any) -> typing.Any:
    """An http.AsyncClient, likewise."""
    made = async_transport(http, engine, workflow, inner=inner, **options)
    return http.AsyncClient(transport=made, **_defaults(http), **(
        {} if inner is not None else _mounts(http, "AsyncClient", lambda proxy: (
            _asynchronous(http)(proxy, made.options)))))


def timed_client(http: typing.Any, *, inner: typing.Any = None) -> typing.Any:
    """An http.Client for a send of Engine.run(): an attempt's time ends it.

    It asks no engine. Its time-outs are cut to those of the attempt it is used
    in, so that none need be given, and the answer is ended when the attempt's
    time is over, whatever comes meanwhile: a plain client's time-outs are for
    each read, and keep-alives never exceed them. Raised is http.ReadTimeout, in
    the SDK's own class. Outside of an attempt it is a client like any other.
    Engine.arun() needs none: it cancels the attempt. inner: as of client().
    """
    make = _timed(_checked(http))
    return http.Client(
        transport=make(inner or http.HTTPTransport(limits=_limits(http))),
        **_defaults(http),
        **({} if inner is not None else _mounts(http, "Client", make)))
