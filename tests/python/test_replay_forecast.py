"""Another card: what is forecast, compared with really running it."""

from __future__ import annotations

import io
import json
import pathlib
import typing

import pytest
from rich.console import Console

from fivegates.replay import survey
from fivegates.replay.cards import Card, differences, what_if
from fivegates.replay.forecast import Fate, forecast, recorded_fate
from fivegates.replay.report import forecast_report, usd
from fivegates.replay.table import terminal

from .replay_rig import Json, Program, card, drill, policy_of

ONE = {"workflows": {"drill": {
    "routes": ["primary", "backup1"], "budget": {"total_attempts": 1},
    "ladder": [{"step": "smaller_model", "route": "small1"},
               {"step": "preset", "text": "We can't answer right now."}]}}}


def sums(fates: "typing.Iterable[Fate]") -> "tuple[int, int]":
    rows = list(fates)
    return sum(one.attempts for one in rows), sum(one.cost_nusd for one in rows)


@pytest.mark.parametrize(["fault", "over", "attempts", "money"], [
    ("errors", ONE, 0.005, 0.03),
    ("blackout", ONE, 0.005, 0.03),
    ("ratelimit", ONE, 0.005, 0.03),
    ("brownout", ONE, 0.01, 0.03),
    ("errors", {"retry_bucket": {"cap": 2, "start": 1, "credit_ppm": 20000}}, 0.02, 0.03),
])
def test_forecast_is_near_what_the_drill_does_with_that_card(
        fault: str, over: Json, attempts: float, money: float,
        tmp_path: pathlib.Path) -> None:
    phases = {"phases": {"warm_s": 20, "fault_s": 240, "after_s": 30}}
    old, new = card(), card(**over)
    seen = survey([drill(tmp_path / "old.jsonl", fault, old, **phases)])
    real = survey([drill(tmp_path / "new.jsonl", fault, new, **phases)])
    found = forecast(seen, policy_of(new))
    got, want = sums(found.fates), sums(map(recorded_fate, real.whole))
    assert len(found.fates) == len(real.whole)
    assert abs(got[0] - want[0]) <= attempts * want[0]
    assert abs(got[1] - want[1]) <= money * want[1]


def test_the_same_card_forecasts_what_was_recorded_and_is_sure(
        tmp_path: pathlib.Path) -> None:
    seen = survey([drill(tmp_path / "l.jsonl", "none", card())])
    found = forecast(seen, policy_of(card()))
    assert found.fates == [recorded_fate(call) for call in seen.whole]


def test_an_attempt_that_was_never_made_has_no_outcome(tmp_path: pathlib.Path) -> None:
    """A route the ledger never saw: neither an answer nor a failure."""
    path = tmp_path / "l.jsonl"
    alone = card()
    alone["workflows"]["drill"]["routes"] = ["primary"]
    alone["workflows"]["drill"]["ladder"] = []
    alone["contracts"] = []
    Program(path, spec=alone)
    seen = survey([str(path)])
    old = forecast_report(seen, Card("a", alone, policy_of(alone)),
                          forecast(seen, policy_of(alone)))
    new = json.loads(json.dumps(card()))
    new["workflows"]["drill"]["ladder"] = []  # a preset would be sure
    new["contracts"].pop()
    report = forecast_report(seen, Card("b", new, policy_of(new)),
                             forecast(seen, policy_of(new)))
    assert old["forecast"]["total"]["forecast"]["calls_certain"] > 200
    total = report["forecast"]["total"]
    assert total["forecast"]["calls_unknown"] > 20
    assert total["answers"]["unknown"] == total["forecast"]["calls_unknown"]
    assert total["answers"]["won_certain"] == 0
    assert any("backup1" in why for why in report["forecast"]["unknown_because"])
    assert sum(total["forecast"]["results"].values()) == total["calls"]


