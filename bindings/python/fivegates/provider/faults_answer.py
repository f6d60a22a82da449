"""Faults of the answer itself: 200, and it is not what was asked for."""

from __future__ import annotations

import dataclasses
import json

from fivegates.provider.exchange import Exchange
from fivegates.provider.generate import finish, generate, good
from fivegates.provider.refusals import body_of
from fivegates.provider.registry import Param, fault

__all__: "list[str]" = []

_NO = ("I", " cannot", " help", " with", " that", " request.")
_HTML = (b"<!doctype html><html><head><title>Sign in</title></head><body>"
         b"<h1>Welcome to this network</h1></body></html>")


async def _in_200(x: Exchange, raw: bytes, kind: str = "application/json") -> None:
    """A body with status 200, of which the client can make no answer."""
    x.bill(prompt=True)
    await x.body(200, raw, kind)


@fault("answer", "the model declines, in the field made for that")
async def refusal(x: Exchange) -> None:
    x.say(dataclasses.replace(x.answer, pieces=list(_NO), tool="", call_id="",
                              finish="stop", refusal=True))
    await good(x)


@fault("answer", "a filter ends the answer after some tokens",
       after_tokens=Param(5, 0, 100_000, "tokens before that", True))
async def filtered(x: Exchange, after_tokens: int) -> None:
    x.say(dataclasses.replace(
        x.answer, finish="filter", pieces=x.answer.pieces[:after_tokens]))
    await good(x)


@fault("answer", "a good form without an answer in it: no choices, no content")
async def empty_choices(x: Exchange) -> None:
    x.bill(prompt=True)
    if not x.asked.stream:
        await x.body(200, json.dumps(x.shape.nothing()).encode())
        return
    await x.begin_stream()
    await x.part(x.shape.nothing_event())
    if x.asked.api == "chat":
        await x.part(b"data: [DONE]\n\n")
    await x.end_stream()


@fault("answer", "an answer that ends as it should and has no text")
async def empty_answer(x: Exchange) -> None:
    x.say(dataclasses.replace(x.answer, pieces=[], tool="", call_id="",
                              finish="stop"))
    await good(x)
    x.record.whole = False


@fault("answer", "the output limit cuts a tool's arguments; or half of a text, "
       "which is an answer still")
async def truncated_tool_call(x: Exchange) -> None:
    pieces = x.answer.pieces[:max(1, len(x.answer.pieces) // 2)]
    if x.answer.tool:
        pieces[-1] = pieces[-1].rstrip('}"')  # never a whole JSON value
        x.record.cut = True
    x.say(dataclasses.replace(x.answer, finish="length", pieces=pieces))
    await good(x)
    x.record.whole = not x.record.cut and x.record.whole


@fault("answer", "200, and the body says that the account is empty; in a "
       "stream, its only event")
async def quota_in_stream(x: Exchange) -> None:
    await _error_in_200(x, "quota")


@fault("answer", "a stream that begins as it should and has an error as a "
       "later event; without a stream, an error with status 200",
       after_tokens=Param(0, 0, 100_000, "tokens before that", True))
async def error_event(x: Exchange, after_tokens: int) -> None:
    if x.asked.stream:
        x.record.cut = after_tokens > 0
        await generate(x, after_tokens)
    await _error_in_200(x, "overloaded")


async def _error_in_200(x: Exchange, name: str) -> None:
    body = body_of(x.asked.api, name)
    if not x.asked.stream:
        await x.body(200, json.dumps(body).encode())
        return
    if x.record.status is None:
        await x.begin_stream()
    await x.part(x.shape.error_event(body))
    await x.end_stream()


@fault("answer", "200 with JSON of another world")
async def garbage(x: Exchange) -> None:
    await _in_200(x, json.dumps({"jsonrpc": "2.0", "result": [0, None]}).encode())


@fault("answer", "200 with bytes that are no text, called JSON")
async def bad_utf8(x: Exchange) -> None:
    await _in_200(x, bytes(range(128, 256)))


@fault("answer", "200 with the first half of the JSON, and a length that fits")
async def half_json(x: Exchange) -> None:
    raw = json.dumps(x.shape.whole(0)).encode()
    x.record.cut = True
    await _in_200(x, raw[:len(raw) // 2])


@fault("answer", "200 without a body")
async def empty_body(x: Exchange) -> None:
    await _in_200(x, b"")


@fault("answer", "200 with a page of HTML, as a sign-in page in between sends")
async def html_page(x: Exchange) -> None:
    await _in_200(x, _HTML, "text/html")


@fault("answer", "a good answer under another content type: JSON as text, a "
       "stream as JSON")
async def wrong_type(x: Exchange) -> None:
    async with x.slot():
        await x.prefill()
        x.bill(output=len(x.answer.pieces))
    if not x.asked.stream:
        await x.body(200, json.dumps(x.shape.whole(x.record.billed_output))
                     .encode(), "text/plain")
        x.delivered()
        return
    await x.begin_stream("application/json")
    await x.parts(x.shape.begin())
    await x.parts(map(x.shape.piece, x.answer.pieces))
    await finish(x)


@fault("answer", "a stream was asked for, and a whole answer comes")
async def not_streamed(x: Exchange) -> None:
    async with x.slot():
        await x.prefill()
        x.bill(output=len(x.answer.pieces))
    await x.body(200, json.dumps(x.shape.whole(x.record.billed_output)).encode())
