"""The ledger as Prometheus counters. Needs prometheus-client."""

from __future__ import annotations

import json

import prometheus_client as prom

from fivegates.ledger import Sink
from fivegates.sinks._runs import Runs, is_permit

__all__ = ["PrometheusLedger"]

_DURATIONS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 320,
              float("inf"))


class PrometheusLedger(Sink):
    """Counts what the ledger tells.

    fivegates_calls_total{workflow,result}: ended calls (an agent's step is
    one); result is primary_success, retry_recovery, fallback_recovery,
    degraded, failed_closed, queued or cancelled, so that a good final rate
    never hides a broken primary.
    fivegates_call_seconds{workflow,result}: how long they took (histogram).
    fivegates_attempts_total{workflow,route,provider,model}: permitted sends.
    fivegates_decisions_total{workflow,action,reason}: all other decisions.
    fivegates_alerts_total{workflow,alert}: latched keys, empty accounts,
    opened breakers.
    fivegates_tokens_total{workflow}: used, as far as known, else held.
    fivegates_cost_usd_total{workflow,state}: settled, or held for attempts
    whose bill was not known when the call ended.

    registry: another than prometheus_client's own. One sink a registry.
    """

    def __init__(self, registry: prom.CollectorRegistry = prom.REGISTRY, *,
                 strict: bool = False) -> None:
        super().__init__(strict)

        def counter(name: str, what: str, *labels: str) -> prom.Counter:
            return prom.Counter(f"fivegates_{name}", what,
                                ("workflow", *labels), registry=registry)

        self._calls = counter("calls", "Ended calls by result", "result")
        self._seconds = prom.Histogram(
            "fivegates_call_seconds", "Time from begin to end",
            ("workflow", "result"), registry=registry, buckets=_DURATIONS)
        self._attempts = counter("attempts", "Permitted sends",
                                 "route", "provider", "model")
        self._decisions = counter("decisions",
                                  "Decisions that were no permission to send",
                                  "action", "reason")
        self._alerts = counter("alerts", "What a person has to look at",
                               "alert")
        self._tokens = counter("tokens", "Tokens used or held")
        self._cost = counter("cost_usd", "Money settled and held", "state")
        self._runs = Runs()

    def __str__(self) -> str:
        return "the ledger's counters"

    def _carry(self, line: str) -> None:
        facts = json.loads(line)
        workflow = facts["workflow"]
        if facts["line"] == "call":
            self._runs.began(facts)
        elif facts["line"] == "end":
            used = self._runs.ended(facts)
            result = facts["result"] or "unknown"
            self._calls.labels(workflow, result).inc()
            self._seconds.labels(workflow, result).observe(used.elapsed_s)
            self._tokens.labels(workflow).inc(used.tokens)
            self._cost.labels(workflow, "settled").inc(used.settled_usd)
            self._cost.labels(workflow, "held").inc(used.held_usd)
        else:
            self._runs.decided(facts)
            if is_permit(facts):
                self._attempts.labels(
                    workflow, facts["route"], facts["gen_ai.provider.name"],
                    facts["gen_ai.request.model"] or "").inc()
                return
            self._decisions.labels(workflow, facts["action"],
                                   facts["reason"]).inc()
            for alert in facts["alert"]:
                self._alerts.labels(workflow, alert).inc()
