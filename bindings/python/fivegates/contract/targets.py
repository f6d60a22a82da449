"""Where a side's requests go: a base URL, or a function of the user's.

A target makes one request, and never a second: whether there is another, the
engine decides. The key is read from the route's key_env when a request is
made, and is in no message, no line and no exception's text of this package.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import inspect
import json
import math
import os
import re
import time
import typing
import urllib.parse
import zlib

from fivegates.answers import answer_of
from fivegates.attempt import Attempt
from fivegates.contract.scorers import Answer
from fivegates.contract.threads import in_thread
from fivegates.contract.wire import WIRES, CannotSay, Wire, assembled, body_of
from fivegates.edits import edit
from fivegates.errors import FivegatesError, StreamError
from fivegates.evidence import evidence_of
from fivegates.stream import StreamWatcher
from fivegates.transport.request import ModelRequest, url_for

__all__ = ["Called", "Http", "Reply", "Side", "Target", "TargetError", "http_client",
           "http_module", "reply_of"]

Json = typing.Dict[str, typing.Any]
_PATHS: "dict[Wire, str]" = {"chat": "/chat/completions", "messages": "/v1/messages"}
# Providers whose own API is neither; they need `api` where they speak one of them.
_OWN_APIS = ("gemini", "vertex", "bedrock")
_ANTHROPIC_VERSION = "2023-06-01"
_ANSWER_BYTES = 32 << 20
_ERROR_BYTES = 1 << 20
_PIECE_BYTES = 1 << 16


class TargetError(FivegatesError):
    """A route that cannot be asked: which, why, and what would help."""

    result = "arg"


@dataclasses.dataclass(frozen=True)
class Side:
    """One of the two that are measured. name: primary, or route; route: of the
    card; drops: tools its contract leaves out; output_max: of what it provides."""

    name: str
    route: Json
    price: "dict[str, int] | None"
    output_max: "int | None"
    drops: "typing.Callable[[str], bool]"

    def request(self, chat: Json) -> Json:
        """A case's request as this side gets it."""
        out = edit(chat, {"drop_tools": "some"}, self.drops)
        if out is None:
            raise CannotSay("a tool that the contract leaves out is part of what was "
                            "said before")
        return out


class Reply(typing.NamedTuple):
    """What one request brought. usage None: not reported; cost_nusd: what the answer
    itself says it cost, 0 where it does not. Milliseconds since it was sent;
    first_token_ms None: not seen, the answer came as a whole."""

    result: typing.Any
    answer: Answer
    usage: "tuple[int, int, int] | None"  # prompt, cached of it, output
    cost_nusd: int
    first_token_ms: "int | None"
    latency_ms: int


class Target(typing.Protocol):
    """What the run asks."""

    def body(self, chat: Json) -> Json:
        """The request to send. Raises CannotSay."""

    async def send(self, attempt: Attempt, body: Json) -> Reply:
        """Makes one request; raises what evidence_of() knows."""

    async def close(self) -> None:
        """Hangs up."""


def _field(value: object, name: str) -> typing.Any:
    return value.get(name) if isinstance(value, dict) else getattr(value, name, None)


def _usage(result: object, facts: Json) -> "tuple[int, int, int] | None":
    """Prompt, cached and output tokens, where both ends of them are told.

    A prompt of no tokens, or an answer of none, is a gateway that does not count:
    it would make every call free.
    """
    usage = _field(result, "usage")
    for names in (("prompt_tokens", "completion_tokens"),
                  ("input_tokens", "output_tokens")):
        counts = [_field(usage, name) for name in names]
        if all(isinstance(one, int) and one >= 0 for one in counts):
            prompt, output = facts.get("prompt_tokens", 0), facts.get("output_tokens", 0)
            empty = not facts.get("output") and not facts.get("tool_calls")
            return ((prompt, facts.get("cached_tokens", 0), output)
                    if prompt and (output or empty) else None)
    return None


def reply_of(result: object, first_token_ms: "int | None", latency_ms: int) -> Reply:
    """A whole answer in any API's form, or a text, read."""
    facts = answer_of(result)
    return Reply(result, Answer(facts.get("output") or "",
                                tuple(facts.get("tool_calls") or ()),
                                facts.get("finish_reason")),
                 _usage(result, facts), math.ceil(facts.get("cost_usd", 0) * 1e9),
                 first_token_ms, latency_ms)


