"""The gateway under the SDKs: answers, stand-ins, edits, refusals, presets."""

from __future__ import annotations

import json
import typing

import anthropic
import httpx
import openai
import pytest

from openresty.conftest import card_of
from openresty.gateway import Gateway
from openresty.upstream import (
    OVERLOADED,
    USAGE,
    Upstream,
    chat,
    chat_events,
    delta,
    event,
    json_reply,
    kept,
    silent,
    stream,
    whole,
)

Run = typing.Callable[..., Gateway]
ASK: typing.Any = {"model": "model-of-main", "messages": [
    {"role": "user", "content": "Grüße, 你好"}]}
DOWN = json_reply(503, OVERLOADED)
# Usage none, tokens seen: refused before any work.
RATED = json_reply(429, {"error": {"message": "Slow down.", "type": "requests",
                                   "code": "rate_limit_exceeded"}})


_open: "list[openai.OpenAI | anthropic.Anthropic]" = []


@pytest.fixture(autouse=True)
def closed() -> "typing.Iterator[None]":
    yield
    while _open:
        _open.pop().close()


def client(gateway: Gateway, **options: typing.Any) -> typing.Any:
    made = openai.OpenAI(base_url=f"{gateway.url}/v1", api_key="client-key",
                         **{"max_retries": 0, **options})
    _open.append(made)
    return made


def claude_of(gateway: Gateway, max_retries: int = 0) -> anthropic.Anthropic:
    made = anthropic.Anthropic(base_url=gateway.url, api_key="client-key",
                               max_retries=max_retries)
    _open.append(made)
    return made


def text_of(chunks: typing.Any) -> str:
    return "".join(one.choices[0].delta.content or ""
                   for one in chunks if one.choices)


def test_a_whole_answer(run: Run) -> None:
    upstream = Upstream(main=[kept("hello")], backup=[DOWN])
    gateway = run(upstream)
    raw = client(gateway).chat.completions.with_raw_response.create(**ASK)
    assert raw.parse().choices[0].message.content == "hello"
    assert raw.headers["x-fivegates-attempts"] == "1"
    assert int(raw.headers["x-fivegates-tokens"]) == 12
    assert "x-fivegates-route" not in raw.headers
    peer, = upstream.seen["main"]
    assert peer.path == "/main/v1/chat/completions"
    assert peer.body == {**ASK, "model": "model-of-main"}
    assert peer.headers["authorization"] == "Bearer key-of-main"
    assert peer.headers["x-client-request-id"] == raw.headers["x-fivegates-call"]
    assert "client-key" not in str(peer.header_list)
    assert not [name for name in peer.headers if "stainless" in name]
    # The next request takes the same connection.
    client(gateway).chat.completions.create(**ASK)
    assert len(upstream.seen["main"]) == 2 and upstream.connections == 1


def test_a_stream_comes_as_it_is_made(run: Run) -> None:
    upstream = Upstream(main=[stream(chat_events("a", "b", "c"), 0.1)],
                        backup=[DOWN])
    gateway = run(upstream)
    seen = []
    with httpx.stream("POST", f"{gateway.url}/v1/chat/completions",
                      json={**ASK, "stream": True}) as answer:
        assert answer.headers["content-type"] == "text/event-stream"
        seen = [chunk for chunk in answer.iter_raw() if chunk]
    assert len(seen) >= 5  # each event by itself
    assert b"".join(seen) == b"".join(chat_events("a", "b", "c"))


@pytest.mark.parametrize("streamed", [False, True])
def test_a_stand_in_serves(run: Run, streamed: bool) -> None:
    good = stream(chat_events("from ", "backup")) if streamed else whole(
        "from backup")
    upstream = Upstream(main=[DOWN], backup=[good])
    gateway = run(upstream)
    raw = client(gateway).chat.completions.with_raw_response.create(
        **ASK, stream=streamed)
    assert raw.headers["x-fivegates-route"] == "backup"
    answer = raw.parse()
    assert "from backup" == (
        text_of(answer) if streamed else answer.choices[0].message.content)
    peer, = upstream.seen["backup"]
    assert peer.body["model"] == "model-of-backup"
    assert peer.headers["authorization"] == "Bearer key-of-backup"
    assert len(upstream.seen["main"]) == 2


