"""Reads ledgers into attempts.

Two forms of a line: the core's (`line`: call, decision, end), and the plainer
log of attempts any client can write (`ev`: attempt.start, attempt.end). A
line that was torn by a crash is skipped and told of; whole lines that belong
to no ledger are refused.
"""

from __future__ import annotations

import dataclasses
import json
import typing
from operator import index

from fivegates.reconcile.names import model_of, provider_of
from fivegates.reconcile.rows import ReconcileError, count, instant

__all__ = ["LedgerFacts", "read_ledgers"]

Line = typing.Dict[str, typing.Any]
Row = typing.Tuple[object, ...]
_loads: "typing.Callable[[bytes], typing.Any]"
try:  # several times as fast
    from orjson import loads as _loads
except ImportError:
    _loads = json.loads

_LINES = ("call", "decision", "end")
_EVENTS = ("attempt.start", "attempt.end")
_TOLD = 20  # places of torn lines named in the report


@dataclasses.dataclass
class LedgerFacts:
    """What was seen of the ledgers beside their attempts."""

    files: "list[str]"
    lines: int = 0
    torn: int = 0
    torn_places: "list[str]" = dataclasses.field(default_factory=list)
    incomplete: int = 0  # attempts whose permit or end line is not there
    policies: "dict[str, int]" = dataclasses.field(default_factory=dict)
    # Models as they are written, by provider and short name.
    spelled: "dict[tuple[str, str], str]" = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(slots=True)
class _Live:
    """An attempt that runs."""

    n: int
    step: int
    provider: str
    model: str
    route: "str | None"
    t0: int
    tokens: int       # counted of the call before this attempt's hold
    hold: int         # tokens held for it
    body: str
    max_out: "int | None"
    key: "str | None" = None


@dataclasses.dataclass(slots=True)
class _Call:
    op: int
    workflow: "str | None"
    estimate: "int | None" = None
    max_out: "int | None" = None
    tokens: int = 0
    live: "_Live | None" = None


Progress = typing.Callable[[int], object]


def read_ledgers(paths: "typing.Sequence[str]", facts: LedgerFacts,
                 progress: Progress) -> "typing.Iterator[Row]":
    """Attempts of ledgers in the order of store.ATTEMPT_COLUMNS.

    A call may go on in the next file, so rotated files are given in order.
    progress(bytes) hears how much was read.
    """
    reader = _Reader(facts)
    for path in paths:
        yield from reader.file(path, progress)
    yield from reader.rest()


