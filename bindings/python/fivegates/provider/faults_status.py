"""Faults that are an HTTP status: error answers, which bill nothing."""

from __future__ import annotations

from fivegates.provider.exchange import Exchange
from fivegates.provider.faults_load import limited
from fivegates.provider.generate import good
from fivegates.provider.registry import Param, fault

__all__: "list[str]" = []

_PAGE = (b"<html>\r\n<head><title>%s</title></head>\r\n<body>\r\n<center><h1>%s"
         b"</h1></center>\r\n<hr><center>edge</center>\r\n</body>\r\n</html>\r\n")


@fault("status", "429 that does not say when to come back")
async def rate_limited(x: Exchange) -> None:
    await x.refuse("rate")


@fault("status", "429 with Retry-After",
       seconds=Param(1, 0, 604_800, "what it says"))
async def rate_limited_retry_after(x: Exchange, seconds: float) -> None:
    await limited(x, seconds)


@fault("status", "429: this request is above the limit itself; waiting never "
       "helps")
async def too_large(x: Exchange) -> None:
    await x.refuse("too_large")


@fault("status", "429 (Anthropic: 400): the account is empty")
async def quota_exhausted(x: Exchange) -> None:
    await x.refuse("quota")


@fault("status", "500, or another status",
       status=Param(500, 400, 599, "HTTP status", True))
async def server_error(x: Exchange, status: int) -> None:
    await x.refuse("server", status=status)


@fault("status", "503")
async def unavailable(x: Exchange) -> None:
    await x.refuse("unavailable")


@fault("status", "529 of Anthropic, 503 of OpenAI: overloaded")
async def overloaded(x: Exchange) -> None:
    await x.refuse("overloaded")


@fault("status", "502 with a page of HTML from something in between")
async def bad_gateway(x: Exchange) -> None:
    await x.body(502, _PAGE % (b"502 Bad Gateway", b"502 Bad Gateway"),
                 "text/html")


@fault("status", "504 with a page of HTML; the model had worked for nobody",
       after_s=Param(1, 0, 3600, "seconds until then"))
async def gateway_timeout(x: Exchange, after_s: float) -> None:
    x.bill(prompt=True, output=len(x.answer.pieces))
    await x.silence(after_s)
    await x.body(504, _PAGE % (b"504 Gateway Time-out", b"504 Gateway Time-out"),
                 "text/html")


@fault("status", "401: the key is not accepted")
async def key_refused(x: Exchange) -> None:
    await x.refuse("key")


@fault("status", "404: no such model")
async def no_model(x: Exchange) -> None:
    await x.refuse("no_model")


@fault("status", "400: the prompt is too long")
async def context_length(x: Exchange) -> None:
    await x.refuse("context")


@fault("status", "400: a parameter that this model does not take")
async def unsupported(x: Exchange) -> None:
    await x.refuse("unsupported")


@fault("status", "400: a content filter refused the prompt")
async def content_filter(x: Exchange) -> None:
    await x.refuse("filter")


@fault("status", "400: a conversation may not end with the assistant's words")
async def prefill_rejected(x: Exchange) -> None:
    await x.refuse("prefill")


@fault("status", "a tool is called and acts; then 500 to the first requests "
       "that bring its result",
       times=Param(3, 1, 1000, "requests that get 500", True))
async def tool_then_error(x: Exchange, times: int) -> None:
    if x.asked.after_tool and x.state.setdefault("given", 0) < times:
        x.state["given"] += 1
        await x.refuse("server")
        return
    await good(x)