def test_of_the_clients_query_only_what_the_apis_read_goes_on(run: Run) -> None:
    """Anything else may be a key, whatever it is called."""
    upstream = Upstream(main=[DOWN], backup=[whole("from backup")])
    gateway = run(upstream)
    answer = client(gateway).chat.completions.create(**ASK, extra_query={
        "key": "sk-1", "api%5Fkey": "sk-2", "access_token": "sk-3",
        "subscription-key": "sk-4", "beta": "true"})
    assert answer.choices[0].message.content == "from backup"
    for peers in upstream.seen.values():
        assert all(peer.path.endswith("/chat/completions?beta=true")
                   for peer in peers)


def test_before_the_first_word_a_stream_can_move(run: Run) -> None:
    head = event({"choices": [{"index": 0, "delta": {"role": "assistant",
                                                     "content": ""}}]})
    upstream = Upstream(main=[stream([head], end=False)],
                        backup=[stream(chat_events("whole"))])
    answer = client(run(upstream)).chat.completions.create(**ASK, stream=True)
    assert text_of(answer) == "whole"


@pytest.mark.parametrize(("broken", "word"), [
    (stream([delta("one "), delta("two ")], end=False, reset=True), "partial_output"),
    (stream([delta("one "), delta("two ")]), "partial_output"),
    (stream([delta("one "), delta("two "), event(OVERLOADED)], 0.03), "partial_output"),
    (stream([delta("one "), delta("two "), b'data: {"choi'], end=False), "partial_output"),
])
def test_a_cut_is_no_end(run: Run, broken: typing.Any, word: str) -> None:
    upstream = Upstream(main=[broken], backup=[whole()])
    gateway = run(upstream)
    text = ""
    with pytest.raises(openai.APIError, match=word):
        for one in client(gateway).chat.completions.create(**ASK, stream=True):
            text += one.choices[0].delta.content or ""
    assert text == "one two "
    assert not upstream.seen["backup"]
    with httpx.stream("POST", f"{gateway.url}/v1/chat/completions",
                      json={**ASK, "stream": True}) as answer:
        with pytest.raises(httpx.RemoteProtocolError):  # no last chunk
            answer.read()


def test_silence_in_a_stream_ends_it(run: Run) -> None:
    upstream = Upstream(main=[stream([delta("one")], end=False), ], backup=[whole()])
    upstream.scripts["main"] = [lambda peer: (
        stream([delta("one")], end=False)(peer), peer.wait(10))[0]]
    gateway = run(upstream, {"timeouts": {"idle_ms": 300}})
    with pytest.raises(openai.APIError, match="idle_timeout"):
        for _ in client(gateway).chat.completions.create(**ASK, stream=True):
            pass


@pytest.mark.parametrize("streamed", [False, True])
def test_a_silent_route_is_left(run: Run, streamed: bool) -> None:
    good = stream(chat_events("ok")) if streamed else whole("ok")
    upstream = Upstream(main=[silent()], backup=[good])
    gateway = run(upstream, {"timeouts": {"first_token_ms": 300,
                                          "total_ms": 300}})
    answer = client(gateway).chat.completions.create(**ASK, stream=streamed)
    assert "ok" == (text_of(answer) if streamed
                    else answer.choices[0].message.content)
    assert upstream.seen["main"][0].left.wait(1)


