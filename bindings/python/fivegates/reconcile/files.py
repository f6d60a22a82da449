"""Reads an export's records, one at a time, and finds out whose export it is.

A CSV is known by its header, a JSON document by the keys of its records; the
order of columns never matters. What is wrong is told with file, line (or JSON
path) and remedy.
"""

from __future__ import annotations

import csv
import dataclasses
import decimal
import io
import itertools
import json
import os
import typing

from fivegates.reconcile.rows import Item, ReconcileError

__all__ = ["Export", "Format", "Record", "open_export"]

Record = typing.Dict[str, typing.Any]
Reader = typing.Callable[[Record, str], "typing.Iterable[Item]"]

# A JSON document is parsed whole; lines of JSON are not limited.
_DOCUMENT_MAX = 256 << 20


@dataclasses.dataclass(frozen=True)
class Format:
    """One kind of export.

    required: columns or keys without which it is refused; known: the others
    it may have, so that a new one is told of. lag_ms: how late its rows may
    come. limit: the most confident word its evidence can support: `certain`
    for a provider's rows by request, `probable` for cells of a clear key or a
    gateway's own count, `possible` where amounts are sums of a day.
    gateway: it is an estimate beside the provider's own bill.
    """

    name: str
    title: str
    kind: str  # "csv" or "json"
    required: "tuple[str, ...]"
    known: "tuple[str, ...]"
    read: Reader
    lag_ms: int
    limit: str
    gateway: bool = False


@dataclasses.dataclass
class Export:
    """An opened export: its format, its records' items, its warnings.

    tell() is how many of its size bytes were read.
    """

    path: str
    format: Format
    items: "typing.Iterator[Item]"
    size: int
    notes: "list[str]" = dataclasses.field(default_factory=list)
    tell: "typing.Callable[[], int]" = lambda: 0
    close: "typing.Callable[[], object]" = lambda: None


def _names(formats: "typing.Sequence[Format]") -> str:
    return ", ".join(one.title for one in formats)


def _choose(path: str, place: str, keys: "typing.Collection[str]", kind: str,
            formats: "typing.Sequence[Format]") -> Format:
    mine = [one for one in formats if one.kind == kind]
    whole = [one for one in mine if set(one.required) <= set(keys)]
    if whole:
        return max(whole, key=lambda one: len(one.required))
    near = max(mine, key=lambda one: len(set(one.required) & set(keys))
               / len(one.required))
    here = set(near.required) & set(keys)
    word = "column" if kind == "csv" else "key"
    if 2 * len(here) >= len(near.required):
        lost = [name for name in near.required if name not in keys]
        others = [name for name in keys if name not in near.required + near.known]
        raise ReconcileError(
            f"{place}: it looks like {near.title}, but the {word} "
            f"{', '.join(lost)} is not there"
            + (f" (unknown: {', '.join(others[:5])})" if others else "")
            + "; export it again without renaming or leaving out columns")
    raise ReconcileError(
        f"{place}: no known export has these {word}s: "
        f"{', '.join(list(keys)[:8])}; give one of: {_names(formats)}")


def _unknown(chosen: Format, keys: "typing.Iterable[str]") -> "list[str]":
    news = [key for key in keys if key not in chosen.required + chosen.known]
    return [f"columns not read: {', '.join(news)}"] if news else []


def open_export(path: str, formats: "typing.Sequence[Format]") -> Export:
    """Opens an export, or raises ReconcileError saying why it is none."""
    try:
        size = os.path.getsize(path)
        raw = open(path, "rb")
    except OSError as exc:
        raise ReconcileError(f"{path}: {exc.strerror or exc}; name a file that "
                             "can be read") from None
    head = raw.peek(1 << 16)[:1 << 16].lstrip(b"\xef\xbb\xbf \t\r\n")
    if not head:
        raw.close()
        raise ReconcileError(f"{path}:1: the file is empty; export it again")
    if head[:2] in (b"PK", b"\x1f\x8b"):
        raw.close()
        raise ReconcileError(f"{path}: it is packed; unpack it and give the "
                             "files inside")
    text = io.TextIOWrapper(raw, encoding="utf-8-sig", newline="")
    try:
        export = (_json if head[:1] in b"[{" else _csv)(path, text, size, formats)
    except BaseException:
        text.close()
        raise
    export.tell, export.close = raw.tell, text.close
    return export


