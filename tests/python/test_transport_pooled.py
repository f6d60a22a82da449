"""The pool is asked directly where the package's own transport would ask it in
the same way, and nobody stands in between."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import importlib
import json
import socket
import threading
import types
import typing

import httpx
import httpx2
import pytest
from support.cards import card_of

import fivegates
from fivegates import transport
from fivegates.transport import plain
from fivegates.transport.pooled import Pooled

_ANSWER = json.dumps({
    "id": "c1", "object": "chat.completion", "created": 1, "model": "m1",
    "choices": [{"index": 0, "finish_reason": "stop",
                 "message": {"role": "assistant", "content": "hello"}}]}).encode()
_HTTP = pytest.mark.parametrize("http", [httpx, httpx2], ids=["httpx", "httpx2"])
_WAYS = pytest.mark.parametrize("blocks", [True, False], ids=["sync", "async"])


def _core(http: typing.Any) -> typing.Any:
    return importlib.import_module(http.__name__.replace("httpx", "httpcore"))


def _kind(http: typing.Any, blocks: bool) -> "tuple[typing.Any, str]":
    return ((http.HTTPTransport, "handle_request") if blocks else
            (http.AsyncHTTPTransport, "handle_async_request"))


class Pool:
    """Answers each request, or fails."""

    def __init__(self, http: typing.Any, error: "BaseException | None" = None) -> None:
        self.core, self.error = _core(http), error
        self.seen: "list[typing.Any]" = []

    def handle_request(self, request: typing.Any) -> typing.Any:
        self.seen.append(request)
        if self.error is not None:
            raise self.error
        return self.core.Response(200, headers=[(b"A", b"b")],
                                  content=self.core.ByteStream(_ANSWER)
                                  if hasattr(self.core, "ByteStream") else _ANSWER)

    async def handle_async_request(self, request: typing.Any) -> typing.Any:
        return self.handle_request(request)


class Client:
    """A guarded one over a pool; its transport is `inner`."""

    def __init__(self, http: typing.Any, blocks: bool,
                 kind: typing.Any = None) -> None:
        self.http, self.blocks = http, blocks
        self.inner = (kind or _kind(http, blocks)[0])()
        self.pool = self.inner._pool = Pool(http)
        self.engine = fivegates.Engine(fivegates.Policy.loads(
            card_of("http://a.test/v1", "http://b.test/v1"), auto_fingerprint=True))
        self.client = (transport.client if blocks else transport.async_client)(
            http, self.engine, "bare", inner=self.inner)

    def asked(self, **extensions: typing.Any) -> typing.Any:
        request = self.client.build_request(
            "POST", "http://a.test/v1/chat/completions?x=1",
            extensions=extensions, json={"model": "m1", "messages": [
                {"role": "user", "content": "hi"}]})
        return (self.client.send(request) if self.blocks
                else asyncio.run(self.client.send(request)))


@pytest.fixture
def exchanges(monkeypatch: pytest.MonkeyPatch) -> "list[int]":
    """One for each request that took the long way."""
    made: "list[int]" = []
    begin = plain.Exchange.__init__

    def counted(self: typing.Any, *args: typing.Any) -> None:
        made.append(1)
        begin(self, *args)

    monkeypatch.setattr(plain.Exchange, "__init__", counted)
    return made


@_HTTP
@_WAYS
def test_the_packages_own_transport_is_passed_by(
        http: typing.Any, blocks: bool, exchanges: "list[int]") -> None:
    client = Client(http, blocks)
    for _ in range(3):
        assert client.asked().content == _ANSWER
    assert not exchanges and len(client.pool.seen) == 3
    made = client.pool.seen[-1]
    assert type(made) is _core(http).Request
    assert bytes(made.url) == b"http://a.test/v1/chat/completions?x=1"


@_HTTP
@_WAYS
def test_whoever_wraps_it_is_not(http: typing.Any, blocks: bool,
                                 exchanges: "list[int]") -> None:
    """On the class, before or after the client is made, or on the transport."""
    kind, name = _kind(http, blocks)
    seen: "list[typing.Any]" = []
    own = vars(kind)[name]

    def wrapped(self: typing.Any, request: typing.Any) -> typing.Any:
        seen.append(request)
        return own(self, request)

    first = Client(http, blocks)
    first.asked()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(kind, name, wrapped)
        second = Client(http, blocks)
        assert first.asked().content == second.asked().content == _ANSWER
        assert len(seen) == len(exchanges) == 2
    first.asked()
    assert len(seen) == len(exchanges) == 2
    first.inner.__dict__[name] = types.MethodType(wrapped, first.inner)
    first.asked()
    del first.inner.__dict__[name]
    first.asked()
    assert len(seen) == len(exchanges) == 3
    first.inner.__dict__[name] = lambda request: wrapped(first.inner, request)
    assert first.asked().content == _ANSWER
    assert len(seen) == len(exchanges) == 4
    assert all(isinstance(one, http.Request) for one in seen)


class Pretender:
    """A wrapper as wrapt's, which looks like what it wraps."""

    def __init__(self, wrapped: typing.Any, seen: "list[typing.Any]") -> None:
        self.__dict__.update(wrapped=wrapped, seen=seen)

    def __getattr__(self, name: str) -> typing.Any:
        return getattr(self.wrapped, name)

    @property
    def __class__(self) -> typing.Any:
        return type(self.wrapped)

    def __get__(self, one: typing.Any, kind: type) -> typing.Any:
        return Pretender(self.wrapped.__get__(one, kind), self.seen)

    def __call__(self, request: typing.Any) -> typing.Any:
        self.seen.append(request)
        return self.wrapped(request)


