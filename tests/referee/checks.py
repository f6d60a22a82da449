"""What a careful engineer would look at after a fault. A check reads what the
server saw and what the user got, and knows nothing of how a system works.

A function here makes a Check; its test answers None where all is well, else
what was seen instead.
"""

from __future__ import annotations

import dataclasses
import json
import typing

from referee.ask import Ask, Got, Setup
from referee.journal import Journal, Request

__all__ = ["Check", "Seen", "accounted", "advisory", "all_answered",
           "answered", "at_most", "billed_at_most", "cost_within", "effects",
           "ends_within", "error_names", "hung_up_within", "no_request_after",
           "not_before_retry_after", "never_unchanged", "not_hammered", "on_average", "required",
           "sdk_error", "served_told", "standard"]

SLACK_S = 0.05  # between the clock of a system's process and the server's eye


@dataclasses.dataclass
class Seen:
    """One scenario played to one system."""

    journal: Journal
    got: "list[Got]"
    ask: Ask
    setup: Setup

    def text_of(self, text: str) -> "Request | None":
        """The request whose whole answer a text is, told to its end."""
        return next((one for one in self.journal.requests
                     if one.whole and one.text == text), None)

    @property
    def delivered(self) -> int:
        """Tokens of the whole answers that users have."""
        return sum(len(one.text.split()) for one in self.got
                   if one.complete and self.text_of(one.text))


Test = typing.Callable[[Seen], "str | None"]


@dataclasses.dataclass(frozen=True)
class Check:
    """required: failing it harms somebody; advisory: it could be better."""

    name: str
    test: Test
    required: bool = True


def required(*checks: Check) -> "list[Check]":
    return [dataclasses.replace(one, required=True) for one in checks]


def advisory(*checks: Check) -> "list[Check]":
    return [dataclasses.replace(one, required=False) for one in checks]


def standard(within_s: float) -> "list[Check]":
    """Required whatever happens."""
    return [honest(), one_answer(), ends_within(within_s)]


def _each(test: "typing.Callable[[Seen, Got], str | None]") -> Test:
    def all_of(seen: Seen) -> "str | None":
        return next(filter(None, (test(seen, one) for one in seen.got)), None)
    return all_of


# ---- what the user got


def honest() -> Check:
    def test(seen: Seen, got: Got) -> "str | None":
        if not got.complete or seen.text_of(got.text) is not None:
            return None
        return f"given out as whole: {got.text[:60]!r}"
    return Check("what is given out as an answer is a whole one", _each(test))


def one_answer() -> Check:
    def test(seen: Seen, got: Got) -> "str | None":
        if any(one.text.startswith(got.text) for one in seen.journal.requests):
            return None
        return f"on the screen: {got.text[:80]!r}" if got.text else None
    return Check("nothing of two answers stands together", _each(test))


def ends_within(seconds: float) -> Check:
    def test(seen: Seen, got: Got) -> "str | None":
        if got.hung:
            return f"not over after {got.seconds:.0f} s"
        return None if got.seconds <= seconds else f"{got.seconds:.1f} s"
    return Check(f"an answer or an error within {seconds:g} s", _each(test))


def answered(by: "str | None" = None) -> Check:
    def test(seen: Seen, got: Got) -> "str | None":
        whole = seen.text_of(got.text) if got.complete else None
        if whole is None:
            return (got.error or "no answer")[:80]
        if by is not None and whole.route != by:
            return f"answered by {whole.route}"
        return None
    return Check("answered" + (f" by {by}" if by else ""), _each(test))


def all_answered(share: float) -> Check:
    def test(seen: Seen) -> "str | None":
        good = sum(one.complete and seen.text_of(one.text) is not None
                   for one in seen.got)
        return (None if good >= share * len(seen.got)
                else f"{good} of {len(seen.got)}")
    return Check(f"{share:.0%} of the users answered", test)


def error_names(*words: str) -> Check:
    """One of the words, in what the exception says."""
    def test(seen: Seen, got: Got) -> "str | None":
        told = (got.error or "no error").lower()
        return (None if any(word in told for word in words) else told[:80])
    return Check(f"the error names the reason ({words[0]})", _each(test))


def sdk_error() -> Check:
    def test(seen: Seen, got: Got) -> "str | None":
        if "openai.OpenAIError" in got.error_bases:
            return None
        return got.error_class or "no error"
    return Check("the error is one of the SDK's", _each(test))


