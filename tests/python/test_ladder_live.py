"""Every step of the ladder at a provider that fails: what it was asked, and
what the SDK's caller was told. See support/ladder.py."""

from __future__ import annotations

import asyncio
import os
import pathlib
import re
import typing

import pytest
from support import ladder
from support.ladder import Json, Provider

import fivegates
from fivegates import transport
from fivegates.cache import (
    AnswerCache,
    AsyncAnswerCache,
    AsyncRedisStore,
    MappingStore,
)

from .conftest import ROOT
from .test_cache import RedisServer, server, store

__all__ = ["server", "store"]  # fixtures

openai = pytest.importorskip("openai", "3")
anthropic = pytest.importorskip("anthropic")
httpx2 = pytest.importorskip("httpx2")
pytest.importorskip("h11")
if os.environ.get("FIVEGATES_SANITIZE"):
    pytest.skip("what they call has tests that run with sanitizers",
                allow_module_level=True)


@pytest.fixture(scope="module")
def provider() -> "typing.Iterator[Provider]":
    with ladder.provider() as made:
        yield made


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY_SMALL", "key-of-small")


def http_of(api: str) -> typing.Any:
    """What the SDK of an API sends with."""
    return httpx2 if api != "messages" or int(
        anthropic.__version__.split(".")[0]) >= 1 else pytest.importorskip("httpx")


def client_of(provider: Provider, api: str, *steps: str, card: "Json | None" = None,
              sleep: object = None, **options: typing.Any) -> typing.Any:
    engine = fivegates.Engine(fivegates.Policy.loads(
        card or ladder.card_of(provider.url, api, *steps), auto_fingerprint=True))
    http = http_of(api)
    http = transport.client(http, engine, "w", inner=http.HTTPTransport(
        verify=False), **options)  # nothing here needs certificates
    if api == "messages":
        return anthropic.Anthropic(base_url=f"{provider.url}/main", api_key="k",
                                   http_client=http)
    return openai.OpenAI(base_url=f"{provider.url}/main/v1", api_key="k",
                         http_client=http)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("api", ladder.APIS)
@pytest.mark.parametrize("step", ladder.STEPS)
def test_a_step(provider: Provider, step: str, api: str, stream: bool) -> None:
    request = ladder.request_of(api, step)
    cache = AnswerCache(MappingStore({}), secret="s")
    with client_of(provider, api, step, cache=cache) as client:
        provider.play("ok")
        if step == "cached":
            with transport.guarded(language="de-CH"):
                fresh = ladder.ask(client, api, not stream, request)
            assert "x-fivegates-step" not in fresh.headers
            assert fresh.model == "model-of-main"
        provider.play(*ladder.FAULTS[step], small="ok")
        with transport.guarded(language="de-CH") as seen:
            answer = ladder.ask(client, api, stream, request)
    assert answer.headers["x-fivegates-step"] == step
    assert seen.decision is not None and seen.decision.label is not None
    assert seen.decision.label["requested"] == "main"
    first, *rest = provider.asked()
    assert ladder.same(first, request)
    if step in ladder.SENT:
        rest += provider.asked("small")
        assert len(rest) == 1
        assert ladder.same(rest[0], ladder.edited(api, step, request))
        assert len(answer.text.split()) == 6
        assert seen.decision.label["served"] == (
            "small" if step == "smaller_model" else "main")
    else:
        assert not rest and not provider.asked("small")
        assert answer.model == f"fivegates/{step}"
        assert answer.headers["x-fivegates-action"] == "degrade"
        assert answer.text == (fresh.text if step == "cached"
                               else ladder.SORRY["de"])
        if step == "cached":
            assert 0 <= int(answer.headers["age"]) <= 60


@pytest.mark.parametrize("api", ladder.APIS)
def test_compact_after_a_prompt_that_was_too_long(provider: Provider,
                                                  api: str) -> None:
    """And where nothing can be left out, the provider's own words come."""
    request = ladder.request_of(api, "compact")
    provider.play("context_length", "ok")
    with client_of(provider, api, "compact", "preset") as client:
        answer = ladder.ask(client, api, False, request)
        assert answer.headers["x-fivegates-step"] == "compact"
        assert len(provider.asked()) == 2
        provider.play("context_length", "ok")
        turns = "input" if api == "responses" else "messages"
        with pytest.raises((openai.BadRequestError, anthropic.BadRequestError)):
            ladder.ask(client, api, False, {**request, turns: request[turns][:1]
                                            if api != "chat" else request[turns][:2]})
        assert len(provider.asked()) == 1
    provider.play("context_length", "ok")
    with client_of(provider, api, "compact", compact=False) as client:
        with pytest.raises((openai.BadRequestError, anthropic.BadRequestError)):
            ladder.ask(client, api, False, request)
    assert len(provider.asked()) == 1


