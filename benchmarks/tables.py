"""What run.py prints: DESIGN 15 against its limits, and the peers."""

from __future__ import annotations

import dataclasses
import re
import typing

from programs import RELEASE, Row, Skip, output

Entry = typing.Dict[str, typing.Any]

# ---- DESIGN 15 --------------------------------------------------------------------


@dataclasses.dataclass
class Limit:
    what: str
    most: float
    unit: str
    sources: "list[tuple[str, str]]"  # program, regular expression of its rows


LIMITS = [
    Limit("fg_decide", 50, "ns", [("bench_decide", ".*")]),
    Limit("a call's life in C, one thread", 300, "ns",
          [("bench_life", r"(?i).*\blife\b.*|begin.*success.*"),
           ("bench_protect", "success, time given")]),
    Limit("a call's life from Python", 2000, "ns",
          [("bench_call", "a call's life")]),
    Limit("a call's life from LuaJIT, compiled", 400, "ns",
          [("bench_life 1", "success, time given")]),
    Limit("classify a 300-byte error body", 3000, "ns",
          [("bench_classify", r"classify (429|400|500).*")]),
    Limit("load a card, 1,000 workflows, 10,000 routes", 200, "ms",
          [("bench_card", "load a card.*")]),
    Limit("a route's shared state", 4096, "bytes",
          [("bench_card", "a route's record.*")]),
    Limit("a call's storage", 1024, "bytes",
          [("bench_card", "a call's storage")]),
]


def shown(value: float, unit: str) -> str:
    if unit == "bytes":
        return f"{value:,.0f} B"
    if unit == "ns" and value >= 10000:
        return f"{value / 1000:,.1f} us"
    return f"{value:,.0f} {unit}" if value >= 100 else f"{value:,.1f} {unit}"


def verdict(value: float, most: float) -> str:
    if value <= most:
        return "ok" if value == most else f"ok, {1 - value / most:.0%} below"
    return f"over, {value / most:.2f} times the limit"


def judge(rows: "list[Row]") -> "list[Entry]":
    """Each limit with its slowest matching row."""
    judged = []
    for limit in LIMITS:
        fit: "list[Row]" = []
        for program, pattern in limit.sources:
            fit = fit or [row for row in rows if row.program == program
                          and row.unit == limit.unit
                          and re.fullmatch(pattern, row.what)]
        entry: Entry = {
            "what": limit.what, "most": limit.most, "unit": limit.unit}
        if fit:
            worst = max(fit, key=lambda row: row.median)
            entry |= {"measured": worst.median, "row": worst.what,
                      "least": min(worst.values),
                      "greatest": max(worst.values),
                      "verdict": verdict(worst.median, limit.most)}
        else:
            entry["verdict"] = "not measured in this run"
        judged.append(entry)
    judged.append(allocations())
    return judged


def allocations() -> Entry:
    """tests/c/test_freeze.c counts them; here it is only run."""
    entry: Entry = {
        "what": "allocations after engine creation", "most": 0, "unit": ""}
    try:
        output([RELEASE / "test_freeze"])
        entry |= {"measured": 0, "row": "counted by tests/c/test_freeze.c",
                  "verdict": "ok"}
    except Skip as skip:
        entry["verdict"] = f"not measured: {skip}"
    return entry


# ---- the peers --------------------------------------------------------------------

WITHOUT = {
    "fivegates": "all of it in each row: state shared by processes, epochs, "
                 "budgets, stalls",
    "gobreaker": "breaker alone (with epochs): no retry, no budget, one "
                 "process",
    "failsafe-go": "one process, no epochs; a retry budget exists as a policy "
                   "apart",
    "resilience4j": "one process, no epochs, no budget",
    "tenacity": "retries alone: no breaker, no budget, nothing kept between "
                "calls",
    "stamina": "retries alone: no breaker, no budget, nothing kept between "
               "calls",
    "pybreaker": "breaker alone: no retry, no budget, no epochs, one process",
    "botocore": "budget alone: no breaker, no epochs, one process",
    "bare call": "",
}
BASES = {  # what a group is compared with: program and row, by path
    "c": {"success": ("bench_protect", "success, clock read 5 times"),
          "reject": ("bench_protect", "refused, breaker open"),
          "retry": ("bench_protect", "a 503, a paid retry, success")},
    "python": {"success": ("bench_protect",
                           "begin, permit, sent, token, success"),
               "reject": ("bench_protect", "begin, breaker open")},
}
LOOPS = {"tenacity", "stamina"}  # they run the call, as engine.run does
WHOLE = "engine.run, the whole loop"


