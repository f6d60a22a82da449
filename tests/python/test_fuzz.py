"""Anything at all as input: a clear exception, or an answer."""

from __future__ import annotations

import json
import os
import typing

import pytest

import fivegates
from fivegates.answers import answer_of, progress_of
from fivegates.curl import evidence_from_text
from fivegates.vectors import Report, replay
from fivegates.yaml import to_json

hypothesis = pytest.importorskip("hypothesis")
st = pytest.importorskip("hypothesis.strategies")

ROUNDS = 60 if os.environ.get("FIVEGATES_SANITIZE") else 150
settings = hypothesis.settings(
    max_examples=ROUNDS, deadline=None, derandomize=True, database=None,
    suppress_health_check=list(hypothesis.HealthCheck))

KEYS = ("provider api phase status headers body transport lib kind code message "
        "elapsed_ms progress visible terminal inner_attempts origin client_gone "
        "timeout workflow prompt_tokens stream features tools tool_choice prior "
        "unable tokens attempts output tool_calls id name arguments cost_usd "
        "finish_reason version routes workflows classify when then budget "
        "retry-after choices message content usage type delta").split()
WORDS = KEYS + ["read", "stream", "429", "main", "w", "stop", "", "\ud800", "\x00",
                "application/json", "openai", "1e999", "Tue, 15 Nov 1994"]
scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 1000), st.integers(),
    st.floats(allow_nan=True), st.sampled_from(WORDS), st.text(max_size=40),
    st.binary(max_size=20))
values = st.recursive(scalars, lambda inner: st.one_of(
    st.lists(inner, max_size=4),
    st.dictionaries(st.sampled_from(WORDS), inner, max_size=6)), max_leaves=20)
dicts = st.dictionaries(st.sampled_from(KEYS), values, max_size=8)


@settings
@hypothesis.given(dicts)
def test_classify(evidence: typing.Any) -> None:
    try:
        assert fivegates.classify(evidence).owner in fivegates.names("owner")
    except (TypeError, ValueError) as exc:
        assert str(exc)


ENGINE = fivegates.Engine({
    "version": 1, "routes": {"main": {"provider": "openai", "model": "m"}},
    "workflows": {"w": {"routes": ["main"]}}}, seed=1)


@settings
@hypothesis.given(dicts, dicts, dicts)
def test_a_call(facts: typing.Any, evidence: typing.Any,
                answer: typing.Any) -> None:
    for step in range(4):
        try:
            if step == 0:
                facts.pop("workflow", None)
                call = ENGINE.begin("w", **facts)
            elif step == 1:
                call = ENGINE.begin("w")
                call.begin_attempt()
            elif step == 2:
                call.failure(evidence)
            else:
                call.success(**answer)
        except (TypeError, ValueError, fivegates.StateError) as exc:
            assert str(exc)


@settings
@hypothesis.given(values)
def test_cards(card: typing.Any) -> None:
    if not isinstance(card, dict):
        card = {"version": 1, "routes": card, "workflows": card}
    try:
        fivegates.Policy.loads(card)
    except (TypeError, ValueError) as exc:
        assert str(exc)


@settings
@hypothesis.given(st.one_of(st.text(max_size=200), st.text(
    alphabet=" \n\t:-[]{}'\"#&*!|>%@`,?~a1.", max_size=60)))
def test_yaml(text: str) -> None:
    try:
        json.loads(to_json(text).json)
    except fivegates.PolicyError as exc:
        assert exc.code in fivegates.names("load")


@settings
@hypothesis.given(st.text(max_size=100))
def test_pasted(text: str) -> None:
    for prefix in ("", "HTTP/1.1 429 x\r\n", "curl: (28) ", "{"):
        try:
            fivegates.classify(evidence_from_text(prefix + text))
        except (TypeError, ValueError) as exc:
            assert str(exc)


@settings
@hypothesis.given(st.lists(st.binary(max_size=60), max_size=6),
                  st.booleans())
def test_scanner(chunks: typing.Any, whole: bool) -> None:
    for wire in fivegates.names("wire"):
        scanner = fivegates.SseScanner(typing.cast(typing.Any, wire), whole)
        for chunk in chunks:
            scanner.feed(b"data: " + chunk if chunk[:1] > b"\x80" else chunk)
        scanner.answer()
        fivegates.classify(scanner.evidence())


@settings
@hypothesis.given(values)
def test_shapes(value: typing.Any) -> None:
    answer_of(value)
    progress_of(value)


@settings
@hypothesis.given(dicts)
def test_decide(facts: typing.Any) -> None:
    try:
        fivegates.decide(facts)
    except (TypeError, ValueError) as exc:
        assert str(exc)


@settings
@hypothesis.given(st.binary(max_size=80))
def test_saved_calls(raw: bytes) -> None:
    for bytes_ in (raw, b"fgc2\x03abc" + raw.ljust(1024, b"\x00")[:1024]):
        with pytest.raises((fivegates.FivegatesError, ValueError)):
            ENGINE.resume(bytes_).begin_attempt()


@settings
@hypothesis.given(dicts)
def test_vectors(tmp_path_factory: pytest.TempPathFactory,
                 given: typing.Any) -> None:
    file = tmp_path_factory.getbasetemp() / "fuzz.json"
    card = {"version": 1, "routes": {"main": {"provider": "o", "model": "m"}},
            "workflows": {"w": {"routes": ["main"]}}}
    steps = [{"at_ms": 0, "op": "begin", "call": "c", "in": {"workflow": "w"}}]
    steps += [{"at_ms": 0, "op": op, "call": "c", "in": given} for op in (
        "begin", "event", "failure", "success", "classify", "clock", "kill")]
    try:
        file.write_text(json.dumps({"cases": [
            {"name": "x", "policy": card, "steps": steps}]}))
    except (TypeError, UnicodeEncodeError):
        return
    report = replay([file], lambda _: None)
    assert isinstance(report, Report) and report.passed + report.failed == 1
