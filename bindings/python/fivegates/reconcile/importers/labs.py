"""Buckets of the model makers: OpenAI, Anthropic, DeepSeek, Model Studio."""

from __future__ import annotations

import datetime
import decimal
import typing

from fivegates.reconcile.files import Format, Record
from fivegates.reconcile.money import Price, decimal_of
from fivegates.reconcile.names import model_of
from fivegates.reconcile.rows import (BillRow, Item, ReconcileError, Window,
                                      amount, count, instant, scaled)

__all__ = ["FORMATS"]

_HOUR = 3_600_000
_DAY = 24 * _HOUR
_CHINA = datetime.timezone(datetime.timedelta(hours=8))


def _results(row: Record, place: str) -> "typing.Iterator[tuple[Record, str]]":
    results = row["results"]
    if not isinstance(results, list):
        raise ReconcileError(f"{place}: results is no list; give the answer of "
                             "the API as it was")
    for i, one in enumerate(results):
        if not isinstance(one, dict):
            raise ReconcileError(f"{place}.results[{i}]: not an object; give "
                                 "the answer of the API as it was")
        yield one, f"{place}.results[{i}]"


def _need(row: Record, name: str, place: str, how: str) -> typing.Any:
    if row.get(name) in (None, ""):
        raise ReconcileError(f"{place}: {name} is not there; {how}")
    return row[name]


# ---- OpenAI: input includes what the cache read and wrote


def _openai(row: Record, place: str) -> "typing.Iterator[Item]":
    lo = instant(row["start_time"], place, "start_time")
    hi = instant(row["end_time"], place, "end_time")
    yield Window("openai", lo, hi)
    for one, at in _results(row, place):
        if "amount" in one:
            paid = one["amount"] if isinstance(one["amount"], dict) else {}
            yield from _line_item(one, at, lo, hi, paid.get("value"),
                                  paid.get("currency"))
        elif "input_tokens" in one:
            yield _openai_cell(one, at, lo, hi)
        else:
            raise ReconcileError(f"{at}: neither usage of completions nor a "
                                 "cost; export usage/completions or costs")


def _openai_cell(row: Record, place: str, lo: int, hi: int) -> BillRow:
    model = _need(row, "model", place, "export the usage grouped by model")
    return BillRow(
        "openai", model_of(str(model)), place, lo, hi, True,
        key=row.get("api_key_id") or None,
        requests=count(row.get("num_model_requests"), place, "num_model_requests"),
        in_total=count(row["input_tokens"], place, "input_tokens"),
        cache_read=count(row.get("input_cached_tokens"), place, "input_cached_tokens"),
        cache_write=count(row.get("input_cache_write_tokens"), place, "input_cache_write_tokens"),
        out=count(row.get("output_tokens"), place, "output_tokens"))


def _line_item(row: Record, place: str, lo: int, hi: int, value: object,
               currency: object) -> "typing.Iterator[Item]":
    """A line of costs such as `gpt-5.4-2026-03-05, cached input`."""
    cost = amount(value, place, "amount")
    if cost is None:
        return
    coin = str(_need({"currency": currency}, "currency", place,
                     "export it again")).upper()
    model, _, meter = str(row.get("line_item") or "").rpartition(", ")
    words = meter.lower().replace("_", " ")
    yield BillRow("openai", model_of(model), place, lo, hi, True, cost=cost,
                  currency=coin)
    tokens = count(row.get("quantity"), place, "quantity")
    if not model or not tokens or "tokens" not in str(row.get("quantity_unit")):
        return
    kind = ("output" if words.startswith("output") else
            "cache_read" if words.startswith("cached input") else
            "input" if words.startswith("input") else None)
    if kind is not None:
        yield Price("openai", model_of(model), kind, coin, place,
                    amount=decimal_of(value), tokens=decimal.Decimal(tokens))


def _openai_usage_csv(row: Record, place: str) -> "typing.Iterator[Item]":
    lo = instant(row["start_time"], place, "start_time")
    hi = instant(row["end_time"], place, "end_time")
    yield Window("openai", lo, hi)
    if row["num_model_requests"].strip():  # else: a time without traffic
        yield _openai_cell(row, place, lo, hi)


def _openai_cost_csv(row: Record, place: str) -> "typing.Iterator[Item]":
    lo = instant(row["start_time"], place, "start_time")
    hi = instant(row["end_time"], place, "end_time")
    yield from _line_item(row, place, lo, hi, row["amount_value"],
                          row["amount_currency"])


