"""What an answer says of itself: usage, finish reason, text, tool calls.

Reads by shape, not by class: objects of the openai and anthropic packages,
or the plain dicts their APIs send. Nothing of either is imported.
"""

from __future__ import annotations

import json
import typing

__all__ = ["answer_of", "choices_of", "finish_word", "is_event", "member",
           "progress_of"]

Facts = typing.Dict[str, typing.Any]

# The APIs' own words for why an answer ended.
_FINISH = {
    "stop": "stop", "end_turn": "stop", "stop_sequence": "stop",
    "completed": "stop", "STOP": "stop",
    "length": "length", "max_tokens": "length", "max_output_tokens": "length",
    "incomplete": "length", "MAX_TOKENS": "length",
    "model_context_window_exceeded": "length",
    "tool_calls": "tool_calls", "tool_use": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter", "SAFETY": "content_filter",
    "RECITATION": "content_filter", "BLOCKLIST": "content_filter",
    "PROHIBITED_CONTENT": "content_filter", "SPII": "content_filter",
    "refusal": "refusal",
    "error": "error", "failed": "error",
    "pause_turn": "pause", "pause": "pause",
}


def finish_word(reason: object) -> "str | None":
    """The engine's word for an API's finish reason; None stays None."""
    if reason is None:
        return None
    return _FINISH.get(str(getattr(reason, "value", reason)), "other")


def member(obj: object, *path: "str | int") -> typing.Any:
    """obj.a[0].b through objects, dicts and lists; None where it ends."""
    at: typing.Any = obj
    for key in path:
        if type(at) is dict:
            at = at.get(key)
        elif isinstance(key, int):
            if not isinstance(at, (list, tuple)) or not -len(at) <= key < len(at):
                return None
            at = at[key]
        else:
            try:
                at = at.get(key) if isinstance(at, dict) else getattr(at, key, None)
            except Exception:  # somebody's property: it tells nothing
                return None
        if at is None:
            return None
    return at


def _items(value: object) -> "typing.Sequence[object]":
    return value if isinstance(value, (list, tuple)) else ()


def _length(value: object) -> int:
    return len(value) if isinstance(value, str) else 0


# What the engine can count of a call's tokens, and of its USD. More was reported
# by mistake, or to do harm, and counts as not reported.
_TOKENS_MAX = 2**32 - 1
_USD_MAX = 2_251_799


def _count(value: object) -> int:
    return value if isinstance(value, int) and 0 < value <= _TOKENS_MAX else 0


def usage_of(obj: object) -> Facts:
    """Tokens a `usage` reports, by the engine's names; {} where there is none."""
    usage = member(obj, "usage")
    if usage is None:
        return {}
    prompt = member(usage, "prompt_tokens")
    output = member(usage, "completion_tokens")
    cached = member(usage, "prompt_tokens_details", "cached_tokens")
    if prompt is None and output is None:  # Responses, Messages
        prompt = member(usage, "input_tokens")
        output = member(usage, "output_tokens")
        cached = member(usage, "input_tokens_details", "cached_tokens")
        if cached is None:
            read = _count(member(usage, "cache_read_input_tokens"))
            made = _count(member(usage, "cache_creation_input_tokens"))
            prompt = _count(_count(prompt) + read + made)
            cached = read
    out: Facts = {"prompt_tokens": _count(prompt),
                  "output_tokens": _count(output),
                  "cached_tokens": _count(cached)}
    cost = member(usage, "cost")
    if type(cost) in (int, float) and 0 < cost <= _USD_MAX:
        out["cost_usd"] = cost
    return out if out["prompt_tokens"] or out["output_tokens"] else {}


def _word(value: object) -> "str | None":
    """An id or a name; some servers number theirs. None: it is none."""
    return value if isinstance(value, str) else str(value) if type(value) is int else None


def _arguments(value: object) -> "str | None":
    """A tool call's arguments as JSON text; some servers give the object itself."""
    if value is None or isinstance(value, str):
        return value
    try:
        return json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        return None


def _call(name: object, arguments: object, ident: object) -> Facts:
    return {"id": _word(ident), "name": _word(name), "arguments": _arguments(arguments)}


def _blocks(content: object) -> "tuple[str | None, list[Facts]]":
    """Text and tool calls of a Messages or Responses content list."""
    texts: "list[str]" = []
    calls: "list[Facts]" = []
    for block in _items(content):
        kind = member(block, "type")
        if kind in ("text", "output_text"):
            texts.append(str(member(block, "text") or ""))
        elif kind == "message":
            text, inner = _blocks(member(block, "content"))
            texts.append(text or "")
            calls += inner
        elif kind in ("tool_use", "function_call"):
            calls.append(_call(
                member(block, "name"), member(block, "input" if kind == "tool_use"
                                          else "arguments"),
                member(block, "id") or member(block, "call_id")))
    return ("".join(texts) if texts else None), calls


