"""Reads ledgers and exports, matches them, and makes the report."""

from __future__ import annotations

import collections
import contextlib
import decimal
import itertools
import re
import sqlite3
import time
import typing

from fivegates.reconcile.buckets import match_buckets
from fivegates.reconcile.cells import Leftover
from fivegates.reconcile.files import Export, open_export
from fivegates.reconcile.importers import FORMATS
from fivegates.reconcile.ledgers import LedgerFacts
from fivegates.reconcile.money import Price, PriceBook
from fivegates.reconcile.names import model_of, provider_of
from fivegates.reconcile.reader import Ledgers
from fivegates.reconcile.report import Report
from fivegates.reconcile.requests import (SKEW_MS, exact, fingerprints,
                                          learn_prompts, price_rows)
from fivegates.reconcile.rows import BillRow, ReconcileError, Window
from fivegates.reconcile.sources import Chosen, Given, choose, drop_overlaps
from fivegates.reconcile.store import BATCH, OPEN, UNSERVED, Store

__all__ = ["reconcile"]

Progress = typing.Callable[[str, int], object]


def reconcile(ledgers: "typing.Sequence[str]", bills: "typing.Sequence[str]", *,
              as_of_ms: "int | None" = None, keys: "typing.Collection[str]" = (),
              prices: "typing.Sequence[str]" = (),
              card: "tuple[str, typing.Mapping[str, typing.Any]] | None" = None,
              progress: Progress = lambda what, count: None) -> Report:
    """What the failures in the ledgers cost, according to the exports.

    ledgers, bills: paths; rotated ledgers in order. as_of_ms: when the
    exports were made, Unix time in ms (default: now); rows may come late, so
    what is younger than its export's lag stays open. keys: only these API
    keys' rows of the exports count. prices: `PROVIDER/MODEL=INPUT,OUTPUT`
    (also `,CACHE_READ,CACHE_WRITE`), USD per million tokens, for exports
    without money. card: fingerprint and contents of a card, for its prices.
    progress(what, count) hears of the work.

    The report owns a temporary file: use it in a `with`, or close it.
    Raises ReconcileError for input that cannot be used.
    """
    now = as_of_ms if as_of_ms is not None else int(time.time() * 1000)
    book = PriceBook()
    for text in prices:
        _give(book, text)
    with contextlib.ExitStack() as stack:
        opened = []
        for path in bills:  # before the long work
            opened.append(open_export(path, FORMATS))
            stack.callback(opened[-1].close)
        facts = LedgerFacts(list(ledgers))
        store = Store()
        try:
            if card is not None:
                _card_prices(book, card[1])
            given, stated = _read(store, facts, opened, book, keys,
                                  card[0] if card else None, progress)
            return _match(store, facts, given, stated, book, now, progress)
        except BaseException as exc:
            store.close()
            if isinstance(exc, sqlite3.Error):
                raise ReconcileError(
                    f"the temporary file: {exc}; set TMPDIR to a folder with "
                    "room, about a tenth of the ledgers and twice the exports") from exc
            if isinstance(exc, OverflowError):
                raise ReconcileError("a number in a ledger is beyond 64 bits; a line was "
                                     "edited: give the ledger as it was written") from None
            raise


_PRICE = re.compile(r"([^/=]+)/([^=]+)=([0-9.,]+)$")


def _give(book: PriceBook, text: str) -> None:
    found = _PRICE.match(text)
    numbers = found[3].split(",") if found else []
    try:
        values = [decimal.Decimal(one) / 1_000_000 for one in numbers]
    except decimal.InvalidOperation:
        values = []
    if found is None or not 2 <= len(values) <= 4:
        raise ReconcileError(f"--price {text}: not a price; write "
                             "PROVIDER/MODEL=INPUT,OUTPUT in USD per million tokens, such as "
                             "openai/gpt-4o=2.5,10")
    provider, model = provider_of(found[1]), model_of(found[2])
    for meter, value in zip(("input", "output", "cache_read", "cache_write"), values):
        book.give(provider, model, meter, value)
    book.see_currency(provider, "USD", f"--price {text}")


