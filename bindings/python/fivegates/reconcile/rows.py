"""What an importer makes of an export: rows, windows, prices, and its errors."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import re
import typing

from fivegates.errors import FivegatesError
from fivegates.reconcile.money import Price, decimal_of, pico

__all__ = ["BillRow", "Item", "ReconcileError", "Window", "amount", "count",
           "instant", "scaled", "stamp"]


class ReconcileError(FivegatesError):
    """A ledger or an export that cannot be used: which file and line, why,
    and what to do."""

    result = "reconcile"


@dataclasses.dataclass(slots=True)
class BillRow:
    """One request, or one cell of a bucketed export, on one footing.

    None is absent, never zero. in_total includes what came from and went to a
    cache, whatever the vendor's "input" means. Times are ms of Unix time;
    a request's t_lo is its start. cost is in picos of currency.
    """

    provider: str
    model: str
    place: str
    t_lo: int
    t_hi: int
    bucket: bool = False
    key: "str | None" = None
    requests: "int | None" = None
    in_total: "int | None" = None
    cache_read: "int | None" = None
    cache_write: "int | None" = None
    cache_write_1h: "int | None" = None
    out: "int | None" = None
    cost: "int | None" = None
    currency: "str | None" = None
    id: "str | None" = None
    op: "str | None" = None
    attempt: "int | None" = None
    cancelled: bool = False


@dataclasses.dataclass(slots=True)
class Window:
    """A span an export covers although nothing was used in it."""

    provider: str
    t_lo: int
    t_hi: int


Item = typing.Union[BillRow, Window, Price]


def count(value: object, place: str, name: str) -> "int | None":
    """A count of things; None when absent. Text may say 3.0 for 3."""
    if isinstance(value, str) and value.isdecimal() and len(value) < 18:
        return int(value)
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    try:
        number = decimal_of(value)
    except ValueError as exc:
        raise ReconcileError(f"{place}: {name}: {exc}; export the file again") from None
    if number < 0 or number != number.to_integral_value() or number >= 1 << 62:
        raise ReconcileError(f"{place}: {name} is {value}, which is no count; "
                             "export the file again, without editing it")
    return int(number)


def scaled(value: object, unit: str, place: str, name: str) -> int:
    """A count of tokens that the export states in thousands or millions."""
    found = re.fullmatch(r"(\d*)\s*([km]?)(\s*tokens?)?", unit.strip().lower())
    if found is None and unit.strip().lower() not in ("count", "units", "token"):
        raise ReconcileError(f"{place}: the unit {unit!r} of {name} is not "
                             "tokens, 1K or 1M; this version does not know it")
    factor = 1
    if found is not None:
        factor = (int(found[1] or 1)
                  * {"": 1, "k": 1000, "m": 1_000_000}[found[2]])
    try:
        number = decimal_of(value) * factor
    except ValueError as exc:
        raise ReconcileError(f"{place}: {name}: {exc}; export the file again") from None
    return int(number.to_integral_value(decimal.ROUND_HALF_EVEN))


def amount(value: object, place: str, name: str) -> "int | None":
    """Money in picos; None when absent."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    try:
        return pico(value)
    except ValueError as exc:
        raise ReconcileError(f"{place}: {name}: {exc}; write money as decimal "
                             "text, without signs or separators") from None


_SPACE = re.compile(r"(\d)\s+UTC$")
_HOURS = re.compile(r"([+-]\d\d)(\d\d)?$")


def instant(value: object, place: str, name: str,
            zone: datetime.tzinfo = datetime.timezone.utc,
            remedy: str = "export the file again, without editing it") -> int:
    """A point in time as ms of Unix time: unix seconds, or ISO 8601; without
    an offset it is in zone, which is the format's own. remedy ends the error."""
    if isinstance(value, (int, decimal.Decimal)) and not isinstance(value, bool):
        if 0 < value < 100_000_000_000:
            return int(value * 1000)
        raise ReconcileError(f"{place}: {name} is {value}, which is no time in "
                             f"seconds; {remedy}")
    text = str(value or "").strip()
    if re.fullmatch(r"\d{9,11}(\.\d+)?", text):
        return int(decimal.Decimal(text) * 1000)
    try:
        when = datetime.datetime.fromisoformat(text)
    except ValueError:
        try:
            when = datetime.datetime.fromisoformat(_iso(text))
        except ValueError:
            raise ReconcileError(f"{place}: {name} is {text!r}, which is no time; "
                                 f"{remedy}") from None
    if when.tzinfo is None:
        when = when.replace(tzinfo=zone)
    return (when - _EPOCH) // _MILLISECOND


def _iso(text: str) -> str:
    """A time in the form that every Python reads."""
    iso = _SPACE.sub(r"\1+00:00", text).replace("Z", "+00:00")
    if re.fullmatch(r"\d{8}", iso):  # DeepSeek's compact days
        iso = f"{iso[:4]}-{iso[4:6]}-{iso[6:]}"
    us = re.fullmatch(r"(\d\d?)/(\d\d?)/(\d{4})", iso)
    if us:  # Azure's days: month first
        iso = f"{us[3]}-{int(us[1]):02}-{int(us[2]):02}"
    # Python 3.10 reads 3 or 6 digits of a fraction, and no others.
    iso = re.sub(r"\.(\d+)", lambda m: "." + (m[1] + "000000")[:6], iso)
    if ":" in iso:
        iso = _HOURS.sub(lambda m: f"{m[1]}:{m[2] or '00'}", iso)
    return iso


_MILLISECOND = datetime.timedelta(milliseconds=1)
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)


def stamp(ms: int) -> str:
    """A time as ISO 8601 in UTC, to the second."""
    when = datetime.datetime.fromtimestamp(ms // 1000, datetime.timezone.utc)
    return when.strftime("%Y-%m-%dT%H:%M:%SZ")
