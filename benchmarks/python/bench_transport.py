"""What guarding a request costs, beside the bare SDK and other wrappers.

    .venv/bin/python benchmarks/python/bench_transport.py          newest SDK
    .venv-peers/bin/python benchmarks/python/bench_transport.py    with LiteLLM

One whole chat completion after another over loopback, to a server in its own
process that answers at once. The systems take short turns in an order that is
drawn anew each round, so a busy neighbour hits all alike. What one adds is the
median, over the rounds of a process, of its turn less the bare SDK's of the
same round (the bare async SDK's for what is async); printed is the median of
that over the processes and its range, by the clock and by the processor (the
second minds a busy machine less).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib
import json
import logging
import multiprocessing
import os
import random
import socket
import statistics
import subprocess
import sys
import threading
import time
import typing

import openai

import fivegates
from fivegates import transport

HTTP = importlib.import_module(
    "httpx2" if int(openai.__version__.split(".")[0]) >= 3 else "httpx")
MESSAGES: "list[typing.Any]" = [{"role": "user", "content": "hi"}]
ANSWER = json.dumps({
    "id": "c1", "object": "chat.completion", "created": 1, "model": "m1",
    "choices": [{"index": 0, "finish_reason": "stop",
                 "message": {"role": "assistant", "content": "hello"}}],
    "usage": {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12},
}).encode()
REPLY = (b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
         b"Content-Length: %d\r\n\r\n" % len(ANSWER)) + ANSWER


BARE = "bare SDK"
ASYNC = "async "  # names of what is compared with ASYNC + BARE
# Requests of a turn, and how many of them only warm the caches after another
# system's turn; rounds that only warm up.
_TURN, _COLD, _WARM = 20, 4, 3


def answer(peer: socket.socket) -> None:
    """Answers each request of a connection with the same bytes."""
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    got = b""
    while True:
        while b"\r\n\r\n" not in got:
            part = peer.recv(65536)
            if not part:
                return
            got += part
        head, _, got = got.partition(b"\r\n\r\n")
        size = next(int(line.partition(b":")[2]) for line in
                    head.lower().split(b"\r\n")
                    if line.startswith(b"content-length"))
        while len(got) < size:
            got += peer.recv(65536)
        got = got[size:]
        peer.sendall(REPLY)


def serve(port: typing.Any) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(16)
        port.send(listener.getsockname()[1])
        while True:
            peer, _ = listener.accept()
            threading.Thread(target=answer, args=(peer,), daemon=True).start()


def engine_of(url: str) -> fivegates.Engine:
    return fivegates.Engine({
        "version": 1,
        "routes": {"main": {"provider": "openai", "model": "m1",
                            "base_url": url,
                            "price": {"input": 2.5, "output": 10}}},
        "workflows": {"w": {"routes": ["main"]}}})


def systems(url: str) -> "dict[str, typing.Callable[[], object]]":
    """Each system as a function that makes one request."""
    def create(client: openai.OpenAI, **more: typing.Any) -> object:
        return client.chat.completions.create(model="m1", messages=MESSAGES,
                                              **more)

    engine = engine_of(url)
    bare = openai.OpenAI(base_url=url, api_key="k", max_retries=0)
    guarded = openai.OpenAI(
        base_url=url, api_key="k", max_retries=0,
        http_client=transport.client(HTTP, engine, "w"))
    loop = asyncio.new_event_loop()
    bare_async = openai.AsyncOpenAI(base_url=url, api_key="k", max_retries=0)
    guarded_async = openai.AsyncOpenAI(
        base_url=url, api_key="k", max_retries=0,
        http_client=transport.async_client(HTTP, engine, "w"))

    def awaited(client: openai.AsyncOpenAI) -> object:
        return loop.run_until_complete(client.chat.completions.create(
            model="m1", messages=MESSAGES))

    out: "dict[str, typing.Callable[[], object]]" = {
        BARE: lambda: create(bare),
        "fivegates transport": lambda: create(guarded),
        ASYNC + BARE: lambda: awaited(bare_async),
        ASYNC + "fivegates transport": lambda: awaited(guarded_async),
        "fivegates engine.run": lambda: engine.run(
            "w", lambda attempt: create(bare, extra_headers=attempt.headers),
            stream=False, prompt_tokens=10, max_output_tokens=100),
    }
    with contextlib.suppress(ImportError):
        import tenacity

        @tenacity.retry(stop=tenacity.stop_after_attempt(3),
                        wait=tenacity.wait_exponential())
        def retried() -> object:
            return create(bare)

        out["tenacity"] = retried
    with contextlib.suppress(ImportError):
        os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
        import litellm

        for name in ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy"):
            logging.getLogger(name).setLevel(logging.ERROR)
        router = litellm.Router(model_list=[{
            "model_name": "m", "litellm_params": {
                "model": "openai/m1", "api_base": url, "api_key": "k"}}])
        out["LiteLLM Router"] = lambda: router.completion("m", MESSAGES)
    return out


def measured(requests: int) -> "dict[str, list[float]]":
    """Of each system: its clock, what it adds, and both by the processor, as
    medians in us over the rounds of this process."""
    here, there = multiprocessing.Pipe()
    server = multiprocessing.Process(target=serve, args=(there,), daemon=True)
    server.start()
    tried = systems(f"http://127.0.0.1:{here.recv()}/v1")
    rounds: "list[dict[str, tuple[float, float]]]" = []
    order, rng = list(tried), random.Random(1)
    for _ in range(requests // _TURN + _WARM):
        rng.shuffle(order)
        rounds.append({name: turn(tried[name]) for name in order})
    server.terminate()
    out: "dict[str, list[float]]" = {}
    for name in tried:
        out[name] = []
        base = ASYNC + BARE if name.startswith(ASYNC) else BARE
        for by in (0, 1):
            for less in (0, 1):
                out[name].append(1e6 * statistics.median(
                    one[name][by] - less * one[base][by]
                    for one in rounds[_WARM:]))
    return out


def turn(one: "typing.Callable[[], object]") -> "tuple[float, float]":
    """Median seconds of a request, by the clock and by the processor."""
    took, used = [], []
    for i in range(_TURN):
        start, cpu = time.perf_counter(), time.process_time()
        one()
        if i >= _COLD:
            took.append(time.perf_counter() - start)
            used.append(time.process_time() - cpu)
    return statistics.median(took), statistics.median(used)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=1000,
                        help="of each system in each process")
    parser.add_argument("--processes", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measured(options.requests)))
        return
    each: "list[dict[str, list[float]]]" = []
    for i in range(options.processes):
        print(f"process {i + 1} of {options.processes}", file=sys.stderr)
        each.append(json.loads(subprocess.run(
            [sys.executable, __file__, "--one", "--requests",
             str(options.requests)], check=True, stdout=subprocess.PIPE).stdout))
    if options.json:
        print(json.dumps({"openai": openai.__version__, "median_us": each}))
        return
    print(f"openai {openai.__version__}, {options.processes} processes, "
          f"{options.requests} requests of each system; us by the clock, added "
          f"(range); by the processor, added (range)")
    for name in each[0]:
        line = f"{name:27}"
        for at in (0, 2):
            clock, added = ([one[name][n] for one in each]
                            for n in (at, at + 1))
            line += (f"{statistics.median(clock):8.0f} "
                     f"{statistics.median(added):+7.0f} "
                     f"({min(added):+.0f} to {max(added):+.0f})")
        print(line)


if __name__ == "__main__":
    main()
