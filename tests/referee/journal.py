"""What the server saw: the ground truth of a run."""

from __future__ import annotations

import dataclasses
import time
import typing

__all__ = ["Effect", "Journal", "Request"]


@dataclasses.dataclass
class Request:
    """One request that reached the provider. Times are seconds of the run."""

    number: int
    route: str
    at: float
    headers: "dict[str, str]"
    body: "dict[str, typing.Any]"
    nth: int = 0  # of this route, from 1
    fault: str = ""
    status: "int | None" = None  # as answered
    answered_at: "float | None" = None  # when the head went out
    text: str = ""  # the whole answer it would give
    billed_prompt: int = 0
    billed_output: int = 0
    sent_tokens: int = 0  # put on the wire
    whole: bool = False  # the answer went out to its own end
    left_at: "float | None" = None  # the client hung up before that
    ended_at: "float | None" = None

    @property
    def billed(self) -> int:
        return self.billed_prompt + self.billed_output

    @property
    def ran_on(self) -> float:
        """Seconds the provider went on working after the client had left."""
        if self.left_at is None or self.ended_at is None:
            return 0.0
        return max(0.0, self.ended_at - self.left_at)


@dataclasses.dataclass
class Effect:
    """Something done to the outside world, once for each time it was asked."""

    at: float
    tool: str
    op: str
    about: str


class Journal:
    """Everything one scenario's provider saw."""

    def __init__(self, prices: "dict[str, float]") -> None:
        self.started = time.monotonic()
        self.prices = prices  # USD per million tokens: input, output
        self.requests: "list[Request]" = []
        self.effects: "list[Effect]" = []
        self.lookups: "list[str]" = []

    def now(self) -> float:
        return time.monotonic() - self.started

    def arrive(self, route: str, headers: "dict[str, str]",
               body: "dict[str, typing.Any]") -> Request:
        out = Request(len(self.requests) + 1, route, self.now(), headers, body)
        out.nth = 1 + len(self.on(route))
        self.requests.append(out)
        return out

    def on(self, route: str) -> "list[Request]":
        return [one for one in self.requests if one.route == route]

    @property
    def billed(self) -> int:
        return sum(one.billed for one in self.requests)

    @property
    def billed_usd(self) -> float:
        return sum(one.billed_prompt * self.prices["input"]
                   + one.billed_output * self.prices["output"]
                   for one in self.requests) / 1e6

    def report(self) -> "dict[str, typing.Any]":
        """For --json: what was counted, and a line for each request; times are
        seconds after the first request."""
        first = self.requests[0].at if self.requests else 0.0

        def since(at: "float | None") -> "float | None":
            return None if at is None else round(at - first, 3)

        return {
            "requests": len(self.requests), "billed": self.billed,
            "billed_usd": round(self.billed_usd, 9),
            "effects": [{**dataclasses.asdict(one), "at": since(one.at)}
                        for one in self.effects],
            "log": [{
                "route": one.route, "at": since(one.at), "fault": one.fault,
                "status": one.status, "billed": one.billed,
                "sent_tokens": one.sent_tokens, "whole": one.whole,
                "left_at": since(one.left_at),
                "ran_on": round(one.ran_on, 3),
                "headers": {name: one.headers[name] for name in (
                    "x-client-request-id", "x-request-attempt",
                    "x-stainless-retry-count", "authorization")
                    if name in one.headers},
            } for one in self.requests]}
