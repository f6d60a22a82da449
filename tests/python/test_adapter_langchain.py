"""The middleware in real agents of langchain, against a loopback server.

tests/peers runs the same tests with langchain-openai's ChatOpenAI, which wants
the last major of openai; here a chat model of a few lines sends with the
newest.
"""

from __future__ import annotations

import asyncio
import http.server
import json
import pickle
import socket
import threading
import typing

import openai
import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, ModelRetryMiddleware
from langchain_core.exceptions import ModelError
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, ToolMessage
from langchain_core.outputs import (
    ChatGeneration,
    ChatGenerationChunk,
    ChatResult,
)
from langchain_core.tools import ToolException, tool
from langchain_core.utils.function_calling import convert_to_openai_tool

import fivegates
from fivegates.adapters.langchain import FivegatesMiddleware
from fivegates.ledger import ListLedger

Json = typing.Dict[str, typing.Any]
Answer = typing.Callable[["Handler"], None]


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers from the server's script, in order; the last answer stays."""

    protocol_version = "HTTP/1.1"
    server: "Server"

    def log_message(self, *args: object) -> None:
        pass

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        self.body: Json = json.loads(self.rfile.read(length) or b"{}")
        with self.server.lock:
            self.server.seen.append((self.path.split("/")[1], self.body))
            answer = self.server.script[0]
            if len(self.server.script) > 1:
                self.server.script.pop(0)
        try:
            answer(self)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def send(self, status: int, value: Json) -> None:
        raw = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.lock = threading.Lock()
        self.seen: "list[tuple[str, Json]]" = []
        self.script: "list[Answer]" = [say()]
        self.go_on = threading.Event()
        self.url = f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request: object, client_address: object) -> None:
        pass

    @property
    def routes(self) -> "list[str]":
        return [name for name, _ in self.seen]


def answer_of(message: Json, finish: str) -> Answer:
    return lambda h: h.send(200, {
        "id": "c1", "object": "chat.completion", "created": 1, "model": "m",
        "choices": [{"index": 0, "finish_reason": finish, "message": {
            "role": "assistant", **message}}],
        "usage": {"prompt_tokens": 9, "completion_tokens": 3,
                  "total_tokens": 12}})


def say(text: str = "hello") -> Answer:
    return answer_of({"content": text}, "stop")


def ask(name: str, ident: str = "call_1", **arguments: object) -> Answer:
    return answer_of({"content": None, "tool_calls": [{
        "id": ident, "type": "function", "function": {
            "name": name, "arguments": json.dumps(arguments)}}]}, "tool_calls")


def error(status: int, code: str = "server_error") -> Answer:
    return lambda h: h.send(status, {"error": {
        "message": "no", "type": code, "code": code}})


def stream(*words: str, cut: bool = False) -> Answer:
    def answer(h: Handler) -> None:
        h.send_response(200)
        h.send_header("Content-Type", "text/event-stream")
        h.send_header("Connection", "close")
        h.send_header("Transfer-Encoding", "chunked")
        h.end_headers()
        head = {"id": "c1", "object": "chat.completion.chunk", "created": 1,
                "model": "m"}
        chunks: "list[Json]" = [{**head, "choices": [{
            "index": 0, "delta": {"role": "assistant", "content": word},
            "finish_reason": None}]} for word in words]
        if not cut:
            chunks.append({**head, "choices": [{
                "index": 0, "delta": {}, "finish_reason": "stop"}]})
        for one in [*map(json.dumps, chunks), *([] if cut else ["[DONE]"])]:
            raw = f"data: {one}\n\n".encode()
            h.wfile.write(b"%x\r\n%s\r\n" % (len(raw), raw))
        h.close_connection = True
        if cut:
            h.wfile.flush()
            h.connection.shutdown(socket.SHUT_RDWR)
        else:
            h.wfile.write(b"0\r\n\r\n")

    return answer


# ---- a chat model


