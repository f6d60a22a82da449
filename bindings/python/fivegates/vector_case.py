"""Replays one case of a vector file: engines, calls, and what is expected."""

from __future__ import annotations

import json
import typing

from fivegates._core import Call, Engine, Policy, Region, classify
from fivegates.errors import FivegatesError, PolicyError
from fivegates.vector_json import (
    NOTHING,
    Fault,
    Json,
    compact,
    find,
    matches,
    only,
    whole,
)

if typing.TYPE_CHECKING:
    from fivegates.vectors import Report

__all__ = ["Case"]

_BASE_MS = 1_000_000_000
_PROCS = 64
_FAULTS_SHOWN = 8
_CALL_ID_MAX = 40
_OPERATIONS = 1_000_000  # of one case, repeats counted
_CALL_OPS = ("begin", "begin_attempt", "event", "failure", "success",
             "deadline", "step", "cancel", "unable", "resolved", "drop")
_EVIDENCE = ("provider api phase status headers body transport elapsed_ms "
             "progress inner_attempts origin client_gone timeout whole_body "
             "unix_ms attempt")
_ROUTE_VIEW = ("generation opened_count in_flight retries limit z_milli run "
               "window_ok window_failed first_token_ms stall_ms samples "
               "rate_milli").split()


class _Made(typing.NamedTuple):
    engine: Engine
    slot: int


class _Begun:
    """A call of a case."""

    def __init__(self, made: "_Made | None") -> None:
        self.made = made
        self.call: "Call | None" = None
        self.killed = False
        self.route: "str | None" = None


class _Step:
    """One op being run: its place, time and input; then its answer."""

    def __init__(self, where: str, op: str, proc: int, at_ms: int, name: str,
                 given: typing.Any) -> None:
        self.where = where
        self.op = op
        self.proc = proc
        self.at_ms = at_ms
        self.now_ms = _BASE_MS + at_ms
        self.name = name
        self.given = given
        self.out = ""
        self.extra: Json = {}
        self.result = "ok"