def test_answers_lost_for_certain_are_told_apart(tmp_path: pathlib.Path) -> None:
    """Fewer attempts: who needed the second one loses the answer, for certain."""
    path = tmp_path / "l.jsonl"
    spec = card()
    spec["workflows"]["drill"]["ladder"] = []
    spec["contracts"] = spec["contracts"][:1]
    Program(path, spec=spec)
    seen = survey([str(path)])
    found = forecast(seen, policy_of({**spec, "workflows": {"drill": {
        "routes": ["primary", "backup1"], "budget": {"total_attempts": 1}}}}))
    by_key = {one.key: one for one in found.fates}
    lost = [(recorded_fate(call), by_key[call.key]) for call in seen.whole
            if recorded_fate(call).in_full and not by_key[call.key].in_full]
    sure = [pair for pair in lost if pair[1].sure == "certain"]
    assert len(sure) > 10 and all(was.attempts > will.attempts for was, will in sure)
    total = forecast_report(seen, Card("n", spec, policy_of(spec)), found)["forecast"]["total"]
    assert total["answers"]["lost_certain"] == len(sure)
    assert total["change"]["attempts"] == (
        total["forecast"]["attempts"] - total["recorded"]["attempts"]) < 0


def test_a_preset_in_place_of_an_answer_is_an_answer_lost(
        tmp_path: pathlib.Path) -> None:
    path = tmp_path / "l.jsonl"
    spec = card()
    spec["contracts"] = []
    spec["workflows"]["drill"].update(
        routes=["primary"], ladder=[{"step": "preset", "text": "Not now."}])
    Program(path, spec=spec)
    seen = survey([str(path)])
    old = Card("c", spec, policy_of(spec))
    report = forecast_report(seen, old, forecast(seen, what_if(
        old, ["workflows.drill.budget.total_attempts=1"]).policy))
    total = report["forecast"]["total"]
    was, will = total["recorded"], total["forecast"]
    lost = total["answers"]["lost_certain"]
    assert was["answered"] <= will["answered"]  # words for all
    assert lost >= was["results"]["retry_recovery"] > 0
    assert sum(count * {"lost": -1, "won": 1}[word.partition("_")[0]]
               for word, count in total["answers"].items() if word != "unknown"
               ) == will["in_full"] - was["in_full"]
    text = io.StringIO()
    Console(file=text, width=1000).print(terminal(report))
    assert f"{was['in_full']} → {will['in_full']}" in text.getvalue()
    assert f"{lost} lost" in text.getvalue()


def test_a_caller_who_left_leaves_again(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "l.jsonl"
    Program(path)
    seen = survey([str(path)])
    left = {call.key for call in seen.whole
            if recorded_fate(call).result == "cancelled"}
    found = forecast(seen, policy_of(card()))
    assert left and all(one.result in ("cancelled", None) or one.sure == "estimated"
                        for one in found.fates if one.key in left)


def test_what_cards_say_otherwise_in_words() -> None:
    old = Card("card.json", card(), policy_of(card()))
    new = what_if(old, ["retry_bucket.cap=5", "workflows.drill.ladder.1.text=Later",
                        "workflows.drill.budget.total_attempts=2"])
    assert new.policy.fingerprint != old.policy.fingerprint
    said = differences(old.card, new.card)
    assert len(said) == 3
    assert any(line.startswith("retry_bucket.cap: 10 (the default) becomes 5 (")
               for line in said)
    assert any("total_attempts: 4 (the default) becomes 2" in line for line in said)
    assert not differences(old.card, old.card)
    stated = json.loads(json.dumps(old.card))
    stated["retry_bucket"] = {"cap": 10}  # what holds anyway
    assert not differences(old.card, stated)
    assert what_if(new, ["retry_bucket.cap=null"]).card["retry_bucket"] == {}


@pytest.mark.parametrize(["nusd", "text"], [
    (0, "0"), (1, "0.000000001"), (-1_500_000_000, "-1.5"), (2_000_000_000, "2")])
def test_money_is_exact_text(nusd: int, text: str) -> None:
    assert usd(nusd) == text
