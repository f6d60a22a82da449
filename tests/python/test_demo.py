"""The demo, shorter: the real openai package against the faulty provider."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from .conftest import ROOT


def test_demo() -> None:
    pytest.importorskip("openai")
    if os.environ.get("FIVEGATES_SANITIZE"):
        pytest.skip("a demo of speed; the runner's tests are here too")
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / "demo" / "demo.py", "--json",
         "--users", "120"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    runs = json.loads(done.stdout)
    guarded = runs["fivegates"]
    assert guarded["requests"] / 120 < 1.15
    assert guarded["double_effects"] == 0
    assert guarded["good"] == guarded["answers"] == 120
    assert guarded["billed"] < runs["retries in a loop"]["billed"]
