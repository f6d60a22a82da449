"""The anthropic middleware's tests, with the last major that sends with httpx.

They are the same tests, loaded from tests/python: what holds for the newest
release must hold for this one.
"""

from __future__ import annotations

import importlib.util
import pathlib

import anthropic
import httpx

_FILE = (pathlib.Path(__file__).resolve().parents[1] / "python"
         / "test_adapter_anthropic.py")
_spec = importlib.util.spec_from_file_location("same_tests", _FILE)
assert _spec is not None and _spec.loader is not None
_same = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_same)
globals().update({name: value for name, value in vars(_same).items()
                  if name.startswith("test_") or name == "server"})
# This major's sync stream is a cycle of its own and waits for the collector.
del globals()["test_a_stream_that_is_dropped_is_closed_at_once"]


def test_it_is_the_old_sdk() -> None:
    assert int(anthropic.__version__.split(".")[0]) == 0
    assert issubclass(anthropic.Timeout, httpx.Timeout)


def test_legacy_raw_responses(server: "_same.Server") -> None:  # type: ignore[name-defined]
    """Only this major answers with_raw_response by a class of its own."""
    rig = _same.Rig(server)
    answer = rig.client.messages.with_raw_response.create(**_same.ASK)
    assert type(answer).__name__ == "LegacyAPIResponse"
    server.script = [_same.stream()]
    events = rig.client.messages.with_raw_response.create(
        **_same.ASK, stream=True).parse()
    assert [event.type for event in events][-1] == "message_stop"
    assert rig.actions[-1] == "accept"
