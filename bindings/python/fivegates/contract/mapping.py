"""What the readers of fixtures share: errors, and a row's canonical bytes."""

from __future__ import annotations

import hashlib
import json
import typing

from fivegates.errors import FivegatesError

__all__ = ["FixtureError", "Json", "Unsupported", "canonical", "named"]

Json = typing.Dict[str, typing.Any]


class FixtureError(FivegatesError, ValueError):
    """Fixtures that cannot be used: file, line, and what to do."""

    result = "arg"


class Unsupported(str):
    """What of another tool's row has no meaning here, by its own name."""


def canonical(row: Json, place: str) -> bytes:
    """A row as the bytes its identity is made of. FixtureError."""
    try:
        return json.dumps(row, sort_keys=True, separators=(",", ":"),
                          ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise FixtureError(f"{place}: half a surrogate pair is no text; take it out"
                           ) from None


def named(request: Json, expect: object, place: str) -> Json:
    """A row without an id of its own: its id is made of what is in it."""
    row: Json = {"request": request, "expect": expect}
    digest = hashlib.sha256(canonical(row, place)).hexdigest()
    return {"id": digest[:16], **row}
