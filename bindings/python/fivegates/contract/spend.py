"""What a run may cost, in nano-dollars: nothing is sent that might cost more.

Before each send its worst cost is held; when it is over, the hold becomes what
was billed. A send whose bill is not known keeps its hold for good.
"""

from __future__ import annotations

import asyncio
import decimal
import typing

__all__ = ["Cap", "cost_nusd", "hidden_tokens", "nusd_of", "unbounded", "usd", "worst_nusd"]

Json = typing.Dict[str, typing.Any]

_MILLION = 1_000_000
_NUSD = 1_000_000_000
# What is billed without being in the request's bytes. The prompt that teaches a model
# its tools: up to 530 tokens at Anthropic. An image, however small its file: up to
# 48,000 at OpenAI (2,833 and eight tiles of 5,667 of gpt-4o-mini).
_TOOLS_TOKENS = 1000
_IMAGE_TOKENS = 50_000
# Parts of a request that are billed at prices of their own, or by what is behind them.
_OWN_PRICE = ("audio", "prediction", "service_tier", "web_search_options")


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


def _parts(messages: object) -> "typing.Iterator[Json]":
    """Every object in a request's messages."""
    if isinstance(messages, list):
        for one in messages:
            yield from _parts(one)
    elif isinstance(messages, dict):
        yield messages
        for one in messages.values():
            yield from _parts(one)


def _image(part: Json) -> "str | None":
    """An image's URL, with or without the data in it; None: it is no image."""
    if "image_url" not in part:
        return None
    found = part["image_url"]
    return str(found.get("url") if isinstance(found, dict) else found)


def hidden_tokens(chat: Json) -> int:
    """Prompt tokens a chat request may cost beyond one for each of its bytes."""
    images = sum(_image(part) is not None for part in _parts(chat["messages"]))
    return images * _IMAGE_TOKENS + (_TOOLS_TOKENS if chat.get("tools") else 0)


def unbounded(chat: Json) -> "str | None":
    """What of a chat request has a cost that the card's price does not bound; None:
    nothing."""
    for key in _OWN_PRICE:
        if chat.get(key) is not None:
            return key
    for part in _parts(chat["messages"]):
        url = _image(part)
        if url is not None and not url.startswith("data:"):
            return "an image behind a URL"
        if part.get("type") in ("input_audio", "file"):
            return f"a part of type {part['type']}"
        if part.get("cache_control") is not None:
            return "cache_control"
    return None


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
