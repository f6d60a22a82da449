"""What nearly all requests are: one plain chat request, sent once, answered.

Its cost is the memory it touches between a caller's own work, so it takes two
calls of the engine and few objects: the driver asks the pool for `request`, and
says with answered() whether the whole body was an accepted answer. A request
that goes any other way goes on as the exchange that exchange() makes of it,
which is told how far this one came. Where somebody is told each decision, or the
answer streams, or the pool cannot be asked, there is an exchange from the start.
"""

from __future__ import annotations

import time
import typing

from fivegates.transport.copies import Copies
from fivegates.transport.exchange import Exchange, unpacked
from fivegates.transport.options import CURRENT, Asked, Options
from fivegates.transport.phases import ByBody
from fivegates.transport.pooled import Pooled, Sent, Template
from fivegates.transport.request import ModelRequest

if typing.TYPE_CHECKING:
    from fivegates._core import Call, Decision, _Sent

__all__ = ["Plain", "begun"]


def begun(http: typing.Any, copies: Copies, options: Options, pooled: Pooled,
          request: typing.Any, asked: Asked, content: bytes,
          ) -> "Plain | Exchange | None":
    """A request whose call has begun; None: its body asks no model.

    pooled: of the transport that sends it; content: its body, read.
    """
    seen = CURRENT.get()
    if seen is None and asked.chat and options.told_by_body:
        assert options.workflow is not None
        own = request.extensions
        headers = (request.headers._list if options.untold
                   and type(request) is copies.request and len(own) == 1
                   and "timeout" in own and pooled.open()
                   and _template(pooled, asked, request) is not None else None)
        found = None
        if headers is not None or not copies.sdk_retries(request):
            found = options.engine.begin_chat(
                options.workflow, content, options.unable, headers,
                own.get("timeout"))
        if found is not None:
            call, name, streamed, permit, sent = found
            if permit is not None and sent is not None and (
                    sent[0] in asked.own
                    or options.is_own(asked, sent[0], name)):
                try:
                    return Plain((http, copies, options, request, asked.url),
                                 asked, content, call, name, permit, sent)
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


def _template(pooled: Pooled, asked: Asked, request: typing.Any) -> "Template | None":
    if not asked.watched:
        found = pooled.template(request)
        if found is not None:  # another thread's stays: it is being used
            asked.pooled = found
        asked.watched = True
    return asked.pooled


class Plain:
    """One attempt of a call, permitted: `request` is for the pool, the client's
    own stamped as this attempt's."""

    # Until they came.
    response: typing.Any = None  # once its head is there
    body: "bytes | None" = None  # once it is whole
    decision: "Decision | None" = None  # what became of that
    error: "BaseException | None" = None  # instead of one of these

    def __init__(self, sender: "tuple[typing.Any, Copies, Options, typing.Any, str]",
                 asked: Asked, content: bytes, call: "Call", name: str,
                 permit: "Decision", sent: "_Sent") -> None:
        """sender: what an Exchange is made of first; the others are of
        Engine.begin_chat()."""
        self.sender = sender
        self.asked = asked
        self.content = content
        self.call = call
        self.name = name
        self.permit = permit
        self.started = time.monotonic()
        _, headers, self.timeouts, total, self.label = sent
        self.sent_body = Sent(sender[3].stream)
        self.request = typing.cast(Template, asked.pooled).request(
            headers, self.sent_body, self.timeouts)
        # When the answer must be whole.
        self.until = None if total is None else self.started + total

    def answered(self, parts: "list[bytes]") -> bool:
        """The whole body came; whether it is an accepted answer."""
        http, copies, *_ = self.sender
        response = self.response
        headers = response.headers
        body = self.body = b"".join(parts)
        decision = (self.call.chat_success(body, headers._list)
                    if type(headers) is copies.headers else None)
        if decision is None and copies.packed(response):
            self.body = None  # until it is unpacked
            self.body = unpacked(http, response, body)
            decision = self.call.chat_success(self.body)
        else:
            response.stream = http.ByteStream(body)
        self.decision = decision
        if decision is None or decision.action != "accept":
            return False
        response.extensions["fivegates"] = self.label
        return True

    def exchange(self) -> Exchange:
        """This request as an exchange that goes on from here."""
        model = ModelRequest(*self.asked.api, self.content, None, (self.name, False))
        out = Exchange(*self.sender, model, None, self.call, self.permit)
        out.trace = ByBody(self.sent_body.asked or self.response is not None)
        out.going = out.came(out.permitted(self.permit, self.started),
                             self.timeouts, self.response, self.body,
                             self.decision, self.error)
        self.error = None  # its traceback leads back here
        return out

    def over(self, exc: BaseException) -> typing.Any:
        """Exchange.over(), where an exception comes before there is one."""
        return self.exchange().over(exc)
