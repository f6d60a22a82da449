"""Running somebody's program: bounded in time and output, and ended whole."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import secrets
import signal
import time
import typing

from fivegates.errors import FivegatesError
from fivegates.gauntlet import reaper

__all__ = ["GauntletError", "Outcome", "Watch", "run_program"]

_KEPT = 32 << 10  # bytes of output kept from its beginning, and from its end
_LOOK_S = 0.1  # between two looks at a running program
_GRACE_S = 1.0  # between SIGTERM and SIGKILL
_MARK = "FIVEGATES_GAUNTLET_RUN"  # in the environment of all it starts


class GauntletError(FivegatesError):
    """A program the gauntlet cannot judge; the text says why and what to do."""

    result = "gauntlet"


@dataclasses.dataclass
class Outcome:
    """How a program ended, and what it said."""

    exit_code: "int | None" = None  # negative: a signal; None: it was ended
    seconds: float = 0.0
    hung: bool = False  # nothing moved for too long, or its time was over
    flooded: bool = False  # it wrote too much
    ran_away: bool = False  # it sent requests without an end
    output_bytes: int = 0
    left_behind: int = 0  # processes that it started and did not end
    stdout: str = ""
    stderr: str = ""

    def said(self) -> str:
        """The last lines of its output, for a message."""
        text = (self.stderr.strip() or self.stdout.strip())[-600:]
        return "\n".join("  | " + line for line in text.splitlines()[-8:])


class _Output:
    """One pipe: its first and last bytes."""

    def __init__(self) -> None:
        self._first = b""
        self._last = b""
        self.count = 0

    def add(self, raw: bytes) -> None:
        self.count += len(raw)
        room = _KEPT - len(self._first)
        self._first += raw[:room]
        self._last = (self._last + raw[room:])[-_KEPT:]

    def text(self) -> str:
        cut = self.count - len(self._first) - len(self._last)
        gap = f"\n[... {cut} bytes left out ...]\n".encode() if cut else b""
        return (self._first + gap + self._last).decode("utf-8", "replace")


async def _exited(process: asyncio.subprocess.Process) -> None:
    """Waits for the program itself. process.wait() of some Pythons waits for
    its pipes too, which a child left behind may hold open."""
    while process.returncode is None:
        await asyncio.sleep(0.01)


async def _end(process: asyncio.subprocess.Process, mark: bytes) -> int:
    """Asks a program and its group to end, then makes them and all others that
    it started; how many were made to."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(_exited(process), _GRACE_S)
    ended = reaper.end_strays(process.pid, mark)
    await _exited(process)
    return ended


async def _start(command: "typing.Sequence[str]",
                 env: "dict[str, str]") -> asyncio.subprocess.Process:
    try:
        return await asyncio.create_subprocess_exec(
            *command, env=env, start_new_session=True,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE)
    except (OSError, ValueError) as exc:
        why = getattr(exc, "strerror", None) or str(exc)
        hint = ("; give the program and its arguments as words of their own, "
                "not in quotes" if " " in command[0] else
                "; after -- comes the program as a shell would start it")
        raise GauntletError(f"{command[0]} does not start: {why}{hint}"
                            ) from None


class Watch(typing.NamedTuple):
    """When a program is to be ended."""

    wait_s: float  # without any move
    start_s: float  # without any, before the first: it loads and compiles
    run_s: float
    output_bytes: int
    moves: "typing.Callable[[], object]" = lambda: None  # differs after a move
    ran_away: "typing.Callable[[], bool]" = lambda: False


class _Pipes:
    """A running program's output, read as it comes."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.out, self.err = _Output(), _Output()
        self._tasks = [
            asyncio.ensure_future(self._read(process.stdout, self.out)),
            asyncio.ensure_future(self._read(process.stderr, self.err))]

    async def _read(self, pipe: "asyncio.StreamReader | None",
                    into: _Output) -> None:
        assert pipe is not None
        while raw := await pipe.read(65536):
            into.add(raw)

    @property
    def count(self) -> int:
        return self.out.count + self.err.count

    async def close(self) -> None:
        """Reads what is left; not for long, when somebody holds a pipe."""
        await asyncio.wait(self._tasks, timeout=1)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def _wait(process: asyncio.subprocess.Process, pipes: _Pipes,
                watch: Watch, outcome: Outcome) -> None:
    """Until the program ends by itself, or is to be ended."""
    began = moved = time.monotonic()
    first = watch.moves()
    last: object = None
    while process.returncode is None:
        now = time.monotonic()
        state = (watch.moves(), pipes.count)
        if state != last:
            last, moved = state, now
        patience = watch.start_s if state[0] == first else watch.wait_s
        outcome.hung = now - moved > patience or now - began > watch.run_s
        outcome.flooded = pipes.count > watch.output_bytes
        outcome.ran_away = watch.ran_away()
        if outcome.hung or outcome.flooded or outcome.ran_away:
            break
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(_exited(process), _LOOK_S)
    outcome.exit_code = process.returncode
    outcome.flooded = pipes.count > watch.output_bytes
    outcome.seconds = time.monotonic() - began


async def run_program(command: "typing.Sequence[str]", env: "dict[str, str]",
                      watch: Watch) -> Outcome:
    """Runs a program until it ends or the watch says so. Nothing that it
    started is left when this returns or is cancelled, or this process killed."""
    token = secrets.token_hex(16)
    mark = f"{_MARK}={token}".encode()
    outcome = Outcome()
    reaper.tell(reaper.STARTS, mark)
    try:
        process = await _start(command, {**env, _MARK: token})
        reaper.tell(process.pid, mark)
        pipes = _Pipes(process)
        try:
            await _wait(process, pipes, watch, outcome)
        finally:
            own_end = process.returncode is not None
            strays = await _end(process, mark)
            await pipes.close()
    finally:
        reaper.tell(reaper.ENDED, mark)
    outcome.left_behind = strays if own_end else 0
    outcome.output_bytes = pipes.count
    outcome.stdout, outcome.stderr = pipes.out.text(), pipes.err.text()
    return outcome
