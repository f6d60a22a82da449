"""The cases a stand-in is measured by, read from files.

A row of our own, one JSON object a line:

    {"id": "capital", "prompt": "The capital of France?", "expect":
     {"scorer": "contains", "value": "Paris"}}

`request` instead of `prompt` is a whole chat request: messages, max_tokens,
tools ... Rows of promptfoo, Inspect and OpenAI evals are mapped to these.

The identity of the cases, "sha256:...", is that of the rows: each as JSON with
sorted keys, no blanks and no escapes that are not needed, in UTF-8; these lines
sorted by their bytes, each ended by a line feed. So it is the same in whatever
order and files they stand.
"""

from __future__ import annotations

import collections
import dataclasses
import decimal
import hashlib
import json
import os
import typing

from fivegates.contract import fixtures_promptfoo as promptfoo
from fivegates.contract import fixtures_rows as rows_of
from fivegates.contract.mapping import FixtureError, Json, Unsupported, canonical
from fivegates.contract.scorers import Function, Judge, ScorerError, judge_of
from fivegates.contract.wire import LIMITS
from fivegates.errors import PolicyError
from fivegates.yaml import place_of, to_json

__all__ = ["Case", "FixtureError", "Fixtures", "read_fixtures"]

# A line or a document is read as a whole; one that is longer is no fixture.
_MAX_BYTES = 16 << 20
_LINES = (".jsonl", ".ndjson")
_DOCUMENTS = (".json", ".yaml", ".yml")
_OWN = ("id", "prompt", "request", "expect")
# What the run itself says of a request, or cannot score.
_TAKEN = ("model", "stream", "stream_options", "n")
_TOKENS_MAX = 1_000_000_000  # no answer is so long


@dataclasses.dataclass(frozen=True)
class Case:
    """One row: its request in chat form, and the judges of its answer."""

    id: str
    row: Json
    judges: "tuple[Judge, ...]"
    place: str

    @property
    def request(self) -> Json:
        """The chat request, without model and stream."""
        if "request" in self.row:
            return typing.cast(Json, self.row["request"])
        return {"messages": [{"role": "user", "content": self.row["prompt"]}]}


@dataclasses.dataclass(frozen=True)
class Fixtures:
    """All cases; skipped: rows left out, by what of them cannot be mapped."""

    cases: "tuple[Case, ...]"
    identity: str
    skipped: "dict[str, int]"


Found = typing.Tuple[str, Json]  # a row as it stands, and its place


def read_fixtures(paths: "typing.Sequence[str]", default: "str | None" = None,
                  functions: "typing.Mapping[str, Function] | None" = None,
                  skip_unsupported: bool = False) -> Fixtures:
    """Reads files of fixtures, each of one format, known by its rows.

    default: the scorer of rows that state only what is expected. functions: by
    "module:function", those that rows may have called. skip_unsupported: a row
    that cannot be mapped is left out and counted, not refused. FixtureError
    names file, line and remedy.
    """
    cases: "dict[str, Case]" = {}
    skipped: "collections.Counter[str]" = collections.Counter()
    for path in paths:
        before = len(cases) + skipped.total()
        for place, mapped in _mapped(path, default):
            if isinstance(mapped, Unsupported):
                if not skip_unsupported:
                    raise FixtureError(f"{place}: {mapped} cannot be mapped; take it "
                                       "out, or leave such rows out with "
                                       "--skip-unsupported")
                skipped[str(mapped)] += 1
                continue
            case = _case(place, mapped, functions or {})
            if case.id in cases:
                raise FixtureError(f"{place}: the id {case.id} stands at "
                                   f"{cases[case.id].place} too; ids are unique")
            cases[case.id] = case
        if len(cases) + skipped.total() == before:
            raise FixtureError(f"{path}: no case in it; give a file with rows")
    if not cases:
        raise FixtureError("every row was left out; nothing can be measured")
    digest = hashlib.sha256()
    for line in sorted(canonical(one.row, one.place) for one in cases.values()):
        digest.update(line + b"\n")
    return Fixtures(tuple(cases.values()), f"sha256:{digest.hexdigest()}",
                    dict(sorted(skipped.items())))


# ---- files


def _mapped(path: str, default: "str | None",
            ) -> "typing.Iterator[tuple[str, Json | Unsupported]]":
    """The rows of a file as rows of ours, or what of them cannot be one."""
    first: "tuple[str, str] | None" = None  # the file's format, and who says so
    for place, row in _rows(path):
        if "tests" in row:
            for found, test in promptfoo.tests_of(path, row, _rows):
                yield from promptfoo.cases(found, test, row, path)
            continue
        name = _format(place, row)
        if first is None:
            first = name, place
        elif first[0] != name:
            raise FixtureError(f"{place}: a row of {name}, and {first[1]} is one of "
                               f"{first[0]}; a file has rows of one format, split it")
        if name == "fivegates":
            yield place, row
        elif name == "promptfoo":
            yield from promptfoo.cases(place, row, {}, path)
        else:
            yield place, rows_of.mapped(name, place, row, default)


def _format(place: str, row: Json) -> str:
    if "vars" in row or "assert" in row:
        return "promptfoo"
    if "ideal" in row:
        return "OpenAI evals"
    if "input" in row:
        return "Inspect"
    if "prompt" in row or "request" in row or "expect" in row:
        return "fivegates"
    raise FixtureError(f"{place}: a row of no known format; write "
                       '{"id": ..., "prompt": ..., "expect": {"scorer": ...}}')


