"""How near `fivegates replay` forecasts: a drill's ledger replayed by another
card, beside the same drill really run with that card.

    python benchmarks/python/bench_forecast.py [FAULT ...]
"""

from __future__ import annotations

import copy
import json
import pathlib
import sys
import tempfile
import typing

import fivegates
from fivegates.drill.runs import fault_names, run
from fivegates.replay import survey
from fivegates.replay.forecast import Fate, forecast, recorded_fate

Json = typing.Dict[str, typing.Any]


def route(provider: str, model: str, share: float) -> Json:
    return {"provider": provider, "model": model, "account": provider,
            "price": {"input": 2.5 * share, "output": 10 * share},
            "provides": {"input": {"context_tokens": 1_100_000},
                         "output": {"max_tokens": 400_000}}}


def contract(name: str) -> Json:
    return {"workflow": "drill", "route": name, "fingerprint": "auto", "evidence": {
        "cases": 100, "passed": 99, "score_ppm": 990_000, "primary_score_ppm": 990_000,
        "measured_at": "2026-11-01", "expires_at": "2100-01-01"}}


CARD: Json = {
    "version": 1,
    "routes": {"primary": route("primary", "large", 1), "backup1": route("backup1", "equal", 1),
               "small1": route("backup1", "small", 0.25)},
    "workflows": {"drill": {"routes": ["primary", "backup1"], "ladder": [
        {"step": "smaller_model", "route": "small1"},
        {"step": "preset", "text": "We can't answer right now."}]}},
    "contracts": [contract("backup1"), contract("small1")]}


def one_attempt(card: Json) -> None:
    card["workflows"]["drill"]["budget"] = {"total_attempts": 1}


def no_smaller_model(card: Json) -> None:
    del card["workflows"]["drill"]["ladder"][0], card["routes"]["small1"], card["contracts"][1]


def no_stand_in(card: Json) -> None:
    card["workflows"]["drill"]["routes"].pop()
    del card["contracts"][0]


def ledger(card: Json, fault: str, path: pathlib.Path) -> str:
    run({"faults": [fault], "strategies": ["fivegates"], "seeds": 1, "seed": 1,
         "card": card}, ledger=str(path))
    return str(path)


def sums(fates: "typing.Iterable[Fate]") -> "tuple[int, float, int]":
    rows = list(fates)
    return (sum(one.attempts for one in rows), sum(one.cost_nusd for one in rows) / 1e9,
            sum(one.sure != "certain" for one in rows))


def main() -> None:
    print(f"{'fault':17}{'change':18}{'attempts: was':>14}{'forecast':>10}{'really':>8}{'gap':>8}"
          f"{'USD: was':>10}{'forecast':>10}{'really':>8}{'gap':>8}{'not sure':>10}")
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "ledger.jsonl"
        for fault in sys.argv[1:] or fault_names():
            seen = survey([ledger(CARD, fault, path)])
            was = sums(map(recorded_fate, seen.whole))
            for change in (one_attempt, no_smaller_model, no_stand_in):
                card = copy.deepcopy(CARD)
                change(card)
                policy = fivegates.Policy.loads(json.dumps(card), auto_fingerprint=True, json=True)
                will = sums(forecast(seen, policy).fates)
                real = sums(map(recorded_fate, survey([ledger(card, fault, path)]).whole))
                print(f"{fault:17}{change.__name__:18}{was[0]:14}{will[0]:10}{real[0]:8}"
                      f"{100 * (will[0] / real[0] - 1):+7.2f}%{was[1]:10.3f}{will[1]:10.3f}"
                      f"{real[1]:8.3f}{100 * (will[1] / real[1] - 1):+7.2f}%"
                      f"{100 * will[2] / len(seen.whole):9.1f}%")


if __name__ == "__main__":
    main()
