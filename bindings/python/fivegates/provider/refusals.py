"""Error answers, with the status and the words that each API gives them."""

from __future__ import annotations

import typing

__all__ = ["REFUSALS", "body_of", "status_of"]

Json = typing.Dict[str, typing.Any]


class _OpenAI(typing.NamedTuple):
    status: int
    type: str
    code: "str | None"
    message: str


class _Anthropic(typing.NamedTuple):
    status: int
    type: str
    message: str


REFUSALS: "dict[str, tuple[_OpenAI, _Anthropic]]" = {
    "rate": (
        _OpenAI(429, "requests", "rate_limit_exceeded",
                "Rate limit reached for requests per minute."),
        _Anthropic(429, "rate_limit_error",
                   "This request would exceed the rate limit for your "
                   "organization.")),
    "too_large": (
        _OpenAI(429, "tokens", "rate_limit_exceeded",
                "Request too large for this model on tokens per min (TPM): "
                "Limit 30000, Requested 50000."),
        _Anthropic(413, "request_too_large",
                   "Request exceeds the maximum size.")),
    "quota": (
        _OpenAI(429, "insufficient_quota", "insufficient_quota",
                "You exceeded your current quota, please check your plan and "
                "billing details."),
        _Anthropic(400, "invalid_request_error",
                   "Your credit balance is too low to access the API.")),
    "server": (
        _OpenAI(500, "server_error", "server_error",
                "The server had an error while processing your request."),
        _Anthropic(500, "api_error", "Internal server error")),
    "unavailable": (
        _OpenAI(503, "service_unavailable_error", "server_is_overloaded",
                "The service is unavailable, please try again later."),
        _Anthropic(503, "api_error", "The service is unavailable.")),
    "overloaded": (
        _OpenAI(503, "service_unavailable_error", "server_is_overloaded",
                "The server is overloaded, please try again later."),
        _Anthropic(529, "overloaded_error", "Overloaded")),
    "key": (
        _OpenAI(401, "invalid_request_error", "invalid_api_key",
                "Incorrect API key provided."),
        _Anthropic(401, "authentication_error", "invalid x-api-key")),
    "no_model": (
        _OpenAI(404, "invalid_request_error", "model_not_found",
                "The model does not exist or you do not have access to it."),
        _Anthropic(404, "not_found_error", "model: no such model")),
    "context": (
        _OpenAI(400, "invalid_request_error", "context_length_exceeded",
                "This model's maximum context length is 128000 tokens; your "
                "messages resulted in 131000 tokens."),
        _Anthropic(400, "invalid_request_error",
                   "prompt is too long: 208000 tokens > 200000 maximum")),
    "filter": (
        _OpenAI(400, "invalid_request_error", "content_filter",
                "The prompt triggered the content management policy."),
        _Anthropic(400, "invalid_request_error",
                   "Output blocked by content filtering policy")),
    "unsupported": (
        _OpenAI(400, "invalid_request_error", "unsupported_parameter",
                "Unsupported parameter: it is not supported with this model."),
        _Anthropic(400, "invalid_request_error",
                   "This model does not support a parameter of the request.")),
    "prefill": (
        _OpenAI(400, "invalid_request_error", None,
                "This model does not support assistant message prefill; the "
                "conversation must end with a user message."),
        _Anthropic(400, "invalid_request_error",
                   "This model does not support assistant message prefill. "
                   "The conversation must end with a user message.")),
}


def status_of(api: str, name: str) -> int:
    """The HTTP status of a refusal."""
    openai, anthropic = REFUSALS[name]
    return anthropic.status if api == "messages" else openai.status


def body_of(api: str, name: str) -> Json:
    """The body of a refusal."""
    openai, anthropic = REFUSALS[name]
    if api == "messages":
        return {"type": "error", "error": {
            "type": anthropic.type, "message": anthropic.message}}
    return {"error": {"message": openai.message, "type": openai.type,
                      "param": None, "code": openai.code}}