@_HTTP
@_WAYS
@pytest.mark.parametrize("early", [True, False])
def test_whoever_looks_like_it_is_not_either(
        http: typing.Any, blocks: bool, early: bool, exchanges: "list[int]",
        monkeypatch: pytest.MonkeyPatch) -> None:
    kind, name = _kind(http, blocks)
    seen: "list[typing.Any]" = []
    client = None if early else Client(http, blocks)
    if client is not None:
        client.asked()
    monkeypatch.setattr(kind, name, Pretender(vars(kind)[name], seen))
    client = client or Client(http, blocks)
    assert client.asked().content == client.asked().content == _ANSWER
    assert len(seen) == len(exchanges) == 2


@_HTTP
@_WAYS
def test_the_method_of_another_is_the_others(http: typing.Any, blocks: bool) -> None:
    client, other = Client(http, blocks), Client(http, blocks)
    name = _kind(http, blocks)[1]
    setattr(client.inner, name, getattr(other.inner, name))
    assert client.asked().content == _ANSWER
    assert (len(client.pool.seen), len(other.pool.seen)) == (0, 1)


@_HTTP
@_WAYS
def test_whoever_is_put_around_it_later_is_asked(
        http: typing.Any, blocks: bool, exchanges: "list[int]") -> None:
    name = _kind(http, blocks)[1]
    client = Client(http, blocks)
    client.asked()
    seen: "list[typing.Any]" = []

    class Around:
        def __init__(self, inner: typing.Any) -> None:
            setattr(self, name, Pretender(getattr(inner, name), seen))

    guard = client.client._transport
    guard.inner = Around(guard.inner)
    assert client.asked().content == _ANSWER
    assert len(seen) == len(exchanges) == 1
    guard.inner = client.inner
    client.asked()
    assert len(seen) == len(exchanges) == 1 and len(client.pool.seen) == 3


@_HTTP
@_WAYS
def test_a_pool_may_change_what_it_is_asked_with(
        http: typing.Any, blocks: bool, exchanges: "list[int]") -> None:
    client = Client(http, blocks)
    kind = type(client.pool)

    class Changes(kind):  # type: ignore[misc, valid-type]
        def handle_request(self, request: typing.Any) -> typing.Any:
            request.url.target = b"/proxy" + request.url.target
            request.extensions["timeout"]["read"] = 1
            return super().handle_request(request)

    client.inner._pool = pool = Changes(http)
    client.asked()
    client.asked()
    assert [bytes(one.url) for one in pool.seen] == [
        b"http://a.test/proxy/v1/chat/completions?x=1"] * 2 and not exchanges


@_HTTP
@_WAYS
def test_a_copy_that_was_sent_is_no_unsent_request(
        http: typing.Any, blocks: bool) -> None:
    client = Client(http, blocks)
    kind = type(client.pool)

    class Copies(kind):  # type: ignore[misc, valid-type]
        def handle_request(self, request: typing.Any) -> typing.Any:
            b"".join(copy.deepcopy(request).stream)
            raise self.core.ConnectTimeout("of another try")

    client.inner._pool = Copies(http)
    with pytest.raises(http.ConnectTimeout):
        client.asked()
    assert client.engine.workflow("bare")["spent_today_nusd"] > 0
    assert client.engine.route("main")["attempts"] == 1


