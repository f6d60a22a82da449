"""What a request asks for, read from the bodies of three APIs.

    chat       OpenAI chat completions       .../chat/completions
    responses  OpenAI responses              .../responses
    messages   Anthropic messages            .../messages
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import typing

__all__ = ["APIS", "Asked", "Tool", "api_of", "read_asked"]

Json = typing.Dict[str, typing.Any]
Api = typing.Literal["chat", "responses", "messages"]
APIS: "dict[str, Api]" = {"/chat/completions": "chat",
                          "/responses": "responses", "/messages": "messages"}

# Letters of English to a token, the rule of thumb of the providers' own pages.
_LETTERS_PER_TOKEN = 4
# Names that differ between two sendings of one conversation and mean nothing.
_PASSING = frozenset(("id", "tool_call_id", "call_id", "tool_use_id"))
# What a tool answered may differ too: the user's question is the same.
_RESULTS = ("tool_result", "function_call_output")


class Tool(typing.NamedTuple):
    """A tool the request offers, and the JSON Schema of its arguments."""

    name: str
    schema: Json


@dataclasses.dataclass(frozen=True)
class Asked:
    """A request, in words that are the same for all APIs."""

    api: Api
    body: Json
    stream: bool
    model: str
    max_tokens: "int | None"
    prompt_tokens: int
    key: str  # the same for all sendings of one conversation
    tools: "tuple[Tool, ...]"  # those that may be called now
    results: "tuple[str, ...]"  # ids of the calls whose results it brings
    after_tool: bool  # the last thing said is a tool's result
    wants_usage: bool  # of a chat stream


def api_of(path: str) -> "Api | None":
    """The API of a path, whatever stands before it."""
    plain = path.partition("?")[0].rstrip("/")
    return next((api for end, api in APIS.items() if plain.endswith(end)), None)


def _list(value: typing.Any) -> "list[Json]":
    """The objects of a list; of anything else, none."""
    return [one for one in value if isinstance(one, dict)] if isinstance(
        value, list) else []


def _bare(value: typing.Any) -> typing.Any:
    """A conversation without what changes when it is sent again."""
    if isinstance(value, list):
        return [_bare(one) for one in value]
    if not isinstance(value, dict):
        return value
    if value.get("role") == "tool" or value.get("type") in _RESULTS:
        return "result"
    return {key: _bare(one) for key, one in value.items() if key not in _PASSING}


def _said(api: Api, body: Json) -> "list[Json]":
    """The conversation's parts, in order."""
    if api == "responses":
        return _list(body.get("input"))
    return _list(body.get("messages"))


def _results(api: Api, said: "list[Json]") -> "tuple[list[str], bool]":
    """Ids of the tool results, and whether the last part is one."""
    ids: "list[str]" = []
    last = False
    for part in said:
        blocks = [part]
        if api == "messages":
            blocks = _list(part.get("content"))
        found = [str(one.get("tool_call_id") or one.get("call_id")
                     or one.get("tool_use_id")) for one in blocks
                 if one.get("role") == "tool" or one.get("type") in _RESULTS]
        ids += found
        last = bool(found)
    return ids, last


def _tools(api: Api, body: Json) -> "list[Tool]":
    out = []
    choice = body.get("tool_choice")
    wanted = ""
    if isinstance(choice, dict):
        inner = choice.get("function")
        wanted = str((inner if isinstance(inner, dict) else choice).get("name", ""))
        choice = choice.get("type")
    if choice == "none":
        return []
    for one in _list(body.get("tools")):
        inner = one.get("function") if api == "chat" else one
        if isinstance(inner, dict) and isinstance(inner.get("name"), str):
            schema = inner.get("input_schema" if api == "messages" else "parameters")
            out.append(Tool(inner["name"], schema if isinstance(schema, dict) else {}))
    return [one for one in out if one.name == wanted] or out


def read_asked(api: Api, body: Json) -> Asked:
    """Reads a request's body. Nothing in it is an error here: what is missing
    counts as not asked for."""
    words = {name: body[name] for name in (
        "messages", "input", "system", "instructions", "previous_response_id")
        if name in body}
    said = _said(api, body)
    results, after_tool = _results(api, said)
    text = json.dumps(_bare(words), sort_keys=True)
    most = next((body[name] for name in (
        "max_tokens", "max_completion_tokens", "max_output_tokens")
        if isinstance(body.get(name), int)), None)
    options = body.get("stream_options")
    return Asked(
        api=api, body=body, stream=body.get("stream") is True,
        model=str(body.get("model") or "model"),
        max_tokens=max(1, most) if most is not None else None,
        prompt_tokens=max(1, len(json.dumps(words)) // _LETTERS_PER_TOKEN),
        key=hashlib.sha256(text.encode()).hexdigest()[:16],
        tools=tuple(_tools(api, body)), results=tuple(results),
        after_tool=after_tool, wants_usage=isinstance(options, dict)
        and options.get("include_usage") is True)
