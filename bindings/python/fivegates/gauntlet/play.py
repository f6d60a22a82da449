"""Playing a plan: the program runs without a fault, then under each."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import typing

from fivegates.gauntlet.judge import Verdict, judge
from fivegates.gauntlet.measure import Healthy, Measures, healthy_of, measure
from fivegates.gauntlet.plan import Limits, Plan, Trial
from fivegates.gauntlet.program import GauntletError, Outcome, Watch, run_program
from fivegates.provider.exchange import Speed
from fivegates.provider.journal import Effect, Record
from fivegates.provider.registry import FAULTS, Step
from fivegates.provider.script import plain_script
from fivegates.provider.server import Provider

__all__ = ["Played", "Result", "play"]

Progress = typing.Callable[[str], None]

# A model ten times as fast as the drills' one: a gauntlet is not for its sake.
_SPEED = Speed(first_token_s=0.0144, prompt_tokens_per_s=20_000,
               tokens_per_s=711.1, output_tokens=24)
_KEY = "sk-gauntlet-no-real-key"
_START_S = 60.0  # until the first request: some programs load for long
_RUNAWAY = 20  # times the requests that are allowed: it would never end
_SETTLE_S = 2.0  # for work that the provider does for a client that left


@dataclasses.dataclass
class Played:
    """A trial, and what came of it."""

    trial: Trial
    outcome: Outcome
    measures: Measures
    verdict: Verdict
    records: "list[Record]"
    effects: "list[Effect]"

    @property
    def passed(self) -> bool:
        return not self.verdict.findings


@dataclasses.dataclass
class Result:
    """All of a gauntlet."""

    command: "list[str]"
    healthy: Healthy
    played: "list[Played]"
    skipped: "list[Trial]"

    @property
    def passed(self) -> bool:
        return all(one.passed for one in self.played)


class _Run(typing.NamedTuple):
    outcome: Outcome
    records: "list[Record]"
    effects: "list[Effect]"
    url: str
    unknown: "list[str]"


def _env(url: str) -> "dict[str, str]":
    """The program's environment: the provider's addresses and a key that opens
    nothing. Proxies are for other hosts than this."""
    out = dict(os.environ)
    for name in ("ANTHROPIC_AUTH_TOKEN", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"):
        out.pop(name, None)
    out.update(OPENAI_BASE_URL=url + "/v1", OPENAI_API_BASE=url + "/v1",
               ANTHROPIC_BASE_URL=url, OPENAI_API_KEY=_KEY,
               ANTHROPIC_API_KEY=_KEY, GAUNTLET_EFFECTS_URL=url + "/_effects")
    for name in ("NO_PROXY", "no_proxy"):
        out[name] = ",".join(filter(None, [out.get(name), "127.0.0.1"]))
    return out


async def _run(command: "list[str]", steps: "typing.Sequence[Step]",
               limits: Limits, most: "float | None" = None) -> _Run:
    """The program against a provider of its own. most: requests."""
    # A trial's faults keep no state of another run.
    fresh = [step._replace(state={}) for step in steps]
    async with Provider(plain_script(fresh, _SPEED, True)) as provider:
        records = provider.journal.records
        outcome = await run_program(command, _env(provider.url), Watch(
            limits.wait_s, max(limits.wait_s, _START_S), limits.run_s,
            int(limits.output_mib * (1 << 20)),
            lambda: (len(records), sum(one.sent_tokens + (one.ended_at is not None)
                                       for one in records)),
            lambda: most is not None and len(records) > most))
        await provider.settle(_SETTLE_S)
    journal = provider.journal
    return _Run(outcome, list(journal.records), list(journal.effects),
                provider.url, list(provider.unknown))


async def _healthy(command: "list[str]", plan: Plan) -> Healthy:
    limits = plan.limits
    run = await _run(command, [Step(FAULTS["ok"], {}, {})], limits)
    outcome = run.outcome
    said = "\nits last words:\n" + outcome.said() if outcome.said() else ""
    if outcome.hung:
        raise GauntletError(
            f"the program runs on after {outcome.seconds:.1f} s without any "
            "fault; the gauntlet needs one that asks and then ends" + said)
    if outcome.flooded:
        raise GauntletError(
            f"the program wrote more than {limits.output_mib:g} MiB without "
            "any fault; let it write less, or raise limits.output_mib" + said)
    if not run.records:
        other = ("; it asked for " + ", ".join(run.unknown[:3]) + ", which is no "
                 "address of chat completions, responses or messages"
                 if run.unknown else "")
        raise GauntletError(
            f"the program sent nothing to {run.url}{other}; it must take its "
            "base URL from OPENAI_BASE_URL or ANTHROPIC_BASE_URL (it ended with "
            f"exit code {outcome.exit_code})" + said)
    if outcome.exit_code != 0:
        raise GauntletError(
            f"the program fails without any fault: exit code "
            f"{outcome.exit_code}; exit code 0 must say that all is well" + said)
    if plan.admits is not None and (plan.admits.search(outcome.stdout)
                                    or plan.admits.search(outcome.stderr)):
        raise GauntletError(
            f"admits: {plan.admits.pattern!r} is in the program's output when "
            "all is well; name words that only admit a failure")
    return healthy_of(run.records, run.effects, outcome)


async def _trial(command: "list[str]", trial: Trial, healthy: Healthy,
                 plan: Plan) -> Played:
    limits = trial.limits
    run = await _run(command, trial.steps, limits, _RUNAWAY * healthy.requests
                     * limits.requests_per_user_request)
    measures = measure(run.records, run.effects, healthy)
    return Played(trial, run.outcome, measures, judge(
        run.outcome, measures, healthy, limits, plan.admits),
        run.records, run.effects)


async def play(command: "list[str]", plan: Plan, jobs: int,
               progress: Progress = lambda name: None) -> Result:
    """Runs all of a plan, so many programs at once. Cancelled or not, nothing
    of what was started is left."""
    healthy = await _healthy(command, plan)
    progress("")
    trials = [one for one in plan.trials
              if healthy.tools or not one.needs_tools]
    room = asyncio.Semaphore(jobs)

    async def one(trial: Trial) -> Played:
        async with room:
            played = await _trial(command, trial, healthy, plan)
        progress(trial.name)
        return played

    tasks = [asyncio.ensure_future(one(trial)) for trial in trials]
    try:
        played = list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return Result(command, healthy, played, [
        one for one in plan.trials if one not in trials])
