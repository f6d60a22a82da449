"""Matches exports with one row per request: by id, by the host's tag, and by
fingerprint (a resend of the same prompt to the same model has exactly the same
number of prompt tokens)."""

from __future__ import annotations

import itertools
import typing

from fivegates.reconcile.assign import Group, groups
from fivegates.reconcile.money import PriceBook
from fivegates.reconcile.sources import Chosen
from fivegates.reconcile.store import OPEN, UNSERVED, Store

__all__ = ["MAX_GENERATION_MS", "SKEW_MS", "exact", "fingerprints", "learn_prompts",
           "cost_of", "price_rows"]

SKEW_MS = 5_000            # between the clocks of host and provider
MAX_GENERATION_MS = 600_000  # how long abandoned work may run on
_BY_SIZE = "prompt tokens and time"  # the evidence of a match
_WEAKER = ("possible", "probable", "certain")


def _least(*words: str) -> str:
    return min(words, key=_WEAKER.index)


def exact(store: Store, chosen: Chosen) -> int:
    """Joins by response or request id, then by the host's own tag of call and
    attempt; how many rows found their attempt by an id."""
    where = "bill.provider = ? AND bill.used = 1 AND bill.bucket = 0 AND bill.taken IS NULL"
    for column in ("rid", "rid2"):
        if store.one(f"SELECT 1 FROM attempt WHERE {column} IS NOT NULL LIMIT 1") is None:
            continue
        store.db.execute(
            "UPDATE bill SET taken = (SELECT a.id FROM attempt a WHERE "
            f"a.{column} = bill.rid AND a.provider = bill.provider LIMIT 1) "
            f"WHERE {where} AND bill.rid IS NOT NULL", (chosen.provider,))
    by_id = int(store.one("SELECT COUNT(*) FROM bill WHERE provider = ? AND "
                          "used = 1 AND taken IS NOT NULL", chosen.provider))
    # The core counts attempts from 1; a host may have counted from 0.
    from_0 = store.one(
        f"SELECT 1 FROM bill WHERE {where} AND bill.attempt = 0 AND EXISTS (SELECT 1 "
        "FROM attempt a WHERE a.name = bill.op) AND NOT EXISTS (SELECT 1 FROM attempt a "
        "WHERE a.name = bill.op AND a.n = 0) LIMIT 1", chosen.provider)
    # And where that cannot be seen, the row is nearest to another attempt.
    store.db.execute(
        "UPDATE bill SET taken = (SELECT CASE COUNT(*) WHEN 1 THEN MIN(a.id) "
        "END FROM attempt a WHERE a.name = bill.op AND a.n = bill.attempt + ? "
        "AND a.provider = bill.provider AND a.model = bill.model AND bill.t_lo >= a.t0 - ? "
        "AND NOT EXISTS (SELECT 1 FROM attempt s WHERE s.op = a.op AND s.id <> a.id "
        "AND ABS(s.t0 - bill.t_lo) < ABS(a.t0 - bill.t_lo))) "
        f"WHERE {where} AND bill.op IS NOT NULL AND bill.attempt IS NOT NULL",
        (1 if from_0 else 0, SKEW_MS, chosen.provider))
    store.db.execute(
        "UPDATE attempt SET bill = b.id FROM (SELECT MIN(id) AS id, taken FROM bill "
        "WHERE provider = ? AND used = 1 AND taken IS NOT NULL GROUP BY taken) AS b "
        "WHERE b.taken = attempt.id", (chosen.provider,))
    # What was served needs no verdict.
    store.db.execute(
        "UPDATE attempt SET verdict = 'billed', confidence = ?, evidence = (SELECT "
        "COALESCE(b.rid, b.op || '/' || b.attempt) FROM bill b WHERE b.id = attempt.bill) "
        f"WHERE {UNSERVED} AND provider = ? AND bill IS NOT NULL", (chosen.limit, chosen.provider))
    return by_id


