"""Every benchmark that can run here, in one run: DESIGN 15 against its limits,
then a protected call beside other libraries.

    make bench [ARGS="--runs 9"]
    python benchmarks/run.py [--runs N] [--only c,python,go,java] [--json FILE]

What cannot be built or installed is skipped with a sentence. Figures are
medians over the runs of each program's own medians; README.md says how each
is taken and how to compare. Writes benchmarks/results/latest.json.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import json
import os
import pathlib
import platform
import re
import sys
import sysconfig
import typing

from programs import (BUILDERS, HERE, RELEASE, WORK, Program, Row, Skip,
                      first_line, output, tell)
from tables import compare, judge, print_limits, print_peers, print_rest

def machine() -> "dict[str, typing.Any]":
    cpu = platform.processor() or platform.machine()
    try:
        for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                cpu = line.split(":", 1)[1].strip()
                break
    except OSError:
        pass
    flags = ""
    commands = RELEASE / "compile_commands.json"
    if commands.exists():
        for command in json.loads(commands.read_text(encoding="utf-8")):
            if command["file"].endswith("core/src/fg_call.c"):
                flags = " ".join(
                    word for word in command["command"].split()
                    if re.match(r"-(O|m|g$|std|f(?!diagnostics)|DNDEBUG)",
                                word))
                break
    changed = first_line("git", "status", "--porcelain", "--", "core",
                         "bindings", "benchmarks")
    return {
        "cpu": cpu, "cores": os.cpu_count(), "system": platform.system(),
        "kernel": platform.release().split("-")[0],
        "compiler": first_line(os.environ.get("CC", "cc"), "--version"),
        "flags": flags,
        "commit": first_line("git", "rev-parse", "--short=12", "HEAD"),
        "changed": bool(changed),
        "python": platform.python_version(),
        "python_flags": " ".join(
            word for word in str(sysconfig.get_config_var("CFLAGS")).split()
            if re.match(r"-(O|DNDEBUG|fwrapv)", word)),
    }


def load() -> float:
    return os.getloadavg()[0]


def run_all(programs: "list[Program]", runs: int,
            skipped: "list[str]") -> "list[Row]":
    """All programs once, then all again: a busy minute hits all alike."""
    rows: "dict[tuple[str, str, str, str], Row]" = {}
    dead: "set[str]" = set()
    for turn in range(runs):
        tell(f"bench: run {turn + 1} of {runs} (load {load():.1f})")
        for program in programs:
            if program.name in dead:
                continue
            try:
                found = program.parse(program, output(program.command))
            except (Skip, ValueError, KeyError) as problem:
                skipped.append(f"{program.name}: {problem}")
                dead.add(program.name)
                continue
            for row in found:
                if row.key in rows:
                    rows[row.key].values += row.values
                else:
                    rows[row.key] = row
    return list(rows.values())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--only", default=",".join(BUILDERS),
                        help="of c, python, lua, go, java (default: all)")
    parser.add_argument("--json", type=pathlib.Path,
                        default=HERE / "results/latest.json")
    parser.add_argument("--all", action="store_true",
                        help="print every row of fivegates too")
    options = parser.parse_args()
    chosen = options.only.split(",")
    unknown = set(chosen) - set(BUILDERS)
    if unknown or options.runs < 1:
        parser.error(f"--only takes {', '.join(BUILDERS)}; --runs at least 1")

    WORK.mkdir(parents=True, exist_ok=True)
    skipped: "list[str]" = []
    versions: "dict[str, str]" = {}
    programs: "list[Program]" = []
    for group in chosen:
        for whose, build in BUILDERS[group]:
            try:
                programs += build(versions)
            except Skip as skip:
                skipped.append(f"{whose}: {skip}")
                tell(f"bench: skipped: {skipped[-1]}")
    about = machine()
    about["runtimes"] = versions
    before = load()
    rows = run_all(programs, options.runs, skipped)
    judged, table = judge(rows), compare(rows)
    about |= {"load_before": round(before, 2), "load_after": round(load(), 2)}

    print(f"\n{about['cpu']}, {about['cores']} cores; {about['compiler']}; "
          f"{about['flags']}; commit {about['commit']}"
          + (" with changes" if about["changed"] else "")
          + f"; {options.runs} runs; load {before:.1f} to "
          f"{about['load_after']:.1f}")
    print_limits(judged)
    print_peers(table)
    if options.all:
        print_rest(rows)
    for sentence in skipped:
        print(f"\nSkipped: {sentence}.")
    if before > (os.cpu_count() or 1) / 2:
        print("\nThe machine was busy when this began: figures are too high "
              "and waver. Run again when it is idle.")
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps({
        "date": datetime.datetime.now(datetime.timezone.utc)
        .isoformat(timespec="seconds"),
        "machine": about, "runs": options.runs, "limits": judged,
        "peers": table, "skipped": skipped,
        "rows": [{**dataclasses.asdict(row), "median": row.median}
                 for row in rows]}, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