# ---- Anthropic: input leaves out what the cache read and wrote


def _anthropic(row: Record, place: str) -> "typing.Iterator[Item]":
    lo = instant(row["starting_at"], place, "starting_at")
    hi = instant(row["ending_at"], place, "ending_at")
    yield Window("anthropic", lo, hi)
    for one, at in _results(row, place):
        if "uncached_input_tokens" in one:
            made = one.get("cache_creation") or {}
            yield _anthropic_cell(
                one.get("model"), at, lo, hi, one.get("api_key_id"),
                one["uncached_input_tokens"], one.get("cache_read_input_tokens"),
                made.get("ephemeral_5m_input_tokens"),
                made.get("ephemeral_1h_input_tokens"), one.get("output_tokens"))
        elif "amount" in one:
            yield from _anthropic_cost(one, at, lo, hi)
        else:
            raise ReconcileError(f"{at}: neither usage of messages nor a cost; "
                                 "export usage_report/messages or cost_report")


def _anthropic_cell(model: object, place: str, lo: int, hi: int, key: object,
                    plain: object, read: object, wrote: object, hour: object,
                    out: object) -> BillRow:
    name = _need({"model": model}, "model", place, "export the usage grouped by model")
    counts = [count(value, place, what) for value, what in (
        (plain, "uncached input"), (read, "cache read"), (wrote, "5m cache write"),
        (hour, "1h cache write"))]
    return BillRow(
        "anthropic", model_of(str(name)), place, lo, hi, True,
        key=str(key) if key else None,
        in_total=None if counts[0] is None else sum(one or 0 for one in counts),
        cache_read=counts[1], cache_write=counts[2], cache_write_1h=counts[3],
        out=count(out, place, "output tokens"))


_ANTHROPIC_METERS = {
    "uncached_input_tokens": "input", "output_tokens": "output",
    "cache_read_input_tokens": "cache_read",
    "cache_creation.ephemeral_5m_input_tokens": "cache_write",
    "cache_creation.ephemeral_1h_input_tokens": "cache_write_1h"}


def _anthropic_cost(row: Record, place: str, lo: int, hi: int,
                    ) -> "typing.Iterator[Item]":
    cents = row["amount"]
    if amount(cents, place, "amount") is None:
        return
    units = decimal_of(cents).scaleb(-2)  # "123.45" is 1.23 USD
    coin = str(_need(row, "currency", place, "export it again")).upper()
    model = model_of(str(row.get("model") or ""))
    yield BillRow("anthropic", model, place, lo, hi, True,
                  cost=amount(units, place, "amount"), currency=coin)
    meter = _ANTHROPIC_METERS.get(str(row.get("token_type")))
    if model and meter:
        yield Price("anthropic", model, meter, coin, place, amount=units,
                    t_lo=lo, t_hi=hi)


def _anthropic_console(row: Record, place: str) -> "typing.Iterator[Item]":
    lo = instant(row["usage_date_utc"], place, "usage_date_utc")
    yield _anthropic_cell(
        row["model_version"], place, lo, lo + _DAY, row.get("api_key"),
        row["usage_input_tokens_no_cache"],
        row["usage_input_tokens_cache_read"],
        row.get("usage_input_tokens_cache_write_5m"),
        row.get("usage_input_tokens_cache_write_1h"), row["usage_output_tokens"])


# ---- DeepSeek: one row per kind of token; days of Beijing, later slots


def _span(row: Record, place: str) -> "tuple[int, int]":
    if row.get("start_time_iso"):
        return (instant(row["start_time_iso"], place, "start_time_iso", _CHINA),
                instant(row.get("end_time_iso"), place, "end_time_iso", _CHINA))
    lo = instant(_need(row, "utc_date", place, "it needs start_time_iso or "
                       "utc_date; export it again"), place, "utc_date")
    return lo, lo + _DAY


_DEEPSEEK = {"request_count": None, "input_cache_hit_tokens": "cache_read",
             "input_cache_miss_tokens": "input", "output_tokens": "output"}


def _deepseek(row: Record, place: str) -> "typing.Iterator[Item]":
    lo, hi = _span(row, place)
    if row["type"] not in _DEEPSEEK:
        raise ReconcileError(f"{place}: the type {row['type']!r} is not known; "
                             f"known are {', '.join(_DEEPSEEK)}")
    meter, number = _DEEPSEEK[row["type"]], count(row["amount"], place, "amount")
    model = model_of(row["model"])
    cell = BillRow("deepseek", model, place, lo, hi, True,
                   key=row.get("api_key") or None)
    if meter is None:
        cell.requests = number
    elif meter == "output":
        cell.out = number
    else:
        cell.in_total = number
        cell.cache_read = number if meter == "cache_read" else 0
    yield cell
    if meter is not None and amount(row["price"], place, "price") is not None:
        yield Price("deepseek", model, meter, "", place,
                    per_token=decimal_of(row["price"]))


