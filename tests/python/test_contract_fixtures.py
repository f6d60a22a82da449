"""Fixtures: rows of four tools, what is refused and where, and their identity."""

from __future__ import annotations

import hashlib
import json
import pathlib
import random
import typing

import pytest

from fivegates.contract import fixtures as module
from fivegates.contract.fixtures import FixtureError, Fixtures, read_fixtures

pytest.importorskip("regex")
pytest.importorskip("jsonschema")

Json = typing.Dict[str, typing.Any]
EXPECT: Json = {"scorer": "exact", "value": "a"}
ROW: Json = {"id": "one", "prompt": "?", "expect": EXPECT}


def written(folder: pathlib.Path, text: "str | bytes | list[typing.Any]",
            name: str = "f.jsonl") -> str:
    path = folder / name
    if isinstance(text, list):
        text = "".join(json.dumps(one) + "\n" for one in text)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return str(path)


def read(folder: pathlib.Path, text: "str | bytes | list[typing.Any]",
         name: str = "f.jsonl", **options: typing.Any) -> Fixtures:
    return read_fixtures([written(folder, text, name)], **options)


def rows(found: Fixtures) -> "list[Json]":
    return [{key: one.row[key] for key in one.row if key != "id"} for one in found.cases]


def refused(folder: pathlib.Path, text: typing.Any, name: str = "f.jsonl",
            **options: typing.Any) -> str:
    with pytest.raises(FixtureError) as caught:
        read(folder, text, name, **options)
    message = str(caught.value)
    assert message.startswith(str(folder / name))
    return message[len(str(folder / name)):]


# ---- rows of our own


def test_rows_of_our_own(tmp_path: pathlib.Path) -> None:
    request = {"messages": [{"role": "user", "content": "?"}], "max_tokens": 5}
    found = read(tmp_path, b"\xef\xbb\xbf" + json.dumps(ROW).encode() + b"\n\n" + json.dumps(
        {"id": "two", "request": request, "expect": [EXPECT, EXPECT]}).encode())
    one, two = found.cases
    assert one.request == {"messages": [{"role": "user", "content": "?"}]}
    assert two.request == request and len(two.judges) == 2
    assert found.skipped == {}


@pytest.mark.parametrize("row, words", [
    ({**ROW, "note": 1}, ":1: note is no key"),
    ({**ROW, "id": 7}, ":1: id is a text"), ({**ROW, "id": ""}, ":1: id is a text"),
    ({**ROW, "id": "x" * 201}, ":1: id is a text"),
    ({**ROW, "prompt": ""}, ":1: prompt is"), ({**ROW, "request": {}}, ":1: give a prompt or"),
    ({"id": "a", "expect": EXPECT}, ":1: give a prompt or"),
    ({**ROW, "expect": []}, ":1: expect is empty"),
    ({**ROW, "expect": {"scorer": "magic"}}, ":1: expect: no scorer is called magic"),
    ({"id": "a", "request": {"messages": []}, "expect": EXPECT}, ":1: request.messages"),
    ({"id": "a", "request": {"messages": [{}], "n": 1}, "expect": EXPECT}, ":1: request.n"),
    ({"id": "a", "request": {"model": "m"}, "expect": EXPECT}, ":1: request.model"),
    *(({"id": "a", "request": {"messages": [{"role": "user"}], key: value}, "expect": EXPECT},
       f":1: request.{key} is a whole number") for key, value in (
           ("max_tokens", -5), ("max_tokens", 10**20), ("max_completion_tokens", True),
           ("max_completion_tokens", 0), ("max_tokens", "9"))),
    ({"question": "?"}, ":1: a row of no known format"),
    ([ROW], ":1: not an object"), ("text", ":1: not an object"),
])
def test_a_row_that_is_none(tmp_path: pathlib.Path, row: typing.Any, words: str) -> None:
    assert refused(tmp_path, [row]).startswith(words)


