"""A batch of jobs that can be stopped at any moment and goes on later.

    python examples/batch/batch.py

work() is what a worker does; main() kills one worker in the middle and starts
another, against a loopback provider.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import typing

import httpx2
import openai

import fivegates
from fivegates import transport

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
from jobs import Jobs  # noqa: E402
from loopback import Loopback, Request, chat  # noqa: E402


def work(engine: fivegates.Engine, jobs: Jobs) -> None:
    """Does jobs until none is left, or today's money is spent."""
    route = engine.policy.route("main")
    client = openai.OpenAI(base_url=route["base_url"], max_retries=0,
                           http_client=transport.timed_client(httpx2),
                           api_key=os.environ[route["key_env"]])

    def send(attempt: fivegates.Attempt) -> typing.Any:
        return client.chat.completions.create(**attempt.apply({
            "model": "gpt-4o", "max_tokens": 60,
            "messages": [{"role": "user", "content": text}]}))

    while (job := jobs.next()) is not None:
        number, text, prior = job
        try:
            outcome = engine.run("summaries", send, stream=False, prior=prior,
                                 prompt_tokens=40, max_output_tokens=60,
                                 outcome=True)
            jobs.put(number, state="done",
                     answer=outcome.value.choices[0].message.content)
            print(f"  job {number}: done, {outcome.decision.attempts_left} "
                  f"attempts left")
        except fivegates.Queued as queued:  # later; what it has spent counts
            jobs.put(number, prior=json.dumps(queued.prior),
                     due=time.time() + queued.decision.wait_ms / 1000)
            print(f"  job {number}: queued for {queued.decision.wait_ms} ms, "
                  f"prior {queued.prior}")
        except fivegates.Refused as refused:
            if refused.decision.reason == "spend_per_day":
                print("  today's money is spent; the rest waits")
                break
            jobs.put(number, state="failed", answer=refused.decision.reason)
            print(f"  job {number}: {refused}")
    client.close()


# ---- the demonstration


def worker(url: str, folder: pathlib.Path) -> None:
    card = (HERE / "card.yaml").read_text(encoding="utf-8")
    engine = fivegates.Engine(
        fivegates.Policy.loads(card.replace("http://127.0.0.1:0", url)),
        region=str(folder / "region"))  # the day's money outlives a process
    jobs = Jobs(folder)
    work(engine, jobs)
    jobs.close()


def answer(request: Request, word: str, body: "dict[str, typing.Any]") -> None:
    """Chat completions; and a rate limit that says when to come back."""
    if word == "later":
        request.json(429, {"error": {"code": "rate_limit_exceeded"}},
                     Retry_After_Ms="300")
    else:
        chat(request, word, body)


def main() -> None:
    os.environ["BATCH_KEY"] = "demo"
    with tempfile.TemporaryDirectory() as name, Loopback(
            answer, main=["ok", "later", "ok", "silent", "503", "ok"]) as provider:
        folder = pathlib.Path(name)
        jobs = Jobs(folder)
        jobs.add(5)
        print("a worker, killed while it waits for an answer", flush=True)
        with subprocess.Popen([sys.executable, __file__, provider.url,
                               name]) as first:
            while "silent" not in provider.seen["main"] and first.poll() is None:
                time.sleep(0.01)
            first.kill()
        print(f"  {jobs.counts()}\nanother goes on")
        worker(provider.url, folder)
        print("more work than today's money")
        jobs.add(6)
        worker(provider.url, folder)
        print("server:", json.dumps({**provider.seen, "jobs": jobs.counts()}))
        jobs.close()


if __name__ == "__main__":
    if len(sys.argv) == 3:
        worker(sys.argv[1], pathlib.Path(sys.argv[2]))
    else:
        main()
