"""Bad input: a clear exception that names the key, never a crash."""

from __future__ import annotations

import json
import pathlib
import pickle
import typing

import pytest

import fivegates
from fivegates.testing import ProviderError


@pytest.fixture
def engine(policy: fivegates.Policy) -> fivegates.Engine:
    return fivegates.Engine(policy, seed=1)


@pytest.mark.parametrize("evidence, kind, words", [
    ({"status": "429"}, TypeError, "status must be an int, not str"),
    ({"status": 4.5}, TypeError, "status must be a whole number"),
    ({"status": 1 << 70}, ValueError, "status is out of range"),
    ({"status": 1 << 40}, ValueError, "status is out of range"),
    ({"foo": 1}, TypeError, "evidence has no key 'foo'"),
    ({1: 1}, TypeError, "a key of evidence must be a str, not int"),
    ({"phase": "sent"}, ValueError, "phase is 'sent'; it is one of: unknown"),
    ({"phase": 3}, TypeError, "phase must be a str, not int"),
    ({"headers": 5}, TypeError, "headers must be a dict or a list of pairs"),
    ({"headers": [1]}, TypeError, "headers must be a dict or a list of pairs"),
    ({"headers": {1: "x"}}, TypeError, "a header's name must be a str"),
    ({"body": {}}, TypeError, "body must be a str, not dict"),
    ({"transport": "x"}, TypeError, "transport must be a dict, not str"),
    ({"transport": {"lib": 1}}, TypeError, "transport.lib must be a str"),
    ({"transport": {"x": 1}}, TypeError, "transport has no key 'x'"),
    ({"transport": {"code": "E"}}, TypeError, "transport.code must be an int"),
    ({"progress": []}, TypeError, "progress must be a dict"),
    ({"progress": {"visible": -1}}, ValueError, "progress.visible must be"),
    ({"progress": {"y": 1}}, TypeError, "progress has no key 'y'"),
    ({"progress": {"terminal": "z"}}, ValueError, "progress.terminal is 'z'"),
    ({"client_gone": "no"}, TypeError, "client_gone must be true or false"),
    ({"origin": "mars"}, ValueError, "origin is 'mars'"),
    ({"timeout": "late"}, ValueError, "timeout is 'late'"),
    ({"elapsed_ms": -5}, ValueError, "elapsed_ms must be between 0 and"),
])
def test_evidence(evidence: "dict[str, typing.Any]", kind: "type[Exception]",
                  words: str) -> None:
    with pytest.raises(kind) as caught:
        fivegates.classify(evidence)
    assert words in str(caught.value)


def test_evidence_is_a_dict() -> None:
    with pytest.raises(TypeError, match="evidence must be a dict, not str"):
        fivegates.classify("x")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="policy must be a Policy"):
        fivegates.classify({}, "x")  # type: ignore[arg-type]


@pytest.mark.parametrize("facts, kind, words", [
    ({"foo": 1}, TypeError, "begin() has no fact 'foo'"),
    ({"prompt_tokens": "9"}, TypeError, "prompt_tokens must be an int"),
    ({"prompt_tokens": -9}, ValueError, "prompt_tokens must be between"),
    ({"stream": "maybe"}, ValueError, "stream is 'maybe'"),
    ({"stream": 1.5}, TypeError, "stream must be a str"),
    ({"features": ["fly"]}, ValueError, "features is 'fly'"),
    ({"features": 3}, TypeError, "features must be a list of str"),
    ({"tools": "refund"}, TypeError, "tools must be a list of str"),
    ({"tools": [1]}, TypeError, "tools must be a list of str"),
    ({"tools": ["a"], "tool_choice": "b"}, ValueError, "not one of tools"),
    ({"tools": [str(i) for i in range(200)]}, ValueError, "more than 128"),
    ({"unable": ["sing"]}, ValueError, "unable is 'sing'"),
    ({"prior": 3}, TypeError, "prior must be a dict"),
    ({"prior": {"x": 3}}, TypeError, "prior has no key 'x'"),
    ({"prior": {"tokens": "x"}}, TypeError, "prior.tokens must be an int"),
    ({"tenant": 5}, TypeError, "tenant must be a str"),
    ({"call_id": "x" * 41}, ValueError, "call_id is longer than 40 bytes"),
])
def test_begin(engine: fivegates.Engine, facts: "dict[str, typing.Any]",
               kind: "type[Exception]", words: str) -> None:
    with pytest.raises(kind) as caught:
        engine.begin("w", **facts)
    assert words in str(caught.value)
    assert engine.workflow("w")["calls"] == 0


