"""The parts of fivegates reconcile: rows on one footing, times, money, the
search for sets, the matching."""

from __future__ import annotations

import collections
import decimal
import itertools
import json
import pathlib
import typing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fivegates.reconcile.assign import groups
from fivegates.reconcile.files import open_export
from fivegates.reconcile.importers import FORMATS
from fivegates.reconcile.ledgers import LedgerFacts, read_ledgers
from fivegates.reconcile.money import Price, PriceBook, pico, text
from fivegates.reconcile.names import model_of, provider_of
from fivegates.reconcile.rows import BillRow, instant, scaled
from fivegates.reconcile.subset import solve

from .test_reconcile_worlds import recall

D = decimal.Decimal


def rows(tmp_path: pathlib.Path, text_: "str | list[str]", name: str = "b") -> "list[BillRow]":
    path = tmp_path / name
    path.write_text(text_ if isinstance(text_, str) else "\n".join(text_) + "\n")
    export = open_export(str(path), FORMATS)
    out = [one for one in export.items if isinstance(one, BillRow)]
    export.close()
    return out


# ---- importers: every vendor's input becomes the whole prompt


def test_bedrock_adds_what_the_cache_had(tmp_path: pathlib.Path) -> None:
    one, = rows(tmp_path, json.dumps({
        "schemaType": "ModelInvocationLog", "timestamp": "2026-11-10T10:00:50Z", "requestId": "r",
        "modelId": "arn:aws:bedrock:us-east-1:1:inference-profile/eu.anthropic.claude-sonnet-4-6",
        "input": {"inputTokenCount": 100, "cacheReadInputTokenCount": 30, "cacheWriteInputTokenCount": 20},
        "output": {"outputTokenCount": 7}}) + "\n")
    assert (one.in_total, one.cache_read, one.cache_write, one.out) == (150, 30, 20, 7)
    assert (one.model, one.id, one.key) == ("claudesonnet46", "r", None)
    one, = rows(tmp_path, json.dumps({
        "schemaType": "ModelInvocationLog", "timestamp": "2026-11-10T10:00:50Z", "requestId": "r",
        "modelId": "m", "input": {}, "output": None}) + "\n")
    assert (one.in_total, one.out) == (None, None)  # absent is not zero


def test_anthropic_adds_and_openai_does_not(tmp_path: pathlib.Path) -> None:
    one, = rows(tmp_path, json.dumps({"data": [{
        "starting_at": "2026-11-10T10:00:00Z", "ending_at": "2026-11-10T10:01:00Z", "results": [{
            "uncached_input_tokens": 100, "cache_read_input_tokens": 30, "output_tokens": 7, "model": "m",
            "cache_creation": {"ephemeral_5m_input_tokens": 20, "ephemeral_1h_input_tokens": 4}}]}]}))
    assert (one.in_total, one.cache_read, one.cache_write, one.cache_write_1h, one.requests) == (154, 30, 20, 4, None)
    one, = rows(tmp_path, json.dumps({"data": [{
        "start_time": 1794304800, "end_time": 1794304860, "results": [{
            "input_tokens": 100, "input_cached_tokens": 30, "output_tokens": 7, "model": "m",
            "num_model_requests": 2}]}]}))
    assert (one.in_total, one.cache_read, one.requests, one.t_lo) == (100, 30, 2, 1794304800000)


