"""What fivegates reconcile refuses, and what it says: file, line, remedy."""

from __future__ import annotations

import json
import pathlib
import typing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fivegates.reconcile import ReconcileError, reconcile, store

from .conftest import ROOT

SAMPLES = ROOT / "tests" / "billing" / "samples"
LEDGER = SAMPLES / "ledger.jsonl"
ACTIVITY = (SAMPLES / "openrouter_activity.csv").read_text()
USAGE = (SAMPLES / "openai_usage_completions_1m.json").read_text()


def refused(tmp_path: pathlib.Path, *bills: "str | bytes | pathlib.Path",
            ledger: "str | None" = None, **more: typing.Any) -> str:
    """The error of exports given as texts or paths."""
    paths = []
    for i, one in enumerate(bills):
        path = one if isinstance(one, pathlib.Path) else tmp_path / f"bill{i}"
        if isinstance(one, bytes):
            path.write_bytes(one)
        elif isinstance(one, str):
            path.write_text(one)
        paths.append(str(path))
    book = LEDGER
    if ledger is not None:
        book = tmp_path / "ledger"
        book.write_text(ledger)
    with pytest.raises(ReconcileError) as caught:
        reconcile([str(book)], paths, **more)
    message = str(caught.value)
    assert ";" in message  # what to do
    return message.replace(str(tmp_path) + "/", "").replace(str(SAMPLES) + "/", "")


def test_wrong_files(tmp_path: pathlib.Path) -> None:
    assert refused(tmp_path, "") == "bill0:1: the file is empty; export it again"
    assert refused(tmp_path, b"PK\x03\x04").startswith("bill0: it is packed")
    assert refused(tmp_path, SAMPLES / "nowhere.csv").startswith("nowhere.csv: No such file")
    assert refused(tmp_path, SAMPLES).endswith("name a file that can be read")
    assert "no known export has these columns: product, group_description" in refused(
        tmp_path, SAMPLES / "digitalocean_invoice.csv")
    assert refused(tmp_path, LEDGER).startswith("ledger.jsonl:1: no known export has these keys: v, ev")
    assert refused(tmp_path, b"a,b\n\xff\xfe,1\n").startswith("bill0:1: ")
    assert refused(tmp_path, "[]").startswith("bill0: there is no record in it")
    assert refused(tmp_path, "[1]").startswith("bill0: [0]: not an object")


def test_a_renamed_column(tmp_path: pathlib.Path) -> None:
    message = refused(tmp_path, ACTIVITY.replace("cost_total", "total_cost"))
    assert message.startswith("bill0:1: it looks like OpenRouter's activity CSV, but the column "
                              "cost_total is not there (unknown: total_cost)")
    message = refused(tmp_path, USAGE.replace('"end_time"', '"until"'))
    assert message.startswith("bill0: data[0]: it looks like OpenAI's usage or costs API, but the "
                              "key end_time is not there")
    rows = (SAMPLES / "bedrock_model_invocation_log.jsonl").read_text().splitlines(keepends=True)
    rows[2] = rows[2].replace('"modelId"', '"model"')
    assert refused(tmp_path, "".join(rows)).startswith("bill0:3: the key modelId of Bedrock's")


def test_half_a_line(tmp_path: pathlib.Path) -> None:
    assert refused(tmp_path, ACTIVITY[:-70]).startswith("bill0:9: 15 fields, but the header has 24")
    log = (SAMPLES / "bedrock_model_invocation_log.jsonl").read_text()
    assert refused(tmp_path, log[:-70]).startswith("bill0:4: not JSON")
    assert refused(tmp_path, USAGE[:-70]).startswith("bill0:")
    assert refused(tmp_path, ACTIVITY.replace("created_at", '"created_at', 1)).startswith("bill0:1: ")


