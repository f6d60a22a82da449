"""Which of the given exports is evidence for which provider.

Exports of one provider describe the same traffic, so they are never added:
the finest one is matched, the others give prices. Two files of one format
are put together; what both have is counted once, and where they differ they
are refused.
"""

from __future__ import annotations

import dataclasses
import typing

from fivegates.reconcile.files import Format
from fivegates.reconcile.money import text
from fivegates.reconcile.rows import ReconcileError
from fivegates.reconcile.store import Store

__all__ = ["Chosen", "Given", "choose", "drop_overlaps"]

_SAME = ("requests", "in_total", "cache_read", "cache_write", "cache_write_1h",
         "out", "cost")


@dataclasses.dataclass
class Given:
    """One export as it was read. windows: by provider, the first and last
    instant it tells of."""

    path: str
    format: Format
    rows: int = 0
    notes: "list[str]" = dataclasses.field(default_factory=list)
    windows: "dict[str, list[int]]" = dataclasses.field(default_factory=dict)
    role: "set[str]" = dataclasses.field(default_factory=set)


@dataclasses.dataclass
class Chosen:
    """A provider's evidence. grain: 0 for rows by request, else a cell in ms.
    windows: where it is complete, late rows allowed for."""

    provider: str
    formats: "list[Format]"
    sources: "list[int]"
    grain: int
    windows: "list[tuple[int, int]]"
    keys: bool = False  # whether both sides name keys alike

    @property
    def limit(self) -> str:
        """The most confident word its evidence supports."""
        words = ("possible", "probable", "certain")
        word = min((one.limit for one in self.formats), key=words.index)
        # A day's sums tell how much, seldom whose.
        return "possible" if self.grain >= 86_400_000 else word

    @property
    def gateway(self) -> bool:
        return self.formats[0].gateway

    def covers(self, lo: int, hi: int) -> bool:
        return any(a <= lo and hi <= b for a, b in self.windows)


def _clash(what: str, first: str, second: str) -> ReconcileError:
    return ReconcileError(
        f"{second}: {what} is also at {first}, and the two differ; export the "
        "period once again, in one file, and give only that")


def drop_overlaps(store: Store, given: "typing.Sequence[Given]") -> int:
    """Counts once what several exports of one format have alike; how many
    rows were dropped. ReconcileError where they differ."""
    before = store.one("SELECT COUNT(*) FROM bill")
    gateways = _list(i for i, one in enumerate(given) if one.format.gateway)
    for which in ("NOT IN", "IN"):
        _drop_requests(store, f"rid IS NOT NULL AND bucket = 0 AND src {which} ({gateways})")
    for name in {one.format.name for one in given}:
        sources = [i for i, one in enumerate(given) if one.format.name == name]
        if len(sources) > 1:
            _drop_cells(store, sources)
            _drop_rows(store, sources)
    return int(before - store.one("SELECT COUNT(*) FROM bill"))


def _drop_requests(store: Store, where: str) -> None:
    """Requests with an id: each counts once."""
    twice = (f"SELECT provider, rid FROM bill WHERE {where} "
             "GROUP BY provider, rid HAVING COUNT(*) > 1")
    if store.one(twice) is None:  # the index alone tells that
        return
    differ = " OR ".join(f"MIN({name}) <> MAX({name})" for name in _SAME)
    clash = next(store.rows(
        f"SELECT rid, MIN(place), MAX(place) FROM bill WHERE {where} "
        f"AND (provider, rid) IN ({twice}) GROUP BY provider, rid HAVING {differ}"), None)
    if clash is not None:
        raise _clash(f"the request {clash[0]}", clash[1], clash[2])
    store.db.execute(f"DELETE FROM bill WHERE {where} AND id NOT IN (SELECT MIN(id) "
                     f"FROM bill WHERE {where} GROUP BY provider, rid)")


def _list(sources: "typing.Iterable[int]") -> str:
    return ",".join(map(str, sources))


def _drop_rows(store: Store, sources: "list[int]") -> None:
    """Requests without an id: the same row in two files is one request."""
    columns = "provider, model, key, t_lo, t_hi, in_total, out, cost"
    store.db.execute(
        "DELETE FROM bill WHERE id IN (SELECT id FROM (SELECT id, ROW_NUMBER() "
        f"OVER (PARTITION BY {columns}, n ORDER BY src) AS copy FROM (SELECT *, "
        f"ROW_NUMBER() OVER (PARTITION BY src, {columns} ORDER BY id) AS n FROM "
        f"bill WHERE bucket = 0 AND rid IS NULL AND src IN ({_list(sources)}))) "
        "WHERE copy > 1)")