def test_a_refusal_is_an_error_of_the_api(run: Run) -> None:
    leak = json_reply(401, {"error": {
        "message": "Incorrect API key provided: key-of-main",
        "type": "invalid_request_error", "code": "invalid_api_key"}})
    upstream = Upstream(main=[leak], backup=[whole()])
    gateway = run(upstream, {"ladder": []})
    with pytest.raises(openai.InternalServerError) as caught:
        client(gateway).chat.completions.create(**ASK)
    error = caught.value
    assert error.status_code == 503 and error.code == "key_rejected"
    assert error.response.headers["x-should-retry"] == "false"
    assert error.response.headers["x-fivegates-reason"] == "key_rejected"
    assert "key-of-main" not in str(error)
    # The key is latched: nothing is sent any more.
    with pytest.raises(openai.APIStatusError):
        client(gateway, max_retries=2).chat.completions.create(**ASK)
    assert len(upstream.seen["main"]) == 1


def test_the_clients_own_fault_is_shown_as_the_server_says_it(run: Run) -> None:
    body = {"error": {"message": "max_tokens is too big", "param": "max_tokens",
                      "type": "invalid_request_error", "code": "invalid_value"}}
    upstream = Upstream(main=[json_reply(400, body)], backup=[whole()])
    with pytest.raises(openai.BadRequestError, match="too big") as caught:
        client(run(upstream)).chat.completions.create(**ASK)
    assert caught.value.param == "max_tokens"
    assert caught.value.response.headers["x-should-retry"] == "false"
    assert not upstream.seen["backup"]


def test_all_are_merely_waiting(run: Run) -> None:
    """The hint of a whole chain that only waits: when to come again."""
    rated = json_reply(429, {"error": {
        "message": "Slow down.", "type": "requests",
        "code": "rate_limit_exceeded"}}, "Retry-After: 30")
    upstream = Upstream(main=[rated], backup=[rated])
    with pytest.raises(openai.RateLimitError) as caught:
        client(run(upstream)).chat.completions.create(**ASK)
    headers = caught.value.response.headers
    assert 28 <= int(headers["retry-after"]) <= 60
    assert "x-should-retry" not in headers


PRESET = {"ladder": [{"step": "cached", "max_age_s": 60}, {
    "step": "preset", "text": {"en": "Sorry, \"later\".", "de": "Leider später."}}]}


@pytest.mark.parametrize("streamed", [False, True])
def test_preset_chat(run: Run, streamed: bool) -> None:
    upstream = Upstream(main=[DOWN], backup=[DOWN])
    raw = client(run(upstream, PRESET), default_headers={
        "accept-language": "de-AT, en"}).chat.completions.with_raw_response.create(
            **ASK, stream=streamed)
    assert raw.headers["x-fivegates-step"] == "preset"
    answer = raw.parse()
    assert "Leider später." == (
        text_of(answer) if streamed else answer.choices[0].message.content)


@pytest.mark.parametrize("streamed", [False, True])
def test_preset_responses(run: Run, streamed: bool) -> None:
    gateway = run(Upstream(main=[DOWN], backup=[DOWN]), PRESET)
    answer: typing.Any = client(gateway).responses.create(
        model="model-of-main", input="hi", stream=streamed)
    if streamed:
        events = list(answer)
        assert [one.sequence_number for one in events] == list(range(8))
        answer = events[-1].response
    assert answer.output_text == 'Sorry, "later".'
    assert answer.model == "fivegates/preset"


@pytest.mark.parametrize("streamed", [False, True])
def test_preset_messages(run: Run, streamed: bool) -> None:
    gateway = run(Upstream(main=[DOWN], backup=[DOWN]), PRESET)
    claude = claude_of(gateway)
    asked: typing.Any = {"model": "model-of-main", "max_tokens": 10,
                         "messages": [{"role": "user", "content": "hi"}]}
    if streamed:
        with claude.messages.stream(**asked) as answer:
            assert answer.get_final_text() == 'Sorry, "later".'
    else:
        message: typing.Any = claude.messages.create(**asked)
        assert message.content[0].text == 'Sorry, "later".'


