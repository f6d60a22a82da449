"""What an end user may be told when a call is refused, and in which language
a preset answers."""

from __future__ import annotations

import json
import pickle
import re
import typing

import pytest

import fivegates
from fivegates import errors
from fivegates.testing import ProviderError

from .conftest import ROOT
from .test_runner import BAD, BUSY, Rig


@pytest.fixture
def rig(card: "dict[str, typing.Any]") -> Rig:
    return Rig(card)


def limited(attempt: fivegates.Attempt) -> None:
    raise ProviderError(429, {"retry-after": "900"}, json.dumps({"error": {
        "type": "rate_limit_error", "code": "rate_limit_exceeded"}}))


def cut(attempt: fivegates.Attempt) -> None:
    attempt.token(5)
    raise ConnectionResetError("cut")


def acted(attempt: fivegates.Attempt) -> None:
    attempt.tool("op-1", "started")
    raise ConnectionResetError("cut")


@pytest.mark.parametrize("script, status, may_retry", [
    (BAD, 400, False), (BUSY, 503, True), (limited, 429, True),
    (cut, 502, True), (acted, 409, False)])
def test_words_for_the_user(rig: Rig, script: typing.Any, status: int,
                            may_retry: bool) -> None:
    with pytest.raises(fivegates.Refused) as caught:
        rig.run(rig.fake(script), "bare")
    refused = caught.value
    hint = refused.decision.http_hint
    assert hint is not None and hint["status"] == status
    assert refused.user_text == errors._USER_TEXTS[status]
    assert refused.user_may_retry is may_retry
    # The same in another process, where the decision is facts alone.
    other = pickle.loads(pickle.dumps(refused))
    assert (other.user_text, other.user_may_retry) == (
        refused.user_text, may_retry)


def test_a_queued_call(rig: Rig) -> None:
    with pytest.raises(fivegates.Queued) as caught:
        rig.run(rig.fake(BUSY), "batch", unable="wait")
    assert caught.value.user_text == (
        "Your request is waiting and will be answered later.")
    assert caught.value.user_may_retry is False


def test_every_status_has_words() -> None:
    """Those the core can hint at; and the words name nothing of ours."""
    source = "".join(path.read_text(encoding="utf-8")
                     for path in (ROOT / "core/src").glob("*.c"))
    statuses = {int(one) for line in re.findall(r"hint_status = ([^;]*);", source)
                for one in re.findall(r"\b[45]\d\d\b", line)}
    assert statuses == set(errors._USER_TEXTS)
    internal = {*fivegates.names("owner"), *fivegates.names("gate"),
                *fivegates.names("action"), "provider", "route", "model",
                "breaker", "budget"} - {"none", "unknown", "request"}
    for text in errors._USER_TEXTS.values():
        assert not internal & set(re.findall(r"\w+", text.lower())), text


@pytest.mark.parametrize("language, text", [
    ("de", "Leider."), ("de-AT", "Leider."), ("en", "Sorry."),
    ("xx", "Sorry."), (None, "Sorry.")])
@pytest.mark.parametrize("loop", ["run", "arun"])
def test_a_preset_without_a_hook(rig: Rig, loop: str, language: "str | None",
                                 text: str) -> None:
    send = rig.fake(BUSY)
    out = getattr(rig, loop)(send if loop == "run" else send.asend,
                             preset=True, language=language, outcome=True)
    assert out.value == text
    assert out.label["requested"] == "main" and out.label["served"] is None
    with pytest.raises(fivegates.Refused):  # only where it was asked for
        rig.run(rig.fake(BUSY), preset=False, language=language)


def test_a_stand_ins_answer_is_labelled(rig: Rig) -> None:
    out = rig.run(rig.fake(BUSY, BUSY, "spare"), outcome=True)
    assert out.value == "spare"
    assert out.label == out.decision.label == {
        "requested": "main", "served": "backup", "why": out.label["why"]}
