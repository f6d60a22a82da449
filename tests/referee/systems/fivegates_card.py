"""The card all fivegates systems use: what the setup and the ask say."""

from __future__ import annotations

import fivegates
from referee.ask import Ask, Setup
from referee.client import Json

__all__ = ["card_of", "engine_of"]

EVIDENCE = {"fixtures": "sha256:" + "0" * 64, "cases": 10, "passed": 10,
            "score_ppm": 990000, "primary_score_ppm": 990000,
            "measured_at": "2020-01-01T00:00:00Z",
            "expires_at": "2126-11-01T00:00:00Z"}


def _route(setup: Setup, name: str) -> Json:
    route = setup.routes[name]
    return {
        "provider": "openai", "model": route.model, "account": route.account,
        "base_url": setup.base_url(name), "key_env": "REFEREE_KEY",
        "price": setup.prices,
        "provides": {
            "input": {"context_tokens": route.context_tokens,
                      "prefill": route.prefill},
            "output": {"max_tokens": 4096}, "tools": {"names": ["refund"], "round_trip": True},
            "operations": {"streaming": True, "first_token_p95_ms": 100,
                           "latency_p95_ms": 300},
            "economics": {"quota_owner": route.account}}}


def _workflow(setup: Setup, ask: Ask) -> Json:
    patience = int(ask.patience_s * 1000)
    timeouts = {"first_token_ms": patience, "idle_ms": patience,
                "progress_ms": patience}
    if not ask.stream:
        timeouts["total_ms"] = patience
    out: Json = {"routes": list(setup.routes), "order": "card",
                 "timeouts": timeouts,
                 "budget": {"elapsed_ms": int(ask.deadline_s * 1000)}}
    held = ask.prompt_tokens + ask.max_tokens
    if ask.cap_usd is None:
        # A 503 may have been billed, so it stays held; three more may be.
        out["budget"].update(extra_tokens=3 * held, extra_cost_usd=None)
    else:
        first = (ask.prompt_tokens * setup.prices["input"]
                 + ask.max_tokens * setup.prices["output"]) / 1e6
        out["budget"]["extra_cost_usd"] = round(ask.cap_usd - first, 9)
    return out


def card_of(setup: Setup, ask: Ask) -> Json:
    """Its one workflow is "ask"."""
    return {
        "version": 1, "seed": 7,
        "breaker": {"open_ms": int(10_000 / ask.scale),
                    "open_max_ms": int(20_000 / ask.scale),
                    "window_ms": int(60_000 / ask.scale)},
        # The stand-in has room for all; sixty users earn too little to move
        # three outages with.
        "retry_bucket": {"start": 30, "cap": 30},
        "backoff": {"base_ms": int(500 / ask.scale),
                    "rate_base_ms": int(1000 / ask.scale)},
        "routes": {name: _route(setup, name) for name in setup.routes},
        "workflows": {"ask": _workflow(setup, ask)},
        "contracts": [{"workflow": "ask", "route": name, "approved_by":
                       "referee@example.com", "fingerprint": "auto",
                       "evidence": EVIDENCE}
                      for name in list(setup.routes)[1:]]}


def engine_of(setup: Setup, ask: Ask) -> fivegates.Engine:
    """An engine with a region of its own."""
    return fivegates.Engine(
        fivegates.Policy.loads(card_of(setup, ask), auto_fingerprint=True))
