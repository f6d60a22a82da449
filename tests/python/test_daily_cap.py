"""A day's money under eight processes: never over, to the nano-dollar of what
was held, by the provider's own journal; then cache and preset answer."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import typing

import pytest
from support import cap, ladder
from support.cap import DAY_MS, HOLD_NUSD, PROCESSES, UNIX_MS, Json

import fivegates
from fivegates.testing import ManualClock

pytest.importorskip("h11")
if os.environ.get("FIVEGATES_SANITIZE"):
    pytest.skip("forks by the hundred", allow_module_level=True)
KILLED = 3
CALLS = 8  # of each process: more than the day has room for at a time
# 3 held for good, a hold for each process, and the cost of a few answers.
CAP_NUSD = (KILLED + PROCESSES) * HOLD_NUSD + 1_000_000


@pytest.fixture(scope="module")
def provider() -> "typing.Iterator[ladder.Provider]":
    with ladder.provider() as made:
        yield made


class Day:
    """A card with a cap, its region, and services on them."""

    def __init__(self, provider: ladder.Provider, folder: pathlib.Path,
                 level: str) -> None:
        self.provider = provider
        self.region = str(folder / "region")
        usd = f"{CAP_NUSD / 1e9:.9f}"
        workflow: Json = {
            "routes": ["main"], "budget": {"extra_tokens": 0},
            "ladder": [{"step": "cached"}, {"step": "preset", "text": "Sorry."}]}
        self.card: Json = {
            "version": 1, "adapt": {"limit": False, "pace": False},
            "breaker": {"stall": False},
            "routes": {"main": {"provider": "openai", "model": "model-of-main",
                                "price": cap.PRICE}},
            "workflows": {"a": {**workflow}, "b": {**workflow}}}
        if level == "card":
            self.card["limits"] = {"spend_per_day_usd": usd}
        else:
            for one in self.card["workflows"].values():
                one["limits"] = {"spend_per_day_usd": usd}

    def start(self, calls: int, unix_ms: int = UNIX_MS,
              processes: int = PROCESSES) -> "subprocess.Popen[str]":
        words = [self.card, self.region, self.provider.url, calls, unix_ms,
                 processes]
        return subprocess.Popen(
            [sys.executable, cap.__file__, *map(json.dumps, words)],
            stdout=subprocess.PIPE, text=True)

    def run(self, *args: typing.Any) -> "list[Json]":
        """What the calls of all processes came to."""
        out, _ = self.start(*args).communicate(timeout=60)
        _, *lines = map(json.loads, out.splitlines())
        return [one for line in lines for one in line]

    def journal(self) -> "list[Json]":
        return self.provider.journal("main")

    def spent_nusd(self, unix_ms: int = UNIX_MS) -> "list[int]":
        """What the engine says of each workflow's day."""
        engine = fivegates.Engine(
            fivegates.Policy.loads(self.card), region=self.region,
            clock=ManualClock(1_000_000_000 + unix_ms - UNIX_MS, unix_ms))
        return [engine.workflow(name)["spent_today_nusd"] for name in "ab"]


def in_flight(day: Day, count: int) -> None:
    for _ in range(2000):
        if len(day.journal()) == count:
            return
        time.sleep(0.005)
    raise AssertionError("the requests do not come")


def steps(done: "list[Json]") -> "list[str]":
    """What must have answered those that were not sent: each process keeps its
    own answers, and some questions are the same."""
    kept: "set[int]" = set()
    out = []
    for one in done:
        if one["action"] != "accept":
            out.append("cached" if one["same"] and one["process"] in kept else "preset")
        elif one["same"]:
            kept.add(one["process"])
    return out


@pytest.mark.parametrize("level", ["card", "workflow"])
def test_the_cap(provider: ladder.Provider, tmp_path: pathlib.Path,
                 level: str) -> None:
    day = Day(provider, tmp_path, level)
    # Killed in the middle of a request: nobody knows what it cost.
    provider.play("no_response")
    with day.start(1, UNIX_MS, KILLED) as service:
        assert service.stdout is not None
        pids = json.loads(service.stdout.readline())
        in_flight(day, KILLED)
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
    lost = day.journal()
    provider.play("ok")
    done = day.run(CALLS)
    assert len(done) == PROCESSES * CALLS
    done += day.run(100, UNIX_MS, 1)  # what eight at a time had no room for
    records = lost + day.journal()
    capped = ([done] if level != "workflow" else
              [[one for one in done if one["workflow"] == name] for name in "ab"])
    accepted = [sum(one["action"] == "accept" for one in part) for part in capped]
    assert sum(accepted) == len(records) - KILLED
    assert all(count > PROCESSES for count in accepted)
    spent = day.spent_nusd()
    assert sum(spent) == cap.final_nusd(records)  # to the nano-dollar
    if level == "workflow":  # the killed were the first of a
        assert spent[0] == KILLED * HOLD_NUSD + accepted[0] * ANSWER_NUSD
        assert spent[1] == accepted[1] * ANSWER_NUSD
        assert cap.most_nusd(records) <= 2 * CAP_NUSD
    else:
        assert cap.most_nusd(records) <= CAP_NUSD
        spent = [sum(spent)]
    for one in spent:
        assert CAP_NUSD - HOLD_NUSD < one <= CAP_NUSD  # and it was used
    # After it nothing is sent: what there is in the cache, else the preset.
    rest = [one for one in done if one["action"] != "accept"]
    assert [one["step"] for one in rest] == steps(done)
    for one in rest:
        assert one["action"] == "degrade" and one["reason"] == "spend_per_day"
        assert one["label"] == {"requested": "main", "served": None,
                                "why": "spend_per_day"}
    provider.play("ok")
    assert {one["action"] for one in day.run(2)} == {"degrade"}
    assert day.journal() == []
    # The next day has money again.
    tomorrow = day.run(2, UNIX_MS + DAY_MS, 1)
    assert [one["action"] for one in tomorrow] == ["accept", "accept"]
    assert sum(day.spent_nusd(UNIX_MS + DAY_MS)) == cap.final_nusd(day.journal())
    # One process alone has answers of its own when a day's is spent.
    alone = day.run(80, UNIX_MS + 2 * DAY_MS, 1)
    assert [one["step"] for one in alone if one["action"] != "accept"] == steps(alone)
    assert {"cached", "preset"} == {*steps(alone)}


def _answer_nusd() -> int:
    """What one whole answer costs, as the provider counts its prompt."""
    from fivegates.provider.asked import read_asked
    prompts = {read_asked("chat", cap.body_of(n)).prompt_tokens for n in range(10)}
    assert len(prompts) == 1 and prompts.pop() <= cap.PROMPT
    return cap.nusd_of({"billed_prompt": read_asked(
        "chat", cap.body_of(0)).prompt_tokens, "billed_output": cap.ANSWER})


ANSWER_NUSD = _answer_nusd()
