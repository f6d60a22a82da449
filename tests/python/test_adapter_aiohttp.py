"""adapters.aiohttp with the real aiohttp on two loopback providers."""

from __future__ import annotations

import asyncio
import json
import typing

import pytest

import fivegates
from fivegates.testing import ManualClock

from .conftest import UNIX_MS, Provider
from .test_adapter_requests import CHAT, STREAM, Server, serving, wait_for

aiohttp = pytest.importorskip("aiohttp", minversion="3.12")

from fivegates.adapters.aiohttp import EngineMiddleware  # noqa: E402


class Rig:
    def __init__(self, card: "dict[str, typing.Any]", main: Provider,
                 backup: Provider, path: str) -> None:
        self.main, self.backup = main, backup
        self.url = f"{main.url}{path}/v1/chat/completions"
        self.clock = ManualClock(unix_ms=UNIX_MS)
        card["routes"]["main"]["base_url"] = f"{main.url}{path}/v1"
        card["routes"]["backup"].update(
            base_url=f"{backup.url}/ok/v1", model="m2", provider="openai")
        card["workflows"]["w"]["budget"] = {"extra_tokens": 100000,
                                            "extra_cost_usd": 10}
        policy = fivegates.Policy.loads(card, auto_fingerprint=True)
        self.engine = fivegates.Engine(policy, seed=1, clock=self.clock)
        self.heard: "list[fivegates.Decision]" = []
        self.calls: "list[fivegates.Call]" = []

    def told(self, decision: fivegates.Decision, call: fivegates.Call) -> None:
        self.heard.append(decision)
        self.calls.append(call)

    def run(self, read: "typing.Callable[[typing.Any], typing.Awaitable[typing.Any]] | None",
            body: "dict[str, typing.Any]" = CHAT, workflow: str = "w", *,
            url: "str | None" = None, **more: typing.Any) -> typing.Any:
        """One post in a session of its own; what read(response) answers."""
        options: "dict[str, typing.Any]" = {
            "keys": {"backup": "key-b"}, "sleep": self.clock.asleep,
            "on_decision": self.told, **more}
        policy = EngineMiddleware(self.engine, workflow, **options)

        async def main() -> typing.Any:
            async with aiohttp.ClientSession(middlewares=(policy,)) as session:
                async with session.post(url or self.url, json=body, headers={
                        "Authorization": "Bearer key-a",
                        "Cookie": "c=1"}) as got:
                    value = await read(got) if read is not None else None
                assert session.connector is not None
                assert not session.connector._acquired  # each one released
                return value

        value = asyncio.run(main())
        assert self.engine.route("main")["in_flight"] == 0
        return value

    def modes(self, provider: Provider) -> "list[str]":
        return [mode for mode, _, _ in provider.seen]


@pytest.fixture
def other_provider() -> "typing.Iterator[Provider]":
    yield from serving()


@pytest.fixture
def make(card: "dict[str, typing.Any]", provider: Provider,
         other_provider: Provider) -> "typing.Callable[[str], Rig]":
    provider.RequestHandlerClass = Server
    return lambda mode: Rig(card, provider, other_provider, "/" + mode)


def text_of(raw: bytes) -> str:
    out = ""
    for line in raw.split(b"\n"):
        if line.startswith(b"data: {"):
            for choice in json.loads(line[6:])["choices"]:
                out += choice["delta"].get("content", "")
    return out


WHOLE = "one two three four five "


async def whole(got: typing.Any) -> bytes:
    return bytes(await got.read())


async def parsed(got: typing.Any) -> typing.Any:
    return await got.json()


async def lines(got: typing.Any) -> bytes:
    return b"".join([line async for line in got.content])


async def small(got: typing.Any) -> bytes:
    parts = [part async for part in got.content.iter_chunked(7)]
    assert max(map(len, parts)) <= 7
    return b"".join(parts)


async def pieces(got: typing.Any) -> bytes:
    return b"".join([part async for part in got.content.iter_any()])


async def chunks(got: typing.Any) -> bytes:
    return b"".join([part async for part, _ in got.content.iter_chunks()])


async def exactly(got: typing.Any) -> bytes:
    raw = b""
    try:
        while True:
            raw += await got.content.readexactly(100)
    except asyncio.IncompleteReadError as exc:
        return raw + exc.partial


async def until(got: typing.Any) -> bytes:
    raw = b""
    while part := await got.content.readuntil(b"\n\n"):
        raw += part
    assert got.content.at_eof()
    return raw


