"""Regular expressions of fixtures, with an end to each search."""

from __future__ import annotations

import importlib
import typing

__all__ = ["REGEX_S", "ScorerError", "compiled", "found_in"]

# Seconds of one search. A pattern that takes longer over an answer has met one
# it explodes on; the answer does not pass.
REGEX_S = 1.0
_PATTERN_MAX = 2000


class ScorerError(ValueError):
    """An `expect` that is none; the message says what to write."""


def compiled(pattern: str, ignore_case: bool) -> typing.Any:
    if len(pattern) > _PATTERN_MAX:
        raise ScorerError(f"the pattern is longer than {_PATTERN_MAX} characters")
    try:
        # Its search has a time-out; that of re has none.
        regex: typing.Any = importlib.import_module("regex")
    except ImportError:
        raise ScorerError("patterns need the package regex; pip install "
                          "'fivegates[contract]'") from None
    try:
        return regex.compile(pattern, regex.IGNORECASE if ignore_case else 0)
    except RecursionError:
        raise ScorerError("the pattern is nested too deep") from None
    except (regex.error, OverflowError, ValueError) as exc:
        raise ScorerError(f"the pattern does not compile: {exc}") from None


def found_in(pattern: typing.Any, text: str) -> "bool | None":
    """Whether the pattern is in a text; None: not told in time."""
    try:
        return pattern.search(text, timeout=REGEX_S, concurrent=True) is not None
    except TimeoutError:
        return None
