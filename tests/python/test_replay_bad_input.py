"""Ledgers that are torn, cut, mixed or none: told with their places, and never
in a total; and the command around it."""

from __future__ import annotations

import contextlib
import io
import json
import pathlib
import random
import sys
import typing

import pytest

from fivegates.cli import run
from fivegates.reconcile.ledgers import LedgerFacts, read_ledgers
from fivegates.replay import ReplayError, check, survey
from fivegates.replay.forecast import forecast

from .replay_rig import UNIX_MS, Json, Program, card, drill, policy_of

SECRETS = ("planted", "sk-")


class Files(typing.NamedTuple):
    ledger: pathlib.Path
    card: pathlib.Path
    other: pathlib.Path

    def lines(self) -> "list[str]":
        return self.ledger.read_text().splitlines()

    def write(self, lines: "list[str]", end: str = "\n") -> None:
        self.ledger.write_text("\n".join(lines) + end)


@pytest.fixture
def files(tmp_path: pathlib.Path) -> Files:
    out = Files(tmp_path / "calls.jsonl", tmp_path / "card.json",
                tmp_path / "other.json")
    Program(out.ledger, seed=3, calls=60)
    out.card.write_text(json.dumps(card()))
    out.other.write_text(json.dumps(card(retry_bucket={"cap": 5})))
    return out


class Done(typing.NamedTuple):
    returncode: int
    stdout: str
    stderr: str


def replay(*args: object) -> Done:
    """The command, in this process."""
    out, err, before = io.StringIO(), io.StringIO(), sys.argv
    sys.argv = ["fivegates", "replay", *map(str, args)]
    code: object = 0
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            run()
    except SystemExit as exc:
        code = exc.code
    finally:
        sys.argv = before
    return Done(code if isinstance(code, int) else 0, out.getvalue(), err.getvalue())


def numbered(files: Files, word: str, **members: object) -> int:
    """Line number of the first line of this kind with these members."""
    for number, line in enumerate(files.lines(), 1):
        facts = json.loads(line)
        if facts["line"] == word and all(
                facts.get(key) == value for key, value in members.items()):
            return number
    raise LookupError(word)


