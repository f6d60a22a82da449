"""What the transport keeps for the ladder's `cached`: the text of an answer.

A text is kept of an accepted answer that is nothing but text and came to its
own end: no calls of tools (later they would act again), no other choices, no
answer that the ladder itself had made smaller.
"""

from __future__ import annotations

import json
import typing

from fivegates.answers import answer_of, progress_of
from fivegates.transport.given import GivenAway

if typing.TYPE_CHECKING:
    from fivegates._core import Decision
    from fivegates.attempt import Attempt
    from fivegates.cache import AnswerCache, AsyncAnswerCache
    from fivegates.stream import StreamWatcher
    from fivegates.transport.exchange import Exchange
    from fivegates.transport.request import ModelRequest

__all__ = ["KeptStream", "key_of", "text_of_answer", "text_of_stream"]

Json = typing.Dict[str, typing.Any]

# Of a stream, what is remembered: a longer one is not kept.
_MOST = 1 << 20
# How an answer is delivered, not what is asked.
_DELIVERY = ("stream", "stream_options")


def key_of(cache: "AnswerCache | AsyncAnswerCache", workflow: str,
           request: "ModelRequest", facts: Json) -> str:
    """The key of a request: all of its body but how it is delivered, its
    workflow, tenant and language."""
    body = {name: value for name, value in request.body.items()
            if name not in _DELIVERY}
    return cache.key(workflow, {"api": request.wire, "model": request.model,
                                "body": body},
                     tenant=facts.get("tenant"), language=facts.get("language"))


def _several(value: object) -> bool:
    """Whether there are other choices than the first."""
    if not isinstance(value, dict):
        return False
    for name in ("choices", "candidates"):
        found = value.get(name)
        for one in found if isinstance(found, list) else ():
            if isinstance(one, dict) and one.get("index") not in (None, 0):
                return True
    return False


def text_of_answer(body: bytes) -> "str | None":
    """The text of a whole answer; None: it is not kept."""
    answer = json.loads(body)
    facts = answer_of(answer)
    if facts.get("finish_reason") != "stop" or facts.get("tool_calls") or (
            _several(answer)):
        return None
    return facts.get("output") or None


def text_of_stream(raw: bytes) -> "str | None":
    """The text of a stream's events; None: it is not kept."""
    texts: "list[str]" = []
    finish = None
    for line in raw.decode("utf-8", "replace").replace("\r", "\n").split("\n"):
        if not line.startswith("data:") or not line[5:].strip().startswith("{"):
            continue
        try:
            event = json.loads(line[5:])
        except ValueError:
            return None  # an event over several lines
        facts = (answer_of(event) if "candidates" in event
                 else progress_of(event))
        if facts.get("tool_args") or facts.get("tool_calls") or _several(event):
            return None
        texts.append(facts.get("text") or facts.get("output") or "")
        finish = (facts.get("finish") or facts.get("finish_reason") or finish)
    return "".join(texts) or None if finish == "stop" else None


class KeptStream(GivenAway):
    """A stream that is kept when it has come to its end, accepted."""

    def __init__(self, exchange: "Exchange", attempt: "Attempt",
                 watcher: "StreamWatcher", held: "list[bytes]") -> None:
        super().__init__(exchange, attempt, watcher, held)
        self._parts = list(held)
        self._size = sum(map(len, held))
        self._degraded = attempt.decision.ladder_step is not None
        self._todo: "tuple[typing.Any, ...] | None" = None

    def heard(self, chunk: bytes) -> None:
        if self._size <= _MOST:
            self._parts.append(chunk)
            self._size += len(chunk)
        super().heard(chunk)

    def _finish(self, decision: "Decision",
                error: "BaseException | None") -> None:
        if (error is None and decision.action == "accept"
                and not self._degraded and self._size <= _MOST):
            text = text_of_stream(b"".join(self._parts))
            if text is not None:
                self._todo = (self.exchange.key_of_answer(), text,
                              decision.label)
        self._parts = []
        super()._finish(decision, error)

    def store(self) -> typing.Any:
        """Stores it; what an async cache answers must be awaited."""
        todo, self._todo = self._todo, None
        if todo is not None and self.exchange.cache is not None:
            return self.exchange.cache.store(*todo)
        return None
