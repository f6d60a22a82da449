"""What a replay found, as plain data: the same numbers for every output."""

from __future__ import annotations

import collections
import datetime
import typing

from fivegates.replay.cards import Card, differences
from fivegates.replay.check import Checked
from fivegates.replay.forecast import (
    ANSWERED,
    Fate,
    Forecast,
    recorded_fate,
)
from fivegates.replay.lines import Json, nusd_of
from fivegates.replay.survey import Survey

__all__ = ["check_report", "forecast_report", "usd"]

_RESULTS = (*ANSWERED, "failed_closed", "queued", "cancelled")
_TOLD = 20

_NEVER = (
    "the failures are taken as the ledger's card judged them: other `classify` "
    "rules are not tried, as no answer is in a ledger",
    "answers are taken as checked then: another `requires.output` is not tried",
    "what the region had learned before the ledger began is not in it",
)


def usd(nusd: int) -> str:
    """Decimal dollars of nano-dollars, exact."""
    sign, nusd = ("-" if nusd < 0 else ""), abs(nusd)
    whole, part = divmod(nusd, 1_000_000_000)
    text = f"{part:09d}".rstrip("0")
    return f"{sign}{whole}.{text}" if text else f"{sign}{whole}"


def _time(ms: "int | None") -> "str | None":
    if ms is None:
        return None
    at = datetime.datetime.fromtimestamp(ms / 1000, datetime.timezone.utc)
    return at.isoformat(timespec="seconds").replace("+00:00", "Z")


def _ledger(seen: Survey) -> Json:
    first = seen.first or {}
    wall = first.get("unix_ms")
    offset = None if wall is None else wall - first["now_ms"]
    end = None if offset is None else seen.last_ms + offset
    return {
        "files": seen.files, "lines": seen.lines, "calls": len(seen.calls),
        "whole_calls": len(seen.whole), "decisions": seen.decisions,
        "event_lines": seen.events, "from": _time(wall), "to": _time(end),
        "torn_lines": seen.torn, "torn_at": seen.torn_places,
        "lines_without_call": seen.strays, "without_call_at": seen.stray_places,
        "broken_calls": len(seen.broken),
        "broken_at": [call.broken for call in seen.broken[:_TOLD]],
        "cards": [{"fingerprint": name, "calls": seen.per_policy[name],
                   "first_at": place} for name, place in seen.policies.items()],
    }


def check_report(seen: Survey, card: Card, found: Checked) -> Json:
    """The same card: what came out as it was written, and what did not."""
    return {
        "kind": "check", "ledger": _ledger(seen),
        "card": {"name": card.name, "fingerprint": card.fingerprint},
        "check": {
            "exact": found.exact, "decisions": found.decisions,
            "decisions_equal": found.equal, "other_lines": found.others,
            "other_lines_equal": found.others_equal,
            "not_followed": found.not_followed,
            "not_in_a_ledger": found.unknown,
            "differences": [
                {"at": one.place, "line": one.line, "members": {
                    key: {"recorded": was, "now": now}
                    for key, (was, now) in one.members.items()}}
                for one in found.differences],
        },
    }


def _sums(fates: "typing.Iterable[Fate]") -> Json:
    rows = list(fates)
    results = collections.Counter(one.result or "unknown" for one in rows)
    return {
        "attempts": sum(one.attempts for one in rows),
        "cost_usd": usd(sum(one.cost_nusd for one in rows)),
        "held_usd": usd(sum(one.held_nusd for one in rows)),
        "answered": sum(one.answered is True for one in rows),
        "in_full": sum(one.in_full is True for one in rows),
        "results": {name: results[name] for name in (*_RESULTS, "unknown")
                    if results[name]},
    }


def _compared(pairs: "typing.Sequence[tuple[Fate, Fate]]") -> Json:
    """Of some calls: as recorded, as forecast, and the difference. Lost and won
    are answers in full: a preset in place of one is no answer kept."""
    before, after = [one for one, _ in pairs], [one for _, one in pairs]
    answers = collections.Counter[str]()
    for was, will in pairs:
        if will.in_full is None:
            answers["unknown"] += 1
        elif was.in_full != will.in_full:
            answers[f"{'won' if will.in_full else 'lost'}_{will.sure}"] += 1
    sure = collections.Counter(one.sure for one in after)
    return {
        "calls": len(pairs), "recorded": _sums(before),
        "forecast": {**_sums(after), "calls_certain": sure["certain"],
                     "calls_estimated": sure["estimated"],
                     "calls_unknown": sure["unknown"]},
        "change": {
            "attempts": sum(o.attempts for o in after) - sum(o.attempts for o in before),
            "cost_usd": usd(sum(o.cost_nusd for o in after) - sum(o.cost_nusd for o in before)),
            "held_usd": usd(sum(o.held_nusd for o in after) - sum(o.held_nusd for o in before)),
        },
        "answers": {name: answers[name] for name in (
            "lost_certain", "lost_estimated", "won_certain", "won_estimated",
            "unknown")},
    }


def _net(now: Json, again: Json) -> Json:
    """What is left of a change when the method's own error is taken off."""
    now, again = now["change"], again["change"]
    return {"attempts": now["attempts"] - again["attempts"],
            **{key: usd(nusd_of(now[key]) - nusd_of(again[key]))
               for key in ("cost_usd", "held_usd")}}


def _pairs(seen: Survey, found: Forecast) -> "list[tuple[Fate, Fate]]":
    fates = {one.key: one for one in found.fates}
    return [(recorded_fate(call), fates[call.key]) for call in seen.whole
            if call.key in fates]


def _reasons(fates: "typing.Iterable[Fate]", sure: str) -> "dict[str, int]":
    return dict(collections.Counter(
        one.why for one in fates if one.sure == sure).most_common(_TOLD))


def forecast_report(seen: Survey, new: Card, found: Forecast,
                    old: "Card | None" = None,
                    again: "Forecast | None" = None) -> Json:
    """Another card: what would have changed, for each workflow and in all.

    again: the same forecast with the ledger's own card. How far it is from
    what was recorded is the method's own error.
    """
    pairs = _pairs(seen, found)
    total = _compared(pairs)
    error = None if again is None else _compared(_pairs(seen, again))
    workflows = list(dict.fromkeys(was.workflow for was, _ in pairs))
    tools = sum("tools" in call.begin["features"] for call in seen.whole)
    never = [*_NEVER]
    if tools:
        never.append(f"{tools} calls offered tools, whose names are not in a "
                     "ledger: whether another route takes them is not weighed")
    for name, count in found.no_workflow.items():
        never.append(f"{count} calls of the workflow {name}, which the card "
                     "does not have, are left out")
    if not seen.events:
        never.append("how streams flowed between their first and last token: "
                     "the ledger has no event lines")
    return {
        "kind": "forecast", "ledger": _ledger(seen),
        "card": {"name": new.name, "fingerprint": new.fingerprint},
        "old_card": None if old is None else {
            "name": old.name, "fingerprint": old.fingerprint},
        "differences": None if old is None else differences(old.card, new.card),
        "forecast": {
            "total": total,
            "workflows": {name: _compared([
                pair for pair in pairs if pair[0].workflow == name])
                for name in workflows},
            "estimated_because": _reasons(found.fates, "estimated"),
            "unknown_because": _reasons(found.fates, "unknown"),
            "own_error": error,
            "change_less_own_error": None if error is None else _net(total, error),
            "cannot_tell": never,
        },
    }
