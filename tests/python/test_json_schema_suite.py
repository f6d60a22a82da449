"""The output check beside the public JSON Schema test suite.

tests/cases/json_schema holds rows of that suite, draft 2020-12. Those that use
nothing but the subset (type, required, properties, enum of scalars, items)
must be judged alike; every other schema of the suite must be refused when the
card is loaded, by the place of what is outside, never taken and half obeyed.
The jsonschema package is a second referee on the same rows.
"""

from __future__ import annotations

import json
import typing

import pytest

import fivegates

from .conftest import ROOT

jsonschema = pytest.importorskip("jsonschema")

FOLDER = ROOT / "tests/cases/json_schema"
Json = typing.Dict[str, typing.Any]


def rows(name: str) -> "list[Json]":
    made: "list[Json]" = json.loads((FOLDER / name).read_text(encoding="utf-8"))
    return made


INSIDE, OUTSIDE = rows("subset.json"), rows("outside.json")
SUBSET = ("type", "required", "properties", "enum", "items")


def card(schema: typing.Any) -> str:
    return json.dumps({
        "version": 1,
        "routes": {"main": {"provider": "openai", "model": "m"}},
        "workflows": {"w": {"routes": ["main"], "requires": {
            "output": {"schema": schema}}}}})


def policy_of(schema: typing.Any) -> fivegates.Policy:
    return fivegates.Policy.loads(card(schema), json=True)


def accepts(policy: fivegates.Policy, text: str) -> bool:
    engine = fivegates.Engine(policy, clock=lambda: 1_000_000, seed=1)
    call = engine.begin("w", prompt_tokens=10, max_output_tokens=10)
    call.begin_attempt()
    decision = call.success(output=text, finish_reason="stop",
                            prompt_tokens=10, output_tokens=5)
    assert (decision.action == "accept") != (
        decision.kind in ("output_invalid", "no_output"))
    return decision.action == "accept"


def spellings(data: typing.Any) -> "list[str]":
    """One value, as different providers would write it."""
    return [json.dumps(data), json.dumps(data, ensure_ascii=False),
            "\n " + json.dumps(data, indent=1, ensure_ascii=False) + "\t"]


def test_the_rows_are_those_of_the_suite() -> None:
    tests = sum(len(group["tests"]) for group in INSIDE)
    assert (len(INSIDE), tests, len(OUTSIDE)) == (36, 156, 425)
    used = {key for group in INSIDE for key in keywords(group["schema"])}
    assert used == set(SUBSET)
    assert sum(test["valid"] for group in INSIDE for test in group["tests"]) > 50


def keywords(schema: Json) -> "typing.Iterator[str]":
    yield from schema
    for under in [*schema.get("properties", {}).values(),
                  *([schema["items"]] if "items" in schema else [])]:
        yield from keywords(under)


@pytest.mark.parametrize("group", INSIDE, ids=lambda group: (
    f"{group['file']}: {group['description']}"))
def test_inside_the_subset(group: Json) -> None:
    policy = policy_of(group["schema"])
    referee = jsonschema.Draft202012Validator(group["schema"])
    for test in group["tests"]:
        assert referee.is_valid(test["data"]) == test["valid"], test
        for text in spellings(test["data"]):
            assert accepts(policy, text) == test["valid"], (test, text)


# ---- what is outside


def faults(schema: typing.Any, path: str) -> "typing.Iterator[str]":
    """Every place at which a schema leaves the subset."""
    if not isinstance(schema, dict):
        yield path  # true and false are schemas there, not here
        return
    for key, value in schema.items():
        if key not in SUBSET:
            yield f"{path}.{key}"
        elif key == "properties":
            for name, under in value.items():
                yield from faults(under, f"{path}.properties.{name}")
        elif key == "items":
            yield from faults(value, f"{path}.items")
        elif key == "enum" and not value:
            yield f"{path}.enum"
        elif key == "enum":
            yield from (f"{path}.enum[{i}]" for i, one in enumerate(value)
                        if isinstance(one, (dict, list)))


@pytest.mark.parametrize("group", OUTSIDE, ids=lambda group: (
    f"{group['file']}: {group['description']}"))
def test_outside_the_subset(group: Json) -> None:
    schema = group["schema"]
    with pytest.raises(fivegates.PolicyError) as caught:
        policy_of(schema)
    error = caught.value
    if "\\u0000" in json.dumps(schema):
        assert error.code == "bad_value"
        return
    places = list(faults(schema, "workflows.w.requires.output.schema"))
    assert error.path.replace('["', ".").replace('"]', "") in places
    assert error.code in ("unknown_key", "bad_type", "missing")
    assert error.line and error.column and error.message
    if error.code == "unknown_key":
        assert error.path.rpartition(".")[2].strip('[]"') not in SUBSET


# ---- where the subset is narrower than the standard, by decision


@pytest.mark.parametrize("keyword, value", [
    ("$schema", "https://json-schema.org/draft/2020-12/schema"),
    ("title", "an answer"), ("description", "words"), ("default", 1),
    ("const", 1), ("additionalProperties", False), ("minimum", 0)])
def test_annotations_are_refused_like_any_keyword(
        keyword: str, value: typing.Any) -> None:
    """What is not checked is not written: nobody may think that it is."""
    with pytest.raises(fivegates.PolicyError, match=r"\$schema|no such key") as caught:
        policy_of({"type": "object", keyword: value})
    assert caught.value.path == f"workflows.w.requires.output.schema.{keyword}"


@pytest.mark.parametrize("text, integer, one", [
    ("1", True, True), ("1.0", True, True), ("1.00", True, True),
    ("1.5", False, False), ("-0", True, False), ("-0.0", True, False),
    # An exponent is a number's spelling that is not worked out.
    ("1e0", False, False), ("10e-1", False, False), ("1E+0", False, False),
    # Longer than what is kept of a number: whole or not is still known.
    ("1" * 60, True, False), ("1." + "0" * 60 + "5", False, False),
    ("1" * 60 + ".5", False, False), ("1" * 60 + "e-59", False, False),
    ("1." + "0" * 60, False, False),  # it is 1; refused, as it is not kept
    # The standard has no NaN, and a text is no number.
    ("NaN", False, False), ('"1"', False, False), ("true", False, False)])
def test_numbers(text: str, integer: bool, one: bool) -> None:
    assert accepts(policy_of({"type": "integer"}), text) == integer
    assert accepts(policy_of({"enum": [1]}), text) == one
    assert accepts(policy_of({"enum": [0]}), text) == (text in ("-0", "-0.0"))
    assert accepts(policy_of({"type": "number"}), text) == (
        text not in ("NaN", '"1"', "true"))


def test_a_key_given_twice_must_fit_each_time() -> None:
    """Readers differ on which one counts, so both have to be right."""
    policy = policy_of({"required": ["a"], "properties": {"a": {"type": "integer"}}})
    assert accepts(policy, '{"a": 1, "a": 2}')
    assert not accepts(policy, '{"a": "x", "a": 2}')
    assert not accepts(policy, '{"a": 1, "a": "x"}')


@pytest.mark.parametrize("text", [
    "", " ", "{", "[1,]", "01", "'a'", "{} {}", "```json\n{}\n```", "{}x",
    "\ufeff{}"])
def test_only_a_whole_json_document_is_one(text: str) -> None:
    assert not accepts(policy_of({}), text)
