"""The working store: attempts and bill rows in a temporary SQLite file, so
that a ledger's size is limited by the disk and not by memory."""

from __future__ import annotations

import itertools
import operator
import sqlite3
import typing

from fivegates.reconcile.rows import BillRow, ReconcileError

__all__ = ["BATCH", "OPEN", "Store", "UNSERVED", "total"]

# state: what the ledger knows of an attempt's bill. `none` was refused before
# any token, `unknown` may have been billed, `delivered` was billed and served,
# `billed` was billed and not served.
# verdict: what the bill says of it: NULL nothing, else a word of match.py.
_SCHEMA = """
CREATE TABLE attempt (
  id INTEGER PRIMARY KEY, op INTEGER NOT NULL, name TEXT NOT NULL,
  workflow TEXT, step INTEGER NOT NULL, n INTEGER NOT NULL,
  provider TEXT NOT NULL, model TEXT NOT NULL, key TEXT, route TEXT,
  t0 INTEGER NOT NULL, t1 INTEGER NOT NULL, state TEXT NOT NULL, kind TEXT,
  rid TEXT, rid2 TEXT, in_total INTEGER, out INTEGER, total INTEGER,
  cache_read INTEGER, cache_write INTEGER, estimate INTEGER, max_out INTEGER,
  body TEXT, wanted INTEGER, bill INTEGER, verdict TEXT, confidence TEXT,
  pool INTEGER, lo INTEGER, hi INTEGER, evidence TEXT);
CREATE TABLE bill (
  id INTEGER PRIMARY KEY, src INTEGER NOT NULL, provider TEXT NOT NULL,
  model TEXT NOT NULL, place TEXT NOT NULL, t_lo INTEGER NOT NULL,
  t_hi INTEGER NOT NULL, bucket INTEGER NOT NULL, key TEXT,
  requests INTEGER, in_total INTEGER, cache_read INTEGER,
  cache_write INTEGER, cache_write_1h INTEGER, out INTEGER, cost INTEGER,
  currency TEXT, rid TEXT, op TEXT, attempt INTEGER, cancelled INTEGER,
  used INTEGER NOT NULL DEFAULT 1, taken INTEGER);
CREATE TABLE pool (
  id INTEGER PRIMARY KEY, provider TEXT, model TEXT, t_lo INTEGER,
  t_hi INTEGER, lo INTEGER, hi INTEGER, confidence TEXT, says TEXT);
"""

BATCH = 5000  # rows
# The attempts that were not served are few and asked for often; an index has
# them alone. SQLite takes it where a query has these words.
UNSERVED = "state <> 'delivered'"
# Of them, those whose bill is in question.
OPEN = f"{UNSERVED} AND state IN ('unknown', 'billed')"


def total(column: str) -> str:
    """SQL for a sum of picos that cannot overflow 64 bits: two sums, joined by
    joined()."""
    return f"SUM({column} / 1000000000), SUM({column} % 1000000000)"


class Store:
    """Opened for one reconciliation, gone with it."""

    def __init__(self) -> None:
        if sqlite3.sqlite_version_info < (3, 33):
            raise ReconcileError(f"SQLite {sqlite3.sqlite_version} is too old, this needs "
                                 "3.33; use a Python that was built with a newer one")
        # A private database in SQLite's temporary folder, which is gone with
        # the connection, also after a kill.
        self.db = sqlite3.connect("", isolation_level=None)
        for pragma in ("journal_mode=OFF", "synchronous=OFF",
                       "cache_size=-131072", "temp_store=FILE", "locking_mode=EXCLUSIVE"):
            self.db.execute(f"PRAGMA {pragma}").fetchall()
        self.db.executescript(_SCHEMA)
        self.db.execute("BEGIN")

    def close(self) -> None:
        """Removes the store."""
        self.db.close()

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def rows(self, sql: str, *values: object) -> "typing.Iterator[tuple[typing.Any, ...]]":
        """The rows of a query, as they come."""
        return iter(self.db.execute(sql, values))

    def one(self, sql: str, *values: object) -> typing.Any:
        """The first value of the first row."""
        found = self.db.execute(sql, values).fetchone()
        return found[0] if found else None

    def money(self, column: str, rest: str, *values: object) -> int:
        """The sum of a column of picos, which may exceed 64 bits."""
        high, low = self.db.execute(
            f"SELECT {total(column)} {rest}", values).fetchone()
        return (high or 0) * 1_000_000_000 + (low or 0)

    def many(self, sql: str, rows: "typing.Iterable[tuple[object, ...]]") -> None:
        """A statement for each row, in batches."""
        source = iter(rows)
        while batch := list(itertools.islice(source, BATCH)):
            self.db.executemany(sql, batch)

    def add_attempts(self, attempts: "typing.Iterable[tuple[object, ...]]") -> None:
        """Attempts in the order of ATTEMPT_COLUMNS."""
        marks = ",".join("?" * len(ATTEMPT_COLUMNS))
        sql = f"INSERT INTO attempt ({','.join(ATTEMPT_COLUMNS)}) VALUES ({marks})"
        self.many(sql, attempts)

    def add_bill(self, src: int, rows: "typing.Iterable[BillRow]") -> None:
        """The rows of one export."""
        names = ("provider", "model", "place", "t_lo", "t_hi", "bucket", "key",
                 "requests", "in_total", "cache_read", "cache_write",
                 "cache_write_1h", "out", "cost", "currency", "id", "op",
                 "attempt", "cancelled")
        columns = ",".join(names).replace(",id,", ",rid,")
        sql = (f"INSERT INTO bill (src,{columns}) VALUES "
               f"({','.join('?' * (len(names) + 1))})")
        values = operator.attrgetter(*names)
        self.many(sql, ((src, *values(row)) for row in rows))


ATTEMPT_COLUMNS = (
    "op", "name", "workflow", "step", "n", "provider", "model", "key", "route",
    "t0", "t1", "state", "kind", "rid", "rid2", "in_total", "out", "total",
    "cache_read", "cache_write", "estimate", "max_out", "body")