def _rows(path: str) -> "typing.Iterator[Found]":
    """Each object of a file with its place. FixtureError."""
    ending = os.path.splitext(path)[1].lower()
    if ending not in _LINES + _DOCUMENTS:
        raise FixtureError(f"{path}: what is in it is told by its ending; name it "
                           ".jsonl, .json, .yaml or .yml")
    try:
        with open(path, "rb") as file:
            if ending in _LINES:
                yield from _of_lines(path, file)
            else:
                yield from _of_document(path, file.read(_MAX_BYTES + 1), ending)
    except OSError as exc:
        raise FixtureError(f"{path}: {exc.strerror or exc}; name a file that can be "
                           "read") from None


def _of_lines(path: str, file: typing.BinaryIO) -> "typing.Iterator[Found]":
    number = 0
    while line := file.readline(_MAX_BYTES + 1):
        number += 1
        place = f"{path}:{number}"
        if len(line) > _MAX_BYTES:
            raise FixtureError(f"{place}: longer than {_MAX_BYTES >> 20} MiB; one row "
                               "is one line")
        if line.strip():
            yield place, _object(place, _load(place, _text(place, line)))


def _of_document(path: str, raw: bytes, ending: str) -> "typing.Iterator[Found]":
    if len(raw) > _MAX_BYTES:
        raise FixtureError(f"{path}: longer than {_MAX_BYTES >> 20} MiB; write one row "
                           "a line in a .jsonl")
    text, places = _text(path, raw), None
    if ending != ".json":
        try:
            text, places = to_json(text)
        except PolicyError as exc:
            line = f":{exc.line}" if exc.line else ""
            raise FixtureError(f"{path}{line}: {exc.message}") from None
    value = _load(path, text)
    for number, row in enumerate(value if isinstance(value, list) else [value]):
        where = f"{path}: [{number}]"
        if places is not None:
            where = f"{path}:{place_of(str(number), places)[0] or 1}"
        elif not isinstance(value, list):
            where = path
        yield where, _object(where, row)


def _text(place: str, raw: bytes) -> str:
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise FixtureError(f"{place}: the text is not UTF-8; save it as UTF-8") from None


def _load(place: str, text: str) -> typing.Any:
    try:
        return json.loads(text, parse_constant=_no_constant, parse_float=_number,
                          object_pairs_hook=_pairs)
    except (ValueError, RecursionError) as exc:
        raise FixtureError(f"{place}: not JSON: {exc}; write one object a line"
                           ) from None


def _object(place: str, value: object) -> Json:
    if not isinstance(value, dict):
        raise FixtureError(f"{place}: not an object; a row is one")
    return value


def _pairs(pairs: "list[tuple[str, typing.Any]]") -> Json:
    out = dict(pairs)
    if len(out) != len(pairs):
        seen: "set[str]" = set()
        for key, _ in pairs:
            if key in seen:
                raise ValueError(f"{key} stands twice in one object")
            seen.add(key)
    return out


def _no_constant(word: str) -> typing.NoReturn:
    raise ValueError(f"{word} is no JSON")


def _number(text: str) -> float:
    """A double that is the number written: another would be hashed and compared."""
    value = float(text)
    try:
        exact = decimal.Decimal(repr(value)) == decimal.Decimal(text)
    except decimal.InvalidOperation:  # an exponent that no decimal has
        exact = False
    if not exact:
        raise ValueError(f"{text} is not exact as a double; write it as a text")
    return value


# ---- rows of our own


def _case(place: str, row: Json, functions: "typing.Mapping[str, Function]") -> Case:
    """A row of ours, checked."""
    for key in row:
        if key not in _OWN:
            raise FixtureError(f"{place}: {key} is no key of a row; it has "
                               f"{', '.join(_OWN)}")
    name = row.get("id")
    if not isinstance(name, str) or not name or len(name) > 200:
        raise FixtureError(f"{place}: id is a text of 1 to 200 characters")
    if ("prompt" in row) == ("request" in row):
        raise FixtureError(f"{place}: give a prompt or a request, one of them")
    if "prompt" in row:
        if not isinstance(row["prompt"], str) or not row["prompt"]:
            raise FixtureError(f"{place}: prompt is a text that is not empty")
    else:
        _check_request(place, row["request"])
    expect = row.get("expect")
    stated = expect if isinstance(expect, list) else [expect]
    if not stated:
        raise FixtureError(f"{place}: expect is empty; nothing would judge the answer")
    try:
        judges = tuple(judge_of(one, functions) for one in stated)
    except ScorerError as exc:
        raise FixtureError(f"{place}: expect: {exc}") from None
    return Case(name, row, judges, place)


def _check_request(place: str, request: object) -> None:
    if not isinstance(request, dict):
        raise FixtureError(f"{place}: request is an object: a chat request")
    for key in _TAKEN:
        if key in request:
            raise FixtureError(f"{place}: request.{key} is the run's to say; take it out")
    for key in LIMITS:
        limit = request.get(key)
        if limit is not None and (type(limit) is not int or not 0 < limit <= _TOKENS_MAX):
            raise FixtureError(f"{place}: request.{key} is a whole number from 1 to "
                               f"{_TOKENS_MAX}")
    messages = request.get("messages")
    if not isinstance(messages, list) or not messages or not all(
            isinstance(one, dict) and isinstance(one.get("role"), str)
            for one in messages):
        raise FixtureError(f"{place}: request.messages is a list of messages, each "
                           "with a role")