def test_the_days_of_deepseek_and_alibaba(tmp_path: pathlib.Path) -> None:
    """Old files of DeepSeek have days in UTC, its slots without an offset and
    Alibaba's days are of Beijing."""
    day, = rows(tmp_path, ["utc_date,model,type,price,amount", "20261110,m,output_tokens,0.1,5"])
    assert (day.t_lo, day.t_hi - day.t_lo) == (instant("2026-11-10T00:00:00Z", "", ""), 86_400_000)
    slot, = rows(tmp_path, ["start_time_iso,end_time_iso,model,type,price,amount",
                            "2026-11-10T18:00:00,2026-11-10T19:00:00,m,input_cache_hit_tokens,,5"])
    assert slot.t_lo == instant("2026-11-10T10:00:00Z", "", "")
    assert (slot.in_total, slot.cache_read) == (5, 5)
    day, = rows(tmp_path, ["BillingDate,InstanceID,Usage,UsageUnit,PretaxAmount,Currency",
                           "2026-11-10,text_token;x;qwen-plus;input_token;app,2.5,1K tokens,0.002,CNY",
                           "2026-11-10,image;x;y;z;app,1,1,0.002,CNY"])
    assert day.t_lo == instant("2026-11-09T16:00:00Z", "", "")
    assert (day.in_total, day.out, day.cost) == (2500, None, 2_000_000_000)


@pytest.mark.parametrize("usage,model,field", [
    ("USE1-MP:USE1_InputTokenCount-Units", "claudesonnet46", "in_total"),
    ("USE1-MP:USE1_CacheReadInputTokenCount-Units", "claudesonnet46", "cache_read"),
    ("USE1-MP:USE1_CacheWriteInputTokenCount-Units_Global", "claudesonnet46", "cache_write"),
    ("USE1-MP:USE1_OutputTokenCount-Units", "claudesonnet46", "out"),
    ("USE1-NovaPro-input-tokens", "novapro", "in_total"),
    ("USE1-NovaPro-output-tokens", "novapro", "out")])
def test_aws_usage_types(tmp_path: pathlib.Path, usage: str, model: str, field: str) -> None:
    one, = rows(tmp_path, [
        "line_item_line_item_type,line_item_usage_start_date,line_item_usage_end_date,line_item_usage_type,"
        "line_item_usage_amount,pricing_unit,line_item_unblended_cost,line_item_currency_code,line_item_line_item_description",
        f"Usage,2026-11-10T10:00:00Z,2026-11-10T11:00:00Z,{usage},0.002,1M tokens,0.1,USD,Claude Sonnet 4.6 (Amazon Bedrock Edition)",
        "Tax,2026-11-10T10:00:00Z,2026-11-10T11:00:00Z,,1,,0.1,USD,tax"])
    assert one.model == model and getattr(one, field) == 2000
    assert (one.in_total is None) == (field == "out")


@pytest.mark.parametrize("meter,model,field", [
    ("gpt 4o 1120 Inp glbl Tokens", "gpt4o", "in_total"), ("gpt 4o 1120 cached Inp glbl Tokens", "gpt4o", "cache_read"),
    ("gpt 4o 1120 Outp glbl Tokens", "gpt4o", "out"), ("5.4 opt Dz 1M Tokens", "gpt54", "out")])
def test_azure_meters(tmp_path: pathlib.Path, meter: str, model: str, field: str) -> None:
    one, = rows(tmp_path, [
        "Date,MeterName,Quantity,UnitOfMeasure,CostInBillingCurrency,BillingCurrencyCode",
        f"11/10/2026,{meter},2,1K,0.1,EUR", "11/10/2026,Disk,2,1K,0.1,EUR"])
    assert one.model == model and getattr(one, field) == 2000


def test_names_and_times() -> None:
    assert len({model_of(one) for one in (
        "gpt-5.4", "gpt-5.4-2026-03-05", "openai/gpt-5.4-20260305", "openai/gpt-5.4:free", "GPT 5.4")}) == 1
    assert len({model_of(one) for one in (
        "us.anthropic.claude-sonnet-4-6-v1:0", "claude-sonnet-4-6", "Claude Sonnet 4.6", "claude-sonnet-4-6@20260101")}) == 1
    assert model_of("gpt-5.4-mini") != model_of("gpt-5.4")
    assert provider_of("azure.ai.openai") == provider_of("azure-openai") == "azure"
    same = {instant(one, "", "") for one in (
        "2026-11-10T10:00:00Z", "2026-11-10 10:00:00", "2026-11-10 10:00:00 UTC", "2026-11-10T18:00:00+08:00",
        "2026-11-10T18:00:00+0800", "2026-11-10 10:00:00.0000001", "1794304800", 1794304800)}
    assert same == {1794304800000}
    assert [scaled("1.5", unit, "", "") for unit in ("1K", "1M tokens", "count", "10K")] == [1500, 1_500_000, 2, 15_000]


