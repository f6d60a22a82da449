"""Tests of promptfoo, mapped to rows of ours: prompts times tests.

A template may name variables, {{name}} or {{name.key}}, and nothing else of
its language. What a test asks beyond equality, words, patterns and JSON (a
model that grades, JavaScript, a threshold) has no meaning here and is named.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import re
import typing

from fivegates.contract.mapping import FixtureError, Json, Unsupported, named

__all__ = ["cases", "tests_of"]

Rows = typing.Callable[[str], "typing.Iterator[tuple[str, Json]]"]
Mapped = typing.Tuple[str, typing.Union[Json, Unsupported]]

_MAX_BYTES = 1 << 20  # of a prompt's file
_MAX_TEXT = 16 << 20  # characters of a prompt that is filled in
_MAX_CASES = 10_000  # of a test: its prompts times all combinations of its variables
_CONFIG = ("$schema", "prompts", "tests", "defaultTest", "providers", "targets", "description",
           "tags", "evaluateOptions", "commandLineOptions", "outputPath", "sharing",
           "metadata", "env")
_TEST = ("vars", "assert", "description", "metadata")
_ASSERT = ("type", "value", "metric")
_VARIABLE = re.compile(r"\{\{-?\s*([A-Za-z_]\w*(?:\.\w+)*)\s*-?\}\}")
_OPENING = re.compile(r"\{([{%#])")
_CLOSING = {"{": "}}", "%": "%}", "#": "#}"}
_FILES = (".txt", ".json", ".jsonl", ".yaml", ".yml", ".md", ".csv", ".j2", ".js",
          ".mjs", ".cjs", ".ts", ".py")
_BLANK = re.compile(r"\s")
_BETWEEN = re.compile(r"^---\s*$", re.MULTILINE)  # prompts in one file

# type: scorer, and what else it says.
_TEXT_TYPES: "dict[str, tuple[str, Json]]" = {
    "equals": ("exact", {}),
    "contains": ("contains", {}),
    "icontains": ("contains", {"ignore_case": True}),
    "starts-with": ("starts_with", {}),
}
_LIST_TYPES: "dict[str, Json]" = {
    "contains-any": {}, "icontains-any": {"ignore_case": True},
    "contains-all": {}, "icontains-all": {"ignore_case": True},
}


class _Left(Exception):
    """A test that has no meaning here, and why."""


def tests_of(path: str, config: Json, rows: Rows,
             ) -> "typing.Iterator[tuple[str, Json]]":
    """The tests of a config with their places: in it, or in the files it names."""
    for key in config:
        if key not in _CONFIG:
            raise FixtureError(f"{path}: {key}: promptfoo's {key} cannot be mapped; "
                               "take it out")
    tests = config["tests"]
    for number, test in enumerate(tests if isinstance(tests, list) else [tests]):
        place = f"{path}: tests[{number}]"
        if isinstance(test, dict):
            yield place, test
        elif isinstance(test, str) and test.startswith("file://"):
            yield from rows(_beside(path, test))
        else:
            raise FixtureError(f"{place}: a test is an object, or file:// and the name "
                               "of a .jsonl, .json or .yaml")


def cases(place: str, test: Json, config: Json, path: str,
          ) -> "typing.Iterator[Mapped]":
    """A test with each prompt and each combination of its variables' lists.
    path: of the config, which its prompts' files stand beside."""
    try:
        yield from [(place, one) for one in _cases(place, test, config, path)]
    except _Left as exc:
        yield place, Unsupported(f"promptfoo {exc}")


