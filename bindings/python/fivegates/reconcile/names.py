"""One name for a provider and a model, whoever wrote it."""

from __future__ import annotations

import functools
import re

__all__ = ["model_of", "provider_of"]

_PROVIDERS = {
    "azure.ai.openai": "azure", "azure-openai": "azure", "azure_openai": "azure",
    "azure.ai.inference": "azure", "azure_ai": "azure",
    "aws.bedrock": "bedrock", "bedrock_converse": "bedrock",
    "amazon_bedrock": "bedrock", "amazon-bedrock": "bedrock",
    "gcp.gemini": "google", "gcp.vertex_ai": "google", "gcp.gen_ai": "google",
    "gemini": "google", "vertex": "google", "vertex_ai": "google",
    "dashscope": "alibaba", "qwen": "alibaba", "aliyun": "alibaba",
    "fireworks_ai": "fireworks",
}
_REGION = re.compile(r"^(us-gov|us|eu|apac|jp|au|ca|global)\.")
_VENDOR = re.compile(r"^(anthropic|amazon|meta|mistral|cohere|ai21|deepseek|qwen|openai|google)\.")
_REVISION = re.compile(r"-v\d+(:\d+)?$")
_VARIANT = re.compile(r":[a-z0-9-]+$")
_DATE = re.compile(r"[-@]20\d\d-?\d\d-?\d\d$")


@functools.lru_cache(maxsize=1024)
def provider_of(name: str) -> str:
    """The short name of a provider: of OpenTelemetry's, a card's, a gateway's."""
    low = name.strip().lower()
    return _PROVIDERS.get(low, low)


@functools.lru_cache(maxsize=4096)
def model_of(name: str) -> str:
    """A model without vendor, region, profile, snapshot date and punctuation:
    `us.anthropic.claude-sonnet-4-6` and `Claude Sonnet 4.6` are one model.

    Two snapshots of one model become one too: their traffic is compared
    together, and where their prices differ the money is an interval.
    """
    low = name.strip().lower().rsplit("/", 1)[-1]
    low = _VENDOR.sub("", _REGION.sub("", low))
    low = _VARIANT.sub("", _REVISION.sub("", low))
    return re.sub(r"[^a-z0-9]", "", _DATE.sub("", low))
