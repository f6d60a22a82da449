"""The gateway beside the same nginx doing plain proxy_pass, under wrk.

    .venv/bin/python benchmarks/openresty/bench.py [--seconds 4] [--runs 5]

One worker, one provider, 32 connections, all on this machine: figures are
ratios, not throughput of anything. Every row is measured in each run, then all
again; medians are printed, and written to build/bench/openresty.json. Needs
nginx with its Lua module, wrk, and git with a network for
lua-resty-limit-traffic (its row is left out without).
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import re
import shutil
import socket
import statistics
import subprocess
import sys
import time
import typing
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
WORK = ROOT / "build/bench/openresty"
LIMIT = ROOT / "build/bench/lua-resty-limit-traffic"
LIMIT_URL = "https://github.com/openresty/lua-resty-limit-traffic"
LIMIT_COMMIT = "2a834b193ccf1cd94af6c7f2856eb2dce9fc5a39"
CONNECTIONS = 32
BODY = {"model": "m", "stream": False, "messages": [
    {"role": "user", "content": "word " * 100}]}

# Name, path, streamed, and the row its ratio is to.
ROWS = [
    ("whole: proxy_pass", "plain", False, None),
    ("whole: fivegates proxy", "fivegates", False, "whole: proxy_pass"),
    ("whole: proxy_pass + fivegates log recipe", "fivegates-log", False,
     "whole: proxy_pass"),
    ("whole: proxy_pass + limit-traffic", "limit-traffic", False,
     "whole: proxy_pass"),
    ("whole: proxy_pass + shared counter", "counter", False,
     "whole: proxy_pass"),
    ("stream of 32 events: proxy_pass", "plain", True, None),
    ("stream of 32 events: fivegates proxy", "fivegates", True,
     "stream of 32 events: proxy_pass"),
    ("whole, 5 % 503: proxy_pass, next upstream", "plain-faults", False, None),
    ("whole, 5 % 503: fivegates proxy", "fivegates-faults", False,
     "whole, 5 % 503: proxy_pass, next upstream"),
]


def route(port: int, name: str) -> "dict[str, typing.Any]":
    return {"provider": "openai", "model": "m", "account": name,
            "base_url": f"http://127.0.0.1:{port}/v1",
            "price": {"input": 2.5, "output": 10},
            "provides": {"input": {"context_tokens": 128000},
                         "output": {"max_tokens": 4096},
                         "operations": {"streaming": True,
                                        "first_token_p95_ms": 100,
                                        "latency_p95_ms": 300}}}


def card(good: int, faulty: int) -> "dict[str, typing.Any]":
    import fivegates
    made: "dict[str, typing.Any]" = {
        "version": 1, "backoff": {"base_ms": 1, "rate_base_ms": 1},
        # A budget for one in twenty, as proxy_pass has none at all.
        "retry_bucket": {"credit_ppm": 200000, "cap": 1000, "start": 1000},
        "limits": {"retries_per_hour": 100000000},
        "routes": {"good": route(good, "a"), "faulty": route(faulty, "b"),
                   "backup": route(good, "c")},
        "workflows": {
            "good": {"routes": ["good"]},
            "faulty": {"routes": ["faulty", "backup"],
                       "budget": {"extra_tokens": 1000000,
                                  "extra_cost_usd": None}}},
        "contracts": [{
            "workflow": "faulty", "route": "backup", "fingerprint": "auto",
            "approved_by": "bench@example.com",
            "evidence": {"fixtures": "sha256:" + "0" * 64, "cases": 10,
                         "passed": 10, "score_ppm": 990000,
                         "primary_score_ppm": 990000,
                         "measured_at": "2020-01-01T00:00:00Z",
                         "expires_at": "2126-11-01T00:00:00Z"}}]}
    policy = fivegates.Policy.loads(made, auto_fingerprint=True)
    made["contracts"][0]["fingerprint"] = policy.contract(
        "faulty", "backup")["fingerprint"]
    return made


def limit_traffic() -> bool:
    """lua-resty-limit-traffic at its commit, fetched once."""
    if (LIMIT / "lib/resty/limit/req.lua").exists():
        return True
    try:
        subprocess.run(["git", "clone", "-q", LIMIT_URL, LIMIT], check=True,
                       timeout=60, capture_output=True)
        subprocess.run(["git", "-C", LIMIT, "checkout", "-q", LIMIT_COMMIT],
                       check=True, timeout=60, capture_output=True)
    except (OSError, subprocess.SubprocessError):
        return False
    return True


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as one:
        return typing.cast(int, one.getsockname()[1])


def start(name: str, words: "dict[str, str]") -> "subprocess.Popen[bytes]":
    text = (HERE / f"{name}.conf").read_text()
    for word, value in words.items():
        text = text.replace(f"@{word}@", value)
    path = WORK / f"{name}.conf"
    path.write_text(text)
    env = {**os.environ}
    env.setdefault("FIVEGATES_LIB", str(ROOT / "build/release"))
    return subprocess.Popen(["nginx", "-e", "stderr", "-p", f"{WORK}/", "-c",
                             str(path)], env=env)


def reach(port: int) -> None:
    until = time.monotonic() + 10
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            if time.monotonic() > until:
                raise SystemExit("bench: nginx did not start; its words are "
                                 "above") from None
            time.sleep(0.05)


def wrk(port: int, path: str, streamed: bool, seconds: int,
        connections: int) -> "tuple[float, float, float]":
    """Answers a second, and the 50th and 99th percentile in ms."""
    script = WORK / "post.lua"
    body = json.dumps({**BODY, "stream": streamed}, separators=(",", ":"))
    script.write_text(f"wrk.method = 'POST'\nwrk.body = [==[{body}]==]\n")
    done = subprocess.run(
        ["wrk", "-t1", f"-c{connections}", f"-d{seconds}", "--latency", "-s",
         script, f"http://127.0.0.1:{port}/{path}/v1/chat/completions"],
        check=True, capture_output=True, text=True).stdout
    bad = re.search(r"Non-2xx or 3xx responses: (\d+)", done)
    if bad and int(bad.group(1)):
        raise SystemExit(f"bench: {path}: {bad.group(0)}")

    def percentile(name: str) -> float:
        found = re.search(rf"{name}%\s+([\d.]+)(us|ms|s)", done)
        assert found, done
        return float(found.group(1)) * {"us": 0.001, "ms": 1, "s": 1000}[
            found.group(2)]
    rate = re.search(r"Requests/sec:\s+([\d.]+)", done)
    assert rate, done
    return float(rate.group(1)), percentile("50"), percentile("99")


def measure(options: argparse.Namespace, port: int, has_limits: bool,
            ) -> "dict[str, typing.Any]":
    rows = [one for one in ROWS if has_limits or one[1] != "limit-traffic"]
    loaded: "dict[str, list[tuple[float, float, float]]]" = {}
    alone: "dict[str, list[tuple[float, float, float]]]" = {}
    costs: "list[dict[str, float]]" = []
    for run in range(options.runs + 1):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/in-a-worker") as got:
            costs.append(json.load(got))
        for name, path, streamed, _ in rows:
            many = wrk(port, path, streamed, options.seconds, CONNECTIONS)
            one = wrk(port, path, streamed, max(1, options.seconds // 2), 1)
            if run:  # the first warms up
                loaded.setdefault(name, []).append(many)
                alone.setdefault(name, []).append(one)
        print(f"run {run} of {options.runs}", file=sys.stderr)
    middle = statistics.median
    return {
        "rows": [{
            "name": name, "to": to,
            "per_second": middle(x[0] for x in loaded[name]),
            "p50_ms": middle(x[1] for x in loaded[name]),
            "p99_ms": middle(x[2] for x in loaded[name]),
            "alone_p50_ms": middle(x[1] for x in alone[name]),
        } for name, _, _, to in rows],
        "in_worker_ns": {name: middle(one[name] for one in costs)
                         for name in costs[0]}}


def show(told: "dict[str, typing.Any]") -> None:
    rows = {one["name"]: one for one in told["rows"]}
    print(f"{'':44}{'req/s':>8}{'ratio':>7}{'p50 ms':>8}{'p99 ms':>8}"
          f"{'1 conn. p50 ms':>16}{'added':>8}")
    for name, one in rows.items():
        base = rows.get(one["to"])
        ratio = f"{one['per_second'] / base['per_second']:.2f}" if base else ""
        added = (f"{one['alone_p50_ms'] - base['alone_p50_ms']:+.3f}" if base
                 else "")
        print(f"{name:44}{one['per_second']:8.0f}{ratio:>7}{one['p50_ms']:8.2f}"
              f"{one['p99_ms']:8.2f}{one['alone_p50_ms']:16.3f}{added:>8}")
    print("\nin a worker, ns of CPU time")
    for name, value in told["in_worker_ns"].items():
        print(f"{name:56}{value:8.0f}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--seconds", type=int, default=4)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    for tool in ("nginx", "wrk"):
        if shutil.which(tool) is None:
            print(f"bench: {tool} is not on this machine", file=sys.stderr)
            return 2
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    has_limits = limit_traffic()
    if not has_limits:
        print("bench: lua-resty-limit-traffic could not be fetched",
              file=sys.stderr)
    port, good, faulty = free_port(), free_port(), free_port()
    (WORK / "card.json").write_text(json.dumps(card(good, faulty)))
    words = {"DIR": str(WORK), "ROOT": str(ROOT), "LIMIT": str(LIMIT),
             "PORT": str(port), "GOOD": str(good), "FAULTY": str(faulty),
             "USER": "user root;" if os.geteuid() == 0 else ""}
    servers = [start("provider", words), start("nginx", words)]
    try:
        for one in (good, port):
            reach(one)
        before = os.getloadavg()[0]
        told = measure(options, port, has_limits)
        told["load"] = [before, os.getloadavg()[0]]
    finally:
        for server in servers:
            server.terminate()
            server.wait()
    (WORK.parent / "openresty.json").write_text(json.dumps(told, indent=1))
    show(told)
    print(f"\nload average before and after: {told['load'][0]:.1f}, "
          f"{told['load'][1]:.1f}; {os.cpu_count()} cores, shared by wrk, the "
          "gateway and the provider")
    return 0


if __name__ == "__main__":
    sys.exit(main())
