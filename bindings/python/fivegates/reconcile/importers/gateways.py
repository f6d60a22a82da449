"""What gateways and tracers logged of the requests: an estimate beside the
provider's bill, used where that bill is not given, and never for certain."""

from __future__ import annotations

import typing

from fivegates.reconcile.files import Format, Record
from fivegates.reconcile.importers.requests import tag_of
from fivegates.reconcile.names import model_of, provider_of
from fivegates.reconcile.rows import (BillRow, Item, ReconcileError, amount,
                                      count, instant)

__all__ = ["FORMATS"]


def _spend(row: Record, place: str) -> "typing.Iterator[Item]":
    op, attempt = tag_of(row.get("metadata"), place)
    free = str(row.get("cache_hit")).lower() == "true"
    yield BillRow(
        provider_of(str(row["custom_llm_provider"] or "")),
        model_of(str(row["model"])), place,
        instant(row["startTime"], place, "startTime"),
        instant(row["endTime"], place, "endTime"), requests=1,
        in_total=count(row["prompt_tokens"], place, "prompt_tokens"),
        out=count(row["completion_tokens"], place, "completion_tokens"),
        cost=0 if free else amount(row["spend"], place, "spend"),
        currency="USD", id=str(row["request_id"] or "") or None,
        op=op, attempt=attempt)


def _observation(row: Record, place: str) -> "typing.Iterator[Item]":
    if row["type"] != "GENERATION":
        return
    used = row["usage_details"] or {}
    if not isinstance(used, dict):
        raise ReconcileError(f"{place}: usage_details is no object; export the "
                             "observations as JSON")
    plain = count(used.get("input"), place, "usage_details.input")
    read = count(used.get("input_cached_tokens"), place, "usage_details.input_cached_tokens")
    wrote = count(used.get("cache_creation_input_tokens"), place,
                  "usage_details.cache_creation_input_tokens")
    began = instant(row["start_time"], place, "start_time")
    yield BillRow(
        "", model_of(str(row["provided_model_name"] or "")), place, began,
        instant(row["end_time"], place, "end_time") if row.get("end_time") else began,
        requests=1,
        # The details are disjoint: their sum is the prompt.
        in_total=None if plain is None else plain + (read or 0) + (wrote or 0),
        cache_read=read, cache_write=wrote,
        out=count(used.get("output"), place, "usage_details.output"),
        cost=amount(row["total_cost"], place, "total_cost"), currency="USD")


FORMATS = (
    Format("litellm_spendlogs", "LiteLLM's SpendLogs", "json",
           ("request_id", "startTime", "endTime", "model", "spend",
            "prompt_tokens", "completion_tokens", "custom_llm_provider"),
           ("call_type", "api_key", "total_tokens", "completionStartTime",
            "model_id", "model_group", "api_base", "user", "metadata",
            "cache_hit", "cache_key", "request_tags", "team_id",
            "organization_id", "end_user", "session_id", "status"),
           _spend, 5 * 60_000, "probable", gateway=True),
    Format("langfuse_observations", "Langfuse's observations", "json",
           ("id", "type", "start_time", "provided_model_name",
            "usage_details", "total_cost"),
           ("trace_id", "project_id", "environment", "parent_observation_id",
            "end_time", "name", "metadata", "level", "status_message",
            "model_parameters", "cost_details", "latency",
            "time_to_first_token", "usage_pricing_tier_name"),
           _observation, 5 * 60_000, "possible", gateway=True),
)