def _drop_cells(store: Store, sources: "list[int]") -> None:
    """Cells: one file may have several rows of a cell, by key or meter; two
    files that have the cell must have the same sums."""
    sums = ", ".join(f"SUM({name})" for name in _SAME)
    seen: "dict[tuple[object, ...], tuple[int, tuple[object, ...], str]]" = {}
    drop: "list[tuple[int, object, object, object, object]]" = []
    for provider, model, lo, hi, src, place, *values in store.rows(
            f"SELECT provider, model, t_lo, t_hi, src, MIN(place), {sums} "
            f"FROM bill WHERE bucket = 1 AND src IN ({_list(sources)}) "
            "GROUP BY provider, model, t_lo, t_hi, src ORDER BY src"):
        tokens = values[1] is not None or values[5] is not None or values[0] is not None
        cell = (provider, model, lo, hi, tokens)
        first = seen.setdefault(cell, (src, tuple(values), place))
        if first[0] == src:
            continue
        if first[1] != tuple(values):
            raise _clash(f"the cell of {model or provider} with "
                         f"{_amount(values)}", first[2], place)
        drop.append((src, provider, model, lo, hi))
    store.db.executemany(
        "DELETE FROM bill WHERE bucket = 1 AND src = ? AND provider = ? "
        "AND model = ? AND t_lo = ? AND t_hi = ?", drop)


def _amount(values: "typing.Sequence[typing.Any]") -> str:
    if values[1] is not None:
        return f"{values[1]} input tokens"
    return f"a cost of {text(values[6] or 0)}"


def choose(store: Store, given: "typing.Sequence[Given]", as_of: int,
           ) -> "dict[str, Chosen]":
    """The evidence of each provider: its own bill before a gateway's log,
    requests before cells, small cells before great ones."""
    found: "dict[str, dict[tuple[bool, int, str], list[int]]]" = {}
    for provider, src, grain in store.rows(
            "SELECT DISTINCT provider, src, CASE bucket WHEN 0 THEN 0 ELSE "
            "t_hi - t_lo END FROM bill WHERE in_total IS NOT NULL "
            "OR out IS NOT NULL OR requests IS NOT NULL OR bucket = 0"):
        one = given[src].format
        rank = (one.gateway, grain, "" if grain == 0 and not one.gateway else one.name)
        found.setdefault(provider, {}).setdefault(rank, []).append(src)
    out: "dict[str, Chosen]" = {}
    store.db.execute(f"UPDATE bill SET used = 0 WHERE provider NOT IN ({','.join('?' * len(found))})",
                     tuple(found))
    for provider, ranks in found.items():
        rank = min(ranks)
        sources = sorted(set(ranks[rank]))
        formats = list({given[i].format.name: given[i].format for i in sources}.values())
        windows = []
        for i in sources:
            given[i].role.add("matched")
            lo, hi = given[i].windows[provider]
            # Rows later than this may still come.
            hi = min(hi, as_of - given[i].format.lag_ms)
            if hi >= lo:
                windows.append((lo, hi))
        out[provider] = Chosen(provider, formats, sources, rank[1], _joined(windows))
        store.db.execute(
            "UPDATE bill SET used = 0 WHERE provider = ? AND NOT (src IN "
            f"({_list(sources)}) AND CASE bucket WHEN 0 THEN 0 ELSE t_hi - t_lo END = ? "
            "AND (bucket = 0 OR in_total IS NOT NULL OR out IS NOT NULL "
            "OR requests IS NOT NULL))", (provider, rank[1]))
        out[provider].keys = bool(store.one(
            "SELECT 1 FROM attempt WHERE provider = ? AND key IN (SELECT key "
            "FROM bill WHERE provider = ? AND used = 1) LIMIT 1", provider, provider))
    return out


def _joined(windows: "list[tuple[int, int]]") -> "list[tuple[int, int]]":
    out: "list[tuple[int, int]]" = []
    for lo, hi in sorted(windows):
        if out and lo <= out[-1][1]:
            out[-1] = (out[-1][0], max(out[-1][1], hi))
        else:
            out.append((lo, hi))
    return out