def _cases(place: str, test: Json, config: Json, path: str) -> "list[Json]":
    base = config.get("defaultTest") or {}
    if not isinstance(base, dict):
        raise _Left("defaultTest in a file")
    for one in (base, test):
        for key, value in one.items():
            if key not in _TEST and value not in (None, {}, []):
                raise _Left(key)
    asserts = [*_list(place, base, "assert"), *_list(place, test, "assert")]
    if not asserts:
        raise _Left("test without assert")
    vars_ = {**_map(place, base, "vars"), **_map(place, test, "vars")}
    for value in vars_.values():
        if isinstance(value, str) and (value.startswith("file://")
                                       or next(_templates(value), None)):
            raise _Left("variable that is a template or a file")
    out: "list[Json]" = []
    lists = {name: value if isinstance(value, list) else [value]
             for name, value in sorted(vars_.items())}
    prompts = _prompts(place, vars_, config, path)
    count = len(prompts) * math.prod(map(len, lists.values()))
    if count > _MAX_CASES:
        raise FixtureError(f"{place}: {count} combinations of prompts and variables; at "
                           f"most {_MAX_CASES}, split the test")
    for values in itertools.product(*lists.values()):
        given = dict(zip(lists, values))
        expect = [made for one in asserts for made in _expect(place, one, given)]
        out += [named({"messages": _filled(place, messages, given)}, expect, place)
                for messages in prompts]
    return out


def _list(place: str, test: Json, key: str) -> "list[typing.Any]":
    value = test.get(key) or []
    if not isinstance(value, list):
        raise FixtureError(f"{place}: {key} is a list")
    return value


def _map(place: str, test: Json, key: str) -> Json:
    value = test.get(key) or {}
    if isinstance(value, str):
        raise _Left(f"{key} in a file")
    if not isinstance(value, dict):
        raise FixtureError(f"{place}: {key} is an object")
    return value


# ---- prompts


def _beside(path: str, url: str) -> str:
    return os.path.join(os.path.dirname(path), url.removeprefix("file://"))


def _prompts(place: str, vars_: Json, config: Json, path: str,
             ) -> "list[list[Json]]":
    """Each prompt's messages, not filled in yet."""
    prompts = config.get("prompts")
    if prompts is None:
        if "prompt" not in vars_:
            raise FixtureError(f"{place}: no prompt: give the promptfoo config that "
                               "has prompts and names this file under tests, or a "
                               "variable called prompt")
        prompts = "{{prompt}}"
    out: "list[list[Json]]" = []
    for one in prompts if isinstance(prompts, list) else [prompts]:
        if isinstance(one, dict):
            one = one.get("raw") or one.get("id")
        if not isinstance(one, str) or not one:
            raise _Left("prompt that is no text")
        # A name alone means a file too, where it cannot be words.
        if one.startswith("file://") or (one.lower().endswith(_FILES)
                                         and not _BLANK.search(one)):
            out += [_turns(text) for text in _read(_beside(path, one))]
        else:
            out.append(_turns(one))
    if not out:
        raise FixtureError(f"{place}: the config has no prompts")
    return out


def _read(path: str) -> "list[str]":
    if not path.lower().endswith((".txt", ".md", ".json")):
        raise _Left(f"prompt file {os.path.splitext(path)[1] or 'without ending'}")
    try:
        with open(path, "rb") as file:
            raw = file.read(_MAX_BYTES + 1)
        if len(raw) > _MAX_BYTES:
            raise FixtureError(f"{path}: a prompt longer than 1 MiB")
        text = raw.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as exc:
        raise FixtureError(f"{path}: {getattr(exc, 'strerror', None) or exc}; a prompt "
                           "of promptfoo cannot be read") from None
    if path.lower().endswith(".json"):
        return [text]
    return [one.strip() for one in _BETWEEN.split(text) if one.strip()]


def _turns(text: str) -> "list[Json]":
    """A prompt that is JSON of messages, else a user's one message."""
    if text.lstrip()[:1] == "[":
        try:
            turns = json.loads(text)
        except (ValueError, RecursionError):
            turns = None
        if isinstance(turns, list) and turns and all(
                isinstance(one, dict) and "role" in one for one in turns):
            return turns
    return [{"role": "user", "content": text}]


