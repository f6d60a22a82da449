"""One call of the engine, driven from another library's hooks.

engine.run() is a loop around a send. Where the loop is another library's, its
hooks tell a Guard what happened and are told what to do:

    guard = calls.begin({"stream": False})      # Refused: not even a first send
    attempt = guard.ready(time.sleep)           # waits, asks: may be sent now
    guard.failed(exc)                           # Refused, or ready() once more
    guard.succeeded(answer)                     # True: this is the answer
    guard.gone()                                # the caller left

The decisions, the ledger and the order of things are those of engine.run():
both drive the same steps.
"""

from __future__ import annotations

import contextlib
import typing

from fivegates.attempt import CURRENT
from fivegates.errors import ArgumentError, Refused
from fivegates.evidence import evidence_of
from fivegates.driven import Driven

if typing.TYPE_CHECKING:
    from typing_extensions import Unpack

    from fivegates._core import Decision, Engine, Unable, _Options
    from fivegates.attempt import Attempt

__all__ = ["Calls", "Guard", "current_attempt"]

Facts = typing.Dict[str, typing.Any]
Lacks = typing.Callable[["Decision"], "Unable | None"]

# What run() offers and a hook cannot: an answer in place of a send.
_RUN_ONLY = ("cached", "cache", "cache_key", "preset", "queue", "clear",
             "resume", "call")


def current_attempt() -> "Attempt | None":
    """The attempt this code runs in: its route, model, changes, time-outs.

    For code that is not given it: called by tenacity, or deep in a send of
    engine.run(). None outside of an attempt.
    """
    return CURRENT.get()


class _Steps(Driven):
    """The steps of engine.run() for a host that sleeps before it asks, and
    may not be able to do all that is decided."""

    cannot: "Lacks | None" = None

    def lacks(self, decision: "Decision") -> "Unable | None":
        return self.cannot(decision) if self.cannot is not None else None

    def _next(self, decision: "Decision") -> "typing.Generator[tuple[typing.Any, ...], typing.Any, Decision | None]":
        if not decision.wait_ms and self.lacks(decision) is None:
            yield "sleep", 0.0  # the host comes back to ask for permission
        return (yield from super()._next(decision))


class Calls:
    """What an adapter is given once: engine, workflow, hooks, facts.

    options are those of engine.run() but for answers without a send: facts of
    Engine.begin(), on_decision, ledger, evidence, reraise.
    """

    def __init__(self, engine: "Engine", workflow: str,
                 **options: "Unpack[_Options]") -> None:
        known = engine.policy.workflows()
        if workflow not in known:
            raise ArgumentError(f"no workflow {workflow!r} in the card; it has "
                                f"{', '.join(known)}")
        given: Facts = dict(options)
        for word in _RUN_ONLY:
            if word in given:
                raise ArgumentError(
                    f"{word}: a hook of another library's retry loop cannot "
                    f"do this; use engine.run(), or catch Refused")
        self.engine = engine
        self.workflow = workflow
        self.on_decision = given.pop("on_decision", None)
        self.ledger = given.pop("ledger", None)
        self.evidence = given.pop("evidence", None)
        self.reraise = bool(given.pop("reraise", False))
        self.facts = given

    def begin(self, found: Facts, *, unable: "typing.Iterable[Unable]" = (),
              lacks: "Lacks | None" = None) -> "Guard":
        """Begins a call. found are facts of this request; they win.

        unable: what the adapter never can do. lacks(decision) says what it
        cannot do of one decision (reroute, edit), so that the engine decides
        again; None: nothing. Raises Refused, or Queued, like run().
        """
        facts = {**self.facts, **found}
        words = facts.get("unable") or ()
        facts["unable"] = {*([words] if isinstance(words, str) else words),
                           *unable}
        steps = _Steps(self.engine, self.workflow,
                       on_decision=self.on_decision, ledger=self.ledger,
                       cached=None, preset=None, queue=None, clear=None,
                       evidence=self._evidence, outcome=False,
                       reraise=self.reraise, tick=False, call=None,
                       facts=facts)
        steps.cannot = lacks
        return Guard(steps)

    def _evidence(self, exc: BaseException) -> "Facts | None":
        """The evidence, with the requests an inner layer made counted."""
        found: "Facts | None" = (
            self.evidence(exc) if self.evidence is not None else None
        ) or evidence_of(exc)
        made = _requests_made(exc)
        if found is not None and made > 1:
            found.setdefault("inner_attempts", made)
        return found


