"""A forked child takes its own slot; the parent's calls stay the parent's."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import time
import traceback
import typing

import pytest

import fivegates

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


def in_child(work: "typing.Callable[[], None]") -> int:
    """Runs work in a forked child; its exit code."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def sent(engine: fivegates.Engine) -> fivegates.Call:
    call = engine.begin("bare", prompt_tokens=1, max_output_tokens=1)
    assert call.begin_attempt().action == "proceed"
    call.event("sent")
    return call


def test_own_slot(policy: fivegates.Policy, tmp_path: pathlib.Path) -> None:
    engine = fivegates.Engine(policy, region=tmp_path / "region")
    call = sent(engine)
    slot = engine.slot

    def child() -> None:
        mine = sent(engine)
        assert engine.slot != slot
        assert engine.route("main")["in_flight"] == 2
        mine.success(prompt_tokens=1, output_tokens=1, output="x")
        assert engine.route("main")["in_flight"] == 1
        with pytest.raises(fivegates.StateError, match="before a fork"):
            call.begin_attempt()
        call.end()

    assert in_child(child) == 0
    assert engine.slot == slot
    assert engine.route("main")["in_flight"] == 1
    assert call.success(prompt_tokens=1, output_tokens=1,
                        output="x").action == "accept"
    view = engine.route("main")
    assert (view["in_flight"], view["successes"]) == (0, 2)


def test_dropping_the_parents_call(policy: fivegates.Policy,
                                   tmp_path: pathlib.Path) -> None:
    engine = fivegates.Engine(policy, region=tmp_path / "region")
    calls = [sent(engine)]

    assert in_child(calls.clear) == 0
    assert engine.route("main")["in_flight"] == 1


def test_private_region(policy: fivegates.Policy) -> None:
    engine = fivegates.Engine(policy)
    call = sent(engine)

    def child() -> None:
        assert engine.route("main")["in_flight"] == 0
        mine = sent(engine)
        assert engine.route("main")["in_flight"] == 1
        mine.cancel()
        assert engine.route("main")["in_flight"] == 0

    assert in_child(child) == 0
    assert engine.route("main")["in_flight"] == 1
    call.end()


def test_ids_after_a_fork(policy: fivegates.Policy,
                          tmp_path: pathlib.Path) -> None:
    """Parent and child draw different ids from now on."""
    engine = fivegates.Engine(policy, region=tmp_path / "region")
    file = tmp_path / "ids"
    sent(engine)

    def child() -> None:
        file.write_text("\n".join(sent(engine).id for _ in range(20)))

    assert in_child(child) == 0
    mine = {sent(engine).id for _ in range(20)}
    assert not mine & set(file.read_text().split())


def test_killed_workers_leave_nothing(policy: fivegates.Policy,
                                      tmp_path: pathlib.Path) -> None:
    engine = fivegates.Engine(policy, region=tmp_path / "region")
    for _ in range(5):
        pid = os.fork()
        if pid == 0:
            kept = [sent(engine) for _ in range(3)]
            os.kill(os.getpid(), signal.SIGKILL)
            del kept
        os.waitpid(pid, 0)
    # Who takes a dead owner's slot clears it; the region looks once a second.
    until = time.monotonic() + 5
    while engine.route("main")["in_flight"] and time.monotonic() < until:
        time.sleep(0.1)
        engine.tick()
    assert engine.route("main")["in_flight"] == 0


def test_two_processes(policy: fivegates.Policy, card: "dict[str, typing.Any]",
                       tmp_path: pathlib.Path) -> None:
    path = tmp_path / "region"
    engine = fivegates.Engine(policy, region=path)
    code = (
        "import json, sys, fivegates\n"
        "policy = fivegates.Policy.loads(json.load(sys.stdin), "
        "auto_fingerprint=True)\n"
        "engine = fivegates.Engine(policy, region=sys.argv[1])\n"
        "for _ in range(10):\n"
        "    call = engine.begin('bare')\n"
        "    call.begin_attempt()\n"
        "    call.success(prompt_tokens=1, output_tokens=1, output='x')\n"
        "print(engine.slot)\n")
    import json

    done = subprocess.run([sys.executable, "-c", code, str(path)],
                          input=json.dumps(card), capture_output=True,
                          text=True, check=True)
    assert int(done.stdout) != engine.slot
    assert engine.route("main")["successes"] == 10
