"""fivegates contract verify: both sides asked, resumed, capped, and what is
written. The provider is the loopback one; it counts what it was asked."""

from __future__ import annotations

import collections
import contextlib
import fcntl
import json
import os
import subprocess
import sys
import typing

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import fivegates
from fivegates.contract import verify_command
from fivegates.contract.results import Results, ResultsError
from fivegates.contract.runs import SENDS
from fivegates.contract.spend import Cap, cost_nusd, worst_nusd

from .contract_rig import APP, KEYS, TEXT, TOOL, WRONG, Bench, Server, bench, row, serve

__all__ = ["bench", "serve"]

for _needed in ("regex", "jsonschema", "httpx", "h11"):
    pytest.importorskip(_needed)
if os.environ.get("FIVEGATES_SANITIZE"):
    pytest.skip("nothing of the library is in it", allow_module_level=True)

Json = typing.Dict[str, typing.Any]
PRICES = {"main": (2500, 10_000), "spare": (3000, 15_000)}  # nano-dollars a token


def billed(server: Server) -> int:
    """What the server billed, in nano-dollars."""
    return sum(one.billed_prompt * PRICES[name][0] + one.billed_output * PRICES[name][1]
               for name in PRICES for one in server.asked(name))


# ---- evidence


@pytest.mark.parametrize("api", ["chat", "messages"])
def test_evidence_of_both_sides(bench: Bench, serve: typing.Any, api: str) -> None:
    server = serve()
    bench.data["routes"]["spare"].update(
        api=api, provider="anthropic" if api == "messages" else "deepseek")
    bench.data["workflows"]["w"]["requires"] = {"quality": {
        "min_score_ppm": 666_666, "max_drop_ppm": 0, "cases_min": 3}}
    bench.data["contracts"] = [{
        "workflow": "w", "route": "spare", "fingerprint": "sha256:" + "0" * 64,
        "approved_by": "ops@example.com", "price": "free",
        "evidence": {"cases": 1, "passed": 1}}]
    bench.at(server).write(
        row("text", {"scorer": "exact", "value": TEXT}),
        row("tool", {"scorer": "tool_calls", "calls": [
            {"name": "refund", "arguments": {"order": "one"}}]}, tools=[TOOL],
            tool_choice="required"),
        row("wrong", WRONG))
    code, report = bench.run()
    assert code == 0 and report["quality"]["holds"]
    contract = bench.contract()
    assert contract.keys() == {"workflow", "route", "evidence"}
    assert report["removed"] == ["fingerprint", "approved_by", "price"]
    evidence = contract["evidence"]
    assert evidence == report["evidence"]
    assert (evidence["cases"], evidence["passed"]) == (3, 2)
    assert evidence["score_ppm"] == evidence["primary_score_ppm"] == 666_666
    assert evidence["fixtures"] == report["fixtures"]
    assert evidence["measured_at"] == min(one["at"] for one in bench.lines())
    assert {one["id"] for one in report["failing"]} == {"wrong"}
    assert report["operations"]["latency_p95_ms"]["stated"] == 60000
    assert report["operations"]["first_token_p95_ms"]["measured"] >= 0
    records = server.asked()
    assert len(records) == 6 and all(one.stream for one in records)
    assert {one.api for one in server.asked("spare")} == {api}
    assert report["cost_usd"] == f"{billed(server) / 10**9:.7f}".rstrip("0")


def test_new_evidence_ends_an_approval_that_still_fits(
        bench: Bench, serve: typing.Any) -> None:
    bench.at(serve()).run()
    fits = fivegates.Policy.load(bench.card).contract("w", "spare")["fingerprint"]
    bench.data["contracts"] = [{**bench.contract(), "fingerprint": fits, "approved_by": "x"}]
    bench.write()
    assert fivegates.Policy.load(bench.card).contract("w", "spare")["approved"]
    code, report = bench.run()
    assert code == 0 and report["removed"] == ["fingerprint", "approved_by"]
    assert bench.contract().keys() == {"workflow", "route", "evidence"}


