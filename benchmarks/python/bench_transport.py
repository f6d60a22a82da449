"""What guarding a request costs, beside the bare SDK and other wrappers.

    .venv/bin/python benchmarks/python/bench_transport.py          newest SDK
    .venv-peers/bin/python benchmarks/python/bench_transport.py    with LiteLLM

One whole chat completion after another over loopback, to a server in its own
process that answers at once. The systems take turns, so a busy neighbour hits
all alike. Printed: each one's median time and what it adds to the bare SDK's,
by the clock and by the processor (the second does not mind a busy machine).
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import logging
import multiprocessing
import os
import socket
import statistics
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


# Requests of a turn, and how many of them only warm the caches after another
# system's turn.
_TURN, _COLD = 40, 8


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
    out: "dict[str, typing.Callable[[], object]]" = {
        "bare SDK": lambda: create(bare),
        "fivegates transport": lambda: create(guarded),
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    here, there = multiprocessing.Pipe()
    server = multiprocessing.Process(target=serve, args=(there,), daemon=True)
    server.start()
    took: "dict[str, list[float]]" = {}
    used: "dict[str, list[float]]" = {}
    tried = systems(f"http://127.0.0.1:{here.recv()}/v1")
    for turn in range(options.requests // _TURN + 1):
        for name, one in tried.items():
            for i in range(_TURN):
                start, cpu = time.perf_counter(), time.process_time()
                one()
                took.setdefault(name, [])
                if turn and i >= _COLD:
                    took[name].append(time.perf_counter() - start)
                    used.setdefault(name, []).append(
                        time.process_time() - cpu)
    server.terminate()
    clock, processor = ({name: statistics.median(all_) * 1e6
                         for name, all_ in one.items()}
                        for one in (took, used))
    if options.json:
        print(json.dumps({"openai": openai.__version__, "median_us": clock,
                          "median_cpu_us": processor}))
        return
    print(f"openai {openai.__version__}, {options.requests} requests each, "
          f"medians in us: clock, added; processor, added")
    for name in clock:
        print(f"{name:22}" + "".join(
            f"{one[name]:9.0f} {one[name] - one['bare SDK']:+7.0f}"
            for one in (clock, processor)))


if __name__ == "__main__":
    main()