def learn_prompts(store: Store, provider: str) -> None:
    """Sets `wanted`, the prompt tokens an attempt must have been billed with:
    its own, or those of another attempt with the same body."""
    store.db.execute(
        "UPDATE attempt SET wanted = COALESCE(in_total, (SELECT "
        "COALESCE(s.in_total, b.in_total) FROM attempt s LEFT JOIN bill b "
        "ON b.id = s.bill WHERE s.op = attempt.op AND s.id <> attempt.id "
        "AND s.provider = attempt.provider AND s.model = attempt.model "
        "AND s.body IS attempt.body AND COALESCE(s.in_total, b.in_total) "
        f"IS NOT NULL LIMIT 1)) WHERE {OPEN} AND provider = ?", (provider,))


_OPEN = f"a.{UNSERVED} AND a.state IN ('unknown', 'billed')"


class _Rule(typing.NamedTuple):
    """What a row (b) must be to be an attempt's (a); key: what is equal in
    both, so that only edges of one key can touch."""

    where: str
    key: str
    limit: str
    runs_on_ms: int


_DELIVERED = _Rule("a.state = 'delivered' AND b.in_total = a.in_total "
                   "AND (a.out IS NULL OR b.out = a.out)",
                   "b.in_total", "probable", SKEW_MS)
# The ledger knows the sum of both kinds of tokens only.
_SUMMED = _Rule("a.state = 'delivered' AND a.in_total IS NULL "
                "AND b.in_total + b.out = a.total",
                "b.in_total + b.out", "probable", SKEW_MS)
_RESENT = _Rule(f"{_OPEN} AND b.in_total = a.wanted AND "
                "(a.max_out IS NULL OR b.out <= a.max_out)",
                "b.in_total", "probable", MAX_GENERATION_MS)
_GUESSED = _Rule(f"{_OPEN} AND a.wanted IS NULL AND "
                 "a.estimate > 0 AND b.in_total * 10 BETWEEN a.estimate * 9 AND "
                 "a.estimate * 11 AND (a.max_out IS NULL OR b.out <= a.max_out)",
                 "0", "possible", MAX_GENERATION_MS)


def fingerprints(store: Store, chosen: Chosen, by_id: bool) -> None:
    """Matches the rows and attempts that no id joined. by_id: ids of this
    provider do join, so an attempt that has one and found no row is not in
    the export."""
    store.db.execute("CREATE INDEX IF NOT EXISTS attempt_unbilled ON attempt(provider, model, "
                     "state) WHERE bill IS NULL")
    for name, columns in (("size", "in_total, "), ("sum", "in_total + out, "), ("time", "")):
        store.db.execute(
            f"CREATE INDEX IF NOT EXISTS bill_{name} ON bill(provider, model, {columns}t_lo) "
            "WHERE bucket = 0 AND taken IS NULL")
    for rule in (_DELIVERED, _SUMMED):
        _match(store, chosen, rule, by_id)
    learn_prompts(store, chosen.provider)
    for rule in (_RESENT, _GUESSED):
        _match(store, chosen, rule, by_id)
    _doubt_common_sizes(store, chosen.provider)


def _doubt_common_sizes(store: Store, provider: str) -> None:
    """Where the export has rows of others, a prompt whose size other calls
    have as well (a template's) proves little."""
    matched = (f"provider = ? AND {UNSERVED} AND verdict = 'billed' "
               f"AND evidence = '{_BY_SIZE}'")
    if (store.one("SELECT 1 FROM bill WHERE provider = ? AND used = 1 AND bucket = 0 "
                  "AND taken IS NULL LIMIT 1", provider) is None
            or store.one(f"SELECT 1 FROM attempt WHERE {matched} LIMIT 1", provider) is None):
        return
    store.db.execute("CREATE INDEX IF NOT EXISTS bill_any_size ON bill(provider, model, "
                     "in_total) WHERE bucket = 0")
    store.db.execute(
        f"UPDATE attempt SET verdict = 'maybe', confidence = 'possible' WHERE {matched} AND "
        "EXISTS (SELECT 1 FROM bill m JOIN bill b ON b.provider = m.provider AND b.model = "
        "m.model AND b.in_total = m.in_total LEFT JOIN attempt t ON t.id = b.taken "
        "WHERE m.id = attempt.bill AND b.bucket = 0 AND b.used = 1 AND b.id <> m.id "
        "AND t.op IS NOT attempt.op)", (provider,))


