"""What the form of an API has to say; one class for each API."""

from __future__ import annotations

import json
import typing

from fivegates.provider.answers import Answer
from fivegates.provider.asked import Asked

__all__ = ["Shape", "event"]

Json = typing.Dict[str, typing.Any]


def event(value: Json, name: str = "") -> bytes:
    """A server-sent event."""
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(value)}\n\n".encode()


class Shape(typing.Protocol):
    """One answer in the form of its API. output: tokens made so far."""

    def __init__(self, asked: Asked, answer: Answer) -> None: ...

    def whole(self, output: int) -> Json:
        """The body of an answer that is not streamed."""

    def begin(self) -> "list[bytes]":
        """The events before the first token."""

    def piece(self, text: str) -> bytes:
        """The event of one token."""

    def end(self, output: int) -> "list[bytes]":
        """The events after the last token, the terminal one included."""

    def nothing(self) -> Json:
        """A body that is well formed and holds no answer."""

    def nothing_event(self) -> bytes:
        """An event that is well formed and holds no answer."""

    def error_event(self, error: Json) -> bytes:
        """An error's body as an event of the stream."""
