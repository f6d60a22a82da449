"""Invents traffic of which everything is known: calls, attempts, what each was
billed. Its ledgers and exports (exports.py) test `fivegates reconcile`, with
which it shares no code.

A call is sent, may fail, is sent again. An attempt that times out may have
been finished and billed all the same. Noise, each kind on its own: rows that
come late, clocks that differ, other software's requests on the key, lines of
the ledger that are not there.
"""

from __future__ import annotations

import dataclasses
import json
import random
import typing

START = 1_793_620_800  # 2026-11-02T12:00:00Z
IN, READ, OUT = 2_500_000, 250_000, 15_000_000  # picos of a token


@dataclasses.dataclass
class Attempt:
    """Times in seconds of Unix time, of the host's clock; ends_s is when the
    provider was done. outcome: served, timeout, cut or refused."""

    call: "Call"
    n: int
    start: float
    end: float
    ends: float
    outcome: str
    billed: bool
    read: int = 0
    out: int = 0
    id: str = ""
    late: bool = False  # its row is not in the export yet

    @property
    def picos(self) -> int:
        return ((self.call.size - self.read) * IN + self.read * READ + self.out * OUT
                if self.billed else 0)


@dataclasses.dataclass
class Call:
    name: str
    size: int  # prompt tokens
    attempts: "list[Attempt]" = dataclasses.field(default_factory=list)
    in_ledger: bool = True

    @property
    def wasted(self) -> int:
        """Picos of the attempts that were billed and not served."""
        return sum(one.picos for one in self.attempts if one.outcome != "served")


@dataclasses.dataclass
class World:
    calls: "list[Call]"
    foreign: "list[Attempt]"
    skew: float
    lines_lost: int = 0

    @property
    def billed(self) -> "list[Attempt]":
        """What the provider counted, in the order of its clock."""
        ours = [one for call in self.calls for one in call.attempts if one.billed]
        return sorted(ours + self.foreign, key=lambda one: one.start)

    @property
    def doubles(self) -> "dict[str, int]":
        """Calls with something paid for nothing, and how many picos."""
        return {call.name: call.wasted for call in self.calls
                if any(one.billed and one.outcome != "served" for one in call.attempts)}


def make(seed: int, calls: int = 40, *, seconds: int = 3000, fails: float = 0.25,
         billed: float = 0.5, templates: int = 0, late: float = 0,
         skew: float = 0, foreign: float = 0, missing: float = 0) -> World:
    """A world of so many calls in so many seconds.

    fails: share of attempts that fail; billed: share of timeouts that were
    billed; templates: prompts have only so many sizes (0: any). late, foreign,
    missing: shares of the calls; skew: seconds between the two clocks.
    """
    rng = random.Random(seed)
    sizes = [rng.randrange(300, 9000) for _ in range(templates)]
    out = []
    for i in range(calls):
        call = Call(f"fg-{seed & 0xffff:04x}{i:012x}",
                    rng.choice(sizes) if sizes else rng.randrange(300, 9000))
        at = START + 300 + rng.random() * seconds
        for n in range(1, 4):
            one = _attempt(rng, call, n, at, fails if n < 3 else 0, billed)
            call.attempts.append(one)
            one.late = rng.random() < late
            at = one.end + 0.5 + rng.random() * 2
            if one.outcome == "served" or rng.random() < 0.1:
                break
        call.in_ledger = rng.random() >= missing
        out.append(call)
    others = []
    for i in range(int(foreign * calls)):
        call = Call(f"other-{i}", rng.choice(sizes) if sizes else rng.randrange(300, 9000))
        others.append(_attempt(rng, call, 1, START + 300 + rng.random() * seconds, 0, 1))
    return World(out, others, skew * rng.choice((-1, 1)))


