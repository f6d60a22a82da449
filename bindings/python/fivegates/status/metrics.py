"""The live region as Prometheus text. Needs prometheus-client."""

from __future__ import annotations

import decimal
import typing

import prometheus_client as prom
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from fivegates.status.live import RECOVERY, Json

__all__ = ["text"]

_STATES = {"breaker": ("closed", "open", "half_open"),
           "latch": ("none", "key_latched", "quota_latched", "model_latched")}
# Of a route: metric, what it is, member, whether it only grows.
_ROUTE = (
    ("in_flight", "Attempts in flight", "in_flight", False),
    ("limit", "Attempts in flight at most, declared or learned", "limit", False),
    ("requests_per_second", "Pace after rate limits", "requests_per_second", False),
    ("retry_tokens", "What retries may still cost", "retry_tokens", False),
    ("latch_seconds", "Until a latch lets a probe through", "latch_for_ms", False),
    ("sends", "Attempts made", "attempts", True),
    ("failures", "Attempts that failed", "failures", True),
    ("breaker_openings", "How often the breaker opened", "opened_count", True),
)


class _Region(Collector):
    def __init__(self, state: Json) -> None:
        self.state = state

    def collect(self) -> "typing.Iterator[prom.Metric]":
        yield from self._states()
        for name, what, member, grows in _ROUTE:
            kind = CounterMetricFamily if grows else GaugeMetricFamily
            family = kind(f"fivegates_route_{name}", what, labels=["route"])
            for one in self.state["routes"]:
                value = one[member]
                if value is not None:
                    family.add_metric([one["route"]], value / 1000
                                      if member.endswith("_ms") else value)
            yield family
        yield from self._workflows()

    def _states(self) -> "typing.Iterator[prom.Metric]":
        for member, words in _STATES.items():
            family = GaugeMetricFamily(
                f"fivegates_route_{member}", f"1 for the {member}'s state",
                labels=["route", "state"])
            for one in self.state["routes"]:
                for word in dict.fromkeys((*words, one[member])):
                    family.add_metric([one["route"], word], one[member] == word)
            yield family

    def _workflows(self) -> "typing.Iterator[prom.Metric]":
        calls = CounterMetricFamily(
            "fivegates_workflow_calls", "Ended calls by result",
            labels=["workflow", "result"])
        running = GaugeMetricFamily(
            "fivegates_workflow_open_calls", "Calls that have not ended",
            labels=["workflow"])
        spent = GaugeMetricFamily(
            "fivegates_workflow_spent_today_usd", "Held and settled since "
            "midnight UTC", labels=["workflow"])
        retries = GaugeMetricFamily(
            "fivegates_workflow_retries_this_hour", "Resends", labels=["workflow"])
        for one in self.state["workflows"]:
            running.add_metric([one["workflow"]], one["open"])
            for word in RECOVERY:
                calls.add_metric([one["workflow"], word], one[word])
            spent.add_metric([one["workflow"]],
                             float(decimal.Decimal(one["spent_today_usd"])))
            retries.add_metric([one["workflow"]], one["retries_this_hour"])
        yield from (calls, running, spent, retries)


def text(state: Json) -> str:
    """The exposition text, for a textfile collector or a scrape."""
    registry = prom.CollectorRegistry()
    registry.register(_Region(state))
    return prom.generate_latest(registry).decode()