def test_too_low_is_written_and_said(bench: Bench, serve: typing.Any) -> None:
    server = serve(routes={"spare": ["ok", "refusal", "ok"]})
    bench.data["workflows"]["w"]["requires"] = {"quality": {"min_score_ppm": 900_000}}
    bench.at(server)
    code, report = bench.run("--concurrency", "1", "--days", "1")
    assert code == 1 and not report["quality"]["holds"]
    evidence = bench.contract()["evidence"]
    assert (evidence["passed"], evidence["score_ppm"]) == (2, 666_666)
    assert evidence["primary_score_ppm"] == 1_000_000
    assert evidence["expires_at"] > evidence["measured_at"]
    # The same command again: everything is there, nothing is asked.
    before = len(server.asked())
    assert bench.run()[0] == 1
    assert len(server.asked()) == before


def test_the_words_for_people(bench: Bench, serve: typing.Any) -> None:
    bench.at(serve(routes={"spare": ["refusal"]})).write(row("one"), row("two"))
    done = CliRunner().invoke(APP, bench.arguments())
    assert done.exit_code == 0  # nothing is required of quality
    assert "output check: model_refused" in done.output
    assert "0 of 2 passed" in done.output and "next: fivegates contract approve" in done.output
    assert "4 of 4: 2 passed, 2 failed" in done.stderr


def test_no_secret_is_written_or_said(bench: Bench, serve: typing.Any) -> None:
    bench.at(serve(routes={"spare": ["ok", "key_refused"]}))
    bench.run()
    done = CliRunner().invoke(APP, bench.arguments())
    written = bench.results.read_text() + done.output + done.stderr + bench.output
    for secret in (*KEYS.values(), "pr0mpt", "loopback,"):
        assert secret not in written
    bench.at(serve())
    bench.run("--fresh", "--keep-answers")
    assert {one["answer"]["text"] for one in bench.lines()} == {TEXT}
    assert "loopback," not in bench.output


# ---- answers that never pass


@pytest.mark.parametrize("fault, why", [
    ("refusal", "output check: model_refused"), ("filtered", "output check: model_refused"),
    ("empty_answer", "output check: no_output"),
    ("truncated_tool_call", "ended by length")])
def test_an_answer_that_never_passes(bench: Bench, serve: typing.Any, fault: str,
                                     why: str) -> None:
    """Even where what is expected is in it."""
    bench.at(serve(routes={"spare": [fault]})).write(row("one", {
        "scorer": "regex", "pattern": "^"}))
    code, report = bench.run()
    assert code == 0
    assert report["failing"] == [{"id": "one", "side": "route", "result": "failed",
                                  "reasons": [why]}]
    assert bench.contract()["evidence"]["score_ppm"] == 0
    assert len(bench.lines("sent")) == 2  # and no second chance


@pytest.mark.parametrize("fault", [
    "empty_choices", "error_event", "garbage", "half_json", "html_page", "cut",
    "server_error", "context_length"])
def test_no_answer_is_no_evidence(bench: Bench, serve: typing.Any, fault: str) -> None:
    server = serve(routes={"spare": [fault]})
    bench.at(server).write(row("one"))
    before = bench.card.read_text()
    code, report = bench.run()
    assert code == 3 and report["stopped"]["kind"] == "outage"
    assert bench.card.read_text() == before
    assert 1 <= len(server.asked("spare")) <= SENDS


def test_the_workflows_own_check(bench: Bench, serve: typing.Any) -> None:
    bench.data["workflows"]["w"]["requires"] = {"output": {"schema": {"type": "object"}}}
    bench.at(serve())
    code, report = bench.run()
    assert {reason for one in report["failing"] for reason in one["reasons"]} == {
        "output check: output_invalid"}
    assert len(report["failing"]) == 6 and bench.contract()["evidence"]["passed"] == 0


# ---- failed calls


