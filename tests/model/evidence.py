"""Canned failures: what a host would report, and what the classifier is known to make of it.

The model does not classify. `check_table` in compare.py asks the engine's classifier once that it agrees with this table.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Canned:
    name: str
    evidence: dict[str, Any]
    owner: str
    klass: str
    kind: str = ""
    scope: str = "request"
    period: str = "unknown"
    overload: bool = False
    trips: bool = False
    retry_after_ms: int | None = None
    must_not_retry: bool = False
    never_sent: bool = False
    local: bool = False
    client_gone: bool = False
    head: bool = False  # a 2xx head was seen
    error_answer: bool = False  # an error status, or an error event in a 200
    visible: int = 0
    sent: bool = True
    tags: frozenset[str] = field(default_factory=frozenset)  # size, empty_end, truncated


def _http(status: int, body: str, **headers: str) -> dict[str, Any]:
    return {
        "provider": "openai",
        "api": "chat",
        "phase": "response",
        "status": status,
        "headers": {"content-type": "application/json", **{k.replace("_", "-"): v for k, v in headers.items()}},
        "body": body,
    }


def _wire(phase: str, kind: str, message: str, **more: Any) -> dict[str, Any]:
    return {"provider": "openai", "api": "chat", "phase": phase, "transport": {"lib": "httpx", "kind": kind, "message": message}, **more}


def _error(message: str, type_: str, code: str | None) -> str:
    code_text = "null" if code is None else f'"{code}"'
    return f'{{"error":{{"message":"{message}","type":"{type_}","param":null,"code":{code_text}}}}}'


_RATE = _error("Rate limit reached for requests", "requests", "rate_limit_exceeded")
_TOKENS = _error("Rate limit reached for gpt-4o on tokens per min (TPM): Limit 10000, Used 9000, Requested 2000.", "tokens", "rate_limit_exceeded")
_SSE = {"content-type": "text/event-stream"}
_CUT = "peer closed connection without sending complete message body (incomplete chunked read)"

CANNED: tuple[Canned, ...] = (
    Canned("connect_refused", _wire("connect", "ConnectError", "[Errno 111] Connection refused"), "transient", "connect", "connect_failed",
           scope="network", trips=True, never_sent=True, sent=False),
    Canned("connect_timeout", _wire("connect", "ConnectTimeout", "timed out"), "transient", "connect", "connect_timeout", scope="network",
           trips=True, never_sent=True, sent=False),
    Canned("read_timeout", _wire("read", "ReadTimeout", "timed out"), "transient", "silent", "read_timeout", scope="provider", trips=True),
    Canned("read_reset", _wire("read", "ReadError", "[Errno 104] Connection reset by peer"), "transient", "silent", "reset", scope="network", trips=True),
    Canned("cut_before_text", _wire("stream", "RemoteProtocolError", _CUT, status=200, headers=_SSE, progress={"visible": 0, "lifecycle": 1}),
           "transient", "cut", "stream_cut", scope="network", trips=True, head=True),
    Canned("cut_after_text", _wire("stream", "RemoteProtocolError", _CUT, status=200, headers=_SSE, progress={"visible": 12}),
           "transient", "cut", "stream_cut", scope="network", trips=True, head=True, visible=12),
    Canned("rate_hint", _http(429, _TOKENS, retry_after="2"), "rate", "rate", "tokens_rate_limited", scope="model", retry_after_ms=2000, error_answer=True),
    Canned("rate_plain", _http(429, _RATE), "rate", "rate", "rate_limited", scope="account", error_answer=True),
    Canned("rate_long", _http(429, _RATE, retry_after="121"), "rate", "rate", "rate_limited", scope="account", retry_after_ms=121000, error_answer=True),
    Canned("no_credit", _http(429, _error("You exceeded your current quota.", "insufficient_quota", "insufficient_quota")), "quota", "other", "no_credit",
           scope="account", error_answer=True),
    Canned("day_quota", _http(429, _error("Daily limit reached.", "insufficient_quota", "insufficient_quota"), retry_after="7200"), "quota", "other",
           "no_credit", scope="account", retry_after_ms=7200000, error_answer=True),
    Canned("server_500", _http(500, _error("The server had an error.", "server_error", None)), "transient", "server", "server_error", scope="provider",
           trips=True, error_answer=True),
    Canned("server_503", _http(503, _error("Service unavailable.", "server_error", None)), "transient", "server", "unavailable", scope="provider",
           trips=True, error_answer=True),
    Canned("overloaded", {**_http(529, '{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}'), "provider": "anthropic", "api": "messages"},
           "transient", "server", "overloaded", scope="provider", overload=True, trips=True, error_answer=True),
    Canned("must_not_retry", _http(503, _error("Service unavailable.", "server_error", None), x_should_retry="false"), "transient", "server", "unavailable",
           scope="provider", trips=True, must_not_retry=True, error_answer=True),
    Canned("bad_key", _http(401, _error("Incorrect API key provided.", "invalid_request_error", "invalid_api_key")), "auth", "other", "bad_key", scope="account",
           error_answer=True),
    Canned("no_model", _http(404, _error("The model does not exist.", "invalid_request_error", "model_not_found")), "request", "other", "model_not_found",
           scope="model", error_answer=True),
    Canned("bad_request", _http(400, _error("Invalid value for temperature.", "invalid_request_error", "invalid_value")), "request", "other", "bad_request",
           error_answer=True),
    Canned("too_long", _http(400, _error("This model's maximum context length is 8192 tokens.", "invalid_request_error", "context_length_exceeded")), "request",
           "other", "context_too_long", error_answer=True, tags=frozenset({"size"})),
    Canned("refused", _http(400, _error("Your request was rejected as a result of our safety system.", "invalid_request_error", "content_policy_violation")),
           "policy", "other", "content_refused", error_answer=True),
    Canned("empty_choices", _http(200, '{"id":"c","object":"chat.completion","choices":[]}'), "transient", "answer", "empty_answer", scope="model", trips=True, head=True),
    Canned("truncated_tool", {**_http(200, ""), "phase": "stream", "headers": _SSE,
                              "progress": {"visible": 0, "tool_args_bytes": 120, "terminal": "length"}},
           "transient", "answer", "truncated_tool_call", scope="model", head=True, tags=frozenset({"truncated"})),
    Canned("client_gone", {"phase": "read", "client_gone": True}, "local", "other", "client_gone", client_gone=True),
    Canned("pool_full", {"phase": "connect", "origin": "local", "transport": {"lib": "httpx", "kind": "PoolTimeout", "message": ""}}, "local", "connect", "pool_full",
           scope="network", never_sent=True, local=True, sent=False),
    Canned("empty_end", _http(200, '{"id":"c","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":""},"finish_reason":"stop"}],'
                                   '"usage":{"prompt_tokens":600,"completion_tokens":0,"total_tokens":600}}'),
           "unknown", "answer", "no_output", scope="model", head=True, tags=frozenset({"empty_end"})),
)

BY_NAME = {c.name: c for c in CANNED}

# Failures the engine makes itself: a clock ran out, an output check failed.
TIMED_OUT_SILENT = Canned("clock_silent", {}, "transient", "silent", "first_token_timeout", scope="provider", trips=True)
TIMED_OUT_CUT = Canned("clock_cut", {}, "transient", "cut", "idle_timeout", scope="provider", trips=True, head=True)
OUTPUT_INVALID = Canned("output_invalid", {}, "transient", "answer", "output_invalid", head=True, tags=frozenset({"output"}))
