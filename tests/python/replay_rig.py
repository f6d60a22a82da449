"""Ledgers for the tests of replay: the drill's, and a program's of its own."""

from __future__ import annotations

import heapq
import json
import pathlib
import random
import typing

import fivegates
from fivegates.drill.runs import run

Json = typing.Dict[str, typing.Any]

UNIX_MS = 1_796_083_200_000  # 2026-12-01
SHORT = {"phases": {"warm_s": 10, "fault_s": 130, "after_s": 30}}


def card(**over: object) -> Json:
    """The drill's routes, with contracts that are approved."""
    routes: Json = {}
    for name, model, provider, share in (
            ("primary", "large", "primary", 1), ("backup1", "equal", "backup1", 1),
            ("small1", "small", "backup1", 0.25)):
        routes[name] = {
            "provider": provider, "model": model, "account": provider,
            "price": {"input": 2.5 * share, "output": 10 * share},
            "provides": {"input": {"context_tokens": 1_100_000},
                         "output": {"max_tokens": 400_000}}}
    out: Json = {
        "version": 1, "routes": routes,
        "workflows": {"drill": {"routes": ["primary", "backup1"], "ladder": [
            {"step": "smaller_model", "route": "small1"},
            {"step": "preset", "text": "We can't answer right now."}]}},
        "contracts": [{
            "workflow": "drill", "route": route, "fingerprint": "auto",
            "evidence": {"cases": 100, "passed": 99, "score_ppm": 990_000,
                         "primary_score_ppm": 990_000,
                         "measured_at": "2026-11-01", "expires_at": "2100-01-01"},
        } for route in ("backup1", "small1")], **over}
    policy = fivegates.Policy.loads(json.dumps(out), auto_fingerprint=True, json=True)
    for one in out["contracts"]:
        one["fingerprint"] = policy.contract("drill", one["route"])["fingerprint"]
    return out


def policy_of(spec: Json) -> fivegates.Policy:
    return fivegates.Policy.loads(json.dumps(spec), json=True)


def drill(path: pathlib.Path, fault: str, spec: Json, **over: object) -> str:
    """The ledger of one run of the drill."""
    run({"faults": [fault], "strategies": ["fivegates"], "seeds": 1, "seed": 1,
         "card": spec, **SHORT, **over}, ledger=str(path))
    return str(path)


ANSWERED: "list[typing.Any]" = [None] * 12
FAULTS: "list[typing.Any]" = [
    {"phase": "response", "status": 500, "body": "{}"},
    {"phase": "response", "status": 429, "headers": {"retry-after": "1"},
     "body": '{"error": {"code": "rate_limit_exceeded"}}'},
    {"phase": "connect", "transport": {"lib": "httpx", "kind": "ConnectError"}},
    {"phase": "response", "status": 529, "body":
     '{"type": "error", "error": {"type": "overloaded_error"}}'},
    {"phase": "response", "status": 400, "body":
     '{"error": {"type": "invalid_request_error", "code": "invalid_value"}}'},
    {"phase": "read", "transport": {"lib": "httpx", "kind": "ReadTimeout"},
     "inner_attempts": 3},
    {"phase": "stream", "status": 200, "progress": {"visible": 0},
     "transport": {"lib": "httpx", "kind": "RemoteProtocolError"}},
    "silence", "leave", "empty", "tool"]


class Program:
    """Calls at once on one clock: agents with steps, tools, callers who leave,
    presets that are not there, and every kind of failure."""

    def __init__(self, path: pathlib.Path, seed: int = 1, calls: int = 300,
                 spec: "Json | None" = None) -> None:
        self.random = random.Random(seed)
        self.now = 1_000_000
        self.engine = fivegates.Engine(policy_of(spec or card()), seed=seed,
                                       clock=lambda: self.now)
        self.engine.clock(UNIX_MS)
        self.heap: "list[tuple[int, int, typing.Callable[[], object]]]" = []
        self.serial = 0
        self.lines: "list[str]" = []
        at = self.now
        for i in range(calls):
            at += self.random.randrange(1, 600)
            self.plan(at - self.now, lambda i=i: OneCall(self, i))  # type: ignore[misc]
        while self.heap:
            when, _, what = heapq.heappop(self.heap)
            self.now = max(self.now, when)
            what()
        path.write_text("\n".join(self.lines) + "\n", encoding="utf-8")

    def plan(self, wait_ms: int, what: "typing.Callable[[], object]") -> None:
        self.serial += 1
        heapq.heappush(self.heap, (self.now + wait_ms, self.serial, what))


