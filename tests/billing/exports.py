"""A world as each provider, cloud and gateway would export it."""

from __future__ import annotations

import collections
import csv
import datetime
import decimal
import io
import json
import typing

from .world import IN, OUT, READ, START, Attempt, World, iso

Cells = typing.Dict[int, typing.List[Attempt]]
END = START + 2 * 3600  # a span that all the traffic is in


class Kind(typing.NamedTuple):
    """An export: the ledger's names for it, and how it is written."""

    provider: str
    model: str
    write: "typing.Callable[[World], str]"
    suffix: str = "json"
    ids: bool = False  # its rows have ids


def _units(picos: int) -> str:
    return format(decimal.Decimal(picos).scaleb(-12), "f")


def _rows(world: World) -> "list[Attempt]":
    return [one for one in world.billed if not one.late]


def _cells(world: World, width: int, end: bool = True) -> Cells:
    """Attempts by the start of their cell; booked where they end, or begin."""
    out: "Cells" = collections.defaultdict(list)
    for one in _rows(world):
        at = (one.ends if end else one.start) + world.skew
        out[int(at) // width * width].append(one)
    return out


def _sum(cell: "list[Attempt]") -> "tuple[int, int, int, int]":
    """requests, prompt tokens, of them read from a cache, output tokens."""
    return (len(cell), sum(one.call.size for one in cell),
            sum(one.read for one in cell), sum(one.out for one in cell))


def _csv(header: str, rows: "typing.Iterable[typing.Sequence[object]]", bom: bool = False) -> str:
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(header.split(","))
    writer.writerows(rows)
    return ("\ufeff" if bom else "") + text.getvalue()


def _stamp(at: int, hours: int = 0) -> str:
    zone = datetime.timezone(datetime.timedelta(hours=hours))
    return datetime.datetime.fromtimestamp(at, zone).isoformat()


# ---- rows by request


def openrouter(world: World) -> str:
    return _csv(
        "created_at,generation_id,model_permaslug,cost_total,tokens_prompt,tokens_completion,"
        "tokens_cached,cancelled,generation_time_ms,api_key_name",
        ((iso(one.start + world.skew).replace("T", " ").split("+")[0],
          one.id or f"gen-x{one.start}", "openai/gpt-5.4-20260305", _units(one.picos),
          one.call.size, one.out, one.read, "true" if one.outcome == "cut" else "false",
          int((one.ends - one.start) * 1000), "k1") for one in reversed(_rows(world))))


def bedrock_from_0(world: World) -> str:
    """The host that tagged the requests counts attempts from 0."""
    return bedrock(world, 1)


def bedrock(world: World, less: int = 0) -> str:
    out = []
    for one in _rows(world):
        ours = not one.call.name.startswith("other")
        out.append(json.dumps({
            "schemaType": "ModelInvocationLog", "timestamp": iso(one.start + world.skew),
            "requestId": f"r-{one.start}", "modelId": "us.anthropic.claude-sonnet-4-6",
            "requestMetadata": {"op": one.call.name, "attempt": str(one.n - less)} if ours else {},
            "input": {"inputTokenCount": one.call.size - one.read,
                      "cacheReadInputTokenCount": one.read, "cacheWriteInputTokenCount": 0},
            "output": {"outputTokenCount": one.out}}) + "\n")
    return "".join(out)


def fireworks(world: World) -> str:
    def when(at: float) -> str:
        return iso(int(at + world.skew)).replace("T", " ").split(".")[0] + " UTC"

    return _csv("start_time,end_time,base_model_name,prompt_tokens,completion_tokens",
                ((when(one.start), when(one.ends), "accounts/fireworks/models/glm-5p3-flash",
                  one.call.size, one.out) for one in _rows(world)))


def litellm(world: World) -> str:
    """The gateway heard of what was cut, and of no timeout."""
    return json.dumps([{
        "request_id": one.id, "startTime": iso(one.start + world.skew),
        "endTime": iso(one.ends + world.skew), "model": "openai/gpt-5.4",
        "custom_llm_provider": "openai", "spend": float(_units(one.picos)),
        "prompt_tokens": one.call.size, "completion_tokens": one.out, "metadata": {}}
        for one in _rows(world) if one.id])


def langfuse(world: World) -> str:
    return "".join(json.dumps({
        "id": f"obs-{i}", "type": "GENERATION", "start_time": iso(one.start + world.skew),
        "end_time": iso(one.ends + world.skew), "provided_model_name": "gpt-5.4",
        "usage_details": {"input": one.call.size - one.read, "input_cached_tokens": one.read,
                          "output": one.out} if one.id else {},
        "total_cost": _units(one.picos) if one.id else None}) + "\n"
        for i, one in enumerate(_rows(world)))


# ---- cells


def openai_usage(world: World, end: bool = True) -> str:
    cells = _cells(world, 60, end)
    data = []
    for at in range(START, END, 60):
        n, size, read, out = _sum(cells.get(at, []))
        data.append({"object": "bucket", "start_time": at, "end_time": at + 60, "results": [{
            "object": "organization.usage.completions.result", "input_tokens": size,
            "input_cached_tokens": read, "output_tokens": out, "num_model_requests": n,
            "api_key_id": "k1", "model": "gpt-5.4-2026-03-05"}] if n else []})
    return json.dumps({"object": "page", "data": data, "has_more": False})


def openai_usage_by_start(world: World) -> str:
    return openai_usage(world, end=False)


def openai_dashboard(world: World) -> str:
    cells = _cells(world, 60)
    rows = []
    for at in range(START, END, 60):
        n, size, read, out = _sum(cells.get(at, []))
        rows.append((at, at + 60, "", "", *((f"{n}.0", "gpt-5.4-2026-03-05", size, out, read)
                                            if n else [""] * 5)))
    return _csv("start_time,end_time,start_time_iso,end_time_iso,num_model_requests,model,"
                "input_tokens,output_tokens,input_cached_tokens", rows)


def anthropic_usage(world: World) -> str:
    cells = _cells(world, 60)
    data = []
    for at in range(START, END, 60):
        n, size, read, out = _sum(cells.get(at, []))
        data.append({"starting_at": _stamp(at), "ending_at": _stamp(at + 60), "results": [{
            "uncached_input_tokens": size - read, "cache_read_input_tokens": read,
            "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0},
            "output_tokens": out, "api_key_id": None, "model": "claude-opus-5"}] if n else []})
    return json.dumps({"data": data, "has_more": False})


def anthropic_console(world: World) -> str:
    return _csv("usage_date_utc,model_version,usage_input_tokens_no_cache,"
                "usage_input_tokens_cache_write_5m,usage_input_tokens_cache_read,usage_output_tokens",
                ((_stamp(at)[:10], "claude-opus-5", size - read, 0, read, out)
                 for at, (_, size, read, out) in _sums(world, 86400)))


def _sums(world: World, width: int) -> "typing.Iterator[tuple[int, tuple[int, int, int, int]]]":
    for at, cell in sorted(_cells(world, width).items()):
        yield at, _sum(cell)


def deepseek(world: World) -> str:
    rows = []
    for at, (n, size, read, out) in _sums(world, 3600):
        for name, price, number in (
                ("request_count", "", n), ("input_cache_hit_tokens", _units(READ), read),
                ("input_cache_miss_tokens", _units(IN), size - read), ("output_tokens", _units(OUT), out)):
            rows.append((_stamp(at, 8), _stamp(at + 3600, 8), "deepseek-v4-pro", "k1", name, price, number))
    return _csv("start_time_iso,end_time_iso,model,api_key,type,price,amount", rows, bom=True)


def gcp(world: World) -> str:
    rows = []
    for at, (_, size, read, out) in _sums(world, 3600):
        for name, number, price in (("input", size - read, IN), ("cached input", read, READ), ("output", out, OUT)):
            rows.append({
                "sku": {"description": f"Generate content {name} token count gemini 2.5 pro short {name.split()[-1]} text"},
                "usage_start_time": _stamp(at).replace("T", " ").replace("+00:00", " UTC"),
                "usage_end_time": _stamp(at + 3600).replace("T", " ").replace("+00:00", " UTC"),
                "usage": {"amount": str(number), "unit": "count"}, "cost": _units(number * price), "currency": "USD"})
    return "".join(json.dumps(row) + "\n" for row in rows)


def cur(world: World) -> str:
    rows = []
    for at, (_, size, read, out) in _sums(world, 3600):
        for name, number, price in (("Input", size - read, IN), ("CacheReadInput", read, READ), ("Output", out, OUT)):
            rows.append(("Usage", _stamp(at), _stamp(at + 3600), f"USE1-MP:USE1_{name}TokenCount-Units",
                         f"{number / 1e6:.6f}", "1M tokens", _units(price * 10**6), _units(number * price), "USD",
                         "Claude Sonnet 4.6 (Amazon Bedrock Edition)"))
    rows.append(("Usage", _stamp(START), _stamp(END), "USE1-BoxUsage:m5.large", "2", "Hrs", "0.1", "0.2", "USD", "EC2"))
    return _csv("line_item_line_item_type,line_item_usage_start_date,line_item_usage_end_date,line_item_usage_type,"
                "line_item_usage_amount,pricing_unit,line_item_unblended_rate,line_item_unblended_cost,"
                "line_item_currency_code,line_item_line_item_description", rows)


def azure(world: World) -> str:
    rows = []
    for at, (_, size, read, out) in _sums(world, 86400):
        for name, number, price in (("Inp", size - read, IN), ("cached Inp", read, READ), ("Outp", out, OUT)):
            rows.append((datetime.datetime.fromtimestamp(at, datetime.timezone.utc).strftime("%m/%d/%Y"),
                         f"gpt 4o 1120 {name} glbl Tokens", f"{number / 1000:.3f}", "1K",
                         _units(price * 1000), _units(number * price), "USD"))
    return _csv("Date,MeterName,Quantity,UnitOfMeasure,EffectivePrice,CostInBillingCurrency,BillingCurrencyCode", rows)


KINDS = {
    "openrouter": Kind("openrouter", "openai/gpt-5.4-20260305", openrouter, "csv", True),
    "bedrock": Kind("aws.bedrock", "us.anthropic.claude-sonnet-4-6", bedrock, "jsonl", True),
    "bedrock, from 0": Kind("aws.bedrock", "us.anthropic.claude-sonnet-4-6", bedrock_from_0, "jsonl", True),
    "fireworks": Kind("fireworks", "accounts/fireworks/models/glm-5p3-flash", fireworks, "csv"),
    "litellm": Kind("openai", "gpt-5.4", litellm),
    "langfuse": Kind("openai", "gpt-5.4", langfuse, "jsonl"),
    "openai usage": Kind("openai", "gpt-5.4-2026-03-05", openai_usage),
    "openai usage, by start": Kind("openai", "gpt-5.4-2026-03-05", openai_usage_by_start),
    "openai dashboard": Kind("openai", "gpt-5.4", openai_dashboard, "csv"),
    "anthropic usage": Kind("anthropic", "claude-opus-5", anthropic_usage),
    "anthropic console": Kind("anthropic", "claude-opus-5", anthropic_console, "csv"),
    "deepseek": Kind("deepseek", "deepseek-v4-pro", deepseek, "csv"),
    "gcp": Kind("gcp.gemini", "gemini-2.5-pro", gcp, "jsonl"),
    "cur": Kind("aws.bedrock", "us.anthropic.claude-sonnet-4-6", cur, "csv"),
    "azure": Kind("azure.ai.openai", "gpt-4o-2024-11-20", azure, "csv"),
}
