"""The card's JSON Schema, for editors, says what the loader says.

tests/cards/cards.json holds the cards of the C test. Every card that loads is
valid; every bad one is invalid, except where it says that a schema cannot
express the rule ("schema": false).
"""

import json
import pathlib

import pytest

jsonschema = pytest.importorskip("jsonschema")

ROOT = pathlib.Path(__file__).resolve().parents[2]
CARDS = json.loads((ROOT / "tests/cards/cards.json").read_text(encoding="utf-8"))
SCHEMA = json.loads((ROOT / "bindings/python/fivegates/card.schema.json").read_text(encoding="utf-8"))
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


def names(kind):
    return [case["name"] for case in CARDS[kind]]


def test_schema_is_a_schema():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("case", CARDS["good"], ids=names("good"))
def test_good_cards_are_valid(case):
    card = dict(case["card"])
    if "contracts" in card:  # "auto" is for vectors only
        card["contracts"] = [
            {**c, "fingerprint": "sha256:0"} if c.get("fingerprint") == "auto" else c
            for c in card["contracts"]]
    errors = [f"{e.json_path}: {e.message}" for e in VALIDATOR.iter_errors(card)]
    assert not errors


@pytest.mark.parametrize("case", CARDS["bad"], ids=names("bad"))
def test_bad_cards_are_invalid(case):
    if "card" not in case:
        if case["code"] == "syntax" or not case["schema"]:
            pytest.skip("not a JSON document, or a key twice: beyond a schema")
        card = json.loads(case["text"])
    else:
        card = case["card"]
    assert VALIDATOR.is_valid(card) != case["schema"]


def objects(schema, path="$"):
    """(path, schema) of every object schema that lists its properties."""
    if isinstance(schema, dict):
        if "properties" in schema and schema.get("type") == "object":
            yield path, schema
        for key, value in schema.items():
            yield from objects(value, f"{path}.{key}")
    elif isinstance(schema, list):
        for i, value in enumerate(schema):
            yield from objects(value, f"{path}[{i}]")


def test_every_object_is_closed_and_described():
    seen = 0
    for path, schema in objects(SCHEMA):
        assert schema.get("additionalProperties") is False, path
        for key, value in schema["properties"].items():
            if path.endswith("$defs.schema"):
                continue
            assert "description" in value or "$ref" in value, f"{path}.{key}"
            seen += 1
    assert seen > 150


def test_the_reference_names_every_key():
    text = (ROOT / "core/doc/card.md").read_text(encoding="utf-8")
    missing = {key for path, schema in objects(SCHEMA) for key in schema["properties"] if f"`{key}`" not in text}
    assert not missing
