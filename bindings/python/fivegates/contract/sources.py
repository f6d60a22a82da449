"""What well-kept data says of a model: genai-prices, and LiteLLM's table.

Every fact is known yes, known no, or not there: what the data does not say is
no `no`. Nothing here imports litellm, and genai-prices only when it is asked.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import importlib.metadata
import importlib.util
import json
import pathlib
import re
import typing

from fivegates.contract.cards import ContractError, Json
from fivegates.contract.judge import near

__all__ = ["NAMES", "Source", "genai_prices", "litellm"]

# A route's provider: what genai-prices calls it, and what LiteLLM does. Others
# are looked for by their own name.
NAMES: "dict[str, tuple[str, tuple[str, ...]]]" = {
    "azure-openai": ("azure", ("azure",)),
    "bedrock": ("aws", ("bedrock", "bedrock_converse")),
    "cohere": ("cohere", ("cohere", "cohere_chat")),
    "fireworks": ("fireworks", ("fireworks_ai",)),
    "gemini": ("google", ("gemini",)),
    "moonshot": ("moonshotai", ("moonshot",)),
    "together": ("together", ("together_ai",)),
    "vertex": ("google", ("vertex_ai",)),
    "xai": ("x-ai", ("xai",)),
}
# LiteLLM's word for an ability: ours, as section.key.
_ABILITIES = {
    "supports_assistant_prefill": "input.prefill",
    "supports_system_messages": "input.system_prompt",
    "supports_response_schema": "output.json_schema",
    "supports_reasoning": "output.reasoning",
    "supports_parallel_function_calling": "tools.parallel_calls",
    "supports_native_streaming": "operations.streaming",
    "supports_prompt_caching": "economics.cache",
    "supports_function_calling": "tools.names",
}
_MODALITIES = {"supports_vision": "image", "supports_audio_input": "audio",
               "supports_video_input": "video", "supports_pdf_input": "file"}
_SIZES = {"max_input_tokens": "input.context_tokens",
          "max_output_tokens": "output.max_tokens"}
_COSTS = {"input_cost_per_token": "price.input",
          "cache_read_input_token_cost": "price.cached_input",
          "output_cost_per_token": "price.output"}
_ABOVE = re.compile(r"_above_\d+k_tokens\Z")
_MILLION = 1_000_000
# USD of a million tokens that some model may cost, but for 0; else somebody took a
# million tokens for one, or one for a thousand.
_CHEAPEST, _DEAREST = decimal.Decimal("0.0001"), 10_000
_TOKENS_MAX = 1_000_000_000


@dataclasses.dataclass
class Source:
    """What one set of data says of a model.

    name and made: which data, and how old it is at least; model: what it calls
    the model. facts: by section.key, by price.part in USD per million tokens,
    and by input.modalities.NAME; True and False are known, a key that is not
    there is unknown. notes: what a person should hear besides.
    """

    name: str
    made: str
    model: str = ""
    facts: "dict[str, typing.Any]" = dataclasses.field(default_factory=dict)
    notes: "list[str]" = dataclasses.field(default_factory=list)
    near: str = ""

    def price(self, part: str, prices: "typing.Iterable[decimal.Decimal]",
              ) -> None:
        """The highest of the prices that depend on how long a prompt is."""
        prices = sorted(set(prices))
        if prices:
            self.facts[f"price.{part}"] = _plain(prices[-1])
        if len(prices) > 1:
            self.notes.append(
                f"{part} costs {_plain(prices[0])} to {_plain(prices[-1])} by the "
                "length of the prompt; the highest counts")

    def no_price_of_zero(self) -> None:
        """Nothing is for nothing: a price of zero is one nobody wrote down."""
        zero = [part for part in ("input", "cached_input", "output")
                if self.facts.get(f"price.{part}") == 0]
        for part in zero:
            del self.facts[f"price.{part}"]
        if zero:
            self.notes.append(f"the price of {', '.join(zero)} is 0 there, which may mean "
                              "that it is not known; state `price: free` if it is")


def _plain(value: decimal.Decimal) -> decimal.Decimal:
    """Without an exponent and without zeros at the end."""
    return decimal.Decimal(format(value.normalize(), "f"))


def _names(model: str, version: str) -> "list[str]":
    """What data may call a version of a model."""
    if not version or version in model:
        return [model]
    return [f"{model}{mark}{version}" for mark in ("-", "@", ":")]


def _installed(package: str) -> str:
    """Version, and that the data is not newer than its installation."""
    found = importlib.metadata.distribution(package)
    files = found.files or []
    record = next((one for one in files if one.name == "METADATA"), None)
    text = f"{package} {found.version}"
    if record is None:
        return text
    at = pathlib.Path(str(record.locate())).stat().st_mtime
    day = datetime.datetime.fromtimestamp(at, datetime.timezone.utc).date()
    return f"{text}, not newer than {day}"


# ---- genai-prices


def genai_prices(provider: str, model: str, version: str,
                 update: bool = False) -> "Source | None":
    """What genai-prices says; None: it is not installed.

    Only the provider's own entries count: the package lends prices of a model's
    maker to others who offer it, and those are no facts about them. update:
    fetch the newest data first. Raises ContractError where that fails.
    """
    try:
        from genai_prices import data_snapshot
        from genai_prices.update_prices import UpdatePrices
    except ImportError:
        if update:
            raise ContractError("--update: genai-prices is not installed; "
                                "pip install 'fivegates[contract]'") from None
        return None
    snapshot: typing.Any = data_snapshot.get_snapshot()
    made = _installed("genai-prices")
    if update:
        try:
            snapshot = UpdatePrices().fetch()
        except Exception as exc:  # of its HTTP client, of the data's form
            raise ContractError(
                f"--update: {exc}; without it the data of {made} is used") from None
        made = f"genai-prices, fetched {datetime.date.today()}"
    out = Source("genai-prices", made)
    own = NAMES.get(provider, (provider, ()))[0]
    found = next((one for one in snapshot.providers if one.id == own), None)
    if found is None:
        out.near = "it knows no provider of that name"
        return out
    for name in _names(model, version):
        info = found.find_model(name)
        if info is not None:
            _of_genai(out, info)
            if version and found.find_model(f"{name} of none") is info:
                out.notes.append(f"it knows {info.id} and no version: of {version} it says "
                                 "what it says of any")
            return out
    out.near = near(model, [one.id for one in found.models])
    return out


def _of_genai(out: Source, info: typing.Any) -> None:
    out.model = info.id
    if info.context_window:
        out.facts["input.context_tokens"] = info.context_window
    if info.deprecated:
        out.notes.append("its provider has deprecated it")
    prices = info.get_prices(datetime.datetime.now(datetime.timezone.utc))
    for part, field in (("input", "input_mtok"), ("cached_input", "cache_read_mtok"),
                        ("output", "output_mtok")):
        price = getattr(prices, field, None)
        if price is not None:
            out.price(part, [price] if isinstance(price, decimal.Decimal) else
                      [price.base, *(tier.price for tier in price.tiers)])
    out.no_price_of_zero()


# ---- LiteLLM's table


def litellm(provider: str, model: str, version: str,
            file: str = "") -> "Source | None":
    """What LiteLLM's table says: of a file, else of the installed package, which
    is not imported; None: there is neither. ContractError for a broken file."""
    path, made = file, f"{file}, of "
    if not file:
        found = importlib.util.find_spec("litellm")
        folder = next(iter((found.submodule_search_locations or ()) if found else ()),
                      None)
        path = f"{folder}/model_prices_and_context_window_backup.json"
        if folder is None or not pathlib.Path(path).exists():
            return None
    table = _read(path)
    if file:
        at = pathlib.Path(path).stat().st_mtime
        made += str(datetime.datetime.fromtimestamp(at, datetime.timezone.utc).date())
    out = Source("litellm", made if file else _installed("litellm"))
    own = NAMES.get(provider, ("", (provider, provider.replace("-", "_"))))[1]
    for name in _names(model, version):
        for key in (name, *(f"{one}/{name}" for one in own)):
            entry = _entry(table, key, path)
            if entry is not None and _is_of(entry, own):
                out.model = key
                _of_litellm(out, entry, f"{path}: {key}")
                return out
    out.near = near(model, [key.rpartition("/")[2] for key, entry in table.items()
                            if isinstance(entry, dict) and _is_of(entry, own)])
    return out


def _decimal(text: str) -> decimal.Decimal:
    try:
        return decimal.Decimal(text)
    except decimal.InvalidOperation:
        raise ValueError(f"{text:.40} is no number that can be") from None


def _read(path: str) -> Json:
    remedy = "name a file like LiteLLM's model_prices_and_context_window.json"
    try:
        table = json.loads(pathlib.Path(path).read_text(encoding="utf-8"),
                           parse_float=_decimal)
    except OSError as exc:
        raise ContractError(f"{path}: {exc.strerror or exc}; {remedy}") from None
    except UnicodeDecodeError:
        raise ContractError(f"{path}: not UTF-8; {remedy}") from None
    except ValueError as exc:
        line = getattr(exc, "lineno", 1)
        raise ContractError(f"{path}:{line}: not JSON: {exc}; {remedy}") from None
    except RecursionError:
        raise ContractError(f"{path}: too deep; {remedy}") from None
    if not isinstance(table, dict):
        raise ContractError(f"{path}: no object by model; {remedy}")
    return table


def _entry(table: Json, key: str, path: str) -> "Json | None":
    """A model's entry; that of another name where it is an alias of it."""
    entry = table.get(key)
    if isinstance(entry, dict) and "alias_of" in entry:
        entry = table.get(str(entry["alias_of"]))
    if entry is not None and not isinstance(entry, dict):
        raise ContractError(f"{path}: {key}: not an object; take another file")
    return entry


