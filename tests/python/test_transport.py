"""The policy transport under the real SDKs, against a real loopback server.

Runs with whichever openai and anthropic are installed: the newest, which send
with httpx2, and the last ones that send with httpx.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import pickle
import threading
import time
import typing
import warnings
import zlib

import anthropic
import openai
import pytest
from support.cards import card_of
from support.cards import engine_of as engine_at
from support.guarded import (  # noqa: F401 - closed_clients is a fixture
    BUDGET,
    HTTP,
    KINDS,
    MESSAGES,
    STREAMS,
    aask,
    anything,
    ask,
    async_client_of,
    client_of,
    closed_clients,
    engine_of,
    idle,
    kept,
)
from support.wire_server import (
    CHAT_END,
    CHAT_WHOLE,
    Wire,
    WireServer,
    chat_event,
    error,
    reset,
)

import fivegates
from fivegates import transport
from fivegates.ledger import ListLedger

Json = typing.Dict[str, typing.Any]


# ---- an answer


@KINDS
def test_answer_arrives_and_the_engine_knows(kind: str) -> None:
    with WireServer() as server:
        engine = engine_of(server)
        assert anything(server, engine, "ok", kind) == "hello"
        [(_, headers, body, _)] = server.seen
        assert headers["authorization"] == "Bearer key-a"
        assert headers["x-request-attempt"] == "1"
        assert headers["x-client-request-id"]
        assert body["model"] == "m1"
        assert engine.workflow("w")["primary_success"] == 1
        assert idle(engine)


@KINDS
def test_stand_in_gets_its_own_key_model_and_place(kind: str) -> None:
    with WireServer(reset=reset) as server:
        engine = engine_of(server, "reset")
        assert anything(server, engine, "reset", kind) == "hello"
        assert server.names() == ["reset", "ok"]
        _, headers, body, path = server.seen[1]
        assert headers["authorization"] == "Bearer key-b"
        assert headers["host"] == server.url.removeprefix("http://")
        assert body == {**server.seen[0][2], "model": "m2"}
        assert path == "/ok/v1/chat/completions"
        assert headers["x-request-attempt"] == "2"
        assert (headers["x-client-request-id"]
                == server.seen[0][1]["x-client-request-id"])
        assert engine.workflow("w")["fallback_recovery"] == 1
        assert idle(engine)


@KINDS
def test_retry_after_is_kept_and_the_sdk_adds_nothing(kind: str) -> None:
    asked: "list[float]" = []

    def limited(wire: Wire, body: Json) -> None:
        asked.append(time.monotonic())
        if len(asked) == 1:
            error(429, "rate_limit_exceeded", retry_after_ms="250")(wire, body)
        else:
            server.answers["ok"](wire, body)

    with WireServer(limited=limited) as server:
        engine = engine_of(server, "limited")
        assert anything(server, engine, "limited", kind) == "hello"
        assert len(asked) == 2 and asked[1] - asked[0] >= 0.25


@pytest.mark.parametrize("status, code, wanted", [
    (401, "invalid_api_key", openai.AuthenticationError),
    (400, "invalid_value", openai.BadRequestError),
    (403, "permission_denied", openai.PermissionDeniedError),
    (429, "insufficient_quota", openai.RateLimitError),
    (500, "server_error", openai.InternalServerError),
    (503, "server_error", openai.InternalServerError),
])
@KINDS
def test_refusal_is_the_sdks_own_error(
        status: int, code: str, wanted: "type[openai.APIStatusError]",
        kind: str) -> None:
    with WireServer(bad=error(status, code)) as server:
        engine = engine_of(server, "bad", "bad")
        with pytest.raises(wanted) as caught:
            anything(server, engine, "bad", kind)
        assert isinstance(caught.value, fivegates.Refused)
        assert caught.value.decision.action == "fail_closed"
        assert caught.value.status_code == status
        assert f"fault {code}" in str(caught.value)
        assert len(server.seen) <= 4 and idle(engine)
        again = pickle.loads(pickle.dumps(caught.value))
        assert again.decision.reason == caught.value.decision.reason


def test_refusal_before_any_request_is_an_sdk_error_too() -> None:
    with WireServer() as server:
        engine = engine_of(server, budget={"total_attempts": 1})
        client = client_of(server, engine)
        with transport.guarded(prior={"attempts": 1}):
            with pytest.raises(openai.APIStatusError) as caught:
                ask(client, False)
        assert isinstance(caught.value, fivegates.Refused)
        assert caught.value.decision.reason == "attempts_exhausted"
        assert not server.seen


@pytest.mark.parametrize("status, code, wanted", [
    (401, "invalid_api_key", openai.AuthenticationError),
    (429, "insufficient_quota", openai.RateLimitError),
])
def test_what_is_remembered_is_the_same_error_as_when_it_was_heard(
        status: int, code: str, wanted: "type[Exception]") -> None:
    with WireServer(bad=error(status, code)) as server:
        engine = engine_of(server, "bad", "bad")
        client = client_of(server, engine, "bad")
        for _ in range(2):
            with pytest.raises(wanted) as caught:
                ask(client, False)
            assert isinstance(caught.value, fivegates.Refused)
            assert caught.value.at_s > 0
        assert server.names() == ["bad"]  # the second was not sent


@KINDS
def test_connection_refused_is_never_sent(kind: str, closed_port: int) -> None:
    url = f"http://127.0.0.1:{closed_port}/v1"
    card = card_of(url, url)
    card["workflows"] = {"w": {"routes": ["main"], "kind": "effectful"}}
    card["contracts"] = []
    card["backoff"] = {"base_ms": 1}
    engine = fivegates.Engine(fivegates.Policy.loads(card))
    with transport.guarded() as seen:
        with pytest.raises(openai.APIConnectionError) as caught:
            _refused(closed_port, engine, kind)
    assert isinstance(caught.value, fivegates.Refused)
    assert seen.attempts == 4  # sent by nobody, so tried again


def _refused(port: int, engine: fivegates.Engine, kind: str) -> None:
    url = f"http://127.0.0.1:{port}/v1"
    if kind.startswith("sync"):
        ask(kept(openai.OpenAI(base_url=url, api_key="k", http_client=
                               transport.client(HTTP, engine, "w"))),
            kind.endswith("stream"))
    else:
        asyncio.run(aask(openai.AsyncOpenAI(
            base_url=url, api_key="k", http_client=transport.async_client(
                HTTP, engine, "w")), kind.endswith("stream")))


# ---- streams


def test_events_arrive_as_they_come() -> None:
    heard = threading.Event()

    def slowly(wire: Wire, body: Json) -> None:
        wire.sse()
        wire.chunk(chat_event("one"))
        assert heard.wait(5), "the first event was held back"
        wire.chunk(chat_event("two"))
        wire.chunk(CHAT_END)
        wire.end()

    with WireServer(slowly=slowly) as server:
        engine = engine_of(server, "slowly")
        got = []
        for chunk in client_of(server, engine, "slowly").chat.completions.create(
                model="m1", messages=MESSAGES, stream=True):
            got.append(chunk.choices[0].delta.content)
            heard.set()
        assert got == ["one", "two", None]


@STREAMS
@pytest.mark.parametrize("prologue", [b"", b": ping\n\n", chat_event("")])
def test_error_before_content_is_not_the_callers_business(
        kind: str, prologue: bytes) -> None:
    """The head is held, so another attempt is still possible."""
    def broken(wire: Wire, body: Json) -> None:
        wire.sse()
        if prologue:
            wire.chunk(prologue)
        wire.chunk(b'data: {"error": {"type": "server_error", '
                   b'"code": "server_error", "message": "overloaded"}}\n\n')
        wire.end()

    with WireServer(broken=broken) as server:
        engine = engine_of(server, "broken")
        assert anything(server, engine, "broken", kind) == "hello"
        assert server.names()[-1] == "ok" and idle(engine)


@STREAMS
@pytest.mark.parametrize("how", ["cut", "end", "event"])
def test_failure_after_content_ends_the_call(kind: str, how: str) -> None:
    def broken(wire: Wire, body: Json) -> None:
        wire.sse()
        wire.chunk(chat_event("some text"))
        if how == "cut":
            wire.reset()
        elif how == "event":
            wire.chunk(b'data: {"error": {"code": "server_error", '
                       b'"message": "overloaded"}}\n\n')
            wire.end()
        else:
            wire.end()  # a clean end without [DONE]

    with WireServer(broken=broken) as server:
        engine = engine_of(server, "broken")
        with pytest.raises(openai.APIConnectionError) as caught:
            anything(server, engine, "broken", kind)
        assert isinstance(caught.value, fivegates.Refused)
        assert caught.value.decision.reason == "partial_output"
        assert server.names() == ["broken"] and idle(engine)


@STREAMS
@pytest.mark.parametrize("bytes_come", [False, True])
def test_content_must_come_in_time_even_when_bytes_do(
        kind: str, bytes_come: bool) -> None:
    """Pings, or silence after the head, do not outlast first_token_ms."""
    def pings(wire: Wire, body: Json) -> None:
        wire.sse()
        for _ in range(200):
            if bytes_come:
                wire.chunk(b": ping\n\n")
            if wire.left(0.02):
                return

    with WireServer(pings=pings) as server:
        engine = engine_of(server, "pings", timeouts={"first_token_ms": 300})
        with transport.guarded() as seen:
            assert anything(server, engine, "pings", kind) == "hello"
        assert [d.kind for d in seen.decisions
                if d.action == "fallback"] == ["first_token_timeout"]
        assert server.names() == ["pings", "ok"] and idle(engine)


@STREAMS
def test_compressed_streams_are_understood(kind: str) -> None:
    """gzip, cut into frames that fit no event."""
    def packed(wire: Wire, body: Json) -> None:
        wire.sse(Content_Encoding="gzip")
        pack = zlib.compressobj(wbits=31)
        raw = b""
        for event in (chat_event("hel"), chat_event("lo"), CHAT_END):
            raw += pack.compress(event) + pack.flush(zlib.Z_SYNC_FLUSH)
        raw += pack.flush()
        for i in range(0, len(raw), 7):
            wire.chunk(raw[i:i + 7])
        wire.end()

    def packed_whole(wire: Wire, body: Json) -> None:
        raw = gzip.compress(json.dumps(CHAT_WHOLE).encode())
        wire.head(200, Content_Type="application/json",
                  Content_Encoding="gzip", Content_Length=str(len(raw)))
        wire.wfile.write(raw)

    with WireServer(packed=packed, packed_whole=packed_whole) as server:
        engine = engine_of(server, "packed")
        assert anything(server, engine, "packed", kind) == "hello"
        assert engine.workflow("w")["primary_success"] == 1
        engine = engine_of(server, "packed_whole")
        assert anything(server, engine, "packed_whole",
                        kind.partition(" ")[0]) == "hello"


@STREAMS
def test_error_answer_to_a_stream_is_read_whole(kind: str) -> None:
    with WireServer(json=lambda wire, body: wire.json(200, {"error": {
            "code": "insufficient_quota", "message": "no money"}})) as server:
        engine = engine_of(server, "json")
        with pytest.raises(openai.OpenAIError) as caught:
            anything(server, engine, "json", kind)
        assert caught.value.decision.owner == "quota"  # type: ignore[attr-defined]


# ---- callers who leave


def test_client_that_leaves_a_stream_hangs_up() -> None:
    gone = threading.Event()

    def endless(wire: Wire, body: Json) -> None:
        wire.sse()
        for i in range(10000):
            wire.chunk(chat_event(f"w{i} "))
            if wire.left(0.005):
                gone.set()
                return

    with WireServer(endless=endless) as server:
        engine = engine_of(server, "endless")
        client = client_of(server, engine, "endless")
        stream = client.chat.completions.create(
            model="m1", messages=MESSAGES, stream=True)
        next(iter(stream))
        assert engine.route("main")["in_flight"] == 1
        stream.close()
        assert gone.wait(5)
        assert idle(engine) and engine.workflow("w")["cancelled"] == 1
        assert server.names() == ["endless"]


@pytest.mark.parametrize("when", ["head", "held", "stream", "wait"])
def test_cancelled_task_sends_nothing_more(when: str) -> None:
    gone, begun = threading.Event(), threading.Event()

    def answer(wire: Wire, body: Json) -> None:
        if when == "wait":
            error(429, "rate_limit_exceeded", retry_after="30")(wire, body)
            begun.set()
            gone.set()
            return
        if when != "head":
            wire.sse()
            wire.chunk(b": ping\n\n" if when == "held" else chat_event("a"))
        begun.set()
        if wire.left(5):
            gone.set()

    async def main(server: WireServer, engine: fivegates.Engine) -> None:
        async with async_client_of(server, engine, "answer") as client:
            task = asyncio.ensure_future(aask(client, True))
            while not begun.is_set():
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.05)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    with WireServer(answer=answer) as server:
        engine = engine_of(server, "answer", spill={"mode": "never"},
                           budget={**BUDGET, "elapsed_ms": 60000})
        asyncio.run(main(server, engine))
        assert gone.wait(5)
        assert server.names() == ["answer"] and idle(engine)
        assert engine.workflow("w")["cancelled"] == 1


# ---- other APIs and SDKs


@KINDS
def test_anthropic(kind: str) -> None:
    stream = kind.endswith("stream")
    with WireServer(reset=reset, over=error(529, "overloaded_error")) as server:
        for name in ("ok", "reset", "over"):
            engine = engine_of(server, name, "ok" if name != "over" else "over")

            def made(engine: fivegates.Engine = engine, name: str = name,
                     kind: str = kind) -> typing.Any:
                shared = {"base_url": f"{server.url}/{name}", "api_key": "key-a"}
                options = {"keys": {"backup": "key-b"}}
                if kind.startswith("sync"):
                    return anthropic.Anthropic(
                        **shared, http_client=transport.client(
                            HTTP, engine, "w", **options))
                return anthropic.AsyncAnthropic(
                    **shared, http_client=transport.async_client(
                        HTTP, engine, "w", **options))

            def once(make: typing.Any = made) -> str:
                request = {"model": "m1", "max_tokens": 50,
                           "messages": MESSAGES}
                if kind.startswith("sync"):
                    with make() as client:
                        if not stream:
                            return str(client.messages.create(
                                **request).content[0].text)
                        with client.messages.stream(**request) as events:
                            return "".join(events.text_stream)

                async def main() -> str:
                    async with make() as client:
                        if not stream:
                            return str((await client.messages.create(
                                **request)).content[0].text)
                        async with client.messages.stream(**request) as events:
                            return "".join([t async for t
                                            in events.text_stream])
                return asyncio.run(main())

            server.seen.clear()
            if name == "over":
                with pytest.raises(anthropic.APIStatusError) as caught:
                    once()
                assert isinstance(caught.value, fivegates.Refused)
                assert caught.value.status_code == 529
                continue
            assert once() == "hello"
            last = server.seen[-1]
            assert last[3] == "/ok/v1/messages"
            key = last[1].get("x-api-key") or last[1]["authorization"]
            assert key.removeprefix("Bearer ") == (
                "key-a" if name == "ok" else "key-b")
            assert idle(engine)


@KINDS
@pytest.mark.parametrize("api", ["chat", "responses", "messages"])
def test_preset_text_reaches_the_sdk_labelled(kind: str, api: str) -> None:
    stream = kind.endswith("stream")
    with WireServer(bad=error(500, "server_error")) as server:
        engine = engine_of(server, "bad", "bad", ladder=[
            {"step": "preset", "text": {"en": "Later, please."}}])
        client: typing.Any
        if api == "messages":
            client = kept(anthropic.Anthropic(
                base_url=f"{server.url}/bad", api_key="k", http_client=
                transport.client(HTTP, engine, "w", keys={"backup": "k"})))
            with client.messages.stream(
                    model="m1", max_tokens=5, messages=MESSAGES) as events:
                message = events.get_final_message()
            assert message.model == "fivegates/preset"
            assert message.content[0].text == "Later, please."
        elif api == "responses":
            client = client_of(server, engine, "bad")
            answer = client.responses.create(model="m1", input="hi",
                                             stream=stream)
            if stream:
                events = list(answer)
                answer = events[-1].response
                assert "Later, please." in [
                    getattr(e, "delta", None) for e in events]
            assert answer.output_text == "Later, please."
            assert answer.model == "fivegates/preset"
        else:
            assert anything(server, engine, "bad", kind) == "Later, please."
        assert engine.workflow("w")["degraded"] == 1


def test_cached_text_comes_before_the_preset() -> None:
    asked: "list[typing.Any]" = []

    def cached(body: Json, decision: fivegates.Decision) -> str:
        asked.append((body["messages"], decision.max_age_s))
        return "from before"

    with WireServer(bad=error(500, "server_error")) as server:
        engine = engine_of(server, "bad", "bad", ladder=[
            {"step": "cached", "max_age_s": 60},
            {"step": "preset", "text": {"en": "Later."}}])
        client = client_of(server, engine, "bad", cached=cached)
        assert ask(client, False) == "from before"
        assert asked == [(MESSAGES, 60)]
        with pytest.raises(openai.InternalServerError):
            ask(client_of(server, engine_of(server, "bad", "bad", ladder=[
                {"step": "preset", "text": {"en": "Later."}}]), "bad",
                preset=False), False)


def test_plain_http_clients_get_the_answer_and_the_decision() -> None:
    with WireServer(bad=error(401, "invalid_api_key")) as server:
        engine = engine_of(server, "bad")
        with transport.client(HTTP, engine, "w") as client:
            answer = client.post(f"{server.url}/bad/v1/chat/completions",
                                 json={"model": "m1", "messages": MESSAGES})
            assert answer.status_code == 401
            refused = answer.extensions["fivegates"]
            assert refused.decision.reason == "key_rejected"
            # What is no call to a model goes through as it is.
            other = client.get(f"{server.url}/ok/v1/models")
            assert other.status_code == 200
        assert engine.workflow("w")["calls"] == 1


# ---- what the host says, and what it got wrong


def _bug(client: openai.OpenAI) -> fivegates.ArgumentError:
    """What a caller is told of his mistake; older SDKs wrap it."""
    with client, pytest.raises(Exception) as caught:  # noqa: B017
        ask(client, False)
    found = caught.value.__cause__ or caught.value
    assert isinstance(found, fivegates.ArgumentError)
    return found


def test_guarded_block_names_facts_and_shows_decisions() -> None:
    ledger = ListLedger()
    with WireServer() as server:
        engine = engine_of(server)
        client = client_of(server, engine, ledger=ledger)
        with transport.guarded("bare", tenant="t1") as seen:
            ask(client, True)
        assert [d.action for d in seen.decisions] == [
            "proceed", "proceed", "accept"]
        assert seen.attempts == 1 and seen.call is not None
        assert engine.workflow("bare")["calls"] == 1
        assert [line.partition('"line":')[2][:5] for line in ledger.lines]
        ask(client, False)
        assert engine.workflow("w")["calls"] == 1


def test_body_and_facts_reach_the_engine() -> None:
    with WireServer() as server:
        engine = engine_of(server)
        ledger = ListLedger()
        client = client_of(server, engine, ledger=ledger,
                           prompt_tokens=lambda body: 123)
        ask(client, False, max_tokens=77, tools=[{
            "type": "function", "function": {"name": "f", "parameters": {}}}])
        call = next(json.loads(line) for line in ledger.lines
                    if json.loads(line)["line"] == "call")
        assert call["prompt_tokens"] == 123
        assert call["gen_ai.request.max_tokens"] == 77
        assert "tools" in call["features"]


def test_the_sdks_own_retries_are_counted() -> None:
    with WireServer() as server:
        engine = engine_of(server, budget={"total_attempts": 4})
        client = client_of(server, engine)
        with transport.guarded() as seen:
            ask(client, False,
                extra_headers={"x-stainless-retry-count": "2"})
        assert seen.decisions[0].attempts_left == 2


def test_another_model_is_refused_not_replaced() -> None:
    """Billing for a model nobody asked for is no favour."""
    with WireServer() as server:
        engine = engine_of(server)
        client = client_of(server, engine)

        def other(client: openai.OpenAI) -> object:
            return client.chat.completions.create(model="m9", messages=MESSAGES)

        with pytest.raises(Exception) as caught:
            other(client)
        told = caught.value.__cause__ or caught.value
        assert "asks for model m9 but route main of the card serves m1" in str(told)
        assert not server.seen and idle(engine)
        other(client_of(server, engine, any_model=True))
        assert server.seen[0][2]["model"] == "m1"


def test_a_key_goes_to_no_other_providers_host() -> None:
    """A stand-in without a base_url is another provider's: out of reach."""
    with WireServer(limited=error(429, "rate_limit_exceeded",
                                  retry_after="600")) as server:
        card = card_of(f"{server.url}/limited/v1", "http://127.0.0.1:9/v1")
        card["routes"]["backup"].update(provider="anthropic")
        del card["routes"]["backup"]["base_url"]
        engine = fivegates.Engine(fivegates.Policy.loads(
            card, auto_fingerprint=True))
        client = client_of(server, engine, "limited",
                           keys={"backup": "sk-secret"})
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            with pytest.raises(openai.RateLimitError):
                ask(client, False)
        assert any("is of anthropic and has no base_url" in str(w.message)
                   for w in told)
        assert server.names() == ["limited"]
        assert "sk-secret" not in str(server.seen)


