"""Ends what a program has started: its group, its session, its daemons.

Run by its path it is a process beside the gauntlet, which tells it of each
program on its standard input. Where that ends before the programs' end was told,
after kill -9 of the gauntlet, it ends them: no signal would reach what they have
started themselves, and nobody else is left to look for it.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import time
import typing

__all__ = ["end_strays", "tell"]

# Instead of a program's group.
STARTS, ENDED = 0, -1


def _belongs(pid: int, group: int, mark: bytes) -> bool:
    """Whether a process is of the program: its group, its session, or the mark
    in its environment, which a daemon has too."""
    folder = pathlib.Path("/proc", str(pid))
    try:
        fields = (folder / "stat").read_bytes().rpartition(b")")[2].split()
        if fields[0] == b"Z":
            return False
        return (group > 0 and group in (int(fields[2]), int(fields[3]))) or (
            mark in (folder / "environ").read_bytes().split(b"\0"))
    except (OSError, IndexError, ValueError):
        return False  # gone, or another user's


def _kill(pid: int, group: int, mark: bytes) -> bool:
    """Kills a process that belongs to the program. A pid that passes to another
    process meanwhile is not hit: a pidfd stays with the one looked at."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    except OSError:  # a sandbox without pidfd: the pid has to do
        fd = -1
    try:
        if not _belongs(pid, group, mark):
            return False
        if fd >= 0:
            signal.pidfd_send_signal(fd, signal.SIGKILL)
        else:
            os.kill(pid, signal.SIGKILL)
        return True
    except OSError:
        return False
    finally:
        if fd >= 0:
            os.close(fd)


def end_strays(group: int, mark: bytes) -> int:
    """Kills what is left of a program; how many processes that were. group: of
    the program, STARTS where it is not known yet; mark: NAME=VALUE, in the
    environment of all it starts."""
    ended = 0
    for _ in range(20):  # what forks while it is being killed is found later
        found = sum(_kill(int(name), group, mark) for name in os.listdir("/proc")
                    if name.isdigit() and int(name) != os.getpid())
        ended += found
        if not found:
            break
        time.sleep(0.01)
    return ended


_process: "subprocess.Popen[bytes] | None" = None


def tell(group: int, mark: bytes) -> None:
    """Tells this process's reaper of a program: STARTS, its group, ENDED.

    Without a reaper (no process can be started) programs are played as well.
    """
    global _process
    with contextlib.suppress(OSError):
        if _process is None or _process.poll() is not None:
            _process = subprocess.Popen(
                [sys.executable, "-I", "-S", __file__], bufsize=0,
                stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL, start_new_session=True)
            atexit.register(_over, _process)
        assert _process.stdin is not None
        _process.stdin.write(b"%d %s\n" % (group, mark))


def _over(process: "subprocess.Popen[bytes]") -> None:
    assert process.stdin is not None
    process.stdin.close()
    process.wait()


def _reap(told: "typing.Iterable[bytes]") -> None:
    """Until nobody tells any more; then ends what was not told to have ended."""
    programs: "dict[bytes, int]" = {}
    for line in told:
        group, _, mark = line.rstrip(b"\n").partition(b" ")
        programs[mark] = int(group)
        if programs[mark] == ENDED:
            del programs[mark]
    for mark, number in programs.items():
        end_strays(number, mark)


if __name__ == "__main__":
    _reap(sys.stdin.buffer)