def _card_prices(book: PriceBook, card: "typing.Mapping[str, typing.Any]") -> None:
    for route in card["routes"].values():
        price = route.get("price")
        if not isinstance(price, dict):
            continue
        provider, model = provider_of(route["provider"]), model_of(route["model"])
        for meter, name in (("input", "input"), ("output", "output"),
                            ("cache_read", "cached_input")):
            if name in price:
                book.give(provider, model, meter,
                          decimal.Decimal(str(price[name])) / 1_000_000)
        book.see_currency(provider, "USD", "--card")


def _same_card(fingerprint: "str | None", facts: LedgerFacts) -> None:
    """Refuses a card that the ledger's calls were not decided by."""
    others = [one for one in facts.policies if one != fingerprint]
    if fingerprint is not None and others:
        raise ReconcileError(
            f"--card has the fingerprint {fingerprint}, but "
            f"{sum(facts.policies[one] for one in others)} calls of the ledger "
            f"were decided by {others[0]}; give the card that was in use then, "
            "or prices with --price")


def _read(store: Store, facts: LedgerFacts, opened: "list[Export]", book: PriceBook,
          keys: "typing.Collection[str]", fingerprint: "str | None", progress: Progress,
          ) -> "tuple[list[Given], list[Price]]":
    """Ledgers and exports into the store; side by side where the ledgers have a
    process of their own."""
    with Ledgers(facts.files, store, facts, lambda n: progress("ledger", n)) as ledgers:
        def whole() -> None:
            ledgers.finish()
            _same_card(fingerprint, facts)

        def step(at: int) -> None:
            ledgers.take()
            if ledgers.done:
                progress("exports", at)

        try:
            found = _load(store, opened, book, keys, step)
        except ReconcileError:  # what is wrong with a ledger, or the card, is told first
            whole()
            raise
        whole()
    _name_providers(store, found[0])
    return found


def _load(store: Store, opened: "list[Export]", book: PriceBook,
          keys: "typing.Collection[str]", step: "typing.Callable[[int], object]",
          ) -> "tuple[list[Given], list[Price]]":
    """The exports into the store; step(bytes read) comes before each batch."""
    given: "list[Given]" = []
    stated: "list[Price]" = []
    for src, export in enumerate(opened):
        one = Given(export.path, export.format, notes=export.notes)
        given.append(one)
        store.add_bill(src, _rows(export, one, book, stated, keys, step))
    store.db.execute("CREATE INDEX bill_rid ON bill(provider, rid, src) "
                     "WHERE rid IS NOT NULL AND bucket = 0")
    return given, stated


def _name_providers(store: Store, given: "list[Given]") -> None:
    """A tracer's rows do not name the provider: the ledger's, where it is one."""
    store.db.execute(
        "UPDATE bill SET provider = COALESCE((SELECT CASE COUNT(DISTINCT "
        "a.provider) WHEN 1 THEN MIN(a.provider) END FROM attempt a "
        "WHERE a.model = bill.model), '?') WHERE provider = ''")
    for src, one in enumerate(given):
        if "" in one.windows:
            span = one.windows.pop("")
            for (provider,) in store.rows(
                    "SELECT DISTINCT provider FROM bill WHERE src = ?", src):
                one.windows[provider] = span


def _rows(export: Export, given: Given, book: PriceBook, stated: "list[Price]",
          keys: "typing.Collection[str]", step: "typing.Callable[[int], object]",
          ) -> "typing.Iterator[BillRow]":
    for number in itertools.count():
        if number % BATCH == 0:
            step(export.tell())
        item = next(export.items, None)
        if item is None:
            break
        if isinstance(item, Price):
            if item.currency:
                _see(book, item.provider, item.currency, item.place)
            stated.append(item)
            if item.tokens is not None or item.per_token is not None:
                given.role.add("prices")
            continue
        span = given.windows.setdefault(item.provider, [item.t_lo, item.t_hi])
        span[0], span[1] = min(span[0], item.t_lo), max(span[1], item.t_hi)
        if isinstance(item, Window):
            continue
        given.rows += 1
        if item.currency and item.cost is not None and not given.format.gateway:
            _see(book, item.provider, item.currency, item.place)
        if not keys or item.key is None or item.key in keys:
            yield item


def _see(book: PriceBook, provider: str, currency: str, place: str) -> None:
    clash = book.see_currency(provider, currency, place)
    if clash is not None:
        raise ReconcileError(
            f"{place}: {currency}, but {provider} is in {clash[0]} at "
            f"{clash[1]}; amounts of two currencies are not added: reconcile "
            "them one after the other")


