"""A chat endpoint that streams, with fivegates under the openai package."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import typing

import fastapi
import httpx2
import openai
from fastapi.responses import JSONResponse, StreamingResponse
from openai.types.chat import ChatCompletionChunk
from pydantic import BaseModel

import fivegates
from fivegates import transport

T = typing.TypeVar("T")


class Question(BaseModel):
    text: str


def make_app(engine: fivegates.Engine) -> fastapi.FastAPI:
    main = engine.policy.route("main")
    model = openai.AsyncOpenAI(
        base_url=main["base_url"], api_key=os.environ[main["key_env"]],
        http_client=transport.async_client(httpx2, engine, "chat"))

    @contextlib.asynccontextmanager
    async def lifespan(app: fastapi.FastAPI) -> "typing.AsyncIterator[None]":
        yield
        await model.close()

    app = fastapi.FastAPI(lifespan=lifespan)

    @app.post("/chat")
    async def chat(question: Question, request: fastapi.Request) -> fastapi.Response:
        # Comes back with the first content: until then another attempt is
        # possible, and a refusal is still an HTTP error.
        asked = model.chat.completions.create(
            model="gpt-4o", stream=True, max_tokens=300,
            messages=[{"role": "user", "content": question.text}])
        try:
            answer = await while_here(request, asked)
        except fivegates.Refused as refused:
            return refusal(refused)
        if answer is None:
            return fastapi.Response(status_code=499)  # nobody reads it
        return StreamingResponse(events(answer), media_type="text/event-stream")

    return app


async def while_here(request: fastapi.Request,
                     work: "typing.Coroutine[typing.Any, typing.Any, T]") -> "T | None":
    """What work returns; None when the client left first: it is cancelled.

    FastAPI itself stops an endpoint of a client that left only once it streams.
    """
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(request.receive())  # nothing else is to come
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        task.cancel()
        gone.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


async def events(answer: "openai.AsyncStream[ChatCompletionChunk]",
                 ) -> "typing.AsyncIterator[str]":
    """The answer, event by event. Whoever stops reading stops the upstream."""
    async with answer:
        try:
            async for chunk in answer:
                if chunk.choices and chunk.choices[0].delta.content:
                    yield event("text", chunk.choices[0].delta.content)
            yield event("done", "")
        except fivegates.Refused as refused:  # 200 is out: it can only be said
            yield event("error", refused.user_text)


def event(name: str, text: str) -> str:
    return f"event: {name}\ndata: {json.dumps({'text': text})}\n\n"


def refusal(refused: fivegates.Refused) -> JSONResponse:
    """An honest error: status, when to come back, a sentence, no internals."""
    hint = refused.decision.http_hint or {"status": 503, "retry_after_ms": 0}
    seconds = -(-hint["retry_after_ms"] // 1000)
    return JSONResponse(
        {"error": refused.user_text, "may_retry": refused.user_may_retry},
        status_code=hint["status"],
        headers={"Retry-After": str(seconds)} if seconds else None)