# ---- functions


class Called:
    """A function of the user's: function(request, route), also a coroutine
    function. It is given a chat request with its model, and the route's name,
    provider, model, base_url, key_env and api; it returns a text, or an answer
    in an API's form, and makes no second try itself."""

    def __init__(self, side: Side, function: "typing.Callable[..., typing.Any]") -> None:
        self._side = side
        self._function = function

    def body(self, chat: Json) -> Json:
        return {**self._side.request(chat), "model": self._side.route["model"]}

    async def send(self, attempt: Attempt, body: Json) -> Reply:
        route = {key: self._side.route[key] for key in (
            "name", "provider", "model", "base_url", "key_env", "api")}
        given = copy.deepcopy(body)  # what it does to it is not done to the cases
        began = time.monotonic()
        attempt.sent()
        try:
            if inspect.iscoroutinefunction(self._function):
                result = await self._function(given, route)
            else:
                result = await in_thread(self._function, given, route)
        except (Exception, SystemExit, KeyboardInterrupt) as exc:  # its own sys.exit()
            if isinstance(exc, Exception) and evidence_of(exc) is not None:
                raise
            # No failed request, but a mistake in it. Its words may hold a prompt.
            raise TargetError(f"the function of --call raised {type(exc).__name__}; "
                              "mend it and run again") from exc
        if not answer_of(result):
            raise TargetError(f"the function of --call returned {type(result).__name__}; "
                              "return a text, or an answer in an API's form")
        return reply_of(result, None, round((time.monotonic() - began) * 1000))

    async def close(self) -> None:
        pass


# ---- HTTP


def http_module() -> typing.Any:
    """httpx, or its successor; TargetError: neither is there."""
    for name in ("httpx", "httpx2"):
        try:
            return __import__(name)
        except ImportError:
            continue
    raise TargetError("requests to a base URL need the package httpx; pip install "
                      "'fivegates[contract]', or name a function with --call")


def wire_of(route: Json) -> Wire:
    """The API a route is asked by. TargetError."""
    name, api = route["name"], route["api"]
    if api is None and route["provider"] not in _OWN_APIS:
        return "messages" if route["provider"] == "anthropic" else "chat"
    if api not in WIRES:
        raise TargetError(f"route {name} speaks {api or 'the API of ' + route['provider']}"
                          ", and requests are made in chat and messages only; state api: "
                          "chat where it speaks that too, or name a function with --call")
    return typing.cast(Wire, api)


def http_client(http: typing.Any, connections: int) -> typing.Any:
    """A client for both sides. A redirect is not followed: a key, or a prompt,
    would go where no card says. Time-outs are the engine's, of each request."""
    return http.AsyncClient(follow_redirects=False, timeout=None,
                            limits=http.Limits(max_connections=connections))


def _check_url(route: str, base_url: str) -> None:
    """TargetError, without the URL in it: that may hold a key."""
    try:
        parts = urllib.parse.urlsplit(base_url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname)
        good = good and (parts.port is None or parts.port > 0)
    except ValueError:
        good = False
    if not good:
        raise TargetError(f"the base URL of route {route} is none; write "
                          "https://HOST/PATH")
    if parts.username is not None:
        raise TargetError(f"the base URL of route {route} has a user in it; name the key "
                          "by key_env")


class _Unreadable(StreamError):
    """A body that is not what its encoding says, or in one that is not read."""


async def _pieces(response: typing.Any) -> "typing.AsyncIterator[bytes]":
    """A body as it comes, in pieces of bounded size however well it was packed: the
    client's own decoders make gigabytes of a few bytes. Gzip was not asked for, but
    is understood."""
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    broken = _Unreadable("a body that cannot be unpacked", {  # as the client's own
        "phase": "body", "status": response.status_code,
        "transport": {"lib": "httpx", "kind": "DecodingError"}})
    if encoding not in ("", "identity", "gzip", "x-gzip", "deflate"):
        raise broken
    unpack = None if encoding in ("", "identity") else zlib.decompressobj(
        32 + zlib.MAX_WBITS)  # 32: with either header
    async for packed in response.aiter_raw():
        if unpack is None:
            yield packed
            continue
        while packed:
            try:
                piece = unpack.decompress(packed, _PIECE_BYTES)
            except zlib.error:
                raise broken from None
            packed = unpack.unconsumed_tail
            if piece:
                yield piece


