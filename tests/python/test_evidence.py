"""Exceptions of real clients, met on a loopback provider, as evidence."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
import types
import typing

import pytest

import fivegates
from fivegates.answers import answer_of, choices_of, finish_word, progress_of
from fivegates.evidence import evidence_of

from .conftest import Provider

httpx = pytest.importorskip("httpx")
requests = pytest.importorskip("requests")
openai = pytest.importorskip("openai")
anthropic = pytest.importorskip("anthropic")
try:
    import httpx2
except ImportError:  # pragma: no cover
    httpx2 = None

HTTP = [module for module in (httpx, httpx2) if module is not None]


def caught(call: "typing.Callable[[], object]") -> "dict[str, typing.Any]":
    try:
        call()
    except Exception as exc:
        found = evidence_of(exc)
        assert found is not None, repr(exc)
        fivegates.classify(found)  # every key is one the engine knows
        return found
    pytest.fail("nothing was raised")


@pytest.fixture(params=HTTP, ids=lambda module: module.__name__)
def http(request: pytest.FixtureRequest) -> "typing.Any":
    return request.param


class TestHttpx:
    def test_refused(self, http: typing.Any, closed_port: int) -> None:
        found = caught(lambda: http.post(f"http://127.0.0.1:{closed_port}/"))
        assert found["phase"] == "connect"
        assert found["transport"]["lib"] == "httpx"
        assert found["transport"]["kind"] == "ConnectError"
        failure = fivegates.classify(found)
        assert failure.never_sent and failure.billed == "no"

    def test_no_such_host(self, http: typing.Any) -> None:
        found = caught(lambda: http.post("http://no-such-host.invalid/"))
        assert found["phase"] == "connect"
        assert fivegates.classify(found).never_sent

    def test_reset(self, http: typing.Any, provider: Provider) -> None:
        found = caught(lambda: http.post(provider.url + "/reset/x", json={}))
        assert found["phase"] == "read"
        failure = fivegates.classify(found)
        assert (failure.owner, failure.billed) == ("transient", "maybe")

    def test_read_timeout(self, http: typing.Any, provider: Provider) -> None:
        found = caught(lambda: http.post(provider.url + "/slow/x", json={},
                                         timeout=0.1))
        assert found["phase"] == "read"
        assert fivegates.classify(found).kind == "read_timeout"

    def test_short_body(self, http: typing.Any, provider: Provider) -> None:
        found = caught(lambda: http.post(provider.url + "/short/x", json={}))
        assert found["phase"] == "body"
        assert fivegates.classify(found).owner == "transient"

    def test_status(self, http: typing.Any, provider: Provider) -> None:
        found = caught(lambda: http.post(provider.url + "/429/x", json={})
                       .raise_for_status())
        assert (found["phase"], found["status"]) == ("response", 429)
        assert fivegates.classify(found).retry_after_ms == 1000

    def test_unread_stream(self, http: typing.Any, provider: Provider) -> None:
        def call() -> None:
            with http.stream("POST", provider.url + "/503/x", json={}) as r:
                r.raise_for_status()

        found = caught(call)
        assert (found["status"], found["body"]) == (503, "")

    def test_pool_is_ours(self, http: typing.Any, provider: Provider) -> None:
        limits = http.Limits(max_connections=1)
        timeout = http.Timeout(2.0, pool=0.05)
        with http.Client(limits=limits, timeout=timeout) as client:
            with client.stream("POST", provider.url + "/ok/x",
                               json={"stream": True}):
                found = caught(lambda: client.post(provider.url + "/ok/x"))
        assert found["origin"] == "local"
        assert fivegates.classify(found).never_sent

    def test_bad_url(self, http: typing.Any) -> None:
        found = caught(lambda: http.post("nonsense"))
        assert fivegates.classify(found).owner == "request"

    def test_tls(self, http: typing.Any, provider: Provider) -> None:
        found = caught(lambda: http.post(
            provider.url.replace("http:", "https:") + "/ok/x"))
        assert found["phase"] == "tls"

    def test_async(self, http: typing.Any, closed_port: int) -> None:
        async def call() -> None:
            async with http.AsyncClient() as client:
                await client.post(f"http://127.0.0.1:{closed_port}/")

        assert caught(lambda: asyncio.run(call()))["phase"] == "connect"

    def test_aiohttp_beneath(self, http: typing.Any) -> None:
        """The class of httpx lies when aiohttp sends: its own one decides."""
        beneath = type("ServerDisconnectedError", (Exception,),
                       {"__module__": "aiohttp.client_exceptions"})
        error = http.ConnectTimeout("")
        error.__cause__ = beneath("Server disconnected")
        found = evidence_of(error)
        assert found is not None and found["phase"] == "read"
        error.__cause__ = type("ClientOSError", (OSError,), {
            "__module__": "aiohttp.client_exceptions"})("reset")
        found = evidence_of(error)
        assert found is not None and found["phase"] == "read"
        assert not fivegates.classify(found).never_sent


class TestRequests:
    def test_refused(self, closed_port: int) -> None:
        found = caught(lambda: requests.post(f"http://127.0.0.1:{closed_port}"))
        assert found["phase"] == "connect"
        assert fivegates.classify(found).never_sent

    def test_reset(self, provider: Provider) -> None:
        found = caught(lambda: requests.post(provider.url + "/reset/x", json={}))
        assert found["phase"] == "read"
        assert not fivegates.classify(found).never_sent

    def test_timeout(self, provider: Provider) -> None:
        found = caught(lambda: requests.post(provider.url + "/slow/x", json={},
                                             timeout=0.1))
        assert found["phase"] == "read"

    def test_short_body(self, provider: Provider) -> None:
        found = caught(lambda: requests.post(provider.url + "/short/x", json={}))
        assert found["phase"] == "body"

    def test_status(self, provider: Provider) -> None:
        found = caught(lambda: requests.post(provider.url + "/401/x", json={})
                       .raise_for_status())
        assert found["status"] == 401
        assert fivegates.classify(found).owner == "auth"

    def test_tls(self, provider: Provider) -> None:
        found = caught(lambda: requests.post(
            provider.url.replace("http:", "https:")))
        assert found["phase"] == "tls"

    def test_bad_url(self) -> None:
        found = caught(lambda: requests.post("nonsense"))
        assert found["phase"] == "connect"


def openai_client(url: str, **options: typing.Any) -> typing.Any:
    return openai.OpenAI(base_url=url + "/v1", api_key="k", max_retries=0,
                         **options)


def anthropic_client(url: str, **options: typing.Any) -> typing.Any:
    return anthropic.Anthropic(base_url=url, api_key="k", max_retries=0,
                               **options)


def ask_openai(client: typing.Any, **more: typing.Any) -> typing.Any:
    return client.chat.completions.create(
        model="m", messages=[{"role": "user", "content": "x"}], **more)


def ask_anthropic(client: typing.Any, **more: typing.Any) -> typing.Any:
    return client.messages.create(
        model="m", max_tokens=5, messages=[{"role": "user", "content": "x"}],
        **more)


SDKS = [(openai_client, ask_openai), (anthropic_client, ask_anthropic)]


@pytest.mark.parametrize("make, ask", SDKS, ids=["openai", "anthropic"])
class TestSdks:
    @pytest.mark.parametrize("status, owner", [
        (429, "rate"), (503, "transient"), (401, "auth"), (400, "request"),
        (529, "transient")])
    def test_status(self, provider: Provider, make: typing.Any, ask: typing.Any,
                    status: int, owner: str) -> None:
        client = make(f"{provider.url}/{status}")
        found = caught(lambda: ask(client))
        assert (found["phase"], found["status"]) == ("response", status)
        assert f"fault {status}" in found["body"]
        failure = fivegates.classify(found)
        assert failure.owner == owner
        assert failure.retry_after_ms == (1000 if status == 429 else None)

    def test_inner_attempts(self, provider: Provider, make: typing.Any,
                            ask: typing.Any,
                            monkeypatch: pytest.MonkeyPatch) -> None:
        client = make(provider.url + "/503").with_options(max_retries=2)
        monkeypatch.setattr(type(client), "_calculate_retry_timeout",
                            lambda *args, **more: 0.0)
        found = caught(lambda: ask(client))
        assert len(provider.seen) == 3
        assert found["inner_attempts"] == 3

    def test_refused(self, closed_port: int, make: typing.Any,
                     ask: typing.Any) -> None:
        client = make(f"http://127.0.0.1:{closed_port}")
        found = caught(lambda: ask(client))
        assert found["phase"] == "connect"
        assert fivegates.classify(found).never_sent

    def test_timeout(self, provider: Provider, make: typing.Any,
                     ask: typing.Any) -> None:
        client = make(provider.url + "/slow", timeout=0.1)
        found = caught(lambda: ask(client))
        assert found["phase"] == "read"
        assert fivegates.classify(found).kind == "read_timeout"

    def test_reset(self, provider: Provider, make: typing.Any,
                   ask: typing.Any) -> None:
        client = make(provider.url + "/reset")
        found = caught(lambda: ask(client))
        assert found["phase"] == "read"

    def test_cut(self, provider: Provider, make: typing.Any,
                 ask: typing.Any) -> None:
        client = make(provider.url + "/cut")
        found = caught(lambda: list(ask(client, stream=True)))
        assert found["phase"] in ("stream", "body", "read")
        assert fivegates.classify(found).owner == "transient"

    def test_error_event(self, provider: Provider, make: typing.Any,
                         ask: typing.Any) -> None:
        client = make(provider.url + "/event")
        found = caught(lambda: list(ask(client, stream=True)))
        assert found["phase"] == "stream"
        assert found["status"] == 200
        assert fivegates.classify(found).owner == "transient"


def test_openai_async(provider: Provider) -> None:
    async def call() -> None:
        async with openai.AsyncOpenAI(base_url=provider.url + "/503/v1",
                                      api_key="k", max_retries=0) as client:
            await ask_openai(client)

    assert caught(lambda: asyncio.run(call()))["status"] == 503


@pytest.mark.parametrize("error, phase", [
    (ConnectionRefusedError(111, "refused"), "connect"),
    (socket.gaierror(-2, "Name or service not known"), "connect"),
    (ConnectionResetError(104, "reset"), "read"),
    (BrokenPipeError(32, "pipe"), "read"),
    (TimeoutError(), "read"),
    (socket.timeout("timed out"), "read"),
    (asyncio.TimeoutError(), "read"),
    (ssl.SSLCertVerificationError("certificate verify failed"), "tls"),
])
def test_builtin(error: BaseException, phase: str) -> None:
    found = evidence_of(error)
    assert found is not None and found["phase"] == phase
    fivegates.classify(found)


def named(package: str, name: str, *bases: type,
          **attributes: object) -> "type[Exception]":
    return type(name, bases or (Exception,),
                {"__module__": package, **attributes})


@pytest.mark.parametrize("name, phase", [
    ("ClientConnectorError", "connect"), ("ServerDisconnectedError", "read"),
    ("ClientPayloadError", "body"), ("ClientOSError", "read"),
    ("ClientConnectorDNSError", "connect"), ("SocketTimeoutError", "read")])
def test_aiohttp(name: str, phase: str) -> None:
    found = evidence_of(named("aiohttp.client_exceptions", name)("x"))
    assert found is not None and found["phase"] == phase
    assert found["transport"]["lib"] == "aiohttp"


def test_aiohttp_status() -> None:
    error = named("aiohttp.client_exceptions", "ClientResponseError",
                  status=503, headers={"Retry-After": "2"})("x")
    found = evidence_of(error)
    assert found is not None
    assert (found["status"], found["headers"]) == (503, [("Retry-After", "2")])


def test_urllib3() -> None:
    urllib3 = pytest.importorskip("urllib3")
    error = urllib3.exceptions.MaxRetryError(
        types.SimpleNamespace(), "/", urllib3.exceptions.ConnectTimeoutError())
    found = evidence_of(error)
    assert found is not None and found["phase"] == "connect"
    error = urllib3.exceptions.ProtocolError("x", ConnectionResetError())
    found = evidence_of(error)
    assert found is not None and found["phase"] == "read"


def test_bugs_are_no_evidence() -> None:
    for error in (ValueError("x"), KeyError("x"), TypeError(), RuntimeError(),
                  AssertionError(), ZeroDivisionError(), FileNotFoundError()):
        if isinstance(error, OSError):
            continue
        assert evidence_of(error) is None


def test_wrapped_and_carried() -> None:
    outer = RuntimeError("wrapped")
    outer.__cause__ = httpx.ReadTimeout("x")
    found = evidence_of(outer, provider="openai", api="chat")
    assert found is not None
    assert (found["phase"], found["provider"], found["api"]) == (
        "read", "openai", "chat")
    loop = RuntimeError("loop")
    loop.__cause__ = httpx.ReadError("x")
    loop.__cause__.__cause__ = loop
    assert evidence_of(loop) is not None
    own = RuntimeError("own")
    own.response = types.SimpleNamespace(  # type: ignore[attr-defined]
        status_code=500, headers={"a": "b"}, content=b"x")
    found = evidence_of(own)
    assert found is not None and found["status"] == 500


def test_answers() -> None:
    chat = {"choices": [{"finish_reason": "tool_calls", "message": {
        "content": None, "tool_calls": [{"id": "1", "function": {
            "name": "f", "arguments": "{}"}}]}}],
        "usage": {"prompt_tokens": 9, "completion_tokens": 3,
                  "prompt_tokens_details": {"cached_tokens": 4}}}
    assert answer_of(chat) == {
        "prompt_tokens": 9, "output_tokens": 3, "cached_tokens": 4,
        "finish_reason": "tool_calls",
        "tool_calls": [{"id": "1", "name": "f", "arguments": "{}"}]}
    messages = {"content": [{"type": "text", "text": "a"},
                            {"type": "tool_use", "id": "t", "name": "g",
                             "input": {"x": 1}}],
                "stop_reason": "tool_use",
                "usage": {"input_tokens": 5, "output_tokens": 2,
                          "cache_read_input_tokens": 3}}
    assert answer_of(messages) == {
        "prompt_tokens": 8, "output_tokens": 2, "cached_tokens": 3,
        "finish_reason": "tool_calls", "output": "a",
        "tool_calls": [{"id": "t", "name": "g", "arguments": '{"x": 1}'}]}
    responses = {"status": "completed", "output": [
        {"type": "message", "content": [{"type": "output_text", "text": "hi"}]}],
        "usage": {"input_tokens": 5, "output_tokens": 2}}
    assert answer_of(responses)["output"] == "hi"
    assert answer_of(responses)["finish_reason"] == "stop"
    empty = {"choices": [{"finish_reason": "stop", "message": {"content": None}}]}
    assert answer_of(empty) == {"finish_reason": "stop", "output": ""}
    assert answer_of({"content": [], "stop_reason": "end_turn"}) == {
        "finish_reason": "stop", "output": ""}
    assert answer_of({"content": [{"type": "server_tool_use"}],
                      "stop_reason": "pause_turn"}) == {"finish_reason": "pause"}
    assert answer_of({"candidates": [{"finishReason": "STOP", "content": {
        "parts": [{"text": "hm", "thought": True}, {"text": "hi"},
                  {"functionCall": {"name": "f", "args": {"a": 1}}}]}}]}) == {
        "finish_reason": "stop", "output": "hi", "tool_calls": [
            {"id": None, "name": "f", "arguments": '{"a": 1}'}]}
    assert answer_of("text") == {"output": "text"}
    for odd in (None, 5, [], {}, {"choices": []}, {"choices": 5},
                {"usage": 5}, {"content": 5}):
        answer_of(odd)
    assert finish_word("brand_new") == "other"
    assert finish_word(None) is None


# What servers put where a number, a text or an object belongs.
ODD = (None, True, -1, 7, 2**32, 2**70, 1.5, 1e308, float("nan"), float("inf"), "", "x",
       "\ud800", "\0", [], [1], {}, {"a": 1}, b"x")


def _with(odd: typing.Any) -> "typing.Iterator[typing.Any]":
    """Answers of each API with something odd in each place that is read."""
    call = {"id": "1", "function": {"name": "f", "arguments": "{}"}}
    for one in (odd, {**call, "id": odd}, *({**call, "function": {**call["function"], key: odd}}
                                            for key in ("name", "arguments"))):
        yield {"choices": [{"message": {"tool_calls": [one]}}]}
    yield {"choices": [{"message": {"content": odd, "refusal": odd}, "finish_reason": odd}]}
    yield {"content": [{"type": "tool_use", "id": odd, "name": odd, "input": odd}],
           "stop_reason": odd}
    yield {"candidates": [{"finishReason": odd, "content": {"parts": [
        {"text": odd}, {"functionCall": {"name": odd, "args": odd}}]}}]}
    yield {"output": [{"type": "function_call", "name": odd, "arguments": odd}]}
    for key in ("prompt_tokens", "completion_tokens", "cost"):
        yield {"choices": [{"message": {"content": "a"}, "finish_reason": "stop"}],
               "usage": {"prompt_tokens": 3, "completion_tokens": 3, key: odd}}
    for key in ("input_tokens", "output_tokens", "cache_read_input_tokens"):
        yield {"content": [{"type": "text", "text": "a"}],
               "usage": {"input_tokens": 3, "output_tokens": 3, key: odd}}


def test_an_answer_of_anything_is_judged() -> None:
    policy = fivegates.Policy.loads(json.dumps({
        "version": 1, "routes": {"a": {"provider": "p", "model": "m"}}, "workflows": {
            "w": {"routes": ["a"], "budget": {"total_attempts": 1}}}}))
    sent = 0
    for odd in ODD:
        for answer in _with(odd):
            def send(attempt: fivegates.Attempt) -> typing.Any:
                nonlocal sent
                sent += 1
                return answer

            with contextlib.suppress(fivegates.Refused):
                fivegates.Engine(policy, seed=1).run("w", send, prompt_tokens=9)
    assert sent == sum(len(list(_with(odd))) for odd in ODD)
    plain = answer_of({"choices": [{"message": {"tool_calls": [
        {"id": 7, "function": {"name": "f", "arguments": {"a": 1}}}]}}]})
    assert plain["tool_calls"] == [{"id": "7", "name": "f", "arguments": '{"a": 1}'}]
    for usage in ({"prompt_tokens": 2**32, "completion_tokens": 5, "cost": 1e308},
                  {"input_tokens": 2**32 - 1, "output_tokens": 5,
                   "cache_read_input_tokens": 1, "cost": True}):
        found = answer_of({"usage": usage})
        assert found["prompt_tokens"] == 0 and "cost_usd" not in found, found


def test_progress_of_several_choices() -> None:
    chunk = {"choices": [
        {"index": 0, "delta": {"content": "a"}, "finish_reason": "stop"},
        {"index": 1, "delta": {"content": "b"}, "finish_reason": None}]}
    assert progress_of(chunk) == {"text": "ab", "finish": "stop"}
    assert choices_of(chunk) == {0: True, 1: False}
    assert choices_of({"choices": [{"delta": {}}]}) == {0: False}
    for odd in ({}, {"choices": None}, {"choices": [5]}, {"type": "ping"},
                {"choices": True}, {"choices": "ab"},
                {"choices": [{"delta": {"tool_calls": True}}]},
                {"choices": [{"delta": {"content": 5, "tool_calls": [
                    {"function": {"name": 5, "arguments": []}}]}}]},
                {"choices": [{"message": {"tool_calls": 5}}]},
                {"candidates": [{"content": {"parts": True}}]}):
        choices_of(odd)
        progress_of(odd)
        answer_of(odd)


def test_progress() -> None:
    def chat(delta: object, reason: object = None) -> object:
        return {"choices": [{"delta": delta, "finish_reason": reason}]}

    assert progress_of(chat({"content": "hi"})) == {"text": "hi"}
    assert progress_of(chat({"role": "assistant"})) == {"lifecycle": 1}
    assert progress_of(chat({}, "stop")) == {"finish": "stop"}
    assert progress_of(chat({"reasoning_content": "mm"})) == {"reasoning": 2}
    assert progress_of(chat({"tool_calls": [{"function": {
        "name": "f", "arguments": "{}"}}]})) == {"tool_args": 3}
    assert progress_of({"type": "ping"}) == {"lifecycle": 1}
    assert progress_of({"type": "content_block_delta", "delta": {
        "type": "text_delta", "text": "x"}}) == {"text": "x"}
    assert progress_of({"type": "content_block_delta", "delta": {
        "type": "thinking_delta", "thinking": "x"}}) == {"reasoning": 1}
    assert progress_of({"type": "content_block_delta", "delta": {
        "type": "input_json_delta", "partial_json": "{}"}}) == {"tool_args": 2}
    assert progress_of({"type": "message_delta", "delta": {
        "stop_reason": "end_turn"}, "usage": {"output_tokens": 3}}) == {
            "finish": "stop", "usage": {"prompt_tokens": 0, "output_tokens": 3,
                                        "cached_tokens": 0}}
    assert progress_of({"type": "response.output_text.delta",
                        "delta": "x"}) == {"text": "x"}
    assert progress_of({"type": "response.completed", "response": {
        "usage": {"input_tokens": 1, "output_tokens": 2}}})["finish"] == "stop"
    for odd in (None, 5, {}, {"choices": [5]}, {"type": 5}):
        progress_of(odd)