def test_whole(make: typing.Any) -> None:
    rig = make("ok")
    assert rig.run(parsed)["choices"][0]["message"]["content"] == "hello"
    assert [d.action for d in rig.heard] == ["proceed", "proceed", "accept"]
    (_, headers, body), = rig.main.seen
    assert headers["authorization"] == "Bearer key-a"
    assert headers["x-request-attempt"] == "1"
    assert headers["content-type"] == "application/json"
    assert body["model"] == "m1"
    assert rig.engine.route("main")["tokens"] == 12


def test_falls_back_with_its_own_host_key_and_model(make: typing.Any) -> None:
    rig = make("503")
    assert rig.run(parsed)["choices"]
    assert rig.modes(rig.main) == ["503", "503"]
    (_, headers, body), = rig.backup.seen
    assert headers["authorization"] == "Bearer key-b"
    assert headers["host"] == rig.backup.url[7:]
    assert "cookie" not in headers
    assert body["model"] == "m2"
    assert body["messages"] == CHAT["messages"]
    assert [round(s * 1000) for s in rig.clock.slept] == [
        d.wait_ms for d in rig.heard if d.action == "retry"]


def test_back_to_the_first_host_the_request_is_its_own_again(
        make: typing.Any, card: "dict[str, typing.Any]") -> None:
    """Headers of one attempt do not stay for the next."""
    rig = make("503")
    rig.run(parsed)
    for _, headers, body in rig.main.seen:
        assert headers["authorization"] == "Bearer key-a"
        assert headers["cookie"] == "c=1" and body["model"] == "m1"
    assert [h["x-request-attempt"] for _, h, _ in rig.main.seen] == ["1", "2"]


def test_refused(make: typing.Any) -> None:
    rig = make("400")
    with pytest.raises(fivegates.Refused) as caught:
        rig.run(None)
    assert caught.value.decision.reason == "request_invalid"
    assert isinstance(caught.value.__cause__, aiohttp.ClientResponseError)


def test_reraise_gives_the_answer_back(make: typing.Any) -> None:
    async def read(got: typing.Any) -> typing.Any:
        return got.status, await got.json(), got.refused

    status, body, refused = make("400").run(read, reraise=True)
    assert (status, body["error"]["message"]) == (400, "fault 400")
    assert refused.decision.reason == "request_invalid"


def test_reraise_raises_what_aiohttp_raised(make: typing.Any) -> None:
    rig = make("reset")
    with pytest.raises(aiohttp.ServerDisconnectedError) as caught:
        rig.run(None, workflow="bare", reraise=True)
    assert isinstance(caught.value.refused, fivegates.Refused)
    assert rig.modes(rig.main) == ["reset"]


@pytest.mark.parametrize("mode", ["reset", "short"])
def test_silence_and_a_cut_go_to_a_stand_in(make: typing.Any,
                                            mode: str) -> None:
    rig = make(mode)
    assert rig.run(parsed)["choices"]
    assert rig.modes(rig.main) == [mode]
    assert len(rig.backup.seen) == 1


def test_never_sent(make: typing.Any, closed_port: int,
                    card: "dict[str, typing.Any]") -> None:
    card["routes"]["main"]["base_url"] = f"http://127.0.0.1:{closed_port}/v1"
    rig = make("ok")
    policy = fivegates.Policy.loads(
        {**card, "routes": {**card["routes"], "main": {
            **card["routes"]["main"],
            "base_url": f"http://127.0.0.1:{closed_port}/v1"}}},
        auto_fingerprint=True)
    rig.engine = fivegates.Engine(policy, seed=1, clock=rig.clock)
    assert rig.run(parsed, url=f"http://127.0.0.1:{closed_port}"
                   "/v1/chat/completions")["choices"]
    assert len(rig.backup.seen) == 1


@pytest.mark.parametrize("mode", ["never", "stuck"])
def test_silence_ends_by_the_engines_clock(make: typing.Any, mode: str,
                                           card: "dict[str, typing.Any]") -> None:
    """Before the head, and after it: hung up, and sent elsewhere."""
    card["workflows"]["w"]["timeouts"] = {"first_token_ms": 100}
    rig = make(mode)
    assert text_of(rig.run(whole, STREAM)) == WHOLE
    assert rig.modes(rig.main)[0] == mode and len(rig.backup.seen) == 1
    assert wait_for(rig.main, "gone")
    if mode == "never":
        assert [d.kind for d in rig.heard if d.action == "fallback"] == [
            "first_token_timeout"]


