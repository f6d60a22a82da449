"""What a run may cost, in nano-dollars: nothing is sent that might cost more.

Before each send its worst cost is held; when it is over, the hold becomes what
was billed. A send whose bill is not known keeps its hold for good.
"""

from __future__ import annotations

import asyncio
import decimal
import typing

__all__ = ["Cap", "cost_nusd", "nusd_of", "usd", "worst_nusd"]

_MILLION = 1_000_000
_NUSD = 1_000_000_000


class Cap:
    """limit_nusd None: no limit, everything is still counted. For one event
    loop: nothing waits between asking and holding."""

    def __init__(self, limit_nusd: "int | None", spent_nusd: int = 0) -> None:
        self.limit_nusd = limit_nusd
        self.spent_nusd = spent_nusd
        self.held_nusd = 0
        self._waiting: "list[asyncio.Future[None]]" = []

    def hold(self, nusd: int) -> bool:
        """Holds an amount; False: it does not fit."""
        if self.limit_nusd is not None and (
                self.spent_nusd + self.held_nusd + nusd > self.limit_nusd):
            return False
        self.held_nusd += nusd
        return True

    def settle(self, held: int, cost: int) -> None:
        """A hold is over; cost is what it became."""
        self.held_nusd -= held
        self.spent_nusd += cost
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            if not one.done():
                one.set_result(None)

    async def room(self, nusd: int) -> bool:
        """Holds an amount, once holds of others made room; False: they are all
        over, and it does not fit."""
        while not self.hold(nusd):
            if not self.held_nusd:
                return False
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            await turn
        return True


def cost_nusd(price: "typing.Mapping[str, int] | None", prompt: int, cached: int,
              output: int) -> int:
    """What tokens cost at a price of nano-dollars per million, rounded up.
    None costs nothing that is known."""
    if price is None:
        return 0
    cached = min(cached, prompt)
    return -(-((prompt - cached) * price["input"] + cached * price["cached_input"]
               + output * price["output"]) // _MILLION)


def worst_nusd(price: "typing.Mapping[str, int] | None", request_bytes: int,
               output: int) -> int:
    """What a send can cost at most. A token is at least a byte of the request,
    which says roles and tools in more bytes than the provider's own marks."""
    if price is None:
        return 0
    dearest = {**price, "input": max(price["input"], price["cached_input"])}
    return cost_nusd(dearest, request_bytes, 0, output)


def nusd_of(text: str) -> int:
    """USD as text in nano-dollars. ValueError: no amount over 0 that is exact."""
    try:
        value = decimal.Decimal(text) * _NUSD
    except decimal.InvalidOperation:
        raise ValueError(text) from None
    if not value.is_finite() or value <= 0 or value != int(value):
        raise ValueError(text)
    return int(value)


def usd(nusd: int) -> str:
    """Nano-dollars as a decimal text of USD."""
    return f"{(decimal.Decimal(nusd) / _NUSD).normalize():f}"
