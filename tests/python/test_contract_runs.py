"""Laws of a run in small worlds: whatever fails, whenever it is stopped, no case
is answered twice, the cap is held, and the end is the same."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import random
import tempfile
import typing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fivegates
from fivegates.contract import runs
from fivegates.contract.fixtures import Case
from fivegates.contract.measured import evidence_of_run, percentile_95, quality, side_of
from fivegates.contract.results import Results, ResultsError
from fivegates.contract.runs import SENDS, Run, measuring_card
from fivegates.contract.scorers import judge_of
from fivegates.contract.spend import Cap, worst_nusd
from fivegates.contract.targets import Reply, Side, reply_of

Json = typing.Dict[str, typing.Any]
PRICE = {"input": 1_000_000, "cached_input": 0, "output": 1_000_000}  # one a token
CARD: Json = {
    "version": 1, "backoff": {"base_ms": 1, "rate_base_ms": 1, "cap_ms": 1},
    "breaker": {"consecutive": 50, "min_calls": 1000},
    "routes": {name: {"provider": "openai", "model": "m", "price": {
        "input": "0.001", "cached_input": 0, "output": "0.001"}} for name in ("a", "b")},
    "workflows": {"w": {"routes": ["a", "b"]}}}
POLICY = fivegates.Policy.loads(measuring_card(CARD, "w", {"primary": "a", "route": "b"}),
                                json=True)
OUTPUT = 40
IDENTITY = {"cases": "these"}


def cases(count: int) -> "list[Case]":
    judge = judge_of({"scorer": "exact", "value": "right"}, {})
    return [Case(f"c{i}", {"id": f"c{i}", "prompt": f"{i}"}, (judge,), "") for i in range(count)]


class Refusing(Exception):
    """A failed request that billed nothing."""

    evidence = {"phase": "response", "status": 503, "body": ""}


class Cut(Exception):
    """One that may have been billed."""

    evidence = {"phase": "read", "transport": {"lib": "httpx", "kind": "ReadError"}}


class World:
    """Two sides that answer, fail, and bill, as their dice say."""

    def __init__(self, seed: int, failing: float) -> None:
        self.dice = random.Random(seed)
        self.failing = failing
        self.billed = 0
        self.answers: "dict[tuple[str, str], int]" = {}
        self.sends: "dict[tuple[str, str], int]" = {}
        self.stop_after: "int | None" = None
        self.run: "Run | None" = None

    def target(self, name: str) -> "Target":
        return Target(self, name)


class Target:
    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name

    def body(self, chat: Json) -> Json:
        return {**chat, "model": "m"}

    async def close(self) -> None:
        pass

    async def send(self, attempt: typing.Any, body: Json) -> Reply:
        world = self.world
        key = self.name, body["messages"][0]["content"]
        world.sends[key] = world.sends.get(key, 0) + 1
        if world.stop_after is not None:
            world.stop_after -= 1
            if world.stop_after < 0:
                await asyncio.get_running_loop().create_future()  # until it is killed
        await asyncio.sleep(0)
        prompt, output = world.dice.randint(0, 50), world.dice.randint(0, OUTPUT)
        dice = world.dice.random()
        if dice < world.failing / 2:
            raise Refusing
        world.billed += prompt + output
        if dice < world.failing:
            raise Cut
        world.answers[key] = world.answers.get(key, 0) + 1
        usage = {"prompt_tokens": prompt, "completion_tokens": output}
        return reply_of({"choices": [{"finish_reason": "stop", "message": {
            "content": "right" if key[1] != "1" else "wrong"}}],
            **({"usage": usage} if world.dice.random() < 0.8 else {})}, None, 1)


def once(world: World, path: str, count: int, cap: "int | None", concurrency: int,
         stop_after: "int | None" = None, policy: fivegates.Policy = POLICY,
         ) -> "tuple[Results, Run]":
    """One run; stop_after: killed when so many more sends were made."""
    sides = {name: Side(name, POLICY.route(route), PRICE, OUTPUT, lambda tool: False)
             for name, route in (("primary", "a"), ("route", "b"))}
    world.stop_after = stop_after

    async def go() -> "tuple[Results, Run]":
        with contextlib.closing(Results.open(path, IDENTITY)) as results:
            run = Run(cases(count), sides, {name: world.target(name) for name in sides},
                      fivegates.Engine(policy, seed=1), results,
                      Cap(cap, results.spent_nusd), concurrency)
            task = asyncio.ensure_future(run.run())
            while not task.done():
                if world.stop_after is not None and world.stop_after < 0:
                    results._write = lambda line: None  # type: ignore[method-assign]
                    task.cancel()  # as after SIGKILL: not a word more is written
                await asyncio.sleep(0.0005)
            with contextlib.suppress(asyncio.CancelledError):
                task.result()
            return results, run

    return asyncio.run(go())


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([0.0, 0.3]), st.integers(1, 6),
       st.integers(1, 5), st.lists(st.integers(0, 6), max_size=3), st.integers(300, 3000))
def test_stopped_anywhere_nothing_is_answered_twice_and_the_cap_holds(
        seed: int, failing: float, count: int, concurrency: int, stops: "list[int]",
        cap: int) -> None:
    world = World(seed, failing)
    with tempfile.TemporaryDirectory() as folder:
        path = str(pathlib.Path(folder) / "r.jsonl")
        # At last without a cap, until no case has ended by an error.
        limits = [(cap, stop_after) for stop_after in [*stops, None]] + [(None, None)] * 20
        for limit, stop_after in limits:
            if len(finished(path)) == 2 * count:
                break
            before, sends = finished(path), dict(world.sends)
            again, run = once(world, path, count, limit, concurrency, stop_after)
            # What has a line is not asked again, whatever else happened.
            assert all(world.sends[key] == sends[key] for key in before)
            assert world.billed <= spent(path) and (limit is None or spent(path) <= limit)
        again, run = once(world, path, count, None, concurrency)
        assert run.stopped is None and len(again.done) == 2 * count
        # Only what was on its way at a kill can have been answered twice.
        assert sum(world.answers.values()) - 2 * count <= concurrency * len(stops)
        # 1 is answered wrongly, on both sides, whenever that was.
        for name in ("primary", "route"):
            side = side_of(again, name, count)
            wrong = 1 if count > 1 else 0
            assert (side["passed"], side["failed"]) == (count - wrong, wrong)
            assert side["score_ppm"] == (count - wrong) * 10**6 // count


def spent(path: str) -> int:
    with contextlib.closing(Results.open(path, IDENTITY)) as results:
        return results.spent_nusd


def finished(path: str) -> "set[tuple[str, str]]":
    """Side and prompt of each case that was answered."""
    with contextlib.closing(Results.open(path, IDENTITY)) as results:
        return {(side, name[1:]) for (name, side), line in results.done.items()
                if line["result"] != "error"}


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.floats(0, 1))
def test_cut_at_any_byte_the_rest_is_asked_again(seed: int, where: float) -> None:
    world = World(seed, 0.0)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "r.jsonl"
        once(world, str(path), 4, None, 2)
        whole = path.read_bytes()
        path.write_bytes(whole[:int(where * len(whole))])
        assert whole.count(b'"line": "case"') == 8
        left = path.read_bytes()
        lines = left[:left.rfind(b"\n") + 1].count(b'"line": "case"')
        results, run = once(world, str(path), 4, None, 2)
        assert run.stopped is None and len(results.done) == 8
        assert sum(world.sends.values()) == 8 + (8 - lines)


@pytest.mark.parametrize("evidence", [Refusing, Cut])
def test_a_side_that_never_answers_is_left_alone_soon(
        tmp_path: pathlib.Path, evidence: "type[Exception]") -> None:
    class Dead(Target):
        async def send(self, attempt: typing.Any, body: Json) -> Reply:
            key = self.name, body["messages"][0]["content"]
            self.world.sends[key] = self.world.sends.get(key, 0) + 1
            raise evidence

    world = World(1, 0)
    world.target = lambda name: Dead(world, name)  # type: ignore[method-assign]
    results, run = once(world, str(tmp_path / "r.jsonl"), 50, None, 3)
    assert run.stopped is not None and run.stopped.kind == "outage"
    assert max(world.sends.values()) <= SENDS
    assert sum(world.sends.values()) <= 3 * SENDS * 5


def test_a_case_that_was_not_given_its_sends_is_put_back(tmp_path: pathlib.Path) -> None:
    """A failure of every other case is more than the engine pays retries for; it fails none."""
    class Hesitant(Target):
        async def send(self, attempt: typing.Any, body: Json) -> Reply:
            key = self.name, body["messages"][0]["content"]
            if int(key[1]) % 2 and key not in self.world.sends:
                self.world.sends[key] = 1
                raise Refusing
            return await super().send(attempt, body)

    world = World(1, 0)
    world.target = lambda name: Hesitant(world, name)  # type: ignore[method-assign]
    results, run = once(world, str(tmp_path / "r.jsonl"), 60, None, 1)
    assert run.stopped is None and len(results.done) == 120
    assert all(one["result"] != "error" for one in results.done.values())
    # Those that were put back needed no second send in their last call.
    assert sum(one["sends"] == 2 for one in results.done.values()) < 60


def test_the_bound_of_sends_counts_what_was_put_back(
        tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a bound of two: without retries left each call is one send, and the
    third would be one too many."""
    monkeypatch.setattr(runs, "SENDS", 2)
    policy = fivegates.Policy.loads(measuring_card(
        CARD, "w", {"primary": "a", "route": "b"}), json=True)

    class Half(Target):
        async def send(self, attempt: typing.Any, body: Json) -> Reply:
            key = self.name, body["messages"][0]["content"]
            if int(key[1]) % 2:
                self.world.sends[key] = self.world.sends.get(key, 0) + 1
                raise Refusing
            return await super().send(attempt, body)

    world = World(1, 0)
    world.target = lambda name: Half(world, name)  # type: ignore[method-assign]
    results, run = once(world, str(tmp_path / "r.jsonl"), 100, None, 1, policy=policy)
    assert max(world.sends.values()) == 2
    assert any(one["sends"] == 1 and one["result"] == "error"
               for one in results.done.values())


