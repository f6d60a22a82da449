"""fivegates report: a ledger as numbers and as a page."""

from __future__ import annotations

import collections
import decimal
import html.parser
import json
import os
import pathlib
import shutil
import subprocess

import pytest

from fivegates.status import report

from .replay_rig import Json, Program, card, drill
from .test_status import command

WORDS = ("primary_success", "retry_recovery", "fallback_recovery", "degraded",
         "failed_closed", "queued", "cancelled")


@pytest.fixture
def ledger(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "calls.jsonl"
    Program(path, seed=2)
    return path


def lines_of(path: pathlib.Path) -> "list[Json]":
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_sums_are_those_of_the_lines(ledger: pathlib.Path) -> None:
    """Counted another way: by the end lines, and attempt by attempt."""
    found = report([str(ledger)]).summary
    lines = lines_of(ledger)
    ends = [one for one in lines if one["line"] == "end"]
    prior = {one["call"]: decimal.Decimal(one["cost_usd"]) for one in lines
             if one.get("after") == "begin"}
    total = found["total"]
    assert total["calls"] == len(ends) == sum(total["results"].values())
    results = collections.Counter(one["result"] for one in ends)
    assert total["results"] == {word: results[word] for word in WORDS}
    assert decimal.Decimal(total["cost_usd"]) == sum(
        decimal.Decimal(one["cost_usd"]) - prior[one["call"]] for one in ends)
    assert sum(one["attempts"] for one in found["routes"].values()) == sum(
        one["attempts"] for one in ends)
    spent = sum(decimal.Decimal(one["answers_usd"]) + decimal.Decimal(one["wasted_at_most_usd"])
                for one in found["routes"].values())
    assert spent == decimal.Decimal(total["cost_usd"])
    # what nobody has told is held, and only that is between least and most
    waste = found["waste"]
    assert decimal.Decimal(waste["at_most_usd"]) - decimal.Decimal(waste["at_least_usd"]) \
        == decimal.Decimal(total["held_usd"])
    alerts = [alert for one in lines if one["line"] == "decision" for alert in one["alert"]]
    assert sum(one["times"] for one in found["alerts"]) == len(alerts)
    assert {one["alert"] for one in found["alerts"]} == set(alerts)
    pieces: "collections.Counter[str]" = collections.Counter()
    for one in found["pieces"]["pieces"]:
        pieces.update({word: one.get(word, 0) for word in WORDS})
    assert dict(pieces) == total["results"]


class _Cells(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.rows: "list[list[str]]" = []
        self.inside = False

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag == "tr":
            self.rows.append([])
        self.inside = tag in ("td", "th")
        if self.inside:
            self.rows[-1].append("")

    def handle_data(self, data: str) -> None:
        if self.inside and self.rows:
            self.rows[-1][-1] += data

    def handle_endtag(self, tag: str) -> None:
        self.inside = False


def test_the_page_says_what_the_json_says(ledger: pathlib.Path,
                                          tmp_path: pathlib.Path) -> None:
    page = tmp_path / "day.html"
    done = command("report", ledger, "--html", page, "--json")
    found = json.loads(done.stdout)
    text = page.read_text(encoding="utf-8")
    cells = _Cells()
    cells.feed(text)
    rows = {row[0]: row for row in cells.rows}
    flow, total = rows["drill"], found["workflows"]["drill"]
    assert flow[1:-2] == [str(one) for one in (
        total["calls"], *(total["results"][word] for word in WORDS),
        total["unfinished"], total["cost_usd"], total["held_usd"])]
    for name, one in found["routes"].items():
        assert rows[name][2:] == [str(one[key]) for key in (
            "attempts", "answered", "failed", "lost", "answers_usd",
            "wasted_at_least_usd", "wasted_at_most_usd")]
    for alert in found["alerts"]:
        assert any(row[0] == alert["alert"].replace("_", " ")
                   and row[-1] == str(alert["times"]) for row in cells.rows)
    said = command("report", ledger).stdout.splitlines()
    assert all(line in text for line in said)
    whole, less = found["total"]["answered"], found["total"]["results"]["degraded"]
    assert less and f"{whole - less} of {found['total']['calls']} calls were answered in full" in said[0]
    assert f"{less} by the ladder" in said[0]
    assert f"{found['total']['held_usd']} of them held" in said[1]
    # the picture's pieces: each its number
    for word, count in (("primary", total["results"]["primary_success"]),
                        ("failed closed", total["results"]["failed_closed"])):
        assert f"<title>{word}: {count}</title>" in text
    assert "http" not in text.replace("http-equiv", "") and "<script" not in text


def test_the_page_opens_in_a_browser(ledger: pathlib.Path, tmp_path: pathlib.Path) -> None:
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser is None:
        pytest.skip("no chromium")
    page = tmp_path / "day.html"
    command("report", ledger, "--html", page)
    done = subprocess.run(
        [browser, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr",
         f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", page.as_uri()],
        # A sanitizer's library is for this process, not for a browser.
        env={name: value for name, value in os.environ.items() if name != "LD_PRELOAD"},
        capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    assert done.stdout.count("<svg") == 3 and "calls were answered in full" in done.stdout
    assert "CONSOLE" not in done.stderr


def test_no_secret_in_any_output(ledger: pathlib.Path, tmp_path: pathlib.Path) -> None:
    page = tmp_path / "day.html"
    said = command("report", ledger, "--html", page, "--json")
    for text in (ledger.read_text(), said.stdout, said.stderr, page.read_text(),
                 command("report", ledger).stdout):
        assert text and "planted" not in text


def test_names_are_text_on_the_page(tmp_path: pathlib.Path) -> None:
    spec = card()
    spec["workflows"] = {"<b>&\"drill": spec["workflows"]["drill"]}
    spec["contracts"] = []
    spec["workflows"]["<b>&\"drill"]["ladder"] = []
    path, page = tmp_path / "l.jsonl", tmp_path / "p.html"
    Program(path, calls=20, spec={**card()})
    path.write_text(path.read_text().replace('"workflow":"drill"',
                                             '"workflow":"<b>&\\"drill"'))
    command("report", path, "--html", page)
    assert "<b>" not in page.read_text() and "&lt;b&gt;&amp;&quot;drill" in page.read_text()


def test_one_day_of_it(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "l.jsonl"
    Program(path, calls=20)
    other = path.read_text().replace("17960832", "17961696")  # the next day
    path.write_text(path.read_text() + other.replace('"call":"fg-', '"call":"fh-'))
    both = report([str(path)]).summary
    assert both["total"]["calls"] == 40
    days = [json.loads(command("report", path, "--json", "--day", day).stdout)
            for day in ("2026-12-01", "2026-12-02")]
    assert [one["total"]["calls"] for one in days] == [20, 20]
    assert days[0]["total"]["cost_usd"] == days[1]["total"]["cost_usd"]
    none = command("report", path, "--day", "2026-12-03")
    assert none.returncode == 2 and "no call on 2026-12-03" in none.stderr
    bad = command("report", path, "--day", "yesterday")
    assert bad.returncode == 2 and "2026-12-01" in bad.stderr


def test_a_broken_ledger_is_told_of(ledger: pathlib.Path, tmp_path: pathlib.Path) -> None:
    lines = ledger.read_text().splitlines()
    at = next(i for i, line in enumerate(lines) if '"line":"end"' in line)
    name = json.loads(lines[at])["call"]
    ledger.write_text("\n".join([*lines[1:at], *lines[at + 1:]]) + "\n" + lines[5][:30])
    page = tmp_path / "p.html"
    found = json.loads(command("report", ledger, "--json", "--html", page).stdout)
    assert found["total"]["unfinished"] + (name == json.loads(lines[0])["call"]) == 1
    assert found["broken"]["torn_at"] == [f"{ledger}:{len(lines) - 1}"]
    assert found["broken"]["lines_without_call"] > 0
    assert f"{ledger}:{len(lines) - 1}" in page.read_text()
    wrong = tmp_path / "x.csv"
    wrong.write_text("a,b\n1,2\n")
    done = command("report", wrong)
    assert done.returncode == 2 and f"{wrong}:1" in done.stderr


def test_a_drills_ledger(tmp_path: pathlib.Path) -> None:
    """Event lines are no calls; a breaker's opening is an alert of its route."""
    path = drill(tmp_path / "l.jsonl", "blackout", card())
    found = report([path]).summary
    assert found["total"]["unfinished"] == 0 and found["total"]["answered"] > 300
    assert any(one["alert"] == "breaker_opened" for one in found["alerts"])
    assert found["routes"]["primary"]["kinds"].keys() == {"server_error"} or \
        "unavailable" in found["routes"]["primary"]["kinds"]
