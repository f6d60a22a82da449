"""The edits of requests, as each API takes them: tests/rewrites, which the
gateway passes too (tests/lua/rewrites_spec.lua)."""

from __future__ import annotations

import copy
import json
import types
import typing

import pytest

import fivegates
from fivegates.edits import api_of, changes_of, edit
from fivegates.errors import EditError
from fivegates.testing import ProviderError
from fivegates.transport.kept import text_of_answer, text_of_stream

from .conftest import ROOT

Json = typing.Dict[str, typing.Any]
CASES: "list[Json]" = json.loads((ROOT / "tests" / "rewrites" / "edits.json")
                                 .read_text(encoding="utf-8"))["cases"]


def drops_of(case: Json) -> "typing.Callable[[str], bool]":
    names = case.get("drops", ())
    return lambda name: "*" in names or name in names


@pytest.mark.parametrize("case", CASES, ids=[
    f"{one['name']} ({one['api']})" for one in CASES])
def test_edit(case: Json) -> None:
    body = copy.deepcopy(case["body"])
    made = edit(body, case["changes"], drops_of(case), case["api"],
                case.get("provider"))
    assert made == case["expect"]
    assert body == case["body"]  # what the caller has is not changed


KEPT: "list[Json]" = json.loads((ROOT / "tests" / "rewrites" / "kept.json")
                                .read_text(encoding="utf-8"))["cases"]


@pytest.mark.parametrize("case", KEPT, ids=[
    f"{one['name']} ({one['api']}) {i}" for i, one in enumerate(KEPT)])
def test_kept(case: Json) -> None:
    """What the transport keeps of an answer."""
    if "events" not in case:
        found = text_of_answer(json.dumps(case["answer"]).encode())
    else:
        found = text_of_stream("".join(
            f"event: x\r\ndata: {json.dumps(one)}\r\n\r\n"
            for one in case["events"]).encode())
    assert found == case["expect"]


def test_nothing_is_kept_of_what_is_no_answer() -> None:
    assert text_of_answer(b"5") is None and text_of_answer(b'{"a": 1}') is None
    assert text_of_stream(b'data: {"a"\n\ndata: 5\n\n') is None
    assert text_of_stream(b'data: {"a":\ndata: 1}\n\n') is None


class Made:
    """An object of an SDK: what it sends, model_dump() says."""

    def __init__(self, **members: typing.Any) -> None:
        self.__dict__.update(members)

    def model_dump(self, **options: typing.Any) -> Json:
        return {name: [one.model_dump() for one in value]
                if isinstance(value, list) else value
                for name, value in vars(self).items()}


def test_objects_of_an_sdk_are_read_and_kept() -> None:
    call = Made(role="assistant", content=None, tool_calls=[Made(
        id="c1", type="function", function={"name": "f", "arguments": "{}"})])
    said = Made(role="assistant", content="4")
    old = [{"role": "user", "content": "a question of some length " * 9}, call,
           {"role": "tool", "tool_call_id": "c1", "content": "4"}, said]
    last: "list[typing.Any]" = [{"role": "user", "content": "next?"}, said]
    made = edit({"messages": old + last, "timeout": object()},
                {"compact": 40}, lambda name: False)
    assert made is not None and made["messages"] == last
    assert made["messages"][1] is said
    thought = Made(type="thinking", thinking="t", signature="s")
    text = Made(type="text", text="b")
    made = edit({"messages": [{"role": "assistant", "content": [thought, text]}]},
                {"no_thinking": "less"}, lambda name: False, "messages")
    assert made is not None and made["messages"][0]["content"] == [text]


@pytest.mark.parametrize(("request_", "api", "provider", "found"), [
    ({"messages": []}, None, "openai", "chat"),
    ({"messages": []}, "messages", "bedrock", "messages"),
    ({"messages": []}, None, "anthropic", "messages"),
    ({"messages": [], "system": "s"}, None, "vertex", "messages"),
    ({"input": "x"}, None, "openai", "responses"),
    ({"contents": []}, None, "gemini", "generateContent"),
    ({"messages": []}, "converse", "bedrock", "chat"),
])
def test_the_api_of_a_request(request_: Json, api: "str | None", provider: str,
                              found: str) -> None:
    assert api_of(request_, api, provider) == found


