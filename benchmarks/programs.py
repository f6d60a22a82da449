"""What run.py runs: how each program is built, started and read."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import platform
import re
import shutil
import statistics
import subprocess
import sys
import typing

ROOT = pathlib.Path(__file__).resolve().parent.parent
HERE = ROOT / "benchmarks"
BUILD = ROOT / "build"
WORK = BUILD / "bench"
RELEASE = BUILD / "release"


class Skip(Exception):
    """What cannot be measured here, in one sentence."""


@dataclasses.dataclass
class Row:
    """One figure of one program; `values` has one entry a run."""

    group: str      # c, python, go, java
    program: str
    peer: str
    path: str       # success, reject, bare, or empty
    what: str
    unit: str = "ns"
    version: str = ""
    runtime: str = ""
    allocs: "float | None" = None
    values: "list[float]" = dataclasses.field(default_factory=list)

    @property
    def key(self) -> "tuple[str, str, str, str]":
        return self.group, self.program, self.peer, self.what

    @property
    def median(self) -> float:
        return statistics.median(self.values)


@dataclasses.dataclass
class Program:
    group: str
    name: str
    command: "list[str]"
    parse: "typing.Callable[[Program, str], list[Row]]"


# ---- running ----------------------------------------------------------------


def tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def output(command: "typing.Sequence[str | pathlib.Path]",
           cwd: pathlib.Path = ROOT, limit: int = 900) -> str:
    """What a command prints; Skip with its last words when it fails."""
    words = [str(word) for word in command]
    name = pathlib.Path(words[0]).name
    try:
        done = subprocess.run(words, cwd=cwd, text=True, timeout=limit,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    except OSError as error:
        raise Skip(f"{name} does not start ({error.strerror})") from None
    except subprocess.TimeoutExpired:
        raise Skip(f"{name} took longer than {limit} s") from None
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()
        last = said[-1].strip()[:160] if said else "and said nothing"
        raise Skip(f"{' '.join([name, *words[1:2]])} failed: {last}")
    return done.stdout


def first_line(*command: str) -> str:
    try:
        done = subprocess.run(command, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, cwd=ROOT, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip().splitlines()[0] if (
        done.returncode == 0 and done.stdout.strip()) else ""


def needs(tool: str) -> str:
    found = shutil.which(tool)
    if found is None:
        raise Skip(f"{tool} is not on this machine")
    return found


# ---- reading what the programs print ------------------------------------------

TEXT_ROW = re.compile(
    r"^(?P<what>\S.*?)(?:\s+\d+ bytes)?\s+(?:median\s+)?"
    r"(?P<value>\d+(?:\.\d+)?) (?P<unit>ns|us|ms|bytes)\b")


def from_text(program: Program, text: str) -> "list[Row]":
    """The C programs: a name, spaces, a number and its unit."""
    rows = []
    for line in text.splitlines():
        found = TEXT_ROW.match(line)
        if found:
            value, unit = float(found["value"]), found["unit"]
            if unit == "us":
                value, unit = value * 1000, "ns"
            rows.append(Row(program.group, program.name, "fivegates", "",
                            found["what"].rstrip(" :"), unit,
                            values=[value]))
    return rows


def from_lines(program: Program, text: str) -> "list[Row]":
    """The peers' programs: one JSON object a line."""
    rows = []
    for line in text.splitlines():
        if line.startswith("{"):
            saw = json.loads(line)
            rows.append(Row(program.group, program.name, saw["peer"],
                            saw["path"], saw["what"],
                            version=str(saw.get("version", "")).lstrip("v"),
                            runtime=saw.get("runtime", ""),
                            allocs=saw.get("allocs"), values=[saw["ns"]]))
    return rows


def from_call(program: Program, text: str) -> "list[Row]":
    """bench_call.py --json: one object, a member a case."""
    return [Row(program.group, program.name, "fivegates", "", what,
                values=[saw["median_ns"]])
            for what, saw in json.loads(text).items()]


# ---- building -------------------------------------------------------------------


