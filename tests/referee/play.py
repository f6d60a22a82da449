"""Plays scenarios to systems: a process for each system, one server for all."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import pathlib
import sys
import typing

from referee.ask import Got, Setup
from referee.checks import Check, Seen
from referee.client import System, serve
from referee.provider import PRICES, Provider, World
from referee.scenarios import SCENARIOS, Scenario

__all__ = ["SYSTEMS", "Played", "judge", "missing", "play", "play_here",
           "python_of"]

TESTS = pathlib.Path(__file__).resolve().parents[1]
GATEWAY_MODULE = pathlib.Path("/usr/lib/nginx/modules/ngx_http_lua_module.so")
TOGETHER = 2  # systems that run at the same time
SYSTEM_S = 180.0  # a system that takes longer has blocked its own loop

class _System(typing.NamedTuple):
    module: str  # of referee.systems
    peers: bool  # runs in the environment of the last httpx-based SDKs


SYSTEMS = {
    "openai": _System("bare", False),
    "tenacity": _System("tenacity_sdk", False),
    "litellm": _System("litellm_router", True),
    "langchain": _System("langchain_fallbacks", True),
    "fivegates": _System("fivegates_runner", False),
    "fivegates transport": _System("fivegates_transport", False),
    "gateway": _System("gateway", False),
}


@dataclasses.dataclass
class Played:
    """One cell of the table."""

    system: str
    scenario: Scenario
    seen: Seen
    failed: "list[tuple[Check, str]]"

    @property
    def status(self) -> "typing.Literal['pass', 'advisory', 'failed']":
        if any(check.required for check, _ in self.failed):
            return "failed"
        return "advisory" if self.failed else "pass"


def judge(system: str, scenario: Scenario, seen: Seen) -> Played:
    found = [(check, check.test(seen)) for check in scenario.all_checks()]
    return Played(system, scenario, seen,
                  [(check, what) for check, what in found if what is not None])


def python_of(peers: bool) -> "pathlib.Path | None":
    """The interpreter of a system's environment; None: not installed."""
    if not peers:
        return pathlib.Path(sys.executable)
    found = TESTS.parent / ".venv-peers" / "bin" / "python"
    return found if found.exists() else None


def missing(system: str) -> "str | None":
    """What a system needs that is not here; None: all is."""
    if python_of(SYSTEMS[system].peers) is None:
        return "no .venv-peers; make one from tests/requirements-peers.txt"
    if system == "gateway" and not GATEWAY_MODULE.exists():
        return ("no nginx with Lua: apt-get install nginx libnginx-mod-http-lua "
                "lua-resty-core lua-cjson")
    return None


class _Run:
    """All scenarios of one system."""

    def __init__(self, provider: Provider, system: str, module: str,
                 scenarios: "list[Scenario]") -> None:
        self.system = system
        self.module = module
        self.worlds: "dict[str, tuple[Scenario, World, Setup]]" = {}
        for i, scenario in enumerate(scenarios):
            name = f"{module}-{i}"
            world = World(name, scenario.script, scenario.tool_script,
                          {route: one.model for route, one
                           in scenario.routes.items()})
            setup = Setup(provider.add(world), scenario.routes, PRICES)
            self.worlds[name] = scenario, world, setup

    def jobs(self) -> "list[dict[str, typing.Any]]":
        return [{"job": name, "ask": dataclasses.asdict(scenario.ask),
                 "setup": dataclasses.asdict(setup)}
                for name, (scenario, _, setup) in self.worlds.items()]

    async def play(self, python: pathlib.Path,
                   heard: "typing.Callable[[Played], object]",
                   versions: "dict[str, str]") -> None:
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (
            str(TESTS), os.environ.get("PYTHONPATH"))))}
        process = await asyncio.create_subprocess_exec(
            str(python), "-m", "referee.client", self.module, env=env,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE, limit=2 ** 22)
        assert process.stdin and process.stdout and process.stderr
        process.stdin.write("".join(json.dumps(job) + "\n" for job
                                    in self.jobs()).encode())
        process.stdin.close()
        noise = asyncio.ensure_future(process.stderr.read())
        settling = []
        left = set(self.worlds)
        try:
            async for raw in process.stdout:
                line = json.loads(raw)
                versions.update(line.get("versions", {}))
                if "job" in line:
                    left.discard(line["job"])
                    settling.append(asyncio.ensure_future(
                        self.settle(line, heard)))
            await asyncio.gather(*settling)
            # It has told all; what it has started it ends by itself.
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(process.wait(), 10)
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()
        if left:
            raise RuntimeError(
                f"{self.system}: {len(left)} scenarios have no result\n"
                + (await noise).decode(errors="replace")[-4000:])
        await noise

    async def settle(self, line: "dict[str, typing.Any]",
                      heard: "typing.Callable[[Played], object]") -> None:
        scenario, world, setup = self.worlds[line["job"]]
        await world.settle(0.5)
        seen = Seen(world.journal, [Got(**one) for one in line["got"]],
                    scenario.ask, setup)
        heard(judge(self.system, scenario, seen))


async def play_here(kind: "type[System]", scenario: Scenario) -> Played:
    """One scenario with a system of this process."""
    lines: "list[dict[str, typing.Any]]" = []
    played: "list[Played]" = []
    async with Provider() as provider:
        run = _Run(provider, kind.__name__, "here", [scenario])
        await serve(kind, run.jobs(), lines.append)
        await run.settle(lines[0], played.append)
    return played[0]


async def play(systems: "typing.Iterable[str]",
               scenarios: "typing.Sequence[Scenario]" = SCENARIOS,
               heard: "typing.Callable[[Played], object]" = lambda played: None,
               ) -> "tuple[list[Played], dict[str, dict[str, str]]]":
    """Plays; answers the cells, and by system the versions of its packages.

    heard is told of each cell as it comes. RuntimeError: a system's process
    failed to give results.
    """
    out: "list[Played]" = []
    versions: "dict[str, dict[str, str]]" = {}
    together = asyncio.Semaphore(TOGETHER)

    def told(played: Played) -> None:
        out.append(played)
        heard(played)

    async def one(provider: Provider, system: str) -> None:
        module, peers = SYSTEMS[system]
        python = python_of(peers)
        if python is None:
            raise RuntimeError(f"{system}: no .venv-peers; make one from "
                               "tests/requirements-peers.txt")
        run = _Run(provider, system, module, list(scenarios))
        async with together:
            try:
                await asyncio.wait_for(run.play(
                    python, told, versions.setdefault(system, {})), SYSTEM_S)
            except asyncio.TimeoutError:
                raise RuntimeError(f"{system}: not over after {SYSTEM_S:g} s; "
                                   "something blocks its event loop") from None

    async with Provider() as provider:
        # All come to their end: a process that is being started cannot be
        # called off.
        ends = await asyncio.gather(*(one(provider, name) for name in systems),
                                    return_exceptions=True)
    for end in ends:
        if isinstance(end, BaseException):
            raise end
    return out, versions
