"""Making an answer token by token: what most faults begin or end with."""

from __future__ import annotations

import asyncio
import json

from fivegates.provider.exchange import Exchange

__all__ = ["finish", "generate", "good", "whole_body"]


async def generate(x: Exchange, upto: "int | None" = None,
                   prefill: float = 1.0, decode: float = 1.0) -> None:
    """Reads the prompt and makes tokens, all or the first few, so many times
    slower. A stream is begun and gets each token; a whole answer is only
    made."""
    async with x.slot():
        await x.prefill(prefill)
        if x.asked.stream:
            await x.begin_stream()
            await x.parts(x.shape.begin())
        x.record.call = x.answer.call_id
        loop = asyncio.get_running_loop()
        start = loop.time()
        for i, piece in enumerate(x.answer.pieces[:upto]):
            due = start + i * decode / x.speed.tokens_per_s - loop.time()
            if due > 0:
                await x.work(due)
            x.bill(output=1)
            if x.asked.stream:
                await x.part(x.shape.piece(piece))
                if not x.gone:
                    x.record.sent_tokens += 1
                    x.record.first_token_at = (x.record.first_token_at
                                               or x.journal.now())


def whole_body(x: Exchange) -> bytes:
    """The body of the whole answer."""
    return json.dumps(x.shape.whole(x.record.billed_output)).encode()


async def finish(x: Exchange) -> None:
    """Ends a stream as it should, or sends the whole answer."""
    if x.asked.stream:
        await x.parts(x.shape.end(x.record.billed_output))
        x.delivered()
        await x.end_stream()
        return
    await x.body(200, whole_body(x))
    if not x.gone:
        x.record.sent_tokens = len(x.answer.pieces)
        x.record.first_token_at = x.record.answered_at
    x.delivered()


async def good(x: Exchange, prefill: float = 1.0, decode: float = 1.0) -> None:
    """A good answer."""
    await generate(x, None, prefill, decode)
    await finish(x)
