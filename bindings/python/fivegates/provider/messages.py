"""The form of Anthropic's messages."""

from __future__ import annotations

import json
import typing

from fivegates.provider.answers import Answer
from fivegates.provider.asked import Asked
from fivegates.provider.shape import event

__all__ = ["Messages"]

Json = typing.Dict[str, typing.Any]
_REASONS = {"stop": "end_turn", "tool": "tool_use", "length": "max_tokens",
            "filter": "refusal"}


def _named(value: Json) -> bytes:
    return event(value, value["type"])


class Messages:
    """One message; see Shape."""

    def __init__(self, asked: Asked, answer: Answer) -> None:
        self.asked = asked
        self.answer = answer

    @property
    def _reason(self) -> str:
        return "refusal" if self.answer.refusal else _REASONS[self.answer.finish]

    def _message(self, content: "list[Json]", reason: "str | None",
                 output: int) -> Json:
        return {"id": f"msg_{self.answer.id}", "type": "message",
                "role": "assistant", "model": self.answer.model,
                "content": content, "stop_reason": reason,
                "stop_sequence": None, "usage": {
                    "input_tokens": self.answer.prompt_tokens,
                    "output_tokens": output}}

    def _block(self, text: "str | None") -> Json:
        answer = self.answer
        if not answer.tool:
            return {"type": "text", "text": text or ""}
        try:
            given = json.loads(text or "{}")
        except ValueError:  # the arguments were cut: this API has no text of them
            given = {}
        return {"type": "tool_use", "id": answer.call_id, "name": answer.tool,
                "input": given}

    def whole(self, output: int) -> Json:
        return self._message([self._block(self.answer.text())], self._reason,
                             output)

    def begin(self) -> "list[bytes]":
        return [_named({"type": "message_start",
                        "message": self._message([], None, 1)}),
                _named({"type": "content_block_start", "index": 0,
                        "content_block": self._block(None)})]

    def piece(self, text: str) -> bytes:
        delta = ({"type": "input_json_delta", "partial_json": text}
                 if self.answer.tool else {"type": "text_delta", "text": text})
        return _named({"type": "content_block_delta", "index": 0,
                       "delta": delta})

    def end(self, output: int) -> "list[bytes]":
        return [_named({"type": "content_block_stop", "index": 0}),
                _named({"type": "message_delta", "delta": {
                    "stop_reason": self._reason, "stop_sequence": None},
                    "usage": {"output_tokens": output}}),
                _named({"type": "message_stop"})]

    def nothing(self) -> Json:
        return self._message([], "end_turn", 0)

    def nothing_event(self) -> bytes:
        return _named({"type": "ping"})

    def error_event(self, error: Json) -> bytes:
        return event(error, "error")
