"""One protected call from Python with fivegates, as bench_peers.py measures
other libraries: success, refused by an open breaker, and the whole runner.

    python benchmarks/python/bench_protect.py

Prints one JSON object a line, read by benchmarks/run.py.
"""

from __future__ import annotations

import argparse
import json
import platform
import typing

import fivegates

from bench_peers import measure

CARD: "dict[str, typing.Any]" = {
    "version": 1,
    "breaker": {"open_ms": 3600000, "open_max_ms": 3600000},
    "routes": {
        name: {"provider": "openai", "model": "m", "account": name,
               "price": {"input": 2.5, "output": 10}}
        for name in ("main", "dark")},
    "workflows": {
        "up": {"routes": ["main"]},
        "down": {"routes": ["dark"], "budget": {"total_attempts": 1}}},
}


def send(_attempt: object) -> int:
    return 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=301)
    options = parser.parse_args()
    engine = fivegates.Engine(fivegates.Policy.loads(CARD), seed=1)
    begin, run = engine.begin, engine.run

    def success() -> object:
        call = begin("up", prompt_tokens=900, max_output_tokens=300)
        permit = call.begin_attempt()
        call.event("sent")
        send(permit)
        call.event("token", 12)
        return call.success(prompt_tokens=900, output_tokens=120,
                            finish_reason="stop")

    def whole() -> object:
        return run("up", send, prompt_tokens=900, max_output_tokens=300)

    def refused() -> object:
        return begin("down", prompt_tokens=900, max_output_tokens=300)

    for _ in range(8):
        call = begin("down")
        if call.decision.action == "proceed":
            call.begin_attempt()
            call.failure({"phase": "response", "status": 503})
        call.end()
    assert engine.route("dark")["breaker"] == "open"
    assert refused().decision.action == "fail_closed"  # type: ignore
    assert success().action == "accept"  # type: ignore
    assert whole() == 1

    for path, what, work in (
            ("success", "begin, permit, sent, token, success", success),
            ("success", "engine.run, the whole loop", whole),
            ("reject", "begin, breaker open", refused)):
        median, p99 = measure(work, options.rounds)
        print(json.dumps({
            "peer": "fivegates", "version": fivegates.__version__,
            "path": path, "what": what, "ns": median, "p99_ns": p99,
            "runtime": "Python " + platform.python_version()}), flush=True)


if __name__ == "__main__":
    main()
