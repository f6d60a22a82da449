"""A compacted request is a conversation that the API takes, by a checker of its
own; and the gateway makes the same of it, by running its Lua."""

from __future__ import annotations

import copy
import json
import random
import shutil
import subprocess
import typing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fivegates.compact import compact, estimate

from .conftest import ROOT

Json = typing.Dict[str, typing.Any]
Draw = typing.Callable[[int], int]  # a number below


# ---- conversations, as clients have them


def words(draw: Draw) -> str:
    return "w\u00fc " * draw(30) + "x"


def image(draw: Draw) -> Json:
    data = "A" * (2100 if draw(2) else 30)
    return {"type": "image", "source": {
        "type": "base64", "media_type": "image/png", "data": data}}


def chat(draw: Draw) -> Json:
    turns: "list[Json]" = [{"role": "system", "content": words(draw)}
                           for _ in range(draw(2))]
    if draw(4) == 0:
        turns.append({"role": "assistant", "content": "Hello!"})
    number = 0
    for _ in range(1 + draw(6)):
        for _ in range(1 + (draw(4) == 0)):
            turns.append({"role": "user", "content": words(draw) if draw(5)
                          else [{"type": "text", "text": words(draw)}]})
        if draw(6) == 0:
            turns.append({"role": "developer", "content": words(draw)})
        for _ in range(draw(3)):
            ids = [f"c{number + k}" for k in range(1 + draw(2))]
            number += len(ids)
            turns.append({"role": "assistant", "content": None, "tool_calls": [
                {"id": one, "type": "function", "function": {
                    "name": "f", "arguments": "{}"}} for one in ids]})
            turns += [{"role": "tool", "tool_call_id": one,
                       "content": words(draw)} for one in ids]
        if draw(5):
            turns.append({"role": "assistant", "content": words(draw)})
    return {"model": "m", "messages": turns, "temperature": 0.5}


def messages(draw: Draw) -> Json:
    turns: "list[Json]" = []
    number = 0
    for _ in range(1 + draw(6)):
        turns.append({"role": "user", "content": words(draw) if draw(3) else [
            image(draw), {"type": "text", "text": words(draw)}]})
        for _ in range(draw(3)):
            ids = [f"u{number + k}" for k in range(1 + draw(2))]
            number += len(ids)
            turns.append({"role": "assistant", "content": [
                {"type": "thinking", "thinking": words(draw), "signature": "s"},
                *({"type": "tool_use", "id": one, "name": "f", "input": {"a": 1}}
                  for one in ids)]})
            turns.append({"role": "user", "content": [
                *({"type": "tool_result", "tool_use_id": one,
                   "content": words(draw)} for one in ids),
                *([{"type": "text", "text": words(draw)}] if draw(2) else [])]})
        turns.append({"role": "assistant", "content": [
            {"type": "text", "text": words(draw)}]})
    if draw(3):
        turns.append({"role": "user", "content": words(draw)})
    return {"model": "m", "system": words(draw), "max_tokens": 99,
            "messages": turns}


def responses(draw: Draw) -> Json:
    items: "list[Json]" = []
    late: "list[str]" = []
    for place in range(1 + draw(6)):
        items.append({"role": "user", "content": words(draw)})
        items += [{"type": "function_call_output", "call_id": one,
                   "output": words(draw)} for one in late]
        late = []
        for step in range(draw(3)):
            one = f"c{place}.{step}"
            items.append({"type": "reasoning", "id": f"rs_{one}", "summary": []})
            items.append({"type": "function_call", "call_id": one, "name": "f",
                          "arguments": "{}"})
            if draw(4) == 0:
                late.append(one)
            else:
                items.append({"type": "function_call_output", "call_id": one,
                              "output": words(draw)})
        items.append({"type": "message", "id": f"msg_{place}",
                      "role": "assistant", "status": "completed", "content": [
                          {"type": "output_text", "text": words(draw),
                           "annotations": []}]})
    items.append({"role": "user", "content": "last"})
    items += [{"type": "function_call_output", "call_id": one,
               "output": "late"} for one in late]
    return {"model": "m", "instructions": words(draw), "input": items}


