"""fivegates reconcile on the sample exports: one scenario of 43 attempts over
ten providers, ten planted double charges, and decoys."""

from __future__ import annotations

import decimal
import json
import pathlib
import sqlite3
import typing

import pytest

from fivegates.reconcile import Report, reconcile

from .conftest import ROOT

SAMPLES = ROOT / "tests" / "billing" / "samples"
EXPORTS = sorted(
    str(path) for path in SAMPLES.iterdir()
    if path.name not in ("EXPECTED.json", "ledger.jsonl", "digitalocean_invoice.csv"))
TRUTH: "dict[str, dict[str, typing.Any]]" = json.loads(
    (SAMPLES / "EXPECTED.json").read_text())["ops"]
# The one provider of the samples whose exports have no money.
FIREWORKS = ["fireworks/glm-5p3-flash=0.2,0.6"]


def run(*exports: str, **more: typing.Any) -> Report:
    return reconcile([str(SAMPLES / "ledger.jsonl")],
                     [str(SAMPLES / one) for one in exports], **more)


@pytest.fixture(scope="module")
def report() -> "typing.Iterator[Report]":
    with reconcile([str(SAMPLES / "ledger.jsonl")], EXPORTS, prices=FIREWORKS) as one:
        yield one


def test_every_planted_double_and_no_decoy(report: Report) -> None:
    found = {one["call"]: one for one in report.findings()}
    assert set(found) == {name for name, one in TRUTH.items()
                          if one["verdict"] == "double_charge"}
    assert len(found) == 10
    for name, one in found.items():
        truth = TRUTH[name]
        assert one["verdict"] == "double_charge"
        assert one["currency"] == truth["currency"]
        amount = decimal.Decimal(str(truth["wasted"]))
        assert decimal.Decimal(one["wasted_lo"]) == amount, name
        assert decimal.Decimal(one["wasted_hi"]) == amount, name
    # Only an id makes it certain; a day's sums of a cloud never more than possible.
    assert {name for name, one in found.items() if one["confidence"] == "certain"} == {"or-2", "bk-2"}
    assert {name for name, one in found.items() if one["confidence"] == "possible"} == {"az-2", "qw-2"}


def test_the_money(report: Report) -> None:
    money = report.summary["money"]
    total = {coin: sum(decimal.Decimal(str(one["wasted"])) for one in TRUTH.values()
                       if one["currency"] == coin) for coin in ("USD", "CNY")}
    for coin, amount in total.items():
        assert decimal.Decimal(money[coin]["wasted_at_most"]) == amount
        assert money[coin]["without_price"] == 0
    assert money["USD"]["wasted_at_least"] == "0.046385"  # or-2 and bk-2
    assert money["CNY"]["wasted_at_least"] == "0"
    assert money["CNY"]["billed"]["deepseek"]["amount"] == "0.05217"
    assert money["USD"]["billed"]["anthropic"]["amount"] == "0.12675"  # cents in the report


def test_what_is_not_the_ledgers(report: Report) -> None:
    assert report.summary["not_in_ledger"] == [{
        "provider": "openrouter", "requests": 1, "cost": "0.01376",
        "currency": "USD", "perhaps_hidden_resends": 0}]
    cover = report.summary["coverage"]
    assert (cover["attempts"], cover["explained"]) == (38, 38)
    assert cover["export_tokens"] - cover["export_tokens_explained"] == 5120 + 64


def test_a_timeout_that_was_not_billed(report: Report) -> None:
    row, = [one for one in report.summary["learned"] if one["provider"] == "openai"]
    assert (row["kind"], row["attempts"], row["billed"], row["not_billed"]) == (
        "read_timeout", 2, 1, 1)
    assert row["billed_ppm"] == 500_000


def test_the_same_export_twice_is_counted_once() -> None:
    once = run("openrouter_activity.csv")
    twice = run("openrouter_activity.csv", "openrouter_activity.csv",
                "openrouter_generation_cancelled.json")
    with once, twice:
        assert list(once.findings()) == list(twice.findings())
        assert once.summary["money"]["USD"]["billed"]["openrouter"] == \
            twice.summary["money"]["USD"]["billed"]["openrouter"]
        assert twice.summary["counted_once"]["twice in the exports"] == 9


