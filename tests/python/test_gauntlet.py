"""`fivegates gauntlet` on programs: five that do what must be found, one that
behaves, and the examples."""

from __future__ import annotations

import asyncio
import os
import sys

import pytest

from fivegates.gauntlet import Plan, Played, Result, play, read_plan
from fivegates.provider import read_value

from .conftest import ROOT

pytest.importorskip("h11")
pytest.importorskip("openai", "3")
if os.environ.get("FIVEGATES_SANITIZE"):
    pytest.skip("what the programs call has tests that run with sanitizers",
                allow_module_level=True)

PROGRAMS = ROOT / "tests" / "gauntlet"
# The same plan for all: nothing tells what is to be found.
BAD = read_plan(read_value({"limits": {"wait_s": 3}, "faults": [
    "blackout", "rate_limited", "no_response", "cut", "tool_then_error"]}))
FINDS = {
    "three_layers": {("blackout", "fan_out"), ("blackout", "hidden_layers"),
                     ("no_response", "fan_out"), ("no_response", "hidden_layers"),
                     ("no_response", "overbilled"), ("cut", "fan_out"),
                     ("cut", "hidden_layers"), ("cut", "overbilled"),
                     ("rate_limited", "fan_out")},
    "doubles_effect": {("tool_then_error", "doubled_effect")},
    "believes_a_cut": {("cut", "truncated_success")},
    "hammers": {("rate_limited", "hammered"), ("rate_limited", "fan_out")},
    "hangs": {("no_response", "hang")},
    "behaves": set(),
}
EXAMPLES = read_plan(read_value({"limits": {"wait_s": 30}, "faults": [
    "rate_limited_retry_after", "cut", "tool_then_error"]}))
NEEDS = {"agent": ("httpx2",), "batch": ("httpx2",), "demo": ("rich",),
         "fastapi_chat": ("fastapi", "uvicorn")}


def run_all(names: "list[str]", plan: Plan, jobs: int) -> "dict[str, Result]":
    """The programs, at once: they mostly wait."""
    async def scene() -> "list[Result]":
        return await asyncio.gather(*(play(
            [sys.executable, "-W", "error", str(PROGRAMS / f"{name}.py")],
            plan, jobs) for name in names))
    return dict(zip(names, asyncio.run(scene())))


@pytest.fixture(scope="module")
def found() -> "dict[str, Result]":
    return run_all(list(FINDS), BAD, 5)


def under(result: Result, fault: str) -> Played:
    return next(one for one in result.played if one.trial.name == fault)


@pytest.mark.parametrize("name", FINDS)
def test_what_is_found(found: "dict[str, Result]", name: str) -> None:
    result = found[name]
    got = {(one.trial.name, finding.code) for one in result.played
           for finding in one.verdict.findings}
    said = [finding.text for one in result.played
            for finding in one.verdict.findings]
    assert got == FINDS[name], said
    assert result.passed is not FINDS[name]
    with_tools = name == "doubles_effect"
    assert [one.name for one in result.skipped] == (
        [] if with_tools else ["tool_then_error"])


def test_the_fan_out_of_three_layers(found: "dict[str, Result]") -> None:
    """All twelve, and each layer with its tries."""
    one = under(found["three_layers"], "blackout")
    assert one.measures.requests == 12 and one.measures.fan_out == 12
    assert [layer.tries for layer in one.measures.layers] == [2, 3, 2]
    above, sdk, below = one.measures.layers
    assert "above the SDK" in above.name and "below the SDK" in below.name
    assert (sdk.name, sdk.how) == ("the SDK", "x-stainless-retry-count")
    assert all(layer.sure for layer in one.measures.layers)
    cut = under(found["three_layers"], "cut").measures
    assert cut.billed == 12 * found["three_layers"].healthy.billed
    assert cut.delivered == 0


def test_the_doubled_effect(found: "dict[str, Result]") -> None:
    one = under(found["doubles_effect"], "tool_then_error")
    assert one.measures.doubled == 3 and one.verdict.result == "answered"
    assert found["doubles_effect"].healthy.calls and (
        not found["doubles_effect"].healthy.effects)


def test_the_truncated_success(found: "dict[str, Result]") -> None:
    one = under(found["believes_a_cut"], "cut")
    assert (one.outcome.exit_code, one.verdict.result) == (0, "truncated")
    assert one.outcome.stdout.startswith("This answer was made on")
    assert under(found["behaves"], "cut").verdict.result == "error 1"


def test_the_hang_is_ended(found: "dict[str, Result]") -> None:
    one = under(found["hangs"], "no_response")
    assert one.outcome.exit_code is None and one.verdict.result == "hung"
    assert one.records[0].left_at is not None  # it was not left connected


def test_the_examples_pass() -> None:
    for modules in NEEDS.values():
        for module in modules:
            pytest.importorskip(module)
    for name, result in run_all([f"example_{name}" for name in NEEDS],
                                EXAMPLES, 2).items():
        assert result.passed, [
            (name, one.trial.name, finding.text, one.outcome.said())
            for one in result.played for finding in one.verdict.findings]
        assert under(result, "rate_limited_retry_after").verdict.result == (
            "answered"), name
    # (The agent and the demo have a tool, and it reports to the effects
    # address; that their effects are one is judged above.)
