"""The ledger as records of the standard library's logging."""

from __future__ import annotations

import json
import logging
import typing

from fivegates.ledger import Sink
from fivegates.sinks._runs import is_permit

__all__ = ["LoggingLedger"]

_LEVELS = {
    "proceed": logging.DEBUG, "keep_waiting": logging.DEBUG,
    "accept": logging.DEBUG, "hold": logging.INFO, "retry": logging.WARNING,
    "fallback": logging.WARNING, "hedge": logging.WARNING,
    "degrade": logging.WARNING, "queue": logging.WARNING,
    "fail_closed": logging.ERROR,
}


class LoggingLedger(Sink):
    """Logs each line: what happened as the message, all fields as extras.

    Levels: DEBUG for what goes well (proceed, accept, a call's facts), INFO
    for a call's end, for hold, and where the caller left; WARNING for retry,
    fallback, degrade and queue; ERROR for fail_closed and where a decision
    has an alert (a latched key, an empty account, an opened breaker).

    A record has each field as fivegates_NAME, dots as underscores:
    fivegates_call, fivegates_action, fivegates_gen_ai_request_model, ...
    """

    def __init__(self, logger: "logging.Logger | str" = "fivegates.calls",
                 *, strict: bool = False) -> None:
        super().__init__(strict)
        self.logger = (logging.getLogger(logger) if isinstance(logger, str)
                       else logger)

    def __str__(self) -> str:
        return f"the logger {self.logger.name}"

    def _carry(self, line: str) -> None:
        facts = json.loads(line)
        level = _level(facts)
        if self.logger.isEnabledFor(level):
            self.logger.log(level, "%s", _message(facts), extra={
                "fivegates_" + name.replace(".", "_"): value
                for name, value in facts.items()})


def _level(facts: "dict[str, typing.Any]") -> int:
    if facts["line"] == "call":
        return logging.DEBUG
    if facts["line"] == "end" or facts["reason"] == "client_gone":
        return logging.INFO
    if facts["alert"]:
        return logging.ERROR
    return _LEVELS.get(facts["action"], logging.WARNING)


def _message(facts: "dict[str, typing.Any]") -> str:
    who = f"{facts['workflow']} {facts['call']}"
    if facts["line"] == "call":
        return f"{who}: begins"
    if facts["line"] == "end":
        served = f" by {facts['served']}" if facts["served"] else ""
        return (f"{who}: {facts['result'] or facts['action']}{served}, "
                f"{facts['requests']} requests, {facts['elapsed_ms']} ms")
    if is_permit(facts):
        return f"{who}: sends to {facts['route']}, attempt {facts['attempt']}"
    to = facts["route"] or facts["ladder_step"]
    where = f" {to}" if to else ""
    wait = f" in {facts['wait_ms']} ms" if facts["wait_ms"] else ""
    kind = f" ({facts['kind']})" if facts["kind"] != "unknown" else ""
    alert = f"; alert: {', '.join(facts['alert'])}" if facts["alert"] else ""
    return f"{who}: {facts['action']}{where}{wait}: {facts['reason']}{kind}{alert}"
