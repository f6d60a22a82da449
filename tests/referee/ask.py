"""What is asked of a system, and what its user got: the words that the referee
and the systems, each in a process of its own, say to each other."""

from __future__ import annotations

import dataclasses
import typing

__all__ = ["Ask", "Got", "Route", "Setup"]


@dataclasses.dataclass(frozen=True)
class Ask:
    """One user's request, and what the user and the operator want of it."""

    stream: bool = True
    prompt_tokens: int = 50  # as the application counts them
    max_tokens: int = 40
    prefill: bool = False  # the conversation ends with an assistant's beginning
    agent: bool = False  # the model may use the refund tool
    patience_s: float = 1.0  # the time-out an application gives its client
    deadline_s: float = 6.0  # by then the user has an answer or an error
    cap_usd: "float | None" = None  # what the request may cost
    leaves_after_s: "float | None" = None  # the user closes the page
    leaves_after_words: "int | None" = None
    count: int = 1  # so many requests,
    every_s: float = 0.0  # one each so often
    outer: int = 1  # a job runner around it that tries so often
    sdk_retries: "int | None" = None  # forced on; None: as the system likes
    scale: float = 1.0  # time is compressed so often; waits one can set follow


@dataclasses.dataclass(frozen=True)
class Route:
    """What an operator knows of a route."""

    model: str
    account: str
    context_tokens: int = 128_000
    prefill: bool = True


@dataclasses.dataclass(frozen=True)
class Setup:
    """The routes of a run, the primary first; input and output are USD per
    million tokens."""

    url: str
    routes: "dict[str, Route]"
    prices: "dict[str, float]"

    def base_url(self, route: str) -> str:
        return f"{self.url}/{route}/v1"

    @staticmethod
    def of(raw: "dict[str, typing.Any]") -> "Setup":
        return Setup(raw["url"], {name: Route(**one) for name, one in
                                  raw["routes"].items()}, raw["prices"])


@dataclasses.dataclass
class Got:
    """What one user got."""

    text: str = ""  # on the screen at the end
    complete: bool = False  # it was given out as a whole answer
    seconds: float = 0.0
    first_s: "float | None" = None  # to the first text on the screen
    error: "str | None" = None  # everything the exception says
    error_class: str = ""
    error_bases: "list[str]" = dataclasses.field(default_factory=list)
    left_at: "float | None" = None  # the user left; CLOCK_MONOTONIC
    hung: bool = False  # still not over when the referee lost patience
    model: "str | None" = None  # who answered, as the system tells it
    spent: "int | None" = None  # tokens, as the system accounts for them
