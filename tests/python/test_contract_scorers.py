"""How answers are judged: each scorer, what it refuses, and exactness."""

from __future__ import annotations

import decimal
import fractions
import json
import threading
import typing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fivegates.contract import patterns, schemas, scorers
from fivegates.contract.scorers import (WHOLE, Answer, ScorerBroke, ScorerError,
                                        judge_of, same_json)

pytest.importorskip("regex")
pytest.importorskip("jsonschema")

Json = typing.Dict[str, typing.Any]
ROW: Json = {"id": "one", "prompt": "?"}


def judged(expect: Json, answer: "str | Answer", **functions: typing.Any,
           ) -> scorers.Judgement:
    given_ = answer if isinstance(answer, Answer) else Answer(answer, finish="stop")
    return judge_of(expect, {f"m:{name}": one for name, one in functions.items()}
                    ).of(given_, ROW)


def passes(expect: Json, answer: "str | Answer") -> bool:
    found = judged(expect, answer)
    assert found.ppm == (WHOLE if found.passed else 0)
    assert bool(found.reason) != found.passed
    return found.passed


@pytest.mark.parametrize("expect, good, bad", [
    ({"scorer": "exact", "value": "Paris"}, ["Paris", " Paris\n"], ["paris", "Paris."]),
    ({"scorer": "exact", "value": ["a", "b"]}, ["a", "b"], ["ab", "c"]),
    ({"scorer": "exact", "value": "STRASSE", "ignore_case": True}, ["straße"], ["x"]),
    ({"scorer": "exact", "value": "no", "not": True}, ["yes"], ["no"]),
    ({"scorer": "contains", "value": "Paris"}, ["It is Paris."], ["It is paris."]),
    ({"scorer": "contains", "value": ["x", "y"]}, ["1x", "y1"], ["z"]),
    ({"scorer": "contains", "value": "SORRY", "ignore_case": True, "not": True},
     ["Fine."], ["I am sorry."]),
    ({"scorer": "starts_with", "value": "Yes"}, ["Yes, so", " Yes"], ["No. Yes"]),
    ({"scorer": "regex", "pattern": r"^\d{3}$"}, ["123"], ["1234", "a"]),
    ({"scorer": "regex", "pattern": "a", "ignore_case": True}, ["A"], ["b"]),
    ({"scorer": "regex", "pattern": "a", "not": True}, ["b"], ["a"]),
    ({"scorer": "json", "value": {"a": [1, True]}}, ['{"a": [1.0, true]}'],
     ['{"a": [1, 1]}', '{"a": [true, 1]}', '{"a": [1, true], "b": 0}', "```{}```", ""]),
    ({"scorer": "json", "value": 0.1}, ["0.1", "1e-1"], ["0.10000000000000000001"]),
    ({"scorer": "json_schema", "schema": {"type": "object", "required": ["a"]}},
     ['{"a": 1}'], ["{}", "[]", "no JSON", '{"a": NaN}', "{} {}"]),
    ({"scorer": "json_schema", "schema": {
        "properties": {"a": {"pattern": "^x+$"}}, "unevaluatedProperties": False}},
     ['{"a": "xx"}'], ['{"a": "y"}', '{"b": 1}']),
    ({"scorer": "json_schema", "schema": {"$ref": "#/$defs/n", "$defs": {
        "n": {"type": "integer", "minimum": 3}}}}, ["3", "4.0"], ["2", "3.5"]),
    ({"scorer": "number", "value": "0.3", "abs": "0.1"}, ["0.2", "0.4", " .3 "],
     ["0.1999999999999999999999999999999999", "0.41", "NaN", "nan", "Infinity", "",
      "0.3 kg", "1e999999999", "0x1"]),
    ({"scorer": "number", "value": -200, "rel": 0.01}, ["-202", "-198"], ["-202.0001"]),
    ({"scorer": "number", "value": 42, "find": "last"}, ["6 times 7 is 42."],
     ["42 or 43", "none"]),
    ({"scorer": "number", "value": 42, "find": "first"}, ["42 or 43"], ["6 is not 42"]),
])
def test_what_passes(expect: Json, good: "list[str]", bad: "list[str]") -> None:
    assert [one for one in good if not passes(expect, one)] == []
    assert [one for one in bad if passes(expect, one)] == []


def calls(*pairs: "tuple[str, str]") -> Answer:
    return Answer("", tuple({"id": str(i), "name": name, "arguments": arguments}
                            for i, (name, arguments) in enumerate(pairs)), "tool_calls")


