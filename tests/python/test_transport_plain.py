"""A plain request takes a short way of its own: what becomes of it must be what
becomes of the same request on the long way, which one with a hook takes."""

from __future__ import annotations

import asyncio
import gzip
import json
import time
import typing

import pytest
from support.cards import card_of
from support.guarded import CORE, HTTP

import fivegates
from fivegates import transport
from fivegates.evidence import evidence_of
from fivegates.transport import asynchronous, blocking, plain
from fivegates.transport.phases import ByBody, Trace

Json = typing.Dict[str, typing.Any]
# What an attempt meets: an exception instead of a head, or a status, headers,
# and pieces of a body, the last of which may be an exception.
Met = typing.Any

_MESSAGE: Json = {"role": "assistant", "content": "hello"}
_ANSWER: Json = {
    "id": "c1", "object": "chat.completion", "created": 1, "model": "m1",
    "choices": [{"index": 0, "finish_reason": "stop", "message": _MESSAGE}],
    "usage": {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}}
_JSON = [("content-type", "application/json")]
_GZIP = [*_JSON, ("Content-Encoding", "gzip"), ("content-length", "7")]


def _answer(message: "Json | None" = None, **changed: typing.Any) -> bytes:
    out = {**_ANSWER, **changed}
    if message is not None:
        out["choices"] = [{**_ANSWER["choices"][0],
                           "message": {**_MESSAGE, **message}}]
    return json.dumps(out).encode()


def _error(code: str = "server_error") -> bytes:
    return json.dumps({"error": {"message": "no", "type": code,
                                 "code": code}}).encode()


_OK: Met = (200, _JSON, [_answer()])
_TOOL = {"content": None, "tool_calls": [{
    "id": "t", "type": "function", "function": {"name": "f", "arguments": "{}"}}]}
MET: "dict[str, Met]" = {
    "ok": _OK,
    "in pieces": (200, _JSON, [_answer()[:9], b"", _answer()[9:]]),
    "packed": (200, _GZIP, [gzip.compress(_answer())]),
    "packed in pieces": (200, _GZIP, [gzip.compress(_answer())[:9],
                                      gzip.compress(_answer())[9:]]),
    "badly packed": (200, _GZIP, [b"\x1f\x8bnot"]),
    "said to be packed": (200, _GZIP, [_answer()]),
    "packed error": (500, _GZIP, [gzip.compress(_error())]),
    "empty text": (200, _JSON, [_answer({"content": ""})]),
    "a refusal": (200, _JSON, [_answer({"refusal": "no"})]),
    "a tool": (200, _JSON, [_answer(_TOOL)]),
    "no choice": (200, _JSON, [_answer(choices=[])]),
    "no usage": (200, _JSON, [_answer(usage=None)]),
    "cut by length": (200, _JSON, [_answer(choices=[{
        **_ANSWER["choices"][0], "finish_reason": "length"}])]),
    "an error in 200": (200, _JSON, [_error("insufficient_quota")]),
    "half of it": (200, _JSON, [_answer()[:40]]),
    "a page": (200, [("content-type", "text/html")], [b"<html>"]),
    "nothing": (200, _JSON, []),
    "201": (201, _JSON, [_answer()]),
    "204": (204, [], []),
    "a redirect": (307, [("location", "http://elsewhere/")], [b""]),
    "400": (400, _JSON, [_error("context_length_exceeded")]),
    "401": (401, _JSON, [_error("invalid_api_key")]),
    "429": (429, [*_JSON, ("retry-after", "1")], [_error("rate_limit_exceeded")]),
    "quota": (429, _JSON, [_error("insufficient_quota")]),
    "500": (500, _JSON, [_error()]),
    "503, cut": (503, _JSON, [b"{", CORE.ReadError("gone")]),
    "no connection": CORE.ConnectError("no"),
    "late connection": CORE.ConnectTimeout("late"),
    "no place": CORE.PoolTimeout("full"),
    "unsent": CORE.WriteError("no"),
    "silence": CORE.ReadTimeout("late"),
    "cut": (200, _JSON, [_answer()[:9], CORE.RemoteProtocolError("cut")]),
    "stalled": (200, _JSON, [CORE.ReadTimeout("late")]),
    "a bug": ValueError("bug"),
    "a bug in the body": (200, _JSON, [b"{", ValueError("bug")]),
    "stopped": KeyboardInterrupt(),
    "stopped in the body": (200, _JSON, [b"{", KeyboardInterrupt()]),
}


