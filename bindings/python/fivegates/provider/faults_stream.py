"""Faults while an answer is on its way. Without a stream, of its body."""

from __future__ import annotations

from fivegates.provider.exchange import Exchange
from fivegates.provider.generate import finish, generate, whole_body
from fivegates.provider.registry import Param, fault

__all__: "list[str]" = []

_FOREVER = Param(600, 0, 86_400, "seconds until the connection is closed")


def _after(tokens: int) -> Param:
    return Param(tokens, 0, 100_000, "tokens before that", True)


async def _half(x: Exchange, after_tokens: int) -> None:
    """The answer up to some tokens; of a body, its first half."""
    x.record.cut = True
    if x.asked.stream:
        await generate(x, after_tokens)
        return
    await generate(x)
    raw = whole_body(x)
    await x.head(200, {"Content-Type": "application/json",
                       "Content-Length": str(len(raw))})
    await x.write(raw[:len(raw) // 2])


@fault("stream", "the connection is reset after some tokens",
       after_tokens=_after(5))
async def cut(x: Exchange, after_tokens: int) -> None:
    await _half(x, after_tokens)
    await x.silence(0.05)  # what was written arrives before the reset
    x.reset()


@fault("stream", "the connection is closed after some tokens, without the end "
       "of the body", after_tokens=_after(5))
async def body_cut(x: Exchange, after_tokens: int) -> None:
    await _half(x, after_tokens)
    x.close()


@fault("stream", "some tokens, then silence", after_tokens=_after(5),
       seconds=_FOREVER)
async def stall(x: Exchange, after_tokens: int, seconds: float) -> None:
    await _half(x, after_tokens)
    await x.silence(seconds)
    x.reset()


@fault("stream", "keep-alives without content; without a stream, white space "
       "before the body", every_s=Param(0.5, 0.01, 60, "seconds between two"),
       seconds=_FOREVER)
async def pings(x: Exchange, every_s: float, seconds: float) -> None:
    x.bill(prompt=True)
    stream = x.asked.stream
    await x.begin_stream("text/event-stream" if stream else "application/json")
    ping = (b": keep-alive\n\n" if x.asked.api == "chat" else
            b'event: ping\ndata: {"type": "ping"}\n\n') if stream else b"\n"
    for _ in range(int(seconds / every_s)):
        await x.part(ping)
        await x.silence(every_s)
    x.reset()


@fault("stream", "an event that is no JSON; without a stream, such a body",
       after_tokens=_after(0))
async def malformed_chunk(x: Exchange, after_tokens: int) -> None:
    x.record.cut = after_tokens > 0
    if not x.asked.stream:
        await generate(x)
        await x.body(200, whole_body(x).replace(b":", b"=", 2))
        return
    await generate(x, after_tokens)
    await x.part(b'data: {"id": "x", "object": "chat.completion.chu\n\n')
    await x.end_stream()


@fault("stream", "the stream stops early and politely: no finish reason, no "
       "terminal event, and the last chunk of HTTP is right",
       after_tokens=_after(7))
async def no_terminal(x: Exchange, after_tokens: int) -> None:
    if not x.asked.stream:
        await _half(x, after_tokens)
        x.close()
        return
    x.record.cut = True
    await generate(x, after_tokens)
    await x.end_stream()


@fault("stream", "a good stream whose bytes come in pieces that end in the "
       "middle of lines and letters: no fault of it is an excuse")
async def split_events(x: Exchange) -> None:
    if not x.asked.stream:
        await generate(x)
        await finish(x)
        return
    async with x.slot():
        await x.prefill()
        x.bill(output=len(x.answer.pieces))
        x.record.call = x.answer.call_id
    await x.begin_stream()
    raw = b"".join([*x.shape.begin(), *map(x.shape.piece, x.answer.pieces),
                    *x.shape.end(len(x.answer.pieces))])
    for i in range(0, len(raw), 37):
        await x.part(raw[i:i + 37])
        await x.work(0)
    x.delivered()
    await x.end_stream()