class Case:
    """One case of a file: run() replays it and counts it in the report."""

    def __init__(self, file: str, spec: Json, report: "Report") -> None:
        self.file = file
        self.spec = spec
        self.report = report
        name = spec.get("name")
        self.name = name if isinstance(name, str) else "?"
        self.faults = 0
        self.operations = 0
        self.now_ms = _BASE_MS
        self.made: "list[_Made]" = []
        self.gone: "set[int]" = set()  # indexes of made
        self.procs: "dict[int, _Made]" = {}
        self.calls: "dict[str, _Begun]" = {}
        self.policy: typing.Any = None  # the newest

    # -- reporting

    def fail(self, where: str, op: str, text: str) -> None:
        if not self.faults:
            self.report.say(f'{self.file}: "{self.name}"')
        self.faults += 1
        if self.faults <= _FAULTS_SHOWN:
            self.report.say(f"  step {where} {op}: {text}")

    def dump(self, where: str, text: str) -> None:
        self.report.dump(f"{self.name}\t{where}\t{text}")

    # -- running

    def run(self) -> None:
        try:
            self._run()
        except Fault as fault:
            self.fail("-", "case", str(fault))
        for begun in self.calls.values():
            if begun.call is not None:
                begun.call.forget()
        if self.faults > _FAULTS_SHOWN:
            self.report.say(f"  … {self.faults - _FAULTS_SHOWN} more")
        if self.faults:
            self.report.failed += 1
        else:
            self.report.passed += 1

    def _run(self) -> None:
        spec = only(self.spec, "a case", "name why needs policy seed steps error")
        want = spec.get("error")
        only(want, "error", "code path line column")
        self.seed = whole(spec, "seed", 0, 1 << 53)
        card = spec.get("policy")
        if not isinstance(card, (dict, str)):
            raise Fault("no policy")
        if (want is None) == ("steps" not in spec) or (
                want is None and not isinstance(spec["steps"], list)):
            raise Fault("a case has either steps or error")
        try:
            self.policy = self._load(card)
        except PolicyError as error:
            if want is None:
                raise Fault(f"the card does not load: {error.code} at "
                            f"{error.path} line {error.line}: {error.message}"
                            ) from None
            self._load_error(want, error)
            return
        if want is not None:
            self._load_error(want, None)
            return
        self.region = Region(now_ms=_BASE_MS)
        self._steps(spec["steps"], "", 0, 0)

    def _load(self, card: "Json | str") -> Policy:
        text = card if isinstance(card, str) else compact(card)
        return Policy.loads(text, auto_fingerprint=True, json=True)

    def _load_error(self, want: Json, error: "PolicyError | None") -> None:
        got: Json = {"code": error.code if error else "none",
                     "path": error.path if error else "",
                     "line": error.line if error else 0,
                     "column": error.column if error else 0}
        self.dump("error", compact({"code": got["code"], "path": got["path"]}))
        if not all(matches(value, got[key]) for key, value in want.items()):
            self.fail("-", "load", f"expected {compact(want)}, got "
                      f"{got['code']} at \"{got['path']}\" line {got['line']} "
                      f"column {got['column']}: "
                      f"{error.message if error else 'a card that loads'}")

    def _steps(self, steps: typing.Any, prefix: str, base_ms: int,
               round_: int) -> None:
        for index, spec in enumerate(steps):
            where = f"{prefix}{index}"
            op = spec.get("op") if isinstance(spec, dict) else None
            op = op if isinstance(op, str) else "?"
            try:
                self._step(spec, where, op, base_ms, bool(prefix), round_)
            except Fault as fault:
                self.fail(where, op, str(fault))
            except (TypeError, ValueError, KeyError) as fault:
                self.fail(where, op, str(fault))

    def _step(self, spec: Json, where: str, op: str, base_ms: int,
              inner: bool, round_: int) -> None:
        self.operations += 1
        if self.operations > _OPERATIONS:  # repeats inside repeats
            if self.operations == _OPERATIONS + 1:
                self.fail(where, "repeat", "a case may have a million "
                          "operations, repeats counted")
            return
        at = "after_ms" if inner else "at_ms"
        only(spec, "a step", f"{at} op call in expect proc why needs")
        if at not in spec and not inner:
            raise Fault("no at_ms")
        proc = whole(spec, "proc", 1, _PROCS) if "proc" in spec else 1
        at_ms = base_ms + whole(spec, at, 0, 100_000_000_000)
        name = spec.get("call") or ""
        if not isinstance(name, str):
            raise Fault("call is not text")
        name = name.replace("{i}", str(round_), 1)
        if len(name.encode()) > _CALL_ID_MAX:
            raise Fault(f"the call's name is longer than {_CALL_ID_MAX} bytes")
        step = _Step(where, op, proc, at_ms, name, spec.get("in"))
        self.now_ms = step.now_ms
        if op == "repeat":
            self._repeat(step)
            return
        try:
            if op in _CALL_OPS:
                self._call_op(step)
            else:
                self._engine_op(step)
        except FivegatesError as error:
            step.result = error.result
        self.dump(where, step.out if step.out and step.result == "ok"
                  else compact({"result": step.result}))
        self._expect(step, spec.get("expect"))

    def _repeat(self, step: _Step) -> None:
        given = only(step.given, "repeat", "times every_ms steps")
        times = whole(given, "times", 0, 100_000)
        every_ms = whole(given, "every_ms", 0, (1 << 32) - 1)
        if not isinstance(given.get("steps"), list):
            raise Fault("repeat needs times up to 100,000 and a list of steps")
        for i in range(times):
            if self.operations > _OPERATIONS:
                break
            self._steps(given["steps"], f"{step.where}.{i}.",
                        step.at_ms + i * every_ms, i)

    def _expect(self, step: _Step, expect: typing.Any) -> None:
        answer: Json = json.loads(step.out) if step.out else {}
        expect = {} if expect is None else expect
        if not isinstance(expect, dict):
            self.fail(step.where, step.op, "expect is not an object")
            expect = {}
        if step.result != "ok" and "result" not in expect:
            self.fail(step.where, step.op,
                      f"the library answers error {step.result}")
        answer["result"] = step.result
        for key, want in expect.items():
            got = find(answer, key)
            if got is NOTHING:
                got = find(step.extra, key)
            if got is NOTHING or not matches(want, got):
                shown = "(no such field)" if got is NOTHING else compact(got)
                self.fail(step.where, step.op,
                          f"{key}: expected {compact(want)}, got {shown}")

    # -- engines

    def _make(self, slot: int, now_ms: int) -> _Made:
        self.now_ms = now_ms
        engine = Engine(self.policy, region=self.region, seed=self.seed,
                        clock=lambda: self.now_ms, slot=slot)
        made = _Made(engine, slot)
        self.made.append(made)
        self.procs[slot] = made
        return made

    def _engine(self, step: _Step) -> _Made:
        return self.procs.get(step.proc - 1) or self._make(step.proc - 1,
                                                          step.now_ms)

    def _engine_op(self, step: _Step) -> None:
        op, now = step.op, step.now_ms
        if op in ("kill", "reap"):
            self._end_process(step)
            return
        if op == "reload":
            given = only(step.given, "reload", "policy")
            try:
                self.policy = self._load(given.get("policy", ""))
            except PolicyError as error:
                raise Fault(f"the new card does not load: {error}") from None
            self._make(step.proc - 1, now)
            return
        engine = self._engine(step).engine
        if op == "route":
            name = str(only(step.given, op, "route").get("route"))
            step.out = compact(_route_view(engine.route(name, now_ms=now),
                                            step.at_ms))
        elif op == "workflow":
            name = str(only(step.given, op, "workflow").get("workflow"))
            step.out = compact(engine.workflow(name, now_ms=now))
        elif op == "tick":
            only(step.given, op, "")
            step.out = compact({"next_ms": engine.tick(now)})
        elif op == "classify":
            given = dict(only(step.given, "evidence", _EVIDENCE))
            given.pop("attempt", None)
            step.out = compact(classify(given, engine.policy).to_dict())
        elif op == "restart":
            only(step.given, op, "")
            self.region._restart(now)
            for index, made in enumerate(self.made):
                if index not in self.gone:
                    made.engine._renew(now)
        elif op == "clock":
            given = only(step.given, op, "unix_ms")
            engine.clock(whole(given, "unix_ms", 0, 1 << 53), now_ms=now)
        else:
            raise Fault("unknown op")

    def _end_process(self, step: _Step) -> None:
        given = only(step.given, step.op, "proc")
        proc = given.get("proc", 0)
        if not isinstance(proc, int) or not 1 <= proc <= _PROCS:
            raise Fault(f"proc is not 1 to {_PROCS}")
        if step.op == "reap":
            self.region.reap(proc - 1, now_ms=step.now_ms)
            return
        for begun in self.calls.values():
            if begun.made is not None and begun.made.slot == proc - 1:
                begun.killed = True
                if begun.call is not None:
                    begun.call.forget()
        for index, made in enumerate(self.made):
            if made.slot == proc - 1:
                self.gone.add(index)
        self.procs.pop(proc - 1, None)

    # -- calls

    def _begin(self, step: _Step) -> None:
        before = self.calls.get(step.name)
        if before is not None and before.call is not None:
            before.call.forget()
        begun = self.calls[step.name] = _Begun(None)
        facts = dict(only(
            step.given, "begin",
            "workflow prompt_tokens max_output_tokens request_bytes stream "
            "delivery features tools tool_choice data_class region tenant "
            "affinity account server_state unable max_wait_ms prior language"))
        workflow = facts.pop("workflow", "")
        begun.made = self._engine(step)
        begun.call = begun.made.engine.begin(
            workflow, call_id=step.name, now_ms=step.now_ms, **facts)
        self._decided(step, begun, begun.call.decision)

    def _decided(self, step: _Step, begun: _Begun, decision: typing.Any) -> None:
        step.out = decision.json()
        begun.route = decision.route

    def _call_op(self, step: _Step) -> None:
        if not step.name:
            raise Fault("no call is named")
        if step.op == "begin":
            self._begin(step)
            return
        begun = self.calls.get(step.name)
        if begun is None or begun.killed or begun.made is None:
            raise Fault(f"call {step.name} was never begun, or its process is "
                        "gone")
        call = begun.call
        if call is None:  # its begin was refused by the library
            step.result = "state"
            return
        op, now = step.op, step.now_ms
        given = dict(step.given) if isinstance(step.given, dict) else {}
        if op == "event":
            self._event(call, step)
        elif op == "drop":
            only(step.given, op, "")
            call.end()
        elif op == "failure":
            only(step.given, "evidence", _EVIDENCE)
            route, engine = begun.route, begun.made.engine
            self._decided(step, begun, call.failure(given, now_ms=now))
            if route is not None:
                info = engine.policy.route(route)
                for key in ("provider", "api"):
                    given[key] = given.get(key) or info[key]
            given.pop("attempt", None)
            step.extra = classify(given, engine.policy).to_dict()
        else:
            self._decided(step, begun, self._plain(call, step, given))

    def _plain(self, call: typing.Any, step: _Step, given: Json) -> typing.Any:
        op, now = step.op, step.now_ms
        if op == "success":
            only(step.given, op, "prompt_tokens output_tokens cached_tokens "
                  "cost_usd finish_reason output visible tool_calls attempt final")
            return call.success(now_ms=now, **given)
        if op == "step":
            only(step.given, op, "prompt_tokens max_output_tokens")
            return call.step(now_ms=now, **given)
        if op == "unable":
            only(step.given, op, "what")
            return call.unable(given.get("what"), now_ms=now)
        if op == "resolved":
            only(step.given, op, "op_id effect")
            return call.resolved(given.get("op_id"), given.get("effect"),
                                 now_ms=now)
        only(step.given, op, "")
        if op == "begin_attempt":
            return call.begin_attempt(now)
        return call.deadline(now) if op == "deadline" else call.cancel(now)

    def _event(self, call: typing.Any, step: _Step) -> None:
        given = dict(only(step.given, "an event",
                           "attempt kind op_id state idempotent prompt_tokens "
                           "cached_tokens output_tokens cost_usd final count "
                           "bytes reason"))
        kind, now = given.pop("kind", None), step.now_ms
        attempt = given.pop("attempt", 0)
        if not isinstance(kind, str):
            raise Fault("an event has no kind")
        if kind == "tool":
            only(given, "a tool event", "op_id state idempotent")
            call.tool(given.get("op_id"), given.get("state"),
                      given.get("idempotent", False), attempt=attempt,
                      now_ms=now)
            return
        if kind == "usage":
            only(given, "a usage event", "prompt_tokens cached_tokens "
                  "output_tokens cost_usd final")
            call.usage(attempt=attempt, now_ms=now, **given)
            return
        words = {"token": "count", "tool_args": "bytes", "terminal": "reason"}
        only(given, "an event", words.get(kind, ""))
        value = given.get(words.get(kind, ""), None)
        call.event(kind, value, attempt=attempt, now_ms=now)


def _route_view(view: Json, at_ms: int) -> Json:
    """Engine.route() in the vectors' form: moments in the file's time."""
    open_for = view["open_for_ms"]
    out: Json = {"breaker": view["breaker"], "health": view["health"],
                 "until_ms": (None if view["breaker"] == "closed"
                              else at_ms + open_for),
                 "open_for_ms": open_for}
    out.update((key, view[key]) for key in _ROUTE_VIEW)
    later = view["not_before_ms"]
    out["not_before_ms"] = at_ms + later if later else None
    out["bucket"] = view["balance_milli"]
    out["latch"] = view["latch"]
    out["latch_until_ms"] = (None if view["latch"] == "none"
                             else at_ms + view["latch_for_ms"])
    for key in ("attempts", "successes", "failures", "tokens"):
        out[key] = view[key]
    return out