def test_a_failed_call_is_sent_again_within_its_bound(bench: Bench, serve: typing.Any) -> None:
    server = serve(per="conversation", routes={
        "main": ["unavailable", "ok"],
        "spare": ["server_error", "cut", "rate_limited", "ok"]})
    bench.at(server).write(count=2)
    code, report = bench.run("--concurrency", "1")
    assert code == 0 and report["failing"] == []
    counts = collections.Counter(one.key for one in server.asked())
    assert set(counts.values()) == {2, SENDS}
    # A 500 and a cut may have been billed: their holds stay. A 503 and a 429 were not.
    costs = {(one["id"], one["side"]): one["cost_nusd"] for one in bench.lines()}
    assert costs["case 0", "primary"] < 200_000 < costs["case 0", "route"]
    assert [one["billed"] for one in bench.lines()] == [True, False, True, False]


def test_an_error_fails_its_case_and_is_asked_again(bench: Bench, serve: typing.Any) -> None:
    server = serve(routes={"spare": ["ok", "context_length", "ok"]})
    bench.at(server)
    code, report = bench.run("--concurrency", "1")
    assert code == 0 and bench.contract()["evidence"]["passed"] == 2
    [failed] = report["failing"]
    assert (failed["result"], failed["side"]) == ("error", "route")
    assert failed["reasons"][0].startswith("error: ")
    before = len(server.asked())
    assert bench.run()[1]["failing"] == []
    assert len(server.asked()) == before + 1
    assert bench.contract()["evidence"]["passed"] == 3


@pytest.mark.parametrize("fault, words", [
    ("server_error", "server_error"), ("unavailable", "unavailable"),
    ("key_refused", "bad_key"), ("no_model", "model_not_found"),
    ("quota_exhausted", ""), ("rate_limited", "rate_limited")])
def test_an_outage_stops_the_run_and_it_goes_on(
        bench: Bench, serve: typing.Any, fault: str, words: str) -> None:
    server = serve(routes={"spare": ["ok", "ok", fault]})
    bench.at(server).write(count=12)
    before = bench.card.read_text()
    code, report = bench.run("--concurrency", "2")
    assert code == 3 and report["stopped"]["kind"] == "outage"
    assert "spare" in report["stopped"]["why"] and words in report["stopped"]["why"]
    assert bench.card.read_text() == before and report["evidence"] is None
    assert report["stopped"]["left"] == 24 - len({
        (one["id"], one["side"]) for one in bench.lines()})
    answered = {(one.api, one.key) for one in server.asked() if one.whole}
    sent = len(server.asked())
    assert sent < 12 + SENDS * 8
    server.switch({})
    code, report = bench.run()
    assert code == 0 and report["failing"] == []
    again = server.asked()[sent:]
    assert not answered & {(one.api, one.key) for one in again}
    assert len(answered) + len(again) == 24


# ---- resume


