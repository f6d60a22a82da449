"""The command `fivegates`: exit codes, and errors that say what to do."""

from __future__ import annotations

import io
import json
import pathlib
import re
import subprocess
import sys
import typing

import pytest

from fivegates.__main__ import main

from .conftest import CARD, ROOT

YAML = """\
version: 1
routes:
  main: {provider: openai, model: gpt-4o, account: a}
  backup: {provider: azure-openai, model: gpt-4o, account: b}
workflows:
  w:
    routes: [main, backup]
"""
CURL_429 = """\
HTTP/1.1 429 Too Many Requests\r
content-type: application/json\r
retry-after: 2\r
\r
{"error": {"message": "Rate limit reached", "type": "requests", "code": "rate_limit_exceeded"}}
"""


def cli(*args: "str | pathlib.Path", stdin: str = "") -> "tuple[int, str, str]":
    """The command's exit code, output and errors, without a process each."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    given = io.TextIOWrapper(io.BytesIO(stdin.encode()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["fivegates", *map(str, args)])
        patch.setattr(sys, "stdin", given)
        patch.setattr(sys, "stdout", out)
        patch.setattr(sys, "stderr", err)
        patch.setenv("COLUMNS", "200")
        try:
            main()
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else 0
    return code, out.getvalue(), err.getvalue()


@pytest.fixture
def yaml_card(tmp_path: pathlib.Path) -> pathlib.Path:
    file = tmp_path / "card.yaml"
    file.write_text(YAML)
    return file


def test_version_and_help() -> None:
    assert cli("--version")[0] == 0
    code, out, _ = cli("--help")
    assert code == 0
    for command in ("check", "classify", "explain", "vectors", "schema"):
        assert command in out
    assert "Exit codes" in out
    assert cli("nope")[0] == 2


def test_a_process_of_its_own() -> None:
    done = subprocess.run([sys.executable, "-m", "fivegates", "classify", "-"],
                          input="{", capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("fivegates: -:1: not JSON")
    assert "Traceback" not in done.stderr


def test_the_installed_command(yaml_card: pathlib.Path) -> None:
    command = pathlib.Path(sys.executable).with_name("fivegates")
    if not command.exists():
        pytest.skip("the package is not installed, only importable")
    done = subprocess.run([command, "check", yaml_card], capture_output=True,
                          text=True, check=False)
    assert done.returncode == 0


def test_check(yaml_card: pathlib.Path,
               monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    code, out, err = cli("check", yaml_card)
    assert code == 0, err
    assert "1 workflow, 2 routes, sha256:" in out
    assert re.search(r"w +backup +not_approved +sha256:[0-9a-f]{64}$", out, re.M)
    assert f"warning: {yaml_card}:7: workflows.w.routes[1]" in out
    assert cli("check", "--strict", yaml_card)[0] == 1
    code, out, err = cli("check", "--json", yaml_card)
    assert code == 0
    assert json.loads(out)["workflows"]["w"]["routes"] == ["main", "backup"]
    assert "no contract" in err
    assert cli("check", "-", stdin=YAML)[0] == 0
    assert cli("check", "-", stdin=json.dumps({
        key: value for key, value in CARD.items() if key != "contracts"}))[0] == 0


@pytest.mark.parametrize("text, words", [
    ("version: 1\nfoo: 2\n", ":2:1: foo: "),
    ("version: 1\nroutes: [\n", "card.yaml:3"),
    ("version: 1\nversion: 1\n", "duplicate_key"),
    ("version: 1\nroutes:\n\tmain: {}\n", "indent with spaces"),
    ("version: 1\nroutes:\n  main: {}\n\tmore: {}\n", "indent with spaces"),
    ("", "the card is empty"),
    ("{", "syntax"),
    ("version: 1\nroutes: {a: {provider: x, model: m}}\nworkflows: {w: {routes: [b]}}\n",
     "workflows.w.routes[0]"),
])
def test_check_errors(tmp_path: pathlib.Path, text: str, words: str) -> None:
    file = tmp_path / "card.yaml"
    file.write_text(text)
    code, out, err = cli("check", file)
    assert (code, out) == (2, "")
    assert str(file) in err
    assert words in err
    code, out, err = cli("check", "--json", file)
    assert code == 2
    assert json.loads(out)["error"]["code"]


@pytest.mark.parametrize("since, until, word", [
    ("2019-01-01", "2100-01-01T00:00:00Z", "approved"),
    ("2019-01-01", "2100-01-01", "approved"),
    ("2019-01-01", "2020-01-01T00:00:00+02:00", "contract_expired"),
    ("2019-01-01", "2020-01-01", "contract_expired"),
    ("2099-01-01", "2100-01-01", "no_wall_clock")])
def test_check_knows_the_date(tmp_path: pathlib.Path, since: str, until: str,
                              word: str) -> None:
    card = json.loads(json.dumps(CARD))
    contract = card["contracts"][0]
    contract["evidence"].update(expires_at=until, measured_at=since)
    contract["fingerprint"] = "sha256:" + "0" * 64
    file = tmp_path / "card.json"
    file.write_text(json.dumps(card))
    # The policy's own stands first, the contract's in the table.
    contract["fingerprint"] = re.findall(
        r"sha256:[0-9a-f]{64}$", cli("check", file)[1], re.M)[-1]
    file.write_text(json.dumps(card))
    assert re.search(rf"w +backup +{word} ", cli("check", file)[1])


def test_missing_files(tmp_path: pathlib.Path) -> None:
    none = tmp_path / "none"
    for args in (("check", none), ("classify", none), ("vectors", none),
                 ("explain", none, "--workflow", "w", none)):
        code, _, err = cli(*args)
        assert code == 2
        assert f"{none}: " in err
    assert cli("check", tmp_path)[0] == 2


def test_classify(tmp_path: pathlib.Path) -> None:
    lines = [{"id": "a", "provider": "openai", "status": 503,
              "phase": "response", "expect": {"owner": "transient"}},
             {"id": "b", "status": 400, "phase": "response",
              "expect": {"owner": "rate"}, "alt_owners": ["quota"]}]
    file = tmp_path / "f.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)) + "\n\n")
    code, out, _ = cli("classify", file)
    assert code == 0
    got = [json.loads(line) for line in out.splitlines()]
    assert [one["id"] for one in got] == ["a", "b"]
    assert got[0]["owner"] == "transient"
    assert {"kind", "class", "overload", "trips_breaker", "retry_after_ms",
            "billed", "commit", "scope", "repair"} <= set(got[0])
    code, out, _ = cli("classify", "--score", file)
    assert code == 0
    assert "owner           1/2" in out
    assert "miss b: owner: expected rate, got" in out
    code, out, _ = cli("classify", "--score", "--json", file)
    assert json.loads(out)["right"]["owner"] == 1
    assert cli("classify", "-", stdin=json.dumps(lines[0]))[0] == 0


def test_classify_errors(tmp_path: pathlib.Path, yaml_card: pathlib.Path) -> None:
    for text, words in (('{"status": 1}\n{', ":2: not JSON"),
                        ("[]", ":1: not an object"),
                        ('{"status": "x"}', ":1: status must be an int"),
                        ('{"nope": 1}', ":1: evidence has no key 'nope'")):
        file = tmp_path / "f.jsonl"
        file.write_text(text)
        code, _, err = cli("classify", file, "--card", yaml_card)
        assert code == 2
        assert words in err
    file.write_bytes(b'{"id": "\xff"}')
    assert "UTF-8" in cli("classify", file)[2]


def test_explain(yaml_card: pathlib.Path) -> None:
    code, out, err = cli("explain", yaml_card, "-", "--workflow", "w",
                         stdin=CURL_429)
    assert code == 0, err
    assert "rate: rate_limited" in out
    for gate in ("owner", "commit", "budget", "contract", "health"):
        assert gate in out
    assert "=> retry on main" in out
    code, out, _ = cli("explain", yaml_card, "-", "--workflow", "w", "--json",
                       stdin=json.dumps({"phase": "response", "status": 401,
                                         "id": "x", "expect": {}}))
    assert code == 0
    told = json.loads(out)
    assert told["failure"]["owner"] == "auth"
    assert told["decision"]["action"] == "fail_closed"
    code, out, _ = cli("explain", yaml_card, "-", "--workflow", "w",
                       stdin='{"phase": "response", "status": 503}')
    assert out.startswith("transient: unavailable\n")  # nothing more is known


def test_explain_curl_forms(yaml_card: pathlib.Path) -> None:
    verbose = ("* Trying 1.2.3.4...\n> POST /v1 HTTP/1.1\n< HTTP/2 503 \n"
               "< content-type: text/html\n< \n<html>busy</html>\n")
    two = "HTTP/1.1 100 Continue\r\n\r\n" + CURL_429
    refused = "curl: (7) Failed to connect to api.example.com port 443"
    late = "curl: (28) Operation timed out after 60001 milliseconds with 0 bytes received"
    for text, owner in ((verbose, "transient"), (two, "rate"),
                        (refused, "transient"), (late, "transient")):
        code, out, err = cli("explain", yaml_card, "-", "--workflow", "w",
                             stdin=text)
        assert code == 0, err
        assert out.startswith(owner), out


def test_explain_errors(yaml_card: pathlib.Path) -> None:
    for text, words in (("", "nothing was pasted"), ("hello", "no status line"),
                        ("{", "broken"), ('{"error": {}}', "curl -i"),
                        ('{"nope": 1}', "no key 'nope'")):
        code, _, err = cli("explain", yaml_card, "-", "--workflow", "w",
                           stdin=text)
        assert code == 2
        assert words in err
    code, _, err = cli("explain", yaml_card, "-", "--workflow", "nope",
                       stdin=CURL_429)
    assert code == 2
    assert "no workflow 'nope'" in err


def test_vectors(tmp_path: pathlib.Path) -> None:
    card: "dict[str, typing.Any]" = {
        "version": 1, "routes": {"main": {"provider": "openai", "model": "m"}},
        "workflows": {"w": {"routes": ["main"]}}}
    step = {"at_ms": 0, "op": "begin", "call": "c", "in": {"workflow": "w"}}
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "good.json").write_text(json.dumps({"cases": [
        {"name": "good", "policy": card, "steps": [step]}]}))
    code, out, _ = cli("vectors", tmp_path, "--dump", tmp_path / "dump.txt")
    assert (code, out) == (0, "1 passed, 0 failed\n")
    dump = (tmp_path / "dump.txt").read_text()
    name, where, answer = dump.rstrip("\n").split("\t")
    assert (name, where) == ("good", "0")
    assert json.loads(answer)["action"] == "proceed"
    (tmp_path / "bad.json").write_text(json.dumps({"cases": [
        {"name": "bad", "policy": card,
         "steps": [{**step, "expect": {"action": "x"}}]}]}))
    code, out, _ = cli("vectors", tmp_path)
    assert code == 1
    assert out.endswith("1 passed, 1 failed\n")
    assert 'step 0 begin: action: expected "x", got "proceed"' in out
    code, out, _ = cli("vectors", "--json", tmp_path)
    assert json.loads(out)["failed"] == 1
    assert cli("vectors", tmp_path, "--dump", tmp_path)[0] == 2


def test_schema() -> None:
    code, out, err = cli("schema")
    assert code == 0, err
    schema = json.loads(out)
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.Draft202012Validator.check_schema(schema)
    good = {key: value for key, value in CARD.items() if key != "contracts"}
    jsonschema.validate(good, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**good, "foo": 1}, schema)


def test_the_demo_card() -> None:
    card = ROOT / "examples" / "demo" / "card.yaml"
    code, out, _ = cli("check", card)
    assert code == 0
    assert "not_approved" not in out


@pytest.mark.parametrize("args, words", [
    (("show",), "Missing argument"), (("show", "card.yaml", "--nwo", "x"), "No such option"),
    (("approve", "card.yaml", "--json"), "Missing option"),
    (("verify", "card.yaml", "--days", "0"), "--days"),
    (("show", "none.yaml"), "No such file")])
def test_a_mistake_in_the_arguments_is_json_too(args: "tuple[str, ...]", words: str) -> None:
    code, out, err = cli("contract", *args, *(() if "--json" in args else ("--json",)))
    assert code == 2 and words in json.loads(out)["error"]["message"], out
    assert err


def test_a_name_that_the_locale_cannot_write(tmp_path: pathlib.Path,
                                             monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "card.yaml"
    file.write_text(YAML.replace("backup", "zw\u00f6lf"), encoding="utf-8")
    for more, words in (((), b"zw?lf"), (("--json",), b"zw\\u00f6lf")):
        out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
        monkeypatch.setattr(sys, "argv", ["fivegates", "contract", "show", str(file), *more])
        monkeypatch.setattr(sys, "stdout", out)
        with pytest.raises(SystemExit) as stop:
            main()
        assert stop.value.code == 1
        out.flush()
        raw = typing.cast(io.BytesIO, out.buffer).getvalue()
        assert words in raw, raw
