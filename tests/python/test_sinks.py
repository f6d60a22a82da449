"""Ledgers in files and in the log: what a failing or killed one does."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import pathlib
import subprocess
import sys
import typing

import pytest

import fivegates
from fivegates.ledger import FileLedger, LedgerError, ListLedger, Sink, Tee
from fivegates.sinks.log import LoggingLedger
from fivegates.sinks.rotating import RotatingFileLedger

from .test_runner import BAD, BUSY, Rig

SEND = '{"line":"decision","action":"proceed"}'
END = '{"line":"end"}'


@pytest.fixture
def rig(card: "dict[str, typing.Any]") -> Rig:
    return Rig(card)


def python(code: str, *args: object) -> str:
    """Runs a program of its own with the package under test."""
    folder = pathlib.Path(fivegates.__file__).parent.parent
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, args)], capture_output=True,
        text=True, check=False, env={**os.environ, "PYTHONPATH": str(folder)})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def every_line(path: pathlib.Path) -> "list[str]":
    """All lines of a rotated ledger, oldest first."""
    old = sorted(path.parent.glob(path.name + ".*"),
                 key=lambda one: -int(one.suffix[1:]))
    text = "".join(one.read_text() for one in [*old, path] if one.exists())
    assert text.endswith("\n")
    return text.splitlines()


# ---- files

def test_a_torn_line_spoils_no_other(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "ledger"
    with FileLedger(path) as ledger:
        ledger.write("1")
        with path.open("a") as other:
            other.write('{"torn')
        ledger.write("2")
        ledger.write("3")
    assert path.read_text() == '1\n{"torn\n2\n3\n'


def test_a_moved_file_is_begun_anew(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "ledger"
    with FileLedger(path, sync=True) as ledger:
        ledger.write("1")
        path.rename(tmp_path / "away")
        ledger.write("2")
        path.unlink()
        ledger.write("3")
    assert (tmp_path / "away").read_text() == "1\n"
    assert path.read_text() == "3\n"


def test_chdir_moves_no_ledger(tmp_path: pathlib.Path,
                               monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path)
    with RotatingFileLedger("ledger", max_bytes=3) as ledger:
        ledger.write("1")
        monkeypatch.chdir(tmp_path / "other")
        ledger.write("2")
    assert (tmp_path / "ledger").read_text() == "2\n"
    assert (tmp_path / "ledger.1").read_text() == "1\n"


@pytest.mark.parametrize("name", ["missing/ledger", "."])
def test_cannot_be_opened(tmp_path: pathlib.Path, name: str) -> None:
    with pytest.raises(LedgerError, match="cannot open the ledger /.*; name a"):
        FileLedger(tmp_path / name)


def test_a_failing_ledger_does_not_break_the_call(
        rig: Rig, tmp_path: pathlib.Path,
        caplog: pytest.LogCaptureFixture) -> None:
    """The directory goes away; it is told once, counted, and comes back."""
    folder = tmp_path / "logs"
    folder.mkdir()
    ledger = FileLedger(folder / "ledger")
    (folder / "ledger").unlink()
    folder.rmdir()
    assert rig.run(rig.fake("a"), ledger=ledger) == "a"
    assert rig.run(rig.fake("a"), ledger=ledger) == "a"
    told = [one.getMessage() for one in caplog.records]
    assert len(told) == 1
    assert "No such file or directory" in told[0]
    assert str(folder / "ledger") in told[0]
    assert ledger.lost == 10
    folder.mkdir()
    assert rig.run(rig.fake("a"), ledger=ledger) == "a"
    assert len((folder / "ledger").read_text().splitlines()) == 5
    assert ledger.lost == 10
    ledger.close()
    ledger.write(END)
    assert ledger.lost == 11
    assert "closed" in caplog.records[-1].getMessage()


@pytest.mark.parametrize("loop", ["run", "arun"])
def test_strict_sends_nothing_that_is_not_written(
        rig: Rig, tmp_path: pathlib.Path, loop: str) -> None:
    ledger = FileLedger(tmp_path / "ledger", strict=True)
    send = rig.fake("answer")
    ledger.close()
    drive = getattr(rig, loop)
    with pytest.raises(LedgerError, match="nothing is sent: .*closed"):
        drive(send if loop == "run" else send.asend, ledger=ledger)
    assert send.attempts == []
    seen = rig.engine.route("main")
    assert (seen["in_flight"], seen["failures"]) == (0, 0)
    assert rig.engine.workflow("w")["spent_today_nusd"] == 0


def test_strict_keeps_an_answer_that_is_there(rig: Rig,
                                              tmp_path: pathlib.Path) -> None:
    ledger = FileLedger(tmp_path / "ledger", strict=True)

    def send(attempt: fivegates.Attempt) -> str:
        ledger.close()
        return "answer"

    assert rig.run(send, ledger=ledger) == "answer"
    assert ledger.lost == 2
    # The second permission of a call is stopped as the first is.
    other = FileLedger(tmp_path / "other", strict=True)

    def busy(attempt: fivegates.Attempt) -> str:
        other.close()
        raise BUSY

    with pytest.raises(LedgerError):
        rig.run(busy, ledger=other)
    assert rig.engine.route("main")["in_flight"] == 0
    assert rig.engine.route("backup")["in_flight"] == 0


def test_the_permission_is_held_until_written(rig: Rig) -> None:
    """The plan was written, the permission was not: its money is given back."""
    class Second(Sink):
        def _carry(self, line: str) -> None:
            if '"held_usd"' in line:
                raise OSError("full")

    send = rig.fake("answer")
    with pytest.raises(LedgerError):
        rig.run(send, ledger=Second(strict=True))
    assert send.attempts == []
    assert rig.engine.workflow("w")["spent_today_nusd"] == 0
    assert rig.engine.route("main")["in_flight"] == 0


def test_disk_full_leaves_no_torn_line(tmp_path: pathlib.Path) -> None:
    """The kernel takes the beginning of a line, then no more."""
    path = tmp_path / "ledger"
    told = python("""
