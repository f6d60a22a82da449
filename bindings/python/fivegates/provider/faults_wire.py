"""Faults below the answer: connection, head, and the framing of the body."""

from __future__ import annotations


from fivegates.provider.exchange import Exchange
from fivegates.provider.generate import whole_body
from fivegates.provider.registry import Param, fault

__all__: "list[str]" = []

_TYPE = {"Content-Type": "application/json"}


@fault("wire", "the connection is reset before any answer; the prompt was read",
       after_s=Param(0.05, 0, 3600, "seconds until then"))
async def reset(x: Exchange, after_s: float) -> None:
    x.bill(prompt=True)
    await x.silence(after_s)
    x.reset()


@fault("wire", "the connection is closed without an answer")
async def closed(x: Exchange) -> None:
    x.bill(prompt=True)
    x.close()


@fault("wire", "no answer at all; the work is done, and billed, for nobody",
       seconds=Param(600, 0, 86_400, "seconds until the connection is closed"))
async def no_response(x: Exchange, seconds: float) -> None:
    x.bill(prompt=True, output=len(x.answer.pieces))
    await x.silence(seconds)
    x.reset()


@fault("wire", "the connection is closed in the middle of the head")
async def head_cut(x: Exchange) -> None:
    x.bill(prompt=True)
    await x.write(b"HTTP/1.1 200 OK\r\nContent-Type: applica")
    x.close()


@fault("wire", "the first line is not HTTP")
async def bad_status_line(x: Exchange) -> None:
    await x.write(b"SSH-2.0-OpenSSH_9.2\r\n\r\n")
    x.close()


@fault("wire", "a header line without a colon, and a bare control letter")
async def bad_header(x: Exchange) -> None:
    x.close()
    await x.write(b"HTTP/1.1 200 OK\r\nthis is no header\r\nx-odd: \x01\r\n"
                  b"Content-Length: 2\r\n\r\n{}")


@fault("wire", "a header longer than most clients take",
       kib=Param(256, 1, 65_536, "its length, KiB", True))
async def long_header(x: Exchange, kib: int) -> None:
    x.close()
    await _make(x)
    await x.body(200, whole_body(x), headers={"x-long": "x" * (kib << 10)})
    if not x.asked.stream:
        x.delivered()  # to a client that takes it


@fault("wire", "a chunk whose length is no number")
async def bad_chunk(x: Exchange) -> None:
    await _make(x)  # not cut: no client can read a word of it
    await x.head(200, {**_TYPE, "Transfer-Encoding": "chunked"})
    await x.write(b"zz\r\n" + whole_body(x))
    x.close()


@fault("wire", "more bytes than the length in the head says")
async def length_too_short(x: Exchange) -> None:
    await _make(x)
    x.record.cut = True
    raw = whole_body(x)
    x.close()
    await x.head(200, {**_TYPE, "Content-Length": str(len(raw) // 2)})
    await x.write(raw)


@fault("wire", "Content-Encoding: gzip over a body that is not")
async def wrong_encoding(x: Exchange) -> None:
    await _make(x)
    await x.body(200, whole_body(x), headers={"Content-Encoding": "gzip"})


async def _make(x: Exchange) -> None:
    """Makes the answer without sending any of it."""
    async with x.slot():
        await x.prefill()
        x.bill(output=len(x.answer.pieces))
