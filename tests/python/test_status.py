"""fivegates status: a live region, seen from beside it."""

from __future__ import annotations

import contextlib
import io
import json
import pathlib
import subprocess
import sys
import typing

import pytest
from prometheus_client.parser import text_string_to_metric_families

import fivegates
from fivegates.cli import run
from fivegates.status import live

from .replay_rig import Json, card, policy_of


class Done(typing.NamedTuple):
    returncode: int
    stdout: str
    stderr: str


def command(*args: object) -> Done:
    """A command of fivegates, in this process."""
    out, err, before = io.StringIO(), io.StringIO(), sys.argv
    sys.argv = ["fivegates", *map(str, args)]
    code: object = 0
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            run()
    except SystemExit as exc:
        code = exc.code
    finally:
        sys.argv = before
    return Done(code if isinstance(code, int) else 0, out.getvalue(), err.getvalue())


# A program that fails in every way a person has to see, and waits.
PROGRAM = """
import json, sys, time
import fivegates
engine = fivegates.Engine(json.loads(sys.argv[1]), region=sys.argv[2], seed=1)
engine.clock(int(time.time() * 1000))

def once(evidence, **facts):
    call = engine.begin("drill", prompt_tokens=100, max_output_tokens=50,
                        tenant="planted-tenant", **facts)
    if call.begin_attempt().action != "proceed":
        return call
    call.event("sent")
    if evidence is None:
        call.event("token", 5)
        call.success(output_tokens=5, prompt_tokens=100, finish_reason="stop",
                     output="planted-answer")
    else:
        call.failure(evidence)
    return call

for _ in range(6):
    once(None)
for _ in range(6):
    once({"phase": "response", "status": 500, "body": "planted-prompt"}).end()
running = once(None)
running = engine.begin("drill", prompt_tokens=100, max_output_tokens=50)
running.begin_attempt()
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def region(tmp_path: pathlib.Path) -> "typing.Iterator[str]":
    path = str(tmp_path / "region")
    spec = card(breaker={"open_ms": 20000, "open_max_ms": 20000},
                limits={"retries_per_hour": 600})
    spec["workflows"]["drill"]["limits"] = {"spend_per_day_usd": 20}
    (tmp_path / "card.json").write_text(json.dumps(spec))
    with subprocess.Popen([sys.executable, "-c", PROGRAM, json.dumps(spec), path],
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
        yield path
        program.communicate("")
    assert program.returncode == 0


def test_a_live_region(region: str) -> None:
    """Another process's breaker, counters and attempts in flight."""
    card_file = pathlib.Path(region).parent / "card.json"
    done = command("status", region, "--card", card_file, "--json")
    assert done.returncode == 0, done.stderr
    state: Json = json.loads(done.stdout)
    routes = {one["route"]: one for one in state["routes"]}
    assert routes["primary"]["breaker"] == "open"
    assert routes["primary"]["opened_count"] == 1
    assert 0 < routes["primary"]["open_for_ms"] <= 20000
    assert routes["backup1"]["in_flight"] == 1
    (flow,) = state["workflows"]
    assert flow["primary_success"] == 6 and flow["fallback_recovery"] == 1
    assert flow["calls"] == flow["open"] + sum(flow[word] for word in (
        "primary_success", "retry_recovery", "fallback_recovery", "degraded",
        "failed_closed", "queued", "cancelled"))
    assert float(flow["spent_today_usd"]) > 0 and flow["spend_per_day_usd"] == 20
    assert state["limits"]["retries_per_hour"] == 600
    assert any("primary: breaker open" in line for line in state["attention"])

    shown = command("status", region, "--card", card_file).stdout
    assert "primary: breaker open" in shown and " of 20" in shown

    exposed = command("status", region, "--card", card_file, "--prometheus").stdout
    samples = {(one.name, *sorted(one.labels.items())): one.value
               for family in text_string_to_metric_families(exposed)
               for one in family.samples}
    assert samples["fivegates_route_breaker", ("route", "primary"), ("state", "open")] == 1
    assert samples["fivegates_route_breaker", ("route", "primary"), ("state", "closed")] == 0
    assert samples["fivegates_workflow_calls_total", ("result", "primary_success"),
                   ("workflow", "drill")] == 6
    assert samples["fivegates_route_in_flight", ("route", "backup1")] == 1
    for text in (done.stdout, shown, exposed):
        assert "planted" not in text


def test_a_card_that_is_not_the_programs(region: str) -> None:
    """Its routes are fresh, which is not well: the open breaker is another's."""
    card_file = pathlib.Path(region).parent / "card.json"
    other = json.loads(card_file.read_text())
    for route in other["routes"].values():
        route["model"] = "another"
    for contract in other.get("contracts", ()):
        contract["fingerprint"] = "auto"
    wrong = live(region, fivegates.Policy.loads(other, auto_fingerprint=True), other)
    assert wrong["attention"] == ["7 answers, and no attempt on a route of this card: it "
                                  "is not the card that the programs use; give theirs"]
    right = live(region, fivegates.Policy.load(str(card_file)), {})
    assert not any("not the card" in line for line in right["attention"])


def test_looking_changes_nothing(region: str) -> None:
    file = pathlib.Path(region + ".fg1")
    policy = fivegates.Policy.load(str(pathlib.Path(region).parent / "card.json"))
    before = live(region, policy, {})
    size = file.stat().st_size
    again = live(region, policy, {})
    assert size == file.stat().st_size
    for one, other in zip(before["routes"], again["routes"]):
        assert {**one, "open_for_ms": 0, "retry_tokens": 0} == {
            **other, "open_for_ms": 0, "retry_tokens": 0}
    assert before["workflows"] == again["workflows"]


def test_a_latched_key_asks_for_a_person(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "region"
    engine = fivegates.Engine(policy_of(card()), region=str(path))
    call = engine.begin("drill", prompt_tokens=10, max_output_tokens=10)
    call.begin_attempt()
    call.failure({"phase": "response", "status": 401, "body": "sk-planted"})
    (tmp_path / "card.json").write_text(json.dumps(card()))
    done = command("status", path, "--card", tmp_path / "card.json")
    assert "route primary: its key is refused" in done.stdout
    assert "planted" not in done.stdout


@pytest.mark.parametrize(["args", "said"], [
    (["nothing"], "no such region file"),
    (["region", "--procs", "8"], "--procs tells"),
    (["region", "--json", "--prometheus"], "two outputs"),
    (["."], ""),
])
def test_bad_input(args: "list[str]", said: str, tmp_path: pathlib.Path,
                   monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    engine = fivegates.Engine(policy_of(card()), region="region")
    (tmp_path / "card.json").write_text(json.dumps(card()))
    before = sorted(tmp_path.iterdir())
    done = command("status", *args, "--card", "card.json")
    assert done.returncode == 2 and said in done.stderr and done.stderr
    assert sorted(tmp_path.iterdir()) == before  # nothing was made
    assert engine.route("primary")["breaker"] == "closed"


def test_a_file_that_is_no_region_is_left_alone(tmp_path: pathlib.Path) -> None:
    wrong = tmp_path / "region.fg1"
    wrong.write_bytes(b"important" * 1000)
    (tmp_path / "card.json").write_text(json.dumps(card()))
    done = command("status", tmp_path / "region", "--card", tmp_path / "card.json")
    assert done.returncode == 2 and str(wrong) in done.stderr
    assert wrong.read_bytes() == b"important" * 1000