@pytest.mark.parametrize("old,new,says", [
    ("0.01376", "0,01376", "fields, but the header"),
    ("0.01376", "$0.01", "cost_total: '$0.01' is not a number"),
    ("0.01376", "NaN", "cost_total: 'NaN' is not a finite number"),
    ("0.01376", "1e30", "is more than one row can cost"),
    (",5120,", ",-5120,", "tokens_prompt is -5120, which is no count"),
    (",5120,", ",5120.5,", "tokens_prompt is 5120.5, which is no count"),
    (",5120,", ",many,", "tokens_prompt: 'many' is not a number"),
    ("2026-11-10 10:06:57.417", "yesterday", "created_at is 'yesterday', which is no time"),
    ("gen-1794305217-zzzz", "", "generation_id is empty"),
])
def test_a_bad_cell(tmp_path: pathlib.Path, old: str, new: str, says: str) -> None:
    message = refused(tmp_path, ACTIVITY.replace(old, new))
    assert message.startswith("bill0:2: ") and says in message


def test_columns_that_are_new_are_told_of(tmp_path: pathlib.Path) -> None:
    lines = ACTIVITY.splitlines()
    (tmp_path / "b").write_text("\n".join([lines[0] + ",mood"] + [line + ",fine" for line in lines[1:]]))
    with reconcile([str(LEDGER)], [str(tmp_path / "b")]) as report:
        assert report.summary["exports"][0]["notes"] == ["columns not read: mood"]


def test_a_column_twice(tmp_path: pathlib.Path) -> None:
    lines = ACTIVITY.splitlines()
    text = "\n".join([lines[0] + ",cost_total"] + [line + ",1" for line in lines[1:]])
    assert refused(tmp_path, text).startswith("bill0:1: the column cost_total is there twice")


def test_mixed_currencies(tmp_path: pathlib.Path) -> None:
    cost = (SAMPLES / "deepseek_cost-2026-11.csv").read_text(encoding="utf-8-sig")
    row = cost.splitlines()[1].replace("CNY", "USD").replace("18:00", "20:00").replace("19:00", "21:00")
    message = refused(tmp_path, cost + row + "\n")
    assert message.startswith("bill0:3: USD, but deepseek is in CNY at bill0:2; amounts of two")
    # And a price in dollars is not put on tokens that are billed in yuan.
    message = refused(tmp_path, SAMPLES / "deepseek_amount-2026-11.csv",
                      SAMPLES / "deepseek_cost-2026-11.csv", prices=["deepseek/deepseek-v4-pro=1,2"])
    assert "CNY, but deepseek is in USD at --price" in message


def test_exports_that_overlap_and_differ(tmp_path: pathlib.Path) -> None:
    message = refused(tmp_path, ACTIVITY, ACTIVITY.replace("0.01376", "0.02"))
    assert message.startswith("bill1:2: the request gen-1794305217-zzzz is also at bill0:2, and the two differ")
    message = refused(tmp_path, USAGE, USAGE.replace('"input_tokens": 4000', '"input_tokens": 4001'))
    assert message.startswith("bill1: data[5].results[0]: the cell of gpt54 with 4001 input tokens is also at bill0")


def test_cells_of_two_kinds_are_not_added(tmp_path: pathlib.Path) -> None:
    """A day and its minutes: the minutes are matched, the day gives prices."""
    files = [SAMPLES / name for name in (
        "anthropic_usage_report_messages_1m.json", "anthropic_console_usage.csv",
        "anthropic_cost_report_1d.json")]
    with reconcile([str(LEDGER)], list(map(str, files))) as report:
        assert [one["used_for"] for one in report.summary["exports"]] == [
            ["matched"], ["prices"], ["money"]]
        assert report.summary["coverage"]["export_tokens"] == 20700 + 1970


def test_wrong_ledgers(tmp_path: pathlib.Path) -> None:
    bill = SAMPLES / "openrouter_activity.csv"
    assert refused(tmp_path, bill, ledger=ACTIVITY).startswith("ledger:1: no line of it is a ledger's")
    assert refused(tmp_path, bill, ledger="").startswith("ledger:1: no line of it is a ledger's")
    text = LEDGER.read_text()
    assert refused(tmp_path, bill, ledger=text + '{"a":1}\n').startswith("ledger:87: not a ledger's line")
    assert refused(tmp_path, bill, ledger=text + "[]\n").startswith("ledger:87: not a ledger's line")
    assert refused(tmp_path, bill, ledger=text.replace('"v": 1', '"v": 2', 1)).startswith(
        "ledger:1: a ledger of version 2, this program reads version 1")
    assert refused(tmp_path, bill, ledger=text.replace('"committed"', '"comitted"', 1)).startswith(
        "ledger:2: commit is 'comitted' and status 200; commit is none, unknown or committed")
    assert refused(tmp_path, bill, ledger=text.replace('"model"', '"modle"', 1)).startswith(
        "ledger:1: a ledger's line without its member 'model'")


