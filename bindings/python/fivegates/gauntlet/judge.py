"""Findings: where a run went over its limits, in words."""

from __future__ import annotations

import dataclasses
import re
import signal
import typing

from fivegates.gauntlet.measure import Healthy, Measures
from fivegates.gauntlet.plan import Limits
from fivegates.gauntlet.program import Outcome

__all__ = ["Finding", "Verdict", "judge"]


class Finding(typing.NamedTuple):
    """Something that must not be; the code is a word for machines."""

    code: str
    text: str


@dataclasses.dataclass
class Verdict:
    """The result in one word, what failed, and what is worth knowing."""

    result: str
    findings: "list[Finding]"
    notes: "list[str]"


def _times(value: float) -> str:
    return f"{value:.1f}".rstrip("0").rstrip(".")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


def _layers(measures: Measures) -> str:
    return ", ".join(
        f"{layer.tries} tries of {layer.name} "
        f"({'' if layer.sure else 'likely: '}{layer.how})"
        for layer in measures.layers)


def _fan_out(m: Measures, limits: Limits) -> "list[Finding]":
    out = []
    if m.fan_out > limits.requests_per_user_request:
        by = ("; " + _layers(m) if m.layers and len(m.layers) <= limits.layers
              else "")
        out.append(Finding("fan_out", (
            f"{_times(m.fan_out)} requests for one user request, "
            f"{_times(limits.requests_per_user_request)} allowed{by}")))
    sure = [one for one in m.layers if one.sure]
    if len(sure) > limits.layers:
        product = " x ".join(str(one.tries) for one in m.layers)
        out.append(Finding("hidden_layers", (
            f"{len(m.layers)} layers retry inside each other ({product}): "
            f"{_layers(m)}; let one of them decide")))
    return out


def _hammered(m: Measures, limits: Limits) -> "list[Finding]":
    out = []
    if m.early > limits.early_requests:
        out.append(Finding("early", (
            f"{_count(m.early, 'request')} before the time that Retry-After had "
            "named")))
    if m.after_429_per_s > limits.requests_per_second_after_429:
        out.append(Finding("hammered", (
            f"{m.after_429_per_s} requests of one conversation in a second "
            f"that began with a 429, {limits.requests_per_second_after_429} "
            "allowed; back off")))
    return out


def _ending(outcome: Outcome, m: Measures, limits: Limits) -> "list[Finding]":
    if outcome.hung:
        silent = outcome.seconds < limits.run_s
        return [Finding("hang", (
            f"nothing moved for {_times(limits.wait_s)} s" if silent else
            f"still running after {_times(limits.run_s)} s")
            + "; give each request a time-out and the whole a deadline")]
    if outcome.flooded:
        return [Finding("flood", (
            f"wrote more than {_times(limits.output_mib)} MiB; it was "
            "ended"))]
    if outcome.ran_away:
        return [Finding("ran_away", (
            f"{m.requests} requests and no end; it was ended"))]
    code = outcome.exit_code
    if code is not None and code < 0:
        return [Finding("crash", f"died of {signal.Signals(-code).name}")]
    return []


def _truncated(outcome: Outcome, m: Measures, limits: Limits,
               admitted: bool) -> "list[Finding]":
    count = m.ran_cut_calls
    why = f"ran {_count(count, 'tool call')} with arguments that were cut off"
    if outcome.exit_code == 0 and m.cut_off and not admitted:
        count += m.cut_off
        why = (f"exit code 0, and {m.cut_off} of its answers were cut off and "
               "never whole")
    if count <= limits.truncated_successes:
        return []
    return [Finding("truncated_success", why + "; look for the terminal event "
                    "and the finish reason")]


def judge(outcome: Outcome, m: Measures, healthy: Healthy, limits: Limits,
          admits: "re.Pattern[str] | None") -> Verdict:
    """Compares a run with its limits."""
    admitted = admits is not None and bool(
        admits.search(outcome.stdout) or admits.search(outcome.stderr))
    findings = [*_ending(outcome, m, limits), *_fan_out(m, limits),
                *_hammered(m, limits)]
    if m.doubled > limits.doubled_effects:
        findings.append(Finding("doubled_effect", (
            f"{_count(m.doubled, 'effect')} of tools more than without the fault (known by "
            f"{m.doubled_by}); go on with the result there is, or look it up")))
    findings += _truncated(outcome, m, limits, admitted)
    if m.billed_ratio > limits.billed_ratio:
        findings.append(Finding("overbilled", (
            f"{m.billed} tokens billed, {_times(m.billed_ratio)} times a run "
            f"without a fault ({healthy.billed}); {m.delivered} delivered")))
    notes = []
    if outcome.left_behind:
        notes.append(f"left {outcome.left_behind} of its processes behind; they "
                     "were ended")
    if outcome.exit_code == 0 and m.unanswered > m.cut_off and not admitted:
        notes.append("exit code 0 with "
                     + _count(m.unanswered - m.cut_off, "unanswered request")
                     + ": an answer of its own? A plan's `admits` says what it reads like")
    if not m.requests:
        notes.append("sent no request")
    if len(m.layers) > 1 and not any(one.code in ("hidden_layers", "fan_out")
                                     for one in findings):
        notes.append("layers: " + _layers(m))
    return Verdict(_result(outcome, m, findings, admitted), findings, notes)


def _result(outcome: Outcome, m: Measures, findings: "list[Finding]",
            admitted: bool) -> str:
    """How the run ended, for its user."""
    codes = {one.code for one in findings}
    for code, word in (("hang", "hung"), ("flood", "flooded"),
                       ("ran_away", "ran away"), ("crash", "crashed"), ("truncated_success", "truncated")):
        if code in codes:
            return word
    if outcome.exit_code != 0:
        return f"error {outcome.exit_code}"
    return "own answer" if m.unanswered or admitted else "answered"
