"""Addresses of the provider's own, beside those of the APIs.

    GET  /_control/state     the script in short, counts
    POST /_control/script    another script, as JSON; it begins at once
    GET  /_control/journal   the records so far
    POST /_effects/TOOL      a tool acts: {"op": ...} and Idempotency-Key are
                             optional, and tell two effects from one repeated
    GET  /_effects/TOOL?op=  did it? {} or {"op": ..., "count": ...}
    GET  .../models          a list of one model

Only loopback reaches the server. So that no web page does, a Host that is not
loopback's is refused, and a POST must say that it is JSON.
"""

from __future__ import annotations

import json
import typing
import urllib.parse

from fivegates.provider.asked import APIS
from fivegates.provider.incoming import Received
from fivegates.provider.journal import Journal
from fivegates.provider.script import Script, read_script
from fivegates.provider.settings import SettingsError, read_text

__all__ = ["other_answer"]

Json = typing.Dict[str, typing.Any]
Answer = typing.Tuple[int, Json]
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


class Switched(typing.Protocol):
    """The server, as far as its control needs it."""

    script: Script
    journal: Journal

    def switch(self, script: Script) -> None: ...

    def state(self) -> Json: ...


def _error(status: int, message: str) -> Answer:
    return status, {"error": {"message": message, "type": "provider"}}


def _object(body: bytes) -> Json:
    try:
        value = json.loads(body or b"{}")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def other_answer(server: Switched, request: Received) -> Answer:
    """The answer to a request that asks no API."""
    url = urllib.parse.urlsplit(request.path)
    host = request.headers.get("host", "127.0.0.1")
    if host.rpartition(":")[0] not in _LOOPBACK and host not in _LOOPBACK:
        return _error(403, f"the host {host} is not loopback")
    parts = url.path.strip("/").split("/")
    if parts[0] == "_control":
        if request.method == "POST" and not request.headers.get(
                "content-type", "").startswith("application/json"):
            return _error(415, "say Content-Type: application/json")
        return _control(server, request, "/".join(parts[1:]))
    if parts[0] == "_effects":
        return _effects(server.journal, request, "/".join(parts[1:]) or "tool",
                        urllib.parse.parse_qs(url.query))
    if request.method == "GET" and parts[-1] == "models":
        return 200, {"object": "list", "data": [{
            "id": "model", "object": "model", "type": "model", "created": 1,
            "owned_by": "fivegates", "display_name": "model"}]}
    return _error(404, f"{request.method} {url.path}: this provider answers "
                  "POST to paths that end with " + ", ".join(APIS))


def _control(server: Switched, request: Received, name: str) -> Answer:
    if (request.method, name) == ("GET", "state"):
        return 200, server.state()
    if (request.method, name) == ("GET", "journal"):
        return 200, {
            "requests": [one.to_dict() for one in server.journal.records],
            "effects": [vars(one) for one in server.journal.effects]}
    if (request.method, name) == ("POST", "script"):
        try:
            server.switch(read_script(read_text(
                request.body.decode("utf-8", "replace"), "script")))
        except SettingsError as exc:
            return _error(400, str(exc))
        return 200, server.state()
    return _error(404, "there are GET _control/state, GET _control/journal and "
                  "POST _control/script")


def _effects(journal: Journal, request: Received, tool: str,
             query: "dict[str, list[str]]") -> Answer:
    if request.method == "POST":
        op = (request.headers.get("idempotency-key")
              or str(_object(request.body).get("op") or ""))
        journal.effect(tool, op)
        return 200, {"done": True, "tool": tool, "op": op,
                     "count": len(journal.effects)}
    op = query.get("op", [""])[0]
    count = sum(one.tool == tool and one.op == op for one in journal.effects)
    return 200, {"op": op, "count": count} if count else {}
