"""A small card: two routes, the second an approved stand-in."""

from __future__ import annotations

import copy
import typing

import fivegates

Json = typing.Dict[str, typing.Any]

_LIMITS = {"input": {"context_tokens": 100000, "system_prompt": True},
           "output": {"max_tokens": 4000}}
_PRICE = {"input": 2.5, "output": 10}
_CARD: Json = {
    "version": 1,
    "backoff": {"base_ms": 20, "rate_base_ms": 20},
    "routes": {
        "main": {"provider": "openai", "model": "m1", "account": "a",
                 "key_env": "KEY_A", "price": _PRICE, "provides": _LIMITS},
        "backup": {"provider": "openai", "model": "m2", "account": "b",
                   "key_env": "KEY_B", "price": _PRICE, "provides": _LIMITS}},
    "workflows": {
        # The default for extra tokens is the first attempt's hold; a stand-in
        # after an answer that may be billed needs more.
        "w": {"routes": ["main", "backup"],
              "budget": {"extra_tokens": 100000, "extra_cost_usd": 1}},
        "bare": {"routes": ["main"]}},
    "contracts": [{
        "workflow": "w", "route": "backup", "fingerprint": "auto",
        "approved_by": "test@example.com",
        "evidence": {"fixtures": "sha256:" + "0" * 64, "cases": 10,
                     "passed": 10, "score_ppm": 990000,
                     "primary_score_ppm": 990000,
                     "measured_at": "2020-01-01T00:00:00Z",
                     "expires_at": "2100-01-01T00:00:00Z"}}],
}


def card_of(main: str, backup: str, **workflow: typing.Any) -> Json:
    """The card with its routes' base URLs, and edits of the workflow w."""
    card = copy.deepcopy(_CARD)
    card["routes"]["main"]["base_url"] = main
    card["routes"]["backup"]["base_url"] = backup
    card["workflows"]["w"].update(workflow)
    return card


def engine_of(main: str, backup: str, **workflow: typing.Any) -> fivegates.Engine:
    """An engine on that card, with a region of its own."""
    return fivegates.Engine(fivegates.Policy.loads(
        card_of(main, backup, **workflow), auto_fingerprint=True))
