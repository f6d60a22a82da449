"""Random streams of operations: what a host could do next, and when.

The next operation is chosen from the model's view of the calls, so most are legal; some are not. What was chosen is recorded with its
time, so that a stream can be replayed and shrunk without the generator.
"""

from __future__ import annotations

from random import Random
from typing import Any

from .call import Call
from .cards import BASE_MS, OUTPUT, PROMPT, Spec
from .evidence import CANNED
from .model import Model

GAPS = (0, 1, 5, 40, 300, 700, 1_200, 2_400, 5_000, 9_999, 10_000, 21_000, 31_000, 61_000)
GAP_WEIGHTS = (10, 6, 10, 20, 25, 15, 10, 8, 5, 2, 3, 2, 2, 1)


WEIGHTS = [1 if c.owner in ("auth", "policy", "request", "quota") or c.client_gone or c.visible else 4 for c in CANNED]


class Driver:
    def __init__(self, rng: Random, spec: Spec, length: int):
        self.rng, self.spec, self.length = rng, spec, length
        self.now = BASE_MS
        self.calls = rng.choice((1, 1, 1, 2, 2, 3))
        self.begun = 0
        self.ops = 0
        self.tools = rng.random() < (0.5 if spec.kind == "effectful" else 0.15)
        self.idempotent = rng.random() < 0.4
        self.wild = rng.random() < 0.3
        # A stream has a temper: some fail at random, some in one way again and again.
        self.favourite = rng.choices(CANNED, WEIGHTS)[0] if rng.random() < 0.6 else None
        self.hint: dict[str, tuple[int, int]] = {}

    def next(self, model: Model) -> dict[str, Any] | None:
        if self.ops >= self.length:
            return None
        self.ops += 1
        live = [c for c in model.calls.values() if not c.ended]
        if self.begun < self.calls and (not live or self.rng.random() < 0.25):
            return self._begin()
        if not live and not model.calls:
            return self._begin()
        if not live or self.rng.random() < 0.04:
            return self._after_end(model)
        return self._on(self.rng.choice(live))

    def note(self, op: dict[str, Any], answer: Any) -> None:
        """Waits and wake times the engine gave: the generator likes to jump there."""
        if answer is not None and "call" in op:
            self.hint[op["call"]] = (answer.wait_ms, answer.wake_ms)

    def _tick(self, to: int = 0) -> int:
        rng = self.rng
        if to:
            self.now += to
        elif self.wild and rng.random() < 0.04:
            return max(BASE_MS, self.now - rng.choice((1, 7, 30)))
        else:
            self.now += rng.choices(GAPS, GAP_WEIGHTS)[0]
        return self.now

    def _begin(self) -> dict[str, Any]:
        rng = self.rng
        self.begun += 1
        given: dict[str, Any] = {"workflow": "w", "prompt_tokens": PROMPT, "max_output_tokens": OUTPUT}
        if rng.random() < 0.15:
            given["stream"] = False
        elif rng.random() < 0.15:
            given["delivery"] = "whole"
        if rng.random() < 0.12:
            given["unable"] = [rng.choice(("wait", "reroute", "edit", "clear", "cache", "preset", "queue"))]
        if rng.random() < 0.08:
            given["max_wait_ms"] = rng.choice((500, 2_500))
        if rng.random() < 0.05:
            given["prior"] = {"attempts": rng.choice((1, 2, 4))}
        if rng.random() < 0.06:
            given["server_state"] = rng.choice(("stored", "conversation", "background"))
        return {"t": self._tick(), "op": "begin", "call": f"c{self.begun}", "in": given}

    def _after_end(self, model: Model) -> dict[str, Any]:
        """Operations on calls that have ended, agents' steps, look-ups."""
        rng = self.rng
        if not model.calls:
            return self._begin()
        known = [c for c in model.calls.values() if not c.dropped]
        if not known:
            return self._begin()
        call = rng.choice(known)
        made: dict[str, Any] = {"t": self._tick(), "call": call.name}
        last = call.last
        if call.ended and call.accepted and rng.random() < 0.7:
            return {**made, "op": "step", "in": {"prompt_tokens": 0, "max_output_tokens": 0}}
        if call.ended and last is not None and last.reason and "reconcile_first" in last.reason and call.tools:
            op_id = next((k for k, v in call.tools.items() if v == ("started", False)), None)
            if op_id and call.carried == "none":
                return {**made, "op": "resolved", "in": {"op_id": op_id, "effect": rng.choice(("none", "committed"))}}
        if call.ended and last is not None and last.action in ("degrade", "queue") and rng.random() < 0.6:
            what = {"cached": "cache", "preset": "preset"}.get(last.step or "", "queue")
            return {**made, "op": "unable", "in": {"what": what}}
        if call.ended:
            if self.begun < 3 and rng.random() < 0.6:
                return self._begin()
            what = rng.choice(("begin_attempt", "failure", "success", "deadline", "cancel"))
            return self._fill(call, {**made, "op": what})
        return self._on(call)

    def _fill(self, call: Call, op: dict[str, Any]) -> dict[str, Any]:
        rng = self.rng
        if op["op"] == "failure":
            f = self.favourite if self.favourite is not None and rng.random() < 0.7 else rng.choices(CANNED, WEIGHTS)[0]
            a = call.attempt
            if a is not None and a.billing != "none" and not f.sent and not f.client_gone:
                f = next(c for c in CANNED if c.name == "read_reset")
            if a is not None and a.running and a.saw_token and f.name in ("cut_before_text", "empty_choices", "empty_end", "truncated_tool"):
                f = next(c for c in CANNED if c.name == "cut_after_text")
            if call.whole and f.name == "truncated_tool":  # how long the longer answer takes is the engine's to say
                f = next(c for c in CANNED if c.name == "server_500")
            op["canned"], op["in"] = f.name, f.evidence
        elif op["op"] == "success":
            text = '{"a":1}' if rng.random() < 0.5 or not self.spec.schema else '{"b":1}'
            op["in"] = {"prompt_tokens": call.prompt, "output_tokens": rng.choice((20, 240)), "finish_reason": "stop", "output": text}
        return op

    def _on(self, call: Call) -> dict[str, Any]:
        rng = self.rng
        wait, wake = self.hint.get(call.name, (0, 0))
        a = call.attempt
        made: dict[str, Any] = {"call": call.name}
        if a is not None and a.running:
            roll = rng.random()
            if a.billing == "none" and roll < 0.30:
                return {**made, "t": self._tick(), "op": "event", "in": {"kind": "sent"}}
            if roll < 0.42 and a.billing in ("possible", "likely"):
                return {**made, "t": self._tick(), "op": "event", "in": self._progress(call)}
            if roll < 0.50 and wake and a.billing != "none":
                return {**made, "t": self._tick(max(1, wake - rng.choice((0, 0, 0, 1)))), "op": "deadline", "in": {}}
            if roll < 0.52:
                return {**made, "t": self._tick(), "op": rng.choice(("cancel", "drop")), "in": {}}
            if roll < 0.62:
                if self.spec.schema and not call.delivery_whole and not a.saw_token:
                    return {**made, "t": self._tick(), "op": "event", "in": {"kind": "token", "count": 1}}
                return self._fill(call, {**made, "t": self._tick(), "op": "success"})
            return self._fill(call, {**made, "t": self._tick(), "op": "failure"})
        if call.pending is not None:
            roll = rng.random()
            if roll < 0.04:
                what = rng.choice(("wait", "reroute", "queue", "cache", "preset"))
                return {**made, "t": self._tick(), "op": "unable", "in": {"what": what}}
            if roll < 0.05:
                return {**made, "t": self._tick(), "op": "cancel", "in": {}}
            if roll < 0.75 or wait == 0:
                gap = max(0, wait + rng.choice((0, 0, 1, 250)))
                return {**made, "t": self._tick(gap) if gap else self._tick(), "op": "begin_attempt", "in": {}}
            return {**made, "t": self._tick(), "op": "begin_attempt", "in": {}}
        return {**made, "t": self._tick(), "op": "cancel", "in": {}}

    def _progress(self, call: Call) -> dict[str, Any]:
        rng = self.rng
        if self.tools and rng.random() < 0.5:
            op_id = f"op{rng.choice((1, 2))}"
            state = rng.choice(("requested", "started", "started", "committed", "acknowledged"))
            return {"kind": "tool", "op_id": op_id, "state": state, "idempotent": self.idempotent and op_id == "op1"}
        kind = rng.choice(("accepted", "lifecycle", "reasoning", "token", "token", "tool_args"))
        a = call.attempt
        if kind != "accepted" and a is not None and a.billing == "possible":
            kind = rng.choice(("accepted", kind))
        return {"kind": kind, "count": 1} if kind == "token" else {"kind": kind, "bytes": 10} if kind == "tool_args" else {"kind": kind}