def build_c(_versions: "dict[str, str]") -> "list[Program]":
    output([".ci/configure", RELEASE, "--buildtype=release"])
    names = sorted(path.stem for path in (HERE / "c").glob("bench_*.c"))
    for name in [*names, "test_freeze"]:  # never measure what is not this tree
        (RELEASE / name).unlink(missing_ok=True)
    try:
        output(["ninja", "-C", RELEASE, "-k0", *names, "test_freeze"])
    except Skip as skip:  # what built is still measured
        tell(f"bench: {skip}")
    programs = []
    for name in names:
        if (RELEASE / name).exists():
            programs.append(Program("c", name, [str(RELEASE / name)],
                                    from_text))
        else:
            tell(f"bench: {name} does not build and is left out")
    return programs


def build_python(_versions: "dict[str, str]") -> "list[Program]":
    output([sys.executable, "-c", "import fivegates"])
    here = HERE / "python"
    return [
        Program("python", "bench_call",
                [sys.executable, str(here / "bench_call.py"), "--json"],
                from_call),
        Program("python", "bench_protect",
                [sys.executable, str(here / "bench_protect.py")], from_lines)]


def build_python_peers(versions: "dict[str, str]") -> "list[Program]":
    """The same interpreter, in a virtual environment of their own."""
    python = WORK / "python/bin/python"
    wanted = HERE / "python/requirements.txt"
    stamp = WORK / "python/.requirements"
    want = sys.version + wanted.read_text(encoding="utf-8")
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != want:
        tell("bench: installing benchmarks/python/requirements.txt")
        output([getattr(sys, "_base_executable", sys.executable), "-m",
                "venv", "--clear", WORK / "python"])
        output([python, "-m", "pip", "-q", "--disable-pip-version-check",
                "install", "-r", wanted])
        stamp.write_text(want, encoding="utf-8")
    versions["python"] = platform.python_version()
    return [Program("python", "bench_peers",
                    [str(python), str(HERE / "python/bench_peers.py")],
                    from_lines)]


def build_lua(versions: "dict[str, str]") -> "list[Program]":
    """The library as `c` builds it; a process a case, as each has its traces."""
    luajit = needs("luajit")
    output([".ci/configure", RELEASE, "--buildtype=release"])
    version = (ROOT / "core/VERSION").read_text(encoding="utf-8").strip()
    output(["ninja", "-C", RELEASE, f"libfivegates-host.so.{version}"])
    versions["lua"] = first_line(luajit, "-v").split(" -- ")[0]
    script = str(HERE / "lua/bench_life.lua")
    return [Program("lua", f"bench_life {case}", [luajit, script, str(case)],
                    from_lines) for case in range(1, 6)]


def build_go(versions: "dict[str, str]") -> "list[Program]":
    go = needs("go")
    output([go, "build", "-o", WORK / "go-peers", "."], HERE / "go")
    versions["go"] = first_line(go, "version")
    return [Program("go", "go-peers", [str(WORK / "go-peers")], from_lines)]


def build_java(versions: "dict[str, str]") -> "list[Program]":
    java = needs("java")
    maven = needs("mvn")
    output([maven, "-q", "-B", "process-classes"], HERE / "java")
    versions["java"] = first_line(java, "-version")
    path = f"{WORK}/java/classes{os.pathsep}{WORK}/java/lib/*"
    count = int(output([java, "-cp", path, "Bench"]))
    jar = next((WORK / "java/lib").glob("resilience4j-core-*.jar"), None)
    version = jar.stem.rsplit("-", 1)[1] if jar else ""

    def parse(program: Program, text: str) -> "list[Row]":
        rows = from_lines(program, text)
        for row in rows:
            row.version = version if row.peer == "resilience4j" else ""
        return rows

    return [Program("java", f"Bench {case}",
                    [java, "-cp", path, "Bench", str(case), "501"], parse)
            for case in range(count)]


Builder = typing.Callable[[typing.Dict[str, str]], typing.List[Program]]
BUILDERS: "dict[str, list[tuple[str, Builder]]]" = {
    "c": [("fivegates in C", build_c)],
    "python": [("fivegates from Python", build_python),
               ("tenacity, stamina, pybreaker and botocore",
                build_python_peers)],
    "lua": [("fivegates from LuaJIT", build_lua)],
    "go": [("gobreaker and failsafe-go", build_go)],
    "java": [("resilience4j", build_java)]}
