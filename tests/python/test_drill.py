"""`fivegates drill`: its output in every form, bad input, goals, the report."""

from __future__ import annotations

import csv
import fcntl
import html.parser
import io
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import termios
import time
import xml.etree.ElementTree

import pytest

from fivegates import drill
from fivegates.drill import goals, table
from fivegates.drill.report import report_html
from fivegates.drill.svg import Line, bars, lines

from .conftest import ROOT
from .test_cli import cli

SHORT = {"seeds": 2, "phases": {"warm_s": 30, "fault_s": 60, "after_s": 30}}


def test_the_same_numbers_in_every_form(tmp_path: pathlib.Path) -> None:
    config = tmp_path / "short.json"
    config.write_text(json.dumps(SHORT))
    asked = ("drill", "--config", config, "--fault", "blackout", "--strategy", "naive",
             "--strategy", "fivegates")
    code, out, _ = cli(*asked, "--json")
    assert code == 0
    results = json.loads(out)
    assert [row["strategy"] for row in results["rows"]] == ["naive", "fivegates"]
    naive = results["rows"][0]["metrics"]
    assert naive["load"]["n"] == 2 and 1.9 < naive["load"]["mean"] <= 2
    assert naive["detected"] is None
    code, out, _ = cli(*asked, "--csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert float(rows[0]["load"]) == naive["load"]["mean"] and rows[0]["detected"] == ""
    assert float(rows[1]["useful"]) == results["rows"][1]["metrics"]["useful"]["mean"]
    code, out, _ = cli(*asked)
    assert out.splitlines()[0].split()[:3] == ["fault", "strategy", "load"]
    assert "…" not in out  # no cell is cut, however narrow the terminal
    assert f"seeds 1 to 2, config {results['config']}" in out


def test_a_seed_gives_the_same_bytes_and_another_seed_others() -> None:
    first = drill.run(SHORT, {"faults": ["trickle"]}, threads=1, pictures=True)
    again = drill.run(SHORT, {"faults": ["trickle"]}, threads=3, pictures=True)
    assert json.dumps(first) == json.dumps(again)
    other = drill.run(SHORT, {"faults": ["trickle"], "seed": 2})
    assert other["rows"][0]["metrics"] != first["rows"][0]["metrics"]


@pytest.mark.skipif(not (shutil.which("gcc") and shutil.which("clang")),
                    reason="needs two compilers")
def test_two_compilers_give_the_same_bytes(tmp_path: pathlib.Path) -> None:
    sources = [*sorted((ROOT / "core/drill").glob("*.c")),
               *(ROOT / name for name in (ROOT / "core/SOURCES").read_text().split())]
    includes = [f"-I{ROOT / 'core' / part}" for part in ("include", "src", "card", "drill")]
    # A sanitizer's library is for this process, not for a compiler.
    env = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    building = {cc: subprocess.Popen(
        [cc, "-std=c11", "-O0", "-D_GNU_SOURCE", *includes, *map(str, sources), "-lcjson",
         "-lm", "-lpthread", "-o", str(tmp_path / cc)], env=env) for cc in ("gcc", "clang")}
    assert [one.wait() for one in building.values()] == [0, 0]
    said = [subprocess.run([tmp_path / cc, "--json", "--pictures"], capture_output=True,
                           check=True, env=env).stdout for cc in building]
    assert said[0] == said[1] and b'"strategy":"fivegates"' in said[0]


def test_pictures_hold_every_request() -> None:
    results = drill.run(SHORT, {"faults": ["brownout"], "strategies": ["naive"],
                                "seeds": 1}, pictures=True)
    row = results["rows"][0]
    buckets = [dict(zip(drill.runs.BUCKET, one)) for one in row["buckets"]]
    assert len(buckets) == 120 / results["bucket_s"]
    in_fault = sum(one["requests"] or 0 for one in buckets[6:18])
    requests = row["metrics"]["requests"]
    assert requests is not None and in_fault == requests["mean"]
    assert all((one["useful"] or 0) <= (one["requests"] or 0) for one in buckets)


def test_progress_is_told_and_can_end_it() -> None:
    seen: "list[tuple[int, int]]" = []
    drill.run(SHORT, {"faults": ["none"], "strategies": ["plain"]},
              progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (2, 2)

    def stop(done: int, total: int) -> None:
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        drill.run({"seeds": 1000, "scale": 20}, progress=stop)


def test_ctrl_c_ends_it() -> None:
    with subprocess.Popen(
            [sys.executable, "-m", "fivegates", "drill", "--seeds", "1000", "--config", "/dev/stdin"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}) as process:
        assert process.stdin is not None and process.stderr is not None
        try:
            process.stdin.write(b'{"scale": 20}')
            process.stdin.flush()
            # It runs for hours. The signal comes once the command has read what it is to
            # run: a Python that still reads modules may lose one, in a callback's frame.
            until = time.monotonic() + 60
            while fcntl.ioctl(process.stdin, termios.FIONREAD, bytes(4)) != bytes(4):
                assert process.poll() is None and time.monotonic() < until
                time.sleep(0.02)
            process.stdin.close()
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 130
            assert b"Traceback" not in process.stderr.read()
        finally:
            process.kill()


@pytest.mark.parametrize("text, said", [
    ('{"population": {"a_per_s": -1}}', "population.a_per_s: must be a number from 0.001"),
    ('{"faults": ["meteor"]}', "faults[0]: no such fault; there are brownout"),
    ('{"sedes": 3}', "sedes: no such key"),
    ('{"seeds": 3, "seeds": 4}', "seeds: given twice"),
    ('{"seeds":\n 3,}', ":2:"),
    ('{"card": {"version": 1}}', "card.routes: this key is required"),
    ("", "the text"),
])
def test_a_bad_configuration_is_named(tmp_path: pathlib.Path, text: str, said: str) -> None:
    config = tmp_path / "bad.json"
    config.write_text(text)
    code, out, err = cli("drill", "--config", config)
    assert code == 2 and out == ""
    assert said in err and "Traceback" not in err
    if "card" not in text:
        assert str(config) in err


@pytest.mark.parametrize("args, said", [
    (["--fault", "meteor"], "--fault meteor: no such fault; there are brownout"),
    (["--strategy", "brave"], "--strategy brave: no such strategy"),
    (["--config", "nowhere.json"], "nowhere.json: No such file"),
    (["--seeds", "0"], "seeds: must be a whole number from 1 to 1000"),
    (["--goals", "--fault", "none"], "--goals has rigs"),
    (["--seeds", "1", "--fault", "none", "--report", "/nowhere/report.html"], "/nowhere/report.html: "),
])
def test_bad_options(args: "list[str]", said: str) -> None:
    code, _, err = cli("drill", *args)
    assert code == 2
    assert said in err and "Traceback" not in err


def test_another_card_in_yaml(tmp_path: pathlib.Path) -> None:
    card = tmp_path / "card.yaml"
    card.write_text("version: 1\nroutes:\n  primary: {provider: p, model: m}\n"
                    "workflows:\n  drill: {routes: [primary]}\n")
    code, out, _ = cli("drill", "--card", card, "--fault", "blackout", "--strategy",
                       "fivegates", "--seeds", "1", "--json")
    assert code == 0
    assert json.loads(out)["rows"][0]["metrics"]["useful"]["mean"] == 0
    card.write_text("version: 1\nroutes: {}\n")
    code, _, err = cli("drill", "--card", card)
    assert code == 2 and "card" in err and "Traceback" not in err


def test_the_names_of_the_faults() -> None:
    code, out, _ = cli("drill", "--faults")
    assert code == 0 and out.split() == drill.fault_names()
    results = drill.run(SHORT, {"faults": drill.fault_names(), "seeds": 1,
                                "phases": {"fault_s": 400}})
    assert len(results["rows"]) == 5 * len(drill.fault_names())


# ---- goals


def test_a_goal_is_reached_or_missed_by_so_much() -> None:
    load = goals.Check("rig", "blackout", "load", 1.03, 0.01, 1.02, False)
    useful = goals.Check("rig", "blackout", "useful", 99.9, 0.1, 99.5, True)
    never = goals.Check("rig", "blackout", "normal", None, 0.0, 10, False)
    assert not load.passed and load.margin == pytest.approx(-0.01)
    assert useful.passed and useful.margin == pytest.approx(0.4)
    assert not never.passed and never.margin is None
    assert table.missed([load, useful, never]) == [
        "rig, blackout: load is 1.03 (sd 0.01), must be at most 1.02, missed by 0.01",
        "rig, blackout: normal is never measured, must be at most 10"]


def test_goals_are_judged_against_other_strategies_too() -> None:
    rig = goals.Rig("r", {**SHORT, "spare": 0, "ladder": False}, {
        "blackout": {"useful": ("oracle", 0.5), "load": 9.0}})
    checks = goals.check_goals(2, 1, rigs=[rig])
    oracle = drill.run(rig.config, {"faults": ["blackout"], "strategies": ["oracle"]})
    measured = oracle["rows"][0]["metrics"]["useful"]
    assert measured is not None
    assert [one.metric for one in checks] == ["useful", "load"]
    assert checks[0].limit == pytest.approx(measured["mean"] / 2)
    assert checks[1].passed


def test_every_rig_can_be_run() -> None:
    # Short, and small where it is large: the goals themselves are judged elsewhere.
    rigs = [goals.Rig(rig.name, {**rig.config, **SHORT,
                                 **({"tenants": 20} if "tenants" in rig.config else {})},
                      rig.limits) for rig in goals.RIGS]
    checks = goals.check_goals(1, 1, rigs=rigs)
    assert len(checks) == sum(len(one) for rig in goals.RIGS for one in rig.limits.values())
    assert {one.rig for one in checks} == {rig.name for rig in goals.RIGS}


# ---- the report


class _Page(html.parser.HTMLParser):
    """Open tags, and whatever would be fetched from elsewhere."""

    void = ("meta", "br", "img", "link", "input")

    def __init__(self) -> None:
        super().__init__()
        self.open: "list[str]" = []
        self.outside: "list[str]" = []
        self.pictures = 0

    def handle_starttag(self, tag: str, attrs: "list[tuple[str, str | None]]") -> None:
        self.outside += [f"{tag} {name}" for name, _ in attrs if name in ("src", "href")]
        self.outside += [tag] if tag in ("script", "link", "img", "iframe") else []
        self.pictures += tag == "svg"
        if tag not in self.void:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: "list[tuple[str, str | None]]") -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_report_stands_alone(tmp_path: pathlib.Path) -> None:
    config, report = tmp_path / "short.json", tmp_path / "report.html"
    config.write_text(json.dumps({**SHORT, "faults": ["brownout", {
        "name": "mine", "effects": [{"errors": 0.5}]}]}))
    code, _, err = cli("drill", "--config", config, "--report", report)
    assert code == 0 and str(report) in err
    page = _Page()
    page.feed(report.read_text())
    assert page.open == [] and page.outside == []
    assert page.pictures == 2 * 4 + 1 + 2 * 2
    assert "<td>mine</td>" in report.read_text()
    assert "NaN" not in report.read_text() and "None" not in report.read_text()


def test_one_picture_of_all_faults(tmp_path: pathlib.Path) -> None:
    config, picture = tmp_path / "short.json", tmp_path / "drill.svg"
    config.write_text(json.dumps({**SHORT, "faults": ["brownout", "blackout"],
                                  "strategies": ["naive", "fivegates"]}))
    code, _, err = cli("drill", "--config", config, "--picture", picture)
    assert code == 0 and str(picture) in err
    root = xml.etree.ElementTree.fromstring(picture.read_text())
    drawn = [one for one in root.iter("{http://www.w3.org/2000/svg}rect")
             if one.get("class", "").startswith("bar")]
    assert len(drawn) == 2 * 2 * 2  # metrics, faults, strategies


def test_answers_by_spare_capacity(tmp_path: pathlib.Path) -> None:
    config = tmp_path / "short.json"
    config.write_text(json.dumps({"faults": ["blackout"], "strategies": ["oracle"],
                                  "ladder": False, "phases": {"fault_s": 300}}))
    code, out, _ = cli("drill", "--config", config, "--sensitivity", "--seeds", "1")
    lines_of = [line.split() for line in out.splitlines()]
    assert code == 0 and lines_of[0][2:] == ["s=0", "s=0.25", "s=0.5", "s=0.75", "s=1", "s=1.25"]
    answers = [float(value) for value in lines_of[1][2:]]
    assert answers == sorted(answers) and answers[0] < 50 and answers[-1] > 99
    code, _, err = cli("drill", "--sensitivity", "--spare", "1")
    assert code == 2 and "--sensitivity goes without" in err


def test_nothing_answered_is_a_gap_in_a_line() -> None:
    picture = lines("t", [Line("naive", "naive <b>", [(0, 1), (1, None), (2, 9)])], 4, 2, [(0, "0")])
    path = picture[picture.index(' d="') + 4:].split('"')[0]
    assert path.count("M") == 2 and "L" not in path  # two points, no line between
    assert "naive &lt;b&gt;" in picture and "<b>" not in picture
    assert path.split("M")[2].split()[1] == "24.0"  # over the top is cut at the top
    assert bars("t", [("g", [("naive", 50.0)])], 100, "%").count("<rect") == 1


def test_a_report_of_an_empty_span_is_no_error() -> None:
    results = drill.run({"phases": {"warm_s": 0, "fault_s": 1, "after_s": 0},
                         "population": {"a_per_s": 0.001}, "faults": ["none"]}, pictures=True)
    assert "</html>" in report_html(results, {0.0: results, 1.0: results})
