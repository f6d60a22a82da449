"""The operations of DESIGN 13 over the model's books."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from .call import BILLING, Attempt, Call, Decision, Pending
from .cards import Spec
from .evidence import BY_NAME, OUTPUT_INVALID, TIMED_OUT_CUT, TIMED_OUT_SILENT, Canned
from .health import Health
from .rules import ANY, Rules

PROOF_OWNERS = ("rate", "quota", "auth", "request")


class Model:
    def __init__(self, spec: Spec, now: int):
        self.spec = spec
        self.h = Health(spec, now)
        self.rules = Rules(self.h)
        self.calls: dict[str, Call] = {}
        self.high = now

    def apply(self, op: dict[str, Any], answer: Any) -> Decision | None:
        """One operation; the engine's answer only steers what the text leaves open."""
        self.high = now = max(self.high, op["t"])
        what = op["op"]
        if what == "drop":  # needs no clock
            call = self.calls[op["call"]]
            if call.pending is not None and call.pending.what != "first":
                self.h.route[call.failed_route].bucket_soft = True
            self._abandon(call, now)
            call.ended = call.dropped = True
            self.h.settle(now)
            return None
        self._hear(op, now)
        self.h.settle(now)
        if what == "begin":
            return self._finish(self._begin(op, now, answer), now, self.calls[op["call"]])
        call = self.calls[op["call"]]
        if call.pending is not None and call.pending.what != "first" and what in ("begin_attempt", "cancel", "unable"):
            self.h.route[call.failed_route].bucket_soft = True  # paid, and perhaps not sent: is it paid back?
        call.left = call.left or (what == "cancel" and not call.accepted)
        if call.ended and not self._wakes(call, what):
            return call.last if what not in ("event",) else None
        decision: Decision | None = getattr(self, "_" + what)(call, op, now, answer)
        return None if decision is None else self._finish(decision, now, call)

    def _hear(self, op: dict[str, Any], now: int) -> None:
        """The attempt this speaks of is heard before anyone's silence is judged."""
        call = self.calls.get(op.get("call", ""))
        token = op["op"] == "success" or (op["op"] == "event" and op["in"]["kind"] in ("token", "reasoning", "tool_args"))
        if token and call is not None and call.attempt is not None and call.attempt.running:
            self.h.first_token(call.attempt.row, now)
            self.h.progress(call.attempt.row, now)

    @staticmethod
    def _wakes(call: Call, what: str) -> bool:
        if what == "step":
            return call.accepted
        if call.left:
            return False
        if what == "resolved":
            return call.last is not None and call.last.action == "fail_closed" and bool(call.last.reason and "reconcile_first" in call.last.reason)
        if what == "unable":
            return call.last is not None and call.last.action in ("queue", "degrade")
        return False

    def _finish(self, d: Decision, now: int, call: Call) -> Decision:
        d.attempts_left = call.attempts_left()
        left = call.elapsed_left(now)
        d.elapsed_left = None if left is None else (left, left)
        call.last = d
        return d

    # ------------------------------------------------------------- operations

    def _begin(self, op: dict[str, Any], now: int, answer: Any) -> Decision:
        given = op["in"]
        call = Call(op["call"], self.spec, given["prompt_tokens"], given["max_output_tokens"], given.get("stream", True) is False, now,
                    unable=set(given.get("unable", ())), max_wait=given.get("max_wait_ms", 0), prior=given.get("prior", {}).get("attempts", 0),
                    server_state=given.get("server_state", "none"), step_begun=now)
        call.delivery_whole = call.whole or given.get("delivery") == "whole"
        self.calls[call.name] = call
        call.asked = call.output
        call.first_tokens = call.prompt + call.output
        call.first_cost = self.spec.routes[self.spec.primary].hold(call.prompt, call.output)
        self._own(call)
        return self.rules.first(call, now, answer)

    def _own(self, call: Call) -> None:
        call.own_tokens += call.prompt + call.output
        call.own_cost += self.spec.routes[self.spec.primary].hold(call.prompt, call.output)

    def _begin_attempt(self, call: Call, op: dict[str, Any], now: int, answer: Any) -> Decision | None:
        last, pending = call.last, call.pending
        if pending is None or (call.attempt is not None and call.attempt.running):
            return None
        if now < pending.at:
            rest = pending.at - now
            return Decision("hold", wait=(rest, rest), reason=frozenset(("too_early",)) | ANY)
        left = call.elapsed_left(now)
        look, _ = self.h.look(pending.route, now)
        elsewhere = (answer.action, answer.route) != ("proceed", pending.route)
        turn = self._same_route(pending) and self.h.retries(pending.route) > 0
        asked_again = turn or (pending.what != "first" and self._hour_is_out()) or (pending.route != self.spec.primary and self.h.spills >= 2)
        soft = elsewhere and asked_again
        if pending.what == "first":
            if (last is not None and last.action == "hold") or look not in ("ok", "probe") or (left is not None and left <= 0) or soft:
                again = self.rules.first(call, now, answer)
                at_once = answer.action == "proceed" and again.action == "degrade" and call.pending is not None
                if again.action != "proceed" and not at_once:
                    return again
                pending = call.pending
                assert pending is not None
        elif answer.action == "hold" and pending.cost and self._same_route(pending) and self.h.retries(pending.route) > 0:
            return Decision("hold", wait=(1, 1_000), loose=True)  # its turn comes: another retry is in flight there
        elif look == "not_before" and answer.action == "hold":
            rest = self.h.look(pending.route, now)[1]
            return Decision("hold", wait=(rest, rest + min(max(rest // 4, 1_000), 30_000)))
        elif look not in ("ok", "probe") or (left is not None and left < call.estimate(pending.route)) or soft:
            again = self.rules.after_failure(call, now, answer)
            if answer.action != "proceed" or call.pending is None or again.wait is None or again.wait[0] > 0:
                return again
            # the new decision needs no wait: it may be permitted in the same answer
        return self._permit(call, now, answer)

    @staticmethod
    def _same_route(pending: Pending) -> bool:
        return pending.what == "retry" or pending.prompt > 0

    def _hour_is_out(self) -> bool:
        limit = self.spec.retries_per_hour
        return limit is not None and self.h.resends_hour >= limit

    def _permit(self, call: Call, now: int, answer: Any) -> Decision:
        pending = call.pending
        assert pending is not None
        route = pending.route
        clocks = {"first": answer.first_token_ms or 1 << 40, "idle": answer.idle_ms or 1 << 40, "progress": answer.progress_ms or 1 << 40,
                  "total": answer.total_ms or 1 << 40}
        row = self.h.admit(route, now, self._same_route(pending) and pending.cost > 0, clocks["total"], call.whole)
        call.count += 1
        call.attempts_used += 1
        call.prompt = pending.prompt or call.prompt
        tokens, cost = call.prompt + call.output, self.spec.routes[route].hold(call.prompt, call.output)
        call.held_tokens += tokens
        call.held_cost += cost
        call.attempt = Attempt(call.count, route, now, row, tokens, cost, clocks)
        call.attempt.paid_by = call.failed_route if pending.what != "first" and pending.cost else ""
        if pending.what != "first":
            call.resends += 1
            self.h.resends_hour += 1
            f = call.failure
            assert f is not None
            if pending.what == "retry":
                call.class_used[(route, f.klass)] = call.class_used.get((route, f.klass), 0) + 1
                if not f.local and pending.rung is None:
                    call.retried[route] = call.retried.get(route, 0) + 1
                if f.overload:
                    call.overloaded[route] = call.overloaded.get(route, 0) + 1
                if f.owner == "rate":
                    call.waited.add(route)
        if pending.rung is not None:
            call.spent_steps.add(pending.rung)
        call.pending = None
        return Decision("proceed", route, wait=(0, 0))

    def _event(self, call: Call, op: dict[str, Any], now: int, answer: Any) -> None:
        a, given = call.attempt, op["in"]
        kind = given["kind"]
        if kind == "tool":
            old = call.tools.get(given["op_id"])
            order = ("requested", "failed", "started", "committed", "acknowledged")
            if old is None or order.index(given["state"]) > order.index(old[0]):
                call.tools[given["op_id"]] = (given["state"], given.get("idempotent", False) or bool(old and old[1]))
            return
        if a is None or not a.running:
            return
        if kind == "sent":
            call.raise_billing(a, "possible")
            return
        if kind == "connected":
            return
        call.raise_billing(a, "likely")
        a.last_byte = now
        if kind == "lifecycle":
            call.raise_shown(a, "lifecycle")
        if kind in ("token", "reasoning", "tool_args"):
            a.last_progress = now
            a.content = True
            a.saw_token = True
            if kind == "token":
                call.raise_shown(a, "lifecycle" if call.delivery_whole else "visible")

    def _failure(self, call: Call, op: dict[str, Any], now: int, answer: Any) -> Decision | None:
        a = call.attempt
        if a is None or not a.running:
            return None
        f = BY_NAME[op["canned"]]
        self._facts(call, a, f)
        return self._failed(call, a, f, now, answer)

    def _facts(self, call: Call, a: Attempt, f: Canned) -> None:
        if f.sent:
            call.raise_billing(a, "possible")
        if f.head:
            call.raise_billing(a, "likely")
            call.raise_shown(a, "lifecycle")
        if f.visible:
            a.saw_token = True
            call.raise_shown(a, "lifecycle" if call.delivery_whole else "visible")
        proof = f.error_answer and (f.owner in PROOF_OWNERS or f.overload)
        if proof and not a.saw_token and not a.saw_usage:
            a.billing = "none"

    def _failed(self, call: Call, a: Attempt, f: Canned, now: int, answer: Any) -> Decision:
        if f.klass == "silent" and BILLING.index(a.billing) >= BILLING.index("likely"):
            f = replace(f, klass="cut")  # a head was seen
        self._close(call, a)
        call.failure, call.failed_route = f, a.route
        call.failed_billing, call.failed_shown = a.billing, a.shown
        call.failed_at = now
        call.failed_slow = now - a.start > self.spec.slow_ms
        call.paid = 0
        if f.local and f.never_sent:
            call.attempts_used -= 1
        if a.paid_by and (f.never_sent or f.client_gone):
            self.h.route[a.paid_by].bucket_soft = True
        self._learn(call, a, f, now)
        d = self.rules.after_failure(call, now, answer)
        d.owner = f.owner
        return d

    def _close(self, call: Call, a: Attempt) -> None:
        a.running = False
        self.h.leave(a.row)
        if a.billing == "none":
            call.held_tokens -= a.hold_tokens
            call.held_cost -= a.hold_cost

    def _learn(self, call: Call, a: Attempt, f: Canned, now: int) -> None:
        h, row = self.h, a.row
        if not (f.never_sent or f.local):
            call.sends[a.route] = call.sends.get(a.route, 0) + 1
        h.latches.give_back(row.seen)
        if f.client_gone or f.local:
            h.result(row, "neutral", now)
            return
        if f.owner == "rate":
            h.result(row, "rate", now, f.retry_after_ms or 0)
            if f.retry_after_ms:
                h.told_to_wait(a.route, f.scope, f.retry_after_ms, now)
        elif f.owner == "quota":
            h.result(row, "rate", now)
        elif f.owner == "policy" or (f.owner == "request" and f.scope == "request"):
            h.result(row, "ok", now)
        elif f.trips:
            h.result(row, "fail", now, f.retry_after_ms or 0)
        else:
            h.result(row, "neutral", now)
        if f.owner in ("rate", "quota", "policy") or (f.owner == "request" and f.scope == "request"):
            h.latches.light(row.seen, only="key")  # an answer of that kind shows that the key is good
        h.latches.darken(a.route, row.seen, f.owner, f.scope, f.retry_after_ms, f.period, now)

    def _success(self, call: Call, op: dict[str, Any], now: int, answer: Any) -> Decision | None:
        a, given = call.attempt, op["in"]
        if a is None or not a.running:
            return None
        call.raise_billing(a, "certain")
        a.saw_usage = True
        used = given["prompt_tokens"] + given["output_tokens"]
        cost = self.spec.routes[a.route].hold(given["prompt_tokens"], given["output_tokens"])
        call.held_tokens += used - a.hold_tokens
        call.held_cost += cost - a.hold_cost
        if self.spec.schema and given["output"] != '{"a":1}':
            if a.route != self.spec.primary:
                call.out.add(a.route)
            return self._failed(call, a, OUTPUT_INVALID, now, answer)
        a.running = False
        self.h.leave(a.row)
        call.sends[a.route] = call.sends.get(a.route, 0) + 1
        self.h.latches.light(a.row.seen)
        self.h.result(a.row, "ok", now)
        self.h.credit(self.spec.primary, now)
        call.ended = call.accepted = True
        return Decision("accept", a.route, final=True)

    def _deadline(self, call: Call, op: dict[str, Any], now: int, answer: Any) -> Decision | None:
        a = call.attempt
        if a is None or not a.running:
            return None
        at = [a.start + a.clocks["total"]]
        if a.content:
            at.append((a.last_byte or a.start) + a.clocks["idle"])
            at.append((a.last_progress or a.start) + a.clocks["progress"])
        else:
            at.append(a.start + a.clocks["first"])
        due = min(at)
        early = due
        if a.last_byte is not None and not a.content:
            early = min(early, a.last_byte + a.clocks["idle"])
        if now < early or (now < due and answer.action == "keep_waiting"):
            return Decision("keep_waiting", wait=(0, due - now))
        call.raise_billing(a, "possible")
        head = a.billing in ("likely", "certain")
        return self._failed(call, a, TIMED_OUT_CUT if head else TIMED_OUT_SILENT, now, answer)

    def _step(self, call: Call, op: dict[str, Any], now: int, answer: Any) -> Decision:
        given = op["in"]
        effect = call.effect()
        call.committed_before = call.committed_before or effect == "committed"
        unresolved = any(state == "started" and not idempotent for state, idempotent in call.tools.values())
        call.carried = "unknown" if unresolved or call.carried == "unknown" else "none"
        call.tools = {}
        call.prompt, call.output = given["prompt_tokens"] or call.prompt, given["max_output_tokens"] or call.output
        call.asked = call.output
        call.first_tokens = call.prompt + call.output
        call.first_cost = self.spec.routes[self.spec.primary].hold(call.prompt, call.output)
        call.held_since = None
        call.step_begun, call.attempts_used, call.prior = now, 0, 0
        call.spent_steps = set()
        call.sends, call.class_used, call.overloaded, call.waited, call.retried = {}, {}, {}, set(), {}
        call.failure, call.paid, call.pending, call.attempt = None, 0, None, None
        call.failed_billing, call.failed_shown, call.failed_route = "none", "nothing", ""
        call.ended = call.accepted = False
        call.step_number += 1
        self._own(call)
        return self.rules.first(call, now, answer)

    def _cancel(self, call: Call, op: dict[str, Any], now: int, answer: Any) -> Decision:
        self._abandon(call, now)
        call.ended, call.pending = True, None
        return Decision("fail_closed", reason=frozenset(("client_gone",)), final=True)

    def _abandon(self, call: Call, now: int) -> None:
        a = call.attempt
        if a is not None and a.running:
            self.h.latches.give_back(a.row.seen)
            self.h.result(a.row, "neutral", now)
            self._close(call, a)
            if a.paid_by:
                self.h.route[a.paid_by].bucket_soft = True

    def _unable(self, call: Call, op: dict[str, Any], now: int, answer: Any) -> Decision | None:
        if call.attempt is not None and call.attempt.running:
            return None
        call.unable.add(op["in"]["what"])
        call.ended = False
        if call.failure is not None:
            return self.rules.after_failure(call, now, answer)
        return self.rules.first(call, now, answer)

    def _resolved(self, call: Call, op: dict[str, Any], now: int, answer: Any) -> Decision | None:
        given = op["in"]
        old = call.tools.get(given["op_id"])
        call.tools[given["op_id"]] = ("failed" if given["effect"] == "none" else "committed", bool(old and old[1]))
        if call.attempt is not None and call.attempt.running:
            return None
        call.ended = False
        if call.failure is None:
            return None
        return self.rules.after_failure(call, now, answer)

    # ----------------------------------------------------- the engine's word

    def adopt(self, name: str, breaker: str, until: int, now: int) -> None:
        """Where the text has two readings: go on from the engine's state."""
        r = self.h.route[name]
        r.soft = False
        if breaker == "open":
            if r.state != "open":
                self.h.open(name, now, 0, stall=True)
            r.until = now + until

    def adopt_balance(self, call: Call, name: str, balance: int, now: int) -> None:
        r = self.h.route[name]
        if name == call.failed_route and balance > self.h.balance(name, now):
            call.paid = 0  # paid back
        r.balance, r.last, r.bucket_soft = balance, now, False