# ---- what was measured


def test_percentiles() -> None:
    assert percentile_95([]) is None
    assert percentile_95([7]) == 7
    assert [percentile_95(range(1, count + 1)) for count in (19, 20, 21, 100)] == [
        19, 19, 20, 95]


def done(path: pathlib.Path, *lines: "tuple[str, str, int, str]") -> Results:
    results = Results.open(str(path), IDENTITY)
    for number, (name, side, ppm, at) in enumerate(lines, 1):
        results.case(number, (name, side), {
            "result": "passed" if ppm == 10**6 else "failed", "score_ppm": ppm, "at": at,
            "cost_nusd": 0})
    results.close()
    return results


def test_evidence_is_as_old_as_its_oldest_case(tmp_path: pathlib.Path) -> None:
    results = done(tmp_path / "r.jsonl",
                   ("a", "primary", 10**6, "2026-12-30T23:59:59Z"),
                   ("a", "route", 333_333, "2026-11-30T00:00:01Z"),
                   ("b", "primary", 0, "2026-12-01T00:00:00Z"),
                   ("b", "route", 10**6, "2027-01-01T00:00:00Z"))
    assert evidence_of_run(results, "sha256:f", 2, 90) == {
        "fixtures": "sha256:f", "cases": 2, "passed": 1, "score_ppm": 666_666,
        "primary_score_ppm": 500_000, "measured_at": "2026-11-30T00:00:01Z",
        "expires_at": "2027-02-28T00:00:01Z"}
    assert side_of(results, "route", 3)["score_ppm"] is None


