"""Faults of a provider under load: the six of the drills, and a slow start."""

from __future__ import annotations

import dataclasses
import datetime
import math
import time

from fivegates.provider.exchange import Exchange
from fivegates.provider.generate import good
from fivegates.provider.registry import Param, fault

__all__ = ["limited"]

_SLOWER = Param(3, 1, 1000, "times slower")


@fault("load", "no fault: a good answer")
async def ok(x: Exchange) -> None:
    await good(x)


@fault("load", "prompt and tokens take longer", slower=_SLOWER)
async def brownout(x: Exchange, slower: float) -> None:
    await good(x, slower, slower)


@fault("load", "brownout, of a provider that stops when the client hangs up",
       slower=_SLOWER)
async def brownout_cancel(x: Exchange, slower: float) -> None:
    x.speed = dataclasses.replace(x.speed, frees_when_left=True)
    await good(x, slower, slower)


@fault("load", "brownout behind a gateway that sends each request several "
       "times by itself; each is billed, the last is answered",
       slower=_SLOWER, tries=Param(2, 1, 10, "sendings of each request", True))
async def brownout_layered(x: Exchange, slower: float, tries: int) -> None:
    for _ in range(tries - 1):
        async with x.slot():
            await x.prefill(slower)
    await good(x, slower, slower)


@fault("load", "503 in a moment",
       after_s=Param(0.04, 0, 60, "seconds until then"))
async def blackout(x: Exchange, after_s: float) -> None:
    await x.silence(after_s)
    await x.refuse("unavailable")


@fault("load", "so many requests in each window; 429 with the time of reset "
       "to the others", requests=Param(2, 0, 10_000, "of each window", True),
       window_s=Param(1, 0.01, 3600, "length of a window, seconds"))
async def ratelimit(x: Exchange, requests: int, window_s: float) -> None:
    now = time.monotonic()
    began = x.state.setdefault("began", now)
    window, inside = divmod(now - began, window_s)
    if x.state.get("window") != window:
        x.state.update(window=window, used=0)
    if x.state["used"] < requests:
        x.state["used"] += 1
        await good(x)
        return
    await limited(x, window_s - inside)


async def limited(x: Exchange, wait_s: float) -> None:
    """429 that says when to come back, as the API says it."""
    x.record.wait_s = wait_s
    headers = {"Retry-After": str(max(1, math.ceil(wait_s)))}
    if x.asked.api == "messages":
        at = datetime.datetime.fromtimestamp(
            math.ceil(time.time() + wait_s), datetime.timezone.utc)
        headers["anthropic-ratelimit-requests-remaining"] = "0"
        headers["anthropic-ratelimit-requests-reset"] = (
            at.strftime("%Y-%m-%dT%H:%M:%SZ"))
    else:
        headers["retry-after-ms"] = str(math.ceil(wait_s * 1000))
        headers["x-ratelimit-remaining-requests"] = "0"
        headers["x-ratelimit-reset-requests"] = f"{math.ceil(wait_s * 1000)}ms"
    await x.refuse("rate", headers)


@fault("load", "the first token is in time, the others come many times slower",
       slower=Param(70, 1, 100_000, "times slower"))
async def trickle(x: Exchange, slower: float) -> None:
    await good(x, 1, slower)


@fault("load", "the first token takes long; what follows does not",
       first_token_s=Param(20, 0, 3600, "seconds until the first token"))
async def slow_first_token(x: Exchange, first_token_s: float) -> None:
    x.speed = dataclasses.replace(x.speed, first_token_s=first_token_s)
    await good(x)