import resource, signal, sys
from fivegates.ledger import FileLedger
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
ledger = FileLedger(sys.argv[1])
ledger.write("a" * 59)
resource.setrlimit(resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))
ledger.write("b" * 59)
assert ledger.lost == 1, ledger.lost
ledger.write("c" * 29)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
ledger.write("d" * 59)
assert ledger.lost == 1
""", path)
    assert told == ""
    assert path.read_text() == "\n".join(
        ["a" * 59, "c" * 29, "d" * 59]) + "\n"
    full = FileLedger("/dev/full", strict=True)
    with pytest.raises(LedgerError, match="No space left"):
        full.write(SEND)
    full.close()


def test_a_stopped_writer_stops_nobody(tmp_path: pathlib.Path,
                                       monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fivegates.ledger._PATIENCE_S", 0.01)
    path = tmp_path / "ledger"
    ledger = FileLedger(path)
    with path.open("a") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        ledger.write("1")
        ledger.write("2")
        assert ledger.lost == 2
        fcntl.flock(other, fcntl.LOCK_UN)
        ledger.write("3")
    ledger.close()
    assert path.read_text() == "3\n"


def test_a_fork_in_the_middle_of_a_line(tmp_path: pathlib.Path) -> None:
    """A thread of the parent is writing; the child writes all the same, and
    does not hold the parent's turn."""
    path = tmp_path / "ledger"
    python("""
import os, signal, sys, threading
from fivegates.ledger import FileLedger

class Slow(FileLedger):
    def _append(self, text, here):
        if text == b"slow\\n":
            inside.set()
            go_on.wait()
        super()._append(text, here)

inside, go_on = threading.Event(), threading.Event()
ledger = Slow(sys.argv[1])
thread = threading.Thread(target=ledger.write, args=("slow",))
thread.start()
inside.wait()
r, w = os.pipe()
pid = os.fork()
if pid == 0:
    signal.alarm(20)        # if it waits for ever
    ledger.write("child")   # waits its turn: the parent's line goes first
    os._exit(ledger.lost)
go_on.set()
thread.join()
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
""", path)
    assert path.read_text() == "slow\nchild\n"


# ---- rotation

