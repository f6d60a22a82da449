"""The form of OpenAI's responses."""

from __future__ import annotations

import typing

from fivegates.provider.answers import Answer
from fivegates.provider.asked import Asked
from fivegates.provider.shape import event

__all__ = ["Responses"]

Json = typing.Dict[str, typing.Any]


class Responses:
    """One response; see Shape."""

    def __init__(self, asked: Asked, answer: Answer) -> None:
        self.asked = asked
        self.answer = answer
        self._said = ""
        self._number = 0

    @property
    def _item_id(self) -> str:
        return ("fc_" if self.answer.tool else "msg_") + self.answer.id

    def _response(self, status: str, output: "list[Json]", tokens: int) -> Json:
        prompt = self.answer.prompt_tokens
        cut = status == "incomplete"
        return {
            "id": f"resp_{self.answer.id}", "object": "response",
            "created_at": 1, "status": status, "model": self.answer.model,
            "error": None, "instructions": None, "metadata": {},
            "incomplete_details": {"reason": self._why_cut} if cut else None,
            "output": output, "parallel_tool_calls": True, "temperature": 1.0,
            "top_p": 1.0, "tool_choice": "auto", "tools": [],
            "usage": None if status == "in_progress" else {
                "input_tokens": prompt, "output_tokens": tokens,
                "input_tokens_details": {"cached_tokens": 0},
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": prompt + tokens}}

    @property
    def _why_cut(self) -> str:
        return ("content_filter" if self.answer.finish == "filter"
                else "max_output_tokens")

    @property
    def _status(self) -> str:
        return ("incomplete" if self.answer.finish in ("length", "filter")
                else "completed")

    def _part(self, text: str) -> Json:
        if self.answer.refusal:
            return {"type": "refusal", "refusal": text}
        return {"type": "output_text", "text": text, "annotations": []}

    def _item(self, status: str, text: str) -> Json:
        if self.answer.tool:
            return {"id": self._item_id, "type": "function_call",
                    "status": status, "call_id": self.answer.call_id,
                    "name": self.answer.tool, "arguments": text}
        return {"id": self._item_id, "type": "message", "role": "assistant",
                "status": status,
                "content": [self._part(text)] if text else []}

    def whole(self, output: int) -> Json:
        item = self._item(self._status, self.answer.text())
        return self._response(self._status, [item], output)

    def _named(self, kind: str, /, **value: typing.Any) -> bytes:
        self._number += 1
        return event({"type": kind, "sequence_number": self._number - 1,
                      **value}, kind)

    def _inside(self, kind: str, /, **value: typing.Any) -> bytes:
        """An event of the one item's content."""
        place: Json = {"item_id": self._item_id, "output_index": 0}
        if not self.answer.tool:
            place["content_index"] = 0
        return self._named(kind, **place, **value)

    @property
    def _kind(self) -> str:
        if self.answer.tool:
            return "response.function_call_arguments"
        return "response." + ("refusal" if self.answer.refusal
                              else "output_text")

    def begin(self) -> "list[bytes]":
        empty = self._response("in_progress", [], 0)
        out = [self._named("response.created", response=empty),
               self._named("response.in_progress", response=empty),
               self._named("response.output_item.added", output_index=0,
                           item=self._item("in_progress", ""))]
        if not self.answer.tool:
            out.append(self._inside("response.content_part.added",
                                    part=self._part("")))
        return out

    def piece(self, text: str) -> bytes:
        self._said += text
        extra: Json = {}
        if not self.answer.tool and not self.answer.refusal:
            extra["logprobs"] = []
        return self._inside(self._kind + ".delta", delta=text, **extra)

    def end(self, output: int) -> "list[bytes]":
        said: Json
        if self.answer.tool:
            said = {"arguments": self._said, "name": self.answer.tool}
        elif self.answer.refusal:
            said = {"refusal": self._said}
        else:
            said = {"text": self._said, "logprobs": []}
        out = [self._inside(self._kind + ".done", **said)]
        if not self.answer.tool:
            out.append(self._inside("response.content_part.done",
                                    part=self._part(self._said)))
        item = self._item(self._status, self._said)
        return [*out,
                self._named("response.output_item.done", output_index=0,
                            item=item),
                self._named(f"response.{self._status}", response=self._response(
                    self._status, [item], output))]

    def nothing(self) -> Json:
        return self._response("completed", [], 0)

    def nothing_event(self) -> bytes:
        return self._named("response.in_progress",
                           response=self._response("in_progress", [], 0))

    def error_event(self, error: Json) -> bytes:
        inner = error["error"]
        return self._named("error", code=inner.get("code"),
                           message=inner["message"], param=None)