def test_a_key_in_the_query_stays_at_home() -> None:
    """Whatever it is called: another host gets only what the APIs read."""
    with WireServer(reset=reset) as server, WireServer() as other:
        engine = engine_at(f"{server.url}/reset/v1", f"{other.url}/ok/v1")
        client = client_of(server, engine, "reset")
        assert client.chat.completions.create(
            model="m1", messages=MESSAGES, extra_query={
                "key": "sk-1", "access_token": "sk-2", "beta": "true",
            }).choices[0].message.content == "hello"
        assert other.seen[0][3] == "/ok/v1/chat/completions?beta=true"


def test_a_preset_is_logged_and_never_given_for_json(
        caplog: pytest.LogCaptureFixture) -> None:
    with WireServer(bad=error(500, "server_error")) as server:
        engine = engine_of(server, "bad", "bad", ladder=[
            {"step": "preset", "text": {"en": "Later."}}])
        client = client_of(server, engine, "bad")
        assert ask(client, False) == "Later."
        assert "answered by the ladder's preset instead of main" in caplog.text
        with pytest.raises(openai.InternalServerError):
            ask(client, False, response_format={
                "type": "json_schema", "json_schema": {
                    "name": "n", "schema": {"type": "object"}}})


def test_mistakes_are_told_when_the_client_is_made() -> None:
    with WireServer() as server:
        engine = engine_of(server)
        for wrong, words in (
                (lambda: transport.client("httpx", engine), "the module httpx"),
                (lambda: transport.client(HTTP, "card.yaml"), "an Engine, not str"),
                (lambda: transport.client(HTTP, engine, "w", keys={"back": "k"}),
                 "no route of the card"),
                (lambda: transport.client(HTTP, engine, "w",
                                          facts={"tenent": "t"}),
                 "did you mean tenant")):
            with pytest.raises(fivegates.ArgumentError, match=words):
                wrong()
        with pytest.raises(fivegates.ArgumentError, match="did you mean"):
            with transport.guarded("w", regoin="eu"):
                pass


