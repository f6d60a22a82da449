"""What came of a reconciliation: findings, money, coverage, what was learned."""

from __future__ import annotations

import collections
import itertools
import json
import typing

from fivegates.reconcile.cells import Leftover
from fivegates.reconcile.ledgers import LedgerFacts
from fivegates.reconcile.money import PriceBook, text
from fivegates.reconcile.rows import stamp
from fivegates.reconcile.sources import Chosen, Given
from fivegates.reconcile.store import OPEN, UNSERVED, Store

__all__ = ["CONFIDENCES", "FINDING_FIELDS", "Report"]

Json = typing.Dict[str, typing.Any]
CONFIDENCES = ("certain", "probable", "possible")
FINDING_FIELDS = ("call", "verdict", "confidence", "provider", "model", "route",
                  "workflow", "at", "attempts", "kinds", "wasted_lo",
                  "wasted_hi", "currency", "evidence")

# Attempts that the bill has, or may have, and the user did not.
_WASTED = f"{UNSERVED} AND verdict IN ('billed', 'maybe')"


class Report:
    """The report of one reconciliation; findings are read as they are asked
    for. Close it, or use it in a `with`: it owns a temporary file."""

    def __init__(self, store: Store, facts: LedgerFacts, given: "list[Given]",
                 chosen: "dict[str, Chosen]", prices: PriceBook, as_of: int,
                 left: "list[Leftover]", tally: "collections.Counter[str]",
                 counted_once: "dict[str, int]") -> None:
        self._store = store
        self._facts = facts
        self._given = given
        self._chosen = chosen
        self._prices = prices
        self._as_of = as_of
        self._left = left
        self._tally = tally
        self._counted_once = counted_once
        self.summary: Json = self._summary()

    def __enter__(self) -> "Report":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Removes the temporary file; findings cannot be read after it."""
        self._store.close()

    def _coin(self, provider: str) -> str:
        return self._prices.currency(provider) or "unknown"

    def _spelled(self, provider: str, model: str) -> str:
        return self._facts.spelled.get((provider, model), model)

    # ---- findings

    def findings(self) -> "typing.Iterator[Json]":
        """Calls that were billed more than once, or for nothing: one each, in
        the ledger's order, with FINDING_FIELDS."""
        shared = dict(self._store.rows(
            f"SELECT pool, COUNT(DISTINCT op) FROM attempt WHERE {_WASTED} "
            "AND pool IS NOT NULL GROUP BY pool"))
        rows = self._store.rows(
            "SELECT a.op, a.name, a.workflow, a.provider, a.model, a.route, a.t0, "
            "a.n, a.kind, a.verdict, a.confidence, a.lo, a.hi, a.pool, p.lo, "
            "p.hi, a.evidence, EXISTS (SELECT 1 FROM attempt d WHERE d.op = a.op "
            "AND d.step = a.step AND d.state = 'delivered') FROM attempt a LEFT JOIN pool p "
            f"ON p.id = a.pool WHERE a.{_WASTED.replace('verdict', 'a.verdict')} "
            "ORDER BY a.op, a.provider, a.model, a.step, a.n")
        for _, same in itertools.groupby(rows, key=lambda row: (row[0], row[3], row[4])):
            yield self._finding(list(same), shared)

    def _finding(self, rows: "list[tuple[typing.Any, ...]]",
                 shared: "dict[int, int]") -> Json:
        lo: "int | None" = 0
        hi: "int | None" = 0
        pools: "set[int]" = set()
        for row in rows:
            least, most, pool = row[11], row[12], row[13]
            if pool is not None:
                if pool in pools:
                    continue
                pools.add(pool)
                # What other calls have part in is not this call's for sure.
                least, most = (row[14] if shared[pool] == 1 else 0), row[15]
            if row[9] == "maybe":
                least = 0 if most is not None else None
            lo = None if lo is None or least is None else lo + least
            hi = None if hi is None or most is None else hi + most
        first = rows[0]
        sure = [row for row in rows if row[9] == "billed"]
        free = hi == 0 and lo == 0 and all(row[9] == "billed" for row in rows)
        return {
            "call": first[1],
            "verdict": ("repeated_free" if free else
                        "double_charge" if first[17] or len(sure) > 1
                        else "orphan_charge"),
            "confidence": max((row[10] for row in rows), key=CONFIDENCES.index),
            "provider": first[3], "model": self._spelled(first[3], first[4]),
            "route": first[5], "workflow": first[2], "at": stamp(first[6]),
            "attempts": [row[7] for row in rows],
            "kinds": [row[8] for row in rows],
            "wasted_lo": None if lo is None else text(lo),
            "wasted_hi": None if hi is None else text(hi),
            "currency": self._coin(first[3]),
            "evidence": "; ".join(dict.fromkeys(str(row[16]) for row in rows)),
        }

    # ---- the summary

    def _summary(self) -> Json:
        store = self._store
        states: "collections.Counter[str]" = collections.Counter()
        providers = set()
        for provider, state, count in store.rows(
                "SELECT provider, state, COUNT(*) FROM attempt GROUP BY 1, 2"):
            states[state] += count
            providers.add(provider)
        return {
            "version": 1,
            "as_of": stamp(self._as_of),
            "ledger": {
                "files": self._facts.files, "lines": self._facts.lines,
                "calls": store.one("SELECT COUNT(DISTINCT op) FROM attempt"),
                "attempts": sum(states.values()),
                "served": states["delivered"],
                "refused": states["none"],
                "in_question": states["unknown"] + states["billed"],
                "torn_lines": self._facts.torn,
                "torn_at": self._facts.torn_places,
                "attempts_without_their_lines": self._facts.incomplete,
                "policies": self._facts.policies},
            "money": self._money(),  # before the exports: it says which of them
            "exports": [self._export(one) for one in self._given],
            "counted_once": self._counted_once,
            "coverage": self._coverage(sum(states.values()) - states["none"], providers),
            "unexplained": [self._leftover(one) for one in self._left],
            "not_in_ledger": self._foreign(),
            "learned": self._learned(),
        }

    def _export(self, one: Given) -> Json:
        spans = list(one.windows.values())
        return {"file": one.path, "format": one.format.name, "rows": one.rows,
                "from": stamp(min(span[0] for span in spans)) if spans else None,
                "to": stamp(max(span[1] for span in spans)) if spans else None,
                "used_for": sorted(one.role) or ["nothing"], "notes": one.notes}

    def _money(self) -> Json:
        """By currency: what was billed, and what of it was wasted."""
        out: "dict[str, Json]" = {}

        def of(provider: str) -> Json:
            return out.setdefault(self._coin(provider), {
                "billed": {}, "wasted": {word: [0, 0] for word in CONFIDENCES},
                "wasted_by_provider": {}, "without_price": 0})

        for provider, amount, source in self._billed():
            of(provider)["billed"][provider] = {"amount": text(amount), "from": source}
        for provider, word, lo, hi, count in self._wasted():
            if lo is None or hi is None:
                of(provider)["without_price"] += count
                continue
            for spans in (of(provider)["wasted"],
                          of(provider)["wasted_by_provider"].setdefault(
                              provider, {each: [0, 0] for each in CONFIDENCES})):
                spans[word][0] += lo
                spans[word][1] += hi
        for one in out.values():
            spans = one["wasted"]
            one["wasted_at_least"] = text(spans["certain"][0])
            one["wasted_probably"] = [text(spans["certain"][k] + spans["probable"][k])
                                      for k in (0, 1)]
            one["wasted_at_most"] = text(sum(span[1] for span in spans.values()))
            one["wasted"] = _texts(spans)
            one["wasted_by_provider"] = {
                provider: _texts(own) for provider, own in one["wasted_by_provider"].items()}
        return out

    def _billed(self) -> "typing.Iterator[tuple[str, int, str]]":
        """What each provider's bill comes to, from one of its exports: the
        matched one if it has money, else the one of the longest span."""
        for (provider,) in list(self._store.rows(
                "SELECT DISTINCT provider FROM bill WHERE cost IS NOT NULL ORDER BY 1")):
            best: "tuple[bool, int, str] | None" = None
            for src, span_ms, used in self._store.rows(
                    "SELECT src, MAX(t_hi) - MIN(t_lo), MAX(used) FROM bill WHERE "
                    "provider = ? AND cost IS NOT NULL GROUP BY src", provider):
                rank = (bool(used), int(span_ms), self._given[src].format.name)
                if not self._given[src].format.gateway or self._chosen.get(provider) is None \
                        or self._chosen[provider].gateway:
                    best = max(best, rank) if best else rank
            if best is None:
                continue
            sources = [str(i) for i, one in enumerate(self._given)
                       if one.format.name == best[2]]
            for (src,) in self._store.rows("SELECT DISTINCT src FROM bill WHERE cost IS NOT "
                                           "NULL AND provider = ?", provider):
                if str(src) in sources:
                    self._given[src].role.add("money")
            amount = self._store.money(
                "cost", f"FROM bill WHERE provider = ? AND src IN ({','.join(sources)})",
                provider)
            yield provider, amount, best[2]

    def _wasted(self) -> "typing.Iterator[tuple[str, str, int | None, int | None, int]]":
        for provider, word, verdict, priced, count in list(self._store.rows(
                "SELECT provider, confidence, verdict, hi IS NOT NULL, COUNT(*) "
                f"FROM attempt WHERE {_WASTED} AND pool IS NULL "
                "GROUP BY 1, 2, 3, 4")):
            if not priced:
                yield provider, word, None, None, count
                continue
            rest = (f"FROM attempt WHERE {_WASTED} AND pool IS NULL AND provider = ? "
                    "AND confidence = ? AND verdict = ? AND hi IS NOT NULL")
            hi = self._store.money("hi", rest, provider, word, verdict)
            lo = self._store.money("lo", rest, provider, word, verdict)
            yield provider, word, lo if verdict == "billed" else 0, hi, count
        yield from self._store.rows(
            "SELECT provider, confidence, lo, hi, 1 FROM pool WHERE id IN "
            f"(SELECT pool FROM attempt WHERE {_WASTED})")

    def _coverage(self, counted: int, providers: "set[str]") -> Json:
        """counted: attempts that may have been billed. providers: of the ledgers."""
        store = self._store
        requests = [one.provider for one in self._chosen.values() if one.grain == 0]
        marks = ",".join("?" * len(requests))
        served, matched = next(store.rows(
            "SELECT COUNT(*), COUNT(bill) FROM attempt WHERE state = 'delivered' "
            f"AND provider IN ({marks})", *requests))
        told = store.one(f"SELECT COUNT(*) FROM attempt WHERE {OPEN} AND verdict IS NOT NULL")
        everything = store.one("SELECT SUM(COALESCE(in_total, 0) + COALESCE(out, 0)) "
                               "FROM bill WHERE used = 1") or 0
        foreign = store.one("SELECT SUM(COALESCE(in_total, 0) + COALESCE(out, 0)) "
                            "FROM bill WHERE used = 1 AND bucket = 0 AND taken IS NULL") or 0
        foreign += sum(max(one.tokens_in or 0, 0) + max(one.tokens_out or 0, 0)
                       for one in self._left)
        explained = matched + self._tally["explained"] + told
        return {
            "attempts": counted, "explained": explained,
            "ppm": explained * 1_000_000 // counted if counted else 1_000_000,
            "export_tokens": everything, "export_tokens_explained": everything - foreign,
            "uncovered": {
                provider: count for provider, count in store.rows(
                    f"SELECT provider, COUNT(*) FROM attempt WHERE {OPEN} "
                    "AND verdict IS NULL GROUP BY provider")
                if provider in self._chosen},
            "no_export": sorted(providers - self._chosen.keys()),
            "served_without_row": served - matched}

    def _leftover(self, one: Leftover) -> Json:
        return {"provider": one.provider,
                "model": self._spelled(one.provider, one.model),
                "from": stamp(one.t_lo), "to": stamp(one.t_hi),
                "requests": one.requests, "input_tokens": one.tokens_in,
                "output_tokens": one.tokens_out,
                "cost_lo": None if one.lo is None else text(one.lo),
                "cost_hi": None if one.hi is None else text(one.hi),
                "currency": self._coin(one.provider), "why": one.why}

    def _foreign(self) -> "list[Json]":
        """Requests in the exports that no attempt made: other software, lines
        the ledger lacks, or resends hidden in an SDK."""
        out = []
        mine = "FROM bill WHERE used = 1 AND bucket = 0 AND taken IS NULL AND provider = ?"
        for provider in sorted(self._chosen):
            count = self._store.one(f"SELECT COUNT(*) {mine}", provider)
            again = self._store.one(
                "SELECT COUNT(*) FROM bill b JOIN attempt a ON a.id = b.taken "
                "WHERE b.used = 1 AND b.id <> a.bill AND b.provider = ?", provider)
            alike = self._store.one(
                "SELECT COUNT(*) FROM bill b WHERE b.used = 1 AND b.bucket = 0 "
                "AND b.taken IS NULL AND b.provider = ? AND EXISTS (SELECT 1 FROM bill c "
                "JOIN attempt a ON a.id = c.taken WHERE c.provider = b.provider "
                "AND c.model = b.model AND c.in_total = b.in_total AND c.bucket = 0 "
                "AND c.t_lo BETWEEN b.t_lo - 600000 AND b.t_lo + 600000 "
                "AND b.t_lo BETWEEN a.t0 AND a.t1)", provider) if count else 0
            if count or again:
                out.append({"provider": provider, "requests": count,
                            "cost": text(self._store.money("cost", mine, provider)),
                            "currency": self._coin(provider),
                            "perhaps_hidden_resends": alike + again})
        return out

    def _learned(self) -> "list[Json]":
        """How often an attempt that ended in each way was billed, by route."""
        out = []
        for provider, model, route, kind, *counts in self._store.rows(
                "SELECT provider, model, route, kind, "
                "SUM(COALESCE(verdict = 'billed' AND confidence = 'certain', 0)), "
                "SUM(COALESCE(verdict = 'billed' AND confidence <> 'certain', 0)), "
                "SUM(COALESCE(verdict = 'maybe', 0)), "
                "SUM(COALESCE(verdict = 'not_billed', 0)), SUM(verdict IS NULL) "
                f"FROM attempt WHERE {OPEN} "
                "GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4"):
            certain, probable, maybe, not_billed, open_ = counts
            known = certain + probable + not_billed
            out.append({
                "provider": provider, "model": self._spelled(provider, model),
                "route": route, "kind": kind, "attempts": sum(counts),
                "billed": certain + probable, "billed_certain": certain,
                "perhaps_billed": maybe, "not_billed": not_billed, "not_told": open_,
                "billed_ppm": (certain + probable) * 1_000_000 // known if known else None})
        return out

    # ---- out

    def write_json(self, write: "typing.Callable[[str], object]") -> None:
        """The summary and the findings as one JSON document, as it is made."""
        head = json.dumps(self.summary, indent=2, ensure_ascii=False)
        write(head.rstrip("}\n") + ",\n  \"findings\": [")
        comma = ""
        for finding in self.findings():
            write(comma + "\n    " + json.dumps(finding, ensure_ascii=False))
            comma = ","
        write("\n  ]\n}\n" if comma else "]\n}\n")


def _texts(spans: "dict[str, list[int]]") -> Json:
    return {word: [text(lo), text(hi)] for word, (lo, hi) in spans.items()}
