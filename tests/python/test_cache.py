"""Answers when all fails: kept, found again, labelled; and a dead cache."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import pathlib
import shutil
import signal
import subprocess
import time
import typing

import pytest

import fivegates
from fivegates.cache import (
    AnswerCache,
    AsyncAnswerCache,
    AsyncRedisStore,
    DiskStore,
    MappingStore,
    RedisStore,
)

from .test_runner import BUSY, Rig

REQUEST = {"model": "m1", "messages": [{"role": "user", "content": "hours?"}]}


class Clock:
    def __init__(self) -> None:
        self.now = 1_796_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def rig(card: "dict[str, typing.Any]") -> Rig:
    return Rig(card)


class RedisServer:
    """A redis-server of this test run's own, on a socket in its folder."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.socket = str(folder / "redis.sock")
        self.process: "subprocess.Popen[bytes] | None" = None

    def start(self) -> None:
        import redis

        self.process = subprocess.Popen(
            ["redis-server", "--port", "0", "--unixsocket", self.socket,
             "--save", "", "--appendonly", "no", "--daemonize", "no",
             "--dir", os.path.dirname(self.socket)],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        with self.client() as client:
            for _ in range(500):
                try:
                    client.ping()
                    return
                except redis.exceptions.ConnectionError:
                    assert self.process.poll() is None, "redis-server has ended"
                    time.sleep(0.01)
        raise AssertionError("redis-server does not answer")

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def client(self, timeout_s: float = 2.0) -> typing.Any:
        import redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        return redis.Redis(unix_socket_path=self.socket,
                           socket_timeout=timeout_s,
                           retry=Retry(NoBackoff(), 0))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory,
           ) -> "typing.Iterator[RedisServer]":
    pytest.importorskip("redis")
    if shutil.which("redis-server") is None:
        pytest.skip("redis-server is not installed: .ci/setup test does it")
    out = RedisServer(tmp_path_factory.mktemp("redis"))
    out.start()
    yield out
    out.stop()


@pytest.fixture(params=["cachetools", "diskcache", "redis", "redis, text"])
def store(request: pytest.FixtureRequest, tmp_path: pathlib.Path,
          ) -> "typing.Iterator[typing.Any]":
    if request.param == "cachetools":
        cachetools = pytest.importorskip("cachetools")
        yield MappingStore(cachetools.LRUCache(100))
    elif request.param == "diskcache":
        diskcache = pytest.importorskip("diskcache")
        with diskcache.Cache(str(tmp_path / "answers")) as cache:
            yield DiskStore(cache)
    else:
        server: RedisServer = request.getfixturevalue("server")
        client = server.client()
        if "text" in request.param:
            client.connection_pool.connection_kwargs["decode_responses"] = True
        client.flushdb()
        yield RedisStore(client)
        client.close()


@pytest.mark.parametrize("answer", [
    "grüße", "", 0, None, False, 1.5, {"a": [1, {"b": None}]}, b"\x00\xff",
    [{"role": "assistant", "content": "x"}]])
def test_what_comes_back(store: typing.Any, clock: Clock,
                         answer: typing.Any) -> None:
    cache = AnswerCache(store, secret="s", clock=clock)
    key = cache.key("w", REQUEST)
    assert cache.lookup(key, 60) is None
    label = {"requested": "main", "served": "backup", "why": "transient"}
    cache.store(key, answer, label)
    found = cache.lookup(key, 60)
    assert found == (answer, clock.now, label)
    assert found is not None and type(found.answer) is type(answer)
    cache.store(key, "newer")
    newer = cache.lookup(key, 60)
    assert newer is not None and newer.answer == "newer"


def test_age(store: typing.Any, clock: Clock) -> None:
    cache = AnswerCache(store, secret="s", clock=clock)
    cache.store("k", "a")
    clock.now += 60
    assert cache.lookup("k", 60) is not None
    assert cache.lookup("k", 59) is None
    clock.now -= 60 + 59  # another machine's clock is ahead, a little
    assert cache.lookup("k", 60) is not None
    clock.now -= 10_000   # or wrong
    assert cache.lookup("k", 60) is None