def test_client_aimed_elsewhere_is_told() -> None:
    with WireServer() as server:
        engine = engine_of(server)
        client = openai.OpenAI(
            base_url="http://127.0.0.1:9/v1", api_key="k", max_retries=0,
            http_client=transport.client(HTTP, engine, "w"))
        told = _bug(client)
        assert "give both the same base_url" in str(told)
        beside = openai.OpenAI(  # the same host, another place
            base_url=f"{server.url}/other/v1", api_key="k", max_retries=0,
            http_client=transport.client(HTTP, engine, "w"))
        assert "give both the same base_url" in str(_bug(beside))
        assert not server.seen and idle(engine)


def test_stand_in_without_a_key_is_not_used_and_named() -> None:
    with WireServer(reset=reset) as server:
        engine = engine_of(server, "reset")
        client = client_of(server, engine, "reset", keys={})
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            with pytest.raises(openai.APIConnectionError) as caught:
                ask(client, False)
        assert isinstance(caught.value, fivegates.Refused)
        assert any("no key for route backup: set KEY_B" in str(w.message)
                   for w in told)
        assert server.names() == ["reset"]


def test_unknown_workflow_is_named_when_the_client_is_made() -> None:
    with WireServer() as server:
        engine = engine_of(server)
        with pytest.raises(fivegates.ArgumentError, match="it has w, bare"):
            transport.client(HTTP, engine, "nope")
        client = openai.OpenAI(
            base_url=server.url + "/ok/v1", api_key="k", max_retries=0,
            http_client=transport.client(HTTP, engine))
        assert "no workflow for this request" in str(_bug(client))