def test_tool_choice_may_come_first(engine: fivegates.Engine) -> None:
    call = engine.begin("w", tool_choice="b", tools=["a", "b"])
    assert call.decision.action


def test_unknown_workflow(engine: fivegates.Engine) -> None:
    with pytest.raises(fivegates.ArgumentError) as caught:
        engine.begin("nope")
    assert "no workflow 'nope'; it has: w, " in str(caught.value)
    assert caught.value.result == "arg"
    with pytest.raises(TypeError, match="needs the workflow"):
        engine.begin()  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        engine.begin("w", "x")  # type: ignore[misc]


def test_wall_time_is_refused(engine: fivegates.Engine) -> None:
    with pytest.raises(fivegates.ArgumentError):
        engine.begin("w", now_ms=1_796_000_000_000)


@pytest.mark.parametrize("call, words", [
    (lambda c: c.event("fly"), "kind is 'fly'"),
    (lambda c: c.event("token", "x"), "value must be an int"),
    (lambda c: c.event("terminal", "x"), "value is 'x'"),
    (lambda c: c.event(), "Call.event() needs 'kind'"),
    (lambda c: c.event("sent", 1, 2), "at most 2 positional"),
    (lambda c: c.event("sent", kind="sent"), "got 'kind' twice"),
    (lambda c: c.event("sent", foo=1), "has no argument 'foo'"),
    (lambda c: c.tool("op"), "needs 'state'"),
    (lambda c: c.tool("op", "gone"), "state is 'gone'"),
    (lambda c: c.tool(5, "started"), "op_id must be a str"),
    (lambda c: c.success(foo=1), "success() has no argument 'foo'"),
    (lambda c: c.success(1), "keywords only"),
    (lambda c: c.success(tool_calls="x"), "tool_calls must be a list of dicts"),
    (lambda c: c.success(tool_calls=[1]), "tool_calls must be a list of dicts"),
    (lambda c: c.success(tool_calls=[{"x": 1}]), "tool_calls has no key 'x'"),
    (lambda c: c.success(cost_usd="much"), "must be an amount in USD"),
    (lambda c: c.success(cost_usd=-1.0), "cost_usd is out of range"),
    (lambda c: c.success(cost_usd=float("nan")), "cost_usd is out of range"),
    (lambda c: c.success(finish_reason="end_turn"), "finish_reason is"),
    (lambda c: c.usage(1), "keywords only"),
    (lambda c: c.unable("fly"), "what is 'fly'"),
    (lambda c: c.resolved("op", "maybe"), "effect is 'maybe'"),
    (lambda c: c.ledger_line("poem"), "call, decision, end"),
    (lambda c: c.ledger_line("call", 5), "must be a Decision"),
    (lambda c: c.failure({"x": 1}), "evidence has no key 'x'"),
    (lambda c: c.begin_attempt(now_ms="x"), "now_ms must be an int"),
])
def test_call(engine: fivegates.Engine,
              call: "typing.Callable[[typing.Any], object]",
              words: str) -> None:
    begun = engine.begin("w")
    begun.begin_attempt()
    with pytest.raises((TypeError, ValueError)) as caught:
        call(begun)
    assert words in str(caught.value)


