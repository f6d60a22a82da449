"""An answer that no model gave, in the form the SDK waits for.

For the ladder's preset and cached steps: one text as the body of a whole
answer or the events of a stream, by API. It is labelled where a program can
see it: the model's name and two headers.
"""

from __future__ import annotations

import inspect
import json
import logging
import time
import typing

if typing.TYPE_CHECKING:
    from fivegates._core import Decision
    from fivegates.cache import CachedAnswer
    from fivegates.transport.options import Options
    from fivegates.transport.request import ModelRequest

__all__ = ["StandIns", "text_response"]

Json = typing.Dict[str, typing.Any]
_log = logging.getLogger("fivegates")


class StandIns:
    """The answers of one request's ladder that need no model."""

    def __init__(self, http: typing.Any, request: "ModelRequest",
                 options: "Options") -> None:
        self._http = http
        self._request = request
        self._options = options

    def preset(self, decision: "Decision") -> typing.Any:
        if not self._request.takes_words:
            return None
        make = self._options.preset
        return self._response(
            make(decision) if callable(make) else decision.text, decision)

    def cached(self, decision: "Decision") -> typing.Any:
        assert self._options.cached is not None
        text = self._options.cached(self._request.body, decision)
        return (self._later(text, decision) if inspect.isawaitable(text)
                else self._response(text, decision))

    async def _later(self, text: "typing.Awaitable[str | None]",
                     decision: "Decision") -> typing.Any:
        return self._response(await text, decision)

    def found(self, found: "CachedAnswer", decision: "Decision") -> typing.Any:
        """An answer out of the cache, with its age in seconds."""
        response = self._response(found.answer, decision)
        response.headers["age"] = str(max(0, int(time.time() - found.stored_at)))
        return response

    def _response(self, text: "str | None", decision: "Decision") -> typing.Any:
        if text is None:
            return None
        _log.warning("answered by the ladder's %s instead of %s: %s / %s",
                     decision.ladder_step, decision.requested, decision.reason,
                     decision.detail)
        return text_response(self._http, self._request, text, decision)


def text_response(http: typing.Any, request: "ModelRequest", text: str,
                  decision: "Decision") -> typing.Any:
    """A 200 answer with one text; its model is "fivegates/<step>"."""
    step = str(decision.ladder_step)
    model = f"fivegates/{step}"
    make = {"chat": _chat, "messages": _messages, "responses": _responses,
            "generateContent": _generate}[request.wire]
    ident = f"fivegates-{step}-{decision.attempt}"
    whole, events = make(ident, model, text)
    headers = {"x-fivegates-action": "degrade", "x-fivegates-step": step}
    if not request.streamed:
        headers["content-type"] = "application/json"
        return http.Response(200, headers=headers,
                             content=json.dumps(whole).encode())
    headers["content-type"] = "text/event-stream"
    return http.Response(200, headers=headers, content="".join(events).encode())


def _event(data: Json, named: bool = False) -> str:
    name = f"event: {data['type']}\n" if named else ""
    return f"{name}data: {json.dumps(data)}\n\n"


def _chat(ident: str, model: str, text: str) -> "tuple[Json, list[str]]":
    head = {"id": ident, "created": int(time.time()), "model": model}
    usage = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
    whole = {**head, "object": "chat.completion", "usage": usage, "choices": [{
        "index": 0, "finish_reason": "stop",
        "message": {"role": "assistant", "content": text}}]}
    chunk = {**head, "object": "chat.completion.chunk"}
    deltas: "list[tuple[Json, str | None]]" = [
        ({"role": "assistant", "content": text}, None), ({}, "stop")]
    return whole, [_event({**chunk, "choices": [{
        "index": 0, "delta": delta, "finish_reason": why}]})
        for delta, why in deltas] + ["data: [DONE]\n\n"]


def _messages(ident: str, model: str, text: str) -> "tuple[Json, list[str]]":
    usage = {"input_tokens": 0, "output_tokens": 0}
    head = {"id": ident, "type": "message", "role": "assistant",
            "model": model, "stop_sequence": None, "usage": usage}
    whole = {**head, "stop_reason": "end_turn",
             "content": [{"type": "text", "text": text}]}
    events: "list[Json]" = [
        {"type": "message_start",
         "message": {**head, "stop_reason": None, "content": []}},
        {"type": "content_block_start", "index": 0,
         "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0,
         "delta": {"type": "text_delta", "text": text}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "usage": {"output_tokens": 0},
         "delta": {"stop_reason": "end_turn", "stop_sequence": None}},
        {"type": "message_stop"}]
    return whole, [_event(one, named=True) for one in events]


def _responses(ident: str, model: str, text: str) -> "tuple[Json, list[str]]":
    part = {"type": "output_text", "text": text, "annotations": []}
    item = {"id": f"{ident}-message", "type": "message", "role": "assistant",
            "status": "completed", "content": [part]}
    whole: Json = {
        "id": ident, "object": "response", "created_at": int(time.time()),
        "model": model, "status": "completed", "output": [item],
        "error": None, "incomplete_details": None, "instructions": None,
        "metadata": {}, "parallel_tool_calls": True, "temperature": None,
        "tool_choice": "auto", "tools": [], "top_p": None,
        "usage": {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0,
                  "input_tokens_details": {"cached_tokens": 0},
                  "output_tokens_details": {"reasoning_tokens": 0}}}
    begun = {**whole, "status": "in_progress", "output": [], "usage": None}
    where: Json = {"item_id": item["id"], "output_index": 0}
    events: "list[Json]" = [
        {"type": "response.created", "response": begun},
        {"type": "response.output_item.added", "output_index": 0,
         "item": {**item, "status": "in_progress", "content": []}},
        {"type": "response.content_part.added", **where, "content_index": 0,
         "part": {**part, "text": ""}},
        {"type": "response.output_text.delta", **where, "content_index": 0,
         "delta": text, "logprobs": []},
        {"type": "response.output_text.done", **where, "content_index": 0,
         "text": text, "logprobs": []},
        {"type": "response.content_part.done", **where, "content_index": 0,
         "part": part},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": whole}]
    return whole, [_event({**one, "sequence_number": i}, named=True)
                   for i, one in enumerate(events)]


def _generate(ident: str, model: str, text: str) -> "tuple[Json, list[str]]":
    whole = {"responseId": ident, "modelVersion": model, "candidates": [{
        "index": 0, "finishReason": "STOP",
        "content": {"role": "model", "parts": [{"text": text}]}}]}
    return whole, [_event(whole)]
