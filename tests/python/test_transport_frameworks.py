"""The policy transport under frameworks that send for others: google-genai,
langchain-openai, llama-index and pydantic-ai, each the real library against a
real loopback server.

What is not installed in an environment is skipped there.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import typing

import pytest
from support.cards import engine_of
from support.wire_server import (
    CHAT_WHOLE,
    Answer,
    Wire,
    WireServer,
    chat_event,
    error,
    reset,
    whole,
)

import fivegates
from fivegates import transport

Json = typing.Dict[str, typing.Any]
Client = typing.Any


# ---- the provider, with one more API


def _part(text: str, finish: "str | None" = None) -> Json:
    one: Json = {"index": 0, "content": {"role": "model",
                                         "parts": [{"text": text}]}}
    if finish:
        one["finishReason"] = finish
    return {"candidates": [one], "modelVersion": "m1", "usageMetadata": {
        "promptTokenCount": 9, "candidatesTokenCount": 3,
        "totalTokenCount": 12}}


def _events(*parts: Json) -> "list[bytes]":
    return [b"data: " + json.dumps(one).encode() + b"\r\n\r\n"
            for one in parts]


def good(wire: Wire, body: Json) -> None:
    """A whole answer in any of the APIs: generateContent too."""
    if ":generateContent" in wire.path:
        wire.json(200, _part("hello", "STOP"))
    elif ":streamGenerateContent" in wire.path:
        wire.sse()
        for raw in _events(_part("hel"), _part("lo", "STOP")):
            wire.chunk(raw)
        wire.end()
    else:
        whole(wire, body)


def cut(wire: Wire, body: Json) -> None:
    """A stream whose connection breaks after its first text."""
    wire.sse()
    wire.chunk(_events(_part("hel"))[0]
               if ":stream" in wire.path else chat_event("hel"))
    wire.reset()


def server_of(**answers: Answer) -> WireServer:
    return WireServer(**{"ok": good, **answers})


# ---- the frameworks


class Genai:
    """google-genai: HttpOptions(httpx_client=, httpx_async_client=)."""

    module = "google.genai"
    http = "httpx2"
    kinds = ("sync", "async", "sync stream", "async stream")
    version = ""  # of the API, at the end of a base URL: the SDK adds it
    options: Json = {}  # more arguments

    def errors(self) -> "dict[int, type[Exception]]":
        found = importlib.import_module("google.genai.errors")
        return {401: found.ClientError, 429: found.ClientError,
                503: found.ServerError, 0: self.http_of().TransportError}

    def http_of(self) -> typing.Any:
        return importlib.import_module(self.http)

    def made(self, url: str, blocking: Client, asynchronous: Client,
             ) -> typing.Any:
        genai = importlib.import_module("google.genai")
        return genai.Client(api_key="key-a", http_options=genai.types.HttpOptions(
            base_url=url, httpx_client=blocking,
            httpx_async_client=asynchronous, **self.options))

    def ask(self, client: typing.Any, stream: bool) -> str:
        asked = {"model": "m1", "contents": "hi"}
        if not stream:
            return str(client.models.generate_content(**asked).text)
        return "".join(one.text for one
                       in client.models.generate_content_stream(**asked))

    async def aask(self, client: typing.Any, stream: bool) -> str:
        asked = {"model": "m1", "contents": "hi"}
        models = client.aio.models
        if not stream:
            return str((await models.generate_content(**asked)).text)
        return "".join([one.text async for one in
                        await models.generate_content_stream(**asked)])


class GenaiArguments(Genai):
    """google-genai again: client_args and async_client_args with a transport,
    for an SDK that makes its own clients."""

    def made(self, url: str, blocking: Client, asynchronous: Client,
             ) -> typing.Any:
        genai = importlib.import_module("google.genai")
        return genai.Client(api_key="key-a", http_options=genai.types.HttpOptions(
            base_url=url, client_args={"transport": blocking._transport},
            async_client_args={"transport": asynchronous._transport},
            **self.options))


class GenaiHttpx(Genai):
    """google-genai on the older HTTP package."""

    http = "httpx"


class OpenAIBased:
    """What is built on the openai package: its errors, its HTTP package."""

    kinds: "tuple[str, ...]" = ("sync", "async", "sync stream", "async stream")
    version = "/v1"
    options: Json = {}

    def http_of(self) -> typing.Any:
        openai = importlib.import_module("openai")
        return importlib.import_module(
            "httpx2" if int(openai.__version__.split(".")[0]) >= 3 else "httpx")

    def errors(self) -> "dict[int, type[Exception]]":
        openai = importlib.import_module("openai")
        return {401: openai.AuthenticationError, 429: openai.RateLimitError,
                503: openai.InternalServerError, 0: openai.APIConnectionError}


class LangChain(OpenAIBased):
    """ChatOpenAI(http_client=, http_async_client=)."""

    module = "langchain_openai"

    def made(self, url: str, blocking: Client, asynchronous: Client,
             ) -> typing.Any:
        return importlib.import_module(self.module).ChatOpenAI(
            model="m1", base_url=url, api_key="key-a", http_client=blocking,
            http_async_client=asynchronous)  # its max_retries is two

    def ask(self, chat: typing.Any, stream: bool) -> str:
        if not stream:
            return str(chat.invoke("hi").content)
        return "".join(one.content for one in chat.stream("hi"))

    async def aask(self, chat: typing.Any, stream: bool) -> str:
        if not stream:
            return str((await chat.ainvoke("hi")).content)
        return "".join([one.content async for one in chat.astream("hi")])


class LlamaIndex(OpenAIBased):
    """OpenAI(http_client=, async_http_client=, max_retries=0)."""

    module = "llama_index.llms.openai"
    options: Json = {"max_retries": 0}

    def made(self, url: str, blocking: Client, asynchronous: Client,
             ) -> typing.Any:
        # The context size is looked up by the model's name.
        return importlib.import_module(self.module).OpenAI(
            model="gpt-4o", api_base=url, api_key="key-a",
            http_client=blocking, async_http_client=asynchronous,
            **self.options)

    @staticmethod
    def _asked() -> typing.Any:
        found = importlib.import_module("llama_index.core.llms")
        return [found.ChatMessage(role="user", content="hi")]

    def ask(self, chat: typing.Any, stream: bool) -> str:
        if not stream:
            return str(chat.chat(self._asked()).message.content)
        return "".join(one.delta for one in chat.stream_chat(self._asked()))

    async def aask(self, chat: typing.Any, stream: bool) -> str:
        if not stream:
            return str((await chat.achat(self._asked())).message.content)
        return "".join([one.delta async for one
                        in await chat.astream_chat(self._asked())])


class PydanticAI(OpenAIBased):
    """OpenAIProvider(http_client=), which is an async client."""

    module = "pydantic_ai"
    kinds = ("async", "async stream")

    def errors(self) -> "dict[int, type[Exception]]":
        found = importlib.import_module("pydantic_ai.exceptions")
        return {401: found.ModelHTTPError, 429: found.ModelHTTPError,
                503: found.ModelHTTPError, 0: found.ModelAPIError}

    def made(self, url: str, blocking: Client, asynchronous: Client,
             ) -> typing.Any:
        models = importlib.import_module("pydantic_ai.models.openai")
        providers = importlib.import_module("pydantic_ai.providers.openai")
        return importlib.import_module(self.module).Agent(
            models.OpenAIChatModel("m1", provider=providers.OpenAIProvider(
                base_url=url, api_key="key-a", http_client=asynchronous)),
            **self.options)

    def ask(self, agent: typing.Any, stream: bool) -> str:
        raise NotImplementedError

    async def aask(self, agent: typing.Any, stream: bool) -> str:
        if not stream:
            return str((await agent.run("hi")).output)
        async with agent.run_stream("hi") as answer:
            return "".join([one async for one in
                            answer.stream_text(delta=True, debounce_by=None)])


Framework = typing.Union[Genai, LangChain, LlamaIndex, PydanticAI]
ALL: "tuple[typing.Callable[[], Framework], ...]" = (
    Genai, GenaiArguments, GenaiHttpx, LangChain, LlamaIndex, PydanticAI)
NAMED = {one().__class__.__name__: one for one in ALL}
PAIRS = [(name, kind) for name, one in NAMED.items() for kind in one().kinds]
EACH = pytest.mark.parametrize("name, kind", PAIRS)
STREAMS = pytest.mark.parametrize(
    "name, kind", [pair for pair in PAIRS if pair[1].endswith("stream")])


class Asked:
    """One framework whose requests go through a guarded client."""

    def __init__(self, name: str, server: WireServer, main: str,
                 backup: str = "ok", **workflow: typing.Any) -> None:
        framework = NAMED[name]()
        pytest.importorskip(framework.module)
        self.framework: typing.Any = framework
        self.url = f"{server.url}/{main}{framework.version}"
        self.engine = engine_of(
            self.url, f"{server.url}/{backup}{framework.version}", **workflow)

    def __call__(self, kind: str) -> str:
        """The text of an answer, by "sync", "async stream", ..."""
        http = self.framework.http_of()
        stream = kind.endswith("stream")
        options: Json = {"keys": {"backup": "key-b"},
                         "any_model": isinstance(self.framework, LlamaIndex)}
        with transport.client(http, self.engine, "w",
                              inner=http.HTTPTransport(verify=False),
                              **options) as blocking:
            async def main() -> str:
                async with transport.async_client(
                        http, self.engine, "w",
                        inner=http.AsyncHTTPTransport(verify=False),
                        **options) as asynchronous:
                    made = self.framework.made(self.url, blocking, asynchronous)
                    if kind.startswith("sync"):
                        return str(self.framework.ask(made, stream))
                    return str(await self.framework.aask(made, stream))

            return asyncio.run(main())

    def idle(self) -> bool:
        return all(self.engine.route(name)["in_flight"] == 0
                   for name in ("main", "backup"))


def refusal_in(error: "BaseException | None") -> "fivegates.Refused":
    """The refusal itself, or what a framework has wrapped."""
    while error is not None and not isinstance(error, fivegates.Refused):
        error = error.__cause__
    assert error is not None
    return error


# ---- what all of them must do


@EACH
def test_answer_arrives_and_the_engine_knows(name: str, kind: str) -> None:
    with server_of() as server:
        asked = Asked(name, server, "ok")
        with transport.guarded() as seen:
            assert asked(kind) == "hello"
        [(_, headers, _, _)] = server.seen
        key = headers.get("x-goog-api-key") or headers["authorization"]
        assert key.removeprefix("Bearer ") == "key-a"
        assert headers["x-request-attempt"] == "1"
        assert [one.action for one in seen.decisions][-1] == "accept"
        assert asked.engine.workflow("w")["primary_success"] == 1
        assert asked.idle()


@EACH
def test_stand_in_answers_with_its_own_key_and_model(name: str,
                                                     kind: str) -> None:
    with server_of(reset=reset) as server:
        asked = Asked(name, server, "reset")
        assert asked(kind) == "hello"
        assert server.names() == ["reset", "ok"]
        _, headers, body, path = server.seen[1]
        key = headers.get("x-goog-api-key") or headers["authorization"]
        assert key.removeprefix("Bearer ") == "key-b"
        assert body.get("model") == "m2" or "/models/m2:" in path
        assert asked.engine.workflow("w")["fallback_recovery"] == 1
        assert asked.idle()


@pytest.mark.parametrize("status, code", [
    (401, "invalid_api_key"), (429, "insufficient_quota"),
    (503, "server_error")])
@EACH
def test_refusal_is_the_frameworks_own_error(
        name: str, kind: str, status: int, code: str) -> None:
    with server_of(bad=error(status, code)) as server:
        asked = Asked(name, server, "bad", "bad")
        with transport.guarded() as seen:
            with pytest.raises(asked.framework.errors()[status]) as caught:
                asked(kind)
        refused = refusal_in(caught.value)
        assert refused.decision.action == "fail_closed"
        assert seen.decision is not None
        assert seen.decision.reason == refused.decision.reason
        # No request but those the engine permitted: nobody else sent any.
        assert len(server.seen) == seen.attempts <= 4
        assert asked.engine.workflow("w")["calls"] == 1
        assert asked.idle()


@EACH
def test_connection_refused_is_the_frameworks_own_error(
        name: str, kind: str, closed_port: int) -> None:
    with server_of() as server:
        asked = Asked(name, server, "ok")
        version = asked.framework.version
        asked.url = f"http://127.0.0.1:{closed_port}{version}"
        asked.engine = engine_of(asked.url, asked.url)
        with transport.guarded() as seen:
            with pytest.raises(asked.framework.errors()[0]) as caught:
                asked(kind)
        assert refusal_in(caught.value).decision.action == "fail_closed"
        assert seen.attempts > 1  # sent by nobody, so the engine tried again
        assert asked.engine.workflow("w")["calls"] == 1 and not server.seen


@STREAMS
def test_cut_after_text_is_an_error_and_not_sent_again(name: str,
                                                       kind: str) -> None:
    with server_of(cut=cut) as server:
        asked = Asked(name, server, "cut")
        with transport.guarded() as seen:
            with pytest.raises(asked.framework.errors()[0]) as caught:
                asked(kind)
        assert refusal_in(caught.value).decision.reason == "partial_output"
        assert seen.decision is not None
        assert seen.decision.reason == "partial_output"
        assert server.names() == ["cut"] and asked.idle()


@EACH
def test_ladders_text_is_an_answer(name: str, kind: str) -> None:
    with server_of(bad=error(503, "server_error")) as server:
        asked = Asked(name, server, "bad", "bad", ladder=[
            {"step": "preset", "text": {"en": "Later, please."}}])
        assert asked(kind) == "Later, please."
        assert asked.engine.workflow("w")["degraded"] == 1 and asked.idle()


# ---- what one of them needs


@pytest.mark.parametrize("name", ["LlamaIndex", "Genai"])
def test_loops_of_their_own_begin_new_calls(name: str) -> None:
    """llama-index's max_retries is a loop above the SDK, and so are the
    retry_options of google-genai: a refusal is a failure to them, and each of
    their tries a new call with a budget of its own. So the docs say to set
    the one to 0 and to leave the other unset."""
    with server_of(bad=error(503, "server_error")) as server:
        asked = Asked(name, server, "bad", "bad",
                      budget={"total_attempts": 1})
        asked.framework.options = {
            "LlamaIndex": {"max_retries": 2},
            "Genai": {"retry_options": {"attempts": 2, "initial_delay": 0.01,
                                        "max_delay": 0.01, "jitter": 0.01}},
        }[name]
        with pytest.raises(asked.framework.errors()[503]):
            asked("sync")
        assert asked.engine.workflow("w")["calls"] == 2


def test_steps_of_an_agent_are_calls_of_their_own() -> None:
    """pydantic-ai asks the model once more after each tool."""
    def agent(wire: Wire, body: Json) -> None:
        if any(one["role"] == "tool" for one in body["messages"]):
            whole(wire, body)
            return
        wire.json(200, {**CHAT_WHOLE, "choices": [{
            "index": 0, "finish_reason": "tool_calls", "message": {
                "role": "assistant", "content": None, "tool_calls": [{
                    "id": "t1", "type": "function", "function": {
                        "name": "today", "arguments": "{}"}}]}}]})

    def today() -> str:
        used.append("today")
        return "Monday"

    used: "list[str]" = []
    with server_of(agent=agent) as server:
        asked = Asked("PydanticAI", server, "agent")
        asked.framework.options = {"tools": [today]}
        assert asked("async") == "hello" and used == ["today"]
        assert asked.engine.workflow("w")["primary_success"] == 2
