"""fivegates: what to do after a call to a large model fails.

    engine = fivegates.Engine(fivegates.Policy.load("card.yaml"))
    answer = engine.run("customer-support-answer", send, prompt_tokens=900)

send(attempt) makes one request; the engine decides whether there is another.
"""

from fivegates._core import (
    SAW_BYTE,
    SAW_ERROR,
    SAW_LIFECYCLE,
    SAW_MALFORMED,
    SAW_REASONING,
    SAW_TERMINAL,
    SAW_TOKEN,
    SAW_TOOL_ARGS,
    SAW_USAGE,
    Call,
    Decision,
    Engine,
    Failure,
    Policy,
    Region,
    SseScanner,
    classify,
    decide,
    gate_of,
    names,
)
from fivegates._core import VERSION as __version__
from fivegates.attempt import Attempt
from fivegates.errors import (
    ArgumentError,
    FivegatesError,
    PolicyError,
    Queued,
    Refused,
    RegionError,
    StateError,
    decision_of,
)
from fivegates.evidence import evidence_of
from fivegates.runner import Outcome

__all__ = [
    "SAW_BYTE", "SAW_ERROR", "SAW_LIFECYCLE", "SAW_MALFORMED",
    "SAW_REASONING", "SAW_TERMINAL", "SAW_TOKEN", "SAW_TOOL_ARGS", "SAW_USAGE",
    "ArgumentError", "Attempt", "Call", "Decision", "Engine", "Failure",
    "FivegatesError", "Outcome", "Policy", "PolicyError", "Queued", "Refused",
    "Region", "RegionError", "SseScanner", "StateError", "__version__",
    "classify", "decide", "decision_of", "evidence_of", "gate_of", "names",
]
