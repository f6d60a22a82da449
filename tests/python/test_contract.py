"""fivegates contract new, show, approve: nothing is called approved that the
engine would not use, nothing is written that nobody knows."""

from __future__ import annotations

import copy
import decimal
import json
import os
import pathlib
import sys
import typing

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import fivegates
from fivegates.contract import approve as approve_module
from fivegates.contract import dates, sources
from fivegates.contract.cards import CardFile
from fivegates.contract.judge import SECTIONS, Judged, judged
from fivegates.testing import ManualClock

from .test_cli import cli

Json = typing.Dict[str, typing.Any]
MEASURED, EXPIRES = "2026-11-30T00:00:00Z", "2027-02-28"
NOW = "2026-12-10"
EVIDENCE = {"fixtures": "sha256:" + "1" * 64, "cases": 12, "passed": 12,
            "score_ppm": 980000, "primary_score_ppm": 990000,
            "measured_at": MEASURED, "expires_at": EXPIRES}
CARD = """\
version: 1
routes:
  main: {provider: openai, model: gpt-4o, price: {input: 2.5, output: 10}}
  spare:  # ours
    provider: azure-openai
    model: gpt-4o-mini
    price: {input: 0.15, output: 0.6}
    provides: {input: {context_tokens: 100000}, data: {regions: [eu]}}
  third: {provider: openai, model: gpt-4.1}
workflows:
  answer:
    routes: [main, spare]
    requires:
      input: {context_tokens: 16000}
      data: {regions: [eu]}
      quality: {cases_min: 10, max_drop_ppm: 20000}
  other: {routes: [main, spare, third]}
contracts:
  - workflow: answer
    route: spare
    evidence: %s
""" % json.dumps(EVIDENCE)
PAIR = ("--workflow", "answer", "--route", "spare")


