"""The edits an engine asks for, made to a request as its API takes them.

One API refuses what another ignores: a tool choice without tools, a limit not
above the thinking budget, a history of tool calls whose tools are gone. Where
an edit cannot be made so that the API takes it, there is none.

The gateway makes the same edits (bindings/lua, fivegates/resty/edits.lua);
tests/rewrites has the cases that both must pass.
"""

from __future__ import annotations

import typing

from fivegates.compact import compact

__all__ = ["Compact", "Drops", "api_of", "changes_of", "edit"]

if typing.TYPE_CHECKING:
    from fivegates._core import Decision

Json = typing.Dict[str, typing.Any]
Drops = typing.Callable[[str], bool]
Compact = typing.Callable[[Json, int], "Json | None"]

_LIMITS = ("max_completion_tokens", "max_output_tokens", "max_tokens")
_RESPONSES_LEAST = 16  # max_output_tokens below it is refused
_BUDGET_LEAST = 1024  # thinking.budget_tokens below it is refused
# What every model that reasons takes: not all have "minimal" or "none".
_EFFORT = "low"
_EFFORTS_BELOW = ("none", "minimal", "low")
# The least of Gemini's budgets that every model with budgets takes.
_GEMINI_BUDGET = 512
_THOUGHTS = ("thinking", "redacted_thinking")
# Reasons of a decision that say: this model does not take the parameter.
_UNSUPPORTED = ("unsupported", "does_not_fit_features", "does_not_fit_tools")


def changes_of(decision: "Decision") -> "dict[str, typing.Any]":
    """The edits of a decision, for edit().

    max_tokens and compact have their numbers. no_thinking is "refused" where
    the model takes no such parameter, else "less": it takes too much time or
    money. drop_tools is "all" for the ladder's without_tools, else "some".
    """
    values: "dict[str, typing.Any]" = {
        "max_tokens": decision.max_tokens, "compact": decision.compact_tokens,
        "drop_tools": ("all" if decision.ladder_step == "without_tools"
                       else "some"),
        "no_thinking": ("refused" if {decision.reason, decision.detail}
                        .intersection(_UNSUPPORTED) else "less")}
    return {name: values.get(name, True) for name in decision.change}


def api_of(request: Json, api: "str | None", provider: "str | None") -> str:
    """The API a request is in, where the card's route does not say."""
    if api in ("chat", "responses", "messages", "generateContent"):
        return api
    if "contents" in request:
        return "generateContent"
    if "input" in request:
        return "responses"
    return ("messages" if provider == "anthropic" or "system" in request
            else "chat")


def edit(request: Json, changes: "dict[str, typing.Any]", drops: Drops,
         api: str = "chat", provider: "str | None" = None,
         shorten: Compact = compact) -> "Json | None":
    """A copy of a request with the changes of changes_of().

    None: one of them cannot be made so that the API takes it; send nothing.
    drops(name) tells which tools are taken out. shorten(request, tokens) is
    what compact does.
    """
    whole = dict(request)
    if changes.get("compact"):
        shorter = shorten(request, changes["compact"])
        if shorter is None or shorter == request:
            return None  # the request that was too long, once more
        whole = dict(shorter)
    out: "Json | None" = whole
    if changes.get("drop_tools"):
        out = (_gemini_tools(whole, drops) if api == "generateContent" else
               _drop_tools(whole, drops, changes["drop_tools"] == "all", api))
    if out is not None and changes.get("no_thinking"):
        refused = changes["no_thinking"] == "refused"
        if api == "messages":
            out = _claude_thinks_not(out)
        elif api == "generateContent":
            out = _gemini_thinks_less(out, refused)
        else:
            out = _thinks_less(out, refused)
    if out is not None and changes.get("max_tokens"):
        out = _limited(out, changes["max_tokens"], api, provider)
    return out


# ---- the output limit