def test_cached(run: Run) -> None:
    gateway = run(Upstream(main=[DOWN], backup=[DOWN]), PRESET, options="""
        cached = function(body, decision)
            return "kept for " .. body.messages[1].content .. " "
                   .. decision.max_age_s
        end""")
    raw = client(gateway).chat.completions.with_raw_response.create(**ASK)
    assert raw.headers["x-fivegates-step"] == "cached"
    assert raw.parse().choices[0].message.content == "kept for Grüße, 你好 60"


# ---- the request


def post(gateway: Gateway, raw: "bytes | typing.Iterator[bytes]",
         path: str = "/v1/chat/completions", **headers: str) -> httpx.Response:
    return httpx.post(gateway.url + path, content=raw, headers={
        "content-type": "application/json", **headers})


ANY = "any_model = true,"


def test_another_model_is_a_surprise(run: Run) -> None:
    """Refused, the first time and later, and no call is made of it; a request
    that names none gets the card's."""
    upstream = Upstream(main=[whole()], backup=[DOWN])
    gateway = run(upstream)
    for _ in range(2):
        with pytest.raises(openai.BadRequestError, match="model-of-main"):
            client(gateway).chat.completions.create(**{**ASK, "model": "other"})
    assert not upstream.seen["main"] and not gateway.ledger()
    assert post(gateway, b'{"messages": []}').status_code == 200
    assert upstream.seen["main"][0].body["model"] == "model-of-main"


def test_no_sentence_for_who_waits_for_json(run: Run) -> None:
    gateway = run(Upstream(main=[DOWN], backup=[DOWN]), PRESET)
    with pytest.raises(openai.APIStatusError):
        client(gateway).chat.completions.create(**ASK, response_format={
            "type": "json_schema", "json_schema": {"name": "x", "schema": {}}})


def test_what_is_not_edited_goes_on_byte_for_byte(run: Run) -> None:
    raw = ('{ "n":1.0e0, "seed":12345678901234567890,"stop":[ ],"metadata":{},'
           '"model" : "asked" , "messages":[{"role":"user","content":"\\u00fc'
           ' \\"x\\" [{"}],"logit_bias":{"50256":-100} }').encode()
    upstream = Upstream(main=[whole()], backup=[DOWN])
    assert post(run(upstream, options=ANY), raw).status_code == 200
    sent = upstream.seen["main"][0].raw
    assert sent == (
        b'{"n":1.0e0,"seed":12345678901234567890,"stop":[ ],"metadata":{},'
        b'"model":"model-of-main","messages":[{"role":"user","content":"\\u00fc'
        b' \\"x\\" [{"}],"logit_bias":{"50256":-100}}')


def test_a_key_in_other_letters_is_the_same_key(run: Run) -> None:
    raw = b'{"mod\\u0065l": "asked", "messages": []}'
    upstream = Upstream(main=[whole()], backup=[DOWN])
    assert post(run(upstream, options=ANY), raw).status_code == 200
    assert upstream.seen["main"][0].raw == (
        b'{"model":"model-of-main","messages": []}')


def test_large_and_chunked_bodies(run: Run) -> None:
    upstream = Upstream(main=[whole()], backup=[DOWN])
    gateway = run(upstream)
    long = "word " * 60_000  # longer than nginx's buffer: it is in a file
    raw = json.dumps({**ASK, "messages": [
        {"role": "user", "content": long}]}).encode()
    assert post(gateway, raw).status_code == 200
    assert post(gateway, iter([raw[:1000], raw[1000:]])).status_code == 200
    for peer in upstream.seen["main"]:
        assert peer.body["messages"][0]["content"] == long
    assert gateway.ledger()[0]["prompt_tokens"] == len(raw) // 4
    assert post(gateway, b'{"x": "' + b"y" * 3_000_000).status_code == 413


