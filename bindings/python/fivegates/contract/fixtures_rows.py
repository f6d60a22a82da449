"""Rows of Inspect and of OpenAI evals, mapped to rows of ours.

Both say what is asked and what is right, and leave to a program how an answer
is judged; here the command line says it (--scorer).
"""

from __future__ import annotations

import json
import typing

from fivegates.contract.mapping import FixtureError, Json, Unsupported, named

__all__ = ["mapped"]

# What a row says beside input and the expected answer. Metadata judge nothing;
# the rest changes what is asked.
_LABELS = {"Inspect": ("id", "metadata"), "OpenAI evals": ("id", "metadata")}
_EXPECTED = {"Inspect": "target", "OpenAI evals": "ideal"}
_ROLES = ("system", "developer", "user", "assistant", "tool")
# How a scorer is told what is right, where that is not `value`.
_VALUE_KEYS = {"regex": "pattern"}
_ONE_VALUE = ("regex", "number", "json")
_NO_VALUE = ("json_schema", "tool_calls")


def mapped(kind: str, place: str, row: Json, default: "str | None",
           ) -> "Json | Unsupported":
    """kind: Inspect, or OpenAI evals. default: the scorer. FixtureError."""
    wanted = _EXPECTED[kind]
    for key, value in row.items():
        if key not in (*_LABELS[kind], "input", wanted) and value not in (None, {}, []):
            return Unsupported(f"{kind} {key}")
    if "input" not in row:
        raise FixtureError(f"{place}: a row of {kind} without input")
    if row.get(wanted) in (None, "", []):
        return Unsupported(f"{kind} row without {wanted}")
    messages = _messages(kind, place, row["input"])
    if isinstance(messages, Unsupported):
        return messages
    out = named({"messages": messages}, _expect(kind, place, row[wanted], default),
                place)
    name = row.get("id")
    if isinstance(name, (int, str)) and not isinstance(name, bool) and name != "":
        out["id"] = str(name)
    return out


def _expect(kind: str, place: str, value: object, default: "str | None") -> Json:
    if default is None:
        raise FixtureError(f"{place}: rows of {kind} do not say how an answer is "
                           "judged; add --scorer exact, contains, starts_with, regex, "
                           "number, json or module:function")
    if default in _NO_VALUE:
        raise FixtureError(f"{place}: {default} cannot judge by {_EXPECTED[kind]}; "
                           "add another --scorer, or write rows of your own")
    values: "list[typing.Any]" = value if isinstance(value, list) else [value]
    if not all(isinstance(one, str) for one in values) or (
            default in _ONE_VALUE and len(values) > 1):
        raise FixtureError(f"{place}: {_EXPECTED[kind]} is a text"
                           + (f" where {default} judges" if default in _ONE_VALUE
                              else ", or a list of texts of which one is enough"))
    if default == "json":
        try:
            return {"scorer": default, "value": json.loads(values[0])}
        except (ValueError, RecursionError):
            raise FixtureError(f"{place}: {_EXPECTED[kind]} is not JSON") from None
    return {"scorer": default, _VALUE_KEYS.get(default, "value"):
            values if len(values) > 1 else values[0]}


def _messages(kind: str, place: str, given: object) -> "list[Json] | Unsupported":
    if isinstance(given, str) and given:
        return [{"role": "user", "content": given}]
    if not isinstance(given, list) or not given:
        raise FixtureError(f"{place}: input is a text, or a list of messages")
    out: "list[Json]" = []
    for one in given:
        message = _message(kind, place, one)
        if isinstance(message, Unsupported):
            return message
        out.append(message)
    return out


def _message(kind: str, place: str, one: object) -> "Json | Unsupported":
    if not isinstance(one, dict) or one.get("role") not in _ROLES:
        raise FixtureError(f"{place}: a message of input is an object with a role: "
                           f"{', '.join(_ROLES)}")
    content = one.get("content")
    if isinstance(content, list):
        content = _parts(kind, content)
        if isinstance(content, Unsupported):
            return content
    elif not isinstance(content, str) and not one.get("tool_calls"):
        raise FixtureError(f"{place}: the content of a message is a text or a list")
    out: Json = {"role": one["role"], "content": content}
    if one.get("name"):
        out["name"] = one["name"]
    if one.get("tool_call_id"):
        out["tool_call_id"] = one["tool_call_id"]
    calls = one.get("tool_calls")
    if calls:
        if not isinstance(calls, list):
            return Unsupported(f"{kind} tool_calls")
        made = [_call(call) for call in calls if isinstance(call, dict)]
        if len(made) != len(calls) or None in made:
            return Unsupported(f"{kind} tool_calls")
        out["tool_calls"] = made
    for key, value in one.items():  # ids, sources and models label a message
        if key not in (*out, "tool_calls", "id", "source", "model", "function",
                       "metadata") and value is not None:
            return Unsupported(f"{kind} message {key}")
    return out


def _parts(kind: str, parts: "list[typing.Any]") -> "list[Json] | Unsupported":
    out: "list[Json]" = []
    for part in parts:
        word = part.get("type") if isinstance(part, dict) else None
        if word == "text" and isinstance(part.get("text"), str):
            out.append({"type": "text", "text": part["text"]})
        elif word == "image_url":  # a chat request's own
            out.append(part)
        elif word == "image" and str(part.get("image")).startswith(
                ("http://", "https://", "data:")):
            out.append({"type": "image_url", "image_url": {"url": part["image"]}})
        else:
            return Unsupported(f"{kind} content {word}")
    return out


def _call(call: Json) -> "Json | None":
    """A tool call of an earlier turn, in chat form; None: it is none."""
    if isinstance(call.get("function"), dict):
        return call
    if not isinstance(call.get("function"), str) or not isinstance(
            call.get("arguments"), dict):
        return None
    return {"id": str(call.get("id")), "type": "function", "function": {
        "name": call["function"], "arguments": json.dumps(call["arguments"])}}