LADDER: "list[Json]" = [
    {"step": "no_thinking"}, {"step": "without_tools"},
    {"step": "compact", "to_tokens": 60}, {"step": "shorter", "max_tokens": 50},
    {"step": "preset", "text": "Sorry."}]
UNSUPPORTED = {"error": {
    "message": "Unsupported parameter: 'reasoning_effort' is not supported "
               "with this model.", "type": "invalid_request_error",
    "param": "reasoning_effort", "code": "unsupported_parameter"}}
TOO_LONG = {"error": {
    "message": "This model's maximum context length is 100 tokens.",
    "type": "invalid_request_error", "code": "context_length_exceeded"}}


def engine_of(card: Json) -> fivegates.Engine:
    workflow = card["workflows"]["bare"]
    workflow.update(ladder=LADDER, budget={"extra_tokens": 100000,
                                           "extra_cost_usd": 1})
    return fivegates.Engine(fivegates.Policy.loads(card, auto_fingerprint=True))


def test_why_decides_how_thinking_goes(card: Json) -> None:
    """A parameter that was refused goes; one that costs too much is lowered."""
    engine = engine_of(card)
    call = engine.begin("bare", prompt_tokens=100, max_output_tokens=300,
                        features=["reasoning"])
    call.begin_attempt()
    decision = call.failure({"phase": "response", "status": 400,
                             "body": json.dumps(UNSUPPORTED).encode()})
    assert decision.ladder_step == "no_thinking"
    assert changes_of(decision) == {"no_thinking": "refused"}
    assert changes_of(call.begin_attempt()) == {"no_thinking": "refused"}
    costs: typing.Any = types.SimpleNamespace(
        change=["no_thinking", "drop_tools", "max_tokens"], max_tokens=9,
        compact_tokens=0, ladder_step="no_thinking", detail="none",
        reason="estimate_does_not_fit")
    assert changes_of(costs) == {"no_thinking": "less", "drop_tools": "some",
                                 "max_tokens": 9}


def history(turns: int) -> "list[Json]":
    return [{"role": ("user", "assistant")[i % 2],
             "content": f"words of turn {i}, a few of them"}
            for i in range(turns)] + [{"role": "user", "content": "and now?"}]


def run(card: Json, request: Json) -> "tuple[typing.Any, list[Json], list[str]]":
    """What the runner answers, what was sent, and the decisions' steps."""
    sent: "list[Json]" = []
    steps: "list[str]" = []

    def send(attempt: fivegates.Attempt) -> str:
        try:
            body = attempt.apply(request)
        except EditError as exc:
            steps.append(str(exc))
            raise
        sent.append(body)
        if len(json.dumps(body["messages"])) > 240:
            raise ProviderError(400, {}, json.dumps(TOO_LONG))
        return "short enough"

    answer = engine_of(card).run(
        "bare", send, preset=True, sleep=lambda s: None,
        prompt_tokens=len(json.dumps(request["messages"])) // 4,
        on_decision=lambda d, c: steps.append(f"{d.action} {d.ladder_step}"))
    return answer, sent, steps


def test_the_runner_sends_a_shorter_prompt(card: Json) -> None:
    request = {"messages": history(20)}
    answer, sent, steps = run(card, request)
    assert answer == "short enough" and len(sent) == 2
    assert sent[0]["messages"] == request["messages"]
    assert sent[1]["messages"] == request["messages"][-len(sent[1]["messages"]):]
    assert sent[1]["messages"][0]["role"] == "user"
    assert steps[-1] == "accept compact"


def test_what_cannot_be_edited_is_not_sent(card: Json) -> None:
    """One question that is too long: the next step of the ladder answers."""
    answer, sent, steps = run(card, {"messages": [
        {"role": "user", "content": "a long question " * 40}]})
    assert answer == "Sorry." and len(sent) == 1
    assert steps[-1] == "degrade preset"
    assert "cannot be edited as the engine asks: compact" in steps[-2]