def _deepseek_cost(row: Record, place: str) -> "typing.Iterator[Item]":
    lo, hi = _span(row, place)
    yield BillRow("deepseek", model_of(row["model"]), place, lo, hi, True,
                  cost=amount(row["cost"], place, "cost"),
                  currency=row["currency"].strip().upper())


# ---- Alibaba's Model Studio: the instance says what was used


def _aliyun(row: Record, place: str) -> "typing.Iterator[Item]":
    parts = row["InstanceID"].split(";")
    if len(parts) < 4 or parts[0] != "text_token":
        return  # images, speech, storage: no tokens of a prompt
    lo = instant(row["BillingDate"], place, "BillingDate", _CHINA)
    tokens = scaled(row["Usage"], row["UsageUnit"], place, "Usage")
    model, coin = model_of(parts[2]), row["Currency"].strip().upper()
    meter = "output" if "output" in parts[3] else "input"
    cell = BillRow("alibaba", model, place, lo, lo + _DAY, True,
                   key=row.get("ApiKeyID") or None,
                   cost=amount(row["PretaxAmount"], place, "PretaxAmount"),
                   currency=coin)
    if meter == "output":
        cell.out = tokens
    else:
        cell.in_total = tokens
    yield cell
    yield Price("alibaba", model, meter, coin, place,
                amount=decimal_of(row["PretaxAmount"]),
                tokens=decimal.Decimal(tokens))


_CELL = ("start_time_iso", "end_time_iso", "project_id", "user_id", "api_key_id")

FORMATS = (
    Format("openai_api", "OpenAI's usage or costs API", "json",
           ("start_time", "end_time", "results"), ("object", "start_time_iso", "end_time_iso"),
           _openai, _HOUR, "probable"),
    Format("openai_dashboard_usage", "OpenAI's dashboard usage CSV", "csv",
           ("start_time", "end_time", "num_model_requests", "model",
            "input_tokens", "output_tokens"),
           (*_CELL, "batch", "service_tier", "input_cached_tokens",
            "input_uncached_tokens", "input_cache_write_tokens"),
           _openai_usage_csv, _HOUR, "probable"),
    Format("openai_dashboard_cost", "OpenAI's dashboard cost CSV", "csv",
           ("start_time", "end_time", "amount_value", "amount_currency",
            "quantity", "line_item"),
           (*_CELL, "quantity_unit", "organization_id", "project_name",
            "organization_name", "user_email", "api_source"),
           _openai_cost_csv, _DAY, "possible"),
    Format("anthropic_api", "Anthropic's usage or cost report", "json",
           ("starting_at", "ending_at", "results"), (),
           _anthropic, _HOUR, "probable"),
    Format("anthropic_console", "Anthropic's console usage CSV", "csv",
           ("usage_date_utc", "model_version", "usage_input_tokens_no_cache",
            "usage_input_tokens_cache_read", "usage_output_tokens"),
           ("api_key", "workspace", "usage_type", "context_window",
            "usage_input_tokens_cache_write_5m",
            "usage_input_tokens_cache_write_1h", "web_search_count",
            "inference_geo", "speed"),
           _anthropic_console, _DAY, "possible"),
    Format("deepseek_amount", "DeepSeek's monthly amount CSV", "csv",
           ("model", "type", "price", "amount"),
           ("user_id", "start_time_iso", "end_time_iso", "utc_date",
            "api_key_name", "api_key"),
           _deepseek, _DAY, "probable"),
    Format("deepseek_cost", "DeepSeek's monthly cost CSV", "csv",
           ("model", "wallet_type", "cost", "currency"),
           ("user_id", "start_time_iso", "end_time_iso", "utc_date"),
           _deepseek_cost, _DAY, "possible"),
    Format("aliyun_bill", "Alibaba Model Studio's bill", "csv",
           ("BillingDate", "InstanceID", "Usage", "UsageUnit", "PretaxAmount",
            "Currency"),
           ("ProductName", "BillingItem", "ApiKeyID"),
           _aliyun, 2 * _DAY, "possible"),
)
