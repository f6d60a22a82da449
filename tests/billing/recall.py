"""How much of what was paid for nothing `fivegates reconcile` finds, by kind
of export: PYTHONPATH=bindings/python python -m billing.recall, from tests/."""

from __future__ import annotations

import dataclasses
import decimal
import pathlib
import random
import sys
import tempfile
import typing

from fivegates.reconcile import reconcile

from .exports import KINDS, Kind
from .world import World, core_ledger, log_ledger, make

NOISE = {"late": 0.03, "skew": 2.0, "foreign": 0.1, "missing": 0.03}
# The end of the period, and the lag of the slowest export.
AS_OF = 1_793_620_800_000 + 30 * 86_400_000


@dataclasses.dataclass
class Score:
    """Calls with waste in truth; of those found, and found by mistake, by
    confidence. money: picos wasted in truth, found at least and at most."""

    truth: int = 0
    found: "dict[str, int]" = dataclasses.field(default_factory=dict)
    wrong: "dict[str, int]" = dataclasses.field(default_factory=dict)
    money: "list[int]" = dataclasses.field(default_factory=lambda: [0, 0, 0])

    def add(self, other: "Score") -> None:
        self.truth += other.truth
        for mine, theirs in ((self.found, other.found), (self.wrong, other.wrong)):
            for word, count in theirs.items():
                mine[word] = mine.get(word, 0) + count
        self.money = [a + b for a, b in zip(self.money, other.money)]


def ledger_of(world: World, kind: Kind, form: str, lost: float = 0, seed: int = 0) -> str:
    """form: `log`, `core`, or `bare`: the core's without usage and ids."""
    if form == "log":
        return log_ledger(world, kind.provider, kind.model)
    rng = random.Random(seed)
    return core_ledger(world, kind.provider, kind.model, form == "core",
                       lambda: rng.random() < lost)


def run(folder: pathlib.Path, world: World, kind: Kind, form: str = "core",
        lost: float = 0) -> "tuple[Score, dict[str, typing.Any], list[dict[str, typing.Any]]]":
    """Reconciles one world; its score, the summary and the findings."""
    ledger, bill = folder / "ledger.jsonl", folder / f"bill.{kind.suffix}"
    ledger.write_text(ledger_of(world, kind, form, lost))
    bill.write_text(kind.write(world), encoding="utf-8")
    with reconcile([str(ledger)], [str(bill)], as_of_ms=AS_OF,
                   prices=[f"{kind.provider}/{kind.model}=2.5,15,0.25"]) as report:
        findings = list(report.findings())
        summary = report.summary
    known = {call.name for call in world.calls if call.in_ledger}
    truth = {name: cost for name, cost in world.doubles.items() if name in known}
    score = Score(len(truth))
    for one in findings:
        book = score.found if one["call"] in truth else score.wrong
        book[one["confidence"]] = book.get(one["confidence"], 0) + 1
    money = summary["money"].get("USD", {"wasted_at_least": "0", "wasted_at_most": "0"})
    score.money = [sum(truth.values()), *(
        int(decimal.Decimal(money[name]).scaleb(12)) for name in ("wasted_at_least", "wasted_at_most"))]
    return score, summary, findings


def main(seeds: int = 20) -> None:
    print(f"{'export':<24}{'ledger':<7}{'noise':<7}{'doubles':>8}{'certain':>9}{'probable':>9}"
          f"{'possible':>9}{'wrong: c / p / possible':>26}")
    with tempfile.TemporaryDirectory() as name:
        for label, kind in KINDS.items():
            for form in ("core", "bare"):
                for noise in (False, True):
                    total = Score()
                    for seed in range(seeds):
                        world = make(seed, 60, **(NOISE if noise else {}))
                        total.add(run(pathlib.Path(name), world, kind, form,
                                      0.01 if noise else 0)[0])
                    found = [100 * total.found.get(word, 0) / total.truth
                             for word in ("certain", "probable", "possible")]
                    wrong = " / ".join(str(total.wrong.get(word, 0))
                                       for word in ("certain", "probable", "possible"))
                    print(f"{label:<24}{form:<7}{'yes' if noise else 'no':<7}{total.truth:>8}"
                          + "".join(f"{one:>7.0f} %" for one in found) + f"{wrong:>26}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