MAKE = {"chat": chat, "messages": messages, "responses": responses}


# ---- what each API takes, written for this test


def check_chat(turns: "list[Json]") -> None:
    open_calls: "set[str]" = set()
    for turn in turns:
        if turn["role"] == "tool":
            open_calls.remove(turn["tool_call_id"])  # asked for just before
            continue
        assert not open_calls, "calls without results"
        open_calls = {one["id"] for one in turn.get("tool_calls", ())}
    assert not open_calls


def check_messages(turns: "list[Json]") -> None:
    assert [one["role"] for one in turns] == [
        ("user", "assistant")[i % 2] for i in range(len(turns))]
    asked: "set[str]" = set()
    for turn in turns:
        blocks = turn["content"] if isinstance(turn["content"], list) else []
        answered = {one["tool_use_id"] for one in blocks
                    if one["type"] == "tool_result"}
        assert answered == asked
        asked = {one["id"] for one in blocks if one["type"] == "tool_use"}
    assert not asked


def check_responses(items: "list[Json]") -> None:
    calls = [one["call_id"] for one in items if one.get("type") == "function_call"]
    results = [one["call_id"] for one in items
               if one.get("type") == "function_call_output"]
    assert sorted(calls) == sorted(results)
    for one, after in zip(items, items[1:]):
        if one.get("type") == "reasoning":
            assert after["type"] in ("function_call", "message")


CHECK = {"chat": check_chat, "messages": check_messages,
         "responses": check_responses}


def turns_of(body: Json) -> "list[Json]":
    return typing.cast("list[Json]", body.get("messages", body.get("input")))


def asks(turn: Json) -> bool:
    return turn.get("role") == "user" and (
        isinstance(turn["content"], str) or not any(
            one["type"] == "tool_result" for one in turn["content"]))


def last_asked(turns: "list[Json]") -> int:
    """Where the user's last words begin."""
    place = max(i for i, turn in enumerate(turns) if asks(turn))
    while place > 0 and asks(turns[place - 1]):
        place -= 1
    return place


def holds(api: str, body: Json, tokens: int) -> bool:
    """The promises; whether there was an answer."""
    before = copy.deepcopy(body)
    made = compact(body, tokens)
    assert body == before
    turns = turns_of(body)
    if made is None:
        # Nothing but the last turn, and what must stay, is too long.
        least = {**body, ("input" if api == "responses" else "messages"): [
            turn for i, turn in enumerate(turns) if i >= last_asked(turns)
            or turn.get("role") in ("system", "developer")]}
        last = last_asked(turns)
        split = {one.get("call_id") for one in turns[:last]} & {
            one.get("call_id") for one in turns[last:]} - {None}
        assert estimate(least) > tokens or split
        return False
    CHECK[api](turns_of(made))
    assert estimate(made) <= tokens
    kept = turns_of(made)
    tail = turns[last_asked(turns):]
    assert kept[len(kept) - len(tail):] == tail
    fixed = [one for one in turns if one.get("role") in ("system", "developer")]
    assert [one for one in kept
            if one.get("role") in ("system", "developer")] == fixed
    rest = iter(turns)
    assert all(any(one is other for other in rest) for one in kept)  # in order
    assert {name: value for name, value in made.items() if value is not kept} == {
        name: value for name, value in body.items() if value is not turns}
    assert compact(made, tokens) == made
    return True


@settings(max_examples=150, deadline=None, derandomize=True)
@given(api=st.sampled_from(sorted(MAKE)), random_=st.randoms(use_true_random=False),
       share=st.integers(0, 110))