class Chat(BaseChatModel):
    """The least of a chat model over the openai SDK."""

    url: str
    streaming: bool = False

    @property
    def _llm_type(self) -> str:
        return "least"

    def bind_tools(self, tools: typing.Any, **more: typing.Any) -> typing.Any:
        return self.bind(tools=[convert_to_openai_tool(one) for one in tools])

    def _request(self, messages: "list[typing.Any]", more: Json) -> Json:
        roles = {"human": "user", "ai": "assistant", "system": "system",
                 "tool": "tool"}
        asked = {"model": "m", "messages": [
            {"role": roles[one.type], "content": one.text or "-",
             **({"tool_call_id": one.tool_call_id} if one.type == "tool"
                else {})} for one in messages]}
        return {**asked, **({"tools": more["tools"]} if "tools" in more else {})}

    def _result(self, made: typing.Any) -> ChatResult:
        choice = made.choices[0]
        return ChatResult(generations=[ChatGeneration(message=AIMessage(
            content=choice.message.content or "",
            tool_calls=[{"name": one.function.name, "id": one.id,
                         "args": json.loads(one.function.arguments)}
                        for one in choice.message.tool_calls or ()],
            response_metadata={"finish_reason": choice.finish_reason},
            usage_metadata={"input_tokens": made.usage.prompt_tokens,
                            "output_tokens": made.usage.completion_tokens,
                            "total_tokens": made.usage.total_tokens}))])

    def _generate(self, messages: typing.Any, stop: typing.Any = None,
                  run_manager: typing.Any = None,
                  **more: typing.Any) -> ChatResult:
        with openai.OpenAI(base_url=self.url, api_key="k",
                           max_retries=0) as client:
            return self._result(client.chat.completions.create(
                **self._request(messages, more)))

    async def _agenerate(self, messages: typing.Any, stop: typing.Any = None,
                         run_manager: typing.Any = None,
                         **more: typing.Any) -> ChatResult:
        async with openai.AsyncOpenAI(base_url=self.url, api_key="k",
                                      max_retries=0) as client:
            return self._result(await client.chat.completions.create(
                **self._request(messages, more)))

    def _stream(self, messages: typing.Any, stop: typing.Any = None,
                run_manager: typing.Any = None, **more: typing.Any,
                ) -> "typing.Iterator[ChatGenerationChunk]":
        with openai.OpenAI(base_url=self.url, api_key="k",
                           max_retries=0) as client:
            for one in client.chat.completions.create(
                    **self._request(messages, more), stream=True):
                text = one.choices[0].delta.content or ""
                finish = one.choices[0].finish_reason
                chunk = ChatGenerationChunk(message=AIMessageChunk(
                    content=text, response_metadata={
                        "finish_reason": finish} if finish else {}))
                if run_manager:
                    run_manager.on_llm_new_token(text, chunk=chunk)
                yield chunk


def chat(url: str) -> BaseChatModel:
    return Chat(url=url)


# ---- the rig


