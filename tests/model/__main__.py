"""python -m model --streams 100000 --seed 1 --jobs 2: exit 1 at a difference."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import time
from collections import Counter
from typing import Any

from .cards import BASE_MS
from .compare import run, show, shrink, stream


def side_of(card: dict[str, Any], seed: int) -> Any:
    from .engine_side import EngineSide, policy_of

    return EngineSide(policy_of(json.dumps(card)), seed)


def check(seed: int) -> tuple[str | None, str, dict[str, int]]:
    """One stream: (report or None, its headline, actions seen)."""
    card, spec, driver = stream(seed)
    out = run(spec, side_of(card, seed), None, driver)
    if out.difference is None:
        return None, "", out.kinds
    small = shrink(card, spec, seed, list(out.ops), side_of, out.difference)
    if small.difference is None:
        small = out
    return show(card, spec, seed, small, BASE_MS, bool(os.environ.get("FG_MODEL_BRIEF"))), out.difference, out.kinds


def chunk(bounds: tuple[int, int]) -> tuple[int, list[tuple[str, str]], Counter[str]]:
    found: list[tuple[str, str]] = []
    kinds: Counter[str] = Counter()
    for seed in range(*bounds):
        report, headline, seen = check(seed)
        kinds.update(seen)
        if report is not None:
            found.append((headline, report))
    return bounds[1] - bounds[0], found, kinds


def compare_streams(first: int, count: int, jobs: int, limit: int = 1, progress: bool = True) -> tuple[int, list[tuple[str, str]], Counter[str]]:
    """Streams `first`.. by `jobs` processes; stops after `limit` differences."""
    size = max(1, min(500, count // max(1, jobs)))
    parts = [(i, min(i + size, first + count)) for i in range(first, first + count, size)]
    done, found, kinds = 0, [], Counter[str]()
    began = time.monotonic()
    pool = multiprocessing.get_context("spawn").Pool(jobs) if jobs > 1 else None
    try:
        for n, more, seen in (pool.imap_unordered(chunk, parts) if pool else map(chunk, parts)):
            done += n
            found += more
            kinds.update(seen)
            if progress:
                rate = done / max(0.001, time.monotonic() - began)
                print(f"\r{done} of {count} streams, {rate:.0f}/s, {len(found)} differences", end="", file=sys.stderr, flush=True)
            if limit and len(found) >= limit:
                break
    finally:
        if pool:
            pool.terminate()
            pool.join()
    if progress:
        print(file=sys.stderr)
    return done, found, kinds


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m model", description="Compares the engine with the reference model on random streams.")
    parser.add_argument("--streams", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1, help="the first stream's seed")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--limit", type=int, default=1, help="stop after so many differences; 0: go on")
    parser.add_argument("--summary", action="store_true", help="group the differences by headline, one example each")
    args = parser.parse_args()
    done, found, kinds = compare_streams(args.seed, args.streams, args.jobs, args.limit)
    print(f"{done} streams; answers: " + ", ".join(f"{k} {n}" for k, n in kinds.most_common()))
    if args.summary:
        groups: dict[str, list[str]] = {}
        for headline, report in found:
            groups.setdefault("".join("#" if c.isdigit() else c for c in headline), []).append(report)
        for headline, reports in sorted(groups.items(), key=lambda g: -len(g[1])):
            seeds = " ".join(r.split(":")[0].split()[1] for r in reports[:20])
            print(f"\n=== {len(reports)} x {headline}\nseeds {seeds}\n{min(reports, key=len)}")
    else:
        for _, report in found[: args.limit or None]:
            print("\n" + report)
    print(f"{len(found)} differences")
    return 1 if found else 0


if __name__ == "__main__":
    from model.__main__ import main as run_main  # so that worker processes find what they are sent

    sys.exit(run_main())
