"""`fivegates gauntlet`: its reports and its errors; and its page's example."""

from __future__ import annotations

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as xml

import pytest

from fivegates.gauntlet import read_plan
from fivegates.gauntlet.plan import STANDARD, Limits
from fivegates.provider import FAULTS, read_script
from fivegates.provider.settings import read_text

from .conftest import ROOT
from .test_cli import cli

pytest.importorskip("h11")
if os.environ.get("FIVEGATES_SANITIZE"):
    pytest.skip("nothing of the library is in it", allow_module_level=True)

ASK = """
import os, sys, urllib.request
def ask(text="Hello."):
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions",
        b'{"messages": [{"role": "user", "content": "%s"}]}' % text.encode(),
        {"Content-Type": "application/json"})
    return urllib.request.urlopen(request, timeout=2).read()
"""


def gauntlet(code: str, *options: "str | pathlib.Path") -> "tuple[int, str, str]":
    """The command on a program of Python; exit code, output, errors."""
    return cli("gauntlet", *options, "--", sys.executable, "-S", "-c", ASK + code)


def test_reports(tmp_path: pathlib.Path) -> None:
    page, junit = tmp_path / "r.html", tmp_path / "r.xml"
    code, out, err = gauntlet(
        "try: print(ask('<b>'))\nexcept Exception as e: sys.exit(f'failed: {e}')",
        "--fault", "server_error_once", "--fault", "refusal", "--fault",
        "tool_then_error", "--json", "--report", page, "--junit", junit)
    assert code == 0, out + err
    got = json.loads(out)
    assert got["passed"] and got["skipped"] == ["tool_then_error"]
    assert got["healthy"]["requests"] == 1 and not got["healthy"]["tools"]
    assert [(one["fault"], one["result"]) for one in got["faults"]] == [
        ("server_error_once", "error 1"), ("refusal", "answered")]
    assert got["faults"][0]["requests"][0]["status"] == 500
    assert "failed: HTTP Error 500" in got["faults"][0]["program"]["stderr"]
    text = page.read_text()
    assert text.count("<section") == 2 and text.count("<svg") == 2
    assert "It passes." in text
    for outside in ("http://", "https://", "<script", "<link", "url("):
        assert outside not in text, outside
    suite = xml.parse(junit).getroot()
    assert [suite.get(name) for name in ("tests", "failures", "skipped")] == [
        "3", "0", "1"]


def test_a_failure(tmp_path: pathlib.Path) -> None:
    page, junit = tmp_path / "r.html", tmp_path / "r.xml"
    code, out, _ = gauntlet(
        "for i in range(9):\n  try: ask(); sys.exit()\n  except OSError: pass\n"
        "sys.exit('\\x07 <&')", "--fault", "blackout", "--report", page,
        "--junit", junit)
    assert code == 1
    assert re.search(r"blackout +FAILED +error 1 +9.0 +9", out)
    assert "9 requests for one user request, 5 allowed; 9 tries of the client" in out
    assert "0 of 1 faults survived" in out
    failure, = xml.parse(junit).getroot().iter("failure")
    assert failure.get("type") == "fan_out"
    text = page.read_text()
    assert "It fails under 1 of 1 faults." in text and "&lt;&amp;" in text
    assert " <&" not in text


@pytest.mark.parametrize("code, options, words", [
    ("print('hello')", [], "sent nothing to http://127.0.0.1:"),
    ("print('hello')", [], "  | hello"),
    ("ask(); sys.exit(4)", [], "fails without any fault: exit code 4"),
    ("urllib.request.urlopen(urllib.request.Request(os.environ["
     "'OPENAI_BASE_URL'] + '/embeddings', b'{}'))", [],
     "it asked for POST /v1/embeddings"),
    ("ask()\nwhile 1: print('x' * 9999)", ["output_mib: 1"], "more than 1 MiB"),
    ("import time; ask(); time.sleep(60)", ["wait_s: 0.5"], "the gauntlet needs one "
     "that asks and then ends"),
])
def test_programs_that_cannot_be_judged(
        tmp_path: pathlib.Path, code: str, options: "list[str]",
        words: str) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text("limits: {%s}\nfaults: [cut]\n" % ", ".join(options))
    exit_code, out, err = gauntlet(code, "--plan", plan)
    assert (exit_code, out) == (2, "")
    assert words in err


