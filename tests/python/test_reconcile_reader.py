"""A great ledger is read in a process of its own: the same report and the same
errors to the byte, and nothing believed or left of a process that was ended."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import threading
import typing

import pytest

from fivegates.reconcile import ReconcileError, reader, reconcile

from .conftest import ROOT
from .test_reconcile_worlds import recall

SAMPLES = ROOT / "tests" / "billing" / "samples"
LEDGER = SAMPLES / "ledger.jsonl"
ACTIVITY = SAMPLES / "openrouter_activity.csv"
POSIX = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs a named pipe")

Children = typing.List["subprocess.Popen[bytes]"]


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch) -> Children:
    """The processes that were started to read."""
    started: Children = []

    class Noted(subprocess.Popen):  # type: ignore[type-arg]
        def __init__(self, *args: typing.Any, **more: typing.Any) -> None:
            super().__init__(*args, **more)
            started.append(self)

    monkeypatch.setattr(reader.subprocess, "Popen", Noted)
    return started


def told(ledgers: "list[str]", bills: "list[str]", **more: typing.Any) -> "tuple[str, int]":
    """The whole report or the error, and the bytes of the ledgers that the
    progress heard of; what comes after the ledgers is heard of after them."""
    heard: "list[tuple[str, int]]" = []
    out = io.StringIO()
    try:
        with reconcile(ledgers, bills, as_of_ms=recall.AS_OF, progress=lambda what, n: heard.append((what, n)),
                       **more) as report:
            report.write_json(out.write)
    except ReconcileError as exc:
        out.write(f"error: {exc}")
    words = [what for what, _ in heard]
    assert words == sorted(words, key=lambda what: what != "ledger")
    return out.getvalue(), sum(n for what, n in heard if what == "ledger")


def both_ways(monkeypatch: pytest.MonkeyPatch, children: Children, ledgers: "list[str]",
              bills: "list[str]", **more: typing.Any) -> str:
    """What is told, which is the same in one process and in two."""
    alone = told(ledgers, bills, **more)
    assert not children  # it is a small one
    with monkeypatch.context() as patch:
        patch.setattr(reader, "_alone", lambda paths: False)
        assert told(ledgers, bills, **more) == alone
    child, = children
    assert child.returncode is not None
    children.clear()
    return alone[0]


@pytest.mark.parametrize("kind,form", [("openrouter", "core"), ("openai usage", "log"), ("litellm", "bare")])
def test_two_processes_tell_what_one_tells(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch,
                                           children: Children, kind: str, form: str) -> None:
    """With noise, lines that are not there, blank and torn ones, a call that goes
    on in the next file, and batches that end anywhere."""
    monkeypatch.setattr(reader, "BATCH", 7)
    rng = random.Random(3)
    world = recall.make(3, 60, **recall.NOISE)
    lines = recall.ledger_of(world, recall.KINDS[kind], form, 0.05).splitlines(keepends=True)
    for _ in range(25):
        at = rng.randrange(len(lines))
        lines[at] = rng.choice(("\n", lines[at][:rng.randrange(1, 60)] + "\n", lines[at] * 2))
    half = len(lines) // 2
    (tmp_path / "l.1").write_text("".join(lines[:half]))
    (tmp_path / "l.2").write_text("".join(lines[half:])[:-20])
    (tmp_path / "b").write_text(recall.KINDS[kind].write(world), encoding="utf-8")
    ledgers = [str(tmp_path / "l.1"), str(tmp_path / "l.2")]
    out = both_ways(monkeypatch, children, ledgers, [str(tmp_path / "b")])
    facts = json.loads(out)["ledger"]
    assert facts["torn_lines"] > 4 and facts["attempts_without_their_lines"] > 4 and facts["attempts"] > 70
    assert any(one.startswith(ledgers[1]) for one in facts["torn_at"])
    assert told(ledgers, [str(tmp_path / "b")])[1] == sum(map(os.path.getsize, ledgers))


@pytest.mark.parametrize("old,new,says", [
    ('"v": 1', '"v": 2', "ledger:1: a ledger of version 2"),
    ('"ev"', '"eve"', "ledger:1: not a ledger's line"),
    ('"model"', '"modle"', "ledger:1: a ledger's line without its member 'model'"),
    ('"attempt": 0', f'"attempt": {1 << 63}', "a number in a ledger is beyond 64 bits"),
    ("", "", "bill:3: 1 fields, but the header has 24")])
def test_errors_are_the_same_and_a_ledgers_come_first(
        tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, children: Children,
        old: str, new: str, says: str) -> None:
    (tmp_path / "ledger").write_text(LEDGER.read_text().replace(old, new, 1))
    lines = ACTIVITY.read_text().splitlines(keepends=True)
    (tmp_path / "bill").write_text("".join(lines[:2]) + "cut\n")
    monkeypatch.chdir(tmp_path)
    assert both_ways(monkeypatch, children, ["ledger"], ["bill"]).startswith(f"error: {says}")


def test_a_card_is_refused_before_an_export(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch,
                                            children: Children) -> None:
    line = {"line": "call", "v": 1, "unix_ms": 1, "now_ms": 1, "workflow": "w", "call": "c", "step": 0,
            "policy": "sha256:aa", "prompt_tokens": 1, "gen_ai.request.max_tokens": 1}
    (tmp_path / "l").write_text(json.dumps(line) + "\n")
    (tmp_path / "b").write_text(ACTIVITY.read_text() + "cut\n")
    assert both_ways(monkeypatch, children, [str(tmp_path / "l")], [str(tmp_path / "b")],
                     card=("sha256:bb", {"routes": {}})).startswith("error: --card has the fingerprint sha256:bb")


def test_a_stream_that_ends_early_is_not_believed(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch,
                                                  children: Children) -> None:
    """Cut before its last word, between two frames or in one."""
    stream = subprocess.run(
        [sys.executable, "-c", reader._CODE], check=True, capture_output=True,
        input=reader.marshal.dumps((sys.path, [str(LEDGER)]))).stdout
    (tmp_path / "stream").write_bytes(stream)
    monkeypatch.setattr(reader, "_alone", lambda paths: False)
    whole = told([str(LEDGER)], [str(ACTIVITY)])[0]
    frames = [len(reader._READY)]
    while frames[-1] < len(stream):
        frames.append(frames[-1] + 4 + int.from_bytes(stream[frames[-1]:frames[-1] + 4], "little"))
    assert len(frames) == 4  # attempts, bytes, facts
    for cut in (*frames, frames[0] + 2, frames[1] - 1, len(stream) - 1):
        monkeypatch.setattr(reader, "_CODE", "import sys; sys.stdin.buffer.read(); sys.stdout.buffer.write(open("
                            f"{str(tmp_path / 'stream')!r}, 'rb').read({cut}))")
        out = told([str(LEDGER)], [str(ACTIVITY)])[0]
        assert out == whole if cut == len(stream) else out.startswith(
            "error: the process that reads the ledgers was ended with code 0")


@contextlib.contextmanager
def pipe(path: pathlib.Path, then: "typing.Callable[[typing.BinaryIO], object]") -> "typing.Iterator[None]":
    """A ledger that somebody writes on, and then something happens."""
    os.mkfifo(path)

    def write() -> None:
        with open(path, "wb", buffering=0) as file:  # it waits for a reader
            file.write(LEDGER.read_bytes())
            then(file)

    thread = threading.Thread(target=write)
    thread.start()
    yield
    thread.join()


@POSIX
def test_a_reader_that_is_killed_is_an_error(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch,
                                             children: Children) -> None:
    monkeypatch.setattr(reader, "_alone", lambda paths: False)
    with pipe(tmp_path / "l", lambda _: children[0].kill()):
        out, _ = told([str(tmp_path / "l")], [str(ACTIVITY)])
    assert out.startswith(f"error: the process that reads the ledgers was ended by signal {signal.SIGKILL:d}, as a")
    assert out.endswith("run it again where more memory is free")
    assert children[0].returncode == -signal.SIGKILL


@POSIX
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupt_ends_both(tmp_path: pathlib.Path, sent: signal.Signals) -> None:
    """From the keyboard, of the group; or of the command alone, past all handlers."""
    program = ("import sys, fivegates.reconcile.reader as reader; reader._alone = lambda paths: False; "
               "from fivegates.__main__ import main; main()")
    (tmp_path / "tmp").mkdir()
    process = subprocess.Popen(
        [sys.executable, "-c", program, "reconcile", str(tmp_path / "l"), "--bill", str(ACTIVITY)],
        start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(tmp_path / "tmp")})
    gone = threading.Event()

    def then(file: typing.BinaryIO) -> None:
        os.killpg(process.pid, sent)
        process.wait()
        with contextlib.suppress(BrokenPipeError):
            while sent == signal.SIGKILL:  # it finds out when it has something to tell
                file.write(b"\n" * 4096)
            file.write(b"\n")  # ended already: nobody has the pipe open
            return
        gone.set()

    with pipe(tmp_path / "l", then):
        out, err = process.communicate()
    assert gone.is_set()
    assert process.returncode == (130 if sent == signal.SIGINT else -sent)
    assert out == b"" and b"Traceback" not in err
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.parametrize("name,value", [
    ("sys.executable", "/nowhere/python"), ("reader._CODE", "raise SystemExit(3)"),
    ("reader._CODE", "print('hello'); import time; time.sleep(1000)"), ("reader._CODE", "import nothing_like_it")])
def test_where_no_process_can_be_started_one_does(monkeypatch: pytest.MonkeyPatch, children: Children,
                                                  name: str, value: str) -> None:
    want = told([str(LEDGER)], [str(ACTIVITY)])
    monkeypatch.setattr(reader, "_alone", lambda paths: False)
    monkeypatch.setattr(f"fivegates.reconcile.{name}" if name[0] == "r" else name, value)
    assert told([str(LEDGER)], [str(ACTIVITY)]) == want
    assert all(child.returncode is not None for child in children)


def test_a_program_on_standard_input(tmp_path: pathlib.Path) -> None:
    """No file to import the program from, no guard around its main part."""
    program = (f"import sys; sys.path[:] = {sys.path!r}; import fivegates.reconcile.reader as reader\n"
               "reader._alone = lambda paths: False\n"
               f"with reader.Ledgers([{str(LEDGER)!r}], None, None, print) as ledgers: print(ledgers._child)\n"
               f"import fivegates.reconcile as f\nwith f.reconcile([{str(LEDGER)!r}], [{str(ACTIVITY)!r}]) as report:\n"
               "    print(report.summary['ledger']['attempts'])\n")
    said = subprocess.run([sys.executable, "-"], input=program, text=True, capture_output=True, check=True)
    child, count = said.stdout.splitlines()
    assert "_Child object" in child and count == "43" and said.stderr == ""


def test_who_reads_alone(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small ledgers, one core, what is no file of its own, and where Python is
    inside another program."""
    monkeypatch.setattr(reader, "_GREAT", 10)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    (tmp_path / "a").write_bytes(b"12345")
    a = str(tmp_path / "a")
    assert reader._alone([a]) and not reader._alone([a, a])
    assert reader._alone([a, a, str(tmp_path / "none")]) and reader._alone([a, a, str(tmp_path)])
    assert reader._alone([a, a, "/proc/self/status"]) and reader._alone([a, a, "/dev/null"])
    for program in ("/opt/app/app", "", None):
        with monkeypatch.context() as patch:
            patch.setattr(sys, "executable", program)
            assert reader._alone([a, a])
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1})
    assert reader._alone([a, a])
