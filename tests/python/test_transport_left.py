"""What a request leaves behind, whichever way it takes and however it ends: no
object that only the garbage collector finds, no open body, no running attempt,
no other exception; and what is sent is of nobody else's sends."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import typing
import weakref

import pytest
from support.cards import card_of
from support.guarded import CORE, HTTP

import fivegates
from fivegates import transport
from fivegates.transport import asynchronous, plain

Json = typing.Dict[str, typing.Any]
Clock = typing.Callable[[], int]
_ANSWER = json.dumps({
    "id": "c1", "object": "chat.completion", "created": 1, "model": "m1",
    "choices": [{"index": 0, "finish_reason": "stop",
                 "message": {"role": "assistant", "content": "hello"}}]}).encode()
# What httpcore tells on the way.
_EVENTS = ("connection.connect_tcp.started", "http11.send_request_headers.started",
           "http11.receive_response_headers.started")
_HOOKS: "list[Json]" = [{}, {"on_decision": lambda decision, call: None}]
_WAYS = pytest.mark.parametrize("hooks", _HOOKS, ids=["short", "long"])
_BLOCKS = pytest.mark.parametrize("blocks", [True, False], ids=["sync", "async"])


class Body:
    """One answer; or, where there is an error, a part of it."""

    def __init__(self, error: "typing.Callable[[], BaseException] | None") -> None:
        self.error, self.closed = error, 0

    def __iter__(self) -> "typing.Iterator[bytes]":
        yield _ANSWER[:9]
        if self.error is not None:
            raise self.error()
        yield _ANSWER[9:]

    async def __aiter__(self) -> "typing.AsyncIterator[bytes]":
        for piece in self:
            yield piece

    def close(self) -> None:
        self.closed += 1

    async def aclose(self) -> None:
        self.closed += 1


class Inner:
    """A pool of connections: answers, or fails after some of the events of a
    request; the body is sent with the second."""

    def __init__(self, status: int = 200, events: int = 3,
                 head: "typing.Callable[[], BaseException] | None" = None,
                 body: "typing.Callable[[], BaseException] | None" = None) -> None:
        self.status, self.events, self.head, self.error = status, events, head, body
        self.bodies: "list[Body]" = []
        self.sent: "list[typing.Any]" = []

    def _response(self) -> typing.Any:
        if self.head is not None:
            raise self.head()
        self.bodies.append(Body(self.error))
        return CORE.Response(
            self.status, headers=[(b"content-type", b"application/json")],
            content=self.bodies[-1])

    def handle_request(self, request: typing.Any) -> typing.Any:
        self.sent.append(request)
        for name in _EVENTS[:self.events]:
            if "trace" in request.extensions:
                request.extensions["trace"](name, {})
        if self.events > 1:
            assert b"".join(request.stream)
        return self._response()

    async def handle_async_request(self, request: typing.Any) -> typing.Any:
        self.sent.append(request)
        for name in _EVENTS[:self.events]:
            if "trace" in request.extensions:
                await request.extensions["trace"](name, {})
        if self.events > 1:
            assert [part async for part in request.stream]
        await asyncio.sleep(0)
        return self._response()


class Asked:
    """One request of a client with these hooks, and its engine."""

    def __init__(self, inner: Inner, hooks: Json, blocks: bool,
                 clock: "Clock | None" = None, **extensions: typing.Any) -> None:
        self.engine = fivegates.Engine(fivegates.Policy.loads(
            card_of("http://a.test/v1", "http://b.test/v1"), auto_fingerprint=True),
            clock=clock or (lambda: 5_000_000))
        self.inner, self.blocks = inner, blocks
        own = (HTTP.HTTPTransport if blocks else HTTP.AsyncHTTPTransport)()
        own._pool = inner
        client = (transport.client if blocks else transport.async_client)(
            HTTP, self.engine, "bare", inner=own, **hooks)
        self.request = client.build_request(
            "POST", "http://a.test/v1/chat/completions", extensions=extensions,
            json={"model": "m1", "messages": [{"role": "user", "content": "hi"}]})
        self.wire = client._transport

    def go(self) -> typing.Any:
        """What its transport answers, or raises."""
        if self.blocks:
            return self.wire.handle_request(self.request)
        return asyncio.run(self.wire.handle_async_request(self.request))

    def left(self) -> "weakref.ref[typing.Any] | None":
        """What is left of its answer; None: it raised."""
        async def ended() -> typing.Any:
            with contextlib.suppress(BaseException):  # a task would keep it
                return weakref.ref(await self.wire.handle_async_request(self.request))
            return None

        if not self.blocks:
            return asyncio.run(ended())
        with contextlib.suppress(BaseException):
            return weakref.ref(self.wire.handle_request(self.request))
        return None

    def idle(self) -> bool:
        return (self.engine.route("main")["in_flight"] == 0
                and all(body.closed == 1 for body in self.inner.bodies))


class Marked:
    """Something that a weak reference can be had to."""


class Bug(ValueError):
    pass


class Stopped(BaseException):
    pass


_MET: "dict[str, Json]" = {
    "answered": {}, "untraced": {"events": 0}, "400": {"status": 400},
    "401 untraced": {"status": 401, "events": 0},
    "unconnected": {"head": lambda: CORE.ConnectError("no"), "events": 1},
    "unconnected, untraced": {"head": lambda: CORE.ConnectError("no"), "events": 0},
    "unread": {"head": lambda: CORE.ReadError("no")},
    "a bug": {"head": Bug, "events": 1}, "a late bug": {"head": Bug},
    "stopped": {"head": Stopped, "events": 1}, "stopped late": {"head": Stopped},
    "a bug in the body": {"body": Bug}, "stopped in the body": {"body": Stopped},
    "cut": {"body": lambda: CORE.ReadError("no")}}


@_WAYS
@_BLOCKS
@pytest.mark.parametrize("met", _MET.values(), ids=_MET)
def test_nothing_is_left_to_the_collector(met: Json, hooks: Json, blocks: bool) -> None:
    marks: "list[typing.Any]" = []

    def noted(make: "typing.Callable[[], BaseException]") -> typing.Any:
        def made() -> BaseException:
            error = make()
            marks.append(weakref.ref(error))
            return error
        return made

    inner = Inner(**{name: noted(value) if name in ("head", "body") else value
                     for name, value in met.items()})
    mark, sent = Marked(), inner.sent
    asked = Asked(inner, hooks, blocks, mine=mark, clock=lambda: (
        5_100_000 if sent else 5_000_000))  # no time for another send
    marks.append(weakref.ref(mark))
    gc.disable()
    try:
        answer = asked.left()
        assert asked.idle() and len(sent) == 1
        marks += [*map(weakref.ref, inner.bodies), answer or weakref.ref(inner)]
        sent.clear()
        del inner, asked, mark
        assert [ref() for ref in marks] == [None] * len(marks)
    finally:
        gc.enable()


@_WAYS
def test_one_request_is_sent_twice_at_once(hooks: Json) -> None:
    inner = Inner()
    asked = Asked(inner, hooks, False, timeout={"read": 7.0})
    before = asked.request.headers.raw

    async def both() -> typing.Any:
        return await asyncio.gather(*(
            asked.wire.handle_async_request(asked.request) for _ in range(3)))

    answers = asyncio.run(both())
    assert asked.request.headers.raw == before
    assert asked.request.extensions == {"timeout": {"read": 7.0}} and asked.idle()
    ids = [answer.extensions["fivegates"]["call"] for answer in answers]
    # Also long after: an inner transport may look at what it kept.
    stamps = [[value.decode() for name, value in request.headers
               if name.lower() in (b"x-client-request-id", b"x-request-attempt")]
              for request in inner.sent]
    assert sorted(stamps) == sorted([one, "1"] for one in ids) and len({*ids}) == 3
    assert len({id(request.extensions) for request in inner.sent}) == 3


@_WAYS
@_BLOCKS
def test_interrupted_before_the_body_is_read(hooks: Json, blocks: bool) -> None:
    class Status(int):
        def __lt__(self, other: int) -> bool:
            raise Stopped

        __ge__ = __lt__

    inner = Inner()
    asked = Asked(inner, hooks, blocks)
    inner.status = Status(200)
    with pytest.raises(Stopped):
        asked.go()
    assert asked.idle() and asked.engine.workflow("bare")["cancelled"] == 1


@_BLOCKS
@pytest.mark.parametrize("met", [{}, {"head": Stopped}],
                         ids=["an error answer", "stopped"])
def test_interrupted_between_the_ways(met: Json, blocks: bool,
                                      monkeypatch: pytest.MonkeyPatch) -> None:
    """Where an exchange is about to go on with what was sent."""
    permitted = plain.Exchange.permitted

    def once(self: typing.Any, *args: typing.Any) -> typing.Any:
        monkeypatch.setattr(plain.Exchange, "permitted", permitted)
        raise KeyboardInterrupt

    monkeypatch.setattr(plain.Exchange, "permitted", once)
    asked = Asked(Inner(**{"status": 500, **met}), {}, blocks)
    with pytest.raises(KeyboardInterrupt):
        asked.go()
    assert asked.idle() and asked.engine.workflow("bare")["cancelled"] == 1
    assert asked.engine.workflow("bare")["spent_today_nusd"] > 0  # it went out


@_WAYS
@_BLOCKS
@pytest.mark.parametrize("met", [{}, {"body": Stopped}], ids=["answered", "stopped"])
def test_an_engine_that_fails_is_not_the_wire(met: Json, hooks: Json,
                                              blocks: bool) -> None:
    """Its exception sends nothing again, and hides none that stops the caller."""
    broken = not met
    inner = Inner(**met)

    def clock() -> int:
        nonlocal broken
        if broken and inner.bodies:
            broken = bool(met)  # or only once
            raise ConnectionResetError("of the clock")
        return 5_000_000

    def stopped() -> BaseException:
        nonlocal broken
        broken = True
        return Stopped()

    asked = Asked(inner, hooks, blocks, clock=clock)
    if met:
        inner.error = stopped
    with pytest.raises(Stopped if met else ConnectionResetError):
        asked.go()
    assert len(inner.sent) == 1 and [body.closed for body in inner.bodies] == [1]


@_WAYS
def test_an_answer_that_came_whole_is_not_late(
        hooks: Json, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long its connection takes to be given back."""
    class Slow(Body):
        async def aclose(self) -> None:
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            await super().aclose()

    class Whole(Inner):
        async def handle_async_request(self, request: typing.Any) -> typing.Any:
            assert [part async for part in request.stream]
            self.bodies.append(Slow(None))
            return CORE.Response(
                200, headers=[(b"content-type", b"application/json")],
                content=self.bodies[-1])

    monkeypatch.setattr(asynchronous, "_left", lambda until: 0.0)
    asked = Asked(Whole(), hooks, False)
    assert asked.go().status_code == 200
    assert asked.idle() and asked.engine.workflow("bare")["primary_success"] == 1