def test_whole(files: Files) -> None:
    done = replay(files.ledger, "--card", files.card, "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["kind"] == "check" and report["check"]["exact"]
    assert report["ledger"]["from"] == "2026-12-01T00:00:00Z"
    assert UNIX_MS == 1_796_083_200_000
    shown = replay(files.ledger, "--card", files.card).stdout
    assert f"{report['check']['decisions']} of {report['check']['decisions']} decisions" in shown


def test_forecast_and_its_own_error(files: Files) -> None:
    done = replay(files.ledger, "--card", files.other, "--old", files.card, "--json")
    report = json.loads(done.stdout)
    assert done.returncode == 0 and report["kind"] == "forecast"
    assert report["forecast"]["own_error"]["calls"] == 60
    assert report["differences"] == [
        line for line in report["differences"] if line.startswith("retry_bucket.cap")]
    same = json.loads(replay(files.ledger, "--card", files.card, "--what-if",
                             "retry_bucket.cap=5", "--json").stdout)
    assert same["forecast"] == report["forecast"]
    shown = replay(files.ledger, "--card", files.other, "--old", files.card).stdout
    total = report["forecast"]["total"]
    for word in ("recorded", "forecast"):
        assert total[word]["cost_usd"] in shown


def test_no_secret_in_any_output(files: Files) -> None:
    assert not any(word in files.ledger.read_text() for word in SECRETS)
    for args in ([], ["--json"], ["--what-if", "retry_bucket.cap=5"],
                 ["--what-if", "retry_bucket.cap=5", "--json"]):
        done = replay(files.ledger, "--card", files.card, *args)
        assert done.stdout
        assert not any(word in done.stdout + done.stderr for word in SECRETS)


def test_torn_at_the_end(files: Files) -> None:
    """A crash in the middle of a line: the call is unfinished, in no total."""
    lines = files.lines()
    files.write([*lines[:-1], lines[-1][:40]], end="")
    seen = survey([str(files.ledger)])
    assert seen.torn_places == [f"{files.ledger}:{len(lines)}"]
    assert len(seen.broken) == 1 and "no end" in (seen.broken[0].broken or "")
    assert len(forecast(seen, policy_of(card())).fates) == 59
    shown = replay(files.ledger, "--card", files.card).stdout
    assert f"{files.ledger}:{len(lines)}" in shown


@pytest.mark.parametrize(["word", "members", "said"], [
    ("call", {"step": 0}, "began before the ledger"),
    ("decision", {"after": "begin"}, "its first decision is missing"),
    ("decision", {"after": "begin_attempt", "action": "proceed"}, "permit of the attempt"),
    ("decision", {"after": "success", "action": "accept"}, "last attempt is missing"),
    ("end", {}, "no end"),
])
def test_a_missing_line_takes_its_call_out(
        word: str, members: Json, said: str, files: Files) -> None:
    number = numbered(files, word, **members)
    lines = files.lines()
    name = json.loads(lines[number - 1])["call"]
    files.write(lines[:number - 1] + lines[number:])
    seen = survey([str(files.ledger)])
    assert name not in {call.begin["call"] for call in seen.whole}
    assert len(seen.whole) == 59
    done = replay(files.ledger, "--card", files.card)
    assert said in done.stdout, done.stdout
    assert f"{files.ledger}:" in done.stdout
    report = json.loads(replay(files.ledger, "--card", files.other, "--json").stdout)
    assert report["forecast"]["total"]["calls"] == 59


@pytest.mark.parametrize(["text", "said"], [
    ("", "no call in it"),
    ("hello\n", "calls.jsonl:1: no line of it is a ledger's"),
    ('{"a": 1}\n', "calls.jsonl:1: not a line of this engine's ledger"),
    ('{"line": "call", "v": 2, "call": "a"}\n', "calls.jsonl:1: a ledger of version 2"),
    ('{"line": "call", "v": 1, "call": "a"}\n', "calls.jsonl:1: a ledger's line without its member 'now_ms'"),
    ('\x00\xff\n' * 3, "no line of it is a ledger's"),
    ("[1]\n", "no line of it is a ledger's"),
    ("[" * 100_000 + "\n", "no line of it is a ledger's"),
])
def test_no_ledger(text: str, said: str, files: Files) -> None:
    files.ledger.write_text(text, encoding="latin-1")
    done = replay(files.ledger, "--card", files.card)
    assert done.returncode == 2 and said in done.stderr
    assert "Traceback" not in done.stderr


def test_an_older_ledger_is_told_of(files: Files) -> None:
    """One without what a replay needs, by an earlier version of the engine."""
    lines = files.lines()
    old = json.loads(lines[0])
    for key in ("began_ms", "region_age_ms"):
        del old[key]
    files.write([json.dumps(old), *lines[1:]])
    done = replay(files.ledger, "--card", files.card)
    assert done.returncode == 2
    assert f"{files.ledger}:1" in done.stderr and "older version" in done.stderr


@pytest.mark.parametrize(["args", "said"], [
    (["--what-if", "retry_bucket.caps=5"], "no such key here"),
    (["--what-if", "retry_bucket.cap"], "write it as retry_bucket.cap=5"),
    (["--what-if", "retry_bucket.cap.x=1", "--what-if", "retry_bucket.cap=2"], "retry_bucket.cap"),
    (["--what-if", "workflows.drill.ladder.9.text=x"], "holds no keys"),
    (["--what-if", "=5"], "not a change"),
])
def test_bad_changes(args: "list[str]", said: str, files: Files) -> None:
    done = replay(files.ledger, "--card", files.card, *args)
    assert done.returncode == 2 and said in done.stderr
    assert "Traceback" not in done.stderr


def test_the_old_card_must_be_the_ledgers(files: Files) -> None:
    third = files.card.parent / "third.json"
    third.write_text(json.dumps(card(retry_bucket={"cap": 7})))
    done = replay(files.ledger, "--card", files.other, "--old", third)
    assert done.returncode == 2
    assert done.stderr.startswith(f"fivegates: {files.ledger}:1: decided by sha256:")
    missing = replay(files.ledger, "--card", files.card.parent / "none.yaml")
    assert missing.returncode == 2 and "none.yaml: " in missing.stderr
    gone = replay(files.ledger.parent / "gone.jsonl", "--card", files.card)
    assert gone.returncode == 2 and "name a ledger that can be read" in gone.stderr


def test_a_workflow_the_new_card_does_not_have(files: Files) -> None:
    new = json.loads(json.dumps(card()))
    new["workflows"] = {"other": new["workflows"]["drill"]}
    new["contracts"] = []
    files.other.write_text(json.dumps(new))
    report = json.loads(replay(files.ledger, "--card", files.other, "--json").stdout)
    assert report["forecast"]["total"]["calls"] == 0
    assert any("60 calls of the workflow drill" in one
               for one in report["forecast"]["cannot_tell"])


def test_a_difference_is_exit_code_1(files: Files) -> None:
    number = numbered(files, "decision", after="failure")
    lines = files.lines()
    lines[number - 1] = lines[number - 1].replace('"gate":"', '"gate":"x')
    files.write(lines)
    done = replay(files.ledger, "--card", files.card)
    assert done.returncode == 1 and f"{files.ledger}:{number}: decision: gate" in done.stdout


def test_mutated_ledgers_never_break_it(files: Files) -> None:
    """Bytes changed anywhere: an answer or an error with a place, no traceback."""
    rng = random.Random(5)
    raw = files.ledger.read_bytes()
    policy = policy_of(card())
    for _ in range(60):
        text = bytearray(raw)
        for _ in range(rng.randrange(1, 6)):
            at = rng.randrange(len(text))
            kind = rng.randrange(3)
            if kind == 0:
                text[at] = rng.choice(b'0123456789{}",:nul-[]')
            elif kind == 1:
                del text[at:at + rng.randrange(1, 400)]
            else:
                text[at:at] = text[at:at + rng.randrange(1, 2000)]
        files.ledger.write_bytes(text)
        try:
            seen = survey([str(files.ledger)])
            forecast(seen, policy)
            check(seen, {policy.fingerprint: policy})
        except ReplayError as exc:
            assert str(exc).startswith(f"{files.ledger}")


def test_reconcile_reads_a_ledger_with_event_lines(tmp_path: pathlib.Path) -> None:
    """The drill's: what came of an attempt is no attempt."""
    path = drill(tmp_path / "l.jsonl", "short", card())
    rows = list(read_ledgers([path], LedgerFacts([path]), lambda _: None))
    seen = survey([path])
    assert len(rows) == sum(len(call.attempts) for call in seen.calls)
