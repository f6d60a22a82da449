"""An agent's task: steps are retried alone, tools act once."""

from __future__ import annotations

import asyncio
import json
import typing

import pytest
from support.cards import engine_of

import fivegates
from fivegates.agent import Task
from fivegates.testing import FakeProvider, ProviderError

QUICK: "dict[str, typing.Any]" = {"sleep": lambda seconds: None}
BUSY = ProviderError(503)


def made(**options: typing.Any) -> Task:
    engine = engine_of("http://127.0.0.1:1/v1", "http://127.0.0.1:2/v1",
                       budget={"total_attempts": 2, "extra_tokens": 100000,
                               "extra_cost_usd": 1})
    return Task(engine, "w", **QUICK, **options)


class Bank:
    def __init__(self, *script: typing.Any) -> None:
        self.script = list(script)
        self.paid: "list[str]" = []

    def charge(self, key: str) -> str:
        self.paid.append(key)
        step = self.script.pop(0) if self.script else "receipt"
        if isinstance(step, BaseException):
            raise step
        return str(step)


def pay(task: Task, bank: Bank, key: str = "order-9") -> typing.Any:
    with task.tool("charge_card", key=key) as op:
        if not op.held:
            op.result = bank.charge(op.id)
    return op.result


def test_a_failed_step_is_retried_alone() -> None:
    task, bank = made(), Bank()
    model = FakeProvider("call the tool", BUSY, "done")
    assert task.ask(model) == "call the tool"
    assert pay(task, bank) == "receipt"
    assert task.ask(model) == "done"
    assert bank.paid == ["charge_card:order-9"]
    assert task.call is not None and task.outcome is not None
    assert [a.call.id for a in model.attempts] == [task.call.id] * 3
    assert task.outcome.attempts == 2


def test_a_done_operation_answers_its_held_result() -> None:
    task, bank = made(), Bank("first", "second")
    task.ask(FakeProvider("x"))
    assert pay(task, bank) == "first"
    assert pay(task, bank) == "first"
    assert pay(task, bank, "order-10") == "second"
    assert len(bank.paid) == 2


def test_an_unknown_end_bars_the_next_step_until_it_is_looked_up() -> None:
    task, bank = made(), Bank(TimeoutError("no acknowledgement"))
    model = FakeProvider("x")
    task.ask(model)
    with pytest.raises(TimeoutError):
        pay(task, bank)
    for what in (lambda: task.ask(model), lambda: pay(task, bank)):
        with pytest.raises(fivegates.StateError, match="resolve\\('charge_card', key='order-9'"):
            what()
    assert len(model.attempts) == 1 and len(bank.paid) == 1
    with pytest.raises(fivegates.ArgumentError, match="committed"):
        task.resolve("charge_card", key="order-9", effect="unknown")
    task.resolve("charge_card", key="order-9", effect="committed",
                 result="looked up")
    assert pay(task, bank) == "looked up" and len(bank.paid) == 1
    assert task.ask(model) == "x"


def test_looked_up_and_not_done_may_be_done() -> None:
    task, bank = made(), Bank(TimeoutError())
    task.ask(FakeProvider("x"))
    with pytest.raises(TimeoutError):
        pay(task, bank)
    task.resolve("charge_card", key="order-9", effect="none")
    assert pay(task, bank) == "receipt" and len(bank.paid) == 2
    with pytest.raises(fivegates.ArgumentError, match="no operation"):
        task.resolve("charge_card", key="order-9", effect="none")


def test_certain_failure_and_idempotent_tools_bar_nothing() -> None:
    task = made()
    model = FakeProvider("x")
    task.ask(model)
    with pytest.raises(ConnectionRefusedError):
        with task.tool("charge_card", key="k") as op:
            op.failed()
            raise ConnectionRefusedError
    assert task.ask(model) == "x"
    with pytest.raises(TimeoutError):
        with task.tool("read_mail", key="k", idempotent=True):
            raise TimeoutError
    assert task.ask(model) == "x"
    with task.tool("read_mail", key="k", idempotent=True) as op:
        assert not op.held


def test_an_effect_inside_a_step_is_not_repeated() -> None:
    """The tool acted while the step ran: the step's failure is not resent."""
    task, bank = made(), Bank()

    def send(attempt: fivegates.Attempt) -> str:
        pay(task, bank)
        raise BUSY

    with pytest.raises(fivegates.Refused) as caught:
        task.ask(send)
    assert caught.value.decision.reason == "effect_committed"
    assert len(bank.paid) == 1


def test_a_refused_step_can_be_asked_again_with_results_held() -> None:
    task, bank = made(), Bank()
    model = FakeProvider("x", BUSY, BUSY, "at last")
    task.ask(model)
    pay(task, bank)
    first = task.call
    with pytest.raises(fivegates.Refused):
        task.ask(model)
    assert task.ask(model) == "at last"
    assert task.call is not first and pay(task, bank) == "receipt"
    assert len(bank.paid) == 1


def test_async_steps() -> None:
    async def main() -> None:
        engine = engine_of("http://127.0.0.1:1/v1", "http://127.0.0.1:2/v1")
        task, bank = Task(engine, "w"), Bank()
        model = FakeProvider("call", "done")
        assert await task.aask(model.asend) == "call"
        pay(task, bank)
        assert await task.aask(model.asend) == "done"
        assert len(bank.paid) == 1
    asyncio.run(main())


def test_another_process_goes_on(tmp_path: typing.Any) -> None:
    kept: "list[str]" = []
    task, bank = made(store=kept.append), Bank("receipt", KeyboardInterrupt())
    model = FakeProvider("x")
    task.ask(model)
    pay(task, bank)
    with pytest.raises(KeyboardInterrupt):  # killed while the tool acts
        pay(task, bank, "order-10")
    again = Task.resume(task.engine, kept[-1], **QUICK)
    assert pay(again, bank) == "receipt"
    with pytest.raises(fivegates.StateError, match="order-10"):
        again.ask(model)
    again.resolve("charge_card", key="order-10", effect="none")
    assert again.ask(model) == "x"
    for bad in ("", "{}", "[]", json.dumps({"workflow": "w"}),
                json.dumps({"workflow": "w", "operations": {"a:b": {}}})):
        with pytest.raises(fivegates.ArgumentError, match="store"):
            Task.resume(task.engine, bad)
    with pytest.raises(fivegates.ArgumentError, match="it has w, bare"):
        Task.resume(task.engine, json.dumps({
            "workflow": "gone", "operations": {}}))


def test_misuse_is_told() -> None:
    task = made()
    with pytest.raises(fivegates.StateError, match="ask\\(\\) first"):
        with task.tool("t", key="k"):
            pass
    with pytest.raises(fivegates.ArgumentError, match="key"):
        task.tool("t", key="")
    with pytest.raises(fivegates.ArgumentError, match="it has w, bare"):
        Task(task.engine, "nope")
