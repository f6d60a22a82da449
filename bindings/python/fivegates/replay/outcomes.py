"""What became of an attempt: as recorded, or as others on that route fared.

An attempt that was never made has no outcome of its own. Then those that began
on the same route nearest in time stand in, and what follows is an estimate;
where there is none near, nobody can tell.
"""

from __future__ import annotations

import bisect
import typing
import zlib

from fivegates.replay.survey import Attempt, Call

__all__ = ["Outcomes"]

_NEAR = 8  # of the nearest in time one is taken, by the call's id
_WITHIN_MS = 60_000  # farther away the route may have been another one


class Outcomes:
    """Recorded outcomes by route and time."""

    def __init__(self, calls: "typing.Iterable[Call]") -> None:
        self._by_route: "dict[str, list[tuple[int, int, Attempt]]]" = {}
        order = 0
        for call in calls:
            for one in call.attempts:
                if one.end is not None and one.end["after"] != "cancel":
                    order += 1
                    self._by_route.setdefault(one.route, []).append(
                        (one.began_ms, order, one))
        for rows in self._by_route.values():
            rows.sort(key=lambda row: row[:2])

    def near(self, route: str, at_ms: int, salt: str) -> "Attempt | None":
        """One of the attempts on a route that began nearest to at_ms."""
        rows = self._by_route.get(route, [])
        low = high = bisect.bisect_left(rows, (at_ms, 0))
        found: "list[Attempt]" = []
        while len(found) < _NEAR:
            before = at_ms - rows[low - 1][0] if low > 0 else None
            after = rows[high][0] - at_ms if high < len(rows) else None
            if before is not None and (after is None or before <= after):
                low -= 1
                gap, one = before, rows[low][2]
            elif after is not None:
                gap, one = after, rows[high][2]
                high += 1
            else:
                break
            if gap > _WITHIN_MS:
                break
            found.append(one)
        if not found:
            return None
        return found[zlib.crc32(salt.encode()) % len(found)]
