"""The loop around a send: engine.run() and await engine.arun().

    def send(attempt):
        return client.chat.completions.create(
            **attempt.apply({"model": "gpt-4o", "messages": messages}))

    answer = engine.run("customer-support-answer", send, prompt_tokens=900)

The loop asks the engine before every send, sleeps when told to, switches
routes, reports progress, and never decides anything itself. An exception that
is no failed request (a bug in send) ends the call and goes through unchanged;
so do KeyboardInterrupt, CancelledError and GeneratorExit.
"""

from __future__ import annotations

import asyncio
import inspect
import time
import typing

from fivegates.attempt import CURRENT, Attempt
from fivegates.driven import Cache, CacheKey, Driven, Hook, Outcome, prior_of
from fivegates.errors import ArgumentError

if typing.TYPE_CHECKING:
    from fivegates._core import Call, Engine

__all__ = ["Outcome", "arun", "prior_of", "run"]

T = typing.TypeVar("T")
Sender = typing.Union["typing.Callable[[Attempt], T]",
                      "typing.Mapping[str, typing.Callable[[Attempt], T]]"]


def _routes(engine: "Engine", send: "Sender[typing.Any]",
            ) -> "typing.Collection[str] | None":
    """The routes there is a sender for; None: one sender serves all."""
    if not isinstance(send, typing.Mapping):
        return None
    known = engine.policy.routes()
    for name in send:
        if name not in known:
            raise ArgumentError(f"a sender for {name!r}, which is no route of "
                                f"the card; it has {', '.join(known)}")
    return send.keys()


def _sender(send: "Sender[T]", attempt: Attempt) -> "typing.Callable[[Attempt], T]":
    if not isinstance(send, typing.Mapping):
        return send
    found = send.get(attempt.route or "")
    if found is None:
        raise ArgumentError(f"no sender for route {attempt.route}; the dict "
                            f"given to run() has {', '.join(send)}")
    return found


def run(engine: "Engine", workflow: str, send: "Sender[T]",
        *, on_decision: "Hook | None" = None, ledger: typing.Any = None,
        cached: "Hook | None" = None, preset: "Hook | bool | None" = None,
        queue: "Hook | None" = None, clear: "Hook | None" = None,
        evidence: "Hook | None" = None, cache: "Cache | None" = None,
        cache_key: "CacheKey | None" = None, outcome: bool = False,
        reraise: bool = False, call: "Call | None" = None,
        sleep: "typing.Callable[[float], object]" = time.sleep,
        **facts: typing.Any) -> T:
    """Runs a call to its end and returns what send, or a stand-in, returned.

    send(attempt) makes one request, without retries of its own, and returns
    the answer or raises. A dict of them, {route: send}, serves stand-ins that
    speak another API; a route without one is not used. Facts are those of Engine.begin().

    on_decision(decision, call) hears every decision. ledger.write(line) gets
    the ledger. cached(decision) and preset(decision) answer without a send
    (None: cannot). preset=True answers decision.text: the card's text in the
    call's language. cache keeps accepted answers under cache_key (the request,
    or a text) and serves one where the ladder says `cached`: fivegates.cache.
    clear(decision) takes back what was shown. queue(decision, call) puts the
    call away; without it Queued is raised. evidence(exception) may answer
    evidence for exceptions this package does not know. call goes on with a
    call as its next step: the next model request of an agent's loop
    (engine.run(..., outcome=True) answers an Outcome that has the call).

    Raises Refused from the last attempt's exception when the engine ends the
    call; with reraise=True that exception itself, its .refused set.
    """
    driven = Driven(engine, workflow, on_decision=on_decision, ledger=ledger,
                    cached=cached, preset=preset, queue=queue, clear=clear,
                    evidence=evidence, outcome=outcome, reraise=reraise,
                    tick=False, call=call, facts=facts, cache=cache,
                    cache_key=cache_key, routes=_routes(engine, send))
    steps = driven.steps()
    reply: typing.Any = None
    try:
        while True:
            todo = steps.send(reply)
            if todo[0] == "sleep":
                reply = sleep(todo[1])
            elif todo[0] == "ask":
                reply = todo[1](*todo[2])
            else:
                inside = CURRENT.set(todo[1])
                try:
                    reply = ("ok", _sender(send, todo[1])(todo[1]))
                except Exception as exc:
                    reply = ("error", exc)
                finally:
                    CURRENT.reset(inside)
                if inspect.iscoroutine(reply[1]):
                    reply[1].close()
                    raise ArgumentError("send is a coroutine function; use "
                                        "await engine.arun()")
    except StopIteration as stop:
        return typing.cast(T, stop.value)
    except BaseException as exc:
        driven.broken(exc)
        raise
    finally:
        steps.close()


