"""Engine and model side by side, step by step; a difference is shrunk and shown with both views."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from random import Random
from typing import Any

from .call import Call, Decision
from .cards import BASE_MS, Spec, make
from .model import Model
from .streams import Driver

LATCHES = {"": "none", "key": "key_latched", "quota": "quota_latched", "model": "model_latched"}  # in the words of a route's view


@dataclass
class Outcome:
    ops: list[dict[str, Any]] = field(default_factory=list)
    answers: list[Any] = field(default_factory=list)
    wants: list[Any] = field(default_factory=list)
    difference: str | None = None
    kinds: dict[str, int] = field(default_factory=dict)


def stream(seed: int) -> tuple[dict[str, Any], Spec, Driver]:
    rng = Random(seed)
    card, spec = make(rng)
    return card, spec, Driver(rng, spec, rng.choice((8, 10, 12, 14)))


def differ(want: Decision, got: Any, call: Call, slack: int) -> str | None:
    """The first thing in which the answers differ, or None."""
    if got.error:
        return f"the engine answered {got.error}"
    if want.action != got.action:
        return f"action: model {want.action}, engine {got.action}"
    if want.route is not None and want.action != "accept" and want.route != got.route:
        return f"route: model {want.route}, engine {got.route}"
    if want.step is not None and want.step != got.step:
        return f"ladder step: model {want.step}, engine {got.step}"
    if want.wait is not None and want.action != "proceed":
        low, high = want.wait
        if not low - slack <= got.wait_ms <= high + slack:
            return f"wait: model [{low}, {high}], engine {got.wait_ms}"
    if want.reason and "*" not in want.reason and got.reason not in want.reason:
        return f"reason: model {sorted(want.reason)}, engine {got.reason}"
    if want.owner is not None and got.owner != want.owner:
        return f"owner: model {want.owner}, engine {got.owner}"
    if want.final:
        return None
    if want.attempts_left is not None and got.attempts_left != want.attempts_left:
        return f"attempts_left: model {want.attempts_left}, engine {got.attempts_left}"
    if want.elapsed_left is None:
        if got.elapsed_left is not None:
            return f"elapsed_left_ms: model no limit, engine {got.elapsed_left}"
    elif got.elapsed_left is None or abs(got.elapsed_left - want.elapsed_left[0]) > slack:
        return f"elapsed_left_ms: model {want.elapsed_left[0]}, engine {got.elapsed_left}"
    if got.action == "proceed" and got.first_token_ms and got.first_token_ms > call.first_token_ms(want.route or ""):
        return f"first_token_ms: model at most {call.first_token_ms(want.route or '')}, engine {got.first_token_ms}"
    return None


def one(model: Model, side: Any, op: dict[str, Any], out: Outcome, slack: int) -> tuple[str | None, Any]:
    got = side.apply(op)
    want = model.apply(op, got)
    call = model.calls[op["call"]]
    out.answers.append(got)
    out.wants.append(want)
    if got is not None:
        out.kinds[got.action] = out.kinds.get(got.action, 0) + 1
    if want is not None and got is not None:
        found = differ(want, got, call, slack)
        if found:
            return found, got
        if want.wait is not None and call.pending is not None and not want.loose:
            call.pending.at = model.high + got.wait_ms
    now = model.high
    for name, r in model.h.route.items():
        state, until, latch, latch_for, balance = side.route(name)
        dark, dark_for = model.h.latches.shown(name, now)
        if LATCHES[dark] != latch or abs(dark_for - latch_for) > slack:
            return f"latch of {name}: model {dark or 'none'} for {dark_for}, engine {latch} for {latch_for}", got
        if r.bucket_soft:
            model.adopt_balance(call, name, balance, now)
        elif abs(model.h.balance(name, now) - balance) > slack:
            return f"bucket of {name}: model {model.h.balance(name, now)}, engine {balance}", got
        if r.soft:
            model.adopt(name, state, until, now)
            continue
        rest = max(0, r.until - now) if r.state == "open" else 0
        if r.state != state or abs(rest - until) > slack:
            return f"breaker of {name}: model {r.state} for {rest}, engine {state} for {until}", got
    return None, got


def run(spec: Spec, side: Any, ops: list[dict[str, Any]] | None, driver: Driver | None) -> Outcome:
    """Replay `ops`, or let the driver choose until the stream ends."""
    out = Outcome()
    model: Model | None = None
    slack = 0
    while True:
        if ops is not None:
            op = ops[len(out.ops)] if len(out.ops) < len(ops) else None
        else:
            assert driver is not None
            op = driver.next(model if model is not None else Model(spec, driver.now))
        if op is None:
            return out
        if model is None:
            model = Model(spec, BASE_MS)
        if op["op"] != "begin" and op["call"] not in model.calls:
            out.ops.append(op)
            continue
        if op["t"] < model.high:
            slack += model.high - op["t"]
        out.ops.append(op)
        found, got = one(model, side, op, out, slack)
        if driver is not None:
            driver.note(op, got)
        if found:
            out.difference = found
            return out


def shrink(card: dict[str, Any], spec: Spec, seed: int, ops: list[dict[str, Any]], new_side: Any, word: str) -> Outcome:
    """Drop operations one by one as long as a difference of the same kind stays."""
    best = run(spec, new_side(card, seed), ops, None)
    if best.difference is None:
        return best
    i = 0
    while i < len(ops):
        fewer = ops[:i] + ops[i + 1:]
        try:
            tried = run(spec, new_side(card, seed), fewer, None)
        except Exception:  # an operation that makes no sense without the dropped one
            i += 1
            continue
        if tried.difference is not None and tried.difference.split(":")[0] == word.split(":")[0]:
            ops, best = tried.ops, tried
        else:
            i += 1
    return best


def brief(card: dict[str, Any]) -> dict[str, Any]:
    """The card without what is the same in every card."""
    small: dict[str, Any] = json.loads(json.dumps(card))
    for route in small["routes"].values():
        for key in ("base_url", "model"):
            route.pop(key, None)
    small["contracts"] = [f"{c['route']}: {c['evidence']['expires_at'][:7]} {c['fingerprint'][7:11]} {c['evidence']['score_ppm']} {c.get('price')} {[c['evidence'][k]['model'] for k in ('route', 'primary') if k in c['evidence']]}" for c in card.get("contracts", ())]
    return small


def show(card: dict[str, Any], spec: Spec, seed: int, out: Outcome, base: int, short: bool = False) -> str:
    lines = [f"stream {seed}: {out.difference}", "card: " + json.dumps(brief(card) if short else card, separators=(",", ":"))]
    for i, op in enumerate(out.ops):
        what = {k: v for k, v in op.items() if k not in ("t", "call", "op", "in")}
        given = "" if op["op"] == "failure" else json.dumps(op.get("in", {}))
        lines.append(f"  t={op['t'] - base} {op.get('call', '')} {op['op']} {what or ''} {given}")
        if i < len(out.answers):
            lines.append(f"      engine: {out.answers[i] or '-'}")
            lines.append(f"      model:  {out.wants[i] or '-'}")
    return "\n".join(lines)
