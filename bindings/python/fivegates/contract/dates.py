"""The dates of a contract's evidence, read as the engine reads them."""

from __future__ import annotations

import calendar
import re
import time
import typing

__all__ = ["barred_by_dates", "day_of", "now_ms", "rfc3339", "unix_ms"]

_DATE = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)(?:[Tt ](\d\d):(\d\d):(\d\d)(?:\.(\d+))?"
    r"(?:[Zz]|([+-])(\d\d):(\d\d)))?\Z", re.ASCII)


def unix_ms(text: str) -> "int | None":
    """Milliseconds since 1970 of a card's date: RFC 3339, or a day alone, which
    is its midnight in UTC. None: no such date."""
    found = _DATE.match(text)
    if found is None:
        return None
    year, month, day = (int(one) for one in found.group(1, 2, 3))
    hour, minute, second = (int(one or 0) for one in found.group(4, 5, 6))
    if not (year >= 1970 and 1 <= month <= 12 and hour <= 23 and minute <= 59
            and second <= 60
            and 1 <= day <= calendar.monthrange(year, month)[1]):
        return None
    offset = 60 * int(found[9] or 0) + int(found[10] or 0)
    whole = calendar.timegm((year, month, day, hour, minute, second))
    return (whole - 60 * offset * (-1 if found[8] == "-" else 1)) * 1000 + int(
        (found[7] or "0")[:3].ljust(3, "0"))


def now_ms() -> int:
    """The wall time now, in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def rfc3339(ms: int) -> str:
    """A moment as a card and JSON have it, to the second."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(ms // 1000))


def day_of(ms: int) -> str:
    """A moment as people write it: a day, and the minute where it is no midnight."""
    at = time.gmtime(ms // 1000)
    return time.strftime("%Y-%m-%d" if ms % 86_400_000 == 0
                         else "%Y-%m-%d %H:%M UTC", at)


def barred_by_dates(contract: "typing.Mapping[str, typing.Any]",
                    now: int) -> "str | None":
    """Why a contract's dates bar it at a time, in the engine's words.

    The policy does not look at dates, each call does: `contract_expired`, or
    `no_wall_clock` for a time before the evidence was measured. None: they hold.
    """
    evidence = contract.get("evidence") or {}
    expires = unix_ms(evidence.get("expires_at") or "")
    if expires is None:
        return None
    measured = unix_ms(evidence.get("measured_at") or "")
    if measured is not None and now < measured:
        return "no_wall_clock"
    return "contract_expired" if now >= expires else None