async def arun(engine: "Engine", workflow: str,
               send: "Sender[typing.Awaitable[T]]", *,
               on_decision: "Hook | None" = None, ledger: typing.Any = None,
               cached: "Hook | None" = None, preset: "Hook | bool | None" = None,
               queue: "Hook | None" = None, clear: "Hook | None" = None,
               evidence: "Hook | None" = None, cache: "Cache | None" = None,
               cache_key: "CacheKey | None" = None, outcome: bool = False,
               reraise: bool = False, call: "Call | None" = None,
               sleep: "typing.Callable[[float], typing.Awaitable[object]]" = asyncio.sleep,
               **facts: typing.Any) -> T:
    """run() for async code: send is a coroutine function.

    A silent attempt is noticed while it runs: when the engine decides to send
    elsewhere, the task of the attempt is cancelled.
    """
    driven = Driven(engine, workflow, on_decision=on_decision, ledger=ledger,
                    cached=cached, preset=preset, queue=queue, clear=clear,
                    evidence=evidence, outcome=outcome, reraise=reraise,
                    tick=True, call=call, facts=facts, cache=cache,
                    cache_key=cache_key, routes=_routes(engine, send))
    steps = driven.steps()
    reply: typing.Any = None
    try:
        while True:
            todo = steps.send(reply)
            if todo[0] == "sleep":
                reply = await sleep(todo[1])
            elif todo[0] == "ask":
                reply = todo[1](*todo[2])
                if inspect.isawaitable(reply):
                    reply = await reply
            else:
                reply = await _awaited(driven, _sender(send, todo[1]), todo[1])
    except StopIteration as stop:
        return typing.cast(T, stop.value)
    except BaseException as exc:
        driven.broken(exc)
        raise
    finally:
        steps.close()


async def _awaited(driven: Driven,
                   send: "typing.Callable[[Attempt], typing.Awaitable[T]]",
                   attempt: Attempt) -> "tuple[str, typing.Any]":
    """Runs one send, looking at the engine's clocks while it runs."""
    inside = CURRENT.set(attempt)
    try:
        sending = send(attempt)
        if not inspect.isawaitable(sending):
            raise ArgumentError("send must be a coroutine function for arun(); "
                                "run() takes a plain one")
        task: "asyncio.Future[T]" = asyncio.ensure_future(sending)
    finally:
        CURRENT.reset(inside)
    wake_ms = attempt.decision.wake_ms
    try:
        while True:
            done, _ = await asyncio.wait(
                {task}, timeout=wake_ms / 1000 if wake_ms else None)
            if done:
                error = task.exception() if not task.cancelled() else None
                if task.cancelled():  # by somebody else: not a failure
                    raise asyncio.CancelledError
                if error is None:
                    return "ok", task.result()
                if not isinstance(error, Exception):
                    raise error
                return "error", error
            if not attempt.sent_said:
                attempt.sent()  # in doubt it was; silence counts from here
            decision = driven.call.deadline()
            if decision.action == "keep_waiting":
                wake_ms = decision.wake_ms or decision.wait_ms
                continue
            driven.error = TimeoutError(
                f"attempt {attempt.number} on {attempt.route}: "
                f"{decision.kind}")
            return "decided", decision
    finally:
        if not task.done():
            task.cancel()
        await asyncio.gather(task, return_exceptions=True)
