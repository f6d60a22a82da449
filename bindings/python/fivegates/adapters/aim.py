"""Where the request of an attempt goes, for adapters that hold all of it.

A request to a model is read by its path and body, as the transport does, and
sent to another route that speaks the same API: another host, key and model.
"""

from __future__ import annotations

import json
import os
import typing
import urllib.parse

from fivegates._core import SAW_ERROR, SAW_MALFORMED
from fivegates.errors import ArgumentError
from fivegates.stream import StreamError, StreamWatcher
from fivegates.transport.options import key_headers
from fivegates.transport.request import ModelRequest, edited, url_for

if typing.TYPE_CHECKING:
    from fivegates._core import Decision, Engine, Unable
    from fivegates.attempt import Attempt

__all__ = ["Aim", "whole_answer"]

Route = typing.Dict[str, typing.Any]

# Edits of a request that need the caller, or another way of reading.
_NOT_EDITED = frozenset({"compact", "stream", "no_stream"})


def whole_answer(status: int, headers: "typing.Mapping[str, str]",
                 body: bytes) -> object:
    """The answer of a request that was not streamed, parsed.

    Raises StreamError where it is an error inside a 200, or no JSON.
    """
    wrong = StreamWatcher(None, whole=True).feed(body) & (
        SAW_ERROR | SAW_MALFORMED)
    try:
        if not wrong:
            return typing.cast(object, json.loads(body))
    except ValueError:
        pass
    raise StreamError("the answer is an error" if wrong & SAW_ERROR
                      else "the answer is no JSON", {
        "phase": "body", "status": status, "headers": list(headers.items()),
        "body": body, "whole_body": True})


class Aim:
    """One request of the caller's, and where it may be sent.

    keys: the key of a route by its name; otherwise the environment's, by
    key_env. The caller's own key goes to no other host.
    """

    def __init__(self, engine: "Engine", model: ModelRequest, url: str,
                 headers: "typing.Mapping[str, str]",
                 keys: "typing.Mapping[str, str]") -> None:
        self._policy = engine.policy
        self.model = model
        self._own = url
        self._headers = {name.lower(): value
                         for name, value in headers.items()}
        self._keys = keys

    @staticmethod
    def of(engine: "Engine", method: str, url: str,
           headers: "typing.Mapping[str, str]", content: object,
           keys: "typing.Mapping[str, str]") -> "Aim | None":
        """None for what is no request to a model: it is sent unguarded."""
        api = ModelRequest.api(method, urllib.parse.urlsplit(url).path)
        if isinstance(content, str):
            content = content.encode()
        if api is None or not isinstance(content, bytes):
            return None
        model = ModelRequest.of(api, content)
        return (None if model is None
                else Aim(engine, model, url, headers, keys))

    def lacks(self, decision: "Decision") -> "Unable | None":
        """What of a decision cannot be done with this request."""
        if _NOT_EDITED.intersection(decision.change):
            return "edit"
        if decision.route is None:
            return None
        route = self._policy.route(decision.route)
        if decision.route == decision.requested:
            if _origin(self._url(route)) != _origin(self._own):
                raise ArgumentError(
                    f"the request is aimed at {_origin(self._own)} but the "
                    f"card has route {route['name']} at "
                    f"{_origin(self._url(route))}; give both the same base_url")
            return None
        if route["api"] and route["api"] != self.model.wire:
            return "reroute"
        if route["key_env"] and self._key(route) is None:
            return "reroute"
        return None

    def _key(self, route: Route) -> "str | None":
        return self._keys.get(route["name"]) or os.environ.get(
            route["key_env"] or "")

    def _url(self, route: Route) -> str:
        if route["base_url"] is None:
            return self._own
        url = url_for(route["base_url"], self.model, route["model"])
        query = [pair for pair in urllib.parse.parse_qsl(
            urllib.parse.urlsplit(self._own).query) if pair[0] != "key"]
        return (f"{url}?{urllib.parse.urlencode(query)}"
                if query and "?" not in url else url)

    def at(self, attempt: "Attempt") -> "tuple[str, dict[str, str], bytes]":
        """URL, headers to set ("": to be taken out), and body."""
        content = edited(self.model, attempt.model, attempt.changes,
                         attempt.drops)
        headers = {"content-length": str(len(content)), **attempt.headers}
        if attempt.route == attempt.decision.requested:
            return self._own, headers, content
        route = self._policy.route(attempt.route or "")
        url = self._url(route)
        key = self._key(route)
        if key is not None or _origin(url) != _origin(self._own):
            headers.update(key_headers(self._headers, route["provider"], key))
            headers.update({"host": "", "cookie": ""})
        return url, headers, content


def _origin(url: str) -> str:
    return "/".join(url.split("/", 3)[:3]).lower()