class _Reader:
    def __init__(self, facts: LedgerFacts) -> None:
        self._facts = facts
        self._calls: "dict[str, _Call]" = {}
        self._starts: "dict[tuple[str, int], Line]" = {}
        self._ops: "dict[str, int]" = {}
        self._last = 0
        self._path, self._number = "", 0  # of the line that is read

    def file(self, path: str, progress: Progress) -> "typing.Iterator[Row]":
        """The attempts that end in this file."""
        facts, line_of, take = self._facts, self._line, self._take
        good = False
        read = 0
        self._path = path
        try:
            with open(path, "rb") as file:
                for number, raw in enumerate(file, 1):
                    read += len(raw)
                    if number % 4096 == 0:
                        progress(read)
                        read = 0
                    if raw.isspace():
                        continue
                    facts.lines += 1
                    self._number = number
                    line = line_of(raw)
                    if line is None:
                        continue
                    good = True
                    if line is not _SKIPPED:
                        row = take(line)
                        if row is not None:
                            yield row
        except OSError as exc:
            raise ReconcileError(f"{path}: {exc.strerror or exc}; name a ledger "
                                 "that can be read") from None
        progress(read)
        if not good:
            raise ReconcileError(f"{path}:1: no line of it is a ledger's; give a "
                                 "file written with engine.run(ledger=...)")

    def _place(self) -> str:
        return f"{self._path}:{self._number}"

    def _line(self, raw: bytes) -> "Line | None":
        """A parsed line; None when torn."""
        text = raw
        # The core's lines are long; what comes after these words tells people
        # and hosts, not the bill.
        if raw.endswith(b"}\n"):
            cut = -1
            if raw.startswith(b'{"line":"decision"'):
                if b'"action":"proceed"' in raw and b'"held_usd"' not in raw:
                    return _SKIPPED  # the first decision: asked, not yet sent
                cut = raw.find(b',"timeouts":')
                if raw.find(b'"request_changes":{},', cut) < 0:
                    cut = -1
            elif raw.startswith(b'{"line":"call"'):
                cut = raw.find(b',"request_bytes":')
            elif raw.startswith(b'{"line":"end"'):
                cut = raw.find(b',"result":')
            elif raw.startswith(b'{"line":"event"'):
                return _SKIPPED  # what came of an attempt: no bill tells of it
            if cut > 0:
                text = raw[:cut] + b"}"
        try:
            line = _loads(text)
        except (ValueError, RecursionError):
            self._facts.torn += 1
            if len(self._facts.torn_places) < _TOLD:
                self._facts.torn_places.append(self._place())
            return None
        if not isinstance(line, dict) or (
                line.get("line") not in _LINES and line.get("ev") not in _EVENTS):
            raise ReconcileError(
                f"{self._place()}: not a ledger's line; give ledgers first and "
                "exports after --bill")
        if line.get("v") != 1:
            raise ReconcileError(
                f"{self._place()}: a ledger of version {line.get('v')}, this "
                "program reads version 1; use the program that wrote it, or newer")
        return line

    def _take(self, line: Line) -> "Row | None":
        """What a line says; the attempt that it ends."""
        try:
            if "ev" in line:
                return self._log_line(line)
            if line["line"] == "decision":
                return self._decision(line)
            if line["line"] == "call":
                self._begin(line)
                return None
            call = self._calls.pop(line["call"], None)
            if call is not None and call.live is not None:
                return self._lost(line["call"], call)
            return None
        except KeyError as exc:
            raise ReconcileError(
                f"{self._place()}: a ledger's line without its member {exc}; the line "
                "was edited: give the ledger as it was written") from None
        except (TypeError, AttributeError, ValueError, OverflowError) as exc:
            raise ReconcileError(
                f"{self._place()}: a ledger's line with a member of the wrong type ({exc}); the "
                "line was edited: give the ledger as it was written") from None

    def _begin(self, line: Line) -> None:
        call = self._calls.get(line["call"])
        if call is None:
            self._last += 1
            call = self._calls[line["call"]] = _Call(self._last, line["workflow"])
        call.estimate = line["prompt_tokens"]
        call.max_out = line["gen_ai.request.max_tokens"]
        policy = line["policy"]
        self._facts.policies[policy] = self._facts.policies.get(policy, 0) + 1

    def _decision(self, line: Line) -> "Row | None":
        name = line["call"]
        call = self._calls.get(name)
        if call is None:
            self._last += 1
            call = self._calls[name] = _Call(self._last, line["workflow"])
        live = call.live
        if line["action"] == "proceed" and "held_usd" in line:
            if live is not None and (live.n, live.step) == (line["attempt"], line["step"]):
                return None  # told twice
            lost = self._lost(name, call) if live is not None else None
            call.live = self._permit(line, call)
            return lost
        if "held_usd" in line:
            return None  # it goes on
        row = None
        if live is None:
            if line["action"] == "accept":
                self._facts.incomplete += 1  # its permit is not there
        elif line["action"] == "accept" and line["attempt"] != live.n:
            self._facts.incomplete += 1  # another one's, whose permit is not there
            row = self._lost(name, call)
        else:
            row = self._ended(name, call, live, line)
            call.live = None
        call.tokens = line["tokens"]
        return row

    def _permit(self, line: Line, call: _Call) -> _Live:
        before, call.tokens = call.tokens, index(line["tokens"])
        return _Live(
            index(line["attempt"]), index(line["step"]),
            *self._model(line["gen_ai.provider.name"], line["gen_ai.request.model"]),
            line["route"], _time(line), before, call.tokens - before, _body(line),
            (line.get("request_changes") or {}).get("max_tokens") or call.max_out,
            line.get("api_key_id"))

    def _ended(self, name: str, call: _Call, live: _Live, line: Line) -> Row:
        delivered = line["action"] == "accept"
        billing = line["billing"]
        if billing not in ("none", "possible", "likely", "certain"):
            raise ReconcileError(f"{self._place()}: billing is {billing!r}, a word of no core; "
                                 "give the ledger as it was written")
        settled = line["tokens"] - live.tokens
        known = line.get("gen_ai.usage.input_tokens")
        out = line.get("gen_ai.usage.output_tokens")
        total: "int | None" = None
        if known is not None and out is not None:
            total = known + out
        elif settled != live.hold and settled > 0:
            total = settled  # the hold became what was used
        state = ("delivered" if delivered else
                 "none" if billing == "none" else
                 "billed" if billing == "certain" else "unknown")
        return (call.op, name, call.workflow, live.step, live.n, live.provider,
                live.model, live.key, live.route, live.t0, max(_time(line), live.t0), state,
                None if delivered else line["kind"],
                line.get("gen_ai.response.id"), line.get("server_request_id"),
                known, out, total,
                line.get("gen_ai.usage.cache_read.input_tokens"),
                line.get("gen_ai.usage.cache_creation.input_tokens"),
                call.estimate, live.max_out, live.body)

    def _lost(self, name: str, call: _Call) -> Row:
        """An attempt without an end: a crash, or lines that are not there."""
        live = call.live
        assert live is not None
        call.live = None
        self._facts.incomplete += 1
        return (call.op, name, call.workflow, live.step, live.n, live.provider,
                live.model, live.key, live.route, live.t0, live.t0, "unknown",
                "lost", None, None, None, None, None, None, None,
                call.estimate, live.max_out, live.body)

    def _log_line(self, line: Line) -> "Row | None":
        place = self._place()
        name, n = line["op"], index(line["attempt"])
        at = instant(line["ts"], place, "ts")
        if line["ev"] == "attempt.start":
            if name not in self._ops:
                self._last += 1
                self._ops[name] = self._last
            self._starts[(name, n)] = {
                **line, "at": at, "names": self._model(line["provider"], line["model"])}
            return None
        start = self._starts.pop((name, n), None)
        if start is None:
            self._facts.incomplete += 1
            return None
        used = line.get("usage") or {}
        status, commit = line.get("status"), line["commit"]
        if commit not in ("none", "unknown", "committed") or not (
                status is None or isinstance(status, int)):
            raise ReconcileError(
                f"{place}: commit is {commit!r} and status {status!r}; commit is "
                "none, unknown or committed, status a number or null")
        delivered = (commit == "committed" and status == 200
                     and not line.get("error_type"))
        counts = [count(used.get(key), place, key) for key in (
            "input_total", "output", "cache_read", "cache_write")]
        return self._logged(
            start, at,
            "delivered" if delivered else "none" if commit == "none" else "unknown",
            line.get("error_type"), line.get("response_id"),
            line.get("provider_request_id"), counts)

    def _logged(self, start: Line, at: int, state: str, kind: "str | None",
                rid: "str | None", rid2: "str | None",
                counts: "list[int | None]") -> Row:
        known, out, read, wrote = counts
        return (self._ops[start["op"]], start["op"], None, 0, start["attempt"],
                *start["names"], start.get("api_key_id"), None, start["at"], max(at, start["at"]),
                state, kind, rid, rid2, known, out,
                known + out if known is not None and out is not None else None,
                read, wrote, start.get("input_est"), start.get("max_output"),
                start.get("prompt_hash"))

    def _model(self, provider: str, written: str) -> "tuple[str, str]":
        name = provider_of(provider), model_of(written)
        self._facts.spelled.setdefault(name, written)
        return name

    def rest(self) -> "typing.Iterator[Row]":
        """Attempts that never ended."""
        for name, call in self._calls.items():
            if call.live is not None:
                yield self._lost(name, call)
        for start in self._starts.values():
            self._facts.incomplete += 1
            yield self._logged(start, start["at"], "unknown", "lost", None,
                               None, [None] * 4)


_SKIPPED: Line = {}


def _time(line: Line) -> int:
    """Wall time in ms; without one, the monotonic time the line has instead."""
    return int(line["unix_ms"] if line["unix_ms"] is not None else line["now_ms"])


def _body(line: Line) -> str:
    """What makes two attempts of a call send the same prompt: the step, and
    the changes the engine asked for."""
    changes = line.get("request_changes")
    if not changes:
        return str(line["step"])
    changes = dict(changes)
    for same in ("stream", "max_tokens"):  # these leave the prompt as it was
        changes.pop(same, None)
    return f"{line['step']}{json.dumps(changes, sort_keys=True)}" if changes else str(line["step"])
