"""The ledger as OpenTelemetry spans, through the real SDK."""

from __future__ import annotations

import json
import typing

import pytest

import fivegates

from .test_runner import BAD, BUSY, Rig

pytest.importorskip("opentelemetry.sdk")

from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import (
    InMemorySpanExporter,
)
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
from opentelemetry.semconv._incubating.attributes import http_attributes
from opentelemetry.semconv._incubating.metrics import gen_ai_metrics
from opentelemetry.semconv.attributes import error_attributes

from fivegates.sinks import otel
from fivegates.sinks.otel import OpenTelemetryLedger


class Watch:
    """A sink, and what the SDK exported of it."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.reader = InMemoryMetricReader()
        self.meters = MeterProvider([self.reader])
        self.sink = OpenTelemetryLedger(tracer_provider=self.tracers,
                                        meter_provider=self.meters)

    def close(self) -> None:
        self.tracers.shutdown()
        self.meters.shutdown()

    @property
    def spans(self) -> "tuple[ReadableSpan, ...]":
        return self.exporter.get_finished_spans()

    def durations(self) -> "list[tuple[dict[str, typing.Any], int, float]]":
        data: typing.Any = self.reader.get_metrics_data()
        metric, = data.resource_metrics[0].scope_metrics[0].metrics
        assert (metric.name, metric.unit) == (
            gen_ai_metrics.GEN_AI_CLIENT_OPERATION_DURATION, "s")
        return [(dict(one.attributes), one.count, one.sum)
                for one in metric.data.data_points]


@pytest.fixture
def watch() -> "typing.Iterator[Watch]":
    out = Watch()
    yield out
    out.close()


@pytest.fixture
def rig(card: "dict[str, typing.Any]") -> Rig:
    return Rig(card)


def known(span: ReadableSpan) -> "dict[str, typing.Any]":
    return dict(span.attributes or {})


def test_a_span_for_a_call(rig: Rig, watch: Watch) -> None:
    with watch.tracers.get_tracer("app").start_as_current_span("request"):
        assert rig.run(rig.fake(BUSY, BUSY, "answer"), ledger=watch.sink,
                       max_output_tokens=77) == "answer"
        assert trace.get_current_span().is_recording()
    span, parent = watch.spans
    assert span.name == "chat m1"
    assert span.kind is trace.SpanKind.CLIENT
    assert span.parent is not None and parent.context is not None
    assert span.parent.span_id == parent.context.span_id
    assert span.status.status_code is trace.StatusCode.UNSET
    facts = known(span)
    assert facts[gen_ai_attributes.GEN_AI_OPERATION_NAME] == "chat"
    assert facts[gen_ai_attributes.GEN_AI_PROVIDER_NAME] == "openai"
    assert facts[gen_ai_attributes.GEN_AI_REQUEST_MODEL] == "m1"
    assert facts[gen_ai_attributes.GEN_AI_REQUEST_MAX_TOKENS] == 77
    assert facts[gen_ai_attributes.GEN_AI_REQUEST_STREAM] is True
    assert facts[http_attributes.HTTP_REQUEST_RESEND_COUNT] == 2
    assert error_attributes.ERROR_TYPE not in facts
    assert facts["fivegates.result"] == "fallback_recovery"
    assert (facts["fivegates.requested"], facts["fivegates.served"]) == (
        "main", "backup")
    assert facts["fivegates.tokens"] > 0
    assert facts["fivegates.held_usd"] > 0
    told = [(one.name, dict(one.attributes or {})) for one in span.events]
    assert [(name, one["fivegates.action"]) for name, one in told] == [
        ("fivegates.decision", "proceed"), ("fivegates.attempt", "proceed"),
        ("fivegates.decision", "retry"), ("fivegates.attempt", "proceed"),
        ("fivegates.decision", "fallback"), ("fivegates.attempt", "proceed"),
        ("fivegates.decision", "accept")]
    again = told[2][1]
    assert (again["fivegates.owner"], again["fivegates.reason"]) == (
        "transient", "transient")
    assert told[5][1][gen_ai_attributes.GEN_AI_PROVIDER_NAME] == (
        gen_ai_attributes.GenAiProviderNameValues.AZURE_AI_OPENAI.value)


def test_a_failed_call(rig: Rig, watch: Watch) -> None:
    with pytest.raises(fivegates.Refused):
        rig.run(rig.fake(BAD), ledger=watch.sink)
    span, = watch.spans
    assert span.status.status_code is trace.StatusCode.ERROR
    assert span.status.description == "request_invalid"
    assert known(span)[error_attributes.ERROR_TYPE] == "request_invalid"
    (facts, count, _), = watch.durations()
    assert count == 1
    assert facts == {
        gen_ai_attributes.GEN_AI_OPERATION_NAME: "chat",
        gen_ai_attributes.GEN_AI_PROVIDER_NAME: "openai",
        gen_ai_attributes.GEN_AI_REQUEST_MODEL: "m1",
        "fivegates.workflow": "w", "fivegates.result": "failed_closed",
        error_attributes.ERROR_TYPE: "request_invalid"}


def test_the_duration_splits_by_result(rig: Rig, watch: Watch) -> None:
    for script in (("a",), ("a",), (BUSY, "a")):
        rig.run(rig.fake(*script), ledger=watch.sink)
    told = {facts["fivegates.result"]: (count, total)
            for facts, count, total in watch.durations()}
    assert told["primary_success"] == (2, pytest.approx(0.1))
    count, total = told["retry_recovery"]
    assert count == 1 and total >= 0.1  # two sends of 50 ms, and the wait


def test_a_step_has_its_own_span_and_time(rig: Rig, watch: Watch) -> None:
    """A call's sums grow over its steps; each step tells what it added."""
    first = rig.run(rig.fake("a"), ledger=watch.sink, outcome=True)
    rig.clock.advance(5000)
    rig.run(rig.fake("b"), ledger=watch.sink, call=first.call)
    one, two = map(known, watch.spans)
    assert (one["fivegates.step"], two["fivegates.step"]) == (0, 1)
    assert one["fivegates.call"] == two["fivegates.call"]
    assert one["fivegates.tokens"] == two["fivegates.tokens"] > 0
    assert one["fivegates.held_usd"] == pytest.approx(two["fivegates.held_usd"])
    (_, count, total), = watch.durations()
    assert (count, total) == (2, pytest.approx(0.1))


