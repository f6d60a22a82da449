"""Where the request of an attempt goes, for adapters that hold all of it.

A request to a model is read by its path and body, as the transport does, and
sent to another route that speaks the same API: another host, key and model.
"""

from __future__ import annotations

import json
import typing
import urllib.parse
import warnings

from fivegates._core import SAW_ERROR, SAW_MALFORMED
from fivegates.errors import EditError
from fivegates.stream import StreamError, StreamWatcher
from fivegates.transport.request import ModelRequest, edited
from fivegates.transport.targets import (
    Target,
    Targets,
    Unreachable,
    key_headers,
)

if typing.TYPE_CHECKING:
    from fivegates._core import Decision, Unable
    from fivegates.attempt import Attempt

__all__ = ["Aim", "whole_answer"]

# Edits of a request that need the caller, or another way of reading.
_NOT_EDITED = frozenset({"stream", "no_stream"})


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

    The caller's own key goes to no other host.
    """

    def __init__(self, targets: Targets, model: ModelRequest, url: str,
                 headers: "typing.Mapping[str, str]") -> None:
        self._targets = targets
        self.model = model
        self._own = url
        self._headers = {name.lower(): value
                         for name, value in headers.items()}

    @staticmethod
    def of(targets: Targets, method: str, url: str,
           headers: "typing.Mapping[str, str]", content: object) -> "Aim | None":
        """None for what is no request to a model: it is sent unguarded."""
        api = ModelRequest.api(method, urllib.parse.urlsplit(url).path)
        if isinstance(content, str):
            content = content.encode()
        if api is None or not isinstance(content, bytes):
            return None
        model = ModelRequest.of(api, content)
        return None if model is None else Aim(targets, model, url, headers)

    def _target(self, name: str, primary: str) -> Target:
        if name == primary:
            return self._targets.primary(name, self.model, self._own)
        return self._targets.stand_in(name, primary, self.model, self._own)

    def lacks(self, decision: "Decision") -> "Unable | None":
        """What of a decision cannot be done with this request."""
        if _NOT_EDITED.intersection(decision.change):
            return "edit"
        if decision.route is None:
            return None
        try:
            self._target(decision.route, decision.requested or decision.route)
        except Unreachable as why:
            warnings.warn(str(why), RuntimeWarning, stacklevel=2)
            return "reroute"
        return None

    def at(self, attempt: "Attempt") -> "tuple[str, dict[str, str], bytes]":
        """URL, headers to set ("": to be taken out), and body."""
        content = edited(self.model, attempt.model, attempt.changes,
                         attempt.drops, attempt.provider)
        if content is None:
            raise EditError("this request cannot be edited as the engine asks: "
                            + ", ".join(attempt.changes))
        headers = {"content-length": str(len(content)), **attempt.headers}
        name = attempt.route or ""
        target = self._target(name, attempt.decision.requested or name)
        if not target.own_key:
            headers.update(key_headers(self._headers, attempt.provider,
                                       target.key))
            headers.update({"host": "", "cookie": ""})
        return target.url, headers, content
