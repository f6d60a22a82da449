"""The vectors through the Python package: every case passes, and the answers
are those of the C runner to the byte, where that has been built."""

from __future__ import annotations

import hashlib
import io
import json
import pathlib
import subprocess
import typing
from decimal import Decimal

import pytest

import fivegates
from fivegates.vectors import replay, vector_files

from .conftest import ROOT

VECTORS = ROOT / "tests" / "vectors"
FILES = vector_files(VECTORS)
# Builds without sanitizers come first: they are the quickest.
RUNNERS = [ROOT / "build" / name / "run_vectors"
           for name in ("meson", "release", "asan")]


def test_there_are_enough() -> None:
    cases = sum(len(json.loads(pathlib.Path(file).read_text())["cases"])
                for file in FILES)
    assert cases >= 300


@pytest.mark.parametrize("file", FILES, ids=lambda path: pathlib.Path(path).stem)
def test_file(file: str) -> None:
    said: "list[str]" = []
    report = replay([file], said.append)
    assert report.failed == 0, "\n".join(said)
    assert report.passed == len(json.loads(
        pathlib.Path(file).read_text())["cases"])


def test_same_bytes_as_c(tmp_path: pathlib.Path) -> None:
    runner = next((path for path in RUNNERS if path.is_file()), None)
    if runner is None:
        pytest.skip("the C runner has not been built here")
    newest = max(path.stat().st_mtime for pattern in ("core/*/*.[chi]*",
                 "tests/c/vec_*.h") for path in ROOT.glob(pattern))
    if runner.stat().st_mtime < newest:
        pytest.skip("the C runner is older than its sources: make build")
    dumped = tmp_path / "c.dump"
    done = subprocess.run([runner, "--dump", dumped, VECTORS],
                          capture_output=True, text=True, check=False)
    ours = io.StringIO()
    report = replay([VECTORS], lambda _: None, ours)
    last = done.stdout.strip().splitlines()[-1]
    assert last == f"{report.passed} passed, {report.failed} failed"
    theirs = dumped.read_text(encoding="utf-8").split("\n")
    mine = ours.getvalue().split("\n")
    for c_line, py_line in zip(theirs, mine):
        assert c_line == py_line
    assert len(theirs) == len(mine)


def policies() -> "typing.Iterator[tuple[str, dict[str, typing.Any]]]":
    """Every card of stale.json: the case's own and those it reloads."""
    for case in json.loads((VECTORS / "stale.json").read_text())["cases"]:
        yield case["name"], case["policy"]
        for step in case["steps"]:
            if step["op"] == "reload":
                yield case["name"], step["in"]["policy"]


def lines(side: str, stated: "dict[str, typing.Any]") -> "typing.Iterator[str]":
    for section, keys in stated.items():
        for key, value in keys.items():
            if isinstance(value, list):
                value = sorted(value)
            yield f"{side}.{section}.{key}=" + json.dumps(
                value, separators=(",", ":"), sort_keys=True)


def price(stated: typing.Any) -> "tuple[Decimal, ...] | None":
    """Input, cached, output; None: none stated."""
    if stated is None:
        return None
    if stated == "free":
        stated = {"input": 0, "output": 0}
    return tuple(Decimal(str(stated.get(key, stated["input"])))
                 for key in ("input", "cached_input", "output"))


def test_stale_is_what_design_9_says() -> None:
    """Fingerprints from DESIGN 9's words alone, prices as decimals, and the models
    that evidence names: a contract of stale.json is stale exactly when one differs."""
    seen: "dict[str, int]" = {}
    for name, card in policies():
        policy = fivegates.Policy.loads(json.dumps(card), json=True)
        for contract in card["contracts"]:
            workflow = card["workflows"]["w"]
            route = card["routes"][contract["route"]]
            text = [*lines("requires", workflow["requires"]),
                    *lines("provides", route["provides"]),
                    *(f"route.{key}={json.dumps(route[key])}" for key in
                      ("provider", "model", "version") if key in route)]
            whole = "".join(line + "\n" for line in sorted(text))
            print_ = "sha256:" + hashlib.sha256(whole.encode()).hexdigest()
            found = policy.contract("w", contract["route"])
            assert found["fingerprint"] == print_, name
            same = print_ == contract["fingerprint"] and price(
                contract.get("price")) in (None, price(route.get("price")))
            primary = card["routes"][workflow["routes"][0]]
            for key, now in (("route", route), ("primary", primary)):
                then = contract.get("evidence", {}).get(key)
                same = same and (then is None or then == {
                    part: now[part] for part in ("provider", "model", "version")
                    if part in now})
            barred = found["barred"]
            assert barred == (None if same else "contract_stale") or (
                name.startswith("several faults")
                and barred in ("contract_section_fails", "missing_evidence")), (
                    name, found)
            seen[barred or "approved"] = seen.get(barred or "approved", 0) + 1
    assert seen["approved"] > 130 and seen["contract_stale"] >= 43, seen