def _learn_prices(store: Store, given: "list[Given]", stated: "list[Price]",
                  book: PriceBook) -> None:
    """Prices of the bills; an amount without tokens takes them from an export
    of usage that covers its whole span."""
    meters = {"input": "in_total - COALESCE(cache_read, 0) - COALESCE(cache_write, 0) - COALESCE(cache_write_1h, 0)",
              "cache_read": "cache_read", "cache_write": "cache_write",
              "cache_write_1h": "cache_write_1h", "output": "out"}
    for price in stated:
        if price.per_token is not None or price.tokens is not None:
            book.learn(price)
            continue
        for src, one in enumerate(given):
            span = one.windows.get(price.provider)
            if span is None or span[0] > price.t_lo or span[1] < price.t_hi:
                continue
            tokens = store.one(
                f"SELECT SUM({meters[price.meter]}) FROM bill WHERE src = ? AND "
                "provider = ? AND model = ? AND t_lo >= ? AND t_hi <= ? "
                "AND in_total IS NOT NULL", src, price.provider, price.model,
                price.t_lo, price.t_hi)
            if tokens:
                price.tokens = decimal.Decimal(tokens)
                book.learn(price)
                one.role.add("prices")
                break


def _match(store: Store, facts: LedgerFacts, given: "list[Given]",
           stated: "list[Price]", book: PriceBook, now: int,
           progress: Progress) -> Report:
    progress("indexes", 0)
    store.db.execute("CREATE INDEX attempt_call ON attempt(name, step, n, t0)")
    twice = _drop_copies(store)
    dropped = drop_overlaps(store, given)
    for sql in (
            "CREATE INDEX attempt_op ON attempt(op)",
            "CREATE INDEX attempt_rid ON attempt(rid, provider) WHERE rid IS NOT NULL",
            "CREATE INDEX attempt_rid2 ON attempt(rid2, provider) WHERE rid2 IS NOT NULL",
            f"CREATE INDEX attempt_unserved ON attempt(provider, model, state) WHERE {UNSERVED}",
            "CREATE INDEX bill_cell ON bill(provider, model, t_lo) WHERE bucket = 1"):
        store.db.execute(sql)
    chosen = choose(store, given, now)
    _learn_prices(store, given, stated, book)
    tally: "collections.Counter[str]" = collections.Counter()
    left: "list[Leftover]" = []
    for provider, one in chosen.items():
        progress("matching " + provider, 0)
        if one.grain == 0:
            by_id = exact(store, one) > 0
            fingerprints(store, one, by_id)
            price_rows(store, provider, book)
            if not one.gateway:  # those are known to miss what was cut off
                _absent(store, one)
        else:
            learn_prompts(store, provider)
            left += match_buckets(store, one, book, tally)
    # Whose end is not written may have been served: billed, and perhaps not
    # for nothing.
    store.db.execute("UPDATE attempt SET verdict = 'maybe', confidence = 'possible' "
                     f"WHERE kind = 'lost' AND verdict = 'billed' AND {UNSERVED}")
    return Report(store, facts, given, chosen, book, now, left, tally,
                  {"twice in the ledgers": twice, "twice in the exports": dropped})


def _drop_copies(store: Store) -> int:
    """Counts once what two ledgers have alike; how many attempts were dropped."""
    if store.one("SELECT 1 FROM attempt GROUP BY name, step, n, t0 "
                 "HAVING COUNT(*) > 1 LIMIT 1") is None:  # the index alone tells that
        return 0
    return store.db.execute(
        "DELETE FROM attempt WHERE id IN (SELECT id FROM (SELECT id, ROW_NUMBER() "
        "OVER (PARTITION BY name, step, n, t0 ORDER BY state = 'unknown', id) AS copy "
        "FROM attempt) WHERE copy > 1)").rowcount


def _absent(store: Store, chosen: Chosen) -> None:
    """An attempt that no row can be, inside what the export covers, was not
    billed."""
    for lo, hi in chosen.windows:
        store.db.execute(
            "UPDATE attempt SET verdict = 'not_billed', confidence = 'probable', "
            "evidence = 'no row of the export' WHERE provider = ? AND verdict IS NULL "
            f"AND {OPEN} AND t0 - ? >= ? AND t1 + ? <= ?",
            (chosen.provider, SKEW_MS, lo, SKEW_MS, hi))