def test_the_promises_hold(api: str, random_: random.Random, share: int) -> None:
    body = MAKE[api](random_.randrange)
    holds(api, body, max(1, estimate(body) * share // 100))


def test_both_ways_out_are_common() -> None:
    """The property above would hold for a function that never answers."""
    draw = random.Random(7)
    found = {api: sum(holds(api, body, estimate(body) // 2)
                      for body in (make(draw.randrange) for _ in range(60)))
             for api, make in MAKE.items()}
    assert all(10 < count < 60 for count in found.values()), found


def test_it_drops_no_more_than_it_must() -> None:
    """Of five turns of about 50 tokens the youngest three fit in 170."""
    turns: "list[Json]" = []
    for i in range(5):
        turns += [{"role": "user", "content": f"{i}" * 80},
                  {"role": "assistant", "content": "a" * 40}]
    turns.append({"role": "user", "content": "?"})
    body = {"messages": turns}
    by_size = [compact(body, tokens) for tokens in range(1, 260)]
    kept = [None if one is None else len(one["messages"]) for one in by_size]
    assert {one for one in kept if one} == {1, 3, 5, 7, 9, 11}
    assert kept == sorted(kept, key=lambda one: one or 0)


def test_a_counter_of_ones_own() -> None:
    body = {"messages": [{"role": "user", "content": "a"},
                         {"role": "assistant", "content": "b"},
                         {"role": "user", "content": "c"}]}
    assert compact(body, 1, lambda b: len(b["messages"])) == {
        "messages": body["messages"][2:]}
    assert compact(body, 3, lambda b: len(b["messages"])) == body
    assert compact(body, 0, lambda b: len(b["messages"])) is None


@pytest.mark.parametrize("body", [
    {"a": 1}, {"messages": "x" * 99}, {"messages": [1, "x" * 99]}, {"messages": [None]},
    {"messages": [{"role": "user", "content": "x" * 99}, 7]},
    {"messages": [{"role": ["user"], "content": {"a": "x" * 99}}]},
    {"messages": [{"role": "user", "type": 5, "content": [5, {"type": []}]}]},
    {"input": [{"type": "item_reference", "id": "i"}]},
    {"input": [], "conversation": "conv_1"}, {"contents": [{"parts": "x" * 99}]},
])
def test_what_is_no_conversation_is_left_alone(body: Json) -> None:
    assert compact(body, 1) is None


def test_gemini() -> None:
    body: Json = {"systemInstruction": {"parts": [{"text": "s"}]}, "contents": [
        {"role": "user", "parts": [{"text": "an old question " * 9}]},
        {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {}}}]},
        {"role": "user", "parts": [{"functionResponse": {"name": "f",
                                                         "response": {}}}]},
        {"role": "model", "parts": [{"text": "4"}]},
        {"parts": [{"text": "why?"}]}]}
    made = compact(body, 40)
    assert made == {**body, "contents": body["contents"][4:]}
    assert compact({**body, "cachedContent": "c"}, 40) is None


LUA = """
local ROOT = arg[1]
package.path = ROOT .. "/bindings/lua/?.lua;" .. package.path
local json = require "fivegates.resty.json"
local compact = require "fivegates.resty.compact"
for line in io.lines() do
    local case = json.decode(line)
    local name, kept = compact.kept(case.body, case.tokens)
    local out = { size = compact.estimate(case.body) }
    if name then
        out.kept = {}
        for i = 1, #kept do
            if kept[i] then
                out.kept[#out.kept + 1] = i - 1
            end
        end
    elseif kept then
        out.unable = true
    end
    print(json.encode(out))
end
"""


def test_the_gateway_makes_the_same(tmp_path: typing.Any) -> None:
    if shutil.which("luajit") is None:
        pytest.skip("luajit is not installed")
    draw = random.Random(11)
    cases = []
    for i in range(600):
        body = list(MAKE.values())[i % 3](draw.randrange)
        cases.append({"body": body, "tokens": max(
            1, estimate(body) * draw.randrange(110) // 100)})
    script = tmp_path / "compact.lua"
    script.write_text(LUA)
    done = subprocess.run(
        ["luajit", str(script), str(ROOT)], input="".join(
            json.dumps(one) + "\n" for one in cases),
        capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(told) == len(cases)
    for case, other in zip(cases, told):
        body = case["body"]
        made = compact(body, case["tokens"])
        assert other["size"] == estimate(body)
        assert ("unable" in other) == (made is None)
        assert ("kept" not in other) == (made is None or made == body)
        if "kept" in other:
            assert made is not None
            assert [turns_of(body)[i] for i in other["kept"]] == turns_of(made)