@pytest.fixture
def card(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "card.yaml"
    path.write_text(CARD)
    return path


def shown(path: pathlib.Path, *args: str) -> Json:
    code, out, err = cli("contract", "show", path, "--json", "--now", NOW, *args)
    assert not err
    found: Json = json.loads(out)
    assert code == (0 if all(one["approved"] for one in found["stand_ins"]) else 1)
    return found


def approved(path: pathlib.Path, *args: str) -> "tuple[int, str, str]":
    return cli("contract", "approve", path, *PAIR, "--by", "ops@example.com",
               "--yes", "--now", NOW, *args)


# ---- the verdict is the engine's, and the checks explain it

KEYS: "dict[str, tuple[str, typing.Any]]" = {  # how it is compared, and its values
    "input.context_tokens": (">=", st.sampled_from([1, 1000, 2000])),
    "input.modalities": ("has", st.sampled_from([["text"], ["image", "text"], []])),
    "output.json_schema": ("can", st.booleans()),
    "output.truncation": ("==", st.sampled_from(["error", "middle"])),
    "tools.names": ("has", st.sampled_from([["a"], ["a", "b"], ["*"], []])),
    "safety.filter": ("==", st.sampled_from(["strict", "none"])),
    "safety.human_escalation": ("can", st.booleans()),
    "data.regions": ("only", st.sampled_from([["eu"], ["us"], ["eu", "us"]])),
    "data.retention_days": ("<=", st.sampled_from([0, 30, 60])),
    "data.training": ("==", st.booleans()),
    "operations.latency_p95_ms": ("<=", st.sampled_from([100, 900])),
    "economics.spend_per_day_usd": (">=", st.sampled_from([5, "5.5", 0.25])),
}
PRICES = st.sampled_from([None, "free", {"input": 1, "output": 2},
                          {"input": 1.0, "output": "2", "cached_input": 1},
                          {"input": 1, "output": 2, "cached_input": 0.000000001}])


MODELS = [{"provider": "p", "model": "m"}, {"provider": "p", "model": "m", "version": "2"},
          {"provider": "p", "model": "m", "version": "3"}, {"provider": "p", "model": "n"},
          {"provider": "q", "model": "m"}]


def holds(how: str, wanted: typing.Any, has: typing.Any) -> bool:
    """As card.md says it."""
    if how == "can":
        return not wanted or has is True
    if how == "has":
        return not wanted or has is not None and ("*" in has or set(wanted) <= set(has))
    if has is None:
        return False
    if how == "only":
        return set(has) <= set(wanted)
    if how == "==":
        return bool(has == wanted)
    a, b = decimal.Decimal(str(has)), decimal.Decimal(str(wanted))
    return a >= b if how == ">=" else a <= b


def nested(flat: Json) -> Json:
    out: Json = {}
    for name, value in flat.items():
        section, key = name.split(".")
        out.setdefault(section, {})[key] = value
    return out


def money(price: typing.Any) -> typing.Any:
    if price is None or price == "free":
        return price and (0, 0, 0)
    return tuple(decimal.Decimal(str(price.get(part, price["input"])))
                 for part in ("input", "cached_input", "output"))


@st.composite
def worlds(draw: typing.Any) -> "tuple[Json, set[str], bool]":
    """A card, the keys that do not hold, and whether its stand-in is a twin."""
    flat = st.fixed_dictionaries({}, optional={
        key: values for key, (_, values) in KEYS.items()})
    requires, provides = draw(flat), draw(flat)
    if draw(st.booleans()):  # half of them hold
        provides = {**provides, **requires}
    twin = draw(st.sampled_from([False, False, False, True]))
    own = ("input", "output", "tools")
    bad = {key for key, value in requires.items()
           if not holds(KEYS[key][0], value, provides.get(key))
           and not (twin and key.split(".")[0] in own)}
    price, paid, most = draw(PRICES), draw(PRICES), draw(st.sampled_from([None, 1, 2, 5]))
    needs = nested(requires)
    if most is not None:
        needs.setdefault("economics", {})["price_max"] = {"output": most}
        if price is None or (price != "free" and float(price["output"]) > most):
            bad.add("economics.price_max")
    evidence = draw(st.one_of(st.just(EVIDENCE), st.fixed_dictionaries(
        {}, optional={key: st.just(value) for key, value in EVIDENCE.items()})))
    now = {"a": draw(st.sampled_from(MODELS)), "b": draw(st.sampled_from(MODELS))}
    if twin:
        now["b"] = now["a"]
    for key, name in (("route", "b"), ("primary", "a")):
        was = draw(st.sampled_from([None, None, now[name], now[name], *MODELS]))
        if was is not None:
            evidence = {**evidence, key: was}
            if was != now[name]:
                bad.add(f"evidence.{key}")
    quality = draw(st.fixed_dictionaries({}, optional={
        "cases_min": st.sampled_from([1, 12, 13]),
        "min_score_ppm": st.sampled_from([980000, 980001]),
        "max_drop_ppm": st.sampled_from([10000, 9999]),
        "fixtures": st.sampled_from([EVIDENCE["fixtures"], "other"])}))
    needs["quality"] = quality
    lacking = {key for key in ("cases", "passed", "score_ppm", "measured_at",
                               "expires_at") if key not in evidence}
    if twin and not {"cases", "passed", "score_ppm", "measured_at"} & set(evidence):
        lacking = set()
    bad |= {f"evidence.{key}" for key in lacking}
    if not lacking and "score_ppm" in evidence:
        score, best = evidence["score_ppm"], evidence.get("primary_score_ppm", 10**6)
        bad |= {f"quality.{key}" for key, fails in (
            ("cases_min", evidence["cases"] < quality.get("cases_min", 1)),
            ("min_score_ppm", score < quality.get("min_score_ppm", 0)),
            ("max_drop_ppm", best - score > quality.get("max_drop_ppm", 10**6)),
            ("fixtures", evidence.get("fixtures") != quality.get(
                "fixtures", evidence.get("fixtures")))) if fails}
    route: Json = {**now["b"], "account": "b", "provides": nested(provides), "price": price}
    made: Json = {"workflow": "w", "route": "b", "evidence": evidence, "twin": twin,
                  "fingerprint": draw(st.sampled_from(["now", "now", None, "old"])),
                  "price": paid if draw(st.booleans()) else price}
    data = {"version": 1, "routes": {"a": now["a"], "b": {
        key: value for key, value in route.items() if value is not None}},
        "workflows": {"w": {"routes": ["a", "b"], "requires": needs, "budget": {
            "per_class": {"server": 0}}}},
        "contracts": [{key: value for key, value in made.items() if value is not None}]}
    contract = typing.cast(Json, data)["contracts"][0]
    if made["fingerprint"] == "now":
        contract.pop("fingerprint")
        contract["fingerprint"] = fivegates.Policy.loads(data).contract("w", "b")[
            "fingerprint"]
    elif made["fingerprint"] == "old":
        contract["fingerprint"] = "sha256:" + "0" * 64
        bad.add("fingerprint")
    if "price" in contract and money(contract["price"]) != money(price):
        bad.add("price")
    return data, bad, twin


def as_a_call_sees_it(policy: fivegates.Policy, now: int) -> "str | None":
    """Why the engine does not use the stand-in after a 503; None: it does."""
    engine = fivegates.Engine(policy, clock=ManualClock(unix_ms=now), seed=1)
    call = engine.begin("w")
    call.begin_attempt()
    call.event("sent")
    decision = call.failure({"phase": "response", "status": 503})
    if (decision.action, decision.route) == ("fallback", "b"):
        return None
    return next(one["why"] for one in decision.rejected if one["route"] == "b")


@settings(max_examples=150, deadline=None, derandomize=True,
          phases=[Phase.explicit, Phase.generate])
@given(worlds(), st.sampled_from(["2026-11-29", "2026-11-30", "2026-12-10",
                                  "2027-02-27", "2027-02-28"]))
def test_the_verdict_is_the_engines(world: "tuple[Json, set[str], bool]",
                                    day: str) -> None:
    data, bad, twin = world
    now = dates.unix_ms(day)
    assert now is not None
    one = judged(CardFile("card.json", b"", True, json.dumps(data)), "w", "b", now)
    engine = as_a_call_sees_it(fivegates.Policy.loads(data), now)
    if engine in ("spend_exhausted", "cost_exhausted", "tokens_exhausted"):
        engine = None  # the budget's gate comes after the contract's
    assert one.approved == (engine is None)
    assert one.reason == engine
    contract = data["contracts"][0]
    if dates.barred_by_dates(contract, now) and not any(
            key.removeprefix("evidence.") in EVIDENCE for key in bad):
        bad = bad | {"evidence.measured_at" if day == "2026-11-29"
                     else "evidence.expires_at"}
    assert {found.key for found in one.findings} == bad
    for found in one.findings:
        if found.key in ("evidence.route", "evidence.primary"):
            assert found.state == "stale"
            assert found.provided == contract["evidence"][found.key.partition(".")[2]]
    assert one.approved == (not bad and "fingerprint" in contract)
    for check in one.checks:
        assert (check.state == "passed") == (not check.findings)
        assert check.inherited == (twin and check.section in (
            "input", "output", "tools", "quality"))
    for found in one.findings:
        if found.state == "unknown":
            assert found.provided is None or found.key == "evidence.measured_at"
        assert found.remedy


def test_a_smaller_models_own_floor() -> None:
    data: Json = {"version": 1, "routes": {
        name: {"provider": "p", "model": name} for name in "ab"}, "workflows": {
        "w": {"routes": ["a"], "ladder": [{"step": "smaller_model", "route": "b",
                                           "min_score_ppm": 980001}]}},
        "contracts": [{"workflow": "w", "route": "b", "evidence": EVIDENCE}]}
    data["contracts"][0]["fingerprint"] = fivegates.Policy.loads(data).contract(
        "w", "b")["fingerprint"]
    now = dates.unix_ms(NOW)
    assert now is not None

    def one() -> Judged:
        return judged(CardFile("c", b"", True, json.dumps(data)), "w", "b", now)

    assert [found.key for found in one().findings] == ["ladder.min_score_ppm"]
    assert one().reason == "contract_section_fails"
    data["workflows"]["w"]["ladder"][0]["min_score_ppm"] = 980000
    assert one().approved
    data["workflows"]["w"]["ladder"].append({  # the engine bars it for both
        "step": "smaller_model", "route": "b", "min_score_ppm": 980001})
    assert [found.key for found in one().findings] == ["ladder.min_score_ppm"]
    assert not one().approved


@pytest.mark.parametrize("text", [
    "2026-11-30", "2026-11-30T12:30:59Z", "2026-11-30t12:30:59.25z",
    "2026-11-30 12:30:60+01:30", "2026-11-30T00:00:00.1239-23:59", "1970-01-01",
    "2026-02-30", "2026-13-01", "2026-11-30T12:30Z", "2026-11-30T12:30:59",
    "1969-01-01", "2026-11-30T24:00:00Z", "20261130", ""])
def test_dates_are_the_engines(text: str) -> None:
    data: Json = {"version": 1, "routes": {
        name: {"provider": "p", "model": "m"} for name in "ab"},
        "workflows": {"w": {"routes": ["a", "b"], "budget": {"per_class": {"server": 0}}}},
        "contracts": [{"workflow": "w", "route": "b", "fingerprint": "auto", "evidence": {
                "cases": 1, "passed": 1, "score_ppm": 1, "measured_at": "1970-01-01",
                "expires_at": text}}]}
    at = dates.unix_ms(text)
    if at is None:
        with pytest.raises(fivegates.PolicyError):
            fivegates.Policy.loads(data, auto_fingerprint=True)
        return
    if at:
        policy = fivegates.Policy.loads(data, auto_fingerprint=True)
        assert as_a_call_sees_it(policy, at - 1) != "contract_expired"
        assert as_a_call_sees_it(policy, at) == "contract_expired"


# ---- show


def test_show(card: pathlib.Path) -> None:
    one, = shown(card, *PAIR)["stand_ins"]
    assert one["reason"] == "not_approved"
    assert [check["section"] for check in one["checks"]] == list(SECTIONS)
    assert {check["state"] for check in one["checks"]} == {"passed"}
    code, out, _ = cli("contract", "show", card, *PAIR, "--now", NOW)
    assert code == 1 and "all eight hold: fivegates contract approve" in out
    assert "measured 2026-11-30, 10 days ago; expires 2027-02-28, in 80 days" in out
    text = CARD.replace("regions: [eu]}}\n  third", "regions: [us]}}\n  third")
    card.write_text(text.replace("cases_min: 10", "cases_min: 13"))
    code, out, _ = cli("contract", "show", card, *PAIR, "--now", NOW)
    assert 'data.regions: ["us"], required ["eu"]' in out
    assert "quality.cases_min: 12, required 13" in out
    assert "correct routes.spare.provides.data.regions" in out


def test_show_all(card: pathlib.Path) -> None:
    found = shown(card)["stand_ins"]
    assert shown(card)["now"] == "2026-12-10T00:00:00Z"
    assert [(one["workflow"], one["route"]) for one in found] == [
        ("answer", "spare"), ("other", "spare"), ("other", "third")]
    assert len(shown(card, "--route", "spare")["stand_ins"]) == 2
    assert len(shown(card, "--workflow", "other")["stand_ins"]) == 2
    code, out, _ = cli("contract", "show", card)
    assert code == 1 and out.count("not_approved") == 3
    assert "evidence.cases, evidence.passed" in out
    card.write_text(CARD[:CARD.index("contracts")].replace("main, spare", "main").replace(
        ", third", ""))
    code, out, _ = cli("contract", "show", card)
    assert code == 0 and "no workflow has a stand-in" in out


@pytest.mark.parametrize("args, words", [
    (("show", "{card}", "--workflow", "anser"), "did you mean answer?"),
    (("show", "{card}", "--route", "spar"), "did you mean spare?"),
    (("show", "{card}", "--workflow", "answer", "--route", "third"),
     "add it to workflows.answer.routes"),
    (("show", "{card}", "--workflow", "answer", "--route", "main"),
     "main is the primary of answer"),
    (("show", "{card}", "--workflow", "answer", "--route", "spore"),
     "no route is called spore; did you mean spare?"),
    (("show", "{card}", "--now", "tomorrow"), "not a date; write one such as"),
    (("show", "{card}.not"), "No such file"),
    (("new", "{card}", "--workflow", "x", "--route", "spare"), "no workflow is called x"),
    (("new", "{card}", *PAIR, "--no-data", "--update"), "leave --as"),
    (("new", "{card}", *PAIR, "--as", "gpt-4o"), "write PROVIDER/MODEL"),
    (("approve", "{card}", *PAIR, "--by", " "), "name who approves"),
    (("approve", "{card}", *PAIR, "--by", "x\nanswer / spare: approved"), "printable"),
    (("approve", "{card}", *PAIR, "--by", "\udcff"), "printable"),
    (("approve", "{card}", *PAIR, "--by", "x", "--days", "3", "--expires", "2027-01-01"),
     "give one of them"),
    (("approve", "{card}", *PAIR, "--by", "x", "--now", NOW, "--expires", "soon"),
     "not a date"),
    (("approve", "{card}", *PAIR, "--by", "x", "--now", NOW, "--expires", NOW),
     "over already"),
    (("approve", "{card}", *PAIR, "--by", "x", "--now", NOW, "--days", "81"),
     "the evidence expires before that"),
])
def test_bad_arguments(card: pathlib.Path, args: "tuple[str, ...]", words: str) -> None:
    code, out, err = cli("contract", *(one.format(card=card) for one in args))
    assert code == 2 and words in err and "Traceback" not in err
    assert card.read_text() == CARD


@pytest.mark.parametrize("text, words", [
    ("version: 1\nroutes: {}\n", "card.yaml"),
    (CARD + "---\nversion: 1\n", "remove the ---"),
    (CARD + "version: 1\n", "twice"),
    (CARD.replace("cases\": 12", "cases\": -1"), ":21:103: contracts[0].evidence.cases"),
    ("\xff", "UTF-8")])
def test_cards_that_do_not_load(card: pathlib.Path, text: str, words: str) -> None:
    card.write_bytes(text.encode("latin-1"))
    for command in (("show",), ("new", *PAIR), ("approve", *PAIR, "--by", "x")):
        code, _, err = cli("contract", command[0], card, *command[1:])
        assert code == 2 and str(card) in err and words in err, err
        assert card.read_bytes() == text.encode("latin-1")


# ---- approve


def test_approve(card: pathlib.Path) -> None:
    code, out, err = approved(card)
    assert code == 0, err
    assert "approved: spare may stand in for answer" in out
    added = [line for line in card.read_text().splitlines()
             if line not in CARD.splitlines()]
    now = fivegates.Policy.load(card).contract("answer", "spare")
    assert now["approved"]
    assert added == [f"    fingerprint: {now['fingerprint']}",
                     "    approved_by: ops@example.com"]
    assert card.read_text().endswith("    price: {input: 0.15, output: 0.6}\n")
    one, = shown(card, *PAIR)["stand_ins"]
    assert one["approved"] and one["approved_price"] == {"input": 0.15, "output": 0.6}
    # Again, by the same one: nothing to write. By another one: both are named.
    text = card.read_text()
    code, out, _ = approved(card)
    assert code == 0 and "already approved by ops@example.com; nothing" in out
    assert card.read_text() == text
    code, out, err = approved(card, "--by", "cfo@example.com", "--days", "30")
    assert code == 0 and "already approved by ops@example.com" in err
    assert 'approved_by: "ops@example.com, cfo@example.com"\n' in card.read_text()
    assert '"expires_at": "2027-01-09T00:00:00Z"' in card.read_text()


def broken(path: pathlib.Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


@pytest.mark.parametrize("old, new, key, state, mended", [
    ("0.6}\n    prov", "0.7}\n    prov", "price", "stale", True),
    ("model: gpt-4o-mini", "model: gpt-5-mini", "fingerprint", "stale", False),
    ("model: gpt-4o-mini", "model: gpt-4o-mini\n    version: '2'", "fingerprint",
     "stale", False),
    ("context_tokens: 16000", "context_tokens: 17000", "fingerprint", "stale", False),
    ("regions: [eu]}}\n  third", "regions: [us]}}\n  third", "data.regions", "failed", False),
    ("data: {regions: [eu]}\n      qu", "data: {retention_days: 3}\n      qu",
     "data.retention_days", "unknown", False),
    (EXPIRES, "2026-12-09", "evidence.expires_at", "stale", False),
    (MEASURED, "2026-12-11", "evidence.measured_at", "unknown", False),
    ('"passed": 12, ', "", "evidence.passed", "unknown", False),
    ('"score_ppm": 980000', '"score_ppm": 960000', "quality.max_drop_ppm", "failed",
     False),
])
def test_what_makes_it_stale(card: pathlib.Path, old: str, new: str, key: str,
                             state: str, mended: bool) -> None:
    """Shown so, refused, and only a price is mended by another signature."""
    assert approved(card)[0] == 0
    broken(card, old, new)
    one, = shown(card, *PAIR)["stand_ins"]
    found = {each["key"]: each["state"] for check in one["checks"]
             for each in check["findings"]}
    assert found[key] == state and not one["approved"]
    text = card.read_text()
    code, out, err = approved(card)
    assert code == (0 if mended else 1)
    if mended:
        assert "price: {input: 0.15, output: 0.7}" in card.read_text()
    else:
        assert card.read_text() == text and "nothing was written" in err
        assert f"{key}:" in out or f"{key}, " in out
        code, out, _ = approved(card, "--json")
        assert code == 1 and any(key in line for line in json.loads(out)["missing"])
    # What was measured may hold, and then someone has to say so.
    if key == "fingerprint":
        assert "--evidence-holds" in err
        assert approved(card, "--evidence-holds")[0] == 0


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("old, new, key, now", [
    ("model: gpt-4o-mini", "model: gpt-5-mini", "route", "azure-openai gpt-5-mini"),
    ("model: gpt-4o-mini", "model: gpt-4o-mini\n    version: '2'", "route",
     "azure-openai gpt-4o-mini 2"),
    ("provider: azure-openai", "provider: openai", "route", "openai gpt-4o-mini"),
    ("model: gpt-4o,", "model: gpt-4.1,", "primary", "openai gpt-4.1"),
    ("routes: [main, spare]", "routes: [third, spare]", "primary", "openai gpt-4.1")])
def test_no_signature_for_another_model(card: pathlib.Path, old: str, new: str, key: str,
                                        now: str, signed: bool) -> None:
    """What changes between the measuring and the signature, or after it, and is not
    what was measured: no approval, whatever is said of the evidence."""
    measured = {"route": {"provider": "azure-openai", "model": "gpt-4o-mini"},
                "primary": {"model": "gpt-4o", "provider": "openai"}}
    broken(card, json.dumps(EVIDENCE), json.dumps({**EVIDENCE, **measured}))
    if signed:
        assert approved(card)[0] == 0
    before = card.read_text()
    broken(card, old, new)
    text = card.read_text()
    then = " ".join(measured[key][part] for part in ("provider", "model"))
    code, out, _ = cli("contract", "show", card, *PAIR, "--now", NOW)
    assert code == 1 and any(line.rstrip().endswith(
        f"evidence.{key}: measured {then}, now {now}") for line in out.splitlines())
    assert f"evidence.{key}: measure again: fivegates contract verify {card}" in out
    one, = shown(card, *PAIR)["stand_ins"]
    assert one["reason"] == ("contract_stale" if signed else "not_approved")
    assert {check["section"]: check["state"] for check in one["checks"]}[
        "quality"] == "stale"
    for args in ((), ("--evidence-holds",)):
        code, out, err = approved(card, *args)
        assert code == 1 and card.read_text() == text
        assert f"evidence.{key}: measured" in out and "--evidence-holds" not in err
    # Where and for how much it is served was not measured.
    card.write_text(before.replace("price: {input: 2.5", (
        "account: x, base_url: 'https://eu.example.com/v1', price: {input: 3.5")))
    assert approved(card)[0] == 0


def test_approve_needs_a_contract_and_dates(card: pathlib.Path) -> None:
    code, out, err = cli("contract", "approve", card, "--workflow", "other", "--route",
                         "third", "--by", "x", "--yes")
    assert code == 1 and "no contract: fivegates contract new" in out
    broken(card, f', "expires_at": "{EXPIRES}"', "")
    text = card.read_text()
    assert approved(card)[0] == 1 and card.read_text() == text
    assert approved(card, "--expires", "2027-01-01")[0] == 0
    assert fivegates.Policy.load(card).contract("answer", "spare")["approved"]


def test_a_stand_in_without_a_price(card: pathlib.Path) -> None:
    """Any price is approved then, but not one that was there and is gone."""
    broken(card, "    price: {input: 0.15, output: 0.6}\n", "")
    assert approved(card)[0] == 0
    assert "price" not in CardFile.open(card).data["contracts"][0]
    card.write_text(CARD)
    assert approved(card)[0] == 0
    broken(card, "mini\n    price: {input: 0.15, output: 0.6}\n", "mini\n")
    code, out, _ = approved(card)
    assert code == 1 and "state routes.spare.price" in out


def test_the_question(card: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    args = ("contract", "approve", card, *PAIR, "--by", "me", "--now", NOW)
    code, _, err = cli(*args)
    assert code == 2 and "say --yes" in err and card.read_text() == CARD
    asked: "list[str]" = []

    def says(answer: bool, meanwhile: str = "") -> None:
        def confirm(question: str, err: bool) -> bool:
            asked.append(question)
            if meanwhile:
                card.write_text(CARD + meanwhile)
            return answer
        monkeypatch.setattr(approve_module.typer, "confirm", confirm)

    monkeypatch.setattr(approve_module, "sys", _Terminal())
    says(False)
    code, _, err = cli(*args)
    assert code == 1 and "nothing was written" in err and card.read_text() == CARD
    code, out, _ = cli(*args, "--json")
    assert code == 1 and not json.loads(out)["written"] and card.read_text() == CARD
    says(True, "# another hand\n")
    code, _, err = cli(*args)
    assert code == 2 and "the file changed meanwhile" in err
    assert card.read_text() == CARD + "# another hand\n"
    says(True)
    assert cli(*args)[0] == 0
    assert asked == ["approve spare as a stand-in for answer, as me?"] * 4


def test_another_time_is_not_the_clocks(card: pathlib.Path,
                                        monkeypatch: pytest.MonkeyPatch) -> None:
    """--now approves, and says where no call would know that time."""
    monkeypatch.setattr(approve_module, "now_ms", lambda: dates.unix_ms("2030-01-01"))
    code, out, err = approved(card)
    assert code == 0 and "may stand in" in out
    assert "by the clock of this machine it is contract_expired" in err
    monkeypatch.setattr(approve_module, "now_ms", lambda: dates.unix_ms(NOW))
    card.write_text(CARD)
    assert approved(card)[2] == ""


class _Terminal:
    class stdin:
        @staticmethod
        def isatty() -> bool:
            return True


def test_a_file_that_may_not_be_written(card: pathlib.Path) -> None:
    card.chmod(0o444)
    code, _, err = approved(card)
    assert code == 2 and "read-only" in err and card.read_text() == CARD
    assert os.listdir(card.parent) == ["card.yaml"]
    card.chmod(0o640)
    assert approved(card)[0] == 0
    assert card.stat().st_mode & 0o777 == 0o640


# ---- new

TABLE: Json = {
    "sample_spec": {"litellm_provider": "one of many"},
    "azure/gpt-4o-mini": {
        "litellm_provider": "azure", "mode": "chat", "max_input_tokens": 128000,
        "max_output_tokens": 16384, "input_cost_per_token": 1.5e-07,
        "output_cost_per_token": 6e-07, "cache_read_input_token_cost": 7.5e-08,
        "supports_vision": True, "supports_audio_input": False,
        "supports_response_schema": True, "supports_assistant_prefill": False,
        "supports_function_calling": True, "deprecation_date": "2027-05-01"},
    "gpt-4o-mini": {"litellm_provider": "openai", "max_input_tokens": 7},
    "azure/tiered": {
        "litellm_provider": "azure", "input_cost_per_token": 1e-06,
        "input_cost_per_token_above_200k_tokens": 2e-06,
        "input_cost_per_token_priority": 9e-06, "output_cost_per_token": 4e-06,
        "tiered_pricing": [{"output_cost_per_token": 5e-06}]},
    "azure/zero": {"litellm_provider": "azure", "input_cost_per_token": 0.0,
                   "output_cost_per_token": 0.0},
    "azure/half": {"litellm_provider": "azure", "input_cost_per_token": 0,
                   "output_cost_per_token": 4e-06},
    "azure/cached": {"litellm_provider": "azure", "input_cost_per_token": 1e-06,
                     "output_cost_per_token": 4e-06, "cache_read_input_token_cost": 0.0,
                     "output_cost_per_token_above_128k_tokens": None},
    "azure/other": {"alias_of": "azure/gpt-4o-mini"},
}


@pytest.fixture
def table(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """LiteLLM's table alone."""
    monkeypatch.setattr("fivegates.contract.new.genai_prices", lambda *_: None)
    path = tmp_path / "models.json"
    path.write_text(json.dumps(TABLE))
    return path


BARE = CARD[:CARD.index("contracts")].replace(
    "    price: {input: 0.15, output: 0.6}\n", "").replace(
    "    provides: {input: {context_tokens: 100000}, data: {regions: [eu]}}\n", "")


def drafted(card: pathlib.Path, table: pathlib.Path, *args: str) -> Json:
    code, out, err = cli("contract", "new", card, *PAIR, "--litellm", table, "--json",
                         *args)
    assert code == 0, err
    found: Json = json.loads(out)
    return found


def test_new(card: pathlib.Path, table: pathlib.Path) -> None:
    card.write_text(BARE)
    found = drafted(card, table, "--dry-run")
    assert card.read_text() == BARE and not found["written"]
    assert "+  - workflow: answer\n" in found["diff"]
    found = drafted(card, table)
    here = CardFile.open(card).data
    assert here["routes"]["spare"] == {
        "provider": "azure-openai", "model": "gpt-4o-mini",
        "price": {"input": decimal.Decimal("0.15"), "output": decimal.Decimal("0.6"),
                  "cached_input": decimal.Decimal("0.075")},
        "provides": {  # what is not known is not there; what is known not to be is false
            "input": {"context_tokens": 128000, "modalities": ["text", "image"],
                      "prefill": False},
            "output": {"max_tokens": 16384, "json_schema": True},
            "tools": {"names": ["*"]}}}
    assert here["contracts"] == [{"workflow": "answer", "route": "spare"}]
    unknown = {row["key"] for row in found["rows"] if row["state"] == "unknown"}
    assert unknown == {"input.system_prompt", "output.reasoning", "tools.parallel_calls",
                       "operations.streaming", "economics.cache"}
    asked = {one["key"]: one["required"] for one in found["questions"]}
    assert asked["data.regions"] == ["eu"] and asked["safety.filter"] is None
    assert not set(asked) & {"input.context_tokens", "economics.price_max"}
    assert found["sources"][0]["notes"] == ["its provider ends it on 2027-05-01"]
    assert found["next"].startswith(f"fivegates contract verify {card} --workflow")
    # Again: everything is there.
    text = card.read_text()
    again = drafted(card, table)
    assert not again["written"] and not again["new_contract"]
    assert {row["state"] for row in again["rows"]} == {"stated", "unknown"}
    assert card.read_text() == text
    code, out, _ = cli("contract", "new", card, *PAIR, "--litellm", table)
    assert code == 0 and "unknown, neither yes nor no: input.system_prompt" in out
    assert 'required ["eu"]' in out and "worth knowing before you approve" in out


def test_what_the_card_states_stays(card: pathlib.Path, table: pathlib.Path) -> None:
    found = drafted(card, table)
    here = CardFile.open(card).data["routes"]["spare"]
    assert here["provides"]["input"]["context_tokens"] == 100000
    assert here["price"] == {"input": decimal.Decimal("0.15"),
                             "output": decimal.Decimal("0.6")}
    differs = {row["key"]: (row["card"], row["value"]) for row in found["rows"]
               if row["state"] == "differs"}
    assert differs["input.context_tokens"] == (100000, 128000)
    assert set(differs) == {"price", "input.context_tokens"}
    code, out, _ = cli("contract", "new", card, *PAIR, "--litellm", table)
    assert "the card says 100000, which stays; --overwrite" in out
    drafted(card, table, "--overwrite")
    here = CardFile.open(card).data["routes"]["spare"]
    assert here["provides"]["input"]["context_tokens"] == 128000
    assert here["price"]["cached_input"] == decimal.Decimal("0.075")
    assert "# ours" in card.read_text()


@pytest.mark.parametrize("model, price, note", [
    ("tiered", {"input": 2, "output": 5}, "input costs 1 to 2"),
    ("zero", None, "the price of input, output is 0 there"),
    ("half", None, "the price of input is 0 there"),
    ("cached", {"input": 1, "output": 4}, "the price of cached_input is 0 there"),
    ("other", {"input": decimal.Decimal("0.15")}, "ends it on")])
def test_prices(card: pathlib.Path, table: pathlib.Path, model: str, price: Json,
                note: str) -> None:
    card.write_text(BARE.replace("gpt-4o-mini", model))
    found = drafted(card, table)
    here = CardFile.open(card).data["routes"]["spare"].get("price")
    assert here == price or here and price.items() <= here.items()
    assert any(note in one for one in found["sources"][0]["notes"])


def test_versions_and_other_names(card: pathlib.Path, table: pathlib.Path) -> None:
    """Another version is another model, until someone says that it is the same."""
    card.write_text(BARE.replace("gpt-4o-mini", "gpt-4o-mini\n    version: '2031'"))
    args = ("contract", "new", card, *PAIR, "--litellm", table)
    text = card.read_text()
    code, _, err = cli(*args)
    assert code == 2 and card.read_text() == text
    assert "routes.spare.model: no data knows azure-openai gpt-4o-mini 2031" in err
    assert "did you mean gpt-4o-mini?" in err and "--as PROVIDER/MODEL" in err
    assert cli(*args, "--as", "azure-openai/gpt-4o-mini")[0] == 0
    assert cli(*args, "--as", "nobody/x")[0] == 2
    card.write_text(text)
    assert cli("contract", "new", card, *PAIR, "--no-data")[0] == 0
    assert card.read_text() == text + "contracts:\n  - workflow: answer\n    route: spare\n"


def test_sources_that_disagree(card: pathlib.Path, table: pathlib.Path,
                               monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither is taken, and both are shown; where they agree it is written."""
    pytest.importorskip("genai_prices")
    from genai_prices import data_snapshot, types
    own = types.Provider(id="azure", name="Azure", api_pattern="x", models=[
        types.ModelInfo(
            id="gpt-4o-mini", match=types.ClauseEquals(equals="gpt-4o-mini"),
            context_window=128000, prices=types.ModelPrice(
                input_mtok=decimal.Decimal("0.15"), output_mtok=types.TieredPrices(
                    base=decimal.Decimal("0.6"),
                    tiers=[types.Tier(start=1000, price=decimal.Decimal("0.7"))])))])
    monkeypatch.setattr(data_snapshot, "get_snapshot", lambda: data_snapshot.DataSnapshot(
        providers=[own], from_auto_update=False))
    monkeypatch.setattr("fivegates.contract.new.genai_prices", sources.genai_prices)
    card.write_text(BARE)
    found = drafted(card, table)
    here = CardFile.open(card).data["routes"]["spare"]
    assert "price" not in here and here["provides"]["input"]["context_tokens"] == 128000
    versions = sources.genai_prices("azure-openai", "gpt-4o-mini", "2031")
    assert versions and not versions.model
    own.models[0].match = types.ClauseStartsWith(starts_with="gpt-4o-mini")
    versions = sources.genai_prices("azure-openai", "gpt-4o-mini", "2031")
    assert versions and versions.notes[-1].startswith("it knows gpt-4o-mini and no version")
    rows = {row["key"]: row for row in found["rows"]}
    assert rows["price.output"]["state"] == "disputed"
    assert rows["price.output"]["said"] == {"genai-prices": 0.7, "litellm": 0.6}
    assert list(rows["input.context_tokens"]["said"]) == ["genai-prices", "litellm"]
    code, out, _ = cli("contract", "new", card, *PAIR, "--litellm", table)
    assert "not taken: the data disagrees" in out and "litellm 0.6" in out
    assert "genai-prices" in found["sources"][0]["made"]

    def gone(self: object) -> None:
        raise ValueError("no network")

    monkeypatch.setattr("genai_prices.update_prices.UpdatePrices.fetch", gone)
    text = card.read_text()
    code, _, err = cli("contract", "new", card, *PAIR, "--update", "--overwrite")
    assert code == 2 and "--update: no network" in err and card.read_text() == text


def test_no_data_at_all(card: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("genai_prices", "genai_prices.update_prices"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setattr(sources.importlib.util, "find_spec", lambda name: None)
    code, _, err = cli("contract", "new", card, *PAIR)
    assert code == 2 and "fivegates[contract]" in err and card.read_text() == CARD
    code, _, err = cli("contract", "new", card, *PAIR, "--update")
    assert code == 2 and "genai-prices is not installed" in err


@pytest.mark.parametrize("text, words", [
    ("[1]", "no object by model"), ("{", ":1: not JSON"), ("\xff", "not UTF-8"),
    ("[" * 100000, "too deep"),
    ('{"azure/gpt-4o-mini": 3}', "azure/gpt-4o-mini: not an object"),
    ('{"azure/gpt-4o-mini": {"litellm_provider": "azure", "max_input_tokens": "many"}}',
     "max_input_tokens: 'many' cannot be"),
    ('{"azure/gpt-4o-mini": {"litellm_provider": "azure", "supports_reasoning": 1}}',
     "supports_reasoning: 1 cannot be"),
    ('{"azure/gpt-4o-mini": {"litellm_provider": "azure", "input_cost_per_token": -1}}',
     "input_cost_per_token: -1 cannot be"),
    *(('{"azure/gpt-4o-mini": {"litellm_provider": "azure", "%s": %s}}' % (key, value),
       f"{key}: ") for key, value in (
           ("input_cost_per_token", "2.5"), ("output_cost_per_token", "1e-12"),
           ("input_cost_per_token", "1e99999999"), ("max_input_tokens", "1e99999999"),
           ("input_cost_per_token", '"1e-6"'), ("tiered_pricing", "5"))),
    ('{"m": 1e9999999999999999999999}', "is no number that can be"),
    ('{"azure/gpt-4o-mini": {"litellm_provider": "azure", "max_output_tokens": 2000000000}}',
     "max_output_tokens: 2000000000 cannot be"),
    (None, "No such file")])
def test_a_broken_table(card: pathlib.Path, table: pathlib.Path, text: "str | None",
                        words: str) -> None:
    table.unlink()
    if text is not None:
        table.write_bytes(text.encode("latin-1"))
    code, _, err = cli("contract", "new", card, *PAIR, "--litellm", table)
    assert code == 2 and words in err and "Traceback" not in err, err
    assert card.read_text() == CARD


def test_a_litellm_that_is_installed(card: pathlib.Path, table: pathlib.Path,
                                     tmp_path: pathlib.Path,
                                     monkeypatch: pytest.MonkeyPatch) -> None:
    """Its table is read; it is not imported."""
    folder = tmp_path / "site" / "litellm"
    (folder.parent / "litellm-9.dist-info").mkdir(parents=True)
    (folder.parent / "litellm-9.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: litellm\nVersion: 9\n")
    folder.mkdir()
    (folder / "__init__.py").write_text("raise AssertionError")
    copied = folder / "model_prices_and_context_window_backup.json"
    copied.write_text(table.read_text())
    monkeypatch.syspath_prepend(str(folder.parent))
    monkeypatch.delitem(sys.modules, "litellm", raising=False)
    card.write_text(BARE)
    code, out, err = cli("contract", "new", card, *PAIR, "--json")
    assert code == 0, err
    assert json.loads(out)["sources"][0]["made"].startswith("litellm 9")
    assert "litellm" not in sys.modules


def test_a_card_in_json(card: pathlib.Path, table: pathlib.Path) -> None:
    """From nothing to approved, in JSON."""
    data = copy.deepcopy(dict(CardFile.open(card).data))
    path = card.with_suffix(".json")
    path.write_text(json.dumps(data, indent=2, default=float))
    drafted(path, table)
    assert approved(path)[0] == 0
    assert fivegates.Policy.load(path).contract("answer", "spare")["approved"]
    text = path.read_text()
    assert text == json.dumps(json.loads(text), indent=2)