def _match(store: Store, chosen: Chosen, rule: _Rule, by_id: bool) -> None:
    ids = "AND a.rid IS NULL" if by_id else ""
    keys = "AND (a.key IS NULL OR b.key IS NULL OR a.key = b.key)" if chosen.keys else ""
    edges = store.rows(
        f"SELECT a.model, {rule.key}, a.id, a.op, b.id FROM attempt a CROSS JOIN bill b ON "
        "b.provider = a.provider AND b.model = a.model "
        "AND b.t_lo BETWEEN a.t0 - ? AND a.t1 + ? "
        f"WHERE a.provider = ? AND a.bill IS NULL {ids} AND b.used = 1 AND b.bucket = 0 "
        f"AND b.taken IS NULL {keys} AND {rule.where} "
        # A row that names a call of the ledger is that call's.
        "AND (b.op IS NULL OR b.op = a.name OR NOT EXISTS (SELECT 1 FROM attempt x "
        "WHERE x.name = b.op)) ORDER BY 1, 2, a.t0",
        SKEW_MS, rule.runs_on_ms, chosen.provider)
    taken: "list[tuple[int, int]]" = []
    told: "list[tuple[object, ...]]" = []
    for _, same in itertools.groupby(edges, key=lambda edge: edge[:2]):
        for group in groups(edge[2:] for edge in same):
            _decide(chosen, rule, group, taken, told)
    # After the query: it must not see what it changes.
    store.db.executemany("UPDATE bill SET taken = ? WHERE id = ?", taken)
    store.db.executemany(
        "UPDATE attempt SET bill = ?, verdict = ?, confidence = ?, lo = ?, hi = ?, "
        "evidence = ? WHERE id = ?", told)


def _decide(chosen: Chosen, rule: _Rule, group: Group,
            taken: "list[tuple[int, int]]", told: "list[tuple[object, ...]]") -> None:
    what = (_BY_SIZE if rule.limit == "probable"
            else "the estimate of the prompt and time")
    for attempt, row in group.pairs.items():
        word = _least(rule.limit, chosen.limit,
                      "probable" if attempt in group.sure else "possible")
        taken.append((attempt, row))
        told.append((row, "billed" if word != "possible" else "maybe", word,
                     None, None, what, attempt))
    for attempt in group.attempts:
        if attempt not in group.pairs:  # it could have made one of these rows as well
            told.append((None, "maybe", "possible", 0, 0, f"{what}; one of several", attempt))


def price_rows(store: Store, provider: str, prices: PriceBook) -> None:
    """Sets what matched rows of attempts that were not served cost."""
    def spans() -> "typing.Iterator[tuple[int, int, int]]":
        for attempt, cost, *meters in store.rows(
                "SELECT a.id, b.cost, b.model, b.in_total, b.cache_read, "
                "b.cache_write, b.cache_write_1h, b.out FROM attempt a JOIN bill b "
                f"ON b.id = a.bill WHERE a.provider = ? AND a.{UNSERVED}", provider):
            span = (cost, cost) if cost is not None else cost_of(prices, provider, *meters)
            if span is not None:
                yield (*span, attempt)

    store.many("UPDATE attempt SET lo = ?, hi = ? WHERE id = ?", spans())


def cost_of(prices: PriceBook, provider: str, model: str,
            in_total: "int | None", read: "int | None", wrote: "int | None",
            hour: "int | None", out: "int | None") -> "tuple[int, int] | None":
    """Picos, least and greatest; None without counts or prices."""
    if in_total is None or out is None:
        return None
    plain = in_total - (read or 0) - (wrote or 0) - (hour or 0)
    if plain < 0:
        return None
    return prices.cost(provider, model, {
        "input": plain, "cache_read": read or 0, "cache_write": wrote or 0,
        "cache_write_1h": hour or 0, "output": out})