def test_stores_forget(server: RedisServer, tmp_path: pathlib.Path) -> None:
    """keep_s is what the store is told."""
    diskcache = pytest.importorskip("diskcache")
    with server.client() as client:
        cache = AnswerCache(RedisStore(client), secret="s", keep_s=77)
        key = cache.key("w", "forget")
        cache.store(key, "a")
        assert 0 < client.ttl(key) <= 77
    with diskcache.Cache(str(tmp_path / "answers")) as disk:
        AnswerCache(DiskStore(disk), secret="s", keep_s=77).store("k", "a")
        _, expires = disk.get("k", expire_time=True)
        assert 0 < expires - time.time() <= 77


def test_keys_are_apart(clock: Clock) -> None:
    cache = AnswerCache(MappingStore({}), secret="s", clock=clock)
    keys = [cache.key("w", REQUEST), cache.key("v", REQUEST),
            cache.key("w", REQUEST, tenant="t"),
            cache.key("w", REQUEST, tenant="u"),
            cache.key("w", REQUEST, language="t"),
            cache.key("w", {**REQUEST, "model": "m2"}),
            cache.key("w", "hours?"), cache.key("w", json.dumps(REQUEST)),
            AnswerCache(MappingStore({}), secret="t").key("w", REQUEST)]
    assert len(set(keys)) == len(keys)
    assert cache.key("w", dict(reversed(REQUEST.items()))) == keys[0]
    assert AnswerCache(MappingStore({}), secret=b"s").key("w", REQUEST) == keys[0]
    assert all("hours" not in key for key in keys)


def test_bad_input(rig: Rig) -> None:
    store = MappingStore({})
    with pytest.raises(fivegates.ArgumentError, match="secret is empty"):
        AnswerCache(store, secret="")
    with pytest.raises(fivegates.ArgumentError, match="keep_s is 0"):
        AnswerCache(store, secret="s", keep_s=0)
    cache = AnswerCache(store, secret="s")
    later = AsyncAnswerCache(AsyncRedisStore(None), secret="s")
    send = rig.fake("a")
    bad: "list[tuple[dict[str, typing.Any], str]]" = [
        ({"cache": cache}, "go together"), ({"cache_key": "k"}, "go together"),
        ({"cache": cache, "cache_key": "k", "cached": print}, "one of them"),
        ({"cache": cache, "cache_key": {"x": object()}}, "no JSON"),
        ({"cache": later, "cache_key": "k"}, "cannot wait")]
    for options, words in bad:
        with pytest.raises(fivegates.ArgumentError, match=words):
            rig.run(send, **options)
    assert send.attempts == []
    assert rig.engine.workflow("w")["calls"] == 0


@pytest.mark.parametrize("answer", [object(), {1: "a"}, ("a",), float("nan"),
                                    {"a": {"b"}}])
def test_unfit_answers_are_not_kept(answer: typing.Any, clock: Clock,
                                    caplog: pytest.LogCaptureFixture) -> None:
    """What JSON would change is not stored as something else."""
    kept: "dict[str, str]" = {}
    cache = AnswerCache(MappingStore(kept), secret="s", clock=clock)
    cache.store("k", answer)
    cache.store("k", answer)
    assert kept == {}
    assert [one.getMessage() for one in caplog.records] == [
        f"an answer is not stored: {caplog.records[0].args[1]}; "  # type: ignore[index]
        "give bytes or what is the same after JSON, or dump= and load="]


@pytest.mark.parametrize("text", [
    "", "no JSON", "[]", "{}", '{"v": 1}', '{"v": 1, "at": "x", "json": 1}',
    b"\x80\x04\x95", b"\x80\x03csystem\n", '{"v": 2, "at": 1796000000}',
    '{"v": 1, "at": 1796000000, "label": null, "bytes": "%"}'])
def test_a_planted_entry_is_a_miss(text: typing.Any, clock: Clock,
                                   caplog: pytest.LogCaptureFixture) -> None:
    cache = AnswerCache(MappingStore({"k": text}), secret="s", clock=clock)
    assert cache.lookup("k", 60) is None
    assert cache.lookup("k", 60) is None
    assert len(caplog.records) <= 1