def test_tool_calls() -> None:
    expect: Json = {"scorer": "tool_calls", "calls": [
        {"name": "f", "arguments": {"a": 1, "b": [True]}}, {"name": "g"}]}
    right = calls(("f", '{"b": [true], "a": 1.0}'), ("g", ""))
    turned = calls(("g", "{}"), ("f", '{"a": 1, "b": [true]}'))
    assert passes(expect, right)
    assert not passes(expect, turned)
    assert passes({**expect, "order": "any"}, turned)
    for wrong in (calls(("f", '{"a": 1, "b": [1]}'), ("g", "{}")), calls(),
                  calls(("f", '{"a": 1, "b": [true]'), ("g", "{}")),
                  calls(("f", '{"a": 1, "b": [true]}'), ("h", "{}")),
                  calls(("g", "{}"), ("g", "{}"))):
        assert not passes({**expect, "order": "any"}, wrong)
    assert passes({"scorer": "tool_calls", "calls": []}, "none needed")


@pytest.mark.parametrize("expect, words", [
    (None, "expect is"), ({}, "expect is"), ({"scorer": "Exact"}, "no scorer"),
    ({"scorer": "exact"}, "needs a value"), ({"scorer": "exact", "value": ""}, "needs"),
    ({"scorer": "exact", "value": []}, "needs"), ({"scorer": "exact", "value": 4}, "needs"),
    ({"scorer": "exact", "value": "a", "pass_at": 1}, "no key of exact"),
    ({"scorer": "exact", "value": "a", "not": 1}, "true or false"),
    ({"scorer": "regex", "pattern": "("}, "does not compile"),
    ({"scorer": "regex", "pattern": "a" * 3000}, "longer than"),
    ({"scorer": "json"}, "any JSON"),
    ({"scorer": "json_schema", "schema": 3}, "an object"),
    ({"scorer": "json_schema", "schema": {"type": "strin"}}, "schema is none"),
    ({"scorer": "json_schema", "schema": {"$ref": "http://127.0.0.1:9/s"}}, "leads out"),
    ({"scorer": "json_schema", "schema": {"items": {"$ref": "other.json"}}}, "leads out"),
    ({"scorer": "json_schema", "schema": {"$ref": "#/$defs/none"}}, "leads nowhere"),
    *(({"scorer": "json_schema", "schema": {"properties": {"const": schema}}}, words)
      for schema, words in [
          ({"$ref": "#/$defs/none"}, "leads nowhere"), ({"$ref": "#none"}, "leads nowhere"),
          ({"$ref": "http://h/s"}, "leads out"), ({"$id": "http://h/s"}, "without one"),
          ({"pattern": "a" * 3000}, "longer than"), ({"pattern": "("}, "schema is none")]),
    ({"scorer": "regex", "pattern": "(" * 900 + ")" * 900}, "too deep"),
    ({"scorer": "json_schema", "schema": {"patternProperties": {"a": {}}}}, "propertyNames"),
    ({"scorer": "json_schema", "schema": {
        "$schema": "http://json-schema.org/draft-07/schema#"}}, "2020-12"),
    ({"scorer": "tool_calls", "calls": {}}, "needs calls"),
    ({"scorer": "tool_calls", "calls": [{"name": "f", "arguments": "{}"}]}, "an object"),
    ({"scorer": "tool_calls", "calls": [], "order": "none"}, "order is"),
    ({"scorer": "number", "value": "NaN"}, "value of number"),
    ({"scorer": "number", "value": True}, "value of number"),
    ({"scorer": "number", "value": 1, "abs": -1}, "not below 0"),
    ({"scorer": "number", "value": 1, "find": "all"}, "find is"),
    ({"scorer": "os:system"}, "--scorer os:system"),
])
def test_what_is_refused(expect: typing.Any, words: str) -> None:
    with pytest.raises(ScorerError, match=words.replace("(", r"\(")):
        judge_of(expect, {})


def test_a_pattern_that_explodes_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns, "REGEX_S", 0.02)
    before = threading.active_count()
    text = "a" * 60 + "b"
    found = judged({"scorer": "regex", "pattern": "(a|aa)+$"}, text)
    assert (found.passed, found.reason) == (False, "regex took over 0.02 s")
    # What was not told does not pass by its negation, nor inside a schema.
    assert not judged({"scorer": "regex", "pattern": "(a|aa)+$", "not": True}, text).passed
    for schema in ({"pattern": "(a|aa)+$"}, {"not": {"pattern": "(a|aa)+$"}}):
        assert not judged({"scorer": "json_schema", "schema": schema},
                          json.dumps(text)).passed
    assert threading.active_count() == before


def test_a_schema_without_end_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    laughs: Json = {"$defs": {f"d{number}": {"allOf": [{"$ref": f"#/$defs/d{number + 1}"}] * 10}
                              for number in range(12)}, "$ref": "#/$defs/d0"}
    laughs["$defs"]["d12"] = {}
    for schema, seconds, words in (
            (laughs, 0.02, "took over 0.02 s"), ({"$ref": "#"}, 99, "a reference to itself"),
            ({"not": {"$ref": "#"}}, 99, "a reference to itself")):
        monkeypatch.setattr(schemas, "SCHEMA_S", seconds)
        found = judged({"scorer": "json_schema", "schema": schema}, "1")
        assert not found.passed and words in found.reason
    with pytest.raises(ScorerBroke, match="the schema of case c cannot be used"):
        judge_of({"scorer": "json_schema", "schema": {
            "default": {"type": "none"}, "properties": {"a": {"$ref": "#/default"}}}}, {}).of(
                Answer('{"a": 1}'), {"id": "c"})


