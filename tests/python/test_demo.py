"""The demo, shorter: the real openai package against the faulty provider."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import pytest

from .conftest import ROOT
from .test_cli import cli


def test_demo(tmp_path: pathlib.Path) -> None:
    """What it counts; and the commands it names run on what it keeps."""
    pytest.importorskip("openai")
    if os.environ.get("FIVEGATES_SANITIZE"):
        pytest.skip("a demo of speed; the runner's tests are here too")
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / "demo" / "demo.py", "--json",
         "--users", "120", "--keep", tmp_path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    runs = json.loads(done.stdout)
    guarded = runs["fivegates"]
    assert guarded["requests"] / 120 < 1.15
    assert guarded["double_effects"] == 0
    assert guarded["good"] == guarded["answers"] == 120
    assert guarded["billed"] < runs["retries in a loop"]["billed"]
    ledger, card, bill = (tmp_path / name for name in (
        "calls.jsonl", "card.yaml", "openrouter_activity.csv"))
    code, text, err = cli("report", ledger, "--json")
    assert code == 0 and json.loads(text)["total"]["calls"] == 120, err
    code, text, err = cli("reconcile", ledger, "--bill", bill, "--json")
    found = json.loads(text)
    assert code == 0 and found["coverage"]["ppm"] == 1_000_000, err
    assert any(one["confidence"] == "certain" for one in found["findings"])
    code, text, err = cli("replay", ledger, "--card", card, "--what-if",
                          "retry_bucket.cap=5", "--json")
    assert code == 0 and json.loads(text)["ledger"]["whole_calls"] == 120, err
