"""What the tests of the gateway share: a card over a scripted provider, and
gateways that end with their test."""

from __future__ import annotations

import contextlib
import pathlib
import sys
import typing

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from openresty.gateway import Gateway, Json, missing  # noqa: E402
from openresty.upstream import Upstream  # noqa: E402

EVIDENCE = {"fixtures": "sha256:" + "0" * 64, "cases": 10, "passed": 10,
            "score_ppm": 990000, "primary_score_ppm": 990000,
            "measured_at": "2020-01-01T00:00:00Z",
            "expires_at": "2126-11-01T00:00:00Z"}
KEYS = {"KEY_MAIN": "key-of-main", "KEY_BACKUP": "key-of-backup"}


def route(upstream: Upstream, name: str) -> Json:
    return {"provider": "openai", "model": f"model-of-{name}",
            "account": f"account-{name}", "base_url": upstream.base_url(name),
            "key_env": f"KEY_{name.upper()}",
            "price": {"input": 2.5, "output": 10},
            "provides": {"input": {"context_tokens": 100000},
                         "output": {"max_tokens": 4000},
                         "tools": {"names": ["a", "b"], "round_trip": True},
                         "operations": {"streaming": True}}}


def card_of(upstream: Upstream, **workflow: typing.Any) -> Json:
    """Two routes, the second an approved stand-in, and a workflow w."""
    return {
        "version": 1, "seed": 7,
        "backoff": {"base_ms": 20, "rate_base_ms": 20},
        "retry_bucket": {"start": 30, "cap": 30},
        "routes": {name: route(upstream, name) for name in ("main", "backup")},
        "workflows": {"w": {
            "routes": ["main", "backup"], "order": "card",
            "budget": {"extra_tokens": 1000000, "extra_cost_usd": None,
                       "elapsed_ms": 5000},
            "timeouts": {"first_token_ms": 1000}, **workflow}},
        "contracts": [{"workflow": "w", "route": "backup",
                       "fingerprint": "auto", "approved_by": "t@example.com",
                       "evidence": EVIDENCE}]}


@pytest.fixture
def run(tmp_path: pathlib.Path) -> "typing.Iterator[typing.Callable[..., Gateway]]":
    """Starts a gateway over an upstream; both end with the test."""
    if missing() is not None:
        pytest.skip(str(missing()))
    with contextlib.ExitStack() as stack:
        def start(upstream: Upstream, workflow: "Json | None" = None,
                  card: "Json | None" = None, **options: typing.Any) -> Gateway:
            stack.enter_context(upstream)
            made = card if card is not None else card_of(
                upstream, **(workflow or {}))
            return stack.enter_context(Gateway(tmp_path, made, **{
                "env": KEYS, **options}))
        yield start