def answer_of(result: object) -> Facts:
    """Arguments for Call.success(), as far as the result tells them."""
    if member(result, "choices") == []:
        # No choice is a failed answer, not an answer of no words: its usage
        # would say that the model had run to its end.
        return {"output": ""}
    out = usage_of(result)
    text: "str | None" = None
    calls: "list[Facts]" = []
    reason: object = None
    message = member(result, "choices", 0, "message")
    if message is not None:
        text = member(message, "content")
        reason = member(result, "choices", 0, "finish_reason")
        for one in _items(member(message, "tool_calls")):
            calls.append(_call(member(one, "function", "name"),
                               member(one, "function", "arguments"), member(one, "id")))
        if member(message, "refusal"):
            reason = "refusal"
        if text is None and not calls:
            text = ""  # an answer without content is empty, not unknown
    elif member(result, "content") is not None:  # Messages
        text, calls = _blocks(member(result, "content"))
        reason = member(result, "stop_reason")
        blocks = member(result, "content")
        if isinstance(blocks, list) and all(
                member(block, "type") in ("thinking", "redacted_thinking")
                for block in blocks):
            text = ""  # no block, or only thoughts: an empty answer
    elif member(result, "candidates", 0) is not None:  # generateContent
        for part in _items(member(result, "candidates", 0, "content", "parts")):
            if isinstance(member(part, "text"), str) and not member(part, "thought"):
                text = (text or "") + member(part, "text")
            if member(part, "functionCall") is not None:
                calls.append(_call(member(part, "functionCall", "name"),
                                   member(part, "functionCall", "args") or {},
                                   member(part, "functionCall", "id")))
        reason = member(result, "candidates", 0, "finishReason")
    elif member(result, "output") is not None:  # Responses
        text, calls = _blocks(member(result, "output"))
        reason = (member(result, "incomplete_details", "reason")
                  or ("tool_calls" if calls else member(result, "status")))
    elif isinstance(result, str):
        text = result
    word = finish_word(reason)
    if word is not None:
        out["finish_reason"] = word
    if isinstance(text, str):
        out["output"] = text
    if calls:
        out["tool_calls"] = calls
    return out


def is_event(chunk: object) -> bool:
    """Whether this is an event of a stream in one of the APIs' shapes."""
    return member(chunk, "choices") is not None or isinstance(
        member(chunk, "type"), str)


def choices_of(chunk: object) -> "dict[int, bool]":
    """Of each choice in an event of a chat stream: has it given its reason?

    With n > 1 each choice ends by its own, and the stream with the last.
    """
    found: "dict[int, bool]" = {}
    for choice in _items(member(chunk, "choices")):
        index = member(choice, "index")
        found[index if isinstance(index, int) else 0] = (
            finish_word(member(choice, "finish_reason")) is not None)
    return found


def _choice(choice: object, out: Facts) -> None:
    delta = member(choice, "delta")
    text = member(delta, "content")
    if text and isinstance(text, str):
        out["text"] = out.get("text", "") + text
    thought = member(delta, "reasoning_content") or member(delta, "reasoning")
    if thought:
        out["reasoning"] = out.get("reasoning", 0) + len(str(thought))
    for one in _items(member(delta, "tool_calls")):
        out["tool_args"] = (out.get("tool_args", 0)
                            + _length(member(one, "function", "arguments"))
                            + _length(member(one, "function", "name")))
    word = finish_word(member(choice, "finish_reason"))
    if word is not None:
        out["finish"] = word


def progress_of(chunk: object) -> Facts:
    """What one parsed event of a stream brought.

    Keys: text, reasoning, tool_args (characters of each), lifecycle, finish
    (a word), usage (a dict).
    """
    out: Facts = {}
    choices = member(chunk, "choices")
    kind = member(chunk, "type")
    if choices is not None and kind is None:  # chat completions
        for choice in _items(choices):
            _choice(choice, out)
        usage = usage_of(chunk)
    elif isinstance(kind, str):
        usage = usage_of(chunk) or usage_of(member(chunk, "message")) or usage_of(
            member(chunk, "response"))
        delta = member(chunk, "delta")
        inner = member(delta, "type")
        if kind == "response.output_text.delta":
            out["text"] = str(delta)
        elif inner == "text_delta":
            out["text"] = str(member(delta, "text") or "")
        elif inner in ("thinking_delta", "signature_delta") or (
                kind.startswith("response.reasoning") and kind.endswith(".delta")):
            out["reasoning"] = 1
        elif inner == "input_json_delta":
            out["tool_args"] = _length(member(delta, "partial_json"))
        elif kind == "response.function_call_arguments.delta":
            out["tool_args"] = len(str(delta or ""))
        reason = member(delta, "stop_reason")
        if kind == "response.completed":
            reason = "completed"
        elif kind == "response.incomplete":
            reason = member(chunk, "response", "incomplete_details",
                          "reason") or "incomplete"
        word = finish_word(reason)
        if word is not None:
            out["finish"] = word
    else:
        usage = usage_of(chunk)
    if usage:
        out["usage"] = usage
    if not out:
        out["lifecycle"] = 1
    return out