class Script:
    """A pool of connections that plays one answer after another."""

    def __init__(self, *met: Met) -> None:
        self.met = list(met)
        self.seen: "list[typing.Any]" = []
        self.closed = 0  # bodies
        # What it does to each request, having looked at it.
        self.touch: "typing.Callable[[typing.Any], object]" = lambda request: None

    def next(self, request: typing.Any) -> typing.Any:
        headers = [(name.lower(), value) for name, value in request.headers]
        assert dict(headers).pop(b"x-client-request-id").startswith(b"fg-")
        got = self.met.pop(0) if len(self.met) > 1 else self.met[0]
        self.seen.append((
            request.method, str(request.url),
            sorted(one for one in headers if one[0] != b"x-client-request-id"),
            request.extensions["timeout"]))
        stream = request.stream
        self.touch(request)
        if isinstance(got, BaseException):
            return stream, got
        return stream, CORE.Response(
            got[0], headers=[(name.encode(), value.encode()) for name, value in got[1]],
            content=Body(self, got[2]))


class Body:
    def __init__(self, script: Script, pieces: "list[typing.Any]") -> None:
        self.script, self.pieces = script, pieces

    def __iter__(self) -> "typing.Iterator[bytes]":
        for piece in self.pieces:
            if isinstance(piece, BaseException):
                raise piece
            yield piece

    async def __aiter__(self) -> "typing.AsyncIterator[bytes]":
        for piece in self:
            await asyncio.sleep(0)
            yield piece

    def close(self) -> None:
        self.script.closed += 1

    async def aclose(self) -> None:
        self.close()


# What httpcore tells on the way.
_EVENTS = ("connection.connect_tcp.started", "http11.send_request_headers.started",
           "http11.receive_response_headers.started")


def _told_of(got: typing.Any) -> "tuple[str, ...]":
    """The events of a request that meets this."""
    if isinstance(got, (CORE.ConnectError, CORE.ConnectTimeout, CORE.PoolTimeout)):
        return _EVENTS[:1]
    return _EVENTS[:2 if isinstance(got, CORE.WriteError) else 3]


class Pool(Script):
    def handle_request(self, request: typing.Any) -> typing.Any:
        trace = request.extensions.get("trace") or (lambda name, info: None)
        stream, got = self.next(request)
        told = _told_of(got)
        for name in told:
            trace(name, {})
        if len(told) > 1:
            self.seen[-1] += (b"".join(stream),)
        if isinstance(got, BaseException):
            raise got
        return got


class AsyncPool(Script):
    async def handle_async_request(self, request: typing.Any) -> typing.Any:
        trace = request.extensions.get("trace")
        stream, got = self.next(request)
        told = _told_of(got)
        if trace is not None:
            for name in told:
                await trace(name, {})
        if len(told) > 1:
            self.seen[-1] += (b"".join([part async for part in stream]),)
        await asyncio.sleep(0)
        if isinstance(got, BaseException):
            raise got
        return got


def _told(thing: typing.Any) -> typing.Any:
    """What a caller gets, without what differs by call."""
    if isinstance(thing, BaseException):
        decision = fivegates.decision_of(thing)
        return (type(thing).__mro__, str(thing).partition("fg-")[0],
                decision and decision.json())
    label = thing.extensions.get("fivegates")
    if isinstance(label, BaseException):
        label = _told(label)
    elif label is not None:
        label = {name: label[name] for name in label if name != "call"}
    return thing.status_code, thing.headers.multi_items(), thing.content, label


def _parts(request: typing.Any) -> typing.Any:
    return (request.method, request.url, id(request.headers),
            request.headers.raw, id(request.extensions),
            dict(request.extensions), request.stream)


async def _asked(hooks: Json, names: "typing.Sequence[str]", blocks: bool,
                 headers: "Json | None" = None,
                 extensions: "Json | None" = None,
                 body: "Json | None" = None,
                 touch: "typing.Callable[[typing.Any], object] | None" = None,
                 ) -> typing.Any:
    """One request by a client with these hooks: what came of it, and what the
    engine and the provider know."""
    now = [5_000_000]
    engine = fivegates.Engine(fivegates.Policy.loads(
        card_of("http://a.test/v1", "http://b.test/v1"), auto_fingerprint=True),
        seed=7, clock=lambda: now[0])

    def slept(seconds: float) -> None:
        now[0] += int(seconds * 1000)

    async def aslept(_: object, seconds: float) -> None:
        slept(seconds)

    script = (Pool if blocks else AsyncPool)(*(MET[name] for name in names))
    if touch is not None:
        script.touch = touch
    inner = (HTTP.HTTPTransport if blocks else HTTP.AsyncHTTPTransport)()
    inner._pool = script
    given = {"keys": {"backup": "key-b"}, "inner": inner, **hooks}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(blocking.Wire, "sleep", lambda _, seconds: slept(seconds))
        patched.setattr(asynchronous.AsyncWire, "sleep", aslept)
        client = (transport.client if blocks else transport.async_client)(
            HTTP, engine, "w", **given)
        request = client.build_request(
            "POST", "http://a.test/v1/chat/completions",
            headers={"authorization": "Bearer key-a", **(headers or {})},
            extensions=extensions or {}, json=body or {
                "model": "m1", "messages": [{"role": "user", "content": "hi"}]})
        before = _parts(request)
        try:
            out = (client.send(request) if blocks else
                   await client.send(request))
        except BaseException as exc:
            out = exc
    assert _parts(request) == before
    assert script.closed == sum(not isinstance(MET[name], BaseException)
                               for name in [*names, *names[-1:] * 9][:len(script.seen)])
    return _told(out), script.seen, engine.workflow("w"), [
        engine.route(name) for name in ("main", "backup")]


