"""A stream whose first content the client has."""

from __future__ import annotations

import time
import typing

from fivegates._core import SAW_ERROR, SseScanner
from fivegates.attempt import Attempt
from fivegates.errors import Refused
from fivegates.evidence import evidence_of
from fivegates.stream import StreamError, StreamWatcher
from fivegates.transport.refusal import told

if typing.TYPE_CHECKING:
    from fivegates._core import Decision
    from fivegates.transport.exchange import Exchange

__all__ = ["GivenAway", "Late", "counted", "ended"]


class Late(Exception):
    """Nothing came before one of the engine's clocks ran out."""


class GivenAway:
    """A stream whose first content the client has: nothing is sent again.

    Hears every later chunk, and tells the engine how the stream ended, once.
    """

    def __init__(self, exchange: Exchange, attempt: Attempt,
                 watcher: StreamWatcher, held: "list[bytes]") -> None:
        self.exchange = exchange
        self.held = held
        self.over = False
        self._attempt = attempt
        self._watcher = watcher
        self._look_at = attempt.started + (attempt.decision.wake_ms or 0) / 1000
        self._gave = time.monotonic()

    def heard(self, chunk: bytes) -> None:
        """A chunk came; raises when the stream has failed with it."""
        if self._watcher.feed(chunk) & SAW_ERROR:
            self.ended()
            return
        self._gave = time.monotonic()
        if self._gave >= self._look_at:
            self._look()

    def wanted_more(self) -> None:
        """The client asks for the next chunk; the time it took is not the route's."""
        if not self.over:
            self._attempt.wanted_more(self._gave)

    def _look(self) -> None:
        """The engine's clocks: content may pause though bytes come."""
        decision = self.exchange.call.deadline()
        if decision.action != "keep_waiting":
            self._finish(decision, Late(f"{decision.kind} in a stream"))
        wait = decision.wake_ms or decision.wait_ms or 1000
        self._look_at = time.monotonic() + wait / 1000

    def ended(self) -> None:
        """The stream is at its end, or has carried an error event."""
        if self.over:
            return
        call, number = self.exchange.call, self._attempt.number
        evidence = ended(self._watcher)
        if evidence is None:
            self._finish(call.success(attempt=number,
                                      **counted(self._watcher.scanner)), None)
            return
        error = StreamError("an error event in the stream"
                            if self._watcher.saw & SAW_ERROR
                            else "the stream ended without its end", evidence)
        self._finish(call.failure(self._attempt.evidence(evidence),
                                  attempt=number), error)

    def broke(self, exc: Exception) -> None:
        """The wire raised; raises a refusal, or the exception itself."""
        if self.over:
            raise exc
        if self._watcher.whole:  # nothing is missing
            self.ended()
            return
        found = evidence_of(exc)
        if found is None:
            self.left()
            raise exc
        self._finish(self.exchange.call.failure(
            self._attempt.evidence(found), attempt=self._attempt.number), exc)

    def left(self) -> None:
        """The client closed: after the answer's own end that is the end."""
        if self.over:
            return
        if self._watcher.whole:
            self.ended()
            return
        self.over = True
        self.exchange.gone()

    def store(self) -> typing.Any:
        """Keeps the answer, where there is a cache; an awaitable, or None."""
        return None

    def _finish(self, decision: "Decision", error: "BaseException | None") -> None:
        self.over = True
        exchange = self.exchange
        exchange.told(decision)
        exchange.end(decision, None)
        if error is not None:
            raise told(Refused(decision, exchange.call), exchange.http,
                       exchange.request, exchange.model.wire, None, error)


def ended(watcher: StreamWatcher) -> "dict[str, typing.Any] | None":
    """Evidence of a stream that has ended badly; None: it ended well."""
    if watcher.whole:
        return None
    evidence = watcher.scanner.evidence()
    evidence["whole_body"] = True
    return evidence


def counted(scanner: SseScanner) -> "dict[str, typing.Any]":
    """Arguments of Call.success() that the scanner knows."""
    answer = scanner.answer()
    out = {name: answer[name] for name in (
        "prompt_tokens", "output_tokens", "cached_tokens", "cost_nusd")
        if answer[name]}
    out["visible"] = answer["visible"]
    if answer["finish_reason"] != "none":
        out["finish_reason"] = answer["finish_reason"]
    if answer["final"]:
        out["final"] = True
    return out
