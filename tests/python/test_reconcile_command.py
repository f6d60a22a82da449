"""The command `fivegates reconcile`: its outputs agree, its errors have no
traceback, and a ledger the engine wrote is read."""

from __future__ import annotations

import csv
import json
import pathlib
import re
import shutil
import typing

import pytest

import fivegates
from fivegates.reconcile import reconcile
from fivegates.testing import ManualClock

from .conftest import CARD, ROOT, UNIX_MS
from .test_cli import cli

SAMPLES = ROOT / "tests" / "billing" / "samples"
BILLS = [word for name in ("openrouter_activity.csv", "openai_usage_completions_1m.json",
                           "openai_costs_1d.json", "bedrock_model_invocation_log.jsonl",
                           "aws_cur2_bedrock.csv", "azure_cost_export.csv")
         for word in ("--bill", str(SAMPLES / name))]


def command(*words: object) -> "tuple[int, str, str]":
    return cli("reconcile", *map(str, words))


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> "dict[str, typing.Any]":
    folder = tmp_path_factory.mktemp("out")
    code, out, err = command(SAMPLES / "ledger.jsonl", *BILLS, "--json", "--csv", folder / "f.csv",
                             "--html", folder / "f.html", "--learned", folder / "l.json")
    assert (code, err) == (0, "")
    return {"json": json.loads(out), "csv": (folder / "f.csv").read_text(),
            "html": (folder / "f.html").read_text(), "page": folder / "f.html",
            "learned": json.loads((folder / "l.json").read_text())}


def test_all_outputs_say_the_same(outputs: "dict[str, typing.Any]") -> None:
    found = outputs["json"]["findings"]
    assert [one["call"] for one in found] == ["or-2", "or-3", "oa-2", "bk-2", "az-2"]
    rows = list(csv.DictReader(outputs["csv"].splitlines()))
    assert [(row["call"], row["wasted_hi"], row["confidence"]) for row in rows] == [
        (one["call"], one["wasted_hi"], one["confidence"]) for one in found]
    assert outputs["learned"] == outputs["json"]["learned"]
    money = outputs["json"]["money"]["USD"]
    assert f"at least {money['wasted_at_least']} (certain)" in outputs["html"]
    for one in found:
        assert f"<td >{one['call']}</td>" in outputs["html"]
        assert one["wasted_hi"] in outputs["html"]
    code, text, _ = command(SAMPLES / "ledger.jsonl", *BILLS)
    assert code == 0
    for word in ("or-2", "0.0191275", money["wasted_at_most"], "not covered: no export of anthropic"):
        assert word in text


def test_nothing_told_is_not_nothing_wasted(tmp_path: pathlib.Path) -> None:
    """Exports of another provider than the ledger's: what is missing, and why."""
    lines = (SAMPLES / "ledger.jsonl").read_text().splitlines()
    alone = tmp_path / "l.jsonl"
    alone.write_text("\n".join(one for one in lines if '"openrouter"' not in one) + "\n")
    bill = SAMPLES / "openrouter_activity.csv"
    code, text, _ = command(alone, "--bill", bill)
    assert code == 0 and "nothing wasted" not in text
    assert "USD: what was wasted is not known" in text
    assert "those given are of openrouter (a route's provider in the card is who" in text
    assert "is not known" not in command(SAMPLES / "ledger.jsonl", "--bill", bill)[1]


def test_words_stay_whole_where_there_is_no_terminal() -> None:
    text = command(SAMPLES / "ledger.jsonl", *BILLS)[1]
    row, = [line for line in text.splitlines() if line.startswith(" or-3 ")]
    assert "_charge " in row and "openrouter " in row


def test_the_page_needs_nothing_else(outputs: "dict[str, typing.Any]") -> None:
    assert "http" not in outputs["html"].replace("http-equiv", "")
    assert outputs["html"].count("<svg") == 1
    # The bars of the picture are the amounts of the report.
    titles = re.findall(r"<title>(\w+): ([\d.]+) USD</title>", outputs["html"])
    spans = outputs["json"]["money"]["USD"]["wasted_by_provider"]
    assert sorted(titles) == sorted((word, spans[name][word][1]) for name in spans for word in spans[name])