def _templates(text: str) -> "typing.Iterator[tuple[int, int]]":
    """Where each template of a text begins and ends; what is never closed is none."""
    at, never = 0, set()
    while (found := _OPENING.search(text, at)) is not None:
        kind, at = found.group(1), found.start() + 1
        end = -1 if kind in never else text.find(_CLOSING[kind], found.end())
        if end < 0:
            never.add(kind)
        else:
            at = end + 2
            yield found.start(), at


def _filled(place: str, value: typing.Any, given: Json) -> typing.Any:
    """A copy with the variables of every text in it filled in."""
    if isinstance(value, dict):
        return {key: _filled(place, one, given) for key, one in value.items()}
    if isinstance(value, list):
        return [_filled(place, one, given) for one in value]
    if not isinstance(value, str):
        return value
    out, end, size = [], 0, len(value)
    for start, after in _templates(value):
        name = _VARIABLE.fullmatch(value, start, after)
        if name is None:
            raise _Left(f"template {value[start:after][:60]}")
        out += [value[end:start], _shown(name.group(1), given)]
        end, size = after, size + len(out[-1])
        if size > _MAX_TEXT:
            raise FixtureError(f"{place}: a text of over {_MAX_TEXT} characters, once its "
                               "variables are filled in")
    return "".join([*out, value[end:]])


def _shown(name: str, given: Json) -> str:
    at: typing.Any = given
    for part in name.split("."):
        if not isinstance(at, dict) or part not in at:
            raise _Left(f"variable {name} that is not given")
        at = at[part]
    if isinstance(at, bool):
        return "true" if at else "false"
    if isinstance(at, float) and (at.is_integer() or not 1e-6 < abs(at) < 1e15):
        raise _Left(f"variable {name} that is written otherwise in JavaScript")
    if not isinstance(at, (str, int, float)):
        raise _Left(f"variable {name} that is no text")
    return str(at)


# ---- asserts


def _expect(place: str, one: object, given: Json) -> "list[Json]":
    """The `expect` entries of one assert; all of them must hold."""
    if not isinstance(one, dict) or not isinstance(one.get("type"), str):
        raise FixtureError(f"{place}: an assert is an object with a type")
    kind = one["type"]
    negate = kind.startswith("not-")
    plain = kind.removeprefix("not-")
    for key, value in one.items():
        if key not in _ASSERT and not (key == "weight" and value == 1):
            raise _Left(f"assert {kind} with {key}")
    value = one.get("value")
    if isinstance(value, str) and value.startswith("file://"):
        raise _Left(f"assert {kind} with a file")
    value = _filled(place, value, given)
    if plain == "equals" and not isinstance(value, str) and not negate:
        return [{"scorer": "json", "value": value}]
    if plain in _TEXT_TYPES:
        scorer, more = _TEXT_TYPES[plain]
        return [_made(place, kind, scorer, value, more, negate)]
    if plain in _LIST_TYPES:
        if not isinstance(value, list):
            raise _Left(f"assert {kind} whose value is no list")
        more = _LIST_TYPES[plain]
        if plain.endswith("-any"):
            return [_made(place, kind, "contains", value, more, negate)]
        if negate:
            raise _Left(f"assert {kind}")
        return [_made(place, kind, "contains", part, more, False) for part in value]
    if plain == "regex" and isinstance(value, str):
        return [{"scorer": "regex", "pattern": value, **({"not": True} if negate else {})}]
    if kind == "is-json" and (value is None or isinstance(value, dict)):
        return [{"scorer": "json_schema", "schema": value or {}}]
    raise _Left(f"assert {kind}")


def _made(place: str, kind: str, scorer: str, value: object, more: Json,
          negate: bool) -> Json:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        value = str(value)  # as YAML reads an unquoted number
    if not isinstance(value, (str, list)):
        raise FixtureError(f"{place}: the value of {kind} is a text")
    return {"scorer": scorer, "value": value, **more,
            **({"not": True} if negate else {})}