def test_an_error_inside_a_200(make: typing.Any) -> None:
    rig = make("inband")
    with pytest.raises(fivegates.Refused) as caught:
        rig.run(None, workflow="bare")
    assert caught.value.decision.owner == "quota"


def test_a_200_without_json_is_sent_again(make: typing.Any) -> None:
    rig = make("noise")
    assert rig.run(parsed)["choices"]
    assert rig.heard[2].owner == "transient"
    assert rig.modes(rig.backup) == ["ok"]


def test_permission_comes_before_the_first_send(make: typing.Any) -> None:
    rig = make("401")
    for _ in range(2):
        with pytest.raises(fivegates.Refused):
            rig.run(None, workflow="bare")
    assert rig.modes(rig.main) == ["401"]


@pytest.mark.parametrize("read", [whole, lines, small, pieces, chunks, exactly,
                                  until], ids=lambda one: one.__name__)
def test_a_stream_however_it_is_read(make: typing.Any, read: typing.Any) -> None:
    rig = make("ok")
    assert text_of(rig.run(read, STREAM)) == WHOLE
    assert [d.action for d in rig.heard] == ["proceed", "proceed", "accept"]
    assert rig.engine.route("main")["tokens"] == 14


@pytest.mark.parametrize("mode", ["early", "empty", "503"])
def test_nothing_shown_is_sent_elsewhere(make: typing.Any, mode: str) -> None:
    rig = make(mode)
    assert text_of(rig.run(lines, STREAM)) == WHOLE
    assert rig.modes(rig.backup) == ["ok"]


@pytest.mark.parametrize("mode", ["late-cut", "late-event"])
def test_cut_after_the_first_content(make: typing.Any, mode: str) -> None:
    rig = make(mode)
    seen: "list[bytes]" = []

    async def read(got: typing.Any) -> None:
        async for part in got.content.iter_any():
            seen.append(part)

    with pytest.raises(fivegates.Refused) as caught:
        rig.run(read, STREAM)
    assert b"one " in b"".join(seen)
    assert caught.value.decision.reason == "partial_output"
    assert rig.backup.seen == []
    assert rig.engine.route("main")["in_flight"] == 0


def test_closed_by_the_caller(make: typing.Any) -> None:
    async def some(got: typing.Any) -> None:
        await got.content.readline()

    rig = make("late-ok")
    rig.run(some, STREAM)
    assert rig.heard[-1].action != "accept"
    assert rig.engine.route("main")["failures"] == 0


def test_cancelled(make: typing.Any) -> None:
    rig = make("slow")
    policy = EngineMiddleware(rig.engine, "w", on_decision=rig.told)

    async def main() -> None:
        async with aiohttp.ClientSession(middlewares=(policy,)) as session:
            task = asyncio.ensure_future(session.post(rig.url, json=CHAT))
            await asyncio.sleep(0.1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(main())
    assert rig.calls[0].decision.reason == "client_gone"
    assert rig.engine.route("main")["in_flight"] == 0


def test_many_at_once(make: typing.Any) -> None:
    rig = make("ok")
    policy = EngineMiddleware(rig.engine, "w", on_decision=rig.told)

    async def main() -> "list[str]":
        async with aiohttp.ClientSession(middlewares=(policy,)) as session:
            async def one() -> str:
                async with session.post(rig.url, json=STREAM) as got:
                    return text_of(await lines(got))

            return list(await asyncio.gather(*(one() for _ in range(30))))

    assert asyncio.run(main()) == [WHOLE] * 30
    assert len({call.id for call in rig.calls}) == 30
    assert rig.engine.route("main")["in_flight"] == 0


def test_other_requests_pass(make: typing.Any) -> None:
    async def status(got: typing.Any) -> int:
        return int(got.status)

    rig = make("503")
    assert rig.run(status, url=rig.main.url + "/503/v1/files") == 503
    assert rig.heard == []


def test_redirects_are_not_followed(make: typing.Any) -> None:
    rig = make("moved")
    with pytest.raises(fivegates.Refused):
        rig.run(None, workflow="bare")
    assert rig.modes(rig.main) == ["moved"]


def test_facts_of_one_request(make: typing.Any) -> None:
    rig = make("ok")
    with pytest.raises(fivegates.Refused):
        rig.run(None, facts=lambda request: {"prompt_tokens": 10_000_000})
    assert rig.main.seen == []
