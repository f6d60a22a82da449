"""The examples, each run as its README says: what the server saw."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import time
import typing

import pytest

import fivegates

from .conftest import ROOT
from .test_typing import mypy_env

EXAMPLES = ROOT / "examples"
# Beside openai.
NEEDS = {"fastapi_chat/run.py": ("fastapi", "uvicorn"),
         "agent/agent.py": (), "batch/batch.py": (),
         "bedrock/bedrock.py": ("botocore",)}


def run(name: str) -> "tuple[str, dict[str, typing.Any]]":
    """What an example printed, and the last line's account of the server."""
    if os.environ.get("FIVEGATES_SANITIZE"):
        pytest.skip("what they call has tests that run with sanitizers")
    pytest.importorskip("openai", "3")  # which sends with httpx2
    for module in NEEDS[name]:
        pytest.importorskip(module)
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / name)],
        capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not done.stderr, done.stderr
    told, _, seen = done.stdout.rpartition("server: ")
    return told, json.loads(seen)


def test_fastapi_chat() -> None:
    told, seen = run("fastapi_chat/run.py")
    parts = dict(part.strip().partition("\n")[::2] for part in told.split("\n\n"))
    answer = parts["an answer, event by event"]
    assert answer.count("event: text") == 6 and "event: done" in answer
    assert "event: done" in parts["one account is overloaded; the other answers"]
    # Events of an answer that has no end, so none of them waited for it.
    endless = parts["an answer without an end; the client leaves"]
    assert endless.count("event: text") == 3
    assert "upstream stopped: True" in endless
    assert "upstream stopped: True" in parts["silence; the client leaves"]
    broken = parts["a stream that breaks after some text"]
    assert broken.count("event: text") == 2 and "event: error" in broken
    assert "No whole answer came." in broken
    for title, status in (("a request that the provider rejects", 400),
                          ("both accounts are down", 503)):
        assert f"HTTP {status}" in parts[title] and '"error":"' in parts[title]
    assert seen == {"main": ["ok", "503", "503", "endless", "silent", "cut",
                             "400", "503", "503"],
                    "backup": ["ok", "503", "503"]}
    assert json.loads(told.rpartition("engine: ")[2]) == {
        "calls": 7, "primary_success": 1, "fallback_recovery": 1,
        "cancelled": 2, "failed_closed": 3}


def test_agent() -> None:
    told, seen = run("agent/agent.py")
    assert seen["charges"] == ["charge_card:order-1", "charge_card:order-2"]
    assert seen["main"] == ["tool", "503", "503", "ok", "tool", "ok"]
    # The stand-in's wish for another charge did not reach the shop.
    assert seen["backup"] == ["tool"] and seen["shop"] == ["ok", "lost", "ok"]
    assert told.count("Every request is one decision.") == 2
    assert "no acknowledgement; looking it up" in told


def test_batch() -> None:
    today = time.gmtime().tm_yday
    told, seen = run("batch/batch.py")
    if time.gmtime().tm_yday != today:
        pytest.skip("a new day in between: its money is another")
    assert seen["jobs"] == {"done": 8, "waiting": 3}
    assert seen["main"] == ["ok", "later", "ok", "silent", "503",
                            *["ok"] * 6]
    assert "job 2: queued" in told and "prior {'attempts': 1" in told
    # Its first delivery counts.
    assert "job 1: done, 3 attempts" in told and "job 2: done, 2 attempts" in told
    before, _, after = told.partition("another goes on")
    # What the killed worker had done is not done again; what waited is.
    assert [f"job {n}: done" in before for n in (1, 2, 3, 4)] == [
        True, False, True, False]
    assert [f"job {n}: done" in after for n in (1, 2, 3, 4)] == [
        False, True, False, True]
    assert "today's money is spent" in told


def test_bedrock() -> None:
    told, seen = run("bedrock/bedrock.py")
    assert seen == {"vendor.large": ["429", "ok", "503", "503", "ok", "early",
                                     "cut"], "vendor.small": ["ok", "ok"]}
    assert told.count("Every request is one decision.") == 4
    assert told.count("(6 events)") == 2
    assert "'Every request ', then: No whole answer came." in told


@pytest.mark.parametrize("name", sorted(NEEDS))
def test_cards_are_approved_as_they_are(name: str) -> None:
    policy = fivegates.Policy.load(EXAMPLES / pathlib.Path(name).parent / "card.yaml")
    for workflow in policy.workflows():
        for route in policy.routes()[1:]:
            assert policy.contract(workflow, route)["approved"]


def test_readmes_are_short() -> None:
    for page in EXAMPLES.glob("*/README.md"):
        assert len(page.read_text(encoding="utf-8").splitlines()) <= 30, page


def test_mypy_of_the_examples(tmp_path: pathlib.Path) -> None:
    for module in ("mypy", "fastapi", "uvicorn", "openai"):
        pytest.importorskip(module)
    if os.environ.get("FIVEGATES_SANITIZE"):
        pytest.skip("mypy says the same without sanitizers")
    env = mypy_env()
    env["MYPYPATH"] = os.pathsep.join(
        filter(None, [str(EXAMPLES), env.get("MYPYPATH", "")]))
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir",
         str(tmp_path / "cache"), *map(str, sorted(EXAMPLES.rglob("*.py")))],
        capture_output=True, text=True, check=False, cwd=tmp_path, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
