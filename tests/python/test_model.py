"""The engine agrees with the reference model of tests/model on random streams."""

from __future__ import annotations

import os
import pathlib
import sys

import pytest

pytest.importorskip("fivegates")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from model import __main__ as model  # noqa: E402
from model import cards, evidence  # noqa: E402
from model.engine_side import classify  # noqa: E402

SANITIZED = "FIVEGATES_SANITIZE" in os.environ
STREAMS = int(os.environ.get("FG_MODEL_STREAMS", "3000" if SANITIZED else "100000"))


@pytest.mark.parametrize("canned", evidence.CANNED, ids=lambda c: c.name)
def test_classifier_makes_of_the_canned_failures_what_the_model_assumes(canned):
    made = classify(canned.evidence)
    assert (made["owner"], made["class"]) == (canned.owner, canned.klass)
    assert bool(made["trips_breaker"]) == canned.trips
    assert bool(made["overload"]) == canned.overload
    assert made["retry_after_ms"] == canned.retry_after_ms
    if canned.owner in ("rate", "quota", "auth", "request"):
        assert made["scope"] == canned.scope


def test_engine_and_model_agree_on_random_streams():
    jobs = 1 if SANITIZED else os.cpu_count() or 1
    done, found, answers = model.compare_streams(1, STREAMS, jobs, limit=1, progress=False)
    assert not found, found[0][1]
    assert done >= STREAMS
    every = {"proceed", "retry", "fallback", "queue", "degrade", "fail_closed", "hold", "keep_waiting", "accept"}
    assert every <= set(answers), "the streams no longer reach every action"


def test_a_model_that_is_wrong_is_found(monkeypatch):
    """The comparison has teeth: another open time, another budget, and it complains."""
    real = cards.make

    def wrong(rng):
        card, spec = real(rng)
        spec.total += 1
        return card, spec

    monkeypatch.setattr("model.compare.make", wrong)
    _, found, _ = model.compare_streams(1, 200, 1, limit=1, progress=False)
    assert found