# ---- money


@given(st.integers(-10**16, 10**16))
def test_money_is_exact_both_ways(picos: int) -> None:
    assert pico(text(picos)) == picos
    assert "E" not in text(picos)


def test_a_floats_noise_is_rounded_off() -> None:
    assert text(pico("0.026749999999999999472644063303")) == "0.02675"
    assert text(pico("0.0000000280")) == "0.000000028"


def test_a_price_is_the_shortest_number_that_rounds_to_the_amounts() -> None:
    book = PriceBook()
    for tokens, paid in ((10700, "0.02675"), (3, "0.0000075"), (333_333, "0.833333")):
        book.learn(Price("p", "m", "input", "USD", "", amount=D(paid), tokens=D(tokens)))
    assert book.of("p", "m", "input") == (D("0.0000025"), D("0.0000025"))
    book.learn(Price("p", "n", "input", "USD", "", amount=D("0.01"), tokens=D(3000)))
    lo, hi = book.of("p", "n", "input") or (D(0), D(0))
    assert lo == D("0.005") / 3000 and hi == D("0.015") / 3000  # too rough to be a point


# ---- sets and matchings


@settings(max_examples=200)
@given(st.lists(st.integers(1, 40), max_size=8), st.integers(1, 150), st.one_of(st.none(), st.integers(0, 8)))
def test_sets_that_add_up(sizes: "list[int]", total: int, members: "int | None") -> None:
    found = set()
    for n in range(len(sizes) + 1):
        for some in itertools.combinations(sizes, n):
            if sum(some) == total and members in (None, n):
                found.add(tuple(sorted(collections.Counter(some).items())))
    answer = solve(sizes, total, members)
    assert answer.found == len(found) and answer.whole
    for size in set(sizes):
        counts = [dict(one).get(size, 0) for one in found]
        assert answer.least[size] == min(counts, default=0)
        assert answer.most[size] == max(counts, default=0)


def test_the_search_has_an_end() -> None:
    answer = solve(range(1000, 1060), 25_000, None)
    assert not answer.whole


@settings(max_examples=200)
@given(st.sets(st.tuples(st.integers(0, 4), st.integers(10, 14)), max_size=12))
def test_who_is_in_every_greatest_matching(pairs: "set[tuple[int, int]]") -> None:
    def greatest(edges: "set[tuple[int, int]]") -> int:
        if not edges:
            return 0
        attempt = min(edges)[0]
        rest = {edge for edge in edges if edge[0] != attempt}
        return max([greatest(rest)] + [1 + greatest({edge for edge in rest if edge[1] != row})
                                       for one, row in edges if one == attempt])

    size = greatest(pairs)
    matched: "dict[int, int]" = {}
    sure: "set[int]" = set()
    for group in groups((attempt, attempt, row) for attempt, row in sorted(pairs)):
        matched.update(group.pairs)
        if len(group.attempts) > 1:
            sure |= group.sure
        else:
            assert group.sure == set(group.pairs)
            sure |= group.sure
    assert len(matched) == len(set(matched.values())) == size
    assert all((attempt, row) in pairs for attempt, row in matched.items())
    for attempt in {one for one, _ in pairs}:
        needed = greatest({edge for edge in pairs if edge[0] != attempt}) < size
        assert (attempt in sure) == needed


# ---- ledgers


