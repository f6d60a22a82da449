"""The gateway's row of the referee: every scenario, every check."""

from __future__ import annotations

import asyncio
import json
import os
import pathlib
import sys

import pytest

pytest.importorskip("openai")

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from openresty.gateway import missing  # noqa: E402
from referee.play import Played, play  # noqa: E402
from referee.scenarios import SCENARIOS  # noqa: E402

pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))


@pytest.fixture(scope="module")
def rows() -> "dict[str, Played]":
    if os.environ.get("FIVEGATES_SANITIZE"):
        pytest.skip("the scenarios' clocks are real, and sanitizers slow")
    played, _ = asyncio.run(play(["gateway"]))
    return {one.scenario.name: one for one in played}


@pytest.mark.parametrize("scenario", [one.name for one in SCENARIOS])
def test_gateway(rows: "dict[str, Played]", scenario: str) -> None:
    played = rows[scenario]
    failed = [f"{check.name}: {what}" for check, what in played.failed]
    assert not failed, json.dumps(played.seen.journal.report(), indent=1)
