"""The langchain middleware's tests with ChatOpenAI, sync and async.

They are the same tests, loaded from tests/python; only the chat model differs.
"""

from __future__ import annotations

import importlib.util
import pathlib
import typing

import pytest
from langchain_openai import ChatOpenAI

import fivegates

_FILE = (pathlib.Path(__file__).resolve().parents[1] / "python"
         / "test_adapter_langchain.py")
_spec = importlib.util.spec_from_file_location("same_langchain_tests", _FILE)
assert _spec is not None and _spec.loader is not None
_same: typing.Any = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_same)
globals().update({name: value for name, value in vars(_same).items()
                  if name.startswith("test_") or name == "server"})


def _chat(url: str) -> ChatOpenAI:
    return ChatOpenAI(model="m", base_url=url, api_key="k",  # type: ignore[arg-type]
                      max_retries=0)


_same.chat = _chat


def test_retries_of_the_client_are_counted(
        server: "_same.Server") -> None:  # type: ignore[name-defined]
    """A chat model that was left its own retries: the engine counts them."""
    server.script = [_same.error(503), _same.error(503), _same.say()]
    model = ChatOpenAI(model="m", base_url=server.url + "/main/v1",
                       api_key="k", max_retries=1)  # type: ignore[arg-type]
    card = {**_same.CARD, "workflows": {"alone": {
        "routes": ["main"], "budget": {"total_attempts": 2}}},
        "contracts": []}
    rig = _same.Rig(server, "alone", card=card, models={"main": model})
    with pytest.raises(fivegates.Refused) as caught:
        rig.ask()
    assert caught.value.decision.reason == "attempts_exhausted"
    assert len(server.seen) == 2
