"""The ledger as OpenTelemetry spans and a duration metric.

Names are those of the GenAI and HTTP semantic conventions where these have
one; the rest is under fivegates. Needs opentelemetry-api; what is exported,
and where to, is the application's SDK's matter.
"""

from __future__ import annotations

import collections
import json
import threading
import typing

from opentelemetry import metrics, trace

from fivegates.ledger import Sink
from fivegates.sinks._runs import Line, Runs, is_permit

__all__ = ["OpenTelemetryLedger"]

# Spans of calls that never told their end (a call driven by hand, say).
# Beyond so many the oldest is ended.
_OPEN = 4096

_DURATIONS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 320)

# The card's words for providers, where the conventions have another.
_PROVIDERS = {"azure-openai": "azure.ai.openai", "bedrock": "aws.bedrock",
              "vertex": "gcp.vertex_ai", "gemini": "gcp.gemini"}

_EVENT = ("action", "route", "attempt", "wait_ms", "reason", "detail", "gate",
          "owner", "kind", "breaker", "alert", "ladder_step", "may_pay_twice")
_END = ("result", "requested", "served", "attempts", "requests")

Attributes = typing.Dict[str, typing.Any]


class OpenTelemetryLedger(Sink):
    """A span for each run of a call, with an event for each decision.

    The span is named "chat MODEL" (operation: another of the conventions'
    operation names), is a child of the span current when the call began, and
    is not made current itself: spans of the SDK's requests are its siblings.
    A call that ended without an answer has status ERROR, its error.type the
    reason. Events are called fivegates.decision; a permission to send, the
    attempt itself, fivegates.attempt.

    The metric gen_ai.client.operation.duration also has fivegates.result, so
    that its count splits into primary_success, retry_recovery,
    fallback_recovery, degraded, failed_closed, queued, cancelled. There is
    no gen_ai.client.token.usage: the ledger does not tell input from output.

    tracer_provider, meter_provider: others than the global ones.
    """

    def __init__(self, *, operation: str = "chat",
                 tracer_provider: "trace.TracerProvider | None" = None,
                 meter_provider: "metrics.MeterProvider | None" = None,
                 strict: bool = False) -> None:
        super().__init__(strict)
        self.operation = operation
        self._tracer = trace.get_tracer("fivegates",
                                        tracer_provider=tracer_provider)
        meter = metrics.get_meter("fivegates", meter_provider=meter_provider)
        self._duration = meter.create_histogram(
            "gen_ai.client.operation.duration", unit="s",
            description="GenAI operation duration.",
            explicit_bucket_boundaries_advisory=_DURATIONS)
        self._runs = Runs()
        self._lock = threading.Lock()
        self._spans: "collections.OrderedDict[str, _Open]" = collections.OrderedDict()

    def __str__(self) -> str:
        return "the ledger's spans"

    def _carry(self, line: str) -> None:
        facts = json.loads(line)
        if facts["line"] == "call":
            self._begin(facts)
        elif facts["line"] == "decision":
            self._runs.decided(facts)
            with self._lock:
                open_ = self._spans.get(facts["call"])
            if open_ is not None:
                open_.decided(facts)
        else:
            self._end(facts)

    def _begin(self, facts: Line) -> None:
        self._runs.began(facts)
        open_ = _Open(self._tracer, self.operation, facts)
        with self._lock:
            before = self._spans.pop(facts["call"], None)
            self._spans[facts["call"]] = open_
            if before is None and len(self._spans) > _OPEN:
                _, before = self._spans.popitem(last=False)
        if before is not None:
            before.span.end()

    def _end(self, facts: Line) -> None:
        used = self._runs.ended(facts)
        with self._lock:
            open_ = self._spans.pop(facts["call"], None)
        if open_ is None:
            return
        failed = facts["result"] == "failed_closed"
        common = {**open_.common, "fivegates.workflow": facts["workflow"],
                  "fivegates.result": facts["result"] or "unknown"}
        if failed:
            common["error.type"] = facts["reason"]
        open_.span.set_attributes({
            **common, **_named(facts, _END),
            "http.request.resend_count": facts["resends"],
            "fivegates.tokens": used.tokens,
            "fivegates.settled_usd": used.settled_usd,
            "fivegates.held_usd": used.held_usd})
        if failed:
            open_.span.set_status(trace.StatusCode.ERROR, facts["reason"])
        open_.span.end()
        self._duration.record(used.elapsed_s, common)


class _Open:
    """A span that has not ended, and the attributes its metric will have."""

    def __init__(self, tracer: trace.Tracer, operation: str,
                 facts: Line) -> None:
        self.common: Attributes = {"gen_ai.operation.name": operation}
        self.span = tracer.start_span(
            operation, kind=trace.SpanKind.CLIENT, attributes={
                **self.common,
                "gen_ai.request.max_tokens": facts["gen_ai.request.max_tokens"],
                "gen_ai.request.stream": facts["stream"] == "true",
                "fivegates.workflow": facts["workflow"],
                "fivegates.call": facts["call"],
                "fivegates.step": facts["step"],
                "fivegates.policy": facts["policy"]})

    def decided(self, facts: Line) -> None:
        model = facts.get("gen_ai.request.model")
        event: Attributes = _named(facts, _EVENT)
        if facts.get("gen_ai.provider.name"):
            provider = facts["gen_ai.provider.name"]
            event["gen_ai.provider.name"] = _PROVIDERS.get(provider, provider)
        if model:
            event["gen_ai.request.model"] = model
        self.span.add_event("fivegates.attempt" if is_permit(facts)
                            else "fivegates.decision", event)
        if model and "gen_ai.request.model" not in self.common:
            # What was asked for: the first decision's. Stand-ins are events.
            self.common.update(
                (name, event[name]) for name in
                ("gen_ai.provider.name", "gen_ai.request.model")
                if name in event)
            self.span.update_name(
                f"{self.common['gen_ai.operation.name']} {model}")
            self.span.set_attributes(self.common)


def _named(facts: Line, names: "tuple[str, ...]") -> Attributes:
    """The fields that have a value; "none" and "unknown" are none."""
    return {f"fivegates.{name}": facts[name] for name in names
            if facts.get(name) not in (None, "", [], "none", "unknown")}
