"""The cells of a bucketed export, and the attempts that meet in them."""

from __future__ import annotations

import collections
import dataclasses
import typing

from fivegates.reconcile.rows import ReconcileError
from fivegates.reconcile.sources import Chosen
from fivegates.reconcile.store import OPEN, Store

__all__ = ["COUNTS", "Cell", "Group", "Leftover", "Open"]

COUNTS = 6  # requests, in_total, cache_read, cache_write, cache_write_1h, out


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
class Open:
    """An attempt whose bill is in question."""

    id: int
    op: int
    first: int
    wanted: "int | None"
    max_out: "int | None"


@dataclasses.dataclass
class Cell:
    bill: "list[int | None]" = dataclasses.field(default_factory=lambda: [None] * COUNTS)
    served: "list[int]" = dataclasses.field(default_factory=lambda: [0] * COUNTS)
    vague: int = 0  # served attempts whose own counts are not known
    summed: int = 0  # served attempts of which only the sum of tokens is known
    split: bool = True  # whether served attempts say what the cache had


class Group:
    """The cells of one model (and key) of a provider."""

    def __init__(self, chosen: Chosen, provider: str, model: str,
                 key: "str | None", store: Store) -> None:
        self.chosen, self.provider, self.model, self.key = chosen, provider, model, key
        self.store = store
        self.grain = chosen.grain
        # Whether cells without attempts in question add up: then nobody else
        # uses the key, and the ledger is whole.
        self.clean = False
        # How many served answers had a prompt of so many tokens.
        self.sizes: "collections.Counter[int]" = collections.Counter()
        self.cells: "dict[int, Cell]" = {}
        self.base: "int | None" = None

    def where(self) -> "tuple[str, list[object]]":
        if self.key is None:
            return "provider = ? AND model = ?", [self.provider, self.model]
        return "provider = ? AND model = ? AND key = ?", [self.provider, self.model, self.key]

    def load(self) -> None:
        """Sums the export's rows into cells."""
        sql, values = self.where()
        for lo, place, *counts in self.store.rows(
                "SELECT t_lo, MIN(place), SUM(requests), SUM(in_total), SUM(cache_read), "
                "SUM(cache_write), SUM(cache_write_1h), SUM(out) FROM bill "
                f"WHERE used = 1 AND bucket = 1 AND {sql} GROUP BY t_lo", *values):
            if self.base is None:
                self.base = lo % self.grain
            if lo % self.grain != self.base:
                raise ReconcileError(
                    f"{place}: its cells of {self.grain // 1000} s overlap other "
                    "cells; export the whole period with one width of cells")
            self.cells[lo // self.grain] = Cell(bill=counts)

    def index(self, at: int) -> int:
        return (at - (self.base or 0)) // self.grain

    def start(self, index: int) -> int:
        return index * self.grain + (self.base or 0)

    def served(self) -> "typing.Iterator[tuple[typing.Any, ...]]":
        sql, values = self.where()
        return self.store.rows(
            "SELECT id, t0, t1, in_total, cache_read, cache_write, out, total "
            f"FROM attempt WHERE state = 'delivered' AND {sql} ORDER BY t0", *values)

    def open(self) -> "typing.Iterator[tuple[typing.Any, ...]]":
        sql, values = self.where()
        return self.store.rows(
            "SELECT id, op, t0, t1, wanted, max_out FROM attempt "
            f"WHERE {OPEN} AND {sql} ORDER BY t0", *values)