@pytest.mark.parametrize("text, words", [
    ("", ": no case in it"), ("\n \n", ": no case in it"),
    ('{"id": "a"\n', ":1: not JSON"), (json.dumps(ROW) + "\n{", ":2: not JSON"),
    (b'{"id": "\xff"}', ":1: the text is not UTF-8"),
    ('{"id": "a", "id": "b"}', ":1: not JSON: id stands twice"),
    ('{"id": "a", "prompt": NaN}', ":1: not JSON: NaN"),
    ('{"id": ' + "[" * 100_000, ":1: not JSON"),
    ('{"id": 0.12345678901234567890}', ":1: not JSON: 0.12345678901234567890 is not exact"),
    ('{"id": 0e9999999999999999999999}', ":1: not JSON: 0e9999999999999999999999 is not exact"),
    (json.dumps({**ROW, "prompt": "\ud800"}), ":1: half a surrogate"),
])
def test_a_file_that_is_none(tmp_path: pathlib.Path, text: typing.Any, words: str) -> None:
    assert refused(tmp_path, text).startswith(words)


def test_a_huge_line(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_BYTES", 1 << 10)
    long = json.dumps({**ROW, "prompt": "x" * 2000})
    assert refused(tmp_path, json.dumps(ROW) + "\n" + long).startswith(":2: longer than")
    assert refused(tmp_path, long, "f.json").startswith(": longer than")


@pytest.mark.parametrize("name", ["f.csv", "f"])
def test_an_ending_that_tells_nothing(tmp_path: pathlib.Path, name: str) -> None:
    assert "name it .jsonl" in refused(tmp_path, [ROW], name)
    with pytest.raises(FixtureError, match="none.jsonl: No such file"):
        read_fixtures([str(tmp_path / "none.jsonl")])


def test_ids_are_unique_across_files(tmp_path: pathlib.Path) -> None:
    assert refused(tmp_path, [ROW, {**ROW, "id": "two"}, ROW]).startswith(
        f":3: the id one stands at {tmp_path / 'f.jsonl'}:1 too")
    paths = [written(tmp_path, [ROW], "a.jsonl"), written(tmp_path, [ROW], "b.jsonl")]
    with pytest.raises(FixtureError, match="b.jsonl:1: the id one stands at .*a.jsonl:1"):
        read_fixtures(paths)


def test_a_file_has_rows_of_one_format(tmp_path: pathlib.Path) -> None:
    said = refused(tmp_path, [ROW, {"input": "?", "ideal": "a"}], default="exact")
    assert said.startswith(":2: a row of OpenAI evals, and ")
    assert ":1 is one of fivegates" in said


def test_documents(tmp_path: pathlib.Path) -> None:
    assert rows(read(tmp_path, json.dumps([ROW]), "f.json")) == rows(read(
        tmp_path, "- id: one\n  prompt: '?'\n  expect: {scorer: exact, value: a}\n", "f.yaml"))
    assert refused(tmp_path, "- id: one\n  prompt: '?'\n- id: two\n", "f.yaml").startswith(
        ":1: expect")
    assert refused(tmp_path, "- id: one\n  prompt: '?'\n  expect: {scorer: exact, value: a}\n"
                   "- id: 2\n  expect: x\n", "f.yaml").startswith(":4: id is a text")
    assert refused(tmp_path, "a: [", "f.yml").startswith(":")
    assert refused(tmp_path, json.dumps([ROW, 4]), "f.json").startswith(": [1]: not an object")


# ---- identity


def identity_by_hand(rows_: "list[Json]") -> str:
    lines = sorted(json.dumps(one, sort_keys=True, separators=(",", ":"),
                              ensure_ascii=False).encode() for one in rows_)
    return "sha256:" + hashlib.sha256(b"".join(one + b"\n" for one in lines)).hexdigest()


def test_the_identity_is_of_the_rows_in_any_order(tmp_path: pathlib.Path) -> None:
    some = [{"id": f"é{i}", "prompt": f"q {i}", "expect": {"value": "a", "scorer": "exact"}}
            for i in range(20)]
    want = identity_by_hand(some)
    for seed in range(5):
        random.Random(seed).shuffle(some)
        cut = seed * 4 + 1
        paths = [written(tmp_path, some[:cut], "a.jsonl"),
                 written(tmp_path, json.dumps(some[cut:], indent=2), "b.json")]
        assert read_fixtures(paths).identity == want


@pytest.mark.parametrize("change", [
    {"id": "two"}, {"prompt": "??"}, {"expect": {"scorer": "exact", "value": "b"}},
    {"expect": [EXPECT]}])
def test_every_part_of_a_row_is_in_the_identity(tmp_path: pathlib.Path, change: Json) -> None:
    assert read(tmp_path, [ROW]).identity != read(tmp_path, [{**ROW, **change}]).identity


# ---- Inspect and OpenAI evals


def asks(text: str) -> "list[Json]":
    return [{"role": "user", "content": text}]


def test_inspect(tmp_path: pathlib.Path) -> None:
    found = read(tmp_path, [
        {"input": "2+2?", "target": "4", "id": 7, "metadata": {"a": 1}},
        {"input": [{"role": "system", "content": "Be short."},
                   {"role": "user", "id": "x", "content": [
                       {"type": "text", "text": "See"},
                       {"type": "image", "image": "data:image/png;base64,AA=="}]},
                   {"role": "assistant", "content": "", "model": "m", "tool_calls": [
                       {"id": "c1", "function": "f", "arguments": {"a": 1}}]},
                   {"role": "tool", "tool_call_id": "c1", "content": "done"}],
         "target": ["4", "four"]}], default="contains")
    one, two = found.cases
    assert one.id == "7" and one.request == {"messages": asks("2+2?")}
    assert one.row["expect"] == {"scorer": "contains", "value": "4"}
    assert two.row["expect"]["value"] == ["4", "four"]
    assert two.request["messages"][1]["content"][1] == {
        "type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    assert two.request["messages"][2]["tool_calls"] == [{
        "id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}]
    assert two.request["messages"][3]["tool_call_id"] == "c1"


def test_openai_evals(tmp_path: pathlib.Path) -> None:
    found = read(tmp_path, [
        {"input": [{"role": "system", "content": "s"},
                   {"role": "system", "name": "example_user", "content": "e"}],
         "ideal": ["a", "b"]}, {"input": "q", "ideal": "c"}], default="starts_with")
    assert rows(found) == [
        {"request": {"messages": [{"role": "system", "content": "s"},
                                  {"role": "system", "name": "example_user", "content": "e"}]},
         "expect": {"scorer": "starts_with", "value": ["a", "b"]}},
        {"request": {"messages": asks("q")}, "expect": {"scorer": "starts_with", "value": "c"}}]
    assert [one.id for one in found.cases] == [one.id for one in read(
        tmp_path, [{"input": [{"role": "system", "content": "s"},
                              {"role": "system", "name": "example_user", "content": "e"}],
                    "ideal": ["a", "b"]}, {"input": "q", "ideal": "c"}],
        default="starts_with").cases]


@pytest.mark.parametrize("scorer, target, want", [
    ("regex", "^a", {"scorer": "regex", "pattern": "^a"}),
    ("number", "4", {"scorer": "number", "value": "4"}),
    ("json", '{"a": 1}', {"scorer": "json", "value": {"a": 1}}),
    ("m:f", ["a", "b"], {"scorer": "m:f", "value": ["a", "b"]}),
])
def test_the_scorer_of_rows_without_one(tmp_path: pathlib.Path, scorer: str,
                                        target: typing.Any, want: Json) -> None:
    found = read(tmp_path, [{"input": "q", "target": target}], default=scorer,
                 functions={"m:f": lambda answer, row: True})
    assert found.cases[0].row["expect"] == want


@pytest.mark.parametrize("row, default, words", [
    ({"input": "q", "target": "4"}, None, "add --scorer exact"),
    ({"input": "q", "ideal": "4"}, "json_schema", "json_schema cannot judge by ideal"),
    ({"input": "q", "target": ["4", "5"]}, "number", "target is a text where number"),
    ({"input": "q", "target": 4}, "exact", "target is a text"),
    ({"input": "q", "target": "x"}, "json", "target is not JSON"),
    ({"input": [], "target": "x"}, "exact", "input is a text"),
    ({"input": [{"role": "robot", "content": ""}], "target": "x"}, "exact", "with a role"),
    ({"input": [{"role": "user"}], "ideal": "x"}, "exact", "content of a message"),
])
def test_a_row_of_another_tool_that_is_none(
        tmp_path: pathlib.Path, row: Json, default: "str | None", words: str) -> None:
    said = refused(tmp_path, [row], default=default, skip_unsupported=True)
    assert said.startswith(":1: ") and words in said


@pytest.mark.parametrize("row, name", [
    ({"input": "q", "target": "A", "choices": ["x", "y"]}, "Inspect choices"),
    ({"input": "q", "target": "x", "sandbox": "docker"}, "Inspect sandbox"),
    ({"input": "q", "target": "x", "files": {"a": "b"}}, "Inspect files"),
    ({"input": "q", "target": ""}, "Inspect row without target"),
    ({"input": "q"}, "Inspect row without target"),
    ({"input": [{"role": "user", "content": [{"type": "audio"}]}], "target": "x"},
     "Inspect content audio"),
    ({"input": [{"role": "user", "content": [{"type": "image", "image": "a.png"}]}],
      "target": "x"}, "Inspect content image"),
    ({"input": [{"role": "user", "content": "a", "cache": 1}], "target": "x"},
     "Inspect message cache"),
    ({"input": [{"role": "user", "content": "a", "tool_calls": 5}], "target": "x"},
     "Inspect tool_calls"),
    ({"input": "q", "ideal": "x", "choice_strings": ["a"]}, "OpenAI evals choice_strings"),
])
def test_what_another_tool_means_and_this_one_cannot(
        tmp_path: pathlib.Path, row: Json, name: str) -> None:
    assert_unsupported(tmp_path, row, {**row, "input": "fine", "ideal" if "ideal" in row
                                       else "target": "x"}, name)


def assert_unsupported(folder: pathlib.Path, row: Json, other: Json, name: str) -> None:
    """Refused by name; left out and counted where that was asked for."""
    assert f":1: {name} cannot be mapped" in refused(folder, [row], default="exact")
    for key in ("choices", "sandbox", "files", "choice_strings"):
        other.pop(key, None)
    found = read(folder, [row, other], default="exact", skip_unsupported=True)
    assert found.skipped == {name: 1} and len(found.cases) == 1
    with pytest.raises(FixtureError, match="every row was left out"):
        read(folder, [row], default="exact", skip_unsupported=True)


# ---- promptfoo


CONFIG = """
description: capitals
providers: [openai:gpt-4o]
prompts:
  - 'The capital of {{ country }}?'
  - file://chat.json
defaultTest:
  vars: {style: short}
  assert:
    - {type: not-icontains, value: sorry}
tests:
  - description: one
    vars: {country: [France, "Spain"], city: Paris}
    assert:
      - {type: contains-any, value: ['{{city}}', Madrid]}
      - {type: regex, value: '^\\w'}
  - vars: {country: 7}
    assert:
      - {type: equals, value: '7', metric: m, weight: 1}
  - file://more.jsonl
"""
CHAT = [{"role": "system", "content": "Be {{style}}."},
        {"role": "user", "content": "{{country}}: \"capital\""}]


def test_promptfoo(tmp_path: pathlib.Path) -> None:
    written(tmp_path, json.dumps(CHAT), "chat.json")
    written(tmp_path, [{"vars": {"country": "x"}, "assert": [{"type": "is-json"}]}], "more.jsonl")
    found = rows(read(tmp_path, CONFIG, "promptfooconfig.yaml"))
    assert len(found) == 2 * 2 + 2 + 2
    never = {"scorer": "contains", "value": "sorry", "ignore_case": True, "not": True}
    assert found[0] == {"request": {"messages": asks("The capital of France?")}, "expect": [
        never, {"scorer": "contains", "value": ["Paris", "Madrid"]},
        {"scorer": "regex", "pattern": r"^\w"}]}
    assert found[1]["request"]["messages"] == [
        {"role": "system", "content": "Be short."},
        {"role": "user", "content": 'France: "capital"'}]
    assert found[2]["request"]["messages"] == asks("The capital of Spain?")
    assert found[4]["expect"] == [never, {"scorer": "exact", "value": "7"}]
    assert found[6]["expect"] == [never, {"scorer": "json_schema", "schema": {}}]


def test_what_is_opened_and_never_closed_is_text(tmp_path: pathlib.Path) -> None:
    """However often: its end is looked for once."""
    open_ = "{%{#" * 100_000
    found = read(tmp_path, json.dumps({"prompts": ["{% {{ p }} {#", open_ + "{{p}}"], "tests": [
        {"vars": {"p": "b"}, "assert": [{"type": "equals", "value": "a"}]}]}), "c.json")
    assert [one.request["messages"] for one in found.cases] == [
        asks("{% b {#"), asks(open_ + "b")]


def one_test(kind: str, value: typing.Any, **more: typing.Any) -> Json:
    return {"vars": {"prompt": "q"}, "assert": [{"type": kind, "value": value, **more}]}


@pytest.mark.parametrize("kind, value, want", [
    ("equals", "a", {"scorer": "exact", "value": "a"}),
    ("not-equals", "a", {"scorer": "exact", "value": "a", "not": True}),
    ("equals", {"a": 1}, {"scorer": "json", "value": {"a": 1}}),
    ("icontains", "a", {"scorer": "contains", "value": "a", "ignore_case": True}),
    ("starts-with", "a", {"scorer": "starts_with", "value": "a"}),
    ("icontains-any", ["a"], {"scorer": "contains", "value": ["a"], "ignore_case": True}),
    ("not-contains-any", ["a"], {"scorer": "contains", "value": ["a"], "not": True}),
    ("not-regex", "a", {"scorer": "regex", "pattern": "a", "not": True}),
    ("is-json", {"type": "object"}, {"scorer": "json_schema", "schema": {"type": "object"}}),
])
def test_an_assert(tmp_path: pathlib.Path, kind: str, value: typing.Any, want: Json) -> None:
    assert rows(read(tmp_path, [one_test(kind, value)])) == [
        {"request": {"messages": asks("q")}, "expect": [want]}]


def test_all_of_a_list(tmp_path: pathlib.Path) -> None:
    [row] = rows(read(tmp_path, [one_test("contains-all", ["a", "b"])]))
    assert row["expect"] == [{"scorer": "contains", "value": "a"},
                             {"scorer": "contains", "value": "b"}]


@pytest.mark.parametrize("test, name", [
    *((one_test(kind, "x"), f"promptfoo assert {kind}") for kind in (
        "llm-rubric", "javascript", "python", "similar", "model-graded-closedqa", "cost",
        "latency", "not-is-json", "contains-json", "factuality", "webhook", "assert-set")),
    (one_test("contains-any", "a,b"), "promptfoo assert contains-any whose value is no list"),
    (one_test("not-contains-all", ["a"]), "promptfoo assert not-contains-all"),
    (one_test("is-json", "type: object"), "promptfoo assert is-json"),
    (one_test("equals", "a", threshold=0.5), "promptfoo assert equals with threshold"),
    (one_test("equals", "a", weight=0), "promptfoo assert equals with weight"),
    (one_test("equals", "a", transform="x"), "promptfoo assert equals with transform"),
    (one_test("equals", "file://a.txt"), "promptfoo assert equals with a file"),
    (one_test("equals", "{{ prompt | upper }}"), "promptfoo template {{ prompt | upper }}"),
    (one_test("equals", "{% if a %}"), "promptfoo template {% if a %}"),
    (one_test("equals", "{{other}}"), "promptfoo variable other that is not given"),
    ({"vars": {"prompt": "q"}}, "promptfoo test without assert"),
    ({**one_test("equals", "a"), "threshold": 0.5}, "promptfoo threshold"),
    ({**one_test("equals", "a"), "options": {"transform": "x"}}, "promptfoo options"),
    ({"vars": {"prompt": "{{x}}"}, "assert": [{"type": "equals", "value": "a"}]},
     "promptfoo variable that is a template or a file"),
    ({"vars": {"prompt": {"a": 1}}, "assert": [{"type": "equals", "value": "a"}]},
     "promptfoo variable prompt that is no text"),
    ({"vars": {"prompt": 1.0}, "assert": [{"type": "equals", "value": "a"}]},
     "promptfoo variable prompt that is written otherwise in JavaScript"),
])
def test_what_promptfoo_means_and_this_cannot(
        tmp_path: pathlib.Path, test: Json, name: str) -> None:
    assert_unsupported(tmp_path, test, one_test("equals", "b"), name)


@pytest.mark.parametrize("config, words", [
    ({"tests": [], "prompts": ["a"]}, ": no case in it"),
    ({"tests": [one_test("equals", "a")], "scenarios": []}, "scenarios cannot be mapped"),
    ({"tests": "tests.csv"}, "tests[0]: a test is an object"),
    ({"tests": [{"vars": {"a": "b"}, "assert": [{"type": "equals", "value": "a"}]}]},
     "tests[0]: no prompt: give the promptfoo config"),
    ({"tests": [{"vars": [1], "assert": [{"type": "equals"}]}]}, "tests[0]: vars is an object"),
    ({"tests": [{"vars": {"prompt": "a"}, "assert": ["x"]}]}, "an assert is an object"),
    ({"tests": [one_test("contains", None)]}, "the value of contains is a text"),
    ({"tests": [one_test("equals", "a")], "prompts": ["file://p.js"]},
     "promptfoo prompt file .js cannot be mapped"),
    ({"tests": [one_test("equals", "a")], "prompts": ["p.py"]},
     "promptfoo prompt file .py cannot be mapped"),
    ({"tests": [{**one_test("equals", "a"), "vars": {
        name: list("abcdefghijkl") for name in "pqrstuvwxyz"}}], "prompts": ["a"]},
     "tests[0]: 743008370688 combinations of prompts and variables; at most 10000"),
    ({"tests": [{**one_test("equals", "a"), "vars": {"p": "x" * 100_000}}],
      "prompts": ["{{p}}" * 1000]}, "tests[0]: a text of over"),
])
def test_a_config_that_cannot_be_used(tmp_path: pathlib.Path, config: Json, words: str) -> None:
    assert words in refused(tmp_path, json.dumps(config), "c.json")


def test_prompts_in_files(tmp_path: pathlib.Path) -> None:
    written(tmp_path, "One {{a}}\n---\nTwo {{a}}\n", "p.txt")
    config = {"$schema": "https://promptfoo.dev/config-schema.json",
              "prompts": ["p.txt", "file://p.txt", "Name a file.txt {{a}}.txt"], "tests": [
        {"vars": {"a": "x"}, "assert": [{"type": "equals", "value": "x"}]}]}
    with pytest.raises(FixtureError, match="stands at"):  # the same prompts twice
        read(tmp_path, json.dumps(config), "c.json")
    del config["prompts"][0]
    assert [one["request"]["messages"] for one in rows(read(
        tmp_path, json.dumps(config), "c.json"))] == [
            asks("One x"), asks("Two x"), asks("Name a file.txt x.txt")]
    with pytest.raises(FixtureError, match="none.txt: No such file"):
        read(tmp_path, json.dumps({**config, "prompts": ["file://none.txt"]}), "c.json")