def base(rows: "list[Row]", group: str, path: str) -> "Row | None":
    side = "python" if group == "python" else "c"
    wanted = BASES[side].get(path)
    return next((row for row in rows if row.group == side
                 and (row.program, row.what) == wanted), None)


def compare(rows: "list[Row]") -> "list[Entry]":
    whole = next((row for row in rows if row.what == WHOLE), None)
    table = []
    for row in rows:
        path = row.path
        if row.group == "c":
            path = next((path for path, wanted in BASES["c"].items()
                         if (row.program, row.what) == wanted), "")
        elif row.program == "bench_call":
            path = ""
        if not path:
            continue
        entry: Entry = {
            "group": row.group, "peer": row.peer, "version": row.version,
            "path": path, "what": row.what, "ns": row.median,
            "least": min(row.values), "greatest": max(row.values),
            "without": WITHOUT.get(row.peer, "")}
        if row.allocs is not None:
            entry["allocs"] = row.allocs
        beside = base(rows, row.group, path)
        if beside is not None and beside is not row and path != "bare":
            entry["ratio"] = row.median / beside.median
        if row.peer in LOOPS and whole is not None:
            entry["ratio_run"] = row.median / whole.median
        table.append(entry)
    return table


# ---- printing --------------------------------------------------------------------


def print_limits(judged: "list[Entry]") -> None:
    print("\nDESIGN 15: numbers to hold\n")
    print(f"{'what':<45} {'at most':>9} {'measured':>10}  verdict")
    for entry in judged:
        unit = entry["unit"]
        most = shown(entry["most"], unit) if unit else str(entry["most"])
        saw = "-"
        if "measured" in entry:
            saw = (shown(entry["measured"], unit) if unit
                   else str(entry["measured"]))
        print(f"{entry['what']:<45} {most:>9} {saw:>10}  {entry['verdict']}")
        if "row" in entry and unit in ("ns", "ms"):
            print(f"{'':<5}slowest row: {entry['row']}; runs "
                  f"{shown(entry['least'], unit)} to "
                  f"{shown(entry['greatest'], unit)}")


PATHS = ("bare", "success", "reject", "retry")
TITLES = {"c": "C (fivegates; the measure of Go and Java)", "lua": "LuaJIT",
          "go": "Go", "java": "Java", "python": "Python"}


def print_peers(table: "list[Entry]") -> None:
    print("\nOne protected call (ratio: times fivegates on the same path)\n")
    for group, title in TITLES.items():
        mine = [entry for entry in table if entry["group"] == group]
        if not mine:
            continue
        mine.sort(key=lambda entry: (
            PATHS.index(entry["path"]),
            entry["peer"] != "fivegates", entry["peer"], entry["ns"]))
        print(title)
        for entry in mine:
            ratio = f"{entry['ratio']:.2f}x" if "ratio" in entry else "-"
            if "ratio_run" in entry:
                ratio += f" (run {entry['ratio_run']:.2f}x)"
            name = f"{entry['peer']} {entry['version']}".strip()
            allocs = (f", {entry['allocs']:.0f} allocs"
                      if entry.get("allocs") else "")
            print(f"  {entry['path']:<8}{name:<20} "
                  f"{entry['what'] + allocs:<52} "
                  f"{shown(entry['ns'], 'ns'):>9} {ratio:>18}")
    print("\nWhat they leave out" if table else "  nothing could be measured")
    for peer in dict.fromkeys(entry["peer"] for entry in table):
        if WITHOUT.get(peer):
            print(f"  {peer:<14}{WITHOUT[peer]}")


def print_rest(rows: "list[Row]") -> None:
    print("\nEvery row of fivegates")
    for row in rows:
        if row.peer == "fivegates":
            print(f"  {row.program:<15}{row.what:<50} "
                  f"{shown(row.median, row.unit):>10}")