def test_connect_timeout_of_another_backend_proves_nothing() -> None:
    """A backend that does not trace may map a lost answer to ConnectTimeout."""
    class Backend(HTTP.BaseTransport):  # type: ignore[misc, name-defined]
        sent = 0

        def handle_request(self, request: typing.Any) -> typing.Any:
            self.sent += 1
            raise HTTP.ConnectTimeout("", request=request)

    with WireServer() as server:
        engine = engine_of(server, kind="effectful", budget={})
        backend = Backend()
        client = client_of(server, engine, inner=backend)
        with pytest.raises(openai.APIConnectionError) as caught:
            ask(client, False)
        assert backend.sent == 1
        assert isinstance(caught.value, fivegates.Refused)


def test_contexts_do_not_mix() -> None:
    async def main(server: WireServer, engine: fivegates.Engine) -> None:
        async with async_client_of(server, engine) as client:
            async def one(i: int) -> None:
                with transport.guarded(tenant=f"t{i}") as seen:
                    assert await aask(client, i % 2 == 0) == "hello"
                assert len(seen.decisions) == 3 and seen.attempts == 1
            await asyncio.gather(*(one(i) for i in range(50)))

    with WireServer() as server:
        engine = engine_of(server)
        asyncio.run(main(server, engine))
        assert engine.workflow("w")["primary_success"] == 50 and idle(engine)
        assert transport.current() is None