def test_names_on_the_page_are_text(tmp_path: pathlib.Path) -> None:
    text = (SAMPLES / "ledger.jsonl").read_text().replace('"or-2"', '"<b>or-2"')
    (tmp_path / "l").write_text(text)
    assert command(tmp_path / "l", "--bill", SAMPLES / "openrouter_activity.csv",
                   "--html", tmp_path / "p")[0] == 0
    page = (tmp_path / "p").read_text()
    assert "&lt;b&gt;or-2" in page and "<b>" not in page


def test_bad_input_exits_2_without_a_traceback(tmp_path: pathlib.Path) -> None:
    wrong = [SAMPLES / "ledger.jsonl", "--bill", SAMPLES / "EXPECTED.json"]
    code, _, err = command(*wrong)
    assert code == 2 and "no known export has these keys" in err
    code, out, _ = command(*wrong, "--json")
    assert code == 2 and "no known export" in json.loads(out)["error"]["message"]
    code, _, err = command(SAMPLES / "ledger.jsonl", *BILLS, "--as-of", "soon")
    assert code == 2 and "--as-of: TIME is 'soon', which is no time; write it as 2026-" in err
    code, _, err = command(SAMPLES / "ledger.jsonl", *BILLS, "--csv", tmp_path / "no" / "x")
    assert code == 2 and "name a file that can be written" in err
    assert command(SAMPLES / "ledger.jsonl")[0] == 2  # no --bill


def test_only_one_key_counts(tmp_path: pathlib.Path) -> None:
    text = (SAMPLES / "openrouter_activity.csv").read_text()
    lines = text.splitlines(keepends=True)
    lines[1] = lines[1].replace("ledger-prod", "other-key")  # the foreign row
    (tmp_path / "b.csv").write_text("".join(lines))
    _, out, _ = command(SAMPLES / "ledger.jsonl", "--bill", tmp_path / "b.csv",
                        "--key", "ledger-prod", "--json")
    report = json.loads(out)
    assert report["not_in_ledger"] == []
    assert report["money"]["USD"]["billed"]["openrouter"]["amount"] == "0.074285"


class Ledger:
    def __init__(self) -> None:
        self.lines: "list[str]" = []

    def write(self, line: str) -> None:
        self.lines.append(line + "\n")


@pytest.mark.parametrize("known", ["response_id", "request_id", ""])
def test_a_ledger_of_the_engine(tmp_path: pathlib.Path, known: str) -> None:
    """The core's own lines, and a bill: the first send timed out and was billed.
    What the provider called it makes a likely charge a certain one."""
    card = json.loads(json.dumps(CARD))
    card["routes"]["main"]["provider"] = "openrouter"
    (tmp_path / "card.json").write_text(json.dumps(card))
    policy = fivegates.Policy.loads(card, auto_fingerprint=True)
    clock = ManualClock(unix_ms=UNIX_MS)
    engine = fivegates.Engine(policy, clock=clock, seed=1)
    ledger = Ledger()
    call = engine.begin("bare", prompt_tokens=1000, max_output_tokens=500, stream=False)
    ledger.write(call.ledger_line("call"))
    ledger.write(call.ledger_line("decision", call.decision))
    for last in (False, True):
        permit = call.begin_attempt()
        assert permit.action == "proceed"
        ledger.write(call.ledger_line("decision", permit))
        call.event("sent")
        clock.advance(4000)
        decision = (call.success(prompt_tokens=1003, output_tokens=37) if last
                    else call.failure({"status": 502, "phase": "response"}))
        ids: typing.Any = {known: f"gen-{permit.attempt}"} if known else {}
        ledger.write(call.ledger_line("decision", decision, **ids))
        assert decision.action == ("accept" if last else "retry")
        clock.advance(decision.wait_ms)
    ledger.write(call.ledger_line("end", decision))
    (tmp_path / "l").write_text("".join(ledger.lines))
    (tmp_path / "b.csv").write_text(
        "generation_id,created_at,cost_total,tokens_prompt,tokens_completion,model_permaslug\n"
        "gen-0,2026-11-29 00:00:00,0.1,7,7,x/m1\n"
        "gen-1,2026-11-30 00:53:20,0.0031,1003,60,x/m1\n"
        "gen-2,2026-11-30 00:53:25,0.0029,1003,37,x/m1\n"
        "gen-9,2026-11-30 12:00:00,0.1,7,7,x/m1\n")
    with reconcile([str(tmp_path / "l")], [str(tmp_path / "b.csv")], as_of_ms=UNIX_MS + 86_400_000) as report:
        ledger_facts = report.summary["ledger"]
        assert (ledger_facts["attempts"], ledger_facts["served"], ledger_facts["in_question"]) == (2, 1, 1)
        assert ledger_facts["policies"] == {policy.fingerprint: 1}
        one, = report.findings()
        assert one["call"] == call.id
        assert (one["confidence"], one["wasted_lo"], one["wasted_hi"]) == (
            "certain" if known else "probable", "0.0031", "0.0031")
        assert (one["route"], one["workflow"], one["attempts"]) == ("main", "bare", [1])


