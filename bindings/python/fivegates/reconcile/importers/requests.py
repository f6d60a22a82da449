"""Exports with one row per request: OpenRouter, Bedrock's invocation log,
Fireworks."""

from __future__ import annotations

import typing

from fivegates.reconcile.files import Format, Record
from fivegates.reconcile.names import model_of
from fivegates.reconcile.rows import (BillRow, Item, ReconcileError, amount,
                                      count, instant)

__all__ = ["FORMATS", "tag_of"]

_MINUTE = 60_000


def tag_of(value: object, place: str) -> "tuple[str | None, int | None]":
    """The call and attempt the host wrote into a request's metadata."""
    if not isinstance(value, dict):
        return None, None
    op = value.get("op") or value.get("call")
    return (str(op) if op else None), count(value.get("attempt"), place, "attempt")


def _activity(row: Record, place: str) -> "typing.Iterator[Item]":
    began = instant(row["created_at"], place, "created_at")
    took = count(row.get("generation_time_ms"), place, "generation_time_ms")
    yield BillRow(
        "openrouter", model_of(row["model_permaslug"]), place, began,
        began + (took or 0), key=row.get("api_key_name") or None, requests=1,
        in_total=count(row["tokens_prompt"], place, "tokens_prompt"),
        cache_read=count(row.get("tokens_cached"), place, "tokens_cached"),
        out=count(row["tokens_completion"], place, "tokens_completion"),
        cost=amount(row["cost_total"], place, "cost_total"), currency="USD",
        id=_id(row["generation_id"], place, "generation_id"),
        cancelled=row.get("cancelled") == "true")


def _id(value: object, place: str, name: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ReconcileError(f"{place}: {name} is empty; export it again")
    return value.strip()


def _generation(row: Record, place: str) -> "typing.Iterator[Item]":
    """GET /generation: the bill follows the native counts."""
    began = instant(row["created_at"], place, "created_at")
    took = count(row.get("generation_time"), place, "generation_time")
    yield BillRow(
        "openrouter", model_of(row["model"]), place, began,
        began + (took or 0), requests=1,
        in_total=count(row["native_tokens_prompt"], place, "native_tokens_prompt"),
        cache_read=count(row.get("native_tokens_cached"), place, "native_tokens_cached"),
        out=count(row["native_tokens_completion"], place, "native_tokens_completion"),
        cost=amount(row["total_cost"], place, "total_cost"), currency="USD",
        id=_id(row["id"], place, "id"), cancelled=row.get("cancelled") is True)


def _invocation(row: Record, place: str) -> "typing.Iterator[Item]":
    sent, got = row["input"] or {}, row["output"] or {}
    if not isinstance(sent, dict) or not isinstance(got, dict):
        raise ReconcileError(f"{place}: input and output are no objects; give "
                             "the log as Bedrock wrote it")
    plain = count(sent.get("inputTokenCount"), place, "inputTokenCount")
    read = count(sent.get("cacheReadInputTokenCount"), place, "cacheReadInputTokenCount")
    wrote = count(sent.get("cacheWriteInputTokenCount"), place, "cacheWriteInputTokenCount")
    op, attempt = tag_of(row.get("requestMetadata"), place)
    at = instant(row["timestamp"], place, "timestamp")
    identity = row.get("identity")
    yield BillRow(
        "bedrock", model_of(str(row["modelId"])), place, at, at,
        key=str(identity.get("arn")) if isinstance(identity, dict) else None,
        requests=1,
        # Bedrock's input leaves out what the cache read and wrote.
        in_total=None if plain is None else plain + (read or 0) + (wrote or 0),
        cache_read=read, cache_write=wrote,
        out=count(got.get("outputTokenCount"), place, "outputTokenCount"),
        id=_id(row["requestId"], place, "requestId"), op=op, attempt=attempt)


def _fireworks(row: Record, place: str) -> "typing.Iterator[Item]":
    yield BillRow(
        "fireworks", model_of(row["base_model_name"]), place,
        instant(row["start_time"], place, "start_time"),
        instant(row["end_time"], place, "end_time"), requests=1,
        in_total=count(row["prompt_tokens"], place, "prompt_tokens"),
        out=count(row["completion_tokens"], place, "completion_tokens"))


FORMATS = (
    Format("openrouter_activity", "OpenRouter's activity CSV", "csv",
           ("generation_id", "created_at", "cost_total", "tokens_prompt",
            "tokens_completion", "model_permaslug"),
           ("cost_web_search", "cost_cache", "cost_file_processing",
            "byok_usage_inference", "tokens_reasoning", "tokens_cached",
            "provider_name", "variant", "cancelled", "streamed", "user",
            "finish_reason_raw", "finish_reason_normalized",
            "generation_time_ms", "time_to_first_token_ms",
            "api_key_disabled", "api_key_name", "app_name"),
           _activity, 5 * _MINUTE, "certain"),
    Format("openrouter_generation", "OpenRouter's GET /generation", "json",
           ("id", "created_at", "model", "native_tokens_prompt",
            "native_tokens_completion", "total_cost"),
           ("api_type", "app_id", "cache_discount", "cancelled", "data_region",
            "external_user", "finish_reason", "generation_time", "is_byok",
            "latency", "native_finish_reason", "native_tokens_cached",
            "native_tokens_reasoning", "provider_name", "provider_responses",
            "request_id", "service_tier", "session_id", "streamed",
            "tokens_completion", "tokens_prompt", "upstream_id",
            "upstream_inference_cost", "usage"),
           _generation, 5 * _MINUTE, "certain"),
    Format("bedrock_invocations", "Bedrock's model invocation log", "json",
           ("schemaType", "timestamp", "requestId", "modelId", "input", "output"),
           ("schemaVersion", "accountId", "region", "identity", "operation",
            "requestMetadata", "errorCode", "inferenceRegion"),
           _invocation, 60 * _MINUTE, "certain"),
    Format("fireworks_metrics", "Fireworks' billing metrics", "csv",
           ("start_time", "end_time", "base_model_name", "prompt_tokens",
            "completion_tokens"),
           ("email", "usage_type", "accelerator_type", "accelerator_seconds",
            "model_bucket", "parameter_count"),
           _fireworks, 24 * 60 * _MINUTE, "probable"),
)