def _is_of(entry: Json, providers: "tuple[str, ...]") -> bool:
    own = str(entry.get("litellm_provider"))
    return any(own == one or own.startswith(f"{one}-") for one in providers)


def _of_litellm(out: Source, entry: Json, place: str) -> None:
    def bad(key: str, unit: str = "") -> ContractError:
        value = entry[key]
        said = repr(value) if isinstance(value, str) else str(value)
        return ContractError(f"{place}: {key}: {said:.80} cannot be{unit}; correct the "
                             "file, or take another one")

    for key, name in _SIZES.items():
        value = entry.get(key)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, (int, decimal.Decimal)) or (
                not 0 <= value <= _TOKENS_MAX or value != int(value)):
            raise bad(key)
        if value:
            out.facts[name] = int(value)
    for key, name in _ABILITIES.items():
        if entry.get(key) is not None:
            if not isinstance(entry[key], bool):
                raise bad(key)
            out.facts[name] = entry[key]
    for key, name in _MODALITIES.items():
        if isinstance(entry.get(key), bool):
            out.facts[f"input.modalities.{name}"] = entry[key]
    if entry.get("mode") in ("chat", "responses"):
        out.facts["input.modalities.text"] = True
    tiers = entry.get("tiered_pricing") or ()
    if not isinstance(tiers, (list, tuple)):
        raise bad("tiered_pricing")
    rows: "list[Json]" = [entry, *(one for one in tiers if isinstance(one, dict))]
    for key, name in _COSTS.items():
        costs: "list[decimal.Decimal]" = []
        for row in rows:
            for each, value in row.items():
                if each == key or each.startswith(key) and _ABOVE.fullmatch(
                        each, len(key)):
                    if value is None:  # not stated
                        continue
                    if isinstance(value, bool) or not isinstance(
                            value, (int, decimal.Decimal)) or value != 0 and not (
                            _CHEAPEST / _MILLION <= value
                            <= decimal.Decimal(_DEAREST) / _MILLION):
                        raise bad(each if row is entry else "tiered_pricing",
                                  "; it is in USD per token")
                    costs.append(decimal.Decimal(value) * _MILLION)
        out.price(name.partition(".")[2], costs)
    out.no_price_of_zero()
    if entry.get("deprecation_date"):
        out.notes.append(f"its provider ends it on {entry['deprecation_date']}")
