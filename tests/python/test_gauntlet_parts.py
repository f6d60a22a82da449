"""The gauntlet's parts: layers by their fingerprints, measures, plans."""

from __future__ import annotations

import asyncio
import os
import pathlib
import re
import signal
import sys
import typing

import pytest

from fivegates.gauntlet import Limits, play, read_plan
from fivegates.gauntlet.judge import judge
from fivegates.gauntlet.layers import find_layers
from fivegates.gauntlet.measure import Healthy, Measures, healthy_of, measure
from fivegates.gauntlet.plan import STANDARD, choose, standard_plan
from fivegates.gauntlet.program import Outcome
from fivegates.provider import (Effect, FAULTS, Record, SettingsError,
                                read_file, read_value)

if os.environ.get("FIVEGATES_SANITIZE"):
    pytest.skip("nothing of the library is in it", allow_module_level=True)

COUNT = "x-stainless-retry-count"


def sent(at: float, *, key: str = "k", path: str = "/v1/chat/completions",
         status: "int | None" = 200, headers: "dict[str, str] | None" = None,
         results: "typing.Sequence[str]" = (), **more: typing.Any) -> Record:
    out = Record(1, at, 1, path, headers or {}, "chat", False, "m", key, 10,
                 False, list(results), status=status, answered_at=at + 0.01,
                 ended_at=at + 0.02)
    for name, value in more.items():
        setattr(out, name, value)
    return out


def tries(records: "list[Record]", normal: int = 1) -> "list[int]":
    return [one.tries for one in find_layers(records, normal)]


def counted(*counts: int, gap: float = 0.5, **headers: str) -> "list[Record]":
    return [sent(i * gap, headers={COUNT: str(count), **headers})
            for i, count in enumerate(counts)]


# ---- layers


@pytest.mark.parametrize("records, normal, expected", [
    (counted(0), 1, []),
    (counted(0, 0, 0), 3, []),  # three users who ask the same
    (counted(0, 1, 2), 1, [3]),
    (counted(0, 1, 2, 0, 1, 2), 1, [2, 3]),
    (counted(0, 0, 1, 1, 2, 2), 1, [3, 2]),
    (counted(0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1), 1, [3, 2, 2]),
    (counted(0, 1, 2, 0, 1, 2), 2, [3]),  # two users, one layer
    (counted(0, 0, 1, 1, 2, 2), 2, [3]),  # the same, at once
    (counted(0, 1, 0), 1, [2, 2]),  # it succeeded at the second beginning
    (counted(0, 0, 0, 0), 1, [4]),  # the SDK does not retry, a loop does
])
def test_layers_by_count(records: "list[Record]", normal: int,
                         expected: "list[int]") -> None:
    assert tries(records, normal) == expected


