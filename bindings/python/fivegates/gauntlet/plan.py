"""The plan of a gauntlet: which faults, and what a program may do under them.

    limits: {requests_per_user_request: 4, wait_s: 30}
    admits: "no whole answer"
    faults:
      - cut
      - {name: two bad minutes, script: [unavailable, unavailable, ok]}

All of it is optional. A fault is a name of the standard plan, of the
provider's faults, or a script of one's own; limits of a fault go before the
others.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
import typing

from fivegates.provider.registry import FAULTS, Step, step_of
from fivegates.provider.settings import Node, SettingsError, read_value

__all__ = ["Limits", "Plan", "STANDARD", "Trial", "choose", "read_plan",
           "standard_plan"]


@dataclasses.dataclass(frozen=True)
class Limits:
    """What is still allowed."""

    requests_per_user_request: float = 5  # the same program, no fault: 1
    layers: int = 2  # that retry, each inside the other: a queue, an engine
    billed_ratio: float = 5  # tokens billed, to those of a run without a fault
    early_requests: int = 0  # sent again before a Retry-After was over
    requests_per_second_after_429: int = 4  # of one conversation
    doubled_effects: int = 0
    truncated_successes: int = 0
    wait_s: float = 60  # without a request, a token or a word: it hangs
    run_s: float = 600  # of a whole run
    output_mib: float = 16


@dataclasses.dataclass(frozen=True)
class Trial:
    """A fault that the program is run under."""

    name: str
    why: str
    steps: "tuple[Step, ...]"  # of each conversation; the last stays
    limits: Limits
    needs_tools: bool = False  # only for programs that offer a tool


@dataclasses.dataclass(frozen=True)
class Plan:
    trials: "tuple[Trial, ...]"
    limits: Limits  # of the run without a fault
    admits: "re.Pattern[str] | None" = None  # output that says: no full answer


_BOUNDS: "dict[str, tuple[float, float, bool]]" = {
    "requests_per_user_request": (1, 1e6, False),
    "layers": (1, 100, True),
    "billed_ratio": (0, 1e6, False),
    "early_requests": (0, 1e6, True),
    "requests_per_second_after_429": (1, 1e6, True),
    "doubled_effects": (0, 1e6, True),
    "truncated_successes": (0, 1e6, True),
    "wait_s": (0.1, 86_400, False),
    "run_s": (0.1, 86_400, False),
    "output_mib": (0.001, 4096, False),
}

class Standard(typing.NamedTuple):
    """A fault of the standard plan: its script for each conversation, and how
    many requests for one are enough where sending it again is no use."""

    name: str
    script: "list[typing.Any]"
    why: str
    most: float = float("inf")


_STANDARD: "list[tuple[typing.Any, ...]]" = [
    ("rate_limited", ["rate_limited"],
     "429 for good, without Retry-After: who slows down by itself?"),
    ("rate_limited_retry_after", ["rate_limited_retry_after", "ok"],
     "429 once, that says when: coming earlier prolongs the limit."),
    ("server_error_once", ["server_error", "ok"],
     "500 once: it costs one more request."),
    ("blackout", ["blackout"],
     "503 for good: hammering helps nobody."),
    ("brownout", [{"fault": "brownout", "slower": 20}],
     "Everything is many times slower, and still an answer."),
    ("ratelimit", ["ratelimit"], "Two requests a second, 429 to the others."),
    ("trickle", ["trickle"],
     "The first token is in time, the others come 70 times slower."),
    ("slow_first_token", [{"fault": "slow_first_token", "first_token_s": 2}],
     "The first token takes two seconds: slow is not dead."),
    ("no_response", ["no_response"],
     "The request is taken and billed, and nothing ever comes."),
    ("reset_once", ["reset", "ok"],
     "The connection dies before the head; the request may have run."),
    ("cut", ["cut"], "Five tokens are there when the connection dies."),
    ("stall", ["stall"], "Five tokens, then silence."),
    ("no_terminal", ["no_terminal"],
     "The answer stops early and politely; only its end is missing."),
    ("malformed_chunk", ["malformed_chunk"], "An event that is no JSON."),
    ("pings", ["pings"], "Keep-alives, and no word: no read times out."),
    ("quota_in_stream", ["quota_in_stream"],
     "200, and the only event says that the account is empty."),
    ("error_event", [{"fault": "error_event", "after_tokens": 3}],
     "An error in the middle of a stream with status 200."),
    ("empty_choices", ["empty_choices"], "200 without an answer in it."),
    ("truncated_tool_call", ["truncated_tool_call"],
     "The output limit cuts what a tool is to be called with."),
    ("refusal", ["refusal"], "The model declines; asking again is no appeal.", 2),
    ("content_filter", ["content_filter"],
     "400 of a filter: at most another model may see it.", 2),
    ("context_length", ["context_length"],
     "400: the same request can only fail the same way.", 2),
    ("quota_exhausted", ["quota_exhausted"],
     "The account is empty: no retry fills it.", 3),
    ("garbage", ["garbage"], "200 with JSON that is no answer."),
    ("html_page", ["html_page"], "200 with a page of HTML."),
    ("bad_chunk", ["bad_chunk"], "The body's framing is broken."),
    ("tool_then_error", ["tool_then_error"],
     "A tool has acted, then the model fails: who starts over acts twice."),
]
STANDARD = [Standard(*one) for one in _STANDARD]
_WITH_TOOLS = ("tool_then_error", "truncated_tool_call")


def _trial(name: str, steps: "list[Step]", why: str, limits: Limits) -> Trial:
    return Trial(name, why, tuple(steps), limits,
                 any(step.fault.name in _WITH_TOOLS for step in steps))


def _standard(limits: Limits) -> "dict[str, Trial]":
    return {one.name: _trial(
        one.name, [step_of(read_value(step)) for step in one.script], one.why,
        dataclasses.replace(limits, requests_per_user_request=min(
            one.most, limits.requests_per_user_request)))
        for one in STANDARD}


def standard_plan() -> Plan:
    """All standard faults, with the limits that are sane for most."""
    return Plan(tuple(_standard(Limits()).values()), Limits())


def _read_limits(node: "Node | None", base: Limits) -> Limits:
    if node is None:
        return base
    given: "dict[str, typing.Any]" = {
        name: one.number(*_BOUNDS[name])
        for name, one in node.table(_BOUNDS).items()}
    return dataclasses.replace(base, **given)


def _named(name: str, limits: Limits) -> "Trial | None":
    """A trial of the standard plan, or of one of the provider's faults."""
    standard = _standard(limits)
    if name in standard:
        return standard[name]
    if name in FAULTS:
        found = FAULTS[name]
        return _trial(name, [step_of(read_value(name))],
                      found.why[0].upper() + found.why[1:] + ".", limits)
    return None