def _requests_made(exc: BaseException) -> int:
    """How many requests an inner layer made, where its exception tells:
    tenacity's RetryError, a response that went through urllib3's Retry, an
    error of botocore."""
    last: typing.Any = getattr(exc, "last_attempt", None)
    made = getattr(last, "attempt_number", 1)
    response: typing.Any = getattr(exc, "response", None)
    if isinstance(response, dict):
        meta = response.get("ResponseMetadata") or {}
        made = meta.get("RetryAttempts", 0) + 1
    else:
        retries = getattr(getattr(response, "raw", None), "retries", None)
        made += len(getattr(retries, "history", ()))
    return made if isinstance(made, int) else 1


class Guard:
    """One call. wait_s: what must pass before the next permit(); attempt:
    the one that may be sent, or runs."""

    def __init__(self, steps: _Steps) -> None:
        self._driven = steps
        self._steps = steps.steps()
        self.call = steps.call
        self.wait_s = 0.0
        self.attempt: "Attempt | None" = None
        self.ended = False
        self._given = False
        self._go(None)

    def _go(self, reply: "tuple[str, typing.Any] | None") -> bool:
        """Tells the loop what came. False: it has ended with the answer."""
        self.wait_s, self.attempt = 0.0, None
        try:
            todo = self._steps.send(reply)
        except StopIteration:
            self.ended = True
            return False
        except BaseException as exc:
            self.ended = True
            self._driven.broken(exc)
            raise
        if todo[0] == "sleep":
            self.wait_s = todo[1]
        else:
            self.attempt = todo[1]
        return True

    def permit(self) -> "Attempt | None":
        """Asks to send. None: wait_s must pass, then ask again. May raise
        Refused."""
        self._go(None)
        return self.attempt

    def ready(self, sleep: "typing.Callable[[float], object]") -> "Attempt":
        """Waits and asks until the engine permits the send."""
        while True:
            self._wait(sleep)
            attempt = self.permit()
            if attempt is not None:
                return attempt

    def _wait(self, sleep: "typing.Callable[[float], object]") -> None:
        try:
            if self.wait_s:
                sleep(self.wait_s)
        except BaseException:
            self.gone()
            raise

    async def aready(self, sleep: "typing.Callable[[float], typing.Awaitable[object]]") -> "Attempt":
        """The same for async code."""
        while True:
            try:
                if self.wait_s:
                    await sleep(self.wait_s)
            except BaseException:
                self.gone()
                raise
            attempt = self.permit()
            if attempt is not None:
                return attempt

    def failed(self, exc: BaseException) -> None:
        """The attempt failed. Returns where another may be sent: ready().

        Raises Refused from exc, or exc itself (reraise=True). An exception
        that is no failed request ends the call and is raised unchanged; so
        are those by which the caller leaves, and refusals of a layer within.
        """
        if (self.ended or not isinstance(exc, Exception)
                or isinstance(getattr(exc, "refused", None), Refused)):
            self.gone()
            raise exc
        self._go(("error", exc))

    def succeeded(self, answer: object = None) -> bool:
        """The attempt was answered. False: the answer was rejected and
        another may be sent: ready(). Raises Refused."""
        return not self._go(("ok", answer))

    def given(self) -> None:
        """The answer's beginning is the caller's now: no taking it back."""
        self._given = True
        if self.attempt is not None and not self.attempt.seen["visible"]:
            self.attempt.token(1)

    def finished(self, answer: object = None) -> None:
        """The last of an answer came whose beginning was given(): the caller
        has it all, whatever the engine thinks of it. Again: nothing."""
        if not self.ended:
            with contextlib.suppress(Refused):
                self.succeeded(answer)
            self.gone()

    def closed(self, over: bool) -> None:
        """The caller closed an answer; over: after the answer's own end."""
        if self._given and over:
            self.finished()
        elif self._given:
            self.gone()

    def cut(self, exc: BaseException) -> typing.NoReturn:
        """An answer broke whose beginning was given(): nothing is sent again.
        Raises Refused from exc, or exc."""
        self.failed(exc)
        self.gone()
        raise exc

    def gone(self) -> None:
        """The caller left: no other send, no blame. Again: nothing."""
        if not self.ended:
            self.ended = True
            self._steps.close()
            self._driven.gone()
