"""What can go wrong. A refusal is a decision, not an error: see Refused."""

from __future__ import annotations

import time
import types
import typing

if typing.TYPE_CHECKING:
    from fivegates._core import Call, Decision

__all__ = ["ArgumentError", "EditError", "FivegatesError", "PolicyError",
           "Queued", "Refused", "RegionError", "StateError", "StreamError",
           "decision_of"]


class FivegatesError(Exception):
    """Base of all errors of this package.

    result is the library's word for it: arg, state, abi, region, full.
    """

    result: str = "error"

    def __init__(self, message: str, result: "str | None" = None) -> None:
        super().__init__(message, result)
        if result is not None:
            self.result = result

    def __str__(self) -> str:
        return str(self.args[0])


class ArgumentError(FivegatesError, ValueError):
    """A value outside its range, or a name the card does not have."""

    result = "arg"


class StateError(FivegatesError, RuntimeError):
    """The call has ended, or belongs to another engine or process."""

    result = "state"


class RegionError(FivegatesError):
    """A region file that cannot be used, or no room left in it."""

    result = "region"


class PolicyError(FivegatesError, ValueError):
    """A card that does not load.

    code is one of names("load"); path names the place in the card
    (workflows.w.budget.elapsed_ms), line and column the place in the text
    (0: not known); remedy says what to do; file is where the text came from.
    """

    def __init__(self, message: str, code: str, path: str = "", line: int = 0,
                 column: int = 0, file: "str | None" = None) -> None:
        super().__init__(message, "policy")
        self.args = (message, code, path, line, column, file)
        self.message = message
        self.code = code
        self.path = path
        self.line = line
        self.column = column
        self.file = file

    @property
    def remedy(self) -> str:
        """What to do: the message's last clause."""
        _, mark, last = self.message.rpartition("; ")
        return last if mark else self.message

    def __str__(self) -> str:
        place = [self.file] if self.file else []
        if self.line:
            place.append(f"{self.line}:{self.column}" if self.column
                         else str(self.line))
        where = ":".join(place)
        parts = [part for part in (where, self.path) if part]
        return ": ".join([*parts, f"{self.message} [{self.code}]"])


# For end users, by the status an outer layer is told.
_USER_TEXTS = {
    400: "This request cannot be answered as it is.",
    409: "It is not certain yet what was done. Please do not repeat this "
         "until that is known.",
    429: "Too many requests are waiting right now. Please try again in a "
         "moment.",
    499: "This request was cancelled.",
    502: "No whole answer came. Please try again.",
    503: "We cannot answer right now. Please try again later.",
}


class StreamError(Exception):
    """The stream ended without its end, or carried an error event.

    evidence is what engine.run(evidence=...) needs; the runner finds it.
    """

    def __init__(self, message: str, evidence: "dict[str, typing.Any]") -> None:
        super().__init__(message)
        self.evidence = evidence


class EditError(Exception):
    """An edit that the engine asked for cannot be made to this request.

    Raised by Attempt.apply() before anything was sent; the runner has the
    engine decide again without edits.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.evidence: "dict[str, typing.Any]" = {
            "origin": "local", "phase": "connect",
            "headers": {"x-should-retry": "false"},  # it would be so again
            "transport": {"lib": "fivegates", "kind": "EditError",
                          "message": message}}


class Refused(FivegatesError):
    """The engine ended the call with fail_closed.

    decision says why; the exception of the last attempt, if there was one, is
    its __cause__. For the end user: user_text and user_may_retry. at_s: when,
    by time.monotonic().
    """

    result = "refused"
    answer: typing.Any = None  # of the last attempt, where it was rejected

    def __init__(self, decision: "Decision", call: "Call | None" = None) -> None:
        super().__init__("")
        self.args = (decision, call)
        self.at_s = time.monotonic()
        self.decision = decision
        self.call = call

    def __str__(self) -> str:
        d = self.decision
        route = f" on {d.route}" if d.route else ""
        return f"{d.action}: {d.reason}{route}"

    @property
    def user_text(self) -> str:
        """A sentence for the end user, in English: no names, no reasons.

        For other languages choose by decision.http_hint["status"] (400, 409,
        429, 499, 502, 503), or let the card's ladder end with a preset.
        """
        hint = self.decision.http_hint
        return _USER_TEXTS[hint["status"] if hint else 503]

    @property
    def user_may_retry(self) -> bool:
        """Whether asking the same again later may help."""
        return bool(self.decision.user["may_retry"])

    def __reduce__(self) -> "tuple[typing.Any, ...]":
        """To another process goes what was decided, not the live call; of a
        class joined with an SDK's own, which is not found there, the refusal.
        """
        return _from_facts, (Queued if isinstance(self, Queued) else Refused,
                             self.decision.to_dict(),
                             getattr(self, "prior", None))


class Queued(Refused):
    """The engine asks for the call to be queued: begin it again after
    decision.wait_ms, with prior=exc.prior: what it has spent so far."""

    prior: "dict[str, int]" = {}

    @property
    def user_text(self) -> str:
        """A sentence for the end user, in English."""
        return "Your request is waiting and will be answered later."

    @property
    def user_may_retry(self) -> bool:
        """False: the call is asked again by whoever queued it."""
        return False


def decision_of(exc: "BaseException | None") -> "Decision | None":
    """What was decided, where an exception is, or came from, a refusal.

    Frameworks wrap the errors of the SDK beneath; the refusal is then the
    cause of what they raise. None: no decision of an engine led here.
    """
    seen: "set[int]" = set()
    while exc is not None and id(exc) not in seen:
        seen.add(id(exc))
        found = getattr(exc, "refused", exc)  # of engine.run(reraise=True)
        if isinstance(found, Refused):
            return found.decision
        exc = exc.__cause__ or exc.__context__
    return None


def _from_facts(kind: "type[Refused]", facts: "dict[str, typing.Any]",
                prior: "dict[str, int] | None") -> Refused:
    decision = types.SimpleNamespace(**facts, to_dict=lambda: facts)
    out = kind(typing.cast("Decision", decision))
    if prior is not None:
        out.__dict__["prior"] = prior
    return out
