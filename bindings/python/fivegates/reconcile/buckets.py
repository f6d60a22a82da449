"""Matches bucketed exports: finds the cells that attempts could be booked in,
joins those that one attempt could straddle, and has each lot settled."""

from __future__ import annotations

import collections
import typing

from fivegates.reconcile.cells import Cell, Group, Leftover, Open
from fivegates.reconcile.money import PriceBook
from fivegates.reconcile.requests import MAX_GENERATION_MS, SKEW_MS
from fivegates.reconcile.settle import rest_of, settle
from fivegates.reconcile.sources import Chosen
from fivegates.reconcile.store import Store

__all__ = ["match_buckets"]

_QUIET = 3   # cells that must agree before an export's convention is believed
_CLEAN = 10  # and before nobody else is believed to use the key


def match_buckets(store: Store, chosen: Chosen, prices: PriceBook,
                  tally: "collections.Counter[str]",
                  ) -> "typing.Iterator[Leftover]":
    """Gives the attempts of a provider their verdicts; yields what is left.

    tally: counts served attempts that are explained by their cell, and those
    outside of every cell.
    """
    store.db.execute("CREATE INDEX IF NOT EXISTS attempt_served ON "
                     "attempt(provider, model, t0) WHERE state = 'delivered'")
    columns = "model, key" if chosen.keys else "model, NULL"
    pairs = list(store.rows(
        f"SELECT DISTINCT {columns} FROM attempt WHERE provider = ? UNION "
        f"SELECT DISTINCT {columns} FROM bill WHERE provider = ? AND used = 1",
        chosen.provider, chosen.provider))
    for model, key in pairs:
        group = Group(chosen, chosen.provider, model, key, store)
        group.load()
        yield from _reconcile(group, prices, tally)


def _longest(group: Group) -> int:
    """How long abandoned work may run on: twice the longest answer seen, from
    a minute to ten."""
    sql, values = group.where()
    longest = group.store.one("SELECT MAX(t1 - t0) FROM attempt WHERE state = "
                               f"'delivered' AND {sql}", *values)
    return int(min(max(2 * (longest or 0), 60_000), MAX_GENERATION_MS))


def _convention(group: Group, runs_on: int) -> "str | None":
    """Whether the export books a request where it starts or where it ends.

    The one that makes cells without open attempts add up; where there are no
    such cells, the one by which no cell has less than what was served. None:
    it cannot be told, or both do.
    """
    noisy: "set[int]" = set()
    for _, _, t0, t1, *_rest in group.open():
        noisy.update(range(group.index(t0 - SKEW_MS),
                           group.index(max(t1, t0 + runs_on) + SKEW_MS) + 1))
    sums: "dict[str, collections.Counter[int]]" = {
        "start": collections.Counter(), "end": collections.Counter()}
    for _, t0, t1, _known, _read, _wrote, _out, total in group.served():
        sums["start"][group.index(t0)] += total or 0
        sums["end"][group.index(t1)] += total or 0
    bill = {i: (cell.bill[1] or 0) + (cell.bill[5] or 0) for i, cell in group.cells.items()}
    quiet = [i for i in bill if i not in noisy and bill[i]]
    hits = {word: sum(bill[i] == sum_[i] for i in quiet) for word, sum_ in sums.items()}
    best = max(hits, key=lambda word: hits[word])
    # Four of five: a few cells may be somebody else's.
    if hits["start"] != hits["end"] and hits[best] >= max(_QUIET, len(quiet) * 4 // 5):
        return best
    good = [word for word, sum_ in sums.items()
            if all(bill.get(i, 0) >= n for i, n in sum_.items()
                   if group.chosen.covers(group.start(i), group.start(i) + 1))]
    return good[0] if len(good) == 1 and len(bill) >= _QUIET else None


def _reconcile(group: Group, prices: PriceBook,
               tally: "collections.Counter[str]") -> "typing.Iterator[Leftover]":
    runs_on = _longest(group)
    convention = _convention(group, runs_on)
    joined = _Union()
    for row in group.served():
        first, last = _span(group, convention, row[1], row[2], row[2])
        if not group.chosen.covers(group.start(first), group.start(last) + 1):
            tally["outside"] += 1
            continue
        cell = group.cells.setdefault(first, Cell())
        for i in range(first + 1, last + 1):
            group.cells.setdefault(i, Cell())
            joined.join(first, i)
        _serve(group, cell, row)
    attempts: "list[Open]" = []
    for ident, op, t0, t1, wanted, max_out in group.open():
        first, last = _span(group, convention, t0, t1, max(t1, t0 + runs_on))
        if not group.chosen.covers(group.start(first), group.start(last) + 1):
            continue  # no verdict: the export does not tell of it
        for i in range(first, last + 1):
            group.cells.setdefault(i, Cell())
            joined.join(first, i)
        attempts.append(Open(ident, op, first, wanted, max_out))
    by_root: "dict[int, list[Open]]" = collections.defaultdict(list)
    for one in attempts:
        by_root[joined.root(one.first)].append(one)
    cells_of: "dict[int, list[int]]" = collections.defaultdict(list)
    for i in group.cells:
        cells_of[joined.root(i)].append(i)
    group.clean = _clean(group, cells_of, by_root)
    for root, indexes in cells_of.items():
        found = settle(group, prices, sorted(indexes), by_root.get(root, []))
        if found is not None:
            yield found
        else:
            tally["explained"] += sum(group.cells[i].served[0] for i in indexes)


def _span(group: Group, convention: "str | None", t0: int, t1: int,
          until: int) -> "tuple[int, int]":
    """First and last cell in which an attempt may be booked."""
    if convention == "start":
        return group.index(t0), group.index(t0)
    if convention == "end":
        # Served: at its end. Abandoned: anywhere from its start on.
        lo = t1 if until == t1 else t0
        return group.index(lo), group.index(until)
    return group.index(t0 - SKEW_MS), group.index(until + SKEW_MS)


class _Union:
    """Joins cells that one attempt could be booked in."""

    def __init__(self) -> None:
        self._parent: "dict[int, int]" = {}

    def root(self, one: int) -> int:
        while self._parent.get(one, one) != one:
            above = self._parent[one]
            self._parent[one] = one = self._parent.get(above, above)
        return one

    def join(self, a: int, b: int) -> None:
        first, second = self.root(a), self.root(b)
        self._parent[max(first, second)] = min(first, second)


def _serve(group: Group, cell: Cell, row: "tuple[typing.Any, ...]") -> None:
    _, _, _, known, read, wrote, out, total = row
    cell.served[0] += 1
    if known is None or out is None:
        if total is None:
            cell.vague += 1
        else:
            cell.summed += 1
            cell.served[1] += total
        return
    group.sizes[known] += 1
    cell.served[1] += known
    cell.served[2] += read or 0
    cell.served[3] += wrote or 0
    cell.served[5] += out
    cell.split = cell.split and read is not None


def _clean(group: Group, cells_of: "typing.Mapping[int, list[int]]",
           by_root: "typing.Mapping[int, list[Open]]") -> bool:
    """Whether all cells without attempts in question add up, and some do."""
    good = 0
    for root, indexes in cells_of.items():
        cells = [group.cells[i] for i in indexes]
        if root in by_root or not any(cell.served[0] or cell.bill[1] for cell in cells):
            continue
        rest = rest_of(cells)
        if rest.vague or rest.tokens != 0 or rest.out not in (0, None) \
                or rest.requests not in (0, None):
            return False
        good += 1
    return good >= _CLEAN