def _both(names: "typing.Sequence[str]", blocks: bool, **more: typing.Any) -> typing.Any:
    async def ways() -> typing.Any:
        return [await _asked(hooks, names, blocks, **more) for hooks in (
            {}, {"on_decision": lambda decision, call: None})]

    short, long = asyncio.run(ways())
    assert short == long
    return short


_WAYS = pytest.mark.parametrize("blocks", [True, False], ids=["sync", "async"])


@_WAYS
@pytest.mark.parametrize("then", ["ok", "500"])
@pytest.mark.parametrize("name", MET)
def test_both_ways_come_to_the_same(name: str, then: str, blocks: bool) -> None:
    told, seen, counts, routes = _both((name, then), blocks)
    assert seen and counts["calls"] == 1
    assert [facts["in_flight"] for facts in routes] == [0, 0]


@_WAYS
@pytest.mark.parametrize("name", ["ok", "in pieces", "packed", "201"])
def test_a_plain_request_makes_no_exchange(
        name: str, blocks: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain, "Exchange", None)
    told, seen, counts, _ = asyncio.run(_asked({}, [name], blocks))
    assert told[0] in (200, 201) and told[2] == _answer()
    assert told[3] == {"route": "main", "attempt": 1}
    assert len(seen) == counts["primary_success"] == 1


@_WAYS
@pytest.mark.parametrize("more", [
    {"headers": {"X-Request-Attempt": "7"}}, {"headers": {"x-stainless-retry-count": "2"}},
    {"extensions": {"trace": None}}, {"body": {"model": "other", "messages": []}},
    {"body": {"model": "m1", "messages": [], "stream": True}},
    {"body": {"model": "m1", "messages": [], "tools": []}},
    {"body": {"messages": [{"role": "user", "content": "hi"}]}}], ids=repr)
def test_others_take_the_long_way(more: Json, blocks: bool) -> None:
    if "extensions" in more:
        async def aseen(name: str, info: Json) -> None:
            heard.append(name)
        heard: "list[str]" = []
        more = {"extensions": {"trace": (lambda name, info: heard.append(name))
                               if blocks else aseen}}
        _both(["ok"], blocks, **more)
        assert heard == [*_EVENTS, *_EVENTS]
        return
    _both(["ok"], blocks, **more)


def _set(name: str, value: typing.Any) -> typing.Any:
    return lambda request: setattr(request, name, value)


_TOUCHED = {
    "url": _set("url", CORE.URL("http://c.test/")), "method": _set("method", b"PUT"),
    "headers": _set("headers", [(b"a", b"b")]),
    "extensions": _set("extensions", {}), "stream": _set("stream", HTTP.ByteStream(b"")),
    "a header": lambda request: request.headers.append((b"b", b"c")),
    "no header": lambda request: request.headers.clear(),
    "an extension": lambda request: request.extensions.update(mine=1),
    "no extension": lambda request: request.extensions.clear()}


@_WAYS
@pytest.mark.parametrize("names", [["ok"], ["429", "ok"], ["cut", "ok"], ["stopped"]],
                         ids=repr)
@pytest.mark.parametrize("touched", _TOUCHED)
def test_what_is_sent_is_the_wires_to_change(
        touched: str, names: "list[str]", blocks: bool) -> None:
    """The client's own request stays what it was, and no answer is lost."""
    told, _, _, routes = _both(names, blocks, touch=_TOUCHED[touched])
    assert told[0] == 200 or names != ["ok"]
    assert [facts["in_flight"] for facts in routes] == [0, 0]


@_WAYS
def test_time_outs_of_another_shape_leave_nothing_running(blocks: bool) -> None:
    told, seen, counts, routes = _both(["ok"], blocks, extensions={"timeout": 5})
    assert told[0][0] is TypeError and not seen and counts["cancelled"] == 1
    assert counts["spent_today_nusd"] == routes[0]["in_flight"] == 0


