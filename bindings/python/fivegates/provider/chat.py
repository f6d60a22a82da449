"""The form of OpenAI's chat completions."""

from __future__ import annotations

import typing

from fivegates.provider.answers import Answer
from fivegates.provider.asked import Asked
from fivegates.provider.shape import event

__all__ = ["Chat"]

Json = typing.Dict[str, typing.Any]
_REASONS = {"stop": "stop", "tool": "tool_calls", "length": "length",
            "filter": "content_filter"}


class Chat:
    """One chat completion; see Shape."""

    def __init__(self, asked: Asked, answer: Answer) -> None:
        self.asked = asked
        self.answer = answer
        self._begun = False

    def _head(self, kind: str) -> Json:
        return {"id": f"chatcmpl-{self.answer.id}", "object": kind,
                "created": 1, "model": self.answer.model}

    def _usage(self, output: int) -> Json:
        prompt = self.answer.prompt_tokens
        return {"prompt_tokens": prompt, "completion_tokens": output,
                "total_tokens": prompt + output}

    def _message(self, text: str) -> Json:
        answer = self.answer
        out: Json = {"role": "assistant", "content": text, "refusal": None}
        if answer.refusal:
            out.update(content=None, refusal=text)
        elif answer.tool:
            out.update(content=None, tool_calls=[{
                "id": answer.call_id, "type": "function",
                "function": {"name": answer.tool, "arguments": text}}])
        return out

    def whole(self, output: int) -> Json:
        return {**self._head("chat.completion"), "choices": [{
            "index": 0, "message": self._message(self.answer.text()),
            "logprobs": None, "finish_reason": _REASONS[self.answer.finish],
        }], "usage": self._usage(output)}

    def _chunk(self, delta: Json, finish: "str | None" = None) -> bytes:
        return event({**self._head("chat.completion.chunk"), "choices": [{
            "index": 0, "delta": delta, "finish_reason": finish}]})

    def begin(self) -> "list[bytes]":
        return [self._chunk({"role": "assistant", "content":
                             None if self.answer.tool else ""})]

    def piece(self, text: str) -> bytes:
        answer = self.answer
        if answer.refusal:
            return self._chunk({"refusal": text})
        if not answer.tool:
            return self._chunk({"content": text})
        call: Json = {"index": 0, "function": {"arguments": text}}
        if not self._begun:
            call.update(id=answer.call_id, type="function")
            call["function"]["name"] = answer.tool
            self._begun = True
        return self._chunk({"tool_calls": [call]})

    def end(self, output: int) -> "list[bytes]":
        out = [self._chunk({}, _REASONS[self.answer.finish])]
        if self.asked.wants_usage:
            out.append(event({**self._head("chat.completion.chunk"),
                              "choices": [], "usage": self._usage(output)}))
        return [*out, b"data: [DONE]\n\n"]

    def nothing(self) -> Json:
        return {**self._head("chat.completion"), "choices": [],
                "usage": self._usage(0)}

    def nothing_event(self) -> bytes:
        return event({**self._head("chat.completion.chunk"), "choices": []})

    def error_event(self, error: Json) -> bytes:
        return event(error)
