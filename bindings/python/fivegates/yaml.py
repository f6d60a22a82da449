"""Cards in YAML, read with JSON's types only.

No dates, no yes and no, no base 60, no tags, anchors or merges; a key twice
is an error. Numbers reach the core as they are written. An error of the card
names the line and column of the YAML.
"""

from __future__ import annotations

import json
import os
import pathlib
import re
import typing

from fivegates.errors import PolicyError

if typing.TYPE_CHECKING:
    from fivegates._core import Policy

__all__ = ["Document", "load_file", "load_text", "to_json"]

_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?\Z")
_MAX_BYTES = 16 << 20
_MAX_DEPTH = 32
_QUOTED = ("'", '"', "|", ">")
_YAML_SUFFIXES = (".yaml", ".yml")


class Document(typing.NamedTuple):
    """YAML as JSON text, and where each path stands in the YAML."""

    json: str
    places: "dict[str, tuple[int, int]]"


def _place(mark: typing.Any) -> "tuple[int, int]":
    return (mark.line + 1, mark.column + 1)


def _error(message: str, code: str, path: str, mark: typing.Any) -> PolicyError:
    line, column = _place(mark) if mark is not None else (0, 0)
    return PolicyError(message, code, path, line, column)


def _indent(text: str, line: int) -> str:
    """What stands before a line's first word."""
    row = text.split("\n")[line:line + 1]
    return row[0][:len(row[0]) - len(row[0].lstrip())] if row else ""


def _scalar(event: typing.Any, path: str) -> str:
    """JSON text of a scalar."""
    if event.tag is not None:
        raise _error(f"the tag {event.tag} is not JSON; leave it out",
                     "syntax", path, event.start_mark)
    value: str = event.value
    if event.style not in _QUOTED:  # plain
        if value in ("true", "false", "null"):
            return value
        if value in ("", "~"):
            return "null"
        if _NUMBER.match(value):
            return value
    return json.dumps(value)


class _Level:
    """A map or list being read."""

    def __init__(self, is_map: bool, path: str) -> None:
        self.is_map = is_map
        self.path = path
        self.parts: "list[str]" = []
        self.keys: "set[str]" = set()
        self.key: "str | None" = None
        self.count = 0

    def child(self) -> str:
        name = self.key if self.is_map else str(self.count)
        return f"{self.path}.{name}" if self.path else str(name)

    def add(self, text: str) -> None:
        if self.is_map:
            self.parts.append(f"{json.dumps(self.key)}:{text}")
            self.key = None
        else:
            self.parts.append(text)
        self.count += 1

    def close(self) -> str:
        inner = ",".join(self.parts)
        return "{%s}" % inner if self.is_map else "[%s]" % inner