def test_spans_that_never_end_are_ended(watch: Watch, rig: Rig,
                                        monkeypatch: pytest.MonkeyPatch) -> None:
    """A call driven by hand, that never tells its end."""
    monkeypatch.setattr(otel, "_OPEN", 3)
    for _ in range(5):
        call = rig.engine.begin("w")
        watch.sink.write(call.ledger_line("call"))
    assert len(watch.spans) == 2
    watch.sink.write(call.ledger_line("call"))  # the same call begins again
    assert len(watch.spans) == 3
    other = rig.engine.begin("w")
    watch.sink.write(other.ledger_line("decision", other.decision))
    watch.sink.write(other.ledger_line("end", other.decision))
    assert len(watch.spans) == 3
    assert watch.sink.lost == 0


def test_without_an_sdk(rig: Rig) -> None:
    """The API alone, with nothing installed behind it: nothing happens."""
    sink = OpenTelemetryLedger(tracer_provider=trace.NoOpTracerProvider())
    assert rig.run(rig.fake("a"), ledger=sink) == "a"
    assert sink.lost == 0


def test_a_broken_exporter_breaks_no_call(rig: Rig, watch: Watch,
                                          caplog: pytest.LogCaptureFixture,
                                          monkeypatch: pytest.MonkeyPatch) -> None:
    def export(spans: object) -> None:
        raise ConnectionError("collector gone")

    monkeypatch.setattr(watch.exporter, "export", export)
    assert rig.run(rig.fake("a"), ledger=watch.sink) == "a"


def test_events_have_only_plain_values(rig: Rig, watch: Watch) -> None:
    with pytest.raises(fivegates.Refused):
        rig.run(rig.fake(BUSY), ledger=watch.sink, unable=["reroute"])
    span, = watch.spans
    for facts in (known(span), *(dict(e.attributes or {}) for e in span.events)):
        json.dumps({name: list(value) if isinstance(value, tuple) else value
                    for name, value in facts.items()})
        assert None not in facts.values()