def _limited(out: Json, limit: int, api: str,
             provider: "str | None") -> "Json | None":
    if api == "generateContent":
        out["generationConfig"] = {**(out.get("generationConfig") or {}),
                                   "maxOutputTokens": limit}
        return out
    if api == "responses":
        limit = max(limit, _RESPONSES_LEAST)
    usual = {"responses": "max_output_tokens", "messages": "max_tokens"}.get(
        # OpenAI's models that reason refuse max_tokens; others know no other.
        api, "max_completion_tokens" if provider in ("openai", "azure-openai")
        else "max_tokens")
    for one in [name for name in _LIMITS if name in out] or [usual]:
        out[one] = limit
    thinking = out.get("thinking")
    if api != "messages" or not isinstance(thinking, dict):
        return out
    budget = thinking.get("budget_tokens")
    if not isinstance(budget, int) or budget < limit:
        return out
    if limit <= _BUDGET_LEAST:  # no budget is below it
        return _claude_thinks_not(out)
    out["thinking"] = {**thinking, "budget_tokens": max(_BUDGET_LEAST,
                                                        limit // 2)}
    return out


# ---- thinking


def _thinks_less(out: Json, refused: bool) -> Json:
    """OpenAI's APIs. Without the parameter a model that reasons does so by its
    default, which is more than "low"."""
    reasoning = out.get("reasoning")
    if refused:
        for name in ("thinking", "reasoning", "reasoning_effort"):
            out.pop(name, None)
        include = out.get("include")
        if isinstance(include, (list, tuple)):
            out["include"] = [one for one in include
                              if one != "reasoning.encrypted_content"]
        return out
    if out.get("reasoning_effort") and (
            out["reasoning_effort"] not in _EFFORTS_BELOW):
        out["reasoning_effort"] = _EFFORT
    if isinstance(reasoning, dict) and (
            reasoning.get("effort") not in _EFFORTS_BELOW):
        out["reasoning"] = {**{name: value for name, value in reasoning.items()
                               if name != "max_tokens"}, "effort": _EFFORT}
    if isinstance(out.get("thinking"), dict):  # DeepSeek's and others'
        out["thinking"] = {"type": "disabled"}
    return out


def _claude_thinks_not(out: Json) -> "Json | None":
    """Without thinking neither old thoughts nor rules for them are taken."""
    out.pop("thinking", None)
    management = out.get("context_management")
    if isinstance(management, dict) and isinstance(management.get("edits"), list):
        left = [one for one in management["edits"]
                if not str(_get(one, "type")).startswith("clear_thinking")]
        out["context_management"] = {**management, "edits": left}
        if not left:
            out.pop("context_management")
    if isinstance(out.get("messages"), (list, tuple)):
        turns = []
        for turn in out["messages"]:
            content = _get(turn, "content")
            if isinstance(content, (list, tuple)) and any(
                    _get(one, "type") in _THOUGHTS for one in content):
                said = [one for one in content
                        if _get(one, "type") not in _THOUGHTS]
                if not said:
                    return None  # nothing would be left of the turn
                kept = turn if isinstance(turn, dict) else {"role": "assistant"}
                turn = {**kept, "content": said}
            turns.append(turn)
        out["messages"] = turns
    return out


def _gemini_thinks_less(out: Json, refused: bool) -> Json:
    config = dict(out.get("generationConfig") or {})
    thinking = config.pop("thinkingConfig", None)
    if isinstance(thinking, dict) and not refused:
        less = {name: value for name, value in thinking.items()
                if name != "includeThoughts"}
        budget = less.get("thinkingBudget")
        if isinstance(budget, int) and not 0 <= budget <= _GEMINI_BUDGET:
            less["thinkingBudget"] = _GEMINI_BUDGET
        if str(less.get("thinkingLevel", _EFFORT)).lower() not in _EFFORTS_BELOW:
            less["thinkingLevel"] = _EFFORT
        config["thinkingConfig"] = less
    if config or "generationConfig" in out:
        out["generationConfig"] = config
    return out


# ---- tools


def _get(value: typing.Any, name: str) -> typing.Any:
    """A member of an object, or of an SDK's own kind of one."""
    return (value.get(name) if isinstance(value, dict)
            else getattr(value, name, None))


def _name(tool: object) -> str:
    """A tool's name in any of the APIs; "" for one that has none."""
    inner = _get(tool, "function")
    return str(_get(tool if inner is None else inner, "name") or "")


def _choice(choice: typing.Any, drops: Drops) -> typing.Any:
    """A tool choice without the tools that are taken out; None: no choice."""
    if not isinstance(choice, dict):
        return choice
    inner = choice.get("allowed_tools")
    allowed = inner if isinstance(inner, dict) else choice
    if allowed.get("tools") and isinstance(allowed["tools"], list):
        # None but these may be called.
        left = [one for one in allowed["tools"] if not drops(_name(one))]
        if not left:
            return "none"
        return ({**choice, "allowed_tools": {**allowed, "tools": left}}
                if allowed is inner else {**choice, "tools": left})
    name = _name(choice)
    return None if name and drops(name) else choice


def _has_tool_history(out: Json) -> bool:
    """Whether messages tell of calls of tools."""
    for turn in out.get("messages") or ():
        content = _get(turn, "content")
        for part in content if isinstance(content, (list, tuple)) else ():
            if str(_get(part, "type")).endswith(("tool_use", "tool_result")):
                return True
    return False


def _drop_tools(out: Json, drops: Drops, every: bool,
                api: str) -> "Json | None":
    for name, choice in (("tools", "tool_choice"),
                         ("functions", "function_call")):
        tools = out.get(name)
        if not tools or not isinstance(tools, (list, tuple)):
            continue
        left = [one for one in tools if not drops(_name(one))]
        if not left and api == "messages" and _has_tool_history(out):
            if every:
                return None  # such a history is refused without tools
            out[choice] = {"type": "none"}
            continue
        if left:
            out[name] = left
            chosen = _choice(out.get(choice), drops)
        else:
            out.pop(name)
            chosen = None
            for other in ("parallel_tool_calls", "max_tool_calls",
                          "mcp_servers"):
                out.pop(other, None)
        if chosen is None:
            out.pop(choice, None)
        else:
            out[choice] = chosen
    return out


def _gemini_tools(out: Json, drops: Drops) -> Json:
    """Tools in lists, and the names that may be called elsewhere."""
    if not isinstance(out.get("tools"), (list, tuple)):
        return out
    kept = []
    for one in out.pop("tools"):
        named = one.get("functionDeclarations")
        left = [f for f in named or () if not drops(str(f.get("name")))]
        if left or (named is None and not drops("")):
            kept.append({**one, "functionDeclarations": left} if left else one)
    if not kept:
        out.pop("toolConfig", None)
        return out
    out["tools"] = kept
    config: Json = out.get("toolConfig") or {}
    calling: Json = config.get("functionCallingConfig") or {}
    if isinstance(calling.get("allowedFunctionNames"), list):
        allowed = [name for name in calling["allowedFunctionNames"]
                   if not drops(str(name))]
        out["toolConfig"] = {**config, "functionCallingConfig": {
            **calling, "allowedFunctionNames": allowed} if allowed
            else {"mode": "NONE"}}
    return out
