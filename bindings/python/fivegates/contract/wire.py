"""A chat request as each API takes it, and its streamed answer as a whole one."""

from __future__ import annotations

import json
import typing

__all__ = ["CannotSay", "LIMITS", "WIRES", "assembled", "body_of", "output_limit"]

Json = typing.Dict[str, typing.Any]
Wire = typing.Literal["chat", "messages"]
WIRES: "tuple[Wire, ...]" = ("chat", "messages")

LIMITS = ("max_completion_tokens", "max_tokens")
# Of a chat request, what messages calls by the same name.
_SAME = ("temperature", "top_p", "top_k", "metadata", "service_tier", "thinking")


class CannotSay(ValueError):
    """A part of a chat request that the other API has no words for."""


def output_limit(request: Json) -> "int | None":
    """The output limit a chat request states, in tokens; the larger where it states
    two, as a server may know only one of them."""
    return max((request[name] for name in LIMITS if request.get(name)), default=None)


def body_of(wire: Wire, request: Json, model: str, max_tokens: "int | None") -> Json:
    """The body to send, streamed. max_tokens: where the request states no limit.
    Raises CannotSay."""
    if wire == "messages":
        try:
            return _messages_body(request, model, max_tokens)
        except (AttributeError, KeyError, TypeError):
            raise CannotSay("a part of it that is not what a chat request has there has "
                            "no form in messages") from None
    return {**request, "model": model, "stream": True,
            "stream_options": {"include_usage": True}}


# ---- chat to messages


def _messages_body(request: Json, model: str, max_tokens: "int | None") -> Json:
    limit = output_limit(request) or max_tokens
    if limit is None:
        raise CannotSay("Anthropic's messages API needs an output limit; state max_tokens in the "
                        "request, or output.max_tokens in what the route provides")
    system: "list[str]" = []
    turns: "list[Json]" = []
    for message in request["messages"]:
        if message["role"] in ("system", "developer"):
            system.append(_plain(message.get("content")))
        else:
            role, blocks = _turn(message)
            if turns and turns[-1]["role"] == role:  # results of parallel calls
                turns[-1]["content"] += blocks
            else:
                turns.append({"role": role, "content": blocks})
    out: Json = {"model": model, "max_tokens": limit, "messages": turns, "stream": True}
    if system:
        out["system"] = "\n\n".join(system)
    for key, value in request.items():
        if key in _SAME:
            out[key] = value
        elif key == "stop":
            out["stop_sequences"] = [value] if isinstance(value, str) else value
        elif key == "tools":
            out["tools"] = [_tool(one) for one in value]
        elif key == "tool_choice":
            out["tool_choice"] = _choice(value)
        elif key == "parallel_tool_calls":
            pass  # below: it is part of tool_choice there
        elif key not in ("messages", *LIMITS):
            raise CannotSay(f"{key} has no form in messages")
    if request.get("parallel_tool_calls") is False:
        out["tool_choice"] = {**out.get("tool_choice", {"type": "auto"}),
                              "disable_parallel_tool_use": True}
    return out


def _plain(content: object) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    if not all(isinstance(one, dict) and one.get("type") == "text" for one in parts):
        raise CannotSay("a system message that is no text has no form in messages")
    return "".join(one["text"] for one in parts)


def _turn(message: Json) -> "tuple[str, list[Json]]":
    role, content = message["role"], message.get("content")
    if role == "tool":
        return "user", [{"type": "tool_result", "content": _plain(content),
                         "tool_use_id": message.get("tool_call_id")}]
    if role not in ("user", "assistant"):
        raise CannotSay(f"the role {role} has no form in messages")
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else (
        content or [])
    blocks = [_part(one) for one in parts if one != {"type": "text", "text": ""}]
    for call in message.get("tool_calls") or ():
        inner: typing.Any = call.get("function") if isinstance(call, dict) else None
        try:
            blocks.append({"type": "tool_use", "id": call["id"], "name": inner["name"],
                           "input": json.loads(inner["arguments"] or "{}")})
        except (KeyError, TypeError, ValueError):
            raise CannotSay("a tool call of an earlier turn that is no function call "
                            "has no form in messages") from None
    return role, blocks