def test_rotates_by_size(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "ledger"
    with RotatingFileLedger(path, max_bytes=10, keep=3) as ledger:
        for n in range(9):
            ledger.write(f"{n:04}")  # two fit
        assert every_line(path) == [f"{n:04}" for n in range(2, 9)]
        ledger.write("x" * 50)       # fits nowhere: a file of its own
        ledger.write("last")
        assert (tmp_path / "ledger.1").read_text() == "x" * 50 + "\n"
    assert sorted(one.name for one in tmp_path.iterdir()) == [
        "ledger", "ledger.1", "ledger.2", "ledger.3"]


def test_rotates_by_age(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "ledger"
    with RotatingFileLedger(path, max_age_s=86400) as ledger:
        ledger.write("old")
        ledger.write("old, too")
        when = path.stat().st_mtime - 86400
        os.utime(path, (when, when))
        ledger.write("new")
        ledger.write("new, too")
    assert path.read_text() == "new\nnew, too\n"
    assert (tmp_path / "ledger.1").read_text() == "old\nold, too\n"


def test_a_clock_set_back_rotates_nothing(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "ledger"
    with RotatingFileLedger(path, max_age_s=3600) as ledger:
        ledger.write("1")
        when = path.stat().st_mtime + 90000
        os.utime(path, (when, when))
        ledger.write("2")
    assert path.read_text() == "1\n2\n"


def test_a_gap_is_filled_first(tmp_path: pathlib.Path) -> None:
    """What a rotation killed in the middle left costs no file."""
    path = tmp_path / "ledger"
    (tmp_path / "ledger.1").write_text("b\n")
    (tmp_path / "ledger.3").write_text("a\n")
    with RotatingFileLedger(path, max_bytes=2, keep=3) as ledger:
        ledger.write("c")
        ledger.write("d")
        assert every_line(path) == ["a", "b", "c", "d"]
        ledger.write("e")
        assert every_line(path) == ["b", "c", "d", "e"]


def test_where_no_file_can_be_renamed(tmp_path: pathlib.Path,
                                      caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "ledger"
    (tmp_path / "ledger.1").mkdir()
    (tmp_path / "ledger.1" / "full").touch()
    with RotatingFileLedger(path, max_bytes=2, keep=1) as ledger:
        for text in ("1", "2", "3"):
            ledger.write(text)
        assert ledger.lost == 0
    assert path.read_text() == "1\n2\n3\n"
    told, = [one.getMessage() for one in caplog.records]
    assert "cannot be rotated and grows on" in told


@pytest.mark.parametrize("limits", [{}, {"max_bytes": 0}, {"max_age_s": -1},
                                    {"max_bytes": 1, "keep": 0}])
def test_limits_are_checked(tmp_path: pathlib.Path,
                            limits: "dict[str, int]") -> None:
    with pytest.raises(fivegates.ArgumentError, match="max_bytes|max_age_s|keep"):
        RotatingFileLedger(tmp_path / "ledger", **limits)
    assert list(tmp_path.iterdir()) == []


KILLS = 60
WORKERS = """
import json, mmap, os, random, signal, struct, sys, time
from fivegates import ledger as ledgers
from fivegates.sinks.rotating import RotatingFileLedger

ledgers._PATIENCE_S = 60                     # a slow machine loses no line
path, kills = sys.argv[1], int(sys.argv[2])
said = mmap.mmap(-1, 8 * (kills + 4))        # outlives whoever wrote it

def work(me):
    ledger = RotatingFileLedger(path, max_bytes=40000, keep=100000)
    dice = random.Random(me)
    n = 0
    while True:
        n += 1
        ledger.write(json.dumps({"w": me, "n": n,
                                 "pad": "x" * dice.randrange(12000)}))
        struct.pack_into("q", said, 8 * me, n)
        assert ledger.lost == 0

def start(me):
    pid = os.fork()
    if pid == 0:
        try:
            work(me)
        finally:
            os._exit(1)
    return pid

dice = random.Random(7)
live = [start(me) for me in range(4)]
try:
    for me in range(4, kills + 4):
        while struct.unpack_from("q", said, 8 * (me - 4))[0] < 5:
            assert os.waitpid(live[0], os.WNOHANG) == (0, 0), "has ended"
            time.sleep(0.0005)
        time.sleep(dice.uniform(0, 0.01))
        victim = live.pop(0)
        os.kill(victim, signal.SIGKILL)
        _, status = os.waitpid(victim, 0)
        assert os.WIFSIGNALED(status), status
        live.append(start(me))
finally:
    for pid in live:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
print(json.dumps([struct.unpack_from("q", said, 8 * me)[0]
                  for me in range(kills + 4)]))
"""


def test_a_torn_line_that_is_put_away_spoils_no_other(tmp_path: pathlib.Path) -> None:
    """Read in their order, as one text, or each by itself."""
    path = tmp_path / "ledger"
    with RotatingFileLedger(path, max_bytes=10) as ledger:
        ledger.write("1")
        with path.open("a") as other:
            other.write('{"torn')
        ledger.write("234567")
    assert every_line(path) == ["1", '{"torn', "234567"]
    assert path.with_suffix(".1").read_text() == '1\n{"torn\n'
    assert path.read_text() == "234567\n"


def test_rotation_under_kill_9(tmp_path: pathlib.Path) -> None:
    """Of what a worker wrote only the line it was killed in may be missing,
    and nobody else's is torn by it."""
    path = tmp_path / "ledger"
    said = json.loads(python(WORKERS, path, KILLS))
    assert min(said[:KILLS]) >= 5
    seen: "dict[int, list[int]]" = {me: [] for me in range(len(said))}
    torn = 0
    FileLedger(path).write("{}")  # ends what the last one left
    for line in every_line(path):
        try:
            one = json.loads(line)
        except ValueError:
            torn += 1
            continue
        if one:
            seen[one["w"]].append(one["n"])
    assert torn <= len(said)
    for me, count in enumerate(said):
        # Written, but killed before it could say so: one more.
        assert seen[me] in (list(range(1, count + 1)),
                            list(range(1, count + 2))), me
    assert len(list(tmp_path.glob("ledger.*"))) > 10


# ---- the log, several at once

def test_levels_and_extras(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "fivegates.calls")
    assert rig.run(rig.fake(BUSY, "answer"), ledger=LoggingLedger()) == "answer"
    with pytest.raises(fivegates.Refused):
        rig.run(rig.fake(BAD), ledger=LoggingLedger())
    records = caplog.records
    assert [one.levelname for one in records] == [
        "DEBUG", "DEBUG", "DEBUG", "WARNING", "DEBUG", "DEBUG", "INFO",
        "DEBUG", "DEBUG", "DEBUG", "ERROR", "INFO"]
    again = records[3]
    facts: "dict[str, typing.Any]" = vars(again)
    assert facts["fivegates_action"] == "retry"
    assert facts["fivegates_gen_ai_provider_name"] == "openai"
    assert facts["fivegates_wait_ms"] > 0
    text = again.getMessage()
    assert "w fg-" in text and ": retry main in " in text
    assert records[2].getMessage().endswith("sends to main, attempt 1")
    assert "retry_recovery by main, 2 requests" in records[6].getMessage()


def test_an_alert_is_an_error(caplog: pytest.LogCaptureFixture) -> None:
    facts = {"line": "decision", "workflow": "w", "call": "c", "route": "b",
             "ladder_step": None,
             "action": "fallback", "reason": "key_rejected", "wait_ms": 0,
             "kind": "bad_key", "alert": ["key_latched"]}
    LoggingLedger().write(json.dumps(facts))
    record, = caplog.records
    assert record.levelname == "ERROR"
    assert record.getMessage().endswith("(bad_key); alert: key_latched")


def test_a_broken_line_is_a_lost_one(caplog: pytest.LogCaptureFixture) -> None:
    ledger = LoggingLedger(logging.getLogger("mine"))
    ledger.write("no JSON")
    assert ledger.lost == 1
    assert "the logger mine cannot be written" in caplog.text


def test_tee(rig: Rig, tmp_path: pathlib.Path) -> None:
    """All get each line; a strict one still stops the send."""
    both = ListLedger(), ListLedger()
    assert rig.run(rig.fake("a"), ledger=Tee(*both)) == "a"
    assert both[0].lines == both[1].lines
    assert len(both[0].lines) == 5
    strict = FileLedger(tmp_path / "ledger", strict=True)
    strict.close()
    after = ListLedger()
    send = rig.fake("a")
    with pytest.raises(LedgerError):
        rig.run(send, ledger=Tee(strict, after))
    assert send.attempts == []
    assert [json.loads(one)["line"] for one in after.lines] == [
        "call", "decision", "decision", "end"]


def test_every_run_has_an_end(rig: Rig) -> None:
    """Also one broken by a bug: sinks that count or time close what began."""
    def bug(attempt: fivegates.Attempt) -> None:
        raise ZeroDivisionError

    def deaf(decision: fivegates.Decision, call: fivegates.Call) -> None:
        if decision.action == "accept":
            raise KeyError("mine")

    with pytest.raises(ZeroDivisionError):
        rig.run(bug)
    with pytest.raises(KeyError, match="mine"):
        rig.run(rig.fake("a"), on_decision=deaf)
    lines = [json.loads(one) for one in rig.ledger.lines]
    kinds = [one["line"] for one in lines]
    assert kinds.count("call") == kinds.count("end") == 2
    assert [one["action"] for one in lines if one["line"] == "decision"] == [
        "proceed", "proceed", "fail_closed", "proceed", "proceed", "accept"]


class Mine:
    """A sink of the caller's that raises when it likes."""

    raised = 0

    def write(self, line: str) -> None:
        if json.loads(line)["line"] != "call":
            self.raised += 1
            raise OSError(f"mine, {self.raised}")


def test_a_sink_of_ones_own_may_raise(rig: Rig) -> None:
    send = rig.fake("a")
    with pytest.raises(OSError, match="mine, 1"):
        rig.run(send, ledger=Mine())
    assert send.attempts == []
    assert rig.engine.route("main")["in_flight"] == 0


def test_nothing_optional_is_imported() -> None:
    told = python("import sys, fivegates; print(sorted(n for n in sys.modules "
                  "if n.startswith('fivegates.sinks') or n in ("
                  "'fivegates.cache', 'prometheus_client', 'opentelemetry')))")
    assert told.strip() == "[]"
