"""Programs at the gauntlet that do not start, hang, flood, or leave something
behind."""

from __future__ import annotations

import asyncio
import os
import pathlib
import socket
import subprocess
import sys
import time
import typing

import pytest

from fivegates.errors import FivegatesError
from fivegates.gauntlet.program import Outcome, Watch, run_program

if os.environ.get("FIVEGATES_SANITIZE"):
    pytest.skip("nothing of the library is in it", allow_module_level=True)


def run(code: str, **watch: typing.Any) -> Outcome:
    given: "dict[str, typing.Any]" = {
        "wait_s": 5, "start_s": watch.get("wait_s", 5), "run_s": 5,
        "output_bytes": 1 << 20, **watch}
    return asyncio.run(run_program([sys.executable, "-c", code],
                                   dict(os.environ), Watch(**given)))


def gone(pid: int) -> bool:
    """Whether a process has ended; what is dead and waits for init counts."""
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True
    return stat.rpartition(")")[2].split()[0] == "Z"


def test_a_program_that_ends() -> None:
    got = run("import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)")
    assert (got.exit_code, got.stdout, got.stderr) == (3, "out\n", "err\n")
    assert not (got.hung or got.flooded or got.left_behind)
    assert run("import os; os.kill(os.getpid(), 9)").exit_code == -9
    assert run("print(input())").exit_code == 1  # nobody types


@pytest.mark.parametrize("command, words", [
    (["/nowhere/x"], "does not start: No such file"),
    (["python app.py"], "as words of their own"),
    ([str(pathlib.Path(__file__).parent)], "Permission denied"),
])
def test_programs_that_do_not_start(command: "list[str]", words: str) -> None:
    with pytest.raises(FivegatesError, match="does not start") as caught:
        asyncio.run(run_program(command, {}, Watch(1, 1, 1, 1)))
    assert words in str(caught.value)


def test_a_hang_is_ended_with_its_children() -> None:
    """Also one that does not listen to SIGTERM."""
    got = run("import os, signal, subprocess, sys, time\n"
              "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
              "child = subprocess.Popen(['sleep', '60'])\n"
              "print(os.getpid(), child.pid, flush=True)\ntime.sleep(60)",
              wait_s=0.4)
    assert got.hung and got.exit_code is None
    assert all(gone(int(pid)) for pid in got.stdout.split())


def test_moves_keep_a_program_alive() -> None:
    moves = iter(range(1_000_000))
    got = run("import time; time.sleep(0.8)", wait_s=0.3, moves=lambda: next(moves))
    assert not got.hung and got.exit_code == 0
    got = run("import time; time.sleep(0.5)", wait_s=0.3, start_s=5)
    assert not got.hung  # it had not begun
    assert run("import time; time.sleep(60)", run_s=0.3,
               moves=lambda: next(moves)).hung
    assert run("import time\nwhile 1: print(1, flush=True); time.sleep(0.01)",
               ran_away=lambda: True).ran_away


def test_a_flood_is_ended_and_its_output_kept_short() -> None:
    got = run("while True: print('x' * 1000)", output_bytes=1 << 20)
    assert got.flooded and got.output_bytes > 1 << 20
    assert len(got.stdout) < 80_000 and "bytes left out" in got.stdout


def test_a_daemon_is_found() -> None:
    """In a session of its own, with its own group, holding the pipes."""
    got = run("import subprocess\nchild = subprocess.Popen(['sleep', '60'], "
              "start_new_session=True)\nprint(child.pid, flush=True)")
    assert got.exit_code == 0 and got.left_behind == 1
    assert gone(int(got.stdout))


def test_a_child_without_environment_is_found() -> None:
    got = run("import subprocess\nchild = subprocess.Popen(['sleep', '60'], "
              "env={})\nprint(child.pid, flush=True)")
    assert got.left_behind == 1 and gone(int(got.stdout))


def test_a_listener_is_ended() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    code = (f"import socket, time; s = socket.create_server(('127.0.0.1', {port})"
            "); print('listening', flush=True); time.sleep(60)")
    assert run(code, wait_s=0.5).stdout == "listening\n"
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


def test_cancelled(tmp_path: pathlib.Path) -> None:
    """What was started is ended when the gauntlet itself is stopped."""
    file = tmp_path / "pid"

    async def scene() -> None:
        task = asyncio.ensure_future(run_program(
            [sys.executable, "-c", "import os, pathlib, sys, time\n"
             "pathlib.Path(sys.argv[1]).write_text(f'{os.getpid()}.')\n"
             "time.sleep(60)", str(file)], dict(os.environ), Watch(60, 60, 60, 1)))
        while not file.exists() or "." not in file.read_text():
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(scene())
    assert gone(int(file.read_text().rstrip(".")))


_KILLED = """
import asyncio, os, sys
from fivegates.gauntlet.program import Watch, run_program
asyncio.run(run_program([sys.executable, "-c", sys.argv[1], sys.argv[2]],
                        dict(os.environ), Watch(60, 60, 60, 1 << 20)))
"""
_LEAVES = """
import os, pathlib, subprocess, sys, time
pids = [os.getpid(), os.getppid(), *(
    subprocess.Popen(["sleep", "60"], **how).pid
    for how in ({}, {"env": {}}, {"start_new_session": True}))]
pathlib.Path(sys.argv[1]).write_text(" ".join(map(str, pids)) + ".")
time.sleep(60)
"""


@pytest.mark.parametrize("twice", [False, True])
def test_killed(tmp_path: pathlib.Path, twice: bool) -> None:
    """kill -9 of the gauntlet ends the program, its children and its daemons;
    two of them are in each other's way no more than one."""
    files = [tmp_path / f"{number}" for number in range(1 + twice)]
    gauntlets = [subprocess.Popen([sys.executable, "-c", _KILLED, _LEAVES,
                                   str(file)]) for file in files]
    until = time.monotonic() + 20

    def wait(for_it: "typing.Callable[[], bool]") -> None:
        while not for_it():
            assert time.monotonic() < until
            time.sleep(0.01)

    try:
        wait(lambda: all(file.exists() and "." in file.read_text() for file in files))
        started = [list(map(int, file.read_text().rstrip(".").split()))
                   for file in files]
        assert [pids[1] for pids in started] == [one.pid for one in gauntlets]
        for gauntlet, pids in zip(gauntlets, started):
            assert not any(map(gone, pids))
            gauntlet.kill()
            gauntlet.wait()
            wait(lambda pids=pids: all(map(gone, pids)))  # type: ignore[misc]
    finally:
        for gauntlet in gauntlets:
            gauntlet.kill()
            gauntlet.wait()