def test_layers_with_two_counts() -> None:
    records = [sent(i, headers={"x-request-attempt": str(1 + i // 2),
                                "amz-sdk-request": f"attempt={1 + i % 2}; max=2"})
               for i in range(6)]
    assert sorted(tries(records)) == [2, 3]


def test_another_call_is_no_layer_below() -> None:
    records = [sent(i, headers={"x-request-attempt": number,
                                "x-client-request-id": call})
               for i, (number, call) in enumerate(
                   [("1", "a"), ("2", "a"), ("1", "b"), ("1", "c")])]
    assert tries(records) == [3, 2]


def timed(*gaps: float) -> "list[Record]":
    at = 0.0
    out = [sent(at)]
    for gap in gaps:
        at += gap
        out.append(sent(at))
    return out


@pytest.mark.parametrize("gaps, expected", [
    ([0.5], [2]),
    ([0.5, 1, 2, 4], [5]),  # one back-off that grows
    ([0.5, 0.4, 0.6, 0.5], [5]),  # a steady loop
    ([0.01] * 7, [8]),  # a loop without a wait
    ([0.01, 1, 0.01, 2, 0.01], [3, 2]),  # pairs in a loop
    ([0.5, 1, 0.02, 0.5, 1], [2, 3]),
    ([0.5, 1, 3, 0.45, 1.1, 3, 0.55, 0.9], [3, 3]),
    ([0.8, 0.2, 0.9], [4]),  # full jitter, not two pairs
    ([0.01, 1, 0.01], [2, 2]),
])
def test_layers_by_time(gaps: "list[float]", expected: "list[int]") -> None:
    layers = find_layers(timed(*gaps), 1)
    assert [one.tries for one in layers] == expected
    assert all(one.sure is (len(expected) == 1) for one in layers)


# ---- measures and verdicts


def healthy(records: "list[Record]",
            effects: "typing.Sequence[Effect]" = ()) -> Healthy:
    return healthy_of(records, list(effects), Outcome(exit_code=0, seconds=1))


ONE = healthy([sent(0, whole=True, billed_prompt=10, billed_output=5)])


def findings(measures: Measures, exit_code: "int | None" = 0,
             **outcome: typing.Any) -> "list[str]":
    return [one.code for one in judge(
        Outcome(exit_code=exit_code, seconds=1, **outcome), measures, ONE,
        Limits(), None).findings]


def test_requests_and_tokens() -> None:
    got = measure([sent(0, status=500), sent(1, billed_prompt=10, billed_output=5,
                                             whole=True)], [], ONE)
    assert (got.requests, got.fan_out, got.answered) == (2, 2, 1)
    assert (got.billed, got.delivered, got.billed_ratio) == (15, 15, 1)
    assert findings(got) == []
    # A body that differs each time hides no fan-out.
    many = [sent(i, key=str(i), status=500) for i in range(6)]
    assert findings(measure(many, [], ONE), 1) == ["fan_out"]


def test_early_and_hammering() -> None:
    def limited(at: float, **more: typing.Any) -> Record:
        return sent(at, status=429, **more)
    told = [limited(0, wait_s=1.0), sent(0.5, whole=True)]
    assert measure(told, [], ONE).early == 1
    assert findings(measure(told, [], ONE)) == ["early"]
    assert measure([limited(0, wait_s=1.0), sent(1.0)], [], ONE).early == 0
    # Another account was told nothing.
    other = [limited(0, wait_s=1.0), sent(0.1, path="/backup/v1/chat/completions")]
    assert measure(other, [], ONE).early == 0
    fast = [limited(i * 0.2) for i in range(5)]
    assert measure(fast, [], ONE).after_429_per_s == 5
    assert "hammered" in findings(measure(fast, [], ONE), 1)
    slow = [limited(i * 0.6) for i in range(4)]
    assert measure(slow, [], ONE).after_429_per_s == 2


def test_effects_by_the_results_that_come_back() -> None:
    """Two calls that answer one conversation, and both results come back."""
    agent = [sent(0, key="a", call="c1", whole=True),
             sent(1, key="b", results=["c1"], whole=True)]
    base = healthy(agent)
    assert base.calls == {"a": 1}
    again = [*agent, sent(2, key="a", call="c2", whole=True),
             sent(3, key="b", results=["c2"], whole=True)]
    assert measure(again, [], base).doubled == 1
    # The same step sent again is no second effect, nor is a call not run.
    step = [*agent, sent(2, key="b", results=["c1"]),
            sent(3, key="a", call="c3", whole=True)]
    assert measure(step, [], base).doubled == 0
    # A model that asks twice in one conversation is not the client's doing.
    longer = [*agent, sent(2, key="b", call="c2", results=["c1"]),
              sent(3, key="c", results=["c1", "c2"], whole=True)]
    assert measure(longer, [], base).doubled == 0


def test_effects_that_are_reported() -> None:
    records = [sent(0, whole=True)]
    base = healthy(records, [Effect(0, "pay", "op1")])
    twice = [Effect(0, "pay", "op1"), Effect(1, "pay", "op1")]
    assert measure(records, twice, base).doubled == 0  # one operation
    other = [Effect(0, "pay", "op1"), Effect(1, "pay", "op2")]
    assert measure(records, other, base).doubled == 1
    unnamed = [Effect(0, "pay", ""), Effect(1, "pay", "")]
    assert measure(records, unnamed, base).doubled == 1
    assert findings(measure(records, other, base)) == ["doubled_effect"]


def test_truncated_successes() -> None:
    cut = measure([sent(0, cut=True, sent_tokens=5)], [], ONE)
    assert cut.cut_off == 1
    assert findings(cut, 0) == ["truncated_success"]
    assert findings(cut, 1) == []  # it says so
    mended = measure([sent(0, cut=True), sent(1, whole=True)], [], ONE)
    assert findings(mended, 0) == []
    # Continued in other words: another conversation, and whole.
    on = measure([sent(0, cut=True), sent(1, key="k2", whole=True)], [], ONE)
    assert findings(on, 0) == []
    # A program that never reads to the end does nothing new.
    skims = healthy([sent(0, sent_tokens=3)])
    assert measure([sent(0, sent_tokens=3)], [], skims).cut_off == 0
    # A tool run with half its arguments, whatever the exit code.
    half = measure([sent(0, call="c1", cut=True), sent(1, key="b", whole=True,
                                                       results=["c1"])], [], ONE)
    assert findings(half, 1) == ["truncated_success"]


def test_what_is_no_finding_is_noted() -> None:
    nothing = measure([sent(0, status=503)], [], ONE)
    outcome = Outcome(exit_code=0, seconds=1, left_behind=2, stdout="Sorry!")
    verdict = judge(outcome, nothing, ONE, Limits(), None)
    assert (verdict.result, verdict.findings) == ("own answer", [])
    assert "left 2 of its processes" in verdict.notes[0]
    assert "1 unanswered request" in verdict.notes[1]
    cut = measure([sent(0, cut=True)], [], ONE)
    assert not judge(outcome, cut, ONE, Limits(), re.compile("Sorry")).findings
    assert judge(outcome, cut, ONE, Limits(), re.compile("sorry")).findings


def test_ends() -> None:
    fine = measure([sent(0, whole=True)], [], ONE)
    assert findings(fine, None, hung=True) == ["hang"]
    assert findings(fine, None, flooded=True) == ["flood"]
    assert findings(fine, None, ran_away=True) == ["ran_away"]
    assert findings(fine, -signal.SIGSEGV) == ["crash"]


# ---- plans


def test_the_standard_plan() -> None:
    assert len(standard_plan().trials) == len(STANDARD) > 20
    names = [one.name for one in standard_plan().trials]
    assert len(set(names)) == len(names)
    assert {"brownout", "blackout", "ratelimit", "trickle"} < set(names)


def test_a_plan_of_ones_own() -> None:
    plan = read_plan(read_value({
        "limits": {"wait_s": 5, "layers": 1}, "admits": "(?i)sorry",
        "faults": ["gateway_timeout",
                   {"name": "cut", "why": "Twice.", "limits": {"wait_s": 9}},
                   {"name": "bad start", "limits": {"layers": 3}, "script": [
                       {"fault": "server_error", "status": 599}, "ok"]}]}))
    assert [one.name for one in plan.trials] == ["gateway_timeout", "cut",
                                                 "bad start"]
    assert [one.limits.wait_s for one in plan.trials] == [5, 9, 5]
    assert [one.limits.layers for one in plan.trials] == [1, 1, 3]
    assert plan.trials[2].steps[0].values == {"status": 599}
    # Where another request is no use, fewer are enough; who says more gets it.
    some = read_plan(read_value({"faults": ["context_length", {
        "name": "quota_exhausted", "limits": {"requests_per_user_request": 9}}]}))
    assert [one.limits.requests_per_user_request for one in some.trials] == [2, 9]
    chosen = choose(plan, ["cut", "reset", "cut"])
    assert [(one.name, one.limits.wait_s) for one in chosen.trials] == [
        ("cut", 9), ("reset", 5)]
    with pytest.raises(SettingsError, match="did you mean stall"):
        choose(plan, ["stal"])


@pytest.mark.parametrize("text, words", [
    ("", "nothing is in it"),
    ("limit: {}", ":1:1: limit: no such key; did you mean limits?"),
    ("limits: {wait: 3}", ":1:10: limits.wait: no such key; did you mean wait_s?"),
    ("limits: {wait_s: 0}", "limits.wait_s: must be a number from 0.1"),
    ("limits: {layers: 1.5}", "must be a whole number"),
    ("faults:\n- cut\n- cutt", ":3:3: faults[1]: no fault is called cutt; did "
                               "you mean cut?"),
    ("faults: [cut, cut]", "cut stands there twice"),
    ("faults: [{script: [ok]}]", '"name" is missing'),
    ("faults: [{name: mine}]", 'give it a "script"'),
    ("faults: [{name: mine, script: [okk]}]", "faults[0].script[0]: no fault"),
    ("faults: []", "the list is empty"),
    ("admits: '('", "admits: no regular expression"),
])
def test_bad_plans(tmp_path: pathlib.Path, text: str, words: str) -> None:
    file = tmp_path / "plan.yaml"
    file.write_text(text)
    with pytest.raises(SettingsError) as caught:
        read_plan(read_file(str(file)))
    assert words in str(caught.value) and str(file) in str(caught.value)


def test_every_fault_can_be_named() -> None:
    for name in FAULTS:
        assert read_plan(read_value({"faults": [name]})).trials[0].why


# ---- playing


AGENT = """
import json, os, urllib.request
def ask(*messages):
    return json.load(urllib.request.urlopen(urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions", json.dumps({
            "messages": messages, "tools": [{"function": {"name": "f"}}]
        }).encode())))["choices"][0]["message"]
question = {"role": "user", "content": "Act."}
message = ask(question)
ask(question, message, {"role": "tool", "content": "done",
                        "tool_call_id": message["tool_calls"][0]["id"]})
"""


def test_a_plan_is_played_again_from_its_beginning() -> None:
    plan = read_plan(read_value({"faults": [{"name": "once", "script": [
        {"fault": "tool_then_error", "times": 1}]}]}))
    for _ in range(2):
        result = asyncio.run(play([sys.executable, "-S", "-c", AGENT], plan, 1))
        assert result.healthy.tools and len(result.healthy.calls) == 1
        assert [one.verdict.result for one in result.played] == ["error 1"]
