"""No prompt, no key, no answer and no tenant in any ledger, metric or log."""

from __future__ import annotations

import json
import logging
import pathlib
import typing

import pytest

import fivegates
from fivegates.cache import AnswerCache, MappingStore
from fivegates.ledger import FileLedger, Tee
from fivegates.sinks.log import LoggingLedger
from fivegates.sinks.rotating import RotatingFileLedger
from fivegates.testing import ProviderError

from .test_runner import Rig

prom = pytest.importorskip("prometheus_client")
pytest.importorskip("opentelemetry.sdk")

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import (
    InMemorySpanExporter,
)

from fivegates.sinks.otel import OpenTelemetryLedger
from fivegates.sinks.prometheus import PrometheusLedger

PLANTED = "secret-7f3a"


def planted(what: str) -> str:
    return f"{PLANTED}-{what}"


def failing(status: int, kind: str, code: str) -> ProviderError:
    """A provider that repeats the prompt and the key in its error."""
    return ProviderError(
        status, {"x-request-id": "req_1", "x-served-by": planted("header"),
                 "retry-after": "1"},
        json.dumps({"error": {"type": kind, "code": code, "message":
                              f"{planted('prompt')} {planted('key')}"}}))


SCRIPTS: "list[list[typing.Any]]" = [
    [planted("answer")],
    [failing(503, "server_error", "server_error"), planted("answer")],
    [failing(401, "authentication_error", "invalid_api_key")],
    [failing(400, "invalid_request_error", "invalid_value")],
    [failing(429, "rate_limit_error", "rate_limit_exceeded")],
    [failing(503, "server_error", "server_error")],
    [ConnectionResetError(planted("prompt"))],
    [{"choices": [{"finish_reason": "stop", "message": {
        "content": planted("answer")}}], "usage": {
            "prompt_tokens": 5, "completion_tokens": 5}}],
    [ValueError(planted("prompt"))],
]


def test_nothing_planted_is_found(card: "dict[str, typing.Any]",
                                  tmp_path: pathlib.Path,
                                  monkeypatch: pytest.MonkeyPatch,
                                  caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("KEY_A", planted("key"))
    spans, reader = InMemorySpanExporter(), InMemoryMetricReader()
    tracers = TracerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(spans))
    meters = MeterProvider([reader])
    registry = prom.CollectorRegistry()
    files = FileLedger(tmp_path / "ledger"), RotatingFileLedger(
        tmp_path / "rotated", max_bytes=3000, keep=1000)
    closed = FileLedger(tmp_path / "closed")
    closed.close()  # what a failing one says is looked at, too
    sinks = Tee(*files, closed, LoggingLedger(), PrometheusLedger(registry),
                OpenTelemetryLedger(tracer_provider=tracers,
                                    meter_provider=meters))
    kept: "dict[str, str]" = {}
    cache = AnswerCache(MappingStore(kept), secret=planted("hash"))
    rig = Rig(card)
    for n, script in enumerate(SCRIPTS):
        try:
            rig.run(rig.fake(*script), ledger=sinks, cache=cache,
                    cache_key={"messages": [planted("prompt")], "n": n},
                    tenant=planted("tenant"), affinity=planted("affinity"),
                    preset=n % 2 == 0)
        except (fivegates.Refused, ValueError):
            pass
        rig.clock.advance(3_600_000)
    said = {
        "files": "".join(one.read_text() for one in tmp_path.iterdir()),
        "log": "".join(repr(vars(one)) + one.getMessage()
                       for one in caplog.records),
        "spans": "".join(str(one.to_json()) for one in spans.get_finished_spans()),
        "durations": repr(reader.get_metrics_data()),
        "counters": prom.generate_latest(registry).decode(),
        "cache keys": "".join(kept)}
    tracers.shutdown()
    meters.shutdown()
    for one in files:
        assert one.lost == 0
        one.close()
    for where, text in said.items():
        assert len(text) > 60, where
        assert PLANTED not in text, where
    assert said["spans"].count('"name": "chat m1"') == len(SCRIPTS)
    assert said["files"].count('"line":"end"') == 2 * len(SCRIPTS)
    assert PLANTED in "".join(kept.values())  # the answers: what it is for
