"""The JSON of a vector file: strict reading, and how an answer is compared."""

from __future__ import annotations

import json
import typing

__all__ = ["NOTHING", "Fault", "Json", "compact", "find", "matches", "only",
           "whole"]

Json = typing.Dict[str, typing.Any]


class Fault(Exception):
    """A vector that is not one: an unknown key, a wrong type."""


def only(obj: typing.Any, what: str, allowed: str) -> Json:
    """The object, whose keys must all be words of `allowed`; None is {}."""
    if obj is None:
        return {}
    if not isinstance(obj, dict):
        raise Fault(f"{what} is not an object")
    for key in obj:
        if key not in allowed.split():
            raise Fault(f'unknown key "{key}" in {what}')
    return obj


def whole(obj: Json, key: str, lo: int, hi: int) -> int:
    """A member that must be a whole number from lo to hi; missing is 0."""
    value = obj.get(key, 0)
    if isinstance(value, float) and value == int(value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not (
            lo <= value <= hi):
        raise Fault(f"{key} is not a whole number from {lo} to {hi}")
    return value


def compact(value: object) -> str:
    """JSON without white space, as the library writes it."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _same(want: typing.Any, got: typing.Any) -> bool:
    """Equal as JSON: true is not 1, 1.0 is 1."""
    if isinstance(want, bool) or isinstance(got, bool) or want is None:
        return want is got
    if isinstance(want, (int, float)):
        return isinstance(got, (int, float)) and want == got
    if isinstance(want, list):
        return (isinstance(got, list) and len(want) == len(got)
                and all(map(_same, want, got)))
    if isinstance(want, dict):
        return (isinstance(got, dict) and want.keys() == got.keys()
                and all(_same(want[key], got[key]) for key in want))
    return isinstance(got, str) and want == got


def _number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def matches(want: typing.Any, got: typing.Any) -> bool:
    """An expectation against an answer: a value, a range [low, high] of a
    number, {"not": ...} or {"in": [...]}."""
    if isinstance(want, dict) and len(want) == 1:
        if "not" in want:
            return not matches(want["not"], got)
        if isinstance(want.get("in"), list):
            return any(matches(one, got) for one in want["in"])
    if isinstance(want, list) and _number(got):
        return (len(want) == 2 and all(map(_number, want))
                and want[0] <= got <= want[1])
    return _same(want, got)


NOTHING = object()  # what find() answers where nothing is


def find(obj: Json, path: str) -> typing.Any:
    """The member named, or the one at a dotted path ("rejected.0.route")."""
    if path in obj:
        return obj[path]
    at: typing.Any = obj
    for key in path.split("."):
        if isinstance(at, list) and key.isdigit() and int(key) < len(at):
            at = at[int(key)]
        elif isinstance(at, dict) and key in at:
            at = at[key]
        else:
            return NOTHING
    return at
