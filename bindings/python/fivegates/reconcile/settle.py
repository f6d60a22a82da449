"""What a cell has beyond the attempts that were served is what the others were
billed, if a set of them adds up to it."""

from __future__ import annotations

import collections
import dataclasses
import math
import typing

from fivegates.reconcile.cells import COUNTS, Cell, Group, Leftover, Open
from fivegates.reconcile.money import PriceBook
from fivegates.reconcile.requests import cost_of
from fivegates.reconcile.rows import stamp
from fivegates.reconcile.subset import Answer, solve

__all__ = ["Rest", "rest_of", "settle"]

# Expected number of sets that add up by chance, above which one that does is
# only possible where others may use the key.
_CHANCE = 0.01

_LATE = ("the ledger has more than the bill: rows that come late, or another "
         "period")
_FOREIGN = ("nothing in the ledger explains it: other software on the key, or "
            "lines of the ledger that are not there")
_NO_SET = ("no set of the attempts in question adds up to it: other software on "
           "the key, late rows, or lines of the ledger that are not there")
_NO_SIZE = "the prompt tokens of the attempts in question are not known"
_TOO_MANY = "too many attempts in question to tell which"


@dataclasses.dataclass
class Rest:
    """What the bill has beyond what was served; None: the export, or the
    ledger, does not say.

    counts: requests, in_total, cache_read, cache_write, cache_write_1h, out.
    tokens: prompt tokens, or those of both kinds where the ledger knows only
    their sum (summed). vague: served attempts without any counts. split:
    whether served attempts say what the cache had.
    """

    counts: "list[int | None]"
    tokens: "int | None"
    summed: bool
    vague: bool
    split: bool

    @property
    def requests(self) -> "int | None":
        return self.counts[0]

    @property
    def out(self) -> "int | None":
        return self.counts[5]


def rest_of(cells: "typing.Sequence[Cell]") -> Rest:
    """The rest of cells that are taken together."""
    counts: "list[int | None]" = []
    empty = not any(any(cell.bill) for cell in cells)
    for field in range(COUNTS):
        known = [cell.bill[field] for cell in cells if cell.bill[field] is not None]
        served = sum(cell.served[field] for cell in cells)
        counts.append(sum(one or 0 for one in known) - served
                      if known or empty else None)
    tokens = counts[1]
    summed = any(cell.summed for cell in cells)
    if summed:
        served = sum(cell.served[1] + cell.served[5] for cell in cells)
        tokens = sum((cell.bill[1] or 0) + (cell.bill[5] or 0) for cell in cells) - served
        counts[1:] = [None] * (COUNTS - 1)
    return Rest(counts, tokens, summed, any(cell.vague for cell in cells),
                all(cell.split for cell in cells))


@dataclasses.dataclass
class _Lot:
    """Cells that are settled together, and their attempts in question."""

    group: Group
    indexes: "list[int]"
    attempts: "list[Open]"
    rest: Rest
    cost: "tuple[int, int] | None"

    @property
    def evidence(self) -> str:
        rest = self.rest
        kind = "" if rest.summed else "prompt "
        parts = [f"{count} {what}" for count, what in (
            (rest.requests, "requests"), (rest.tokens, f"{kind}tokens"),
            (rest.out, "output tokens")) if count is not None]
        return (f"the cell of {stamp(self.group.start(self.indexes[0]))} has "
                f"{', '.join(parts)} beyond what was served")

    def left(self, why: str) -> Leftover:
        lo, hi = self.cost if self.cost is not None else (None, None)
        return Leftover(self.group.provider, self.group.model,
                        self.group.start(self.indexes[0]),
                        self.group.start(self.indexes[-1]) + self.group.grain,
                        self.rest.requests, self.rest.tokens, self.rest.out, lo, hi, why)

    def mark(self, attempts: "typing.Iterable[Open]", verdict: "str | None",
             confidence: str = "possible", pool: "int | None" = None,
             more: str = "") -> None:
        self.group.store.db.executemany(
            "UPDATE attempt SET verdict = ?, confidence = ?, pool = ?, evidence = ? "
            "WHERE id = ?", [(verdict, confidence, pool, self.evidence + more, one.id)
                             for one in attempts])

    def pool(self, confidence: str, whole: bool) -> int:
        """The money of the lot, that its attempts share. whole: a set of them
        is all of it; else it may be somebody else's."""
        lo, hi = self.cost if self.cost is not None else (None, None)
        cursor = self.group.store.db.execute(
            "INSERT INTO pool (provider, model, t_lo, t_hi, lo, hi, confidence) "
            "VALUES (?,?,?,?,?,?,?)",
            (self.group.provider, self.group.model, self.group.start(self.indexes[0]),
             self.group.start(self.indexes[-1]) + self.group.grain,
             lo if whole or lo is None else 0, hi, confidence))
        return int(cursor.lastrowid or 0)


