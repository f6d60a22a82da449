"""Cards in YAML: JSON's types only, and errors where the YAML has them."""

from __future__ import annotations

import json
import pathlib

import pytest

import fivegates
from fivegates.yaml import place_of, to_json

SMALL = """\
# a card
version: 1
routes:
  main:
    provider: openai
    model: "no"      # quoted: text
    key_env: yes_please
workflows:
  w:
    routes: [main]
"""


@pytest.mark.parametrize("text, value", [
    ("a: no", {"a": "no"}),
    ("a: yes", {"a": "yes"}),
    ("a: on", {"a": "on"}),
    ("a: true", {"a": True}),
    ("a: True", {"a": "True"}),
    ("a: null", {"a": None}),
    ("a: ~", {"a": None}),
    ("a:", {"a": None}),
    ("a: 1:30", {"a": "1:30"}),
    ("a: 2026-11-01T00:00:00Z", {"a": "2026-11-01T00:00:00Z"}),
    ("a: 2026-11-01", {"a": "2026-11-01"}),
    ("a: 0x10", {"a": "0x10"}),
    ("a: 010", {"a": "010"}),
    ("a: 1_000", {"a": "1_000"}),
    ("a: +1", {"a": "+1"}),
    ("a: .5", {"a": ".5"}),
    ("a: .inf", {"a": ".inf"}),
    ("a: .nan", {"a": ".nan"}),
    ("a: -1.5e3", {"a": -1500.0}),
    ("a: 12", {"a": 12}),
    ("a: '12'", {"a": "12"}),
    ('a: "x\\ny"', {"a": "x\ny"}),
    ("a: |\n  b\n  c\n", {"a": "b\nc\n"}),
    ("a: >\n  b\n  c\n", {"a": "b c\n"}),
    ("a: [1, {b: c}]", {"a": [1, {"b": "c"}]}),
    ("a:\n- 1\n- b: 2\n  c: 3\n", {"a": [1, {"b": 2, "c": 3}]}),
    ("1: x", {"1": "x"}),
    ("'<<': x", {"<<": "x"}),
    ("a: 暂时", {"a": "暂时"}),
    ("{a: 1, b: [2]}", {"a": 1, "b": [2]}),
    ("--- \na: 1\n", {"a": 1}),
])
def test_values(text: str, value: object) -> None:
    assert json.loads(to_json(text).json) == value


def test_numbers_stay_as_written() -> None:
    assert to_json("a: 0.10000000000000000000001").json == (
        '{"a":0.10000000000000000000001}')


@pytest.mark.parametrize("text, code, line, column, words", [
    ("a: 1\nb: 2\na: 3\n", "duplicate_key", 3, 1, "twice"),
    ("a:\n  b: 1\n  b: 1\n", "duplicate_key", 3, 3, "twice"),
    ("a: &x 1\nb: *x\n", "syntax", 1, 4, "anchors and aliases"),
    ("a: !!int 1\n", "syntax", 1, 4, "tag"),
    ("a: !x {b: 1}\n", "syntax", 1, 4, "tag"),
    ("a: {<<: {b: 1}}\n", "syntax", 1, 5, "merge keys"),
    ("? [1]\n: 2\n", "syntax", 1, 3, "plain text"),
    ("a: [1\n", "syntax", 2, 1, ""),
    ("a: 'x\n", "syntax", 2, 1, ""),
    ("a:\n\t- 1\n", "syntax", 2, 1, ""),
    ("a: b: c\n", "syntax", 1, 5, ""),
    ("a: 1\n---\nb: 2\n", "syntax", 2, 1, "one document"),
    ("", "syntax", 1, 1, "empty"),
    ("# only a comment\n", "syntax", 1, 1, "empty"),
    ("a: \x07", "syntax", 1, None, "not allowed"),
])
def test_errors(text: str, code: str, line: int, column: "int | None",
                words: str) -> None:
    with pytest.raises(fivegates.PolicyError) as caught:
        to_json(text)
    assert caught.value.code == code
    assert caught.value.line == line
    if column is not None:
        assert caught.value.column == column
    assert words in str(caught.value)


def test_depth() -> None:
    for text in ("[" * 5000, "a: " + "[" * 100, "- " * 200 + "x"):
        with pytest.raises(fivegates.PolicyError):
            to_json(text)


def test_size() -> None:
    with pytest.raises(fivegates.PolicyError, match="16 MiB"):
        to_json("#" * (16 << 20) + "\na: 1")


def test_places() -> None:
    places = to_json(SMALL).places
    assert places["workflows.w.routes"] == (10, 5)
    assert places["workflows.w.routes.0"] == (10, 14)
    assert place_of("workflows.w.routes[0]", places) == (10, 14)
    assert place_of("workflows.w.budget.elapsed_ms", places) == (9, 3)
    assert place_of("nowhere", places) == (0, 0)


def test_a_card(tmp_path: pathlib.Path) -> None:
    policy = fivegates.Policy.loads(SMALL)
    assert policy.route("main")["model"] == "no"
    file = tmp_path / "card.yml"
    file.write_text(SMALL)
    assert fivegates.Policy.load(file).fingerprint == policy.fingerprint
    assert fivegates.Policy(file).fingerprint == policy.fingerprint


def test_card_errors_name_the_yaml_line(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "card.yaml"
    file.write_text(SMALL + "    budget:\n      elapsed_ms: soon\n")
    with pytest.raises(fivegates.PolicyError) as caught:
        fivegates.Policy.load(file)
    error = caught.value
    assert error.path == "workflows.w.budget.elapsed_ms"
    assert (error.line, error.column) == (12, 7)
    assert str(error).startswith(f"{file}:12:7: workflows.w.budget.elapsed_ms")
    for text in ("just text", "- a\n- b\n", "12"):
        with pytest.raises(fivegates.PolicyError):
            fivegates.Policy.loads(text)
    file.write_text("a: [")
    with pytest.raises(fivegates.PolicyError) as caught:
        fivegates.Policy.load(file)
    assert caught.value.file == str(file)