def test_a_run_that_is_killed_pays_nothing_twice(bench: Bench, serve: typing.Any) -> None:
    """SIGKILL while two answers are outstanding; ten cases were finished."""
    server = serve(faults=[*["ok"] * 10, "no_response"])
    bench.at(server).write(count=20)
    program = (f"import sys; sys.argv[0] = 'verify'; import typer; from {verify_command.__name__}"
               " import verify; app = typer.Typer(); app.command()(verify); app()")
    child = subprocess.Popen(
        [sys.executable, "-c", program, *bench.arguments("--concurrency", "2")],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    server.journal.wait_for(12)
    child.kill()
    child.wait()
    finished = {(one["id"], one["side"]) for one in bench.lines()}
    assert len(finished) == 10
    server.switch({})
    code, report = bench.run("--concurrency", "8")
    assert code == 0
    whole = collections.Counter((one.api, one.key) for one in server.asked() if one.whole)
    assert len(whole) == 40 and set(whole.values()) == {1}
    assert len(server.asked()) == 42
    # What was on its way may have been billed: it counts.
    assert report["lost"] == 2 and float(report["lost_usd"]) > 0
    held = sum(one["held_nusd"] for one in bench.lines("sent")
               if one["call"] not in {line["call"] for line in bench.lines()})
    spent = sum(one["cost_nusd"] for one in bench.lines())
    assert report["cost_usd"] == f"{(held + spent) / 10**9:.9f}".rstrip("0")
    assert bench.contract()["evidence"]["measured_at"] == min(
        one["at"] for one in bench.lines())


def test_half_a_line_at_the_end_is_cut_off(bench: Bench, serve: typing.Any) -> None:
    server = serve()
    bench.at(server)
    bench.run("--concurrency", "1")
    whole = bench.results.read_bytes()
    lines = whole.splitlines(True)
    for cut in (1, len(lines[-1]) // 2, len(lines[-1]) - 1):
        bench.results.write_bytes(whole[:-cut])
        before = len(server.asked())
        code, report = bench.run()
        assert code == 0 and len(server.asked()) == before + 1
        # The answer whose line was torn may have been billed: its hold counts too.
        assert report["lost"] == 1
    bench.results.write_bytes(lines[0][:30])
    assert bench.run()[0] == 0 and len(bench.lines()) == 6


@pytest.mark.parametrize("change, words", [
    ({"model": "m3"}, "route.model: m2 there, m3 now"),
    ({"version": "v2"}, "route.version: v1 there, v2 now"),
    ({"provider": "deepseek"}, "route.provider: anthropic there"),
    ({"base_url": "http://127.0.0.1:1/v1"}, "route.at: "),
    (None, "fixtures: sha256:")])
def test_results_of_something_else_are_refused(
        bench: Bench, serve: typing.Any, change: "Json | None", words: str) -> None:
    server = serve()
    bench.at(server).run()
    if change is None:
        bench.write(count=4)
    else:
        bench.data["routes"]["spare"].update(change)
        bench.write()
    before = bench.results.read_bytes()
    assert bench.run()[0] == 2
    assert words in bench.output and "--fresh" in bench.output
    assert bench.results.read_bytes() == before
    if change is None:
        assert bench.run("--fresh")[0] == 0
        assert (bench.folder / "r.jsonl.old").read_bytes() == before
        assert len(bench.lines()) == 8


@pytest.mark.parametrize("text", [
    "", "hello\n", "hello\nand half a line", '{"line": "case"}\n{"line', "[1]\n",
    '{"line":' + "[" * 100_000 + "\n"])
def test_a_file_that_is_no_results(bench: Bench, serve: typing.Any, text: str) -> None:
    bench.at(serve())
    bench.results.write_text(text)
    for more in ([], ["--fresh"]):
        code, _ = bench.run(*more)
        if text:
            assert code == 2 and "no results of fivegates" in bench.output
            assert bench.results.read_text() == text
        else:
            assert code == 0


def test_a_line_that_is_none_is_named(bench: Bench, serve: typing.Any) -> None:
    bench.at(serve()).run()
    lines = bench.results.read_text().splitlines(True)
    bench.results.write_text("".join([*lines[:3], '{"line": "case"}\n', *lines[3:]]))
    assert bench.run()[0] == 2 and "r.jsonl:4: a line that is none" in bench.output
    [number] = [at for at, line in enumerate(lines) if '"line": "case"' in line][:1]
    identity = json.loads(lines[0])["identity"]
    case = json.loads(lines[number])
    for change in ({"cost_nusd": -1}, {"cost_nusd": 1.5}, {"score_ppm": 10**7},
                   {"at": "yesterday"}, {"at": 5}, {"side": "x"}, {"billed": None},
                   {"reasons": 5}, {"latency_ms": "x"}, {"call": float("inf")},
                   {"held_nusd": -5, "line": "sent"}, {"id": None}, None):
        changed = "[" * 100_000 if change is None else json.dumps({**case, **change})
        bench.results.write_text("".join(
            [*lines[:number], changed + "\n", *lines[number + 1:]]))
        with pytest.raises(ResultsError, match=f"r.jsonl:{number + 1}: a line that is none"):
            Results.open(str(bench.results), identity)
    bench.results.write_text("".join(lines).replace('"case 1"', '"case 9"'))
    assert bench.run()[0] == 2 and "has the case case 9" in bench.output


def test_results_are_a_plain_file(bench: Bench, serve: typing.Any) -> None:
    """No pipe is waited for; and of none could a run go on."""
    server = serve()
    os.mkfifo(bench.results)
    for path in (str(bench.results), "/dev/null"):
        assert bench.at(server).run("--out", path)[0] == 2 and "no plain file" in bench.output
    assert server.asked() == []


def test_results_put_away_while_they_were_locked(
        bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """By another run's --fresh: what is paid for would be written into the old file."""
    Results.open(str(bench.results), {"a": 1}).close()

    def flock(*_: object) -> None:
        os.replace(bench.results, bench.folder / "r.jsonl.old")

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(ResultsError, match="another run is writing"):
        Results.open(str(bench.results), {"a": 1})


def test_results_are_written_by_one_run_at_a_time(bench: Bench) -> None:
    with contextlib.closing(Results.open(str(bench.results), {"a": 1})):
        with pytest.raises(ResultsError, match="another run is writing"):
            Results.open(str(bench.results), {"a": 1})


# ---- money


COSTS = st.integers(0, 50)


@given(st.integers(0, 120), st.lists(st.tuples(COSTS, COSTS, st.integers(0, 3)), max_size=20))
def test_a_cap_is_never_passed(limit: int, sends: "list[tuple[int, int, int]]") -> None:
    """Whatever is held and settled, in whatever order, as long as nothing costs
    more than it was held for."""
    cap, open_ = Cap(limit), []  # type: ignore[var-annotated]
    for worst, cost, settle in sends:
        if cap.hold(worst):
            open_.append((worst, min(cost, worst)))
        assert cap.spent_nusd + cap.held_nusd <= limit
        for _ in range(min(settle, len(open_))):
            cap.settle(*open_.pop(0))
            assert cap.spent_nusd + cap.held_nusd <= limit
    for one in open_:
        cap.settle(*one)
    assert cap.held_nusd == 0 and cap.spent_nusd <= limit


@given(st.integers(0, 10**12), st.integers(0, 10**12), st.integers(0, 10**6),
       st.integers(0, 10**6), st.integers(0, 10**6))
def test_what_tokens_cost(price: int, other: int, prompt: int, cached: int,
                          output: int) -> None:
    """Exact, rounded up; and never more than was held for the same request."""
    table = {"input": price, "cached_input": other, "output": price}
    cost = cost_nusd(table, prompt, cached, output)
    cached = min(cached, prompt)
    exact = (prompt - cached) * price + cached * other + output * price
    assert 0 <= cost * 10**6 - exact < 10**6
    assert cost <= worst_nusd(table, prompt, output)
    assert cost_nusd(None, prompt, cached, output) == 0


@pytest.mark.parametrize("concurrency", ["1", "8"])
def test_the_cap_holds_at_the_server_and_across_resumes(
        bench: Bench, serve: typing.Any, concurrency: str) -> None:
    server = serve(faults=["ok", "server_error", "ok", "cut", "ok"])
    bench.at(server).write(count=10)
    before = bench.card.read_text()
    code, report = bench.run("--max-usd", "0.005", "--concurrency", concurrency)
    assert code == 3 and report["stopped"]["kind"] == "cap"
    assert f"${report['cost_usd']} is spent" in report["stopped"]["why"] or (
        concurrency != "1")  # others may still be on their way
    assert bench.card.read_text() == before
    spent = round(float(report["cost_usd"]) * 10**9)
    assert billed(server) <= spent <= 5_000_000
    # With the same cap nothing more than what is left of it is sent.
    code, report = bench.run("--max-usd", "0.005", "--concurrency", concurrency)
    assert code == 3 and billed(server) <= float(report["cost_usd"]) * 10**9 <= 5_000_000
    done = {(one["id"], one["side"]) for one in bench.lines()}
    code, report = bench.run("--max-usd", "1")
    assert code == 0 and report["failing"] == []
    assert billed(server) <= float(report["cost_usd"]) * 10**9
    assert len(done) < 20 and len(bench.lines()) == 20  # none was asked again


def test_a_cap_below_one_case_sends_nothing(bench: Bench, serve: typing.Any) -> None:
    server = serve()
    code, report = bench.at(server).run("--max-usd", "0.000000001")
    assert code == 3 and report["stopped"]["left"] == 6 and server.asked() == []
    assert report["cost_usd"] == "0" or float(report["cost_usd"]) == 0
