"""Which of the attempts that could have made a row did: a matching in a
bipartite graph, and what every greatest matching agrees on."""

from __future__ import annotations

import collections
import typing

__all__ = ["Edge", "Group", "groups"]

# (attempt, its call, row)
Edge = typing.Tuple[int, int, int]
_CAP = 400  # edges of one group that are searched; more are only counted


class Group(typing.NamedTuple):
    """Attempts and rows that touch each other and nothing else.

    pairs: one greatest matching, attempt -> row. sure: attempts that every
    greatest matching has, or whose call has all of the group's attempts.
    """

    attempts: "list[int]"
    rows: "list[int]"
    pairs: "dict[int, int]"
    sure: "set[int]"


def groups(edges: "typing.Iterable[Edge]") -> "typing.Iterator[Group]":
    """The connected groups of a graph, each with its greatest matching."""
    rows_of: "dict[int, list[int]]" = collections.defaultdict(list)
    attempts_of: "dict[int, list[int]]" = collections.defaultdict(list)
    call_of: "dict[int, int]" = {}
    for attempt, call, row in edges:
        rows_of[attempt].append(row)
        attempts_of[row].append(attempt)
        call_of[attempt] = call
    seen: "set[int]" = set()
    for start in rows_of:
        if start in seen:
            continue
        seen.add(start)
        attempts, rows = [start], dict.fromkeys(rows_of[start])
        queue = list(rows)
        while queue:
            for attempt in attempts_of[queue.pop()]:
                if attempt in seen:
                    continue
                seen.add(attempt)
                attempts.append(attempt)
                for row in rows_of[attempt]:
                    if row not in rows:
                        rows[row] = None
                        queue.append(row)
        yield _solve(attempts, list(rows), rows_of, call_of)


def _solve(attempts: "list[int]", rows: "list[int]",
           rows_of: "typing.Mapping[int, list[int]]",
           call_of: "typing.Mapping[int, int]") -> Group:
    taken: "dict[int, int]" = {}
    # The most constrained first; the order of attempts is that of time.
    order = sorted(attempts, key=lambda one: (len(rows_of[one]), one))
    size = sum(len(rows_of[one]) for one in attempts)
    if size > _CAP:
        for one in order:
            free = next((row for row in rows_of[one] if row not in taken), None)
            if free is not None:
                taken[free] = one
        return Group(attempts, rows, {one: row for row, one in taken.items()}, set())
    for one in order:
        _augment(one, rows_of, taken, set())
    pairs = {one: row for row, one in taken.items()}
    if len({call_of[one] for one in attempts}) == 1:
        return Group(attempts, rows, pairs, set(pairs))
    # An attempt is in every greatest matching unless another, unmatched, can
    # take its place: those reached from unmatched ones by alternating paths.
    loose = [one for one in attempts if one not in pairs]
    reached = set(loose)
    while loose:
        for row in rows_of[loose.pop()]:
            other = taken.get(row)
            if other is not None and other not in reached:
                reached.add(other)
                loose.append(other)
    return Group(attempts, rows, pairs, set(pairs) - reached)


def _augment(one: int, rows_of: "typing.Mapping[int, list[int]]",
             taken: "dict[int, int]", tried: "set[int]") -> bool:
    for row in rows_of[one]:
        if row in tried:
            continue
        tried.add(row)
        if row not in taken or _augment(taken[row], rows_of, taken, tried):
            taken[row] = one
            return True
    return False