def test_usd_is_exact(engine: fivegates.Engine) -> None:
    import decimal

    for value in (0.08, "0.08", decimal.Decimal("0.08"), "8e-2", ".08", 1):
        call = engine.begin("w")
        call.begin_attempt()
        call.success(cost_usd=value, prompt_tokens=1, output_tokens=1,
                     output="x")
    for bad in ("", "1,5", "0x1", "1e", "1e999", "-1"):
        call = engine.begin("w")
        call.begin_attempt()
        with pytest.raises(ValueError):
            call.success(cost_usd=bad)


def test_engine_arguments(policy: fivegates.Policy,
                          tmp_path: pathlib.Path) -> None:
    with pytest.raises(TypeError, match="seed must be an int"):
        fivegates.Engine(policy, seed="x")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="clock must be callable"):
        fivegates.Engine(policy, clock=5)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        fivegates.Engine()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="the clock's now_ms must be an int"):
        fivegates.Engine(policy, clock=lambda: "x")  # type: ignore[arg-type, return-value]
    with pytest.raises(ZeroDivisionError):
        fivegates.Engine(policy, clock=lambda: 1 // 0)
    with pytest.raises(fivegates.RegionError) as caught:
        fivegates.Engine(policy, region=tmp_path / "no" / "such" / "folder")
    assert caught.value.result == "region"
    with pytest.raises(KeyError, match="no route 'nope'"):
        fivegates.Engine(policy).route("nope")
    with pytest.raises(KeyError, match="no workflow 'nope'"):
        fivegates.Engine(policy).workflow("nope")
    with pytest.raises(TypeError):
        fivegates.Engine(policy).route(5)  # type: ignore[arg-type]


def test_a_damaged_region_is_rebuilt(policy: fivegates.Policy,
                                     tmp_path: pathlib.Path) -> None:
    path = tmp_path / "region"
    first = fivegates.Engine(policy, region=path)
    file = pathlib.Path(first.region.path or "")
    del first
    size = file.stat().st_size
    file.write_bytes(file.read_bytes()[:64] + b"\xa5" * (size - 64))
    with pytest.warns(RuntimeWarning, match="a new one has taken its place"):
        engine = fivegates.Engine(policy, region=path)
    assert engine.region.path
    assert engine.begin("w").decision.action == "proceed"


def test_a_file_that_is_no_region_is_left_alone(
        policy: fivegates.Policy, tmp_path: pathlib.Path) -> None:
    first = fivegates.Engine(policy, region=tmp_path / "region")
    file = pathlib.Path(first.region.path or "")
    del first
    for text in (b"mine", b"\xa5" * file.stat().st_size):
        file.write_bytes(text)
        with pytest.warns(RuntimeWarning, match="left as it is; move it away"):
            engine = fivegates.Engine(policy, region=tmp_path / "region")
        assert engine.region.path is None
        assert engine.begin("w").decision.action == "proceed"
        assert file.read_bytes() == text


@pytest.mark.parametrize("change, code, path", [
    ({"foo": 1}, "unknown_key", "foo"),
    ({"routes": 5}, "bad_type", "routes"),
    ({"version": 2}, "bad_value", "version"),
    ({"workflows": {"w": {"routes": ["nope"]}}}, "unknown_name",
     "workflows.w.routes[0]"),
    ({"workflows": {"w": {"routes": ["main"], "budget": {"elapsed_ms": "x"}}}},
     "bad_type", "workflows.w.budget.elapsed_ms"),
])
def test_card(card: "dict[str, typing.Any]", change: "dict[str, typing.Any]",
              code: str, path: str) -> None:
    card.pop("contracts")
    card.update(change)
    with pytest.raises(fivegates.PolicyError) as caught:
        fivegates.Policy.loads(json.dumps(card, indent=1))
    error = caught.value
    assert (error.code, error.path) == (code, path)
    assert error.line > 0 and error.column > 0
    assert error.remedy and error.remedy in error.message
    assert isinstance(error, ValueError)
    again = pickle.loads(pickle.dumps(error))
    assert (again.code, again.path, str(again)) == (code, path, str(error))
    assert path in str(error) and code in str(error)


@pytest.mark.parametrize("text", [
    "", " ", "{", "[]", '{"version": 01}', '{"version": 1} x', '{"a": "\ud800"}',
    '{"version": NaN}', "{" * 100, '{"version": 1, "version": 1}',
    "\x00", "{\x00}",
])
def test_card_text(text: str) -> None:
    with pytest.raises((fivegates.PolicyError, UnicodeEncodeError)):
        fivegates.Policy.loads(text)


def test_card_file(tmp_path: pathlib.Path) -> None:
    with pytest.raises(FileNotFoundError):
        fivegates.Policy.load(tmp_path / "none.json")
    bad = tmp_path / "bad.json"
    bad.write_text('{\n "version": 1,\n "foo": 2}')
    with pytest.raises(fivegates.PolicyError) as caught:
        fivegates.Policy.load(bad)
    assert caught.value.file == str(bad)
    assert str(caught.value).startswith(f"{bad}:3:")
    bad.write_bytes(b'{"version": "\xff"}')
    with pytest.raises(fivegates.PolicyError, match="UTF-8"):
        fivegates.Policy.load(bad)
    bad.write_text("version: 1")
    with pytest.raises(fivegates.PolicyError, match="begins with"):
        fivegates.Policy.load(bad)
    with pytest.raises(TypeError):
        fivegates.Policy(5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"Policy\.load\(\)"):
        fivegates.Policy.loads(bad)  # type: ignore[arg-type]


@pytest.mark.parametrize("facts, words", [
    ({"x": 1}, "facts has no key 'x'"),
    ({"stage": "x"}, "stage: unknown word 'x'"),
    ({"stage": []}, "stage must be a word"),
    ({"flags": ["x"]}, "flags: unknown word 'x'"),
    ({"candidates": {}}, "candidates must be a list"),
    ({"candidates": [{}] * 17}, "at most 16"),
    ({"candidates": [{"x": 1}]}, "candidates has no key 'x'"),
    ({"ladder": [{"step": "x"}]}, "step is 'x'"),
    ({"failure": 5}, "failure must be a dict"),
    ({"failure": {"owner": "me"}}, "owner is 'me'"),
])
def test_facts(facts: "dict[str, typing.Any]", words: str) -> None:
    with pytest.raises((TypeError, ValueError)) as caught:
        fivegates.decide(facts)
    assert words in str(caught.value)
    with pytest.raises(TypeError, match="facts must be a dict"):
        fivegates.decide([])  # type: ignore[arg-type]


def test_lone_surrogates_and_bytes() -> None:
    fivegates.classify({"body": "\ud800", "headers": {"x": "\udfff"}})
    fivegates.classify({"body": b"\xff\xfe", "headers": {"x": b"\xff"}})
    fivegates.classify({"headers": {f"h{i}": "v" for i in range(500)}})
    fivegates.classify({"headers": {"h": ["a", "b", None], "n": 5}})


def test_decision_of(policy: fivegates.Policy) -> None:
    engine = fivegates.Engine(policy)

    def bad(attempt: fivegates.Attempt) -> None:
        raise ProviderError(400)

    for reraise in (False, True):
        try:
            try:
                engine.run("bare", bad, reraise=reraise)
            except Exception as inner:
                raise RuntimeError("a framework's own") from inner
        except RuntimeError as error:
            found = fivegates.decision_of(error)
            assert found is not None and found.action == "fail_closed"
    loop = RuntimeError()
    loop.__cause__ = other = RuntimeError()
    other.__cause__ = loop
    assert fivegates.decision_of(loop) is None
    assert fivegates.decision_of(None) is None


def test_names() -> None:
    with pytest.raises(ValueError, match="no table 'nope'"):
        fivegates.names("nope")
    with pytest.raises(ValueError):
        fivegates.names(5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="reason is 'nope'"):
        fivegates.gate_of("nope")


def test_scanner() -> None:
    with pytest.raises(ValueError, match="wire is 'smoke'"):
        fivegates.SseScanner("smoke")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        fivegates.SseScanner().feed(None)  # type: ignore[arg-type]
