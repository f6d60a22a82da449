"""The edits an engine asks for, made to a request.

The same names serve a body of JSON and the keyword arguments of an SDK: chat
completions, responses and messages. What a provider calls otherwise is edited
by its own transport.
"""

from __future__ import annotations

import typing

__all__ = ["edit"]

Json = typing.Dict[str, typing.Any]
_LIMITS = ("max_completion_tokens", "max_output_tokens", "max_tokens")
_THINKING = ("thinking", "reasoning", "reasoning_effort")


def _name(tool: object) -> str:
    """A tool's name in any of the APIs; "" for one that has none."""
    if not isinstance(tool, dict):
        return ""
    inner = tool.get("function")
    return str((inner if isinstance(inner, dict) else tool).get("name") or "")


def _drop_tools(request: Json, drops: "typing.Callable[[str], bool]") -> None:
    tools = request.get("tools")
    if not isinstance(tools, (list, tuple)):
        return
    left = [one for one in tools if not drops(_name(one))]
    if left:
        request["tools"] = left
    choice = request.get("tool_choice")
    if not left or (isinstance(choice, dict) and drops(_name(choice))):
        request.pop("tool_choice", None)
    if not left:
        request.pop("tools")
        request.pop("parallel_tool_calls", None)


def edit(request: Json, changes: "dict[str, typing.Any]",
         drops: "typing.Callable[[str], bool]", limit_name: str = "max_tokens",
         ) -> Json:
    """A copy of a request with max_tokens, tools and thinking as asked.

    drops(name) tells which tools are taken out; limit_name is the API's name
    of the output limit, used where the request states none.
    """
    out = dict(request)
    limit = changes.get("max_tokens")
    if limit:
        for one in [n for n in _LIMITS if n in out] or [limit_name]:
            out[one] = limit
    if changes.get("drop_tools"):
        _drop_tools(out, drops)
    if changes.get("no_thinking"):
        for one in _THINKING:
            out.pop(one, None)
    return out
