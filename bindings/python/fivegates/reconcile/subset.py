"""Which of the attempts in question were billed, when only their sum is known."""

from __future__ import annotations

import collections
import typing

__all__ = ["Answer", "solve"]

_NODES = 200_000  # of the search; then nothing is claimed
_ENOUGH = 64      # solutions kept; what holds in all of them is what counts


class Answer(typing.NamedTuple):
    """least, most: by size, how many attempts of it were billed, over all
    solutions. found: number of solutions (of different counts); 0: none.
    whole: the search was not cut short."""

    least: "dict[int, int]"
    most: "dict[int, int]"
    found: int
    whole: bool


def solve(sizes: "typing.Iterable[int]", total: int,
          members: "int | None") -> Answer:
    """All ways to choose attempts whose sizes (prompt tokens) sum to total,
    members of them when the export counts requests.

    Attempts of one size are interchangeable: solutions are counts by size.
    """
    have = collections.Counter(sizes)
    order = sorted(have, reverse=True)
    room = [0] * (len(order) + 1)   # what the rest can sum to
    left = [0] * (len(order) + 1)   # how many the rest are
    for i in range(len(order) - 1, -1, -1):
        room[i] = room[i + 1] + order[i] * have[order[i]]
        left[i] = left[i + 1] + have[order[i]]
    found: "list[dict[int, int]]" = []
    nodes = 0
    # An explicit stack: (place in order, rest of the sum, rest of the members,
    # counts so far).
    stack: "list[tuple[int, int, int | None, tuple[int, ...]]]" = [
        (0, total, members, ())]
    while stack:
        nodes += 1
        if nodes > _NODES or len(found) > _ENOUGH:
            return Answer({}, {}, len(found), False)
        i, rest, more, counts = stack.pop()
        if rest == 0 and (more is None or more == 0):
            # Sizes are above zero, so the others are not in it.
            found.append(dict(zip(order, counts)))
            continue
        if i == len(order) or rest <= 0 or rest > room[i]:
            continue
        if more is not None and not 0 < more <= left[i]:
            continue
        size = order[i]
        most = min(have[size], rest // size,
                   more if more is not None else have[size])
        for n in range(most + 1):
            stack.append((i + 1, rest - n * size,
                          None if more is None else more - n, (*counts, n)))
    least = {size: min((one.get(size, 0) for one in found), default=0)
             for size in order}
    greatest = {size: max((one.get(size, 0) for one in found), default=0)
                for size in order}
    return Answer(least, greatest, len(found), True)