def served_told() -> Check:
    def test(seen: Seen, got: Got) -> "str | None":
        whole = seen.text_of(got.text)
        if whole is None:
            return "no answer"
        model = seen.setup.routes[whole.route].model
        return None if got.model == model else f"told {got.model}, was {model}"
    return Check("the caller is told which model answered", _each(test))


def accounted() -> Check:
    def test(seen: Seen) -> "str | None":
        spent = sum(one.spent or 0 for one in seen.got)
        return (None if spent >= seen.journal.billed
                else f"told {spent} tokens, billed {seen.journal.billed}")
    return Check("what is accounted for covers what was billed", test)


# ---- what the server saw


def at_most(count: int, route: "str | None" = None) -> Check:
    def test(seen: Seen) -> "str | None":
        made = len(seen.journal.on(route) if route else seen.journal.requests)
        return None if made <= count else f"{made} requests"
    where = f" on {route}" if route else ""
    if count == 0:
        return Check(f"no request{where}", test)
    return Check(f"at most {count} request{'s' * (count > 1)}{where}", test)


def on_average(count: float) -> Check:
    def test(seen: Seen) -> "str | None":
        mean = len(seen.journal.requests) / len(seen.got)
        return None if mean <= count else f"{mean:.2f} requests a user"
    return Check(f"at most {count:g} requests a user", test)


def not_before_retry_after(seconds: float) -> Check:
    def test(seen: Seen) -> "str | None":
        for one in seen.journal.requests:
            for later in seen.journal.on(one.route):
                if (one.status == 429 and one.answered_at is not None
                        and later.number > one.number
                        and later.at < one.answered_at + seconds):
                    return f"again after {later.at - one.answered_at:.2f} s"
        return None
    return Check(f"nothing sent there for the {seconds:g} s asked for", test)


def not_hammered(count: int, seconds: float) -> Check:
    def test(seen: Seen) -> "str | None":
        for route in seen.setup.routes:
            made = seen.journal.on(route)
            for one, late in zip(made, made[count:]):
                if one.status == 429 and late.at - one.at < seconds:
                    return f"{count + 1} in {late.at - one.at:.2f} s"
        return None
    return Check(f"at most {count} requests to a route in {seconds:g} s", test)


def never_unchanged() -> Check:
    def test(seen: Seen) -> "str | None":
        bodies = [json.dumps({**one.body, "model": None}, sort_keys=True)
                  for one in seen.journal.requests]
        same = max(map(bodies.count, bodies), default=0)
        return None if same <= 1 else f"the same {same} times"
    return Check("the same request is not sent again", test)


def effects(count: int) -> Check:
    def test(seen: Seen) -> "str | None":
        done = len(seen.journal.effects)
        return None if done <= count else f"done {done} times"
    return Check("the tool acts at most once" if count else
                 "the tool does not act", test)


def billed_at_most(tokens: int) -> Check:
    def test(seen: Seen) -> "str | None":
        billed = seen.journal.billed
        return None if billed <= tokens else f"{billed} billed"
    return Check(f"at most {tokens} tokens billed", test)


def cost_within() -> Check:
    def test(seen: Seen) -> "str | None":
        cap, cost = seen.ask.cap_usd or 0.0, seen.journal.billed_usd
        return None if cost <= cap else f"{cost:.6f} USD of {cap:.6f}"
    return Check("the bill stays within the request's cap", test)


def no_request_after() -> Check:
    def test(seen: Seen, got: Got) -> "str | None":
        if got.left_at is None:
            return "the user never left"
        left = got.left_at - seen.journal.started
        late = [one for one in seen.journal.requests
                if one.at > left + SLACK_S]
        return f"{len(late)} sent for nobody" if late else None
    return Check("nothing is sent for a user who has left", _each(test))


def hung_up_within(seconds: float) -> Check:
    def test(seen: Seen, got: Got) -> "str | None":
        if got.left_at is None:
            return "the user never left"
        left = got.left_at - seen.journal.started
        for one in seen.journal.requests:
            if one.whole or one.left_at is None:
                return "the answer was read to its end"
            if one.left_at > left + seconds:
                return f"hung up {one.left_at - left:.1f} s later"
        return None
    return Check(f"the server is told within {seconds:g} s", _each(test))
