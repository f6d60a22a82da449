"""Live drills: the same faults over loopback HTTP, beside the simulation.

Two programs do it, built with the simulator (`ninja fivegates-drill-client
fivegates-drill-server`): the clients with the engine over libcurl, and the
providers. Their clock runs `times` faster than the wall's.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import pathlib
import shutil
import tempfile
import time
import typing

from rich.table import Table

from fivegates.drill.runs import DrillError, Progress, Row, run

__all__ = ["LIVE_LIMITS", "LIVE_STRATEGIES", "LiveCell", "live_table",
           "run_live"]

Json = typing.Dict[str, typing.Any]

LIVE_STRATEGIES = ("naive", "backoff", "disciplined", "fivegates")
# How far live and simulated may be apart: attempts a request, points.
LIVE_LIMITS: "typing.Mapping[str, float]" = {"load": 0.05, "useful": 3.0}
# 26 s of the wall's at ten times; a seed of its own has the same arrivals in
# both.
_RIG: Json = {"seeds": 1, "strategies": list(LIVE_STRATEGIES),
              "phases": {"warm_s": 40, "fault_s": 160, "after_s": 60}}
_NAMES = ("fivegates-drill-client", "fivegates-drill-server")
# Seconds of the drill. A machine that was this late measured itself; the cell
# is run again, whatever came out, so often at most.
_LATE_S = 5.0
_TRIES = 4
_START_S = 0.5    # of the wall, for both programs to be there
_PATIENCE_S = 60  # of the wall, beyond what the phases take


@dataclasses.dataclass(frozen=True)
class LiveCell:
    """One fault and one strategy, live and simulated."""

    fault: str
    strategy: str
    live: Row
    simulated: Row
    late_s: float  # of the drill's time, the machine's longest pause
    tries: int

    def value(self, live: bool, metric: str) -> "float | None":
        """What was measured; None where nothing was."""
        one = (self.live if live else self.simulated)["metrics"][metric]
        return one["mean"] if one is not None else None

    def apart(self, metric: str) -> "float | None":
        """Live less simulated."""
        live, simulated = self.value(True, metric), self.value(False, metric)
        return live - simulated if live is not None and simulated is not None else None

    @property
    def agrees(self) -> bool:
        """Is every metric with a limit within it, on a machine that kept up?"""
        apart = {metric: self.apart(metric) for metric in LIVE_LIMITS}
        return self.late_s <= _LATE_S and all(
            one is not None and abs(one) <= LIVE_LIMITS[metric]
            for metric, one in apart.items())


def _programs(folder: str) -> "list[str]":
    found = [shutil.which(name, path=folder or None) for name in _NAMES]
    for name, path in zip(_NAMES, found):
        if path is None:
            where = f"in {folder}" if folder else "on the PATH"
            raise DrillError(
                f"{name} is not {where}; build it (ninja {' '.join(_NAMES)}), "
                "and name its folder with --programs")
    return [path for path in found if path is not None]


@contextlib.asynccontextmanager
async def _started(*command: str) -> "typing.AsyncIterator[asyncio.subprocess.Process]":
    """A program that has ended when the context has."""
    pipe = asyncio.subprocess.PIPE
    try:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=pipe, stdout=pipe, stderr=pipe)
    except OSError as exc:
        raise DrillError(f"{command[0]}: {exc.strerror or exc}") from None
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate(b"")


def _failed(process: asyncio.subprocess.Process, name: str, said: bytes) -> DrillError:
    return DrillError(said.decode(errors="replace").strip()
                      or f"{name} ended with code {process.returncode}")


async def _once(programs: "list[str]", configs: "list[str]",
                times: int) -> "tuple[Row, float]":
    """A live run: what the client measured, and how late this machine was."""
    zero = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000 + int(_START_S * 1e6)
    client, server = programs
    async with _started(server, str(zero), str(times), "0", *configs) as serving:
        assert serving.stdout is not None
        port = (await serving.stdout.readline()).decode().strip()
        if not port:
            _, said = await serving.communicate(b"")
            raise _failed(serving, server, said)
        async with _started(client, str(zero), str(times), port, *configs) as running:
            out, said = await running.communicate(b"")
        if running.returncode != 0:
            raise _failed(running, client, said)
        late, _ = await serving.communicate(b"")  # its input ends, and so does it
    got = json.loads(out)
    late_ms = max(got["late_ms"]["max"], int(late or b"0"))
    return typing.cast(Row, got["results"]["rows"][0]), late_ms / 1000


def _lists(texts: "typing.Sequence[str]") -> "tuple[list[typing.Any], list[str]]":
    """The faults and the strategies that configurations ask for, the last wins."""
    faults: "list[typing.Any]" = ["brownout", "blackout", "ratelimit", "trickle",
                                  "brownout_layered", "brownout_cancel"]
    strategies: "list[str]" = []
    for text in texts:
        value = json.loads(text)
        faults = value.get("faults", faults)
        strategies = value.get("strategies", strategies)
    for one in strategies:
        if one not in LIVE_STRATEGIES:
            raise DrillError(f"{one} has no live drill; there are "
                             + ", ".join(LIVE_STRATEGIES))
    return faults, strategies


async def _all(programs: "list[str]", cells: "list[list[str]]", times: int,
               patience_s: float, at_once: int,
               progress: "Progress | None") -> "list[tuple[Row, float, int]]":
    """Every cell live: its row, how late the machine was, how many tries."""
    free = asyncio.Semaphore(at_once)
    done = 0

    async def cell(texts: "list[str]", folder: pathlib.Path) -> "tuple[Row, float, int]":
        nonlocal done
        folder.mkdir()
        files = []
        for i, text in enumerate(texts):
            files.append(folder / f"{i}.json")
            files[-1].write_text(text, encoding="utf-8")
        async with free:
            for tries in range(1, _TRIES + 1):
                try:
                    row, late = await asyncio.wait_for(
                        _once(programs, list(map(str, files)), times), patience_s)
                except asyncio.TimeoutError:
                    raise DrillError(f"{' and '.join(programs)} did not end in "
                                     f"{patience_s:.0f} s") from None
                if late <= _LATE_S:
                    break
        done += 1
        if progress is not None:
            progress(done, len(cells))
        return row, late, tries

    with tempfile.TemporaryDirectory() as folder:
        tasks = [asyncio.ensure_future(cell(texts, pathlib.Path(folder, str(i))))
                 for i, texts in enumerate(cells)]
        try:
            return list(await asyncio.gather(*tasks))
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


def run_live(*texts: str, files: "typing.Sequence[str]" = (), programs: str = "",
             times: int = 10, at_once: int = 2,
             progress: "Progress | None" = None) -> "list[LiveCell]":
    """Every fault with every strategy, live and simulated, with one seed.

    texts are configurations as JSON, each over those before it; files their
    names, for errors. programs is the folder of the two programs, "" the PATH;
    times is how much faster the drill's clock runs; at_once how many cells run
    side by side (four programs already keep two processors busy now and then,
    and who is late measures itself). Raises DrillError.
    """
    found = _programs(programs)
    base = [json.dumps(_RIG), *texts]
    # What is wrong with a configuration is said here, with its file and line.
    whole = run(*base, {"seeds": 1, "strategies": ["plain"]},
                files=["", *files, ""])
    faults, strategies = _lists(base)
    overs = [{"faults": [fault], "strategies": [one], "seeds": 1}
             for fault in faults for one in strategies]
    cells = [[*base, json.dumps(over)] for over in overs]
    simulated = [run(*cell)["rows"][0] for cell in cells]
    seconds = whole["warm_s"] + whole["fault_s"] + whole["after_s"]
    live = asyncio.run(_all(found, cells, times, seconds * 2 / times + _PATIENCE_S,
                            at_once, progress))
    return [LiveCell(row["fault"], row["strategy"], row, other, late, tries)
            for (row, late, tries), other in zip(live, simulated)]


def live_table(cells: "typing.Sequence[LiveCell]") -> Table:
    """One row for each fault and strategy: live, simulated, and the difference."""
    out = Table(box=None, pad_edge=False)
    out.add_column("fault", no_wrap=True)
    out.add_column("strategy", no_wrap=True)
    for heading in ("load live", "simulated", "apart", "useful % live",
                    "simulated", "apart", "p95 s live", "simulated", "late s",
                    "tries", ""):
        out.add_column(heading, justify="right", no_wrap=True)

    def number(value: "float | None", form: str) -> str:
        return "-" if value is None else format(value, form)

    before = ""
    for one in cells:
        parts = [one.fault if one.fault != before else "", one.strategy]
        for metric, form in (("load", ".3f"), ("useful", ".2f")):
            parts += [number(one.value(True, metric), form),
                      number(one.value(False, metric), form),
                      number(one.apart(metric), "+" + form)]
        parts += [number(one.value(True, "p95"), ".2f"),
                  number(one.value(False, "p95"), ".2f"), f"{one.late_s:.1f}",
                  str(one.tries), "" if one.agrees else
                  "OFF" if one.late_s <= _LATE_S else "LATE"]
        out.add_row(*parts)
        before = one.fault
    return out
