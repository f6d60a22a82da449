"""What the provider received, billed, and finished after the client left."""

from __future__ import annotations

import collections
import dataclasses
import json
import os
import re
import time
import typing

from fivegates.provider.asked import Asked
from fivegates.provider.settings import SettingsError

__all__ = ["Effect", "Journal", "Record"]

Json = typing.Dict[str, typing.Any]

# Kept in memory for whoever asks; the file has all of them.
_KEPT = 100_000
# Headers that say who sends, and which sending of a request this is. No
# other header is kept: keys and cookies are no business of a journal.
_TELLING = re.compile(r"user-agent$|idempotency-key$|traceparent$"
                      r"|.*(retry|attempt|request-id|invocation-id).*"
                      r"|amz-sdk-request$|x-goog-api-client$")


@dataclasses.dataclass
class Record:
    """One request. Times are seconds since the journal began."""

    number: int
    at: float
    connection: int  # requests on one connection share it
    path: str
    headers: "dict[str, str]"
    api: str
    stream: bool
    model: str
    key: str
    prompt_tokens: int
    has_tools: bool
    results: "list[str]"
    fault: str = ""
    status: "int | None" = None  # None: no head was sent
    answered_at: "float | None" = None  # the head
    first_token_at: "float | None" = None
    billed_prompt: int = 0
    billed_output: int = 0
    sent_tokens: int = 0  # of output, to a client that was there
    whole: bool = False  # a complete answer went out to it
    cut: bool = False  # an answer was begun that no client could finish
    call: str = ""  # id of the tool call in the answer
    wait_s: "float | None" = None  # how long the answer said to wait
    left_at: "float | None" = None  # the client hung up before the end
    ended_at: "float | None" = None
    body: "Json | None" = None  # where the journal keeps bodies

    @property
    def billed(self) -> int:
        return self.billed_prompt + self.billed_output

    @property
    def delivered(self) -> int:
        """Tokens billed for an answer that arrived whole."""
        return self.billed if self.whole else 0

    @property
    def ran_on_s(self) -> float:
        """Seconds of work after the client had left."""
        if self.left_at is None or self.ended_at is None:
            return 0.0
        return max(0.0, self.ended_at - self.left_at)

    def to_dict(self) -> Json:
        out = dataclasses.asdict(self)
        if self.body is None:
            del out["body"]
        out["ran_on_s"] = self.ran_on_s
        return {key: round(value, 4) if isinstance(value, float) else value
                for key, value in out.items()}


@dataclasses.dataclass
class Effect:
    """Something a tool did: one request to the effects address."""

    at: float
    tool: str
    op: str  # what the tool itself calls it; "" where it does not say


class Journal:
    """All records, in memory and, where a path is given, in a file of JSON
    lines: {"event": "received" | "ended" | "effect", ...}. bodies: with what
    was asked, which nobody else's prompts should be."""

    def __init__(self, path: str = "", bodies: bool = False) -> None:
        self._bodies = bodies
        self._started = time.monotonic()
        self._count = 0
        self._file: "typing.TextIO | None" = None
        self.records: "collections.deque[Record]" = collections.deque(
            maxlen=_KEPT)
        self.effects: "collections.deque[Effect]" = collections.deque(
            maxlen=_KEPT)
        if path:
            try:
                self._file = open(path, "a", encoding="utf-8", buffering=1)
            except OSError as exc:
                raise SettingsError(f"journal {path}: {exc.strerror or exc}; "
                                    "name a file that can be written"
                                    ) from None

    def now(self) -> float:
        return time.monotonic() - self._started

    def _write(self, event: str, fields: Json) -> None:
        if self._file is not None:
            self._file.write(json.dumps({"event": event, **fields}) + os.linesep)

    def received(self, asked: Asked, path: str, headers: "dict[str, str]",
                 connection: int) -> Record:
        """A request has come."""
        self._count += 1
        record = Record(
            self._count, self.now(), connection, path,
            {name: value for name, value in headers.items()
             if _TELLING.match(name)}, asked.api, asked.stream, asked.model,
            asked.key, asked.prompt_tokens, bool(asked.body.get("tools")),
            list(asked.results))
        if self._bodies:
            record.body = asked.body
        self.records.append(record)
        self._write("received", {
            "number": record.number, "at": round(record.at, 4),
            "connection": connection, "path": path, "api": asked.api,
            "stream": asked.stream, "key": asked.key,
            "headers": record.headers})
        return record

    def ended(self, record: Record) -> None:
        """Nothing more is done for a request."""
        record.ended_at = self.now()
        self._write("ended", record.to_dict())

    def effect(self, tool: str, op: str) -> Effect:
        """A tool has acted."""
        effect = Effect(self.now(), tool, op)
        self.effects.append(effect)
        self._write("effect", {"at": round(effect.at, 4), "tool": tool,
                               "op": op})
        return effect

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