def test_prices(tmp_path: pathlib.Path) -> None:
    bill = SAMPLES / "fireworks_billing_metrics.csv"
    for text in ("glm=1,2", "fireworks/glm=1", "fireworks/glm=1,2,3,4,5", "fireworks/glm=a,b", "fireworks/glm=1.2.3,4"):
        assert refused(tmp_path, bill, prices=[text]).startswith(f"--price {text}: not a price; write PROVIDER/MODEL")


def test_a_full_disk_and_a_number_too_great(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bill = SAMPLES / "openrouter_activity.csv"
    text = LEDGER.read_text()
    assert refused(tmp_path, bill, ledger=text.replace('"attempt": 0', f'"attempt": {1 << 63}')).startswith(
        "a number in a ledger is beyond 64 bits")
    assert refused(tmp_path, bill, ledger=text.replace('"attempt": 0', '"attempt": 0.5', 1)).startswith(
        "ledger:1: a ledger's line with a member of the wrong type")
    monkeypatch.setattr("fivegates.reconcile.store._SCHEMA", store._SCHEMA + "PRAGMA max_page_count = 12;")
    many = "".join(text.replace('"op": "', f'"op": "{i}') for i in range(40))
    assert "database or disk is full; set TMPDIR" in refused(tmp_path, bill, ledger=many)


def test_another_cards_fingerprint(tmp_path: pathlib.Path) -> None:
    line = {"line": "call", "v": 1, "unix_ms": 1, "now_ms": 1, "workflow": "w", "call": "c",
            "step": 0, "policy": "sha256:aa", "prompt_tokens": 1, "gen_ai.request.max_tokens": 1}
    message = refused(tmp_path, SAMPLES / "openrouter_activity.csv", ledger=json.dumps(line) + "\n",
                      card=("sha256:bb", {"routes": {}}))
    assert message.startswith("--card has the fingerprint sha256:bb, but 1 calls of the ledger were decided by sha256:aa")


@pytest.mark.parametrize("name", sorted(
    path.name for path in SAMPLES.iterdir() if path.suffix in (".csv", ".json", ".jsonl")
    and path.name not in ("EXPECTED.json", "ledger.jsonl", "digitalocean_invoice.csv")))
@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_a_broken_export_is_refused_or_counts_no_more(name: str, data: st.DataObject,
                                                      tmp_path_factory: pytest.TempPathFactory) -> None:
    """Cut anywhere, or with a byte changed: an error with its place, or a
    report; never another exception. What is cut never adds."""
    whole = (SAMPLES / name).read_bytes()
    at = data.draw(st.integers(0, len(whole) - 1))
    cut = data.draw(st.booleans())
    broken = whole[:at] if cut else whole[:at] + bytes([data.draw(st.integers(0, 255))]) + whole[at + 1:]
    path = tmp_path_factory.mktemp("b") / name
    path.write_bytes(broken)
    try:
        report = reconcile([str(LEDGER)], [str(path)])
    except ReconcileError as exc:
        assert str(exc).startswith(str(path))
        return
    with report, reconcile([str(LEDGER)], [str(SAMPLES / name)]) as full:
        if cut:
            assert report.summary["coverage"]["export_tokens"] <= full.summary["coverage"]["export_tokens"]
        list(report.findings())


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_broken_ledger_is_told_of(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    whole = LEDGER.read_bytes()
    at = data.draw(st.integers(0, len(whole) - 1))
    path = tmp_path_factory.mktemp("l") / "ledger"
    path.write_bytes(whole[:at] + bytes([data.draw(st.integers(0, 255))]) + whole[at + 1:])
    try:
        report = reconcile([str(path)], [str(SAMPLES / "openrouter_activity.csv")])
    except ReconcileError as exc:
        assert str(exc).startswith(str(path) + ":")
        return
    with report:
        assert report.summary["ledger"]["attempts"] <= 43