@pytest.fixture
def server() -> "typing.Iterator[Server]":
    one = Server()
    thread = threading.Thread(target=one.serve_forever,
                              kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield one
    one.go_on.set()
    one.shutdown()
    one.server_close()
    thread.join()


def route(account: str) -> Json:
    return {"provider": "openai", "model": "m", "account": account,
            "price": {"input": 3, "output": 15},
            "provides": {"input": {"context_tokens": 200000,
                                   "system_prompt": True},
                         "tools": {"names": ["pay", "lost", "look_up",
                                             "declined"],
                                   "round_trip": True},
                         "output": {"max_tokens": 8000}}}


CARD: Json = {
    "version": 1,
    "backoff": {"base_ms": 1, "rate_base_ms": 1, "cap_ms": 5},
    "routes": {"main": route("a"), "backup": route("b")},
    "workflows": {
        "alone": {"routes": ["main"]},
        "w": {"routes": ["main", "backup"],
              "budget": {"per_class": {"server": 0}}},
        "kind": {"routes": ["main"], "budget": {"per_class": {"server": 0}},
                 "ladder": [{"step": "preset", "text": {"en": "Later."}}]}},
    "contracts": [{
        "workflow": "w", "route": "backup", "fingerprint": "auto",
        "approved_by": "test@example.com",
        "evidence": {"fixtures": "sha256:" + "0" * 64, "cases": 10,
                     "passed": 10, "score_ppm": 990000,
                     "primary_score_ppm": 990000,
                     "measured_at": "2020-01-01T00:00:00Z",
                     "expires_at": "2999-01-01T00:00:00Z"}}]}

PAID: "list[int]" = []


@tool
def pay(amount: int) -> str:
    """Pays."""
    PAID.append(amount)
    return "paid"


@tool
def lost(amount: int) -> str:
    """Pays, and the acknowledgement is lost."""
    PAID.append(amount)
    raise TimeoutError("no acknowledgement")


@tool
def look_up(word: str) -> str:
    """Looks up, and fails."""
    raise ToolException("not today")


@tool
def declined(amount: int) -> str:
    """Does not pay."""
    raise ToolException("declined")


look_up.handle_tool_error = True
declined.handle_tool_error = True


class Soft(AgentMiddleware[typing.Any, typing.Any, typing.Any]):
    """Turns what a tool raises into an error message."""

    def wrap_tool_call(self, request: typing.Any,
                       handler: typing.Any) -> typing.Any:
        try:
            return handler(request)
        except TimeoutError as exc:
            return ToolMessage(str(exc), tool_call_id=request.tool_call["id"],
                               status="error")

    async def awrap_tool_call(self, request: typing.Any,
                              handler: typing.Any) -> typing.Any:
        try:
            return await handler(request)
        except TimeoutError as exc:
            return ToolMessage(str(exc), tool_call_id=request.tool_call["id"],
                               status="error")


class Rig:
    """An agent with the middleware, and what was decided."""

    def __init__(self, server: Server, workflow: str = "w", card: Json = CARD,
                 outer: "typing.Sequence[typing.Any]" = (),
                 models: "dict[str, typing.Any] | None" = None,
                 **options: typing.Any) -> None:
        PAID.clear()
        policy = fivegates.Policy.loads(card, auto_fingerprint=True)
        self.engine = fivegates.Engine(policy, seed=1)
        self.decisions: "list[fivegates.Decision]" = []
        self.calls: "list[str]" = []
        self.ledger = ListLedger()
        self.middleware = FivegatesMiddleware(
            self.engine, workflow,
            models or {name: chat(f"{server.url}/{name}/v1")
                       for name in ("main", "backup")},
            on_decision=self.heard, ledger=self.ledger, **options)
        self.agent: typing.Any = create_agent(
            chat(server.url + "/unused/v1"), [pay, lost, look_up, declined],
            middleware=[*outer, self.middleware])

    def heard(self, decision: "fivegates.Decision",
              call: "fivegates.Call") -> None:
        self.decisions.append(decision)
        self.calls.append(call.id)

    @property
    def actions(self) -> "list[str]":
        return [decision.action for decision in self.decisions]

    def ask(self, use_async: bool = False, text: str = "hi") -> str:
        asked = {"messages": [{"role": "user", "content": text}]}
        made = (asyncio.run(self.agent.ainvoke(asked)) if use_async
                else self.agent.invoke(asked))
        return str(made["messages"][-1].text)


both = pytest.mark.parametrize("use_async", [False, True],
                               ids=["sync", "async"])


# ---- models


@both
def test_an_answer(server: Server, use_async: bool) -> None:
    rig = Rig(server)
    assert rig.ask(use_async) == "hello"
    assert server.routes == ["main"]
    assert rig.actions == ["proceed", "proceed", "accept"]
    end = json.loads(rig.ledger.lines[-1])
    assert end["tokens"] == 12


@both
def test_a_stand_in_answers(server: Server, use_async: bool) -> None:
    server.script = [error(503), say()]
    rig = Rig(server)
    assert rig.ask(use_async) == "hello"
    assert server.routes == ["main", "backup"]


@both
def test_a_refusal_is_the_models_own_error(server: Server,
                                           use_async: bool) -> None:
    server.script = [error(401, "invalid_api_key")]
    rig = Rig(server)
    with pytest.raises(openai.AuthenticationError) as caught:
        rig.ask(use_async)
    assert isinstance(caught.value, fivegates.Refused)
    assert isinstance(caught.value, ModelError)
    assert caught.value.decision.reason == "key_rejected"
    assert caught.value.status_code == 401
    assert type(pickle.loads(pickle.dumps(caught.value))) is fivegates.Refused
    assert len(server.seen) == 1


def test_a_layer_outside_does_not_retry(server: Server) -> None:
    server.script = [error(429, "insufficient_quota")]
    rig = Rig(server, outer=[ModelRetryMiddleware(
        max_retries=3, on_failure="error", initial_delay=0.0)])
    with pytest.raises(openai.RateLimitError) as caught:
        rig.ask()
    assert isinstance(caught.value, fivegates.Refused)
    assert server.routes.count("main") == 1


@both
def test_refused_before_anything_is_sent(server: Server,
                                         use_async: bool) -> None:
    rig = Rig(server, facts=lambda request: {
        "prompt_tokens": 10_000_000 * len(request.messages)})
    with pytest.raises(ModelError) as caught:
        rig.ask(use_async)
    assert isinstance(caught.value, fivegates.Refused)
    assert server.seen == []


@both
def test_a_preset_answers(server: Server, use_async: bool) -> None:
    server.script = [error(500)]
    rig = Rig(server, "kind", preset=lambda decision, request: AIMessage(
        f"{decision.text} {request.messages[0].text}"))
    assert rig.ask(use_async) == "Later. hi"
    assert rig.actions[-1] == "degrade"


@both
def test_an_empty_answer_is_no_answer(server: Server, use_async: bool) -> None:
    server.script = [say(""), say("now")]
    rig = Rig(server)
    assert rig.ask(use_async) == "now"
    assert rig.actions[-1] == "accept" and len(server.seen) == 2


@both
def test_tokens_that_were_shown_are_not_repeated(server: Server,
                                                 use_async: bool) -> None:
    server.script = [stream("one ", "two ", cut=True), stream("again")]
    rig = Rig(server, facts={"stream": True})
    asked = {"messages": [{"role": "user", "content": "hi"}]}
    shown = ""

    async def go() -> None:
        nonlocal shown
        async for part, _ in rig.agent.astream(asked, stream_mode="messages"):
            shown += part.text

    with pytest.raises(fivegates.Refused) as caught:
        if use_async:
            asyncio.run(go())
        else:
            for part, _ in rig.agent.stream(asked, stream_mode="messages"):
                shown += part.text
    assert shown == "one two " and len(server.seen) == 1
    assert caught.value.decision.reason == "partial_output"


def test_a_stream_in_full(server: Server) -> None:
    server.script = [stream("one ", "two ")]
    rig = Rig(server, facts={"stream": True})
    asked = {"messages": [{"role": "user", "content": "hi"}]}
    assert "".join(part.text for part, _ in rig.agent.stream(
        asked, stream_mode="messages")) == "one two "
    assert rig.actions == ["proceed", "proceed", "accept"]


@both
def test_a_route_without_a_model(server: Server, use_async: bool) -> None:
    """A stand-in is passed over; a primary is a mistake."""
    server.script = [error(503)]
    rig = Rig(server, models={"main": chat(server.url + "/main/v1")})
    with pytest.raises(openai.InternalServerError) as caught:
        rig.ask(use_async)
    assert isinstance(caught.value, fivegates.Refused)
    assert server.routes == ["main"]
    rig = Rig(server, models={"backup": chat(server.url + "/backup/v1")})
    with pytest.raises(fivegates.ArgumentError, match="for route main"):
        rig.ask(use_async)


def test_arguments_are_checked(server: Server) -> None:
    model = chat(server.url)
    with pytest.raises(fivegates.ArgumentError, match="no workflow 'no' in"):
        Rig(server, "no")
    with pytest.raises(fivegates.ArgumentError, match="models for other, but"):
        Rig(server, models={"other": model})
    with pytest.raises(fivegates.ArgumentError, match="list of tool names"):
        Rig(server, idempotent="pay")


def test_a_bug_goes_through_unchanged(server: Server) -> None:
    class Broken(AgentMiddleware[typing.Any, typing.Any, typing.Any]):
        def wrap_model_call(self, request: typing.Any,
                            handler: typing.Any) -> typing.Any:
            raise LookupError("mine")

    rig = Rig(server)
    agent: typing.Any = create_agent(
        chat(server.url), [], middleware=[rig.middleware, Broken()])
    with pytest.raises(LookupError, match="mine"):
        agent.invoke({"messages": [{"role": "user", "content": "hi"}]})
    assert json.loads(rig.ledger.lines[-1])["reason"] == "client_gone"
    assert server.seen == []


def test_cancelled_while_it_waits(server: Server) -> None:
    server.script = [lambda h: [h.server.go_on.wait(5), say()(h)][1]]
    rig = Rig(server)

    async def go() -> None:
        task = asyncio.ensure_future(rig.agent.ainvoke(
            {"messages": [{"role": "user", "content": "hi"}]}))
        while not server.seen:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(go())
    assert json.loads(rig.ledger.lines[-1])["reason"] == "client_gone"
    assert rig.engine.route("main")["in_flight"] == 0


# ---- tools


@both
def test_a_step_after_a_committed_tool_is_sent_again(
        server: Server, use_async: bool) -> None:
    """What was paid is held; the failed step alone is repeated."""
    server.script = [ask("pay", amount=5), error(503), say("done")]
    rig = Rig(server)
    assert rig.ask(use_async) == "done"
    assert PAID == [5] and server.routes == ["main", "main", "backup"]
    assert len(set(rig.calls)) == 1  # one call, two steps
    resent = [d for d in rig.decisions if d.action == "fallback"]
    assert [d.resume_from for d in resent] == ["step"]
    assert rig.middleware._calls == {}


@both
def test_after_a_tool_of_unknown_effect_nothing_is_repeated(
        server: Server, use_async: bool) -> None:
    server.script = [ask("lost", amount=5), error(503), say("done")]
    rig = Rig(server, outer=[Soft()])
    with pytest.raises(openai.InternalServerError) as caught:
        rig.ask(use_async)
    refused = typing.cast(fivegates.Refused, caught.value)
    assert refused.decision.reason == "reconcile_first"
    assert PAID == [5] and server.routes == ["main", "main"]
    assert refused.call is not None
    assert refused.call.resolved("call_1", "none").action == "fallback"


@both
def test_a_tools_exception_is_the_callers(server: Server,
                                          use_async: bool) -> None:
    server.script = [ask("lost", amount=5), say()]
    rig = Rig(server)
    with pytest.raises(TimeoutError, match="no acknowledgement"):
        rig.ask(use_async)
    assert len(server.seen) == 1 and PAID == [5]


@both
@pytest.mark.parametrize("asked, options", [
    (ask("pay", amount="many"), {}),
    (ask("look_up", word="x"), {"idempotent": ["look_up"]}),
    (ask("declined", amount=5),
     {"tool_failed": lambda message: message.content == "declined"})],
    ids=["invalid arguments", "idempotent", "declared"])
def test_a_tool_that_did_nothing(server: Server, use_async: bool,
                                 asked: Answer, options: Json) -> None:
    server.script = [asked, error(503), say("done")]
    rig = Rig(server, **options)
    assert rig.ask(use_async) == "done"
    assert PAID == [] and server.routes[-1] == "backup"


@both
def test_an_error_message_proves_nothing(server: Server,
                                         use_async: bool) -> None:
    server.script = [ask("declined", amount=5), error(503), say("done")]
    rig = Rig(server)
    with pytest.raises(openai.InternalServerError) as caught:
        rig.ask(use_async)
    assert caught.value.decision.reason == "reconcile_first"  # type: ignore[attr-defined]


@both
def test_many_tools_of_a_step(server: Server, use_async: bool) -> None:
    calls = [{"id": f"call_{i}", "type": "function", "function": {
        "name": "pay", "arguments": json.dumps({"amount": i})}}
        for i in range(8)]
    server.script = [answer_of({"content": None, "tool_calls": calls},
                               "tool_calls"), error(503), say("done")]
    rig = Rig(server)
    assert rig.ask(use_async) == "done"
    assert sorted(PAID) == list(range(8))


def test_the_next_turn_is_a_call_of_its_own(server: Server) -> None:
    server.script = [ask("pay", amount=5), say("done"), say("more")]
    rig = Rig(server)
    assert [rig.ask(), rig.ask()] == ["done", "more"]
    assert len(set(rig.calls)) == 2


# ---- many at once


@both
def test_fifty_at_once_keep_apart(server: Server, use_async: bool) -> None:
    """Every run has a tool of the same id, and every other a failed step."""

    def answer(h: Handler) -> None:
        number = int(h.body["messages"][0]["content"])
        if h.body["messages"][-1]["role"] == "user":
            ask("pay", amount=number)(h)
        elif number % 2 and h.path.startswith("/main/"):
            error(503)(h)
        else:
            say(f"done {number}")(h)

    server.script = [answer]
    card = {**CARD, "retry_bucket": {"cap": 1000, "start": 1000},
            "breaker": {"consecutive": 1000, "min_calls": 1000}}
    rig = Rig(server, card=card)

    async def go() -> "list[str]":
        async def one(i: int) -> str:
            made = await rig.agent.ainvoke(
                {"messages": [{"role": "user", "content": str(i)}]})
            return str(made["messages"][-1].text)
        return await asyncio.gather(*(one(i) for i in range(50)))

    if use_async:
        done = asyncio.run(go())
    else:
        done = [made["messages"][-1].text for made in rig.agent.batch(
            [{"messages": [{"role": "user", "content": str(i)}]}
             for i in range(50)], config={"max_concurrency": 16})]
    assert done == [f"done {i}" for i in range(50)]
    assert sorted(PAID) == list(range(50))
    assert len(set(rig.calls)) == 50
    assert rig.middleware._calls == {}
