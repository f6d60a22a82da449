"""Matches bucketed exports: what a cell has beyond the attempts that were
served is what the others were billed, if a set of them adds up to it."""

from __future__ import annotations

import collections
import dataclasses
import typing

from fivegates.reconcile.money import PriceBook
from fivegates.reconcile.requests import MAX_GENERATION_MS, SKEW_MS, cost_of
from fivegates.reconcile.sources import Chosen
from fivegates.reconcile.rows import ReconcileError, stamp
from fivegates.reconcile.store import Store
from fivegates.reconcile.subset import solve

__all__ = ["Leftover", "match_buckets"]

_COUNTS = 6  # requests, in_total, cache_read, cache_write, cache_write_1h, out
_QUIET = 3   # cells that must agree before an export's convention is believed


@dataclasses.dataclass
class Leftover:
    """A cell, or cells together, that the ledger does not explain."""

    provider: str
    model: str
    t_lo: int
    t_hi: int
    requests: "int | None"
    tokens_in: "int | None"
    tokens_out: "int | None"
    lo: "int | None"
    hi: "int | None"
    why: str


@dataclasses.dataclass(slots=True)
class _Open:
    """An attempt whose bill is in question."""

    id: int
    op: int
    first: int
    wanted: "int | None"
    max_out: "int | None"


@dataclasses.dataclass
class _Cell:
    bill: "list[int | None]" = dataclasses.field(default_factory=lambda: [None] * _COUNTS)
    served: "list[int]" = dataclasses.field(default_factory=lambda: [0] * _COUNTS)
    vague: int = 0  # served attempts whose own counts are not known
    summed: int = 0  # served attempts of which only the sum of tokens is known
    split: bool = True  # whether served attempts say what the cache had