def test_an_answer_whose_permit_is_lost_is_not_another_attempts(tmp_path: pathlib.Path) -> None:
    world = recall.make(1, 1, fails=1, billed=1)
    call, = world.calls
    assert len(call.attempts) == 3
    lines = recall.ledger_of(world, recall.KINDS["openrouter"], "core").splitlines(keepends=True)
    # What the second attempt became, and the permit of the third, are not there.
    keep = [line for line in lines if not (
        '"action":"retry"' in line and '"attempt":3' in line) and not (
        '"action":"proceed"' in line and '"attempt":3' in line)]
    assert len(keep) == len(lines) - 2
    (tmp_path / "l").write_text("".join(keep))
    facts = LedgerFacts([])
    states = [(row[4], row[11], row[12]) for row in read_ledgers([str(tmp_path / "l")], facts, lambda _: None)]
    assert states[1] == (2, "unknown", "lost")
    assert all(state != "delivered" for _, state, _ in states)
    assert facts.incomplete == 2


def test_without_the_caches_share_the_money_is_an_interval(tmp_path: pathlib.Path) -> None:
    """A served answer that does not say what its cache had."""
    log = []
    for op, usage in (("a", {"input_total": 1000, "output": 10}), ("b", None)):
        at = "2026-11-10T10:00:1" + ("0Z" if op == "a" else "5Z")
        both = {"v": 1, "op": op, "attempt": 0, "ts": at}
        log += [{**both, "ev": "attempt.start", "provider": "openai", "model": "m", "prompt_hash": "h", "max_output": 99},
                {**both, "ev": "attempt.end", "status": 200 if usage else None, "commit": "committed" if usage else "unknown",
                 "error_type": None if usage else "read_timeout", "usage": usage}]
    log += [{**log[2], "attempt": 1}, {**log[1], "op": "b", "attempt": 1}]
    (tmp_path / "l").write_text("".join(json.dumps(line) + "\n" for line in log))
    (tmp_path / "b").write_text(json.dumps({"data": [{
        "start_time": 1794304680 + 60 * i, "end_time": 1794304740 + 60 * i, "results": [{
            "input_tokens": 3000, "input_cached_tokens": 900, "output_tokens": 40, "model": "m",
            "num_model_requests": 3}] if i == 2 else []} for i in range(9)]}))
    with recall.reconcile([str(tmp_path / "l")], [str(tmp_path / "b")], prices=["openai/m=2,10,1"]) as report:
        one, = report.findings()
        # 1000 prompt tokens: all of them read from the cache, or none.
        assert (one["call"], one["wasted_lo"], one["wasted_hi"]) == ("b", "0.0012", "0.0022")


def test_noise_makes_nothing_probable_that_is_false(tmp_path: pathlib.Path) -> None:
    """Not promised for any seed, but for these: the doubt about keys that
    others use, and about prompts of a template."""
    found: "collections.Counter[str]" = collections.Counter()
    for seed in range(6):
        for noise in (recall.NOISE, {"missing": 0.2, "templates": 6}):
            world = recall.make(seed, 60, **noise)
            for kind in ("openai usage", "openai usage, by start", "openrouter", "deepseek"):
                for form in ("core", "bare"):
                    score, *_ = recall.run(tmp_path, world, recall.KINDS[kind], form, 0.01)
                    found.update({f"wrong {word}": n for word, n in score.wrong.items()})
                    found.update({f"right {word}": n for word, n in score.found.items()})
    assert found["wrong probable"] == found["wrong certain"] == 0
    assert found["right probable"] > 50


def test_a_set_that_adds_up_by_chance_is_only_possible(tmp_path: pathlib.Path) -> None:
    """Small prompts in one cell of an hour, and no other cells to say that the
    key is clean: some set nearly always adds up."""
    for seed in (0, 2, 6):
        world = recall.make(seed, 8, fails=0.4, billed=1)
        for i, call in enumerate(world.calls):
            call.size = 20 + i
            for one in call.attempts:
                one.read = 0
        _, _, findings = recall.run(tmp_path, world, recall.KINDS["deepseek"])
        assert findings and {one["confidence"] for one in findings} == {"possible"}
