"""Where a request goes on each route: URL, key and model.

Shared by all that send a caller's own HTTP request elsewhere: the transport,
and the adapters of requests and aiohttp. Three rules keep money and keys
where they belong: a key is sent to its own route only; a route that is not
known to be reached by the caller's URL needs a base_url; and a request for
another model than the card's is refused, not rewritten.
"""

from __future__ import annotations

import os
import re
import typing
import urllib.parse

from fivegates.errors import ArgumentError
from fivegates.transport.request import ModelRequest, url_for

if typing.TYPE_CHECKING:
    from fivegates._core import Policy

__all__ = ["Target", "Targets", "Unreachable", "key_headers"]

Route = typing.Dict[str, typing.Any]
# URLs are the same for all requests of a client but those with the model in
# the path.
_URLS_KEPT = 256
_QUERY = ("alt", "beta", "api-version")
# Headers that carry a key, and what stands before it.
_KEY_HEADERS = (("authorization", "Bearer "), ("x-api-key", ""),
                ("api-key", ""), ("x-goog-api-key", ""))


class Unreachable(ArgumentError):
    """A route this client cannot send to."""


class Target(typing.NamedTuple):
    """own_key: the request keeps the caller's key; else key replaces it (None:
    no key is sent)."""

    url: str
    key: "str | None"
    own_key: bool


class Targets:
    """The routes of a card as one client reaches them.

    keys: the key of a route by its name; otherwise the environment's, by the
    route's key_env. any_model: requests that name another model than the
    card's are sent with the card's.
    """

    def __init__(self, policy: "Policy", keys: "typing.Mapping[str, str]",
                 any_model: bool = False) -> None:
        known = policy.routes()
        for name in keys:
            if name not in known:
                raise ArgumentError(f"a key for {name!r}, which is no route of "
                                    f"the card; it has {', '.join(known)}")
        self.routes: "dict[str, Route]" = {  # as the card has them
            name: policy.route(name) for name in known}
        self._keys = dict(keys)
        self._any_model = any_model
        self._primaries: "dict[tuple[str, str, str | None], Target]" = {}
        self._urls: "dict[tuple[str, str], str]" = {}

    def is_own(self, name: str, model: str, own: str,
               api: "tuple[str, str]") -> bool:
        """Whether the caller's own request is sent to this route as it is: to
        its own URL, with its own key, for the model it names."""
        request = ModelRequest(*api, b"", None, (model, False))
        try:
            url, _, own_key = self._primary(name, request, own)
        except ArgumentError:  # whoever sends it will say why
            return False
        return (own_key and url == own
                and self.routes[name]["model"] in (None, model))

    def primary(self, name: str, request: ModelRequest, own: str) -> Target:
        """The route the caller's own request is for. own: its URL.

        ArgumentError where the request is aimed at another place than the
        card's, or asks for another model.
        """
        place = (name, own, request.model)
        found = self._primaries.get(place)
        if found is None:
            if len(self._primaries) >= _URLS_KEPT:  # a client aims at few
                self._primaries.clear()
            found = self._primaries[place] = self._primary(name, request, own)
        return found

    def _primary(self, name: str, request: ModelRequest, own: str) -> Target:
        route = self.routes[name]
        url = self._url(route, request, own)
        if url != own and _bare(url, request) != _bare(own, request):
            raise ArgumentError(
                f"the client is aimed at {_bare(own, request)} but the card "
                f"has route {name} at {_bare(url, request)}; give both the "
                f"same base_url")
        asked = request.model
        if asked is not None and asked != route["model"] and not self._any_model:
            raise ArgumentError(
                f"the request asks for model {asked} but route {name} of the "
                f"card serves {route['model']}; name a workflow whose first "
                f"route serves {asked}, or say any_model=True to have "
                f"{route['model']} asked for instead")
        key = self._keys.get(name)
        return Target(url, key, key is None)

    def stand_in(self, name: str, primary: str, request: ModelRequest,
                 own: str) -> Target:
        """A route that serves instead of the primary. Unreachable: it cannot
        be sent to by this client, and what would help."""
        route = self.routes[name]
        if route["api"] and route["api"] != request.wire:
            raise Unreachable(f"route {name} speaks {route['api']}, the request "
                              f"{request.wire}; use engine.run() with a sender "
                              f"for each route")
        if route["base_url"] is None and (
                route["provider"] != self.routes[primary]["provider"]):
            raise Unreachable(f"route {name} is of {route['provider']} and has "
                              f"no base_url in the card; the request would go "
                              f"to the host of {primary}")
        key = self.key(route)
        if key is None and route["key_env"]:
            raise Unreachable(f"no key for route {name}: set "
                              f"{route['key_env']}, or pass keys={{{name!r}: "
                              f"...}} when the client is made")
        url = self._url(route, request, own)
        return Target(url, key, key is None and _origin(url) == _origin(own))

    def key(self, route: Route) -> "str | None":
        """The key given for a route; None, also for an empty one."""
        return self._keys.get(route["name"]) or os.environ.get(
            route["key_env"] or "") or None

    def _url(self, route: Route, request: ModelRequest, own: str) -> str:
        place = (route["name"], own)
        url = self._urls.get(place)
        if url is None:
            base = route["base_url"]
            if base is None and request.wire != "generateContent":
                url = own
            else:
                if base is None:
                    base = own.partition("?")[0].removesuffix(request.path)
                url = _with_query(url_for(base, request, route["model"]), own)
            if len(self._urls) >= _URLS_KEPT:  # a client aims at few
                self._urls.clear()
            self._urls[place] = url
        return url


def _origin(url: str) -> str:
    return "/".join(url.split("/", 3)[:3]).lower()


def _bare(url: str, request: ModelRequest) -> str:
    """A URL without its query and the API's own path: what a base_url says."""
    out = url.partition("?")[0].removesuffix(request.path).rstrip("/")
    if request.wire == "generateContent":
        out = re.sub(r"/models/[^/]*$", "", out)
    version = re.match(r"/v1(?:beta|alpha)?(?=/)", request.path)
    return out + version.group() if version and not out.endswith(
        version.group()) else out


def _with_query(url: str, own: str) -> str:
    """The request's own query, where a base has none: to another host only
    what the APIs read, as anything else may be a key."""
    query = own.partition("?")[2]
    if "?" in url or not query:
        return url
    home = _origin(url) == _origin(own)
    pairs = [pair for pair in urllib.parse.parse_qsl(
        query, keep_blank_values=True)
        if (pair[0] != "key" if home else pair[0] in _QUERY)]
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