def test_objects_of_an_sdk(clock: Clock) -> None:
    openai = pytest.importorskip("openai")
    kind = openai.types.chat.ChatCompletion
    answer = kind.model_validate({
        "id": "c1", "object": "chat.completion", "created": 1, "model": "m1",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {
            "role": "assistant", "content": "hello"}}]})
    cache = AnswerCache(MappingStore({}), secret="s", clock=clock,
                        dump=lambda a: a.model_dump(mode="json"),
                        load=kind.model_validate)
    cache.store("k", answer)
    found = cache.lookup("k", 60)
    assert found is not None and found.answer == answer


# ---- in a run

@pytest.fixture(params=["run", "arun", "arun, async"])
def kept(request: pytest.FixtureRequest, rig: Rig, clock: Clock,
         ) -> "typing.Iterator[typing.Any]":
    """(drive(send, **options), the cache) through each loop and client."""
    server: RedisServer = request.getfixturevalue("server")
    client = server.client()
    client.flushdb()
    cache: typing.Any = AnswerCache(RedisStore(client), secret="s", clock=clock)
    if request.param == "run":
        yield rig.run, cache
    elif request.param == "arun":
        yield (lambda send, **more: rig.arun(send.asend, **more)), cache
    else:
        import redis.asyncio

        def drive(send: typing.Any, **more: typing.Any) -> typing.Any:
            async def call() -> typing.Any:
                async with redis.asyncio.Redis(
                        unix_socket_path=server.socket) as mine:
                    cache = AsyncAnswerCache(AsyncRedisStore(mine), secret="s",
                                             clock=clock)
                    return await rig.engine.arun("w", send.asend, **{
                        "prompt_tokens": 900, "max_output_tokens": 300,
                        "sleep": rig.clock.asleep, **more, "cache": cache})

            return asyncio.run(call())

        yield drive, cache
    client.close()


def test_an_outage_is_bridged(rig: Rig, clock: Clock,
                              kept: typing.Any) -> None:
    """Kept when accepted, served in an outage, labelled, as old as allowed."""
    drive, cache = kept
    options: "dict[str, typing.Any]" = {
        "cache": cache, "cache_key": REQUEST, "unable": "reroute",
        "outcome": True}
    good = drive(rig.fake("we open at 9"), **options)
    assert (good.value, good.label, good.cached) == ("we open at 9", None, None)
    rig.clock.advance(600_000)
    clock.now += 50
    stale = drive(rig.fake(BUSY), **options)
    assert stale.value == "we open at 9"
    assert stale.decision.action == "degrade"
    assert stale.label["requested"] == "main"
    assert (stale.label["served"], stale.label["why"]) == (
        None, stale.decision.reason)
    assert stale.cached.stored_at == clock.now - 50
    # A route that answers is asked: a stale answer is for outages alone.
    rig.clock.advance(600_000)
    assert drive(rig.fake("we open at 10"), **options).value == "we open at 10"
    # The card says 60 s.
    rig.clock.advance(600_000)
    clock.now += 61
    with pytest.raises(fivegates.Refused):
        drive(rig.fake(BUSY), **options)
    preset = drive(rig.fake(BUSY), **options, preset=True, language="de")
    assert (preset.value, preset.cached) == ("Leider.", None)
    assert preset.label is not None


def test_another_request_or_tenant_is_a_miss(rig: Rig, clock: Clock) -> None:
    cache = AnswerCache(MappingStore({}), secret="s", clock=clock)
    options: "dict[str, typing.Any]" = {"cache": cache, "unable": "reroute"}
    rig.run(rig.fake("a's"), tenant="a", cache_key="k", **options)
    assert rig.run(rig.fake(BUSY), tenant="a", cache_key="k", **options) == "a's"
    for tenant, key in (("b", "k"), ("a", "l"), (None, "k")):
        with pytest.raises(fivegates.Refused):
            rig.run(rig.fake(BUSY), tenant=tenant, cache_key=key, **options)


