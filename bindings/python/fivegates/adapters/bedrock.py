"""What Bedrock's requests, answers and events say, by the engine's names."""

from __future__ import annotations

import json
import typing

from fivegates.stream import StreamWatcher

if typing.TYPE_CHECKING:
    from fivegates.attempt import Attempt

__all__ = ["Observer", "converse_answer", "facts_of"]

Json = typing.Dict[str, typing.Any]

# Bedrock's own words for why an answer ended, as other APIs say it.
_STOP = {"guardrail_intervened": "content_filter",
         "content_filtered": "content_filter",
         "malformed_tool_use": "error", "malformed_model_output": "error"}
_BLOCKS = {"image": "image", "document": "file", "video": "video",
           "audio": "audio", "toolResult": "tool_round_trip"}
_LIMITS = ("max_tokens", "max_tokens_to_sample", "max_gen_len", "maxTokens")
# An estimate, as the real count comes with the answer.
_BYTES_PER_TOKEN = 4
_LONG_STRING = 2000
_ATTACHMENT_TOKENS = 1000


def facts_of(operation: str, body: Json, size: int) -> Json:
    """Arguments of Engine.begin(), as far as a request's body tells them."""
    out: Json = {"stream": operation.endswith("Stream"), "request_bytes": size,
                 "prompt_tokens": max(1, _tokens(body))}
    config = body.get("inferenceConfig") or body.get(
        "textGenerationConfig") or body
    limits = [config.get(name) for name in _LIMITS]
    limits.append(config.get("maxTokenCount"))
    most = max((n for n in limits if isinstance(n, int)), default=0)
    if most > 0:
        out["max_output_tokens"] = most
    features = {"system_prompt"} if body.get("system") else set()
    tools = [one["toolSpec"] for one in (body.get("toolConfig") or {}).get(
        "tools", ()) if "toolSpec" in one] or body.get("tools") or []
    if tools:
        features.add("tools")
        out["tools"] = [str(one.get("name")) for one in tools]
    for turn in body.get("messages") or ():
        blocks = turn.get("content")
        for block in blocks if isinstance(blocks, list) else ():
            features.update(_BLOCKS[name] for name in block if name in _BLOCKS)
            if block.get("type") == "image":
                features.add("image")
            if block.get("type") == "tool_result":
                features.add("tool_round_trip")
    extra = body.get("additionalModelRequestFields") or body
    if isinstance(extra, dict) and (extra.get("thinking")
                                    or extra.get("reasoning_config")):
        features.add("reasoning")
    if features:
        out["features"] = sorted(features)
    return out


def _tokens(value: object) -> int:
    if isinstance(value, dict):
        return sum(_tokens(one) + len(name) // _BYTES_PER_TOKEN
                   for name, one in value.items())
    if isinstance(value, list):
        return sum(map(_tokens, value))
    if isinstance(value, str):
        if len(value) > _LONG_STRING and " " not in value[:200]:
            return _ATTACHMENT_TOKENS
        return len(value.encode()) // _BYTES_PER_TOKEN + 1
    return 1


def _usage(usage: Json) -> Json:
    read = usage.get("cacheReadInputTokens") or 0
    made = usage.get("cacheWriteInputTokens") or 0
    return {"prompt_tokens": (usage.get("inputTokens") or 0) + read + made,
            "output_tokens": usage.get("outputTokens") or 0,
            "cached_tokens": read}


def converse_answer(parsed: Json) -> Json:
    """A Converse answer in a form fivegates.answers knows."""
    message = (parsed.get("output") or {}).get("message") or {}
    content: "list[Json]" = []
    for block in message.get("content") or ():
        if "text" in block:
            content.append({"type": "text", "text": block["text"]})
        elif "toolUse" in block:
            use = block["toolUse"]
            content.append({"type": "tool_use", "id": use.get("toolUseId"),
                            "name": use.get("name"), "input": use.get("input")})
    if not content:
        content.append({"type": "text", "text": ""})  # empty, not unknown
    reason, usage = parsed.get("stopReason"), parsed.get("usage") or {}
    return {"content": content, "stop_reason": _STOP.get(str(reason), reason),
            "usage": {"input_tokens": usage.get("inputTokens"),
                      "output_tokens": usage.get("outputTokens"),
                      "cache_read_input_tokens": usage.get("cacheReadInputTokens"),
                      "cache_creation_input_tokens": usage.get(
                          "cacheWriteInputTokens")}}


class Observer:
    """Reports the parsed events of ConverseStream, or of an InvokeModel
    stream, whose chunks are each model's own JSON."""

    def __init__(self, attempt: "Attempt") -> None:
        self._attempt = attempt
        self._chunks = StreamWatcher(attempt)

    def hear(self, event: Json) -> None:
        """Reports one event."""
        attempt = self._attempt
        delta = (event.get("contentBlockDelta") or {}).get("delta") or {}
        start = (event.get("contentBlockStart") or {}).get("start") or {}
        if delta.get("text"):
            attempt.token(max(1, len(delta["text"]) // 4))
        elif delta.get("toolUse"):
            attempt.tool_args(len(delta["toolUse"].get("input") or ""))
        elif start.get("toolUse"):
            attempt.tool_args(len(start["toolUse"].get("name") or ""))
        elif delta.get("reasoningContent"):
            attempt.reasoning()
        elif "messageStop" in event:
            reason = event["messageStop"].get("stopReason")
            attempt.terminal(_STOP.get(str(reason), reason))
        elif "metadata" in event:
            attempt.usage(final=True,
                          **_usage(event["metadata"].get("usage") or {}))
        elif "chunk" in event:
            self._chunk(event["chunk"].get("bytes") or b"{}")
        else:
            attempt.lifecycle()

    def _chunk(self, raw: bytes) -> None:
        attempt = self._attempt
        self._chunks.feed(b"data: " + raw + b"\n\n")
        if attempt.finish is not None or b"invocationMetrics" not in raw:
            return
        metrics = json.loads(raw).get("amazon-bedrock-invocationMetrics")
        if metrics:  # ends every stream, also where the model gives no reason
            attempt.usage(final=True,
                          prompt_tokens=metrics.get("inputTokenCount"),
                          output_tokens=metrics.get("outputTokenCount"))
            attempt.terminal("stop")