@pytest.mark.parametrize("required, ladder, holds", [
    ({}, [], True), ({"min_score_ppm": 900_000}, [], True),
    ({"min_score_ppm": 900_001}, [], False), ({"max_drop_ppm": 50_000}, [], True),
    ({"max_drop_ppm": 49_999}, [], False), ({"cases_min": 11}, [], False),
    ({"fixtures": "sha256:other"}, [], False),
    ({}, [{"step": "smaller_model", "route": "b", "min_score_ppm": 900_001}], False),
    ({}, [{"step": "smaller_model", "route": "b", "min_score_ppm": 900_000}], True)])
def test_what_quality_requires(required: Json, ladder: "list[Json]", holds: bool) -> None:
    evidence = {"fixtures": "sha256:f", "cases": 10, "passed": 9, "score_ppm": 900_000,
                "primary_score_ppm": 950_000, "measured_at": "2026-11-30T00:00:00Z",
                "expires_at": "2027-02-28T00:00:00Z"}
    card = {"workflows": {"w": {"routes": ["a"] if ladder else ["a", "b"], "ladder": ladder,
                                "requires": {"quality": required}}}}
    assert quality(card, "w", "b", evidence)[1] == holds


def test_a_full_disk_is_said(tmp_path: pathlib.Path) -> None:
    results = Results.open(str(tmp_path / "r.jsonl"), IDENTITY)
    results.close()
    with open("/dev/full", "wb", buffering=0) as full:
        results._file = full.fileno()
        with pytest.raises(ResultsError, match="No space left"):
            results.left(1, 1)
        results._file = -1


def test_worst_covers_a_request_of_any_text() -> None:
    assert worst_nusd(PRICE, 100, OUTPUT) == 140