def test_a_reason_repeats_nothing_of_the_answer() -> None:
    secret = "s3cret"
    for expect in ({"scorer": "exact", "value": "x"}, {"scorer": "json", "value": 1},
                   {"scorer": "number", "value": 1},
                   {"scorer": "json_schema", "schema": {
                       "additionalProperties": {"type": "integer"}}},
                   {"scorer": "tool_calls", "calls": [{"name": "f"}]}):
        for answer in (secret, json.dumps({secret: secret})):
            found = judged(expect, Answer(answer, ({"name": secret, "arguments": "{}"},)))
            assert not found.passed and secret not in found.reason


@pytest.mark.parametrize("deep", [
    "1e9999999999999999999999", "[" * 100_000, '{"a":' * 100_000, "9" * 10_000])
def test_an_answer_nobody_can_read_does_not_pass(deep: str) -> None:
    assert not passes({"scorer": "json", "value": []}, deep)
    assert not passes({"scorer": "json_schema", "schema": {}}, deep)
    assert not passes({"scorer": "number", "value": 1}, deep)
    assert not passes({"scorer": "tool_calls", "calls": [{"name": "f"}]},
                      Answer("", ({"name": "f", "arguments": deep},)))


# ---- functions


@pytest.mark.parametrize("value, ppm", [
    (True, WHOLE), (False, 0), (1, WHOLE), (0.3, 300_000), (0.1 + 0.2, 300_000),
    (fractions.Fraction(1, 3), 333_333), (decimal.Decimal("0.9999999"), 999_999)])
def test_what_a_function_returns(value: typing.Any, ppm: int) -> None:
    found = judged({"scorer": "m:f"}, "x", f=lambda answer, row: value)
    assert (found.ppm, found.passed) == (ppm, ppm == WHOLE)
    assert judged({"scorer": "m:f", "pass_at": "0.25"}, "x", f=lambda answer, row: value
                  ).passed == (ppm >= 250_000)


@pytest.mark.parametrize("value", [None, "1", 1.1, -0.1, float("nan"), float("inf"), [1]])
def test_what_is_no_score(value: typing.Any) -> None:
    with pytest.raises(ScorerBroke, match="m:f returned"):
        judged({"scorer": "m:f"}, "x", f=lambda answer, row: value)


def test_what_a_function_is_given() -> None:
    seen: "list[typing.Any]" = []
    judged({"scorer": "m:f", "value": [7]}, calls(("g", "{}")),
           f=lambda answer, row: bool(seen.append((answer, row))))
    [(answer, row)] = seen
    assert answer["finish_reason"] == "tool_calls"
    assert answer["tool_calls"][0]["name"] == "g"
    assert row["expect"]["value"] == [7] and row["id"] == "one"


def test_a_function_that_raises_says_nothing_of_the_answer() -> None:
    def f(answer: Json, row: Json) -> bool:
        raise KeyError(answer["text"])

    with pytest.raises(ScorerBroke, match="raised KeyError for case one") as caught:
        judged({"scorer": "m:f"}, "s3cret", f=f)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("name, words", [
    ("json:dumps", ""), ("json", "no module:function"), (":f", "no module:function"),
    ("no_such_module_here:f", "does not load"), ("json:nothing", "no function nothing"),
    ("json:__name__", "no function")])
def test_the_function_of_a_name(name: str, words: str) -> None:
    if not words:
        assert scorers.function_of(name) is json.dumps
        return
    with pytest.raises(ScorerError, match=words):
        scorers.function_of(name)


# ---- properties


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5)
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.text(max_size=3), inner, max_size=3), max_leaves=8)


@given(VALUES, VALUES)
def test_equality_of_json(a: typing.Any, b: typing.Any) -> None:
    """Reflexive through text, symmetric, and equality means the same canonical
    form with numbers by value."""
    assert same_json(a, json.loads(json.dumps(a), parse_float=decimal.Decimal))
    assert same_json(a, b) == same_json(b, a) == (canon(a) == canon(b))


def canon(value: typing.Any) -> typing.Any:
    if isinstance(value, dict):
        return "map", sorted((key, canon(one)) for key, one in value.items())
    if isinstance(value, list):
        return "list", [canon(one) for one in value]
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return "number", str(fractions.Fraction(repr(value)))
    return type(value).__name__, str(value)


@given(st.decimals(-1000, 1000, places=6), st.decimals(0, 10, places=6),
       st.decimals(-12, 12, places=6))
def test_tolerance_is_exact(value: decimal.Decimal, room: decimal.Decimal,
                            off: decimal.Decimal) -> None:
    expect = {"scorer": "number", "value": str(value), "abs": str(room)}
    assert judged(expect, str(value + off)).passed == (abs(off) <= room)