# ---- the cache


def test_a_healthy_primary_is_asked(provider: Provider) -> None:
    """Nothing comes out of the cache while it answers; then no older answer
    than the card allows, and none of another tenant or question."""
    now = [1_796_000_000.0]
    cache = AnswerCache(MappingStore({}), secret="s", clock=lambda: now[0])
    request = ladder.request_of("chat", "cached")
    other = {**request, "temperature": 0.5}
    with client_of(provider, "chat", "cached", "preset", cache=cache) as client:
        provider.play("ok")
        for _ in range(3):
            with transport.guarded(tenant="t1"):
                answer = ladder.ask(client, "chat", False, request)
            assert answer.model == "model-of-main"
        assert len(provider.asked()) == 3
        provider.play("unavailable")
        told = {}
        for tenant, asked, later in (("t1", request, 0), ("t2", request, 0),
                                     (None, request, 0), ("t1", other, 0),
                                     ("t1", request, 60), ("t1", request, 61)):
            now[0] = 1_796_000_000.0 + later
            with transport.guarded(tenant=tenant):
                told[tenant, asked is other, later] = ladder.ask(
                    client, "chat", False, asked).model
    assert told.pop(("t1", False, 0)) == "fivegates/cached"
    assert told.pop(("t1", False, 60)) == "fivegates/cached"
    assert set(told.values()) == {"fivegates/preset"} and len(told) == 4


def test_what_is_not_kept(provider: Provider) -> None:
    """A call of a tool, several answers, an answer of the ladder itself."""
    kept: "dict[str, str]" = {}
    cache = AnswerCache(MappingStore(kept), secret="s")
    with client_of(provider, "chat", "shorter", "cached", cache=cache) as client:
        provider.play("ok")
        request = ladder.request_of("chat", "without_tools")
        create = client.chat.completions.create
        for stream in (False, True):
            answer: typing.Any = create(**request, stream=stream)
            for _ in answer if stream else ():
                pass
            cut = create(**{**ladder.request_of("chat", "cached"),
                            "max_completion_tokens": 2}, stream=stream)
            for _ in cut if stream else ():
                pass
        assert not kept
        for stream in (False, True):
            provider.play("server_error", "ok")
            assert ladder.ask(client, "chat", stream, ladder.request_of(
                "chat", "shorter")).headers["x-fivegates-step"] == "shorter"
        assert not kept
        provider.play("ok")
        some: typing.Any = create(**ladder.request_of("chat", "cached"), stream=True)
        next(some)
        some.close()  # before its end
        assert not kept
        ladder.ask(client, "chat", True, ladder.request_of("chat", "cached"))
    text, = kept.values()
    assert "old question" not in text and "key" not in "".join(kept)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_stores(provider: Provider, store: typing.Any, stream: bool) -> None:
    cache = AnswerCache(store, secret="s")
    request = ladder.request_of("chat", "cached")
    with client_of(provider, "chat", "cached", cache=cache) as client:
        provider.play("ok")
        fresh = ladder.ask(client, "chat", stream, request)
        provider.play("unavailable")
        again = ladder.ask(client, "chat", not stream, request)
    assert (again.text, again.model) == (fresh.text, "fivegates/cached")


def test_an_async_cache(provider: Provider, server: RedisServer) -> None:
    import redis.asyncio

    async def scene() -> None:
        engine = fivegates.Engine(fivegates.Policy.loads(
            ladder.card_of(provider.url, "chat", "cached"), auto_fingerprint=True))
        store = redis.asyncio.Redis(unix_socket_path=server.socket)
        await store.flushdb()
        cache = AsyncAnswerCache(AsyncRedisStore(store), secret="s")
        async with openai.AsyncOpenAI(
                base_url=f"{provider.url}/main/v1", api_key="k",
                http_client=transport.async_client(
                    httpx2, engine, "w", cache=cache)) as client:
            asked = ladder.request_of("chat", "cached")
            other = {**asked, "temperature": 0.5}
            provider.play("ok")
            async for _ in await client.chat.completions.create(**asked, stream=True):
                pass
            await client.chat.completions.create(**other)
            provider.play("unavailable")
            for one in (asked, other):
                answer = await client.chat.completions.create(**one)
                assert answer.model == "fivegates/cached"
                assert len(answer.choices[0].message.content.split()) == 6
        await store.aclose()

    asyncio.run(scene())
    engine = fivegates.Engine(fivegates.Policy.loads(
        ladder.card_of(provider.url, "chat", "cached"), auto_fingerprint=True))
    with pytest.raises(fivegates.ArgumentError, match="cannot wait"):
        transport.client(httpx2, engine, "w", cache=AsyncAnswerCache(
            typing.cast(typing.Any, MappingStore({})), secret="s"))
    with pytest.raises(fivegates.ArgumentError, match="two answers"):
        transport.client(httpx2, engine, "w", cached=lambda b, d: "x",
                         cache=AnswerCache(MappingStore({}), secret="s"))