def _unknown(name: str) -> str:
    names = [*(one.name for one in STANDARD), *FAULTS]
    near = difflib.get_close_matches(name, names, 1)
    return f"no fault is called {name}; " + (
        f"did you mean {near[0]}?" if near else "see --list")


def _read_trial(node: Node, limits: Limits) -> Trial:
    if isinstance(node.value, str):
        found = _named(node.value, limits)
        if found is None:
            raise node.error(_unknown(node.value))
        return found
    table = node.table(["name", "script", "limits", "why"])
    if "name" not in table:
        raise node.error('"name" is missing')
    name = table["name"].text()
    own = _read_limits(table.get("limits"), limits)
    if "script" not in table:
        found = _named(name, own)
        if found is None:
            raise table["name"].error(
                _unknown(name) + ' Or give it a "script": a list of faults')
        if "limits" in table:
            found = dataclasses.replace(found, limits=own)
    else:
        found = _trial(name, [step_of(one) for one in table["script"].items()],
                       "A script of the plan's own.", own)
    if "why" in table:
        found = dataclasses.replace(found, why=table["why"].text())
    return found


def read_plan(node: Node) -> Plan:
    """A plan; SettingsError where it is not one."""
    table = node.table(["limits", "admits", "faults"])
    limits = _read_limits(table.get("limits"), Limits())
    admits = None
    if "admits" in table:
        try:
            admits = re.compile(table["admits"].text())
        except re.error as exc:
            raise table["admits"].error(f"no regular expression: {exc}"
                                        ) from None
    trials = ([_read_trial(one, limits) for one in table["faults"].items()]
              if "faults" in table else list(_standard(limits).values()))
    seen: "set[str]" = set()
    for one in trials:
        if one.name in seen:
            raise table["faults"].error(f"{one.name} stands there twice; give "
                                        "one of them another name")
        seen.add(one.name)
    return Plan(tuple(trials), limits, admits)


def choose(plan: Plan, names: "list[str]") -> Plan:
    """Only the named faults of a plan, or others by their names."""
    have = {one.name: one for one in plan.trials}
    out = []
    for name in dict.fromkeys(names):
        found = have.get(name) or _named(name, plan.limits)
        if found is None:
            raise SettingsError(f"--fault {name}: {_unknown(name)}")
        out.append(found)
    return dataclasses.replace(plan, trials=tuple(out))
