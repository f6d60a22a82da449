"""The ledger as Prometheus counters, through the real client."""

from __future__ import annotations

import json
import typing

import pytest

import fivegates
from fivegates.testing import ProviderError

from .test_runner import BAD, BUSY, Rig

prom = pytest.importorskip("prometheus_client")

from fivegates.sinks import _runs
from fivegates.sinks.prometheus import PrometheusLedger


class Watch:
    def __init__(self) -> None:
        self.registry = prom.CollectorRegistry()
        self.sink = PrometheusLedger(self.registry)

    def __call__(self, name: str, **labels: str) -> "float | None":
        value = self.registry.get_sample_value(
            f"fivegates_{name}", {"workflow": "w", **labels})
        return None if value is None else float(value)

    def results(self) -> "dict[str, float]":
        return {sample.labels["result"]: sample.value
                for metric in self.registry.collect()
                for sample in metric.samples
                if sample.name == "fivegates_calls_total"}


@pytest.fixture
def watch() -> Watch:
    return Watch()


@pytest.fixture
def rig(card: "dict[str, typing.Any]") -> Rig:
    return Rig(card)


def test_results_split(rig: Rig, watch: Watch) -> None:
    """One call of each end: a broken primary shows whatever the final rate."""
    keyless = ProviderError(401, body=json.dumps({"error": {
        "type": "authentication_error", "code": "invalid_api_key"}}))
    run = rig.run
    run(rig.fake("a"), ledger=watch.sink)
    assert watch("decisions_total", action="proceed",  # the plan alone
                 reason="primary_ready") == 1
    run(rig.fake(BUSY, "a"), ledger=watch.sink)
    run(rig.fake(BUSY, BUSY, "a"), ledger=watch.sink)
    run(rig.fake(BUSY), ledger=watch.sink, preset=True, unable="reroute")
    with pytest.raises(fivegates.Refused):
        run(rig.fake(BAD), ledger=watch.sink)

    def leave(attempt: fivegates.Attempt) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(leave, ledger=watch.sink)
    assert watch.results() == {
        "primary_success": 1, "retry_recovery": 1, "fallback_recovery": 1,
        "degraded": 1, "failed_closed": 1, "cancelled": 1}
    with pytest.raises(fivegates.Queued):
        run(rig.fake(BUSY), "batch", ledger=watch.sink, unable="wait")
    assert watch.results()["queued"] == 1
    own = rig.engine.workflow("w")
    for result, count in watch.results().items():
        if result != "queued":
            assert own[result] == count
    assert watch("attempts_total", route="backup", provider="azure-openai",
                 model="m1") == rig.engine.route("backup")["attempts"] > 0
    assert rig.actions.count("fallback") == sum(
        sample.value for metric in watch.registry.collect()
        for sample in metric.samples
        if sample.name == "fivegates_decisions_total"
        and sample.labels["action"] == "fallback")
    assert watch("call_seconds_count", result="primary_success") == 1
    assert watch("alerts_total", alert="key_latched") is None
    with pytest.raises(fivegates.Refused):
        run(rig.fake(keyless), ledger=watch.sink)
    assert watch("alerts_total", alert="key_latched") == 1
    assert watch.sink.lost == 0


def test_tokens_and_money(rig: Rig, watch: Watch) -> None:
    """Settled where the bill is known, held where it is not."""
    def billed(attempt: fivegates.Attempt) -> str:
        attempt.usage(prompt_tokens=1000, output_tokens=100, final=True)
        return "a"

    rig.run(billed, ledger=watch.sink)
    assert watch("tokens_total") == 1100
    assert watch("cost_usd_total", state="settled") == pytest.approx(0.0035)
    assert watch("cost_usd_total", state="held") == 0
    rig.run(rig.fake("no usage"), ledger=watch.sink)
    assert watch("tokens_total") == 1100 + 1200
    assert watch("cost_usd_total", state="settled") == pytest.approx(0.0035)
    assert watch("cost_usd_total", state="held") == pytest.approx(0.00525)


def test_steps_count_what_they_added(rig: Rig, watch: Watch) -> None:
    def billed(attempt: fivegates.Attempt) -> str:
        attempt.usage(prompt_tokens=1000, output_tokens=100, final=True)
        return "a"

    call = None
    for _ in range(3):
        call = rig.run(billed, ledger=watch.sink, call=call, outcome=True).call
    assert watch("tokens_total") == 3300
    assert watch("cost_usd_total", state="settled") == pytest.approx(0.0105)
    assert watch.results() == {"primary_success": 3}
    # A redelivery begins with what was spent before: counted there already.
    rig.run(billed, ledger=watch.sink,
            prior={"attempts": 1, "tokens": 500, "cost_nusd": 4_000_000})
    assert watch("tokens_total") == 4400
    assert watch("cost_usd_total", state="settled") == pytest.approx(0.014)


def test_memory_is_bounded(rig: Rig, watch: Watch,
                           monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_runs, "_REMEMBERED", 5)
    for _ in range(20):
        rig.run(rig.fake("a"), ledger=watch.sink)
        watch.sink.write(rig.engine.begin("w").ledger_line("call"))
    assert len(watch.sink._runs._bases) == 5
    assert len(watch.sink._runs._begun) <= 5


def test_one_sink_a_registry(watch: Watch) -> None:
    with pytest.raises(ValueError, match="Duplicated"):
        PrometheusLedger(watch.registry)