class OneCall:
    def __init__(self, program: Program, index: int) -> None:
        self.program, self.index, self.steps, self.live = program, index, 0, 0
        self.streamed = program.random.random() < 0.8
        self.call = program.engine.begin(
            "drill", prompt_tokens=program.random.choice([100, 500, 2000]),
            max_output_tokens=256, stream=self.streamed, delivery="whole",
            tenant=f"planted-tenant-{index % 7}", unable=["hedge", "resume"],
            prior={"attempts": 1, "tokens": 100, "cost_nusd": 5000}
            if index % 50 == 0 else None)
        self.write("call")
        self.follow(self.call.decision)

    def write(self, word: typing.Any, decision: typing.Any = None) -> None:
        ids = ({"response_id": f"gen-{self.index}", "request_id": f"req_{self.live}"}
               if self.index % 3 == 0 else {})
        self.program.lines.append(self.call.ledger_line(word, decision, **ids))

    def end(self, decision: typing.Any) -> None:
        self.write("end", decision)
        self.call.end()

    def follow(self, decision: typing.Any) -> None:
        self.live = 0
        self.write("decision", decision)
        if decision.action == "accept" and self.index % 9 == 0 and self.steps < 2:
            self.steps += 1
            again = self.call.step(300, 100)
            self.write("call")
            self.follow(again)
        elif decision.action == "degrade" and decision.route is None \
                and self.index % 3 == 0:
            self.follow(self.call.unable("preset"))
        elif decision.action in ("accept", "queue", "fail_closed") or (
                decision.action == "degrade" and decision.route is None):
            self.end(decision)
        else:
            self.program.plan(decision.wait_ms, self.ask)

    def ask(self) -> None:
        permit = self.call.begin_attempt()
        if permit.action != "proceed":
            self.follow(permit)
            return
        self.write("decision", permit)
        self.send(permit)

    def send(self, permit: typing.Any) -> None:
        plan, number = self.program.plan, permit.attempt
        fault = self.program.random.choice(ANSWERED + FAULTS)
        took = self.program.random.randrange(100, 4000)
        self.live = number
        self.call.event("sent", attempt=number)
        if self.streamed and (fault in (None, "empty", "leave") or (
                isinstance(fault, dict) and fault["phase"] == "stream")):
            for part in (took // 2, took * 3 // 4):
                plan(part, lambda: self.news(number, "token"))
        if fault == "tool":
            plan(took // 2, lambda: self.news(number, "tool"))
        if fault != "silence":
            plan(took, lambda: self.done(number, fault))
        plan(permit.wake_ms, lambda: self.wake(number))

    def news(self, number: int, what: str) -> None:
        if self.live == number and what == "token":
            self.call.event("token", 5, attempt=number)
        elif self.live == number:
            self.call.tool("op-1", "started", attempt=number)

    def done(self, number: int, fault: typing.Any) -> None:
        if self.live != number:
            return
        if fault == "leave":
            self.live = 0
            decision = self.call.cancel()
            self.write("decision", decision)
            self.end(decision)
        elif isinstance(fault, dict):
            self.follow(self.call.failure(fault))
        else:
            self.follow(self.call.success(
                prompt_tokens=100, output_tokens=self.program.random.randrange(1, 256),
                finish_reason="stop", output="" if fault == "empty" else "planted-answer"))

    def wake(self, number: int) -> None:
        if self.live != number:
            return
        decision = self.call.deadline()
        if decision.action == "keep_waiting":
            self.program.plan(decision.wake_ms or decision.wait_ms,
                              lambda: self.wake(number))
        else:
            self.follow(decision)