# ---- the preset


@pytest.mark.parametrize(("language", "text"), [
    ("en-GB", "Sorry, mate."), ("en-US", "Sorry, later."), ("de", "Leider später."),
    ("DE-ch", "Leider später."), ("fr", "Sorry, later."), (None, "Sorry, later.")])
def test_the_language(provider: Provider, language: "str | None",
                      text: str) -> None:
    provider.play("unavailable")
    with client_of(provider, "chat", "preset") as client, transport.guarded(
            language=language):
        assert ladder.ask(client, "chat", False,
                          ladder.request_of("chat", "preset")).text == text


@pytest.mark.parametrize(("api", "more"), [
    ("chat", {"response_format": {"type": "json_object"}}),
    ("chat", {"response_format": {"type": "json_schema", "json_schema": {
        "name": "x", "schema": {}}}}),
    ("chat", {"tool_choice": "required"}),
    ("chat", {"tool_choice": {"type": "function", "function": {"name": "look"}}}),
    ("chat", {"tool_choice": {"type": "allowed_tools", "allowed_tools": {
        "mode": "required", "tools": []}}}),
    ("responses", {"text": {"format": {"type": "json_object"}}}),
    ("responses", {"tool_choice": {"type": "allowed_tools", "mode": "required",
                                   "tools": []}}),
    ("messages", {"tool_choice": {"type": "any"}}),
    ("messages", {"tool_choice": {"type": "tool", "name": "look"}})])
def test_who_waits_for_no_sentence_gets_an_error(
        provider: Provider, api: str, more: Json) -> None:
    provider.play("unavailable")
    request = ladder.request_of(api, "without_tools")
    with client_of(provider, api, "preset") as client:
        with pytest.raises((openai.APIStatusError, anthropic.APIStatusError)):
            ladder.ask(client, api, False, {**request, **more})
        soft = ladder.request_of(api, "without_tools")
        soft["tool_choice"] = {"type": "auto"} if api == "messages" else "auto"
        assert ladder.ask(client, api, False, soft).model == "fivegates/preset"


# ---- docs/ladder.md


def test_the_page(provider: Provider, tmp_path: pathlib.Path,
                  monkeypatch: pytest.MonkeyPatch,
                  capsys: "pytest.CaptureFixture[str]") -> None:
    """Its card and its Python, while the provider answers and while it fails."""
    pytest.importorskip("cachetools")
    page = (ROOT / "docs" / "ladder.md").read_text(encoding="utf-8")
    card, = re.findall(r"```yaml\n(.*?)```", page, re.S)
    guarded, loop = (code.replace("/dev/shm/answers", str(tmp_path / "region"))
                     for code in re.findall(r"```python\n(.*?)```", page, re.S))
    (tmp_path / "card.yaml").write_text(card.replace(
        "https://api.openai.com/v1", f"{provider.url}/main/v1"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CACHE_SECRET", "s")
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    monkeypatch.setenv("OPENAI_BASE_URL", f"{provider.url}/main/v1")
    messages = [{"role": "user", "content": "hi"}]
    request = {"model": "gpt-4o", "messages": messages}
    provider.play("ok")
    with openai.OpenAI(max_retries=0) as plain:
        scope: Json = {"messages": messages, "request": request,
                       "plain_client": plain}
        exec(compile(guarded, "ladder.md", "exec"), scope)
        assert scope["answer"].model == "gpt-4o" and not capsys.readouterr().out
        exec(compile(loop, "ladder.md", "exec"), scope)
        fresh = scope["outcome"].value
        assert capsys.readouterr().out == f"{fresh} None\n"
        provider.play("unavailable")
        with scope["client"] as client:
            answer = ladder.Answer("", "", {})
            with transport.guarded(tenant="acme", language="de-CH") as seen:
                answer = ladder.ask(client, "chat", True, request)
                assert answer.model == "fivegates/cached"
            with transport.guarded(tenant="other", language="de-CH") as seen:
                answer = ladder.ask(client, "chat", True, request)
            assert answer.text.startswith("Das geht gerade nicht")
            assert seen.decision is not None and seen.decision.label is not None
        exec(compile(loop, "ladder.md", "exec"), scope)
        assert scope["outcome"].value == fresh
        assert "'requested': 'main'" in capsys.readouterr().out