def _part(part: object) -> Json:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind == "text":
        return typing.cast(Json, part)
    if isinstance(part, dict) and kind == "image_url":
        url = str((part.get("image_url") or {}).get("url"))
        head, mark, data = url.partition(";base64,")
        if mark and head.startswith("data:"):
            return {"type": "image", "source": {
                "type": "base64", "media_type": head[5:], "data": data}}
        if url.startswith(("https://", "http://")):
            return {"type": "image", "source": {"type": "url", "url": url}}
    raise CannotSay(f"a part of a message of type {kind} has no form in messages")


def _tool(tool: object) -> Json:
    inner = tool.get("function") if isinstance(tool, dict) else None
    if not isinstance(inner, dict) or not isinstance(inner.get("name"), str):
        raise CannotSay("a tool that is no function has no form in messages")
    out = {"name": inner["name"], "input_schema": inner.get("parameters") or {
        "type": "object", "properties": {}}}
    if inner.get("description"):
        out["description"] = inner["description"]
    return out


def _choice(choice: object) -> Json:
    words = {"auto": "auto", "required": "any", "none": "none"}
    if isinstance(choice, str) and choice in words:
        return {"type": words[choice]}
    inner = choice.get("function") if isinstance(choice, dict) else None
    if isinstance(inner, dict) and isinstance(inner.get("name"), str):
        return {"type": "tool", "name": inner["name"]}
    raise CannotSay("this tool_choice has no form in messages")


# ---- streams to whole answers


def assembled(wire: Wire, raw: bytes) -> Json:
    """A whole answer of the events of a stream that has ended well. ValueError:
    an event is none."""
    events = list(_events(raw))
    return _chat_answer(events) if wire == "chat" else _messages_answer(events)


def _events(raw: bytes) -> "typing.Iterator[Json]":
    # Lines of SSE end with CR, LF or both, and with nothing else that a text
    # may hold, such as U+2028.
    data: "list[bytes]" = []
    for line in [*raw.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n"), b""]:
        if line.startswith(b"data:"):
            data.append(line[5:].removeprefix(b" "))
        elif not line and data:
            text, data = b"\n".join(data), []
            if text.strip() != b"[DONE]":
                event = json.loads(text)
                if isinstance(event, dict):
                    yield event


def _chat_answer(events: "list[Json]") -> Json:
    texts: "list[str]" = []
    refusals: "list[str]" = []
    calls: "dict[int, Json]" = {}
    out: Json = {}
    finish: object = None
    for event in events:
        if event.get("usage"):
            out["usage"] = event["usage"]
        for choice in event.get("choices") or ():
            delta = choice.get("delta") or {}
            texts.append(delta.get("content") or "")
            refusals.append(delta.get("refusal") or "")
            for one in delta.get("tool_calls") or ():
                call = calls.setdefault(one.get("index", len(calls)), {
                    "id": None, "function": {"name": "", "arguments": ""}})
                call["id"] = one.get("id") or call["id"]
                inner = one.get("function") or {}
                for key in ("name", "arguments"):
                    call["function"][key] += inner.get(key) or ""
            finish = choice.get("finish_reason") or finish
    out["choices"] = [{"finish_reason": finish, "message": {
        "content": "".join(texts), "refusal": "".join(refusals) or None,
        "tool_calls": [calls[index] for index in sorted(calls)]}}]
    return out


def _messages_answer(events: "list[Json]") -> Json:
    blocks: "dict[int, Json]" = {}
    usage: Json = {}
    reason: object = None
    for event in events:
        kind, index = event.get("type"), event.get("index", 0)
        if kind == "message_start":
            usage.update((event.get("message") or {}).get("usage") or {})
            usage.pop("output_tokens", None)  # of a beginning: not the count yet
        elif kind == "content_block_start":
            blocks[index] = dict(event.get("content_block") or {})
            if blocks[index].get("type") == "tool_use":
                blocks[index]["input"] = ""
        elif kind == "content_block_delta" and index in blocks:
            delta = event.get("delta") or {}
            if delta.get("type") == "text_delta":
                blocks[index]["text"] = (blocks[index].get("text") or "") + delta["text"]
            elif delta.get("type") == "input_json_delta":
                blocks[index]["input"] += delta.get("partial_json") or ""
        elif kind == "message_delta":
            reason = (event.get("delta") or {}).get("stop_reason") or reason
            usage.update({key: value for key, value in (event.get("usage") or {}).items()
                          if value is not None})
    for block in blocks.values():
        if block.get("type") == "tool_use":
            block["input"] = block["input"] or "{}"
    return {"content": [blocks[index] for index in sorted(blocks)],
            "stop_reason": reason, "usage": usage}
