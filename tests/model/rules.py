"""DESIGN 6: the decision, rule by rule, in its words and in its order.

`answer` is the engine's own answer to the same operation. It is looked at in three places only: to learn which way a random draw went
(a retry's jitter), to let the engine pass over a route the text allows it to pass over, and where DESIGN has two readings.
"""

from __future__ import annotations

from typing import Any

from .call import Call, Decision, Pending
from .health import Health

OWN_REASON = {"policy": {"refused"}, "auth": {"key_rejected", "key_latched"},
              "request": {"request_invalid", "too_large", "unsupported", "route_misconfigured"}}


class Rules:
    def __init__(self, health: Health):
        self.h = health
        self.spec = health.spec

    # ------------------------------------------------------------- endings

    def _fail(self, call: Call, *reasons: str) -> Decision:
        call.ended, call.pending = True, None
        return Decision("fail_closed", reason=frozenset(reasons) or None, final=True)

    def _queue(self, call: Call, low: int = 0) -> Decision:
        call.ended, call.pending = True, None
        return Decision("queue", wait=(low, 1 << 40), final=True)

    def _may_queue(self, call: Call) -> bool:
        return self.spec.queue and "queue" not in call.unable

    def _silent_ladder(self, call: Call, answer: Any) -> Decision | None:
        """cached and preset: they send nothing."""
        for rung in sorted(self.spec.ladder, key=lambda r: answer is not None and r["step"] != answer.step):
            if rung["step"] in ("cached", "preset"):
                if {"cached": "cache", "preset": "preset"}[rung["step"]] in call.unable:
                    continue
                call.ended, call.pending = True, None
                return Decision("degrade", step=rung["step"], final=True)
        return None

    # --------------------------------------------------------- rules 0 to 12

    def after_failure(self, call: Call, now: int, answer: Any) -> Decision:
        f = call.failure
        assert f is not None
        call.pending = None
        if f.client_gone:
            return self._fail(call, "client_gone")
        bar = call.commit_bar()
        if bar is not None:
            if f.owner in OWN_REASON:
                return self._fail(call, *OWN_REASON[f.owner])
            if bar == "may_have_run":
                return self._silent_ladder(call, None) or self._fail(call, bar)
            return self._fail(call, bar)
        owner = f.owner
        if owner == "policy":
            return self._fail(call, *OWN_REASON["policy"], *(() if "policy" in self.spec.stop_on else ANY))
        if owner == "auth":
            if "auth" not in self.spec.stop_on:
                found = self._rule9(call, now, answer, outside="auth")
                if found:
                    return found
                return self._fail(call)
            return self._fail(call, *OWN_REASON["auth"])
        if owner == "request" and f.scope == "request":
            return self._request(call, now, answer)
        if owner == "quota":
            return self._quota(call, now, answer, f.retry_after_ms or 0)
        if owner == "unknown":
            if "empty_end" in f.tags:
                found = self._rule8(call, now, answer)
                if found:
                    return found
            if self._may_queue(call):
                return self._queue(call)
            return self._ladder(call, now, answer) or self._fail(call)
        if owner in ("transient", "rate", "local"):
            # A limit that persists: does rule 8's second wait come first, or the stand-in?
            persists = call.failed_route in call.waited and answer.action == "fallback"
            first = owner == "rate" and (self.spec.spill == "prefer_fast" or persists)
            found = (self._rule9(call, now, answer) if first else None) or self._rule8(call, now, answer)
            if found:
                return found
        found = self._rule9(call, now, answer)
        if found:
            return found
        if self._may_queue(call):
            return self._queue(call)
        return self._ladder(call, now, answer) or self._fail(call)

    def _request(self, call: Call, now: int, answer: Any) -> Decision:
        f = call.failure
        assert f is not None
        if "size" in f.tags:
            found = self._rule9(call, now, answer, larger=True)
            if found:
                return found
            for i, rung in enumerate(self.spec.ladder):
                if i in call.spent_steps:
                    continue
                if rung["step"] == "smaller_model":
                    found = self._smaller(call, now, answer, i, rung, "", False, True)
                    if found:
                        return found
                look, rest = self.h.look(call.failed_route, now)
                told = look == "full" and answer.step != "compact" or look == "not_before" and (rest > self.spec.backoff["hint_cap"] or answer.step != "compact")
                dark = told or look in ("open", "key", "quota", "model")
                if rung["step"] == "compact" and not dark and "edit" not in call.unable and call.prompt > rung["to_tokens"]:
                    if self._may_resend(call, now, call.failed_route, rung["to_tokens"]):
                        cost = self._cost(call, False)
                        found = self._send(call, answer, "degrade", "ladder", call.failed_route, (0, rest), cost, now, step="compact", rung=i)
                        assert call.pending is not None
                        call.pending.prompt = rung["to_tokens"]
                        return found
            return self._fail(call)
        return self._fail(call, *OWN_REASON["request"])

    def _quota(self, call: Call, now: int, answer: Any, hint: int) -> Decision:
        if "quota" not in self.spec.stop_on:
            found = self._rule9(call, now, answer, outside="quota")
            if found:
                return found
        if self._may_queue(call):
            routes = [self.spec.primary] + [s.route for s in self.spec.standins if s.approved and not s.ladder_only]
            elsewhere = any(self.spec.routes[r].account != self.spec.routes[call.failed_route].account for r in routes)
            return self._queue(call, 0 if elsewhere else hint)
        return self._ladder(call, now, answer, outside="quota") or self._fail(call, "quota_exhausted", "quota_latched", "owner_stops", *ANY)

    # ----------------------------------------------------------------- rule 8

    def _cost(self, call: Call, stand_in: bool) -> int:
        """What the failed route's bucket pays for a resend (DESIGN 7)."""
        f = call.failure
        if f is None or f.local or f.never_sent:
            return 0
        if stand_in and call.failed_billing == "none":
            return 200
        return 1_000

    def _pays(self, call: Call, cost: int, now: int) -> bool:
        return self.h.balance(call.failed_route, now) >= max(0, cost - call.paid)

    def _compact(self, call: Call, now: int, answer: Any, i: int, rung: dict[str, Any]) -> Decision | None:
        """compact helps where only size, time or money kept rule 8 from retrying."""
        f = call.failure
        if f is None or (f.owner not in ("transient", "rate", "local") and "empty_end" not in f.tags) or "edit" in call.unable:
            return None
        cost = self.spec.routes[call.failed_route].hold(call.prompt, call.output)
        money = not call.fits_tokens(call.prompt + call.output) or not call.fits_cost(cost)
        if not money and "truncated" not in f.tags:
            return None
        before, call.prompt = call.prompt, rung["to_tokens"]
        found = self._rule8(call, now, answer, compact=True)
        call.prompt = before
        if found is None:
            return None
        found.action, found.step = "degrade", "compact"
        assert call.pending is not None
        call.pending.rung, call.pending.prompt = i, rung["to_tokens"]
        found.wait = (0, found.wait[1] if found.wait else 0)
        return found

    def _may_resend(self, call: Call, now: int, route: str, prompt: int) -> bool:
        spec = self.spec
        if call.attempts_left() < 1 or call.resends >= spec.call_resends or call.sends_left(route) < 1:
            return False
        if prompt != call.prompt and (self._cost(call, False) and self.h.retries(route) >= 1 or call.retried.get(route, 0) >= spec.kind_retries):
            return False
        if spec.retries_per_hour is not None and self.h.resends_hour >= spec.retries_per_hour:
            return False
        if not call.fits_tokens(prompt + call.output) or not call.fits_cost(spec.routes[route].hold(prompt, call.output)):
            return False
        return call.fits_time(call.estimate(route), now) and self._pays(call, self._cost(call, False), now)

    def _wait_bounds(self, call: Call, route: str, now: int) -> tuple[int, int] | None:
        f, b = call.failure, self.spec.backoff
        assert f is not None
        low = 0
        if f.retry_after_ms is not None:
            if f.retry_after_ms > b["hint_cap"]:
                return None
            high = f.retry_after_ms + min(max(f.retry_after_ms // 4, 1_000), 30_000)
            low = max(0, f.retry_after_ms - (now - call.failed_at))
        else:
            base = b["rate_base"] if f.owner == "rate" or f.overload else b["base"]
            n = max(call.resends, sum(call.class_used.values()), call.attempts_used)
            high = min(b["cap"], base << n)
        told = self.h.route[route].not_before - now
        if told > low:
            if told > b["hint_cap"]:
                return None
            low, high = told, max(high, told + min(max(told // 4, 1_000), 30_000))
        return low, high

    def _rule8(self, call: Call, now: int, answer: Any, compact: bool = False) -> Decision | None:
        f, spec, route = call.failure, self.spec, call.failed_route
        chosen = answer.step == "compact" if compact else answer.action == "retry" or (answer.action == "proceed" and answer.route == route)
        assert f is not None
        if route in call.out or f.must_not_retry or call.class_left(route, f.klass) < 1:
            return None
        if not f.local and call.retried.get(route, 0) >= spec.kind_retries:
            return None
        if f.overload and call.overloaded.get(route, 0) >= spec.overload_retries:
            return None
        if f.klass in ("silent", "cut") and spec.after_silence in ("none", "stand_in"):
            return None
        if not self._may_resend(call, now, route, call.prompt):
            return None
        cost = self._cost(call, False)
        # Paid already: is the cap asked again?
        if cost and self.h.retries(route) >= 1 and (cost > call.paid or not chosen):
            return None
        bounds = self._wait_bounds(call, route, now)
        if bounds is None:
            return None
        look, _ = self.h.look(route, now)
        if look in ("open", "key", "quota", "model") or self._passed_over(route, now, answer):
            return None
        low, high = bounds
        need = call.estimate(route)
        if f.klass == "silent":
            need = max(need, call.first_token_ms(route))
        left = call.elapsed_left(now)
        if "truncated" in f.tags:  # its one retry asks for more room; how much, the text leaves open
            if "edit" in call.unable:
                return None
            more = 4 * call.output
            costly = not call.fits_tokens(call.prompt + more) or not call.fits_cost(spec.routes[route].hold(call.prompt, more))
            if not chosen and (call.whole or costly):
                return None
        if left is not None:
            if low + need > left:
                return None
            if high + need > left:
                high = left - need
                if not chosen:
                    return None  # the draw did not fit
        if "wait" in call.unable:
            if low > 0:
                return None
            if high > 0 and not chosen:
                return None
        if call.max_wait:
            if low > call.max_wait:
                return None
            if high > call.max_wait:
                high = call.max_wait
                if not chosen:
                    return None
        if look == "full" and not chosen:
            return None
        if f.owner in ("transient", "local") and (f.klass == "silent" or call.failed_slow) and self._rule9(call, now, answer, dry=True):
            return None
        return self._send(call, answer, "retry", "retry", route, (low, high), cost, now)

    # ----------------------------------------------------------------- rule 9

    def _passed_over(self, name: str, now: int, answer: Any) -> bool:
        """Slow start may send this call elsewhere, as it is, and do nothing else to it."""
        elsewhere = answer.route not in (name, None) and answer.step is None and answer.action in ("proceed", "retry", "fallback")
        return elsewhere and self.h.ramps(name, now)

    def _scope_allows(self, call: Call, name: str, outside: str) -> bool:
        """Outside what the failure darkened (and, for money, of another owner)."""
        f, routes = call.failure, self.spec.routes
        scope = f.scope if f is not None and f.owner == outside else "account"
        mine, other = routes[call.failed_route], routes[name]
        if scope == "account" and mine.account == other.account:
            return False
        if outside == "quota" and scope == "account":
            return mine.quota_owner is not None and other.quota_owner is not None and mine.quota_owner != other.quota_owner
        return True

    def _rate_may_leave(self, call: Call, now: int, answer: Any) -> bool:
        f = call.failure
        if f is None or f.owner != "rate":
            return True
        if self.spec.spill == "never" or (self.h.spills >= 2 and answer.action not in ("fallback", "degrade", "proceed")):
            return False
        if self.spec.spill == "prefer_fast" or call.failed_route in call.waited:
            return True
        bounds = self._wait_bounds(call, call.failed_route, now)
        if bounds is None:
            return True
        low, high = bounds
        if "wait" in call.unable:
            return low > 0 or answer.action != "retry"
        left = call.elapsed_left(now)
        most = 1 << 40 if left is None else left - call.estimate(call.failed_route)
        most = min(most, call.max_wait) if call.max_wait else most
        if low > most:
            return True
        # Rule 8 refused: is a wait that no retry is left for one that fits? Both readings.
        del high
        return answer.action in ("fallback", "degrade", "proceed")

    def _candidate(self, call: Call, now: int, answer: Any, name: str, drop: int, outside: str, larger: bool, first: bool) -> bool:
        spec, route = self.spec, self.spec.routes[name]
        if name in call.out or (not first and name == call.failed_route):
            return False
        if outside and not self._scope_allows(call, name, outside):
            return False
        f = call.failure
        if not first and f is not None and f.owner == "rate" and f.scope == "account" and spec.routes[call.failed_route].account == route.account:
            return False  # darkened by the same refusal
        if larger:
            mine = spec.routes[call.failed_route].context or 0
            if not route.context or route.context <= mine or route.context < call.prompt + call.output:
                return False
        if call.sends_left(name) < 1 or drop > spec.quality_drop_ppm:
            return False
        if self.h.look(name, now)[0] not in ("ok", "probe") or self._passed_over(name, now, answer):
            return False
        if not first and not call.fits_time(call.estimate(name), now):
            return False
        if not call.fits_tokens(call.prompt + call.output) or not call.fits_cost(route.hold(call.prompt, call.output)):
            return False
        if not first and call.failure is not None and "truncated" in call.failure.tags and answer.route != name:
            more = 4 * call.output  # the resend asks for more room
            if not call.fits_tokens(call.prompt + more) or not call.fits_cost(route.hold(call.prompt, more)):
                return False
        return first or self._pays(call, self._cost(call, True), now)

    def _resend_allowed(self, call: Call, now: int, answer: Any) -> bool:
        f, spec = call.failure, self.spec
        if "reroute" in call.unable or call.attempts_left() < 1 or call.resends >= spec.call_resends:
            return False
        if spec.retries_per_hour is not None and self.h.resends_hour >= spec.retries_per_hour:
            return False
        if f is not None and f.klass in ("silent", "cut") and spec.after_silence == "none":
            return False
        return self._rate_may_leave(call, now, answer)

    def _rule9(self, call: Call, now: int, answer: Any, outside: str = "", larger: bool = False, dry: bool = False) -> Decision | None:
        if not self._resend_allowed(call, now, answer):
            return None
        for s in self.spec.standins:
            if s.ladder_only or not s.approved or not self._candidate(call, now, answer, s.route, s.drop_ppm, outside, larger, False):
                continue
            if dry:
                return Decision("fallback", s.route)
            return self._send(call, answer, "fallback", "fallback", s.route, 0, self._cost(call, True), now)
        return None

    # ---------------------------------------------------------------- rule 11

    def _smaller(self, call: Call, now: int, answer: Any, i: int, rung: dict[str, Any], outside: str, first: bool, larger: bool) -> Decision | None:
        s = next(s for s in self.spec.standins if s.route == rung["route"])
        if not s.approved or s.score_ppm < rung["min_score_ppm"] or "reroute" in call.unable or call.attempts_left() < 1:
            return None
        if not first and not self._resend_allowed(call, now, answer):
            return None
        if not self._candidate(call, now, answer, s.route, s.drop_ppm, outside, larger, first):
            return None
        cost = 0 if first else self._cost(call, True)
        return self._send(call, answer, "degrade", "first" if first else "ladder", s.route, 0, cost, now, step="smaller_model", rung=i)

    def _ladder(self, call: Call, now: int, answer: Any, outside: str = "", first: bool = False) -> Decision | None:
        rungs = list(enumerate(self.spec.ladder))
        if first:  # smaller_model first; cached and preset in the text's order or the card's
            rungs.sort(key=lambda r: (r[1]["step"] != "smaller_model", r[1]["step"] != answer.step))
        for i, rung in rungs:
            if i in call.spent_steps:
                continue
            step = rung["step"]
            if step == "smaller_model":
                found = self._smaller(call, now, answer, i, rung, outside, first, False)
                if found:
                    return found
            if step == "compact" and not first and call.prompt > rung["to_tokens"]:
                found = self._compact(call, now, answer, i, rung)
                if found:
                    return found
            if step in ("cached", "preset"):
                if {"cached": "cache", "preset": "preset"}[step] in call.unable:
                    continue
                call.ended, call.pending = True, None
                return Decision("degrade", step=step, final=True)
        return None

    def _send(self, call: Call, answer: Any, action: str, what: str, route: str, wait: Any, cost: int, now: int, step: str | None = None,
              rung: int | None = None) -> Decision:
        if what in ("retry", "fallback", "ladder"):
            more = max(0, cost - call.paid)
            self.h.pay(call.failed_route, more, now)
            call.paid += more
            if what != "retry" and call.failure is not None and call.failure.owner == "rate":
                self.h.spills += 1
            if call.failure is not None and "truncated" in call.failure.tags and answer.max_tokens:
                call.output = answer.max_tokens
        bounds = wait if isinstance(wait, tuple) else (wait, wait)
        call.pending = Pending(what, route, now, cost, rung)
        return Decision(action, route, wait=bounds, step=step)

    # ----------------------------------------------- before the first attempt

    def first(self, call: Call, now: int, answer: Any) -> Decision:
        spec, name = self.spec, self.spec.primary
        call.pending = None
        if call.attempts_left() < 1:
            return self._silent_ladder(call, answer) or self._fail(call)
        left = call.elapsed_left(now)
        if left is not None and left <= 0:
            return self._silent_ladder(call, answer) or self._fail(call)
        look, wait = self.h.look(name, now)
        fits = call.fits_tokens(call.prompt + call.output) and call.fits_cost(spec.routes[name].hold(call.prompt, call.output))
        if fits and look in ("ok", "probe") and not self._passed_over(name, now, answer):
            call.pending = Pending("first", name, now)
            return Decision("proceed", name, wait=(0, 0), reason=frozenset(("primary_ready",)))
        call.failed_route = name
        if look == "key":
            if "auth" not in spec.stop_on:
                found = self._first_standin(call, now, answer, "auth")
                if found:
                    return found
                if answer.action == "hold" and self._may_hold(call, now):
                    return self._hold(call, now)
            return self._fail(call, "key_rejected", "key_latched", *(ANY if len(self.h.latches.of(name)) > 1 else ()))
        if look == "quota":
            if "quota" not in spec.stop_on:
                found = self._first_standin(call, now, answer, "quota")
                if found:
                    return found
                if answer.action == "hold" and self._may_hold(call, now):
                    return self._hold(call, now)
            if self._may_queue(call):
                return self._queue(call)
            return self._ladder(call, now, answer, "quota", first=True) or self._fail(call)
        if look == "not_before":
            spread = min(max(wait // 4, 1_000), 30_000)
            if wait <= spec.hold_ms and (left is None or wait < left) and "wait" not in call.unable and not (call.max_wait and wait > call.max_wait):
                fast = spec.spill == "prefer_fast"  # does a stand-in come before a short hold too? Both readings.
                again = call.held_since is not None  # what was held before counts against hold_ms
                if answer.action == "hold" or not fast and not again and wait + spread + call.estimate(name) <= min(spec.hold_ms, left or 1 << 40):
                    call.pending = Pending("first", name, now)
                    call.held_since = now if call.held_since is None else call.held_since
                    full = any(s.approved and self.h.look(s.route, now)[0] == "full" for s in spec.standins)
                    return Decision("hold", wait=(0 if full else wait, wait + spread))
            if spec.spill == "never" or (self.h.spills >= 2 and answer.route in (None, name)):
                return self._first_rest(call, now, answer, look, False)
            found = self._first_standin(call, now, answer, "")
            if found:
                self.h.spills += 1
                return found
        else:
            found = self._first_standin(call, now, answer, "")
            if found:
                return found
        return self._first_rest(call, now, answer, look, True)

    def _first_rest(self, call: Call, now: int, answer: Any, look: str, small: bool) -> Decision:
        """No stand-in: queue, smaller_model, hold for room, cached, preset."""
        if answer.action == "hold" and self._may_hold(call, now):
            return self._hold(call, now)
        if self._may_queue(call):
            return self._queue(call)
        left = call.elapsed_left(now)
        roomy = left is None or left >= 1_000
        if roomy and look == "full" and call.held_since is None and self._may_hold(call, now) and not self._smaller_first(call):
            return self._hold(call, now)
        if small and not (look == "not_before" and self.h.spills >= 2 and answer.step != "smaller_model"):
            found = self._ladder(call, now, answer, first=True)
            self.h.spills += look == "not_before" and found is not None and found.step == "smaller_model"
        else:
            found = self._silent_ladder(call, answer)
        return found or self._fail(call)

    def _may_hold(self, call: Call, now: int) -> bool:
        """Some route of the workflow may serve within hold_ms."""
        spec = self.spec
        if spec.hold_ms == 0 or "wait" in call.unable or (call.held_since is not None and now - call.held_since >= spec.hold_ms):
            return False
        names = [spec.primary] + [s.route for s in spec.standins if s.approved]
        looks = [self.h.look(n, now) for n in names]
        return any(word == "full" or (word in ("open", "not_before") and wait <= spec.hold_ms) for word, wait in looks)

    def _smaller_first(self, call: Call) -> bool:
        return any(r["step"] == "smaller_model" for r in self.spec.ladder)

    def _hold(self, call: Call, now: int) -> Decision:
        call.pending = Pending("first", self.spec.primary, now)
        call.held_since = now if call.held_since is None else call.held_since
        return Decision("hold", wait=(0, self.spec.hold_ms))

    def _first_standin(self, call: Call, now: int, answer: Any, outside: str) -> Decision | None:
        if "reroute" in call.unable:
            return None
        for s in self.spec.standins:
            if s.ladder_only or not s.approved or not self._candidate(call, now, answer, s.route, s.drop_ppm, outside, False, True):
                continue
            call.pending = Pending("first", s.route, now)
            return Decision("proceed", s.route, wait=(0, 0), reason=frozenset(("primary_out",)) | ANY)
        return None


ANY = frozenset(("*",))