def settle(group: Group, prices: PriceBook, indexes: "list[int]",
           attempts: "list[Open]") -> "Leftover | None":
    """The verdicts of a lot's attempts in question; what is left over."""
    rest = rest_of([group.cells[i] for i in indexes])
    lot = _Lot(group, indexes, attempts, rest, _cost(group, prices, rest))
    minus = any((one or 0) < 0 for one in (rest.requests, rest.tokens, rest.out))
    if not attempts:
        if rest.vague or not (rest.tokens or rest.out or rest.requests):
            return None
        return lot.left(_LATE if minus else _FOREIGN)
    if rest.vague or minus:
        lot.mark(attempts, None)
        return lot.left(_LATE if not rest.vague else _NO_SIZE)
    if rest.tokens is None and rest.requests is None:
        lot.mark(attempts, None)
        return lot.left(_NO_SIZE)
    if not (rest.tokens or rest.out or rest.requests):
        lot.mark(attempts, "not_billed", "probable")
        return None
    known = [one for one in attempts if one.wanted]
    if rest.summed or rest.tokens is None or not known:
        return _by_count(lot)
    return _by_sum(lot, known)


def _cost(group: Group, prices: PriceBook, rest: Rest) -> "tuple[int, int] | None":
    plain, out = rest.counts[1], rest.out
    if rest.vague or plain is None or plain < 0 or (out or 0) < 0:
        return None
    if rest.split and all((one or 0) >= 0 for one in rest.counts[2:5]):
        return cost_of(prices, group.provider, group.model, plain, rest.counts[2],
                       rest.counts[3], rest.counts[4], out)
    # What the cache had is not known: the cheapest and the dearest way.
    ways = [prices.cost(group.provider, group.model, {meter: plain, "output": out or 0})
            for meter in ("input", "cache_read", "cache_write")]
    known = [way for way in ways if way is not None]
    if ways[0] is None:
        return None
    return min(way[0] for way in known), max(way[1] for way in known)


def _word(lot: _Lot) -> str:
    return "possible" if lot.group.chosen.limit == "possible" else "probable"


def _by_count(lot: _Lot) -> "Leftover | None":
    """Without the prompts' tokens: as many requests as attempts in question,
    on a key that only this ledger uses, are these."""
    if lot.rest.requests == len(lot.attempts) and lot.group.clean:
        lot.mark(lot.attempts, "billed", _word(lot), lot.pool(_word(lot), True))
        return None
    lot.mark(lot.attempts, "maybe", "possible", lot.pool("possible", False))
    return lot.left(_NO_SIZE)


def _by_sum(lot: _Lot, known: "list[Open]") -> "Leftover | None":
    rest, tokens = lot.rest, lot.rest.tokens or 0
    sizes = [one.wanted or 0 for one in known]
    answer = solve(sizes, tokens, rest.requests)
    if not answer.whole:
        lot.mark(lot.attempts, "maybe", "possible", lot.pool("possible", False))
        return lot.left(_TOO_MANY)
    strangers = [one for one in lot.attempts if not one.wanted]
    most_out = sum(one.max_out if one.max_out is not None else rest.out or 0
                   for one in lot.attempts)
    if answer.found == 0 or (rest.out or 0) > most_out:
        if strangers:  # they may be a part of it
            lot.mark(lot.attempts, "maybe", "possible", lot.pool("possible", False))
        else:
            lot.mark(lot.attempts, None)
        return lot.left(_NO_SIZE if strangers else _NO_SET)
    # Prompts from a template have sizes that other software's have too.
    common = any(lot.group.sizes[size] > 1 for size in sizes)
    sure = ((lot.group.clean and not strangers) or (
        not common and _chance(len(sizes), rest.requests, sum(sizes)) < _CHANCE))
    word = _word(lot) if sure else "possible"
    number = lot.pool(word, True)
    by_size: "dict[int, list[Open]]" = collections.defaultdict(list)
    for one in known:
        by_size[one.wanted or 0].append(one)
    for size, same in by_size.items():
        _by_size(lot, answer, size, same, word, number)
    lot.mark(strangers, "not_billed" if sure else "maybe",
             word if sure else "possible", None if sure else number)
    return None


def _by_size(lot: _Lot, answer: Answer, size: int, same: "list[Open]", word: str,
             pool: int) -> None:
    """Verdicts of attempts that cannot be told apart."""
    least, most = answer.least[size], answer.most[size]
    one_call = len({one.op for one in same}) == 1
    if most == 0:
        lot.mark(same, "not_billed", word)
    elif least == len(same):
        lot.mark(same, "billed", word, pool)
    elif one_call and least == most:
        lot.mark(same[:least], "billed", word, pool)
        lot.mark(same[least:], "not_billed", word)
    else:
        lot.mark(same, "maybe", "possible", pool,
                 f"; {least} to {most} of {len(same)} like it")


def _chance(count: int, members: "int | None", span: int) -> float:
    """How many sets add up to a given sum by chance, roughly: the number of
    sets over that of sums they can have."""
    sets = math.comb(count, members) if members is not None and members <= count else 2 ** count
    return sets / max(span, 1)