@pytest.mark.parametrize("sent", [True, False])
def test_a_way_that_ends_while_the_head_is_awaited(sent: bool) -> None:
    """Cancelled: told as one that may have gone out or not, and raised on."""
    async def one(hooks: Json) -> typing.Any:
        engine = fivegates.Engine(fivegates.Policy.loads(
            card_of("http://a.test/v1", "http://b.test/v1"),
            auto_fingerprint=True), seed=7, clock=lambda: 5_000_000)

        class Never:
            async def handle_async_request(self, request: typing.Any) -> typing.Any:
                if "trace" in request.extensions:
                    await request.extensions["trace"](_EVENTS[sent], {})
                if sent:
                    assert [part async for part in request.stream]
                await asyncio.sleep(3600)

        inner = HTTP.AsyncHTTPTransport()
        inner._pool = Never()
        client = transport.async_client(HTTP, engine, "w", inner=inner, **hooks)
        request = client.build_request(
            "POST", "http://a.test/v1/chat/completions", json={
                "model": "m1", "messages": [{"role": "user", "content": "hi"}]})
        before = request.headers.raw
        task = asyncio.ensure_future(client.send(request))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert request.headers.raw == before
        return engine.workflow("w"), engine.route("main")

    short, long = (asyncio.run(one(hooks)) for hooks in (
        {}, {"on_decision": lambda decision, call: None}))
    assert short == long and short[0]["cancelled"] == 1
    assert (short[0]["spent_today_nusd"] > 0) is sent


@_WAYS
def test_a_key_given_for_the_route_replaces_the_clients(blocks: bool) -> None:
    more = {"keys": {"main": "key-x", "backup": "key-b"}}
    short, long = (asyncio.run(_asked({**more, **hooks}, ["ok"], blocks))
                   for hooks in ({}, {"on_decision": lambda decision, call: None}))
    assert short == long
    assert [dict(seen[2])[b"authorization"] for seen in short[1]] == [b"Bearer key-x"]


def test_an_attempt_has_begun_when_it_was_sent(
        monkeypatch: pytest.MonkeyPatch) -> None:
    started: "list[tuple[float, float]]" = []
    came = plain.Exchange.came
    sent: "list[float]" = []

    def seen(self: typing.Any, attempt: typing.Any, *more: typing.Any) -> typing.Any:
        started.append((attempt.started, sent[0]))
        return came(self, attempt, *more)

    def noted(self: Script, request: typing.Any) -> typing.Any:
        sent.append(time.monotonic())
        return met(self, request)

    met = Script.next
    monkeypatch.setattr(Script, "next", noted)
    monkeypatch.setattr(plain.Exchange, "came", seen)
    asyncio.run(_asked({}, ["400"], True))
    [(began, went)] = started
    assert went - 60 < began <= went


@pytest.mark.parametrize("proxy", [True, False])
@pytest.mark.parametrize("reached", range(len(_EVENTS) + 1))
@pytest.mark.parametrize("error", [
    HTTP.ConnectError, HTTP.ConnectTimeout, HTTP.WriteError, HTTP.WriteTimeout,
    HTTP.ReadError, HTTP.ReadTimeout, HTTP.RemoteProtocolError, HTTP.PoolTimeout,
    HTTP.TooManyRedirects])
def test_the_body_tells_as_much_as_a_trace(error: typing.Any, reached: int,
                                           proxy: bool) -> None:
    """But whether a request was being written when that failed; and a part of
    a head counts as sent where the exception says so."""
    whole = Trace(None)
    request = type("Request", (), {"method": b"CONNECT" if proxy else b"POST"})()
    for name in _EVENTS[:reached]:
        whole.callback(name, {"request": request})
    asked = reached >= 2 and not proxy
    brief = ByBody(asked)
    assert brief.sent == whole.sent == asked
    found = [dict(evidence_of(error("x")) or {}) for _ in range(2)]
    said = found[0]["phase"]
    brief.correct(found[0])
    whole.correct(found[1])
    if error is not HTTP.PoolTimeout:
        phases = [one.pop("phase") for one in found]
        if not asked:
            assert phases == [said, "connect" if reached else "unknown"]
        else:
            assert phases == ["send" if said == "send" else "read",
                              "send" if reached == 2 else "read"]
    assert found[0] == found[1]
    if reached:
        assert brief.late(False, True) == whole.late(False, True)


def test_what_proves_nothing_was_sent_before_its_body() -> None:
    for asked, said in ((False, "connect"), (True, "read")):
        evidence: Json = {"phase": "unknown"}
        ByBody(asked).correct(evidence)
        assert evidence["phase"] == said
