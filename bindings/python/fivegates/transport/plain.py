"""What nearly all requests are: one plain chat request, sent once, answered.

Its cost is the memory it touches between a caller's own work, so it takes two
calls of the engine and few objects: the driver sends `request`, and says with
answered() whether the whole body was an accepted answer. A request that goes
any other way goes on as the exchange that exchange() makes of it, which is told
how far this one came. Where somebody is told each decision, or the answer
streams, there is an exchange from the start.
"""

from __future__ import annotations

import time
import typing

from fivegates.attempt import Attempt
from fivegates.transport.copies import Copies
from fivegates.transport.exchange import Exchange, shortened, unpacked
from fivegates.transport.options import CURRENT, Asked, Options
from fivegates.transport.phases import BriefTrace
from fivegates.transport.request import ModelRequest

if typing.TYPE_CHECKING:
    from fivegates._core import Call, Decision

__all__ = ["Plain", "begun"]


def begun(http: typing.Any, copies: Copies, options: Options,
          request: typing.Any, asked: Asked, content: bytes,
          ) -> "Plain | Exchange | None":
    """A request whose call has begun; None: its body asks no model.

    content: its body, read.
    """
    seen = CURRENT.get()
    if (seen is None and asked.chat and options.told_by_body
            and copies.plain(request)):
        assert options.workflow is not None
        found = options.engine.begin_chat(options.workflow, content,
                                          options.unable, options.untold)
        if found is not None:
            call, permit, name, streamed, times = found
            if permit is not None and times is not None and (
                    (permit.route, name) in asked.own
                    or options.is_own(asked, permit.route or "", name)):
                try:
                    return Plain((http, copies, options, request, asked.url),
                                 asked.api, content, call, permit, name, times)
                except BaseException:  # what cannot be sent is not running
                    call.cancel()
                    raise
            out = Exchange(http, copies, options, request, asked.url,
                           ModelRequest(*asked.api, content, None,
                                        (name, streamed)), None, call, permit)
            if permit is not None and permit.action == "proceed":
                out.going = out.send(out.permitted(permit))
            return out
    model = ModelRequest.of(asked.api, content)
    return None if model is None else Exchange(
        http, copies, options, request, asked.url, model, seen)


class Plain:
    """One attempt of a call, permitted: `request` is the client's own, stamped
    as this attempt's."""

    # Until they came.
    response: typing.Any = None  # once its head is there
    body: "bytes | None" = None  # once it is whole
    decision: "Decision | None" = None  # what became of that
    error: "BaseException | None" = None  # instead of one of these

    def __init__(self, sender: "tuple[typing.Any, Copies, Options, typing.Any, str]",
                 api: "tuple[str, str]", content: bytes, call: "Call",
                 permit: "Decision", name: str,
                 times: "tuple[float | None, float | None, float | None]",
                 ) -> None:
        """sender: what an Exchange is made of first; name: the model's;
        times: of Engine.begin_chat()."""
        self.sender = sender
        self.api = api
        self.content = content
        self.call = call
        self.permit = permit
        self.name = name
        self.started = time.monotonic()
        connect, read, total = times
        # When the answer must be whole.
        self.until = None if total is None else self.started + total
        own = sender[3]
        extensions = self.extensions = dict(own.extensions)
        self.trace = BriefTrace(extensions)
        self.timeouts = extensions["timeout"] = shortened(
            extensions.get("timeout") or {}, connect, read)
        self.request = sender[1].stamped(own, call.id, permit.attempt,
                                         extensions)

    def answered(self, parts: "list[bytes]") -> bool:
        """The whole body came; whether it is an accepted answer."""
        response, http = self.response, self.sender[0]
        body = b"".join(parts)
        if self.sender[1].packed(response):
            body = unpacked(http, response, body)
        else:
            response.stream = http.ByteStream(body)
        self.body = body
        decision = self.decision = self.call.chat_success(body)
        if decision is None or decision.action != "accept":
            return False
        response.extensions["fivegates"] = {
            "call": self.call.id, "route": self.permit.route,
            "attempt": self.permit.attempt}
        return True

    def exchange(self) -> Exchange:
        """This request as an exchange that goes on from here."""
        model = ModelRequest(*self.api, self.content, None, (self.name, False))
        out = Exchange(*self.sender, model, None, self.call, self.permit)
        out.trace = self.trace
        out.going = out.came(out.permitted(self.permit, self.started),
                             self.timeouts, self.response, self.body,
                             self.decision, self.error)
        self.error = None  # its traceback leads back here
        return out

    def over(self, exc: BaseException) -> typing.Any:
        """Exchange.over(), where an exception comes before there is one."""
        return self.exchange().over(exc)
