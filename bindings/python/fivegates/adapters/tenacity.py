"""tenacity asks the engine: whether to send, when, and how often.

    policy = EngineRetry(engine, "support-answer", prompt_tokens=900)

    @tenacity.retry(**policy.options())             # async def: aoptions()
    def answer(messages):
        attempt = current_attempt()                 # route, model, changes
        return client_for(attempt).create(**attempt.apply(...))

Also piece by piece: Retrying(retry=policy.retry, wait=policy.wait,
stop=policy.stop, before=policy.before). All four are needed: `before` is
tenacity's only hook ahead of the first send, and asks permission for each; a
refusal there is raised as Refused, nothing having been sent.

Each call of the function is a call of the engine, however many threads or
tasks run it. It ends as the function's value, as Refused from the function's
last exception (reraise=True: as that exception, its .refused set), or as any
exception that is no failed request, unchanged. Keep the SDK's own retries off.

What it cannot see: how far a request came (the exception's class says, where
it can; in doubt it was sent), and what came before the function returned or
raised, unless the function tells: current_attempt().watch(stream). Until then
silence is not noticed, the first token's time is not learned, and a stream
that is returned unread counts as answered. A caller who leaves during a wait
is a call dropped: nobody is blamed, and the ledger has no end line for it. In
`for attempt in Retrying(...)`, a `return` or `break` inside the block hides
the success from tenacity and so from the engine.
"""

from __future__ import annotations

import asyncio
import inspect
import time
import typing

import tenacity

from fivegates.adapters.guard import Calls, Guard
from fivegates.attempt import CURRENT
from fivegates.errors import ArgumentError, StateError

if typing.TYPE_CHECKING:
    from typing_extensions import Unpack

    from fivegates._core import Engine, _Options
    from fivegates.attempt import Attempt

__all__ = ["EngineRetry"]

# The name of what is kept on a RetryCallState, which is one call's own.
_KEPT = "fivegates_call"


class _Kept:
    """A call, what was decided of which attempt, and the attempt outside."""

    def __init__(self, guard: Guard, outside: "Attempt | None") -> None:
        self.guard = guard
        self.outside = outside
        self.decided = 0
        self.again = False
        self.wait_s = 0.0


class EngineRetry:
    """One object for retry=, wait=, stop= and before= of tenacity.

    facts(retry_state) answers facts of one call (prompt_tokens, tenant, ...)
    from the function's arguments. sleep replaces tenacity's own; for
    aoptions() it is a coroutine function. options are those of engine.run():
    facts of Engine.begin(), on_decision, ledger, evidence, reraise.
    """

    def __init__(self, engine: "Engine", workflow: str, *,
                 facts: "typing.Callable[[tenacity.RetryCallState], dict[str, typing.Any]] | None" = None,
                 sleep: "typing.Callable[[float], typing.Any] | None" = None,
                 **options: "Unpack[_Options]") -> None:
        self._calls = Calls(engine, workflow, **options)
        self._facts = facts
        self._sleep = sleep

    def options(self) -> "dict[str, typing.Any]":
        """Arguments of tenacity.retry() and Retrying()."""
        return self._with_sleep({"retry": self.retry, "wait": self.wait,
                                 "stop": self.stop, "before": self.before})

    def aoptions(self) -> "dict[str, typing.Any]":
        """The same for AsyncRetrying and coroutine functions."""
        if not inspect.iscoroutinefunction(tenacity.AsyncRetrying.iter):
            raise ArgumentError("this tenacity does not await `before`; "
                                "install tenacity 8.3 or later")
        return self._with_sleep({"retry": self.retry, "wait": self.wait,
                                 "stop": self.stop, "before": self.abefore})

    def _with_sleep(self, out: "dict[str, typing.Any]") -> "dict[str, typing.Any]":
        if self._sleep is not None:
            out["sleep"] = self._sleep
        return out

    # ---- before a send

    def before(self, state: tenacity.RetryCallState) -> None:
        """Asks permission for the send that follows. Raises Refused."""
        if isinstance(state.retry_object, tenacity.AsyncRetrying):
            raise ArgumentError("before() may have to wait, which would hold "
                                "the event loop up; use aoptions()")
        kept = self._begun(state)
        CURRENT.set(kept.guard.ready(self._sleep or time.sleep))

    async def abefore(self, state: tenacity.RetryCallState) -> None:
        """The same for AsyncRetrying."""
        kept = self._begun(state)
        CURRENT.set(await kept.guard.aready(self._sleep or asyncio.sleep))

    def _begun(self, state: tenacity.RetryCallState) -> _Kept:
        kept: "_Kept | None" = getattr(state, _KEPT, None)
        if kept is None:
            found = self._facts(state) if self._facts is not None else {}
            kept = _Kept(self._calls.begin(found), CURRENT.get())
            setattr(state, _KEPT, kept)
        else:
            kept.guard.wait_s = 0.0  # tenacity has slept it
        return kept

    # ---- after it

    def retry(self, state: tenacity.RetryCallState) -> bool:
        """Whether another attempt may follow. Raises Refused."""
        return self._decide(state).again

    def wait(self, state: tenacity.RetryCallState) -> float:
        """Seconds until then."""
        return self._decide(state).wait_s

    def stop(self, state: tenacity.RetryCallState) -> bool:
        """False: the engine stops a call by raising."""
        self._decide(state)
        return False

    def _decide(self, state: tenacity.RetryCallState) -> _Kept:
        """Once for each attempt, by whichever hook comes first: the order of
        stop and wait differs between releases, and TryAgain skips retry."""
        kept: "_Kept | None" = getattr(state, _KEPT, None)
        if kept is None or state.outcome is None:
            raise StateError("sent without permission: give tenacity "
                             "before=policy.before too, or **policy.options()")
        if kept.decided == state.attempt_number:
            return kept
        kept.decided = state.attempt_number
        kept.again = False
        CURRENT.set(kept.outside)
        error = state.outcome.exception()
        if error is None:
            kept.again = not kept.guard.succeeded(state.outcome.result())
        else:
            kept.guard.failed(error)
            kept.again = True
        kept.wait_s = kept.guard.wait_s
        return kept