TOOLS: typing.Any = [{"type": "function", "function": {"name": name, "parameters": {
    "type": "object", "properties": {}, "required": []}}} for name in "ab"]


def test_a_contract_drops_a_tool(run: Run) -> None:
    upstream = Upstream(main=[DOWN], backup=[whole()])
    card = card_of(upstream)
    card["contracts"][0]["changes"] = {"drop_tools": ["b"]}
    gateway = run(upstream, card=card)
    client(gateway).chat.completions.create(**ASK, tools=TOOLS, tool_choice={
        "type": "function", "function": {"name": "b"}})
    body = upstream.seen["backup"][0].body
    assert body["tools"] == TOOLS[:1] and "tool_choice" not in body
    assert upstream.seen["main"][0].body["tools"] == TOOLS


def test_a_call_is_told_what_the_request_is(run: Run) -> None:
    upstream = Upstream(main=[whole()], backup=[DOWN])
    gateway = run(upstream, options="""facts = function(request)
        return { tenant = request:header("x-team"), max_output_tokens = 70 }
    end""")
    client(gateway, default_headers={"x-team": "blue"}).chat.completions.create(
        model="model-of-main", tools=TOOLS, max_tokens=30, store=True,
        messages=[{"role": "system", "content": "x"},
                  {"role": "user", "content": "y"}])
    line = gateway.ledger()[0]
    assert line["gen_ai.request.max_tokens"] == 70
    assert set(line["features"]) == {"tools", "system_prompt"}
    assert (line["stream"], line["server_state"]) == ("false", "stored")
    assert line["tenant"]  # its hash


def ids_of(gateway: Gateway) -> "list[tuple[str | None, str | None]]":
    return [(one.get("gen_ai.response.id"), one.get("server_request_id"))
            for one in gateway.ledger() if "progress" in one]


def with_head(reply: bytes, *lines: bytes) -> bytes:
    first, rest = reply.split(b"\r\n", 1)
    return b"\r\n".join([first, *lines, rest])


def test_the_ledger_names_an_attempt_as_its_provider_does(run: Run) -> None:
    upstream = Upstream(main=[
        with_head(DOWN, b"X-Generation-Id: gen-1", b"X-Request-Id: r-1"),
        whole()], backup=[DOWN])
    gateway = run(upstream)
    client(gateway).chat.completions.create(**ASK)
    (first, second), found = ids_of(gateway), json.loads(whole().split(b"\r\n\r\n")[1])
    assert (first, second) == (("gen-1", "r-1"), (found["id"], "req_1"))


def test_a_cut_stream_has_its_id(run: Run) -> None:
    gateway = run(Upstream(main=[stream([delta("one")])], backup=[DOWN]))
    with pytest.raises(Exception):  # noqa: B017  (any SDK's)
        list(client(gateway).chat.completions.create(**ASK, stream=True))
    assert ids_of(gateway)[-1] == ("c1", None)


@pytest.mark.parametrize(("raw", "status", "code"), [
    (b"", 400, "invalid_json"), (b"[1]", 400, "invalid_json"),
    (b'{"model": NaN}', 400, "invalid_json"),
    (b'{"a": 1, "a": 2}', 400, "duplicate_key"),
    (b'{"messages": []}\0{"model": "x"}', 400, "invalid_json"),
    (b'{"messages": []}\0', 400, "invalid_json"),
    (b'{"user": "a\nb"}', 400, "invalid_json"),
    (b'{"user": "a\tb"}', 400, "invalid_json"),
    (b'{"user": "a\x01b"}', 400, "invalid_json"),
    (b'{"seed": 01}', 400, "invalid_json"), (b'{"seed": 1.}', 400, "invalid_json"),
    (b'{"seed": -.5}', 400, "invalid_json"), (b'{"seed": [1, +1]}', 400, "invalid_json"),
    (b'{"stream": 1}', 400, "invalid_value"),
    (b'{"stream": "true"}', 400, "invalid_value"),
    (b'{"max_tokens": "9"}', 400, "invalid_value"),
    (b'{"tools": {}}', 400, "invalid_value"),
    (b'{"stream": true, "strea\\u006d": false}', 400, "duplicate_key"),
    (b"[" * 5000, 400, "invalid_json"),
    (json.dumps({"tools": TOOLS * 100}).encode(), 400, "too_many_tools"),
])
def test_bad_bodies(run: Run, raw: bytes, status: int, code: str) -> None:
    upstream = Upstream(main=[whole()], backup=[DOWN])
    answer = post(run(upstream), raw)
    assert answer.status_code == status
    assert answer.json()["error"]["code"] == code
    assert answer.headers["x-should-retry"] == "false"
    assert not upstream.seen["main"]