def test_the_first_pages_command(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """README and docs/reconcile.md, as they are written."""
    shutil.copy(SAMPLES / "ledger.jsonl", tmp_path / "calls.jsonl")
    shutil.copy(SAMPLES / "openrouter_activity.csv", tmp_path)
    monkeypatch.chdir(tmp_path)
    for name in ("README.md", "docs/reconcile.md"):
        line, = re.findall(r"^fivegates (reconcile .*)$", (ROOT / name).read_text(encoding="utf-8"), re.M)
        code, out, err = cli(*line.split())
        assert (code, err) == (0, "")
        assert "at least 0.00827 (certain), probably 0.0273975" in out
        assert "What failures cost" in pathlib.Path("cost.html").read_text()
        pathlib.Path("cost.html").unlink()


def test_the_log_that_any_program_can_write(tmp_path: pathlib.Path) -> None:
    page = (ROOT / "docs" / "reconcile.md").read_text(encoding="utf-8")
    lines, = re.findall(r"```json\n(.*?)```", page, re.S)
    (tmp_path / "log").write_text(lines)
    with reconcile([str(tmp_path / "log")], [str(SAMPLES / "openrouter_activity.csv")]) as report:
        facts = report.summary["ledger"]
        assert (facts["attempts"], facts["in_question"], facts["attempts_without_their_lines"]) == (1, 1, 0)


def test_a_cards_prices(tmp_path: pathlib.Path) -> None:
    """The card of the ledger prices what an export has no money for."""
    card = {"version": 1, "routes": {"main": {
        "provider": "fireworks", "model": "glm", "price": {"input": 2, "output": "0.5"}}},
        "workflows": {"w": {"routes": ["main"]}}}
    (tmp_path / "card.yaml").write_text(json.dumps(card))
    policy = fivegates.Policy.loads(card)
    head = {"v": 1, "now_ms": 1, "workflow": "w", "call": "c", "step": 0, "policy": policy.fingerprint}
    at = UNIX_MS
    lines = [
        {"line": "call", **head, "unix_ms": at, "prompt_tokens": 1000, "gen_ai.request.max_tokens": 500},
        {"line": "decision", **head, "unix_ms": at, "gen_ai.provider.name": "fireworks",
         "gen_ai.request.model": "glm", "billing": "none", "tokens": 1500, "held_usd": "0",
         "action": "proceed", "route": "main", "attempt": 1, "kind": "unknown"},
        {"line": "decision", **head, "unix_ms": at + 5000, "billing": "possible", "tokens": 1500,
         "action": "fail_closed", "route": None, "attempt": 1, "kind": "read_timeout"},
        {"line": "end", **head, "unix_ms": at + 5000}]
    (tmp_path / "l").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "b.csv").write_text(
        "start_time,end_time,base_model_name,prompt_tokens,completion_tokens\n"
        "2026-11-30 00:53:21 UTC,2026-11-30 00:53:40 UTC,glm,1010,100\n")
    words = ["reconcile", tmp_path / "l", "--bill", tmp_path / "b.csv", "--json", "--as-of", "2026-12-09T00:00:00Z"]
    _, out, _ = cli(*words, "--card", tmp_path / "card.yaml")
    one, = json.loads(out)["findings"]
    # Only the estimate of the prompt is known: it may be somebody else's.
    assert (one["verdict"], one["confidence"]) == ("orphan_charge", "possible")
    assert (one["wasted_lo"], one["wasted_hi"]) == ("0", "0.00207")
    assert json.loads(out)["money"]["USD"]["wasted"]["possible"] == ["0", "0.00207"]
    card["routes"]["main"]["model"] = "other"  # type: ignore[index]
    (tmp_path / "card.yaml").write_text(json.dumps(card))
    code, _, err = cli(*words[:-3], "--card", tmp_path / "card.yaml")
    assert code == 2 and "--card has the fingerprint" in err
