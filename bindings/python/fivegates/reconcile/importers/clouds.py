"""The clouds' bills, one row per meter: Google's BigQuery export, AWS's Cost
and Usage Report (CUR 2.0), Azure's cost export. Rows of other services are
passed over."""

from __future__ import annotations

import decimal
import re
import typing

from fivegates.reconcile.files import Format, Record
from fivegates.reconcile.money import Price, decimal_of
from fivegates.reconcile.names import model_of
from fivegates.reconcile.rows import (BillRow, Item, ReconcileError, amount,
                                      instant, scaled)

__all__ = ["FORMATS"]

_HOUR = 3_600_000
_DAY = 24 * _HOUR


def _meter(provider: str, model: str, place: str, lo: int, hi: int,
           key: "str | None", meter: str, tokens: int, cost: "int | None",
           currency: str) -> BillRow:
    """A cell that knows one meter; all inputs together are the prompt."""
    cell = BillRow(provider, model, place, lo, hi, True, key=key, cost=cost,
                   currency=currency)
    if meter == "output":
        cell.out = tokens
    else:
        cell.in_total = tokens
        cell.cache_read = tokens if meter == "cache_read" else 0
        cell.cache_write = tokens if meter == "cache_write" else 0
    return cell


_SKU = re.compile(r"^generate content (cached )?(input|output) token count "
                  r"(?:caching )?(.+?)(?: (?:short|long))? (?:input|output)\b(.*)$",
                  re.IGNORECASE)


def _google(row: Record, place: str) -> "typing.Iterator[Item]":
    sku, usage = row["sku"], row["usage"]
    if not isinstance(sku, dict) or not isinstance(usage, dict):
        raise ReconcileError(f"{place}: sku and usage are no objects; export "
                             "the table as nested JSON")
    found = _SKU.match(str(sku.get("description")))
    if found is None:
        return
    meter = "output" if found[2].lower() == "output" else "input"
    if found[1] or "caching" in str(sku.get("description")).lower():
        meter = "cache_read"
    model, coin = model_of(found[3]), str(row["currency"]).upper()
    lo = instant(row["usage_start_time"], place, "usage_start_time")
    hi = instant(row["usage_end_time"], place, "usage_end_time")
    tokens = scaled(usage.get("amount"), str(usage.get("unit")), place, "usage.amount")
    project = row.get("project")
    yield _meter("google", model, place, lo, hi,
                 str(project.get("id")) if isinstance(project, dict) else None,
                 meter, tokens, amount(row["cost"], place, "cost"), coin)
    yield Price("google", model, meter, coin, place,
                amount=decimal_of(row["cost"]), tokens=decimal.Decimal(tokens))


_TOKENS = re.compile(r"(cacheread|cachewrite)?-?(input|output)-?token", re.IGNORECASE)
_NATIVE = re.compile(r"^[A-Z0-9]+-([A-Za-z0-9.]+)-(?:cache-(?:read|write)-)?(?:input|output)-token", re.IGNORECASE)


def _aws(row: Record, place: str) -> "typing.Iterator[Item]":
    usage = row["line_item_usage_type"]
    found = _TOKENS.search(usage)
    if found is None or row["line_item_line_item_type"] not in ("Usage", ""):
        return
    described = row["line_item_line_item_description"]
    native = _NATIVE.match(usage)
    model = model_of(native[1] if native else described.split(" (")[0])
    meter = found[2].lower()
    if found[1]:
        meter = "cache_read" if found[1].lower() == "cacheread" else "cache_write"
    unit, coin = row["pricing_unit"], row["line_item_currency_code"].upper()
    tokens = scaled(row["line_item_usage_amount"], unit, place, "line_item_usage_amount")
    yield _meter("bedrock", model, place,
                 instant(row["line_item_usage_start_date"], place, "line_item_usage_start_date"),
                 instant(row["line_item_usage_end_date"], place, "line_item_usage_end_date"),
                 None, meter, tokens,
                 amount(row["line_item_unblended_cost"], place, "line_item_unblended_cost"), coin)
    if amount(row.get("line_item_unblended_rate"), place, "line_item_unblended_rate") is not None:
        yield Price("bedrock", model, meter, coin, place,
                    per_token=decimal_of(row["line_item_unblended_rate"])
                    / scaled("1", unit, place, "pricing_unit"))


_METER = re.compile(r"^(.+?)(?: \d{4})?(?: (cached|cchd))? (inp|input|outp|output|opt)\b", re.IGNORECASE)


def _azure(row: Record, place: str) -> "typing.Iterator[Item]":
    found = _METER.match(row["MeterName"])
    if found is None or "token" not in row["MeterName"].lower():
        return
    meter = "output" if found[3].lower().startswith("o") else "input"
    if found[2]:
        meter = "cache_read"
    name = found[1]
    model = model_of(name if name[:1].isalpha() else f"gpt {name}")
    lo = instant(row["Date"], place, "Date")
    unit, coin = row["UnitOfMeasure"], row["BillingCurrencyCode"].upper()
    yield _meter("azure", model, place, lo, lo + _DAY,
                 row.get("ResourceId", "").rsplit("/", 1)[-1] or None, meter,
                 scaled(row["Quantity"], unit, place, "Quantity"),
                 amount(row["CostInBillingCurrency"], place, "CostInBillingCurrency"), coin)
    if amount(row.get("EffectivePrice"), place, "EffectivePrice") is not None:
        yield Price("azure", model, meter, coin, place,
                    per_token=decimal_of(row["EffectivePrice"])
                    / scaled("1", unit, place, "UnitOfMeasure"))


FORMATS = (
    Format("gcp_billing", "Google's BigQuery billing export", "json",
           ("sku", "usage_start_time", "usage_end_time", "usage", "cost",
            "currency"),
           ("billing_account_id", "service", "project", "labels",
            "export_time", "currency_conversion_rate", "credits", "invoice",
            "cost_type"),
           _google, _DAY, "probable"),
    Format("aws_cur", "AWS's Cost and Usage Report", "csv",
           ("line_item_line_item_type", "line_item_usage_start_date",
            "line_item_usage_end_date", "line_item_usage_type",
            "line_item_usage_amount", "pricing_unit",
            "line_item_unblended_cost", "line_item_currency_code",
            "line_item_line_item_description"),
           ("bill_billing_period_start_date", "line_item_usage_account_id",
            "line_item_product_code", "line_item_operation",
            "line_item_resource_id", "line_item_unblended_rate",
            "product_servicecode"),
           _aws, 2 * _DAY, "possible"),
    Format("azure_cost", "Azure's cost export", "csv",
           ("Date", "MeterName", "Quantity", "UnitOfMeasure",
            "CostInBillingCurrency", "BillingCurrencyCode"),
           ("SubscriptionId", "ResourceGroup", "ResourceId", "MeterCategory",
            "MeterSubCategory", "EffectivePrice", "ChargeType"),
           _azure, _DAY, "possible"),
)