def to_json(text: str) -> Document:
    """YAML text to JSON text; PolicyError with line and column."""
    import yaml  # here: the engine itself needs no YAML

    if len(text) > _MAX_BYTES:
        raise PolicyError("a card holds at most 16 MiB; split it", "limit")
    loader: typing.Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    places: "dict[str, tuple[int, int]]" = {}
    levels: "list[_Level]" = []
    done: "list[str]" = []

    def value(text: str) -> None:
        if levels:
            levels[-1].add(text)
        else:
            done.append(text)

    def open_level(event: typing.Any, is_map: bool) -> None:
        path = levels[-1].child() if levels else ""
        if event.tag is not None:
            raise _error(f"the tag {event.tag} is not JSON; leave it out",
                         "syntax", path, event.start_mark)
        if len(levels) == _MAX_DEPTH:
            raise _error(f"deeper than {_MAX_DEPTH} levels", "syntax", path,
                         event.start_mark)
        levels.append(_Level(is_map, path))

    def mapping_key(level: _Level, event: typing.Any) -> None:
        scalar = isinstance(event, yaml.ScalarEvent)
        if not scalar or event.tag is not None:
            raise _error("a key must be plain text", "syntax", level.path,
                         event.start_mark)
        level.key = event.value
        path = level.child()
        if event.style not in _QUOTED and event.value == "<<":
            raise _error("merge keys are not JSON; write the keys out",
                         "syntax", path, event.start_mark)
        if event.value in level.keys:
            raise _error("this key stands here twice; remove one",
                         "duplicate_key", path, event.start_mark)
        level.keys.add(event.value)
        places[path] = _place(event.start_mark)

    documents = 0
    try:
        event: typing.Any
        for event in yaml.parse(text, Loader=loader):
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise _error("a card is one document; remove the ---",
                                 "syntax", "", event.start_mark)
                continue
            path = levels[-1].child() if levels else ""
            if getattr(event, "anchor", None) is not None:
                raise _error("anchors and aliases are not JSON; write the "
                             "value out", "syntax", path, event.start_mark)
            top = levels[-1] if levels else None
            if top is not None and top.is_map and top.key is None and not (
                    isinstance(event, yaml.MappingEndEvent)):
                mapping_key(top, event)
                continue
            if top is not None and not top.is_map and not isinstance(
                    event, yaml.SequenceEndEvent):
                places[path] = _place(event.start_mark)
            if isinstance(event, yaml.ScalarEvent):
                value(_scalar(event, path))
            elif isinstance(event, yaml.MappingStartEvent):
                open_level(event, True)
            elif isinstance(event, yaml.SequenceStartEvent):
                open_level(event, False)
            elif isinstance(event, (yaml.MappingEndEvent,
                                    yaml.SequenceEndEvent)):
                value(levels.pop().close())
    except yaml.MarkedYAMLError as exc:
        mark = exc.problem_mark or exc.context_mark
        what = ": ".join(str(part) for part in (exc.context, exc.problem)
                         if part)
        if mark is not None and "\t" in _indent(text, mark.line):
            what += "; indent with spaces, not with tabs"
        raise _error(what or "not YAML", "syntax", "", mark) from None
    except yaml.reader.ReaderError as exc:
        line = text.count("\n", 0, exc.position) + 1
        raise PolicyError(f"the character {exc.character!r} is not allowed in "
                          "YAML; remove it", "syntax", "", line) from None
    except yaml.YAMLError as exc:
        raise PolicyError(str(exc), "syntax") from None
    if not done:
        raise PolicyError("the card is empty", "syntax", "", 1, 1)
    return Document(done[0], places)


def place_of(path: str, places: "dict[str, tuple[int, int]]",
             ) -> "tuple[int, int]":
    """Where a path, or the nearest thing around it, stands; (0, 0): unknown."""
    at = re.sub(r"\[(\d+)\]", r".\1", path)
    while at:
        if at in places:
            return places[at]
        at = at.rpartition(".")[0]
    return (0, 0)


def load_text(kind: "type[Policy]", text: "str | bytes", automatic: bool = False,
              file: "str | None" = None) -> "Policy":
    """A card in YAML. Called by Policy.loads() for text that is no JSON."""
    if isinstance(text, bytes):
        text = _decode(text, file)
    try:
        document = to_json(text)
    except PolicyError as exc:
        exc.file = file
        raise
    try:
        return kind.loads(document.json, auto_fingerprint=automatic, json=True)
    except PolicyError as exc:
        line, column = place_of(exc.path, document.places)
        raise PolicyError(exc.message, exc.code, exc.path, line, column,
                          file) from None


def _decode(raw: bytes, file: "str | None") -> str:
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        line = raw.count(b"\n", 0, exc.start) + 1
        raise PolicyError("the text is not UTF-8; save it as UTF-8", "syntax",
                          "", line, 0, file) from None


def load_file(kind: "type[Policy]", path: "str | os.PathLike[str]",
              automatic: bool = False) -> "Policy":
    """A card in a file: YAML by its suffix, else JSON, else YAML."""
    file = os.fspath(path)
    raw = pathlib.Path(file).read_bytes()
    text = _decode(raw, file)
    if text.lstrip()[:1] not in ("{", "[") or file.lower().endswith(
            _YAML_SUFFIXES):
        if not file.lower().endswith(".json"):
            return load_text(kind, text, automatic, file)
        raise PolicyError("not JSON: a card begins with {", "syntax", "", 1, 1,
                          file)
    try:
        return kind.loads(text, auto_fingerprint=automatic, json=True)
    except PolicyError as exc:
        exc.file = file
        raise
