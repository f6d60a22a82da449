"""Guarded clients of the real openai package, whichever major is installed:
the newest, which sends with httpx2, or the last one that sends with httpx."""

from __future__ import annotations

import asyncio
import importlib
import typing

import openai
import pytest

import fivegates
from fivegates import transport

from .cards import engine_of as engine_at
from .wire_server import WireServer

T = typing.TypeVar("T")
HTTP = importlib.import_module(
    "httpx2" if int(openai.__version__.split(".")[0]) >= 3 else "httpx")
CORE = importlib.import_module(HTTP.__name__.replace("httpx", "httpcore"))
MESSAGES: "list[typing.Any]" = [{"role": "user", "content": "hi"}]
BUDGET = {"extra_tokens": 100000, "extra_cost_usd": 1}


def engine_of(server: WireServer, main: str = "ok", backup: str = "ok",
              **workflow: typing.Any) -> fivegates.Engine:
    return engine_at(f"{server.url}/{main}/v1", f"{server.url}/{backup}/v1",
                     **workflow)


_OPEN: "list[typing.Any]" = []


@pytest.fixture(autouse=True)
def closed_clients() -> "typing.Iterator[None]":
    """Closes the blocking clients a test has made."""
    yield
    while _OPEN:
        _OPEN.pop().close()


def kept(client: T) -> T:
    _OPEN.append(client)
    return client


def client_of(server: WireServer, engine: fivegates.Engine, name: str = "ok",
              **options: typing.Any) -> openai.OpenAI:
    options.setdefault("keys", {"backup": "key-b"})
    # Without certificates to load a client is made faster.
    options.setdefault("inner", HTTP.HTTPTransport(verify=False))
    return kept(openai.OpenAI(
        base_url=f"{server.url}/{name}/v1", api_key="key-a", max_retries=2,
        http_client=transport.client(HTTP, engine, "w", **options)))


def async_client_of(server: WireServer, engine: fivegates.Engine,
                    name: str = "ok", **options: typing.Any,
                    ) -> openai.AsyncOpenAI:
    options.setdefault("keys", {"backup": "key-b"})
    options.setdefault("inner", HTTP.AsyncHTTPTransport(verify=False))
    return openai.AsyncOpenAI(
        base_url=f"{server.url}/{name}/v1", api_key="key-a", max_retries=2,
        http_client=transport.async_client(HTTP, engine, "w", **options))


def ask(client: openai.OpenAI, stream: bool, **more: typing.Any) -> str:
    answer = client.chat.completions.create(
        model="m1", messages=MESSAGES, stream=stream, **more)
    if not stream:
        return str(answer.choices[0].message.content)
    return "".join(chunk.choices[0].delta.content or "" for chunk in answer
                   if chunk.choices)


async def aask(client: openai.AsyncOpenAI, stream: bool,
               **more: typing.Any) -> str:
    answer = await client.chat.completions.create(
        model="m1", messages=MESSAGES, stream=stream, **more)
    if not stream:
        return str(answer.choices[0].message.content)
    return "".join([chunk.choices[0].delta.content or "" async for chunk
                    in answer if chunk.choices])


def anything(server: WireServer, engine: fivegates.Engine, name: str,
             kind: str, **options: typing.Any) -> str:
    """One question by "sync", "async", "sync stream" or "async stream"."""
    stream = kind.endswith("stream")
    if kind.startswith("sync"):
        with client_of(server, engine, name, **options) as client:
            return ask(client, stream)

    async def main() -> str:
        async with async_client_of(server, engine, name, **options) as client:
            return await aask(client, stream)

    return asyncio.run(main())


KINDS = pytest.mark.parametrize(
    "kind", ["sync", "async", "sync stream", "async stream"])
STREAMS = pytest.mark.parametrize("kind", ["sync stream", "async stream"])


def idle(engine: fivegates.Engine) -> bool:
    return all(engine.route(name)["in_flight"] == 0
               for name in ("main", "backup"))