def _csv(path: str, text: io.TextIOWrapper, size: int,
         formats: "typing.Sequence[Format]") -> Export:
    reader = csv.reader(text, strict=True)
    try:
        header = [name.strip() for name in next(reader)]
    except (csv.Error, UnicodeDecodeError) as exc:
        raise ReconcileError(f"{path}:1: not a CSV of UTF-8 text: {exc}; export "
                             "it again") from None
    twice = [name for name in header if name and header.count(name) > 1]
    if twice:
        raise ReconcileError(f"{path}:1: the column {twice[0]} is there twice; "
                             "export it again")
    chosen = _choose(path, f"{path}:1", header, "csv", formats)

    def items() -> "typing.Iterator[Item]":
        try:
            for cells in reader:
                if not cells:
                    continue
                place = f"{path}:{reader.line_num}"
                if len(cells) != len(header):
                    raise ReconcileError(
                        f"{place}: {len(cells)} fields, but the header has "
                        f"{len(header)}; the file is cut or was edited: export "
                        "it again")
                yield from chosen.read(dict(zip(header, cells)), place)
        except (csv.Error, UnicodeDecodeError) as exc:
            raise ReconcileError(f"{path}:{reader.line_num}: not a CSV of UTF-8 "
                                 f"text: {exc}; export it again") from None

    return Export(path, chosen, items(), size, _unknown(chosen, header))


def _parse(text: str) -> object:
    # Money in JSON numbers stays decimal text.
    return json.loads(text, parse_float=decimal.Decimal,
                      parse_constant=lambda word: word)


def _lines(path: str, text: io.TextIOWrapper) -> "typing.Iterator[tuple[str, object]]":
    number = 0
    try:
        for number, line in enumerate(text, 1):
            if line.strip():
                yield f"{path}:{number}", _parse(line)
    except (ValueError, RecursionError) as exc:
        raise ReconcileError(f"{path}:{max(number, 1)}: not JSON: {exc}; the "
                             "file is cut or was edited: export it again") from None


def _document(path: str, text: io.TextIOWrapper, size: int, notes: "list[str]",
              ) -> "typing.Iterator[tuple[str, object]]":
    if size > _DOCUMENT_MAX:
        raise ReconcileError(f"{path}: one JSON document of {size >> 20} MiB; "
                             "write one record a line (jq -c '.[]')")
    try:
        whole = _parse(text.read())
    except (ValueError, RecursionError) as exc:
        line = getattr(exc, "lineno", 1)
        raise ReconcileError(f"{path}:{line}: not JSON: {exc}; the file is cut "
                             "or was edited: export it again") from None
    if isinstance(whole, dict):
        if whole.get("has_more"):
            notes.append("has_more is true: give the following pages too, what "
                         "is on them is not covered")
        if "data" in whole:
            whole = whole["data"]
            if isinstance(whole, list):
                yield from ((f"{path}: data[{i}]", one)
                            for i, one in enumerate(whole))
                return
        yield f"{path}:1", whole
    elif isinstance(whole, list):
        yield from ((f"{path}: [{i}]", one) for i, one in enumerate(whole))


def _json(path: str, text: io.TextIOWrapper, size: int,
          formats: "typing.Sequence[Format]") -> Export:
    notes: "list[str]" = []
    try:
        first = text.readline()
        lines = first.lstrip()[:1] == "{" and _is_object(first)
        text.seek(0)
    except UnicodeDecodeError as exc:
        raise ReconcileError(f"{path}: the text is not UTF-8: {exc}; export it "
                             "again") from None
    records = (_lines(path, text) if lines and not _wraps(first)
               else _document(path, text, size, notes))
    found = next(records, None)
    if found is None:
        raise ReconcileError(f"{path}: there is no record in it; export a "
                             "period that has traffic")
    _as_record(*found)
    chosen = _choose(path, found[0], list(_as_record(*found)), "json", formats)

    def items() -> "typing.Iterator[Item]":
        for place, value in itertools.chain([found], records):
            one = _as_record(place, value)
            for name in chosen.required:
                if name not in one:
                    raise ReconcileError(
                        f"{place}: the key {name} of {chosen.title} is not "
                        "there; export it again, whole")
            yield from chosen.read(one, place)

    notes += _unknown(chosen, _as_record(*found))
    return Export(path, chosen, items(), size, notes)


def _is_object(line: str) -> bool:
    try:
        return isinstance(_parse(line), dict)
    except (ValueError, RecursionError):
        return False


def _wraps(line: str) -> bool:
    """Whether a line is a whole document around its records."""
    value = _parse(line)
    return isinstance(value, dict) and "data" in value


def _as_record(place: str, value: object) -> Record:
    if not isinstance(value, dict):
        raise ReconcileError(f"{place}: not an object; give the export as it "
                             "was downloaded")
    return value
