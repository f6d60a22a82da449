"""What one protected call costs with four Python libraries.

    python benchmarks/python/bench_peers.py

Prints one JSON object a line, read by benchmarks/run.py: nanoseconds, median
of many short rounds. A library that is not installed is skipped.
"""

from __future__ import annotations

import argparse
import gc
import importlib.metadata
import json
import platform
import statistics
import sys
import time
import typing

Work = typing.Callable[[], object]
Case = typing.Tuple[str, str, Work]  # path, what, work


def send() -> int:
    return 1


def down() -> int:
    raise OSError("down")


def with_tenacity() -> "typing.Iterator[Case]":
    import tenacity

    yield ("success", "@retry, 3 attempts, exponential wait with jitter",
           tenacity.retry(stop=tenacity.stop_after_attempt(3),
                          wait=tenacity.wait_random_exponential(max=10),
                          retry=tenacity.retry_if_exception_type(OSError))(
                              send))


def with_stamina() -> "typing.Iterator[Case]":
    import stamina

    yield "success", "@retry, 3 attempts", stamina.retry(
        on=OSError, attempts=3)(send)


def with_pybreaker() -> "typing.Iterator[Case]":
    import pybreaker

    closed = pybreaker.CircuitBreaker(fail_max=5, reset_timeout=3600)
    yield "success", "call, closed", lambda: closed.call(send)
    opened = pybreaker.CircuitBreaker(fail_max=1, reset_timeout=3600)
    for _ in range(2):
        try:
            opened.call(down)
        except (OSError, pybreaker.CircuitBreakerError):
            pass
    assert opened.current_state == "open"
    refused = pybreaker.CircuitBreakerError

    def turned_away() -> object:
        try:
            return opened.call(send)
        except refused:
            return None

    yield "reject", "call, open", turned_away


def with_botocore() -> "typing.Iterator[Case]":
    from botocore.retries.quota import RetryQuota

    quota = RetryQuota()

    def paid() -> object:
        quota.acquire(5)
        send()
        return quota.release(5)

    yield "success", "RetryQuota, acquire and release", paid
    full = RetryQuota()

    def plain() -> object:
        send()
        return full.release(1)

    yield "success", "RetryQuota, first try (nothing to pay)", plain
    empty = RetryQuota(initial_capacity=0)
    assert empty.acquire(5) is False
    yield "reject", "RetryQuota, empty", lambda: empty.acquire(5)


PEERS = {"tenacity": with_tenacity, "stamina": with_stamina,
         "pybreaker": with_pybreaker, "botocore": with_botocore}


def measure(work: Work, rounds: int) -> "tuple[float, float]":
    """Median and 99th percentile; a round takes about half a millisecond."""
    clock = time.perf_counter_ns
    begun = clock()
    for _ in range(200):
        work()
    size = max(10, int(500_000 * 200 / (clock() - begun)))
    took = []
    gc.collect()
    for _ in range(rounds):
        begun = clock()
        for _ in range(size):
            work()
        took.append((clock() - begun) / size)
    took.sort()
    return statistics.median(took), took[len(took) * 99 // 100]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=301)
    options = parser.parse_args()

    def report(peer: str, version: str, case: Case) -> None:
        path, what, work = case
        median, p99 = measure(work, options.rounds)
        print(json.dumps({
            "peer": peer, "version": version, "path": path, "what": what,
            "ns": median, "p99_ns": p99, "runtime": "Python "
            + platform.python_version()}), flush=True)

    report("bare call", platform.python_version(),
           ("bare", "the call alone", send))
    for peer, cases in PEERS.items():
        try:
            found = list(cases())
        except ImportError as error:
            print(f"{peer} is not installed: {error}", file=sys.stderr)
            continue
        for case in found:
            report(peer, importlib.metadata.version(peer), case)


if __name__ == "__main__":
    main()
