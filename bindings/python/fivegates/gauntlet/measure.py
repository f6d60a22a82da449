"""What a run of the program did, in numbers: from the provider's journal and
the program's end alone."""

from __future__ import annotations

import dataclasses
import typing

from fivegates.gauntlet.layers import Layer, find_layers
from fivegates.gauntlet.program import Outcome
from fivegates.provider.journal import Effect, Record

__all__ = ["Healthy", "Measures", "healthy_of", "measure"]

_EARLY_S = 0.05  # clocks and wires: this much before the time is in time


@dataclasses.dataclass(frozen=True)
class Healthy:
    """A run without a fault: what the others are compared with."""

    requests: int
    billed: int
    seconds: float
    sent: "dict[str, int]"  # how often each conversation arrives
    whole: "frozenset[str]"  # the conversations that got a whole answer
    calls: "dict[str, int]"  # tool calls that were carried out, by conversation
    effects: int  # of tools that report to the effects address
    tools: bool  # the program offers tools


@dataclasses.dataclass
class Measures:
    """One run under a fault."""

    requests: int = 0
    per_user_request: float = 0.0  # requests, to those of the healthy run
    worst: float = 0.0  # the same of the conversation sent most often
    billed: int = 0
    delivered: int = 0  # tokens of answers that arrived whole
    billed_ratio: float = 0.0
    ran_on_s: float = 0.0  # work for clients that had left
    layers: "list[Layer]" = dataclasses.field(default_factory=list)
    early: int = 0
    after_429_per_s: int = 0
    doubled: int = 0
    doubled_by: str = ""
    answered: int = 0  # conversations that got a whole answer
    unanswered: int = 0
    cut_off: int = 0  # of these, those that got a part of one
    ran_cut_calls: int = 0  # tools run with arguments that were cut

    @property
    def fan_out(self) -> float:
        return max(self.per_user_request, self.worst)


def _by_key(records: "typing.Iterable[Record]") -> "dict[str, list[Record]]":
    out: "dict[str, list[Record]]" = {}
    for one in records:
        out.setdefault(one.key, []).append(one)
    return out


def _carried_out(records: "list[Record]") -> "dict[str, set[str]]":
    """Ids of the tool calls whose results came back, by the conversation that
    was answered with them."""
    asked = {one.call: one.key for one in records if one.call}
    out: "dict[str, set[str]]" = {}
    for one in records:
        for call in one.results:
            if call in asked:
                out.setdefault(asked[call], set()).add(call)
    return out


def _effects(effects: "typing.Iterable[Effect]") -> int:
    """Effects, of which those that name one operation are one where the tool
    gave it a name: a service that knows it does it once."""
    named = {(one.tool, one.op) for one in effects if one.op}
    return len(named) + sum(not one.op for one in effects)


def healthy_of(records: "list[Record]", effects: "list[Effect]",
               outcome: Outcome) -> Healthy:
    """What a run without a fault tells."""
    groups = _by_key(records)
    return Healthy(
        len(records), sum(one.billed for one in records), outcome.seconds,
        {key: len(group) for key, group in groups.items()},
        frozenset(one.key for one in records if one.whole),
        {key: len(ids) for key, ids in _carried_out(records).items()},
        _effects(effects), any(one.has_tools for one in records))


def _hammering(groups: "dict[str, list[Record]]",
               healthy: Healthy) -> "tuple[int, int]":
    """Requests that came before the time they were told, and the most in one
    second of a conversation that had been told 429 without one. Another path
    is another account: nobody told anything there."""
    early = most = 0
    places: "dict[tuple[str, str], list[Record]]" = {}
    for key, group in groups.items():
        for one in group:
            places.setdefault((key, one.path), []).append(one)
    for (key, _), group in places.items():
        normal = healthy.sent.get(key, 1)
        for i, one in enumerate(group):
            if one.status != 429 or one.answered_at is None:
                continue
            if one.wait_s is None:
                within = sum(one.at <= other.at < one.at + 1
                             for other in group[i:])
                most = max(most, -(-within // normal))
            elif normal == 1 and i + 1 < len(group):
                waited = group[i + 1].at - one.answered_at
                early += waited < one.wait_s - _EARLY_S
    return early, most


def _doubled(records: "list[Record]", effects: "list[Effect]",
             healthy: Healthy) -> "tuple[int, str]":
    """Effects beyond those of the healthy run. A tool that reports its effects
    is counted by them; another by the results that come back: two calls that
    answered the same conversation and were both carried out are two effects."""
    if healthy.effects:
        extra = _effects(effects) - healthy.effects
        return max(0, extra), "the effects address"
    return sum(max(0, len(ids) - healthy.calls.get(key, 1))
               for key, ids in _carried_out(records).items()), (
        "results of calls that answered the same conversation")


def _unanswered(groups: "dict[str, list[Record]]",
                healthy: Healthy) -> "tuple[int, int, int]":
    """Conversations with a whole answer, without one, and with a part only. One
    that was left as it was and went on in other words is no loss."""
    answered = unanswered = cut = 0
    for key, group in groups.items():
        if any(one.whole for one in group):
            answered += 1
            continue
        if key in healthy.sent and key not in healthy.whole:
            continue  # the program never reads this one to its end
        last = group[-1].at
        if any(one.whole and one.at > last and other not in healthy.sent
               for other, records in groups.items() for one in records):
            continue
        unanswered += 1
        cut += any(one.cut or one.sent_tokens for one in group)
    return answered, unanswered, cut


def measure(records: "list[Record]", effects: "list[Effect]",
            healthy: Healthy) -> Measures:
    """The numbers of a run under a fault."""
    groups = _by_key(records)
    out = Measures(requests=len(records))
    out.per_user_request = len(records) / healthy.requests
    out.worst = max((len(group) / healthy.sent.get(key, 1)
                     for key, group in groups.items()), default=0.0)
    out.billed = sum(one.billed for one in records)
    out.delivered = sum(one.delivered for one in records)
    out.billed_ratio = out.billed / max(1, healthy.billed)
    out.ran_on_s = sum(one.ran_on_s for one in records)
    out.early, out.after_429_per_s = _hammering(groups, healthy)
    out.doubled, out.doubled_by = _doubled(records, effects, healthy)
    out.answered, out.unanswered, out.cut_off = _unanswered(groups, healthy)
    cut_calls = {one.call for one in records if one.call and one.cut}
    out.ran_cut_calls = len(cut_calls.intersection(
        call for one in records for call in one.results))
    # The conversation with the most layers, then tries, stands for the others.
    found = [find_layers(group, healthy.sent.get(key, 1))
             for key, group in groups.items()]
    out.layers = max(found, default=[], key=lambda one: (
        len(one), sum(layer.tries for layer in one)))
    return out