class _Group:
    """The cells of one model (and key) of a provider."""

    def __init__(self, chosen: Chosen, provider: str, model: str,
                 key: "str | None", store: Store) -> None:
        self.chosen, self.provider, self.model, self.key = chosen, provider, model, key
        self._store = store
        self.grain = chosen.grain
        self.cells: "dict[int, _Cell]" = {}
        self.base: "int | None" = None

    def where(self) -> "tuple[str, list[object]]":
        if self.key is None:
            return "provider = ? AND model = ?", [self.provider, self.model]
        return "provider = ? AND model = ? AND key = ?", [self.provider, self.model, self.key]

    def load(self) -> None:
        """Sums the export's rows into cells."""
        sql, values = self.where()
        for lo, place, *counts in self._store.rows(
                "SELECT t_lo, MIN(place), SUM(requests), SUM(in_total), SUM(cache_read), "
                "SUM(cache_write), SUM(cache_write_1h), SUM(out) FROM bill "
                f"WHERE used = 1 AND bucket = 1 AND {sql} GROUP BY t_lo", *values):
            if self.base is None:
                self.base = lo % self.grain
            if lo % self.grain != self.base:
                raise ReconcileError(
                    f"{place}: its cells of {self.grain // 1000} s overlap other "
                    "cells; export the whole period with one width of cells")
            self.cells[lo // self.grain] = _Cell(bill=counts)

    def index(self, at: int) -> int:
        return (at - (self.base or 0)) // self.grain

    def start(self, index: int) -> int:
        return index * self.grain + (self.base or 0)

    def served(self) -> "typing.Iterator[tuple[typing.Any, ...]]":
        sql, values = self.where()
        return self._store.rows(
            "SELECT id, t0, t1, in_total, cache_read, cache_write, out, total "
            f"FROM attempt WHERE state = 'delivered' AND {sql} ORDER BY t0", *values)

    def open(self) -> "typing.Iterator[tuple[typing.Any, ...]]":
        sql, values = self.where()
        return self._store.rows(
            "SELECT id, op, t0, t1, wanted, max_out FROM attempt "
            f"WHERE state IN ('unknown', 'billed') AND {sql} ORDER BY t0", *values)


def match_buckets(store: Store, chosen: Chosen, prices: PriceBook,
                  tally: "collections.Counter[str]",
                  ) -> "typing.Iterator[Leftover]":
    """Gives the attempts of a provider their verdicts; yields what is left.

    tally: counts served attempts that are explained by their cell, and those
    outside of every cell.
    """
    columns = "model, key" if chosen.keys else "model, NULL"
    pairs = list(store.rows(
        f"SELECT DISTINCT {columns} FROM attempt WHERE provider = ? UNION "
        f"SELECT DISTINCT {columns} FROM bill WHERE provider = ? AND used = 1",
        chosen.provider, chosen.provider))
    for model, key in pairs:
        group = _Group(chosen, chosen.provider, model, key, store)
        group.load()
        yield from _reconcile(group, prices, tally)


def _longest(group: _Group) -> int:
    """How long abandoned work may run on: twice the longest answer seen, from
    a minute to ten."""
    sql, values = group.where()
    longest = group._store.one("SELECT MAX(t1 - t0) FROM attempt WHERE state = "
                               f"'delivered' AND {sql}", *values)
    return int(min(max(2 * (longest or 0), 60_000), MAX_GENERATION_MS))


def _convention(group: _Group, runs_on: int) -> "str | None":
    """Whether the export books a request where it starts or where it ends:
    what makes cells without open attempts add up. None: it cannot be told,
    or both do."""
    noisy: "set[int]" = set()
    for _, _, t0, t1, *_rest in group.open():
        noisy.update(range(group.index(t0 - SKEW_MS),
                           group.index(max(t1, t0 + runs_on) + SKEW_MS) + 1))
    sums: "dict[str, collections.Counter[int]]" = {
        "start": collections.Counter(), "end": collections.Counter()}
    for _, t0, t1, known, _read, _wrote, _out, _total in group.served():
        sums["start"][group.index(t0)] += known or 0
        sums["end"][group.index(t1)] += known or 0
    quiet = [i for i, cell in group.cells.items()
             if i not in noisy and cell.bill[1]]
    hits = {word: sum(group.cells[i].bill[1] == sums[word][i] for i in quiet)
            for word in sums}
    best = max(hits, key=lambda word: hits[word])
    if (hits[best] >= _QUIET and hits[best] * 5 >= len(quiet) * 4
            and hits["start"] != hits["end"]):
        return best
    return None


def _reconcile(group: _Group, prices: PriceBook,
               tally: "collections.Counter[str]") -> "typing.Iterator[Leftover]":
    runs_on = _longest(group)
    convention = _convention(group, runs_on)
    joined = _Union()
    for row in group.served():
        first, last = _span(group, convention, row[1], row[2], row[2])
        if not group.chosen.covers(group.start(first), group.start(last) + 1):
            tally["outside"] += 1
            continue
        cell = group.cells.setdefault(first, _Cell())
        for i in range(first + 1, last + 1):
            group.cells.setdefault(i, _Cell())
            joined.join(first, i)
        _serve(cell, row)
    attempts: "list[_Open]" = []
    for ident, op, t0, t1, wanted, max_out in group.open():
        first, last = _span(group, convention, t0, t1, max(t1, t0 + runs_on))
        if not group.chosen.covers(group.start(first), group.start(last) + 1):
            continue  # no verdict: the export does not tell of it
        for i in range(first, last + 1):
            group.cells.setdefault(i, _Cell())
            joined.join(first, i)
        attempts.append(_Open(ident, op, first, wanted, max_out))
    by_root: "dict[int, list[_Open]]" = collections.defaultdict(list)
    for one in attempts:
        by_root[joined.root(one.first)].append(one)
    cells_of: "dict[int, list[int]]" = collections.defaultdict(list)
    for i in group.cells:
        cells_of[joined.root(i)].append(i)
    for root, indexes in cells_of.items():
        found = _settle(group, prices, sorted(indexes), by_root.get(root, []))
        if found is not None:
            yield found
        else:
            tally["explained"] += sum(group.cells[i].served[0] for i in indexes)


def _span(group: _Group, convention: "str | None", t0: int, t1: int,
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


def _serve(cell: _Cell, row: "tuple[typing.Any, ...]") -> None:
    _, _, _, known, read, wrote, out, total = row
    cell.served[0] += 1
    if known is None or out is None:
        if total is None:
            cell.vague += 1
        else:
            cell.summed += 1
            cell.served[1] += total
        return
    cell.served[1] += known
    cell.served[2] += read or 0
    cell.served[3] += wrote or 0
    cell.served[5] += out
    cell.split = cell.split and read is not None


def _settle(group: _Group, prices: PriceBook, indexes: "list[int]",
            attempts: "list[_Open]") -> "Leftover | None":
    """The verdicts of a cell's, or joined cells', open attempts."""
    cells = [group.cells[i] for i in indexes]
    rest: "list[int | None]" = []
    for field in range(_COUNTS):
        known = [cell.bill[field] for cell in cells if cell.bill[field] is not None]
        stated = bool(known) or not any(cell.bill[k] for cell in cells for k in range(_COUNTS))
        served = sum(cell.served[field] for cell in cells)
        rest.append(sum(one or 0 for one in known) - served if stated else None)
    summed = any(cell.summed for cell in cells)
    vague = any(cell.vague for cell in cells)
    if summed:
        # Only tokens of both kinds together can be compared.
        served_all = sum(cell.served[1] + cell.served[5] for cell in cells)
        billed_all = sum((cell.bill[1] or 0) + (cell.bill[5] or 0) for cell in cells)
        rest[1:] = [None, None, None, None, None]
        both: "int | None" = billed_all - served_all
    else:
        both = None
    cost = None
    if not summed and not vague:
        split = all(cell.split for cell in cells) and (
            not attempts or all((rest[k] or 0) >= 0 for k in (2, 3, 4)))
        cost = _cost(group, prices, rest, split)
    lo, hi = cost if cost is not None else (None, None)

    def left(why: str) -> Leftover:
        return Leftover(group.provider, group.model, group.start(indexes[0]),
                        group.start(indexes[-1]) + group.grain, rest[0],
                        rest[1] if both is None else both, rest[5], lo, hi, why)

    tokens = rest[1] if both is None else both
    if not attempts:
        if vague or (tokens == 0 and (rest[5] or 0) == 0 and (rest[0] or 0) == 0):
            return None
        if tokens is not None and tokens < 0:
            return left("the ledger has more than the bill: rows that come late, "
                        "or another period")
        return left("nothing in the ledger explains it: other software on the "
                    "key, or lines of the ledger that are not there")
    if vague or (rest[0] or 0) < 0 or (tokens or 0) < 0 or (rest[5] or 0) < 0:
        _mark(group, attempts, None, "possible", None, "")
        return left("attempts without their tokens in the ledger" if vague else
                    "the ledger has more than the bill: rows that come late, "
                    "or another period")
    return _decide(group, attempts, rest, tokens, both is not None, cost, left,
                   indexes)


def _cost(group: _Group, prices: PriceBook, rest: "list[int | None]",
          split: bool) -> "tuple[int, int] | None":
    if rest[1] is None or rest[1] < 0 or (rest[5] or 0) < 0:
        return None
    if split:
        return cost_of(prices, group.provider, group.model, rest[1], rest[2],
                       rest[3], rest[4], rest[5])
    # What the cache had is not known: the cheapest and the dearest way.
    ways = [prices.cost(group.provider, group.model,
                        {meter: rest[1], "output": rest[5] or 0})
            for meter in ("input", "cache_read", "cache_write")]
    known = [way for way in ways if way is not None]
    if ways[0] is None or not known:
        return None
    return min(way[0] for way in known), max(way[1] for way in known)


def _decide(group: _Group, attempts: "list[_Open]", rest: "list[int | None]",
            tokens: "int | None", both: bool, cost: "tuple[int, int] | None",
            left: "typing.Callable[[str], Leftover]", indexes: "list[int]",
            ) -> "Leftover | None":
    limit = group.chosen.limit
    evidence = (f"{stamp(group.start(indexes[0]))}: {rest[0] if rest[0] is not None else '?'} "
                f"requests, {tokens} prompt tokens, {rest[5] if rest[5] is not None else '?'} "
                "output tokens beyond what was served")
    nothing = (tokens in (0, None) and rest[5] in (0, None)
               and rest[0] in (0, None) and (tokens is not None or rest[0] is not None))
    if nothing:
        _mark(group, attempts, "not_billed", "probable", None, evidence)
        return None
    sizes = [one.wanted for one in attempts]
    pool = (group, cost, limit, indexes)
    if both or any(size is None or size <= 0 for size in sizes) or tokens is None:
        if rest[0] == len(attempts):  # as many requests as attempts in question
            _mark(group, attempts, "billed", _weaker(limit, "probable"),
                  _pool(*pool, whole=True), evidence)
            return None
        _mark(group, attempts, "maybe", "possible", _pool(*pool, whole=False), evidence)
        return left("the prompt tokens of the attempts in question are not known")
    most_out = sum(one.max_out if one.max_out is not None else rest[5] or 0
                   for one in attempts)
    answer = solve([size for size in sizes if size], tokens, rest[0])
    if not answer.whole:
        _mark(group, attempts, "maybe", "possible", _pool(*pool, whole=False), evidence)
        return left("too many attempts in question to tell which")
    if answer.found == 0 or (rest[5] or 0) > most_out:
        _mark(group, attempts, None, "possible", None, evidence)
        return left("no set of the attempts in question adds up to it: other "
                    "software on the key, late rows, or lines of the ledger "
                    "that are not there")
    number = _pool(*pool, whole=True)
    by_size: "dict[int, list[_Open]]" = collections.defaultdict(list)
    for one in attempts:
        by_size[one.wanted or 0].append(one)
    for size, same in by_size.items():
        least, most = answer.least[size], answer.most[size]
        one_call = len({one.op for one in same}) == 1
        if most == 0:
            _mark(group, same, "not_billed", "probable", None, evidence)
        elif least == len(same):
            _mark(group, same, "billed", _weaker(limit, "probable"), number, evidence)
        elif one_call and least == most:
            _mark(group, same[:least], "billed", _weaker(limit, "probable"), number, evidence)
            _mark(group, same[least:], "not_billed", "probable", None, evidence)
        else:
            _mark(group, same, "maybe", "possible", number,
                  f"{evidence}; {least} to {most} of {len(same)} like it")
    return None


def _weaker(a: str, b: str) -> str:
    order = ("possible", "probable", "certain")
    return min((a, b), key=order.index)


def _pool(group: _Group, cost: "tuple[int, int] | None", confidence: str,
          indexes: "list[int]", whole: bool) -> int:
    """The money of a cell, that its attempts share. whole: a set of them is
    all of it; else it may be somebody else's."""
    lo, hi = cost if cost is not None else (None, None)
    cursor = group._store.db.execute(
        "INSERT INTO pool (provider, model, t_lo, t_hi, lo, hi, confidence) "
        "VALUES (?,?,?,?,?,?,?)",
        (group.provider, group.model, group.start(indexes[0]),
         group.start(indexes[-1]) + group.grain, lo if whole else 0, hi, confidence))
    return int(cursor.lastrowid or 0)


def _mark(group: _Group, attempts: "list[_Open]", verdict: "str | None",
          confidence: str, pool: "int | None", evidence: str) -> None:
    group._store.db.executemany(
        "UPDATE attempt SET verdict = ?, confidence = ?, pool = ?, evidence = ? "
        "WHERE id = ?", [(verdict, confidence, pool, evidence, one.id)
                         for one in attempts])