@_HTTP
def test_one_that_nothing_is_learned_of_takes_nothing_away(
        http: typing.Any, exchanges: "list[int]",
        monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two at once: the other is being made of what was learned of it."""
    client = Client(http, True)
    learn = Pooled.template

    def odd(self: Pooled, request: typing.Any) -> None:
        monkeypatch.setattr(Pooled, "template", learn)
        client.asked()

    monkeypatch.setattr(Pooled, "template", odd)
    client.asked()
    assert not exchanges and len(client.pool.seen) == 2


@_HTTP
@_WAYS
def test_a_body_that_a_hook_has_put_there_is_sent(
        http: typing.Any, blocks: bool, exchanges: "list[int]") -> None:
    client = Client(http, blocks)

    def changed(request: typing.Any) -> None:
        request.stream = http.ByteStream(b"other")
        request.headers["content-length"] = "5"

    async def achanged(request: typing.Any) -> None:
        changed(request)

    client.client.event_hooks = {"request": [changed if blocks else achanged]}
    client.asked()
    [made] = client.pool.seen

    async def body() -> bytes:
        return b"".join([part async for part in made.stream])

    assert (b"".join(made.stream) if blocks else asyncio.run(body())) == b"other"
    assert (b"content-length", b"5") in [
        (name.lower(), value) for name, value in made.headers] and not exchanges


@_HTTP
@_WAYS
def test_another_transport_is_asked_itself(http: typing.Any, blocks: bool,
                                           exchanges: "list[int]") -> None:
    kind, name = _kind(http, blocks)
    seen: "list[typing.Any]" = []

    def mine(self: typing.Any, request: typing.Any) -> typing.Any:
        seen.append(request)
        return getattr(kind, name)(self, request)

    client = Client(http, blocks, type("Mine", (kind,), {name: mine}))
    assert client.asked().content == _ANSWER
    assert len(seen) == len(exchanges) == 1


@_HTTP
@pytest.mark.parametrize("extensions", [
    {"trace": None}, {"target": b"/other"}, {"sni_hostname": "b.test"}], ids=repr)
def test_extensions_are_the_packages_to_read(
        http: typing.Any, extensions: typing.Any, exchanges: "list[int]") -> None:
    client = Client(http, True)
    assert client.asked(**extensions).content == _ANSWER and exchanges == [1]
    [made] = client.pool.seen
    if "target" in extensions:
        assert bytes(made.url) == b"http://a.test/other"


@pytest.fixture
def deaf() -> "typing.Iterator[str]":
    """A proxy that hangs up when it is asked for a connection: its URL."""
    def hangs_up() -> None:
        with contextlib.suppress(OSError):
            while True:
                asking, _ = listens.accept()
                with asking:
                    assert asking.recv(9) == b"CONNECT a"

    with socket.create_server(("127.0.0.1", 0)) as listens:
        thread = threading.Thread(target=hangs_up)
        thread.start()
        yield f"http://127.0.0.1:{listens.getsockname()[1]}"
        listens.shutdown(socket.SHUT_RDWR)
        thread.join()


@_HTTP
@_WAYS
def test_what_a_proxy_has_not_passed_on_costs_nothing(
        http: typing.Any, blocks: bool, deaf: str) -> None:
    engine = fivegates.Engine(fivegates.Policy.loads(
        card_of("https://a.test/v1", "https://b.test/v1"), auto_fingerprint=True))

    async def asked() -> None:
        client = (transport.client if blocks else transport.async_client)(
            http, engine, "bare", inner=_kind(http, blocks)[0](
                proxy=deaf, verify=False))
        sent = client.post("https://a.test/v1/chat/completions", json={
            "model": "m1", "messages": [{"role": "user", "content": "hi"}]})
        await sent

    with pytest.raises(http.TransportError):
        asyncio.run(asked())
    assert engine.workflow("bare")["spent_today_nusd"] == 0
    assert engine.route("main")["attempts"] > 1


# Releases that are not there yet: what they do to a request or a response.
_OTHERS = {
    "a header": "request.headers['new'] = '1'",
    "a method": "request.method = 'PUT'",
    "a body": "request.stream = type(request.stream)(b'{}')",
    "extensions": "request.extensions = {**request.extensions, 'new': 1}",
    "a part of it": "self.other",
    "an encoding": "then = lambda answer: setattr(answer, 'default_encoding', 'x')",
    "a status": "then = lambda answer: setattr(answer, 'status_code', 201)",
    "a stream": "then = lambda answer: setattr(answer, 'stream', wrapped(answer))",
}


@_HTTP
@_WAYS
@pytest.mark.parametrize("does", _OTHERS.values(), ids=_OTHERS)
def test_a_release_that_does_more_is_not_passed_by(
        http: typing.Any, blocks: bool, does: str, exchanges: "list[int]",
        monkeypatch: pytest.MonkeyPatch) -> None:
    kind, name = _kind(http, blocks)
    own = vars(kind)[name]
    scope = own.__globals__
    streams = scope["SyncByteStream" if blocks else "AsyncByteStream"]

    class Wrapped(streams):  # type: ignore[misc, valid-type]
        def __init__(self, stream: typing.Any) -> None:
            self.stream = stream

        def __iter__(self) -> typing.Any:
            return iter(self.stream)

        def __aiter__(self) -> typing.Any:
            return self.stream.__aiter__()

    # A function of the package's, by its scope.
    monkeypatch.setitem(scope, "_own", own)
    monkeypatch.setitem(scope, "wrapped", lambda answer: Wrapped(answer.stream))
    waits = ("", "") if blocks else ("async ", "await ")
    made: "dict[str, typing.Any]" = {}
    exec(f"{waits[0]}def send(self, request):\n    then = lambda answer: None\n"
         f"    {does}\n    answer = {waits[1]}_own(self, request)\n"
         f"    then(answer)\n    return answer\n", scope, made)
    monkeypatch.setattr(kind, name, made["send"])
    client = Client(http, blocks)
    client.inner.other = None
    assert client.asked().content == _ANSWER
    assert client.asked().content == _ANSWER
    assert exchanges == [1, 1] and len(client.pool.seen) == 2


@_HTTP
@_WAYS
@pytest.mark.parametrize("absent", ["map_httpcore_exceptions", "ResponseStream"])
def test_a_release_of_other_parts_is_not_either(
        http: typing.Any, blocks: bool, absent: str, exchanges: "list[int]",
        monkeypatch: pytest.MonkeyPatch) -> None:
    kind, name = _kind(http, blocks)
    scope = dict(vars(kind)[name].__globals__)
    if absent == "ResponseStream" and not blocks:
        absent = "AsyncResponseStream"
    own = vars(kind)[name]
    scope["other"] = scope.pop(absent)
    code = own.__code__.replace(co_names=tuple(
        "other" if one == absent else one for one in own.__code__.co_names))
    monkeypatch.setattr(kind, name, types.FunctionType(code, scope, name))
    client = Client(http, blocks)
    assert client.asked().content == _ANSWER and exchanges == [1]


@_HTTP
@_WAYS
@pytest.mark.parametrize("part", ["Request", "URL"])
def test_parts_without_a_dict_are_the_packages_to_make(
        http: typing.Any, blocks: bool, part: str, exchanges: "list[int]",
        monkeypatch: pytest.MonkeyPatch) -> None:
    core = _core(http)
    own = getattr(core, part)

    class Slotted:
        __slots__ = ("method", "url", "headers", "stream", "extensions",
                     "scheme", "host", "port", "target")

        def __init__(self, *args: typing.Any, **named: typing.Any) -> None:
            for name, value in vars(own(*args, **named)).items():
                setattr(self, name, value)

        def __bytes__(self) -> bytes:
            return b"slotted"

    # A request takes no URL of another class: there it is put in afterwards.
    made = Slotted if part == "Request" else lambda **named: named
    if part == "URL":
        init = core.Request.__init__

        def begin(self: typing.Any, method: str, url: typing.Any,
                  **more: typing.Any) -> None:
            init(self, method, own(**url), **more)
            self.url = Slotted(**url)

        monkeypatch.setattr(core.Request, "__init__", begin)
    monkeypatch.setattr(core, part, made)
    client = Client(http, blocks)
    assert client.asked().content == client.asked().content == _ANSWER
    assert exchanges == [1, 1] and len(client.pool.seen) == 2


def _errors(http: typing.Any) -> "list[BaseException]":
    core = _core(http)
    kinds = [one for one in vars(core).values() if isinstance(one, type)
             and issubclass(one, Exception)]
    assert len(kinds) > 12
    return [*(kind("why") for kind in kinds), ValueError("mine"), KeyboardInterrupt()]


@_HTTP
@_WAYS
def test_what_the_pool_raises_is_raised_as_its_transport_would(
        http: typing.Any, blocks: bool) -> None:
    kind, name = _kind(http, blocks)
    inner = kind()
    pooled = Pooled(http, kind, inner)
    request = http.Request("POST", "http://a.test/", content=b"{}",
                           extensions={"timeout": {}})
    template = pooled.template(request)
    assert template is not None
    for error in _errors(http):
        inner._pool = Pool(http, error)
        raised = []
        for ask, asked in ((getattr(inner, name), request),
                           (pooled.ask if blocks else pooled.aask,
                            template.request([], request.stream, {}))):
            try:
                out = ask(asked)
                if not blocks:
                    asyncio.run(out)
            except BaseException as exc:
                raised.append((type(exc), str(exc), exc.__cause__,
                               exc.__suppress_context__))
        assert len(raised) == 2 and raised[0] == raised[1]
