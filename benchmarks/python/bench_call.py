"""A call's life from Python: begin, begin_attempt, sent, token, success.

    python benchmarks/python/bench_call.py [--json]

Prints medians and 99th percentiles over batches, in nanoseconds.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import time
import typing

import fivegates

CARD: "dict[str, typing.Any]" = {
    "version": 1,
    "routes": {
        name: {"provider": "openai", "model": "m", "account": name,
               "price": {"input": 2.5, "output": 10},
               "provides": {"input": {"context_tokens": 128000},
                            "output": {"max_tokens": 4096}}}
        for name in ("main", "backup")},
    "workflows": {"w": {"routes": ["main", "backup"]}},
}
EVIDENCE: "dict[str, typing.Any]" = {
    "provider": "openai", "phase": "response", "status": 429,
    "headers": {"content-type": "application/json", "retry-after": "2"},
    "body": json.dumps({"error": {
        "message": "Rate limit reached for gpt-4o in organization org-x on "
                   "tokens per min (TPM): Limit 30000, Used 29000, Requested "
                   "2000. Please try again in 2s.",
        "type": "tokens", "param": None, "code": "rate_limit_exceeded"}})}


def cases() -> "dict[str, typing.Callable[[], object]]":
    engine = fivegates.Engine(fivegates.Policy.loads(CARD), seed=1)
    begin, classify = engine.begin, fivegates.classify
    held = begin("w", prompt_tokens=900, max_output_tokens=300)
    decision = held.decision

    def life() -> None:
        call = begin("w", prompt_tokens=900, max_output_tokens=300)
        call.begin_attempt()
        call.event("sent")
        call.event("token", 12)
        call.success(prompt_tokens=900, output_tokens=120,
                     finish_reason="stop")

    def life_with_fields() -> None:
        call = begin("w", prompt_tokens=900, max_output_tokens=300)
        permit = call.begin_attempt()
        assert permit.action == "proceed" and permit.route
        call.event("sent")
        call.event("token", 12)
        assert call.success(prompt_tokens=900, output_tokens=120,
                            finish_reason="stop").action == "accept"

    return {
        "an empty function": lambda: None,
        "a call's life": life,
        "a call's life, decisions read": life_with_fields,
        "classify a 300-byte body": lambda: classify(EVIDENCE),
        "decision as JSON": decision.json,
    }


def measure(work: "typing.Callable[[], object]", batches: int,
            size: int) -> "tuple[float, float]":
    """Median and 99th percentile of a batch's mean, in nanoseconds."""
    clock = time.perf_counter_ns
    for _ in range(size):
        work()
    took = []
    gc.collect()
    for _ in range(batches):
        begun = clock()
        for _ in range(size):
            work()
        took.append((clock() - begun) / size)
    took.sort()
    return statistics.median(took), took[int(len(took) * 0.99)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--batches", type=int, default=200)
    parser.add_argument("--size", type=int, default=500)
    options = parser.parse_args()
    results = {name: measure(work, options.batches, options.size)
               for name, work in cases().items()}
    if options.json:
        print(json.dumps({name: {"median_ns": round(m), "p99_ns": round(p)}
                          for name, (m, p) in results.items()}))
        return
    for name, (median, p99) in results.items():
        print(f"{name:<32} {median:8.0f} ns   p99 {p99:8.0f} ns")


if __name__ == "__main__":
    main()