def _attempt(rng: random.Random, call: Call, n: int, at: float, fails: float,
             billed: float) -> Attempt:
    took = 1 + rng.random() * 12
    ident = f"gen-{rng.getrandbits(64):016x}"
    out = rng.randrange(20, 900)
    read = rng.choice((0, 0, call.size // 2)) if n > 1 else 0
    if rng.random() >= fails:
        return Attempt(call, n, at, at + took, at + took, "served", True, read, out, ident)
    kind = rng.choice(("timeout", "timeout", "cut", "refused"))
    if kind == "refused":
        return Attempt(call, n, at, at + 0.3, at + 0.3, kind, False)
    paid = rng.random() < billed
    # What is cut has an id: its head came. What timed out has none.
    return Attempt(call, n, at, at + min(took, 5), at + took + 4, kind, paid,
                   0, out if paid else 0, ident if kind == "cut" else "")


# ---- ledgers


def core_ledger(world: World, provider: str, model: str, usage: bool = True,
                drop: "typing.Callable[[], bool]" = lambda: False) -> str:
    """The world as the core writes it; usage: with what the answer reported.
    drop() says of each line whether it is lost."""
    lines: "list[tuple[float, str]]" = []

    def add(at: float, line: str, call: Call, **more: object) -> None:
        if drop():
            world.lines_lost += 1
            return
        lines.append((at, json.dumps({
            "line": line, "v": 1, "unix_ms": round(at * 1000), "now_ms": 1,
            "workflow": "w", "call": call.name, "step": 0, "policy": "sha256:0",
            **more}, separators=(",", ":"))))

    for call in world.calls:
        if not call.in_ledger:
            continue
        route = {"gen_ai.provider.name": provider, "gen_ai.request.model": model}
        tail = {"timeouts": None, "request_changes": {}, "rejected": []}
        add(call.attempts[0].start, "call", call, prompt_tokens=call.size * 21 // 20,
            **{"gen_ai.request.max_tokens": 1000})
        tokens = 0
        for one in call.attempts:
            hold = call.size * 21 // 20 + 1000
            add(one.start, "decision", call, **route, billing="none", tokens=tokens + hold,
                cost_usd="0", held_usd="0", action="proceed", route="main",
                attempt=one.n, kind="unknown", **tail)
            used: "dict[str, object]" = {}
            if one.outcome == "served":
                tokens += call.size + one.out
                if usage:
                    used = {"gen_ai.usage.input_tokens": call.size,
                            "gen_ai.usage.output_tokens": one.out,
                            "gen_ai.usage.cache_read.input_tokens": one.read}
            elif one.outcome != "refused":
                tokens += hold
            if one.id and usage:
                used["gen_ai.response.id"] = one.id
            add(one.end, "decision", call, **(route if one.outcome == "served" else {}),
                billing={"served": "certain", "refused": "none", "cut": "likely",
                         "timeout": "possible"}[one.outcome],
                tokens=tokens, cost_usd="0", **used,
                action="accept" if one.outcome == "served" else "retry",
                route="main", attempt=one.n + (one.outcome != "served"),
                kind={"served": "unknown", "refused": "rate_limited", "cut": "stream_cut",
                      "timeout": "read_timeout"}[one.outcome], **tail)
        add(call.attempts[-1].end, "end", call, result="x", tokens=tokens)
    lines.sort(key=lambda line: line[0])
    return "".join(line + "\n" for _, line in lines)


def log_ledger(world: World, provider: str, model: str) -> str:
    """The world as the plain log of attempts."""
    lines: "list[tuple[float, str]]" = []
    for call in world.calls:
        if not call.in_ledger:
            continue
        for one in call.attempts:
            served = one.outcome == "served"
            both = {"v": 1, "op": call.name, "attempt": one.n}
            lines.append((one.start, json.dumps({
                **both, "ev": "attempt.start", "ts": iso(one.start),
                "provider": provider, "model": model, "api_key_id": "k1",
                "prompt_hash": call.name, "input_est": call.size * 21 // 20,
                "max_output": 1000})))
            lines.append((one.end, json.dumps({
                **both, "ev": "attempt.end", "ts": iso(one.end),
                "status": 200 if one.id else 429 if one.outcome == "refused" else None,
                "error_type": None if served else one.outcome,
                "commit": "none" if one.outcome == "refused" else "committed" if one.id else "unknown",
                "response_id": one.id or None, "provider_request_id": None,
                "usage": {"input_total": call.size, "cache_read": one.read,
                          "cache_write": 0, "output": one.out} if served else None})))
    lines.sort(key=lambda line: line[0])
    return "".join(line + "\n" for _, line in lines)


def iso(at: float) -> str:
    import datetime
    return datetime.datetime.fromtimestamp(
        round(at, 3), datetime.timezone.utc).isoformat(timespec="milliseconds")