def test_a_run_that_is_not_judged_leaves_reports_as_they_were(
        tmp_path: pathlib.Path) -> None:
    page, junit = tmp_path / "r.html", tmp_path / "r.xml"
    page.write_text("yesterday's")
    code, _, _ = gauntlet("print('hello')", "--fault", "cut", "--report", page,
                          "--junit", junit)
    assert code == 2
    assert page.read_text() == "yesterday's" and not junit.exists()


def test_an_answer_of_its_own_to_what_nobody_can_read() -> None:
    """Broken framing lets no word through: it is no cut answer believed."""
    code, out, _ = gauntlet(
        "try: ask()\nexcept Exception: print('Sorry.')", "--fault", "bad_chunk")
    assert code == 0 and re.search(r"bad_chunk +passed +own answer", out), out
    assert "`admits`" in out


def test_admissions_must_tell(tmp_path: pathlib.Path) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text("admits: hello\nfaults: [cut]\n")
    code, _, err = gauntlet("ask(); print('hello')", "--plan", plan)
    assert code == 2 and "when all is well" in err


@pytest.mark.parametrize("args, words", [
    ([], "name a program after --"),
    (["--", "/nowhere/program"], "/nowhere/program does not start: No such file"),
    (["--", "python app.py"], "as words of their own"),
    (["--fault", "cutt", "--", "true"], "did you mean cut?"),
    (["--plan", "/nowhere", "--", "true"], "/nowhere: No such file"),
    (["--report", "/nowhere/r.html", "--", "true"], "/nowhere/r.html: No such"),
])
def test_bad_options(args: "list[str]", words: str) -> None:
    code, out, err = cli("gauntlet", *args)
    assert (code, out) == (2, "")
    assert words in err and "Traceback" not in err


def test_the_list() -> None:
    code, out, _ = cli("gauntlet", "--list")
    assert code == 0 and all(f"\n{one.name} " in out for one in STANDARD)


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_interrupted(tmp_path: pathlib.Path, sent: signal.Signals) -> None:
    """Nothing that was started is left, also when it runs under a fault."""
    file = tmp_path / "pids"
    code = (f"open({str(file)!r}, 'a').write(f'{{os.getpid()}}\\n')\nask()\n"
            "import time\nif open(%r).read().count('\\n') > 1: time.sleep(60)"
            % str(file))
    with subprocess.Popen(
            [sys.executable, "-m", "fivegates", "gauntlet", "--fault", "brownout",
             "--", sys.executable, "-c", ASK + code], stderr=subprocess.PIPE,
            text=True) as process:
        while not file.exists() or file.read_text().count("\n") < 2:
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(sent)
        _, err = process.communicate(timeout=10)
    assert process.returncode == 130 and "interrupted" in err
    assert "Traceback" not in err
    for pid in file.read_text().split():
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid), 0)


# ---- the pages


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def test_the_example_of_the_page(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("openai")
    text = page("gauntlet.md")
    code, = re.findall(r"```python\n(.*?)```", text, re.S)
    command, = re.findall(r"```sh\n(.*?)```", text, re.S)
    told, = re.findall(r"```\n\n((?:    .*\n)+)", text.partition("```sh")[2])
    (tmp_path / "app.py").write_text(code)
    words = command.split()
    done = subprocess.run(
        [sys.executable, "-m", *words[:-2], sys.executable, "app.py"],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1 and (tmp_path / "gauntlet.html").exists()
    lines = done.stdout.splitlines()
    for line in told.splitlines():  # numbers differ from run to run
        wanted = re.split(r"  +", line.strip())
        assert any(re.split(r"  +", one.strip())[:len(wanted)] == wanted
                   for one in lines), (wanted, done.stdout)


def test_the_pages_name_everything() -> None:
    text = page("gauntlet.md")
    plan, = re.findall(r"```yaml\n(.*?)```", text, re.S)
    assert [one.name for one in read_plan(read_text(plan)).trials] == [
        "cut", "rate_limited", "two bad starts", "blackout"]
    defaults = dict(re.findall(r"^\| `(\w+)`[^|]*\| ([\d.]+) \|$", text, re.M))
    limits = {name: f"{getattr(Limits(), name):g}"
              for name in Limits.__dataclass_fields__}
    assert {**defaults, "wait_s": "60", "run_s": "600"} == limits
    assert "| `wait_s`, `run_s` | 60, 600 |" in text
    first = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"under each of {len(STANDARD)} faults" in first
    script, = re.findall(r"```yaml\n(.*?)```", page("provider.md"), re.S)
    assert len(read_script(read_text(script)).phases) == 3
    for name in re.findall(r"`(brown\w+|black\w+|rate\w+|trickle)`",
                           page("provider.md")):
        assert name in FAULTS