def test_without_a_price_there_is_no_amount() -> None:
    with run("fireworks_billing_metrics.csv") as report:
        one, = report.findings()
        assert (one["call"], one["wasted_hi"]) == ("fw-2", None)
        assert report.summary["money"]["unknown"]["without_price"] == 1


def test_a_cost_report_gives_prices_only_with_the_usage_of_its_span() -> None:
    """The minutes do not cover the day whose cost is known: no price is made
    of the two."""
    with run("anthropic_usage_report_messages_1m.json",
             "anthropic_cost_report_1d.json") as report:
        one, = report.findings()
        assert (one["call"], one["wasted_hi"]) == ("an-3", None)


def test_a_gateways_log_serves_without_the_bill_and_is_never_certain() -> None:
    with run("litellm_spendlogs.json", "langfuse_observations.jsonl") as report:
        one, = report.findings()
        assert (one["call"], one["confidence"], one["wasted_hi"]) == (
            "oa-2", "probable", "0.011555")
        # Langfuse has a row of an-3's timeout without usage: absent, not zero.
        row, = [one for one in report.summary["learned"] if one["provider"] == "anthropic"]
        assert (row["billed"], row["perhaps_billed"], row["not_billed"]) == (0, 0, 0)
        # And what a gateway did not log is no proof that it was not billed.
        row, = [one for one in report.summary["learned"] if one["provider"] == "openai"]
        assert (row["billed"], row["not_billed"], row["not_told"]) == (1, 0, 1)


def test_what_is_younger_than_the_lag_stays_open() -> None:
    when = 1794304800000 + 40 * 60_000  # ten minutes after the last minute of it
    with run("openai_usage_completions_1m.json", as_of_ms=when) as report:
        assert list(report.findings()) == []
        assert report.summary["coverage"]["uncovered"] == {"openai": 2}
    with run("openai_usage_completions_1m.json") as report:
        assert [one["call"] for one in report.findings()] == ["oa-2"]


def test_a_row_that_cost_nothing_is_no_money(tmp_path: pathlib.Path) -> None:
    text = (SAMPLES / "openrouter_activity.csv").read_text().replace("0.00827", "0")
    (tmp_path / "b.csv").write_text(text)
    with run(str(tmp_path / "b.csv")) as report:
        one, = [one for one in report.findings() if one["call"] == "or-2"]
        assert (one["verdict"], one["wasted_lo"], one["wasted_hi"]) == ("repeated_free", "0", "0")
        assert report.summary["money"]["USD"]["wasted_at_least"] == "0"


def test_a_resend_that_the_ledger_did_not_see(tmp_path: pathlib.Path) -> None:
    """An SDK's own retry inside of one attempt: a second row of its prompt."""
    lines = (SAMPLES / "openrouter_activity.csv").read_text().splitlines(keepends=True)
    copy = lines[8].replace("aaaa", "eeef").replace("10:00:20", "10:00:22")
    (tmp_path / "b.csv").write_text("".join([*lines, copy]))
    with run(str(tmp_path / "b.csv")) as report:
        one, = report.summary["not_in_ledger"]
        assert (one["requests"], one["perhaps_hidden_resends"], one["cost"]) == (2, 1, "0.01876")
        assert {one["call"] for one in report.findings()} == {"or-2", "or-3"}


def test_the_same_cells_twice_are_counted_once_and_more_pages_are_asked_for(tmp_path: pathlib.Path) -> None:
    text = (SAMPLES / "openai_usage_completions_1m.json").read_text()
    (tmp_path / "again.json").write_text(text.replace('"has_more": false', '"has_more": true'))
    with run("openai_usage_completions_1m.json", str(tmp_path / "again.json")) as report:
        assert report.summary["coverage"]["export_tokens"] == 12717
        assert "give the following pages too" in report.summary["exports"][1]["notes"][0]
        assert [one["call"] for one in report.findings()] == ["oa-2"]


def test_a_closed_report_is_closed() -> None:
    with run("openrouter_activity.csv") as report:
        pass
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        list(report.findings())