class Http:
    """A route asked at its base URL, streamed. client: of the module http, as
    http_client() makes it. Raises TargetError where the card and the environment
    do not say all that takes."""

    def __init__(self, side: Side, http: typing.Any, client: typing.Any,
                 base_url: str) -> None:
        self._side = side
        self._http = http
        route = side.route
        self._wire = wire_of(route)
        _check_url(route["name"], base_url)
        self.url = url_for(base_url, ModelRequest(
            self._wire, _PATHS[self._wire], b"{}", {}), None)
        self._key_env = route["key_env"]
        if self._key_env and not os.environ.get(self._key_env):
            raise TargetError(f"no key for route {route['name']}: set {self._key_env}")
        if self._key_env and not re.fullmatch(r"[!-~]+", os.environ[self._key_env]):
            raise TargetError(f"the value of {self._key_env} is no key: it has blanks or "
                              "letters outside ASCII in it")
        self._client = client

    def body(self, chat: Json) -> Json:
        return body_of(self._wire, self._side.request(chat), self._side.route["model"],
                       self._side.output_max)

    def _headers(self, attempt: Attempt) -> "dict[str, str]":
        headers = {"content-type": "application/json", "accept-encoding": "identity",
                   **attempt.headers}
        if self._wire == "messages":
            headers["anthropic-version"] = _ANTHROPIC_VERSION
        key = os.environ.get(self._key_env) if self._key_env else None
        if key:
            provider = self._side.route["provider"]
            if self._wire == "messages":
                headers["x-api-key"] = key
            elif provider == "azure-openai":
                headers["api-key"] = key
            else:
                headers["authorization"] = f"Bearer {key}"
        return headers

    async def send(self, attempt: Attempt, body: Json) -> Reply:
        content = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
        began = time.monotonic()
        attempt.sent()
        async with self._client.stream(
                "POST", self.url, content=content, headers=self._headers(attempt),
                timeout=attempt.timeout(self._http)) as response:
            if response.status_code != 200:
                await self._refused(response)
            raw, whole, first = await self._read(response, attempt, began)
        try:
            result = json.loads(raw) if whole else assembled(self._wire, raw)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise StreamError("an answer that cannot be read", {
                "phase": "body" if whole else "stream", "status": 200,
                "whole_body": True}) from None
        return reply_of(result, None if whole else first,
                        round((time.monotonic() - began) * 1000))

    async def _read(self, response: typing.Any, attempt: Attempt, began: float,
                    ) -> "tuple[bytes, bool, int | None]":
        """The body, told to the attempt as it comes; whether it is a whole answer,
        though a stream was asked for; and its first token's time."""
        parts: "list[bytes]" = []
        watcher: "StreamWatcher | None" = None
        whole = False
        first: "int | None" = None
        size = 0
        async for chunk in _pieces(response):
            if watcher is None:
                # Told by what it is: gateways mistake the content type.
                whole = chunk.lstrip()[:1] == b"{"
                watcher = StreamWatcher(attempt, self._wire, whole=whole)
            watcher.feed(chunk)
            parts.append(chunk)
            size += len(chunk)
            if size > _ANSWER_BYTES:
                raise StreamError("an answer without end", {
                    "phase": "stream", "status": 200})
            seen = attempt.seen
            if first is None and (seen["visible"] or seen["tool_args_bytes"]):
                first = round((time.monotonic() - began) * 1000)
        (watcher or StreamWatcher(attempt, self._wire)).close()
        return b"".join(parts), whole, first

    async def _refused(self, response: typing.Any) -> typing.NoReturn:
        """Raises what the engine judges: the answer that is none."""
        parts: "list[bytes]" = []
        with contextlib.suppress(_Unreadable):  # the status says enough
            async for chunk in _pieces(response):
                parts.append(chunk)
                if sum(map(len, parts)) > _ERROR_BYTES:
                    break
        raise StreamError(f"status {response.status_code}", {
            "phase": "response", "status": response.status_code,
            "headers": list(response.headers.multi_items()),
            "body": b"".join(parts).decode("utf-8", "replace")})

    async def close(self) -> None:
        await self._client.aclose()


