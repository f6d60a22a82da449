"""For tests of code that uses fivegates: a clock that waits for nobody, and a
provider that answers from a script."""

from __future__ import annotations

import typing

from fivegates.attempt import Attempt

__all__ = ["FakeProvider", "ManualClock", "ProviderError"]


class ManualClock:
    """A clock moved by hand, for Engine(clock=...).

    Its sleep() and asleep() move it instead of waiting, for
    engine.run(sleep=...) and engine.arun(sleep=...).
    """

    def __init__(self, now_ms: int = 1_000_000_000,
                 unix_ms: "int | None" = None) -> None:
        self.now_ms = now_ms
        self.start_ms = now_ms
        self.start_unix_ms = unix_ms
        self.slept: "list[float]" = []

    def __call__(self) -> int:
        return self.now_ms

    def unix_ms(self) -> "int | None":
        """Wall time, where one was given."""
        if self.start_unix_ms is None:
            return None
        return self.start_unix_ms + self.now_ms - self.start_ms

    def advance(self, ms: int) -> None:
        """Moves the clock."""
        self.now_ms += ms

    def sleep(self, seconds: float) -> None:
        """Moves the clock instead of sleeping, and remembers it."""
        self.slept.append(seconds)
        self.now_ms += round(seconds * 1000)

    async def asleep(self, seconds: float) -> None:
        """The same for async code."""
        self.sleep(seconds)


class ProviderError(Exception):
    """A failed answer of a FakeProvider: known by its .response, as other
    libraries' exceptions are."""

    class _Response:
        def __init__(self, status: int, headers: "dict[str, str]",
                     body: str) -> None:
            self.status_code = status
            self.headers = headers
            self.content = body.encode()

    def __init__(self, status: int, headers: "dict[str, str] | None" = None,
                 body: str = "") -> None:
        super().__init__(f"status {status}")
        self.response = self._Response(status, headers or {}, body)


class FakeProvider:
    """A send for engine.run() that answers from a script, in order.

    Each entry is an exception to raise, a function of the attempt to call, or
    a value to return; past the end the last entry stays. Attempts are kept in
    .attempts. take_ms moves the clock during each send.
    """

    def __init__(self, *script: typing.Any, clock: "ManualClock | None" = None,
                 take_ms: int = 0) -> None:
        self.script = list(script) or ["ok"]
        self.clock = clock
        self.take_ms = take_ms
        self.attempts: "list[Attempt]" = []

    def __call__(self, attempt: Attempt) -> typing.Any:
        entry = self.script[min(len(self.attempts), len(self.script) - 1)]
        self.attempts.append(attempt)
        if self.clock is not None:
            self.clock.advance(self.take_ms)
        if isinstance(entry, BaseException):
            raise entry
        return entry(attempt) if callable(entry) else entry

    async def asend(self, attempt: Attempt) -> typing.Any:
        """The same for engine.arun()."""
        return self(attempt)

    @property
    def routes(self) -> "list[str | None]":
        """The routes of the attempts, in order."""
        return [attempt.route for attempt in self.attempts]
