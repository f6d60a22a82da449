"""fivegates reconcile on invented traffic, whose bill is known: any seed,
every kind of export, with noise."""

from __future__ import annotations

import decimal
import pathlib
import sys
import tempfile
import typing

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from .conftest import ROOT

sys.path.insert(0, str(ROOT / "tests"))
from billing import recall  # noqa: E402
from billing.exports import KINDS  # noqa: E402
from billing.world import make  # noqa: E402

seeds = st.integers(0, 1 << 32)
kinds = st.sampled_from(sorted(KINDS))
forms = st.sampled_from(("core", "bare", "log"))
shares = st.sampled_from((0, 0.05, 0.3))


def run(world: typing.Any, kind: str, form: str, lost: float = 0) -> typing.Any:
    with tempfile.TemporaryDirectory() as folder:
        return recall.run(pathlib.Path(folder), world, KINDS[kind], form, lost)


def picos(text: str) -> int:
    return int(decimal.Decimal(text).scaleb(12))


@settings(max_examples=150, deadline=None)
@given(seeds, kinds, forms, shares, shares, shares, shares,
       st.sampled_from((0, 2, 90)), st.sampled_from((0, 3)))
def test_nothing_false_is_certain(seed: int, kind: str, form: str, late: float, foreign: float,
                                  missing: float, lost: float, skew: float, templates: int) -> None:
    world = make(seed, 25, late=late, foreign=foreign, missing=missing, skew=skew, templates=templates)
    truth = world.doubles
    _, summary, findings = run(world, kind, form, lost)
    certain = [one for one in findings if one["confidence"] == "certain"]
    for one in certain:
        assert one["call"] in truth
        assert picos(one["wasted_lo"]) <= truth[one["call"]]
    for money in summary["money"].values():
        assert picos(money["wasted_at_least"]) <= sum(truth.values())
        lo, hi = map(picos, money["wasted_probably"])
        assert picos(money["wasted_at_least"]) <= lo <= hi <= picos(money["wasted_at_most"])


@settings(max_examples=100, deadline=None)
@given(seeds, kinds, forms)
@example(7362136, "deepseek", "core")  # a cell's sum that chance has made too
def test_a_clean_bill_is_explained(seed: int, kind: str, form: str) -> None:
    """Without noise the truth is inside of the interval, no call that is certain
    is found by mistake, and what is sure has its exact price. One that is
    probable may be, where sizes add up by chance: test_recall counts these."""
    world = make(seed, 25)
    truth = world.doubles
    heard = kind in ("litellm", "langfuse")  # of some: they never hear of timeouts
    score, summary, findings = run(world, kind, form)
    assert score.wrong.get("certain", 0) == 0
    if kind.startswith(("openrouter", "bedrock", "fireworks", "litellm", "langfuse")):
        assert score.wrong.get("probable", 0) == 0  # rows, not sums
    for one in findings:
        if one["confidence"] != "possible" and one["wasted_hi"] is not None:
            wasted = truth.get(one["call"], 0)
            assert picos(one["wasted_lo"]) <= wasted
            assert heard or wasted <= picos(one["wasted_hi"])
    if not heard:
        money = summary["money"].get("USD")
        if money is None:
            assert not truth
        elif not summary["unexplained"] and not summary["coverage"]["uncovered"]:
            assert money["without_price"] or (
                picos(money["wasted_at_least"]) <= sum(truth.values())
                <= picos(money["wasted_at_most"]))


# Shares of the doubles found, at least: measured over 30 seeds (a little more).
@pytest.mark.parametrize("kind,form,certain,sure", [
    ("openrouter", "core", 0.25, 0.8), ("bedrock", "bare", 0.95, 1),
    ("bedrock, from 0", "bare", 0.95, 1),
    ("fireworks", "core", 0, 0.75), ("openai usage", "core", 0, 0.7),
    ("openai usage, by start", "core", 0, 0.92), ("anthropic usage", "core", 0, 0.65),
    ("openai usage", "bare", 0, 0.4)])
def test_recall(kind: str, form: str, certain: float, sure: float) -> None:
    total = recall.Score()
    for seed in range(6):
        total.add(run(make(seed, 60), kind, form)[0])
    assert total.truth > 30
    assert total.wrong.get("certain", 0) == 0
    assert total.wrong.get("probable", 0) <= total.truth // 100
    assert total.found.get("certain", 0) >= certain * total.truth
    assert total.found.get("certain", 0) + total.found.get("probable", 0) >= sure * total.truth


def test_one_timeout_in_a_day_is_told_from_the_days_sum() -> None:
    """A cloud's day gives the exact amount when there is one way to explain it."""
    for seed in range(40):
        world = make(seed, 12, fails=0.06, billed=1)
        if len(world.doubles) == 1 and sum(
                one.outcome in ("timeout", "cut") for call in world.calls for one in call.attempts) == 1:
            break
    (name, cost), = world.doubles.items()
    for kind in ("azure", "anthropic console", "cur", "gcp"):
        _, _, findings = run(world, kind, "core")
        one, = findings
        assert (one["call"], picos(one["wasted_lo"]), picos(one["wasted_hi"])) == (name, cost, cost)
        assert one["confidence"] == ("probable" if kind == "gcp" else "possible")


def test_a_ledger_with_torn_lines(tmp_path: pathlib.Path) -> None:
    """A kill tears one line: the others count, and the report says where."""
    world = make(7, 30)
    kind = KINDS["openrouter"]
    text = recall.ledger_of(world, kind, "core").splitlines(keepends=True)
    text[40] = text[40][:77] + "\n"
    (tmp_path / "l").write_text("".join(text))
    (tmp_path / "b.csv").write_text(kind.write(world))
    with recall.reconcile([str(tmp_path / "l")], [str(tmp_path / "b.csv")], as_of_ms=recall.AS_OF) as report:
        ledger = report.summary["ledger"]
        assert (ledger["torn_lines"], ledger["torn_at"]) == (1, [f"{tmp_path / 'l'}:41"])
        assert {one["call"] for one in report.findings() if one["confidence"] == "certain"} <= set(world.doubles)


def test_the_same_ledger_twice_counts_once(tmp_path: pathlib.Path) -> None:
    world, kind = make(3, 30), KINDS["openrouter"]
    (tmp_path / "l").write_text(recall.ledger_of(world, kind, "core"))
    (tmp_path / "b.csv").write_text(kind.write(world))
    found = []
    for ledgers in (["l"], ["l", "l"]):
        with recall.reconcile([str(tmp_path / one) for one in ledgers], [str(tmp_path / "b.csv")],
                              as_of_ms=recall.AS_OF) as report:
            found.append((list(report.findings()), report.summary["money"],
                          report.summary["ledger"]["attempts"], report.summary["coverage"]))
    assert found[0] == found[1]


def test_a_rotated_ledger_goes_on(tmp_path: pathlib.Path) -> None:
    world, kind = make(3, 30), KINDS["openrouter"]
    lines = recall.ledger_of(world, kind, "core").splitlines(keepends=True)
    (tmp_path / "b.csv").write_text(kind.write(world))
    for name, part in (("whole", lines), ("one", lines[:61]), ("two", lines[61:])):
        (tmp_path / name).write_text("".join(part))
    found = []
    for ledgers in (["whole"], ["one", "two"]):
        with recall.reconcile([str(tmp_path / one) for one in ledgers], [str(tmp_path / "b.csv")],
                              as_of_ms=recall.AS_OF) as report:
            found.append(list(report.findings()))
    assert found[0] == found[1] and found[0]