def test_what_is_kept(rig: Rig, clock: Clock) -> None:
    """Accepted answers, with a stand-in's label; no refusals, no tool calls."""
    held: "dict[str, str]" = {}
    cache = AnswerCache(MappingStore(held), secret="s", clock=clock)

    def drive(send: typing.Any, key: str, **more: typing.Any) -> typing.Any:
        return rig.run(send, cache=cache, cache_key=key, **more)

    with pytest.raises(fivegates.Refused):
        drive(rig.fake(BUSY), "refused", unable="reroute")
    acting = {"choices": [{"finish_reason": "tool_calls", "message": {
        "content": None, "tool_calls": [{"id": "1", "function": {
            "name": "pay", "arguments": "{}"}}]}}]}
    drive(rig.fake(acting), "acts", features=["tools"], tools=["pay"],
          stream=False)
    assert held == {}
    rig.clock.advance(600_000)
    out = drive(rig.fake(BUSY, BUSY, "spare"), "spare", outcome=True)
    found = cache.lookup(cache.key("w", "spare"), 60)
    assert found is not None
    assert (found.answer, found.label) == ("spare", out.label)


def test_a_none_of_ones_own_is_an_answer(rig: Rig, clock: Clock) -> None:
    cache = AnswerCache(MappingStore({}), secret="s", clock=clock)
    rig.run(rig.fake(None), cache=cache, cache_key="k")
    out = rig.run(rig.fake(BUSY), cache=cache, cache_key="k", outcome=True,
                  unable="reroute")
    assert out.value is None and out.cached is not None


# ---- a cache that fails

def test_redis_goes_and_comes_back(rig: Rig, clock: Clock,
                                   tmp_path: pathlib.Path,
                                   caplog: pytest.LogCaptureFixture) -> None:
    pytest.importorskip("redis")
    if shutil.which("redis-server") is None:
        pytest.skip("redis-server is not installed: .ci/setup test does it")
    server = RedisServer(tmp_path)
    server.start()
    client = server.client()
    cache = AnswerCache(RedisStore(client), secret="s", clock=clock)
    options: "dict[str, typing.Any]" = {"cache": cache, "cache_key": "k",
                                        "unable": "reroute"}
    try:
        rig.run(rig.fake("a"), **options)
        server.stop()
        for _ in range(3):
            clock.now += 10
            assert rig.run(rig.fake("a"), **options) == "a"
            with pytest.raises(fivegates.Refused):
                rig.run(rig.fake(BUSY), **options)
            rig.clock.advance(600_000)
        told = [one for one in caplog.records if one.name == "fivegates.cache"]
        assert [one.levelno for one in told] == [logging.WARNING]
        assert "is a miss until it is back: ConnectionError" in (
            told[0].getMessage())
        server.start()
        assert cache.lookup(cache.key("w", "k"), 60) is None  # still left alone
        clock.now += 10
        rig.run(rig.fake("b"), **options)
        assert rig.run(rig.fake(BUSY), **options) == "b"
    finally:
        client.close()
        server.stop()


def test_a_hanging_redis_is_asked_once(rig: Rig, clock: Clock,
                                       tmp_path: pathlib.Path) -> None:
    """Each call would wait for the time-out; while it rests none does."""
    pytest.importorskip("redis")
    if shutil.which("redis-server") is None:
        pytest.skip("redis-server is not installed: .ci/setup test does it")
    server = RedisServer(tmp_path)
    server.start()
    client = server.client(timeout_s=0.05)
    asked: "list[str]" = []

    class Counted(RedisStore):
        def set(self, key: str, text: str, keep_s: int) -> None:
            asked.append(key)
            super().set(key, text, keep_s)

    cache = AnswerCache(Counted(client), secret="s", clock=clock)
    assert server.process is not None
    os.kill(server.process.pid, signal.SIGSTOP)
    try:
        for _ in range(5):
            assert rig.run(rig.fake("a"), cache=cache, cache_key="k") == "a"
        assert len(asked) == 1
    finally:
        client.close()
        os.kill(server.process.pid, signal.SIGCONT)
        server.stop()


def test_the_callers_own_exceptions_pass(clock: Clock) -> None:
    class Stopped(MappingStore):
        def get(self, key: str) -> "str | None":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        AnswerCache(Stopped({}), secret="s", clock=clock).lookup("k", 60)


def test_a_bare_mapping_is_no_store() -> None:
    with pytest.raises(fivegates.ArgumentError, match="wrap it: MappingStore"):
        AnswerCache({}, secret="s")  # type: ignore[arg-type]