def test_odd_requests(run: Run) -> None:
    upstream = Upstream(main=[whole()], backup=[DOWN])
    gateway = run(upstream)
    good = json.dumps(ASK).encode()
    assert post(gateway, good, "/v1/models").status_code == 404
    assert post(gateway, good, "/v1/threads/t/messages").status_code == 404
    assert httpx.get(f"{gateway.url}/v1/responses").status_code == 405
    assert post(gateway, good, **{"content-encoding": "gzip"}
                ).status_code == 415
    answer = post(gateway, good, "/v1/chat/completions?api_key=s&beta=1%0d%0a2&key=t")
    assert answer.status_code == 200
    assert upstream.seen["main"][0].path == (
        "/main/v1/chat/completions?beta=1%0d%0a2")


def test_a_route_without_a_key(run: Run) -> None:
    """A stand-in is passed over; a primary fails closed, and says so inside."""
    upstream = Upstream(main=[DOWN], backup=[whole()])
    gateway = run(upstream, env={"KEY_MAIN": "k"})
    with pytest.raises(openai.APIStatusError):
        client(gateway).chat.completions.create(**ASK)
    assert not upstream.seen["backup"]
    assert "set KEY_BACKUP" in gateway.log()


def test_usage_is_settled(run: Run) -> None:
    upstream = Upstream(main=[stream(chat_events("a"))], backup=[DOWN])
    gateway = run(upstream)
    text_of(client(gateway).chat.completions.create(**ASK, stream=True))
    end, = gateway.ended()
    assert end["tokens"] == USAGE["total_tokens"]


def test_the_output_check(run: Run) -> None:
    """An answer that the contract does not allow is not given out."""
    upstream = Upstream(main=[json_reply(200, chat("half an", "length"))],
                        backup=[whole("a whole answer")])
    needs = {"output": {"finish_reasons": ["stop"]}}
    card = card_of(upstream, requires=needs)
    for one in card["routes"].values():
        one["provides"]["output"]["finish_reasons"] = ["stop"]
    answer = client(run(upstream, card=card)).chat.completions.create(**ASK)
    assert answer.choices[0].message.content == "a whole answer"


def test_a_long_event_after_the_first_word(run: Run) -> None:
    """Longer than a read, in pieces: it comes whole, and so do all others."""
    events = [delta("one "), delta("x" * 300_000), *chat_events("end")]
    raw = b"".join(events)
    pieces = [raw[i:i + 9_999] for i in range(0, len(raw), 9_999)]
    upstream = Upstream(main=[stream(pieces, 0.001)], backup=[DOWN])
    answer = client(run(upstream)).chat.completions.create(**ASK, stream=True)
    assert text_of(answer) == "one " + "x" * 300_000 + "end"


def test_an_answer_that_is_none(run: Run) -> None:
    upstream = Upstream(
        main=[json_reply(200, {**chat("x"), "choices": []})],
        backup=[whole("ok")])
    answer = client(run(upstream)).chat.completions.create(**ASK)
    assert answer.choices[0].message.content == "ok"