CARD: "dict[str, typing.Any]" = {
    "version": 1, "routes": {"main": {"provider": "openai", "model": "m"}},
    "workflows": {"w": {"routes": ["main"]}}}
BEGIN = {"at_ms": 0, "op": "begin", "call": "c", "in": {"workflow": "w"}}


def outcome(tmp_path: pathlib.Path, *cases: object) -> "list[str]":
    file = tmp_path / "v.json"
    file.write_text(json.dumps({"name": "x", "cases": list(cases)}))
    said: "list[str]" = []
    report = replay([file], said.append)
    assert report.passed + report.failed == len(cases)
    assert bool(report.failed) == bool(said)
    return said


@pytest.mark.parametrize("steps, words", [
    ([{**BEGIN, "expect": {"action": "retry"}}], 'expected "retry"'),
    ([{**BEGIN, "expect": {"nope": 1}}], "(no such field)"),
    ([{**BEGIN, "expect": {"attempt": [2, 9]}}], "expected [2,9], got 1"),
    ([{**BEGIN, "expect": {"action": {"not": "proceed"}}}], "got"),
    ([{**BEGIN, "expect": {"action": {"in": ["a", "b"]}}}], "got"),
    ([{**BEGIN, "expect": {"attempt": True}}], "expected true, got 1"),
    ([{**BEGIN, "foo": 1}], 'unknown key "foo"'),
    ([{**BEGIN, "op": "fly"}], "unknown op"),
    ([{**BEGIN, "in": {"workflow": "w", "x": 1}}], 'unknown key "x" in begin'),
    ([{"op": "begin"}], "no at_ms"),
    ([{**BEGIN, "call": ""}], "no call is named"),
    ([{**BEGIN, "call": "x" * 41}], "longer than 40"),
    ([{"at_ms": 0, "op": "deadline", "call": "z"}], "was never begun"),
    ([{**BEGIN, "in": {"workflow": "none"}}], "error arg"),
    ([{"at_ms": 0, "op": "kill", "in": {"proc": 99}}], "proc is not 1 to 64"),
    ([{"at_ms": 0, "op": "route", "in": {"route": "z"}}], "no route"),
    ([BEGIN, {"at_ms": 0, "op": "event", "call": "c", "in": {"kind": "z"}}],
     "kind"),
    ([BEGIN, {"at_ms": 0, "op": "event", "call": "c",
              "in": {"kind": "sent", "bytes": 1}}], 'unknown key "bytes"'),
    ([{"at_ms": 0, "op": "repeat", "in": {"times": 10 ** 6, "every_ms": 1,
                                          "steps": []}}], "times"),
])
def test_a_wrong_vector_fails(tmp_path: pathlib.Path, steps: object,
                              words: str) -> None:
    said = outcome(tmp_path, {"name": "c", "policy": CARD, "steps": steps})
    assert words in "\n".join(said)


def test_right_forms(tmp_path: pathlib.Path) -> None:
    assert not outcome(tmp_path, {"name": "c", "policy": CARD, "steps": [
        {**BEGIN, "expect": {
            "action": {"in": ["x", "proceed"]}, "attempt": [1, 1],
            "route": {"not": "backup"}, "timeouts.connect_ms": 5000,
            "rejected": [], "user.text": None, "result": "ok"}},
        {"at_ms": 5, "op": "begin", "call": "d", "in": {"workflow": "z"},
         "expect": {"result": "arg"}}]})


@pytest.mark.parametrize("case, words", [
    ({"policy": CARD}, "either steps or error"),
    ({"steps": []}, "no policy"),
    ({"policy": {"version": 9}, "steps": []}, "the card does not load"),
    ({"policy": CARD, "error": {"code": "syntax"}}, "a card that loads"),
    ({"policy": {"version": 9}, "error": {"code": "syntax"}}, "expected"),
    ({"policy": CARD, "steps": [], "foo": 1}, 'unknown key "foo"'),
    ({"policy": CARD, "steps": [], "seed": -1}, "seed"),
])
def test_a_wrong_case_fails(tmp_path: pathlib.Path, case: object,
                            words: str) -> None:
    assert words in "\n".join(outcome(tmp_path, case))


def test_a_wrong_file_fails(tmp_path: pathlib.Path) -> None:
    for text in ("", "[]", "{}", '{"cases": [], "x": 1}', "\xff",
                 '{"cases": [], "cases": []}', "[" * 100000):
        file = tmp_path / "v.json"
        file.write_text(text, encoding="latin-1")
        said: "list[str]" = []
        assert replay([file], said.append).failed == 1
        assert said and said[0].startswith(str(file))
    for raw, words in ((b'{\n"cases": [', "line 2, column"),
                       (b'{"cases": "\xff"}', "UTF-8")):
        file.write_bytes(raw)
        said = []
        replay([file], said.append)
        assert words in said[0]
    assert replay([tmp_path / "none.json"], lambda _: None).failed == 1
