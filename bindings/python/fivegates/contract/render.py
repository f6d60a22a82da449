"""Values as text: JSON, and YAML that the card's loader reads alike."""

from __future__ import annotations

import decimal
import json
import re
import typing

__all__ = ["block", "expanded", "inline"]

_PLAIN = re.compile(r"[A-Za-z_][\w./@+-]*(?:[ :][\w./@+-]+)*\Z", re.ASCII)
# What some reader of YAML takes for more than text.
_WORDS = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}
_WIDTH = 80


def _scalar(value: object, as_json: bool) -> str:
    if isinstance(value, (float, decimal.Decimal)):
        return format(decimal.Decimal(str(value)), "f")
    if not isinstance(value, str):
        return json.dumps(value)
    if not as_json and _PLAIN.match(value) and value.lower() not in _WORDS:
        return value
    return json.dumps(value, ensure_ascii=not value.isprintable())


def inline(value: object, as_json: bool) -> str:
    """One line, between brackets where there is more than one value."""
    if isinstance(value, dict):
        return "{%s}" % ", ".join(
            f"{_scalar(key, as_json)}: {inline(one, as_json)}"
            for key, one in value.items())
    if isinstance(value, (list, tuple)):
        return "[%s]" % ", ".join(inline(one, as_json) for one in value)
    return _scalar(value, as_json)


def expanded(value: object, unit: str) -> "list[str]":
    """The lines of JSON, as json.dumps(indent=unit) lays them out."""
    if not isinstance(value, (dict, list, tuple)) or not value:
        return [inline(value, True)]
    is_map = isinstance(value, dict)
    out: "list[str]" = []
    for one in value:
        lines = expanded(value[one] if isinstance(value, dict) else one, unit)
        if is_map:
            lines[0] = f"{_scalar(one, True)}: {lines[0]}"
        lines[-1] += ","
        out += [unit + line for line in lines]
    out[-1] = out[-1][:-1]
    return ["{" if is_map else "[", *out, "}" if is_map else "]"]


def _short(value: object) -> bool:
    if isinstance(value, list) and any(isinstance(one, dict) for one in value):
        return False
    return len(inline(value, False)) <= _WIDTH


def block(value: object, unit: int) -> "list[str] | None":
    """The lines of a YAML block; None: the value is better on one line."""
    if not isinstance(value, (dict, list)) or not value or _short(value):
        return None
    out: "list[str]" = []
    if isinstance(value, list):
        for one in value:
            out += item(one, unit)
        return out
    return entries(value, unit)


def entries(value: "typing.Mapping[str, object]", unit: int,
            spread: bool = False) -> "list[str]":
    """The lines of a YAML map: a key a line. spread: so are the maps in it."""
    out: "list[str]" = []
    for key, one in value.items():
        lines = entries(one, unit) if spread and isinstance(one, dict) and one else (
            block(one, unit))
        name = _scalar(key, False)
        if lines is None:
            out.append(f"{name}: {inline(one, False)}")
        else:
            out += [f"{name}:", *(" " * unit + line for line in lines)]
    return out


def item(value: object, unit: int) -> "list[str]":
    """The lines of an item of a YAML list; a map has a key a line."""
    if not isinstance(value, dict) or not value:
        return [f"- {inline(value, False)}"]
    lines = entries(value, unit)
    return [f"- {lines[0]}", *(f"  {line}" for line in lines[1:])]
