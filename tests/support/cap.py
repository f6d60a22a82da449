"""The day's money, counted by what a provider received: independent of the
engine that holds it.

Run as a program it is a service: eight processes forked of it share a region
and send calls until each has had its share of answers.
"""

from __future__ import annotations

import http.client
import json
import os
import sys
import typing

Json = typing.Dict[str, typing.Any]
UNIX_MS = 1_796_000_000_000  # 2026-11-30
DAY_MS = 86_400_000
PROCESSES = 8
PROMPT, OUTPUT = 200, 30  # tokens: no less than what is asked
PRICE = {"input": 2.5, "output": 10}  # USD a million: nano-dollars = 1000 x
ANSWER = 6  # words that the provider answers
HOLD_NUSD = PROMPT * 2500 + OUTPUT * 10000  # 800 000


def body_of(number: int) -> Json:
    return {"model": "model-of-main", "max_tokens": OUTPUT, "messages": [
        {"role": "user", "content": f"question {number:02d} " * 20}]}


def nusd_of(record: Json) -> int:
    """What an answered request has cost: whole micro-dollars, rounded up, as
    the day counts."""
    exact = record["billed_prompt"] * 2500 + record["billed_output"] * 10000
    return int(-(-exact // 1000) * 1000)


def most_nusd(records: "list[Json]") -> int:
    """The most that must have been held and settled at a moment: what is not
    yet answered, or never well, at its hold; the others at their cost. (Who
    has the answer settles before the server notes its end.)"""
    moments = sorted([(one["at"], HOLD_NUSD) for one in records] + [
        (one["answered_at"], nusd_of(one) - HOLD_NUSD) for one in records
        if one["whole"]])
    most = total = 0
    for _, change in moments:
        total += change
        most = max(most, total)
    return most


def final_nusd(records: "list[Json]") -> int:
    """What all have cost; one without a whole answer keeps its hold."""
    return sum(nusd_of(one) if one["whole"] else HOLD_NUSD for one in records)


# ---- the service


def _call(engine: typing.Any, url: str, workflow: str, number: int,
          cache: typing.Any) -> Json:
    import fivegates
    from fivegates.testing import ProviderError

    def send(attempt: fivegates.Attempt) -> Json:
        wire = http.client.HTTPConnection(url.rpartition("/")[2], timeout=60)
        try:
            attempt.sent()
            wire.request("POST", "/main/v1/chat/completions",
                         json.dumps(attempt.apply(body_of(number))), {
                             "Content-Type": "application/json"})
            answer = wire.getresponse()
            raw = answer.read()
        finally:
            wire.close()
        if answer.status != 200:
            raise ProviderError(answer.status)
        return typing.cast(Json, json.loads(raw))

    # An odd question is always the same, so that an answer of it is kept.
    name = "the same" if number % 2 else f"{os.getpid()} {number}"
    outcome = engine.run(workflow, send, prompt_tokens=PROMPT,
                         max_output_tokens=OUTPUT, stream=False, preset=True,
                         cache=cache, cache_key=name, outcome=True)
    decision = outcome.decision
    return {"action": decision.action, "step": decision.ladder_step,
            "reason": decision.reason, "label": outcome.label,
            "workflow": workflow, "process": os.getpid(), "same": bool(number % 2)}


def _work(card: Json, region: str, url: str, calls: int, unix_ms: int) -> None:
    import fivegates
    from fivegates.cache import AnswerCache, MappingStore
    from fivegates.testing import ManualClock

    clock = ManualClock(1_000_000_000 + unix_ms - UNIX_MS, unix_ms)
    engine = fivegates.Engine(fivegates.Policy.loads(card), region=region,
                              clock=clock)
    cache = AnswerCache(MappingStore({}), secret="s")
    names = engine.policy.workflows()
    done = [_call(engine, url, names[i % len(names)], i, cache)
            for i in range(calls)]
    os.write(1, (json.dumps(done) + "\n").encode())


def main() -> None:
    card, region, url, calls, unix_ms, processes = (
        json.loads(one) for one in sys.argv[1:])
    children = []
    for _ in range(processes):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                _work(card, region, url, calls, unix_ms)
                code = 0
            finally:
                os._exit(code)
        children.append(pid)
    print(json.dumps(children), flush=True)
    for pid in children:
        os.waitpid(pid, 0)


if __name__ == "__main__":
    main()
