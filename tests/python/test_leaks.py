"""Nothing leaks: each script runs in a process of its own and compares what
is allocated, and the references of shared objects, before and after."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from .conftest import CARD

HEAD = """
import gc, json, sys, tracemalloc
import fivegates
from fivegates.testing import FakeProvider, ManualClock, ProviderError

CARD = json.loads(sys.argv[1])
policy = fivegates.Policy.loads(CARD, auto_fingerprint=True)
clock = ManualClock(unix_ms=1796000000000)
engine = fivegates.Engine(policy, seed=1, clock=clock)
"""
TAIL = """
def measure(rounds):
    for _ in range(rounds):
        work()
    gc.collect()
    return tracemalloc.get_traced_memory()[0], [
        sys.getrefcount(one) for one in (policy, engine, engine.region,
            fivegates.Call, fivegates.Decision, fivegates.Failure,
            fivegates.Policy, fivegates.Engine, fivegates.SseScanner)]

tracemalloc.start()
measure(300)
before, refs = measure(50)
sizes = [before]
for _ in range(3):
    after, refs_after = measure(500)
    sizes.append(after)
# Free lists fill by and by; a leak shows each time. The smallest object is 16
# bytes: one a round would be 8,000.
grown = min(b - a for a, b in zip(sizes, sizes[1:]))
assert grown < 6000, f"{grown} bytes more after 500 rounds"
assert all(b - a < 20 for a, b in zip(refs, refs_after)), (refs, refs_after)
"""
WORK = {
    "calls": """
def work():
    call = engine.begin("w", prompt_tokens=9, max_output_tokens=9,
                        features=["tools"], tools=["a", "b"], tool_choice="a",
                        language="de", tenant="t", prior={"tokens": 1})
    call.begin_attempt(); call.event("sent"); call.event("token", 3)
    call.tool("op", "requested"); call.usage(output_tokens=2)
    call.deadline(); call.decision.rejected
    call.success(output="x", prompt_tokens=9, output_tokens=2,
                 tool_calls=[{"id": "1", "name": "a", "arguments": "{}"}])
    call.ledger_line("call"); call.ledger_line("decision"); call.ledger_line("end")
""",
    "decisions": """
def work():
    call = engine.begin("w")
    d = call.begin_attempt()
    for name in dir(d):
        if not name.startswith("__"):
            getattr(d, name)
    d.json(); d.to_dict(); d.explain(); repr(d)
    call.cancel()
""",
    "failures": """
def work():
    f = fivegates.classify({"status": 429, "phase": "response",
        "headers": {"retry-after": "2", **{f"h{i}": str(i) for i in range(60)}},
        "body": '{"error": {"code": "x"}}', "transport": {"lib": "httpx"},
        "progress": {"visible": 1}}, policy)
    f.to_dict(); repr(f); f.why
    call = engine.begin("w"); call.begin_attempt()
    call.failure({"status": 503, "phase": "response", "body": "\\ud800"})
""",
    "errors": """
def work():
    for bad in ({"status": "x"}, {"headers": [1]}, {"foo": 1}, {"headers": {
            "a": ["b", 5]}, "x": 1}, {"transport": {"code": "x"}}):
        try:
            fivegates.classify(bad)
        except (TypeError, ValueError):
            pass
    for bad in ("{", "version: 1", "a: [", '{"version": 1, "x": 2}'):
        try:
            fivegates.Policy.loads(bad)
        except fivegates.PolicyError:
            pass
    for facts in ({"tools": [1]}, {"prior": {"x": 1}}, {"call_id": "x" * 50}):
        try:
            engine.begin("w", **facts)
        except (TypeError, ValueError):
            pass
    call = engine.begin("w"); call.begin_attempt()
    for bad in ({"tool_calls": [{"x": 1}]}, {"cost_usd": "x"}, {"foo": 1}):
        try:
            call.success(**bad)
        except (TypeError, ValueError):
            pass
    try:
        fivegates.decide({"candidates": [{"x": 1}]})
    except TypeError:
        pass
""",
    "policies": """
def work():
    p = fivegates.Policy.loads(CARD, auto_fingerprint=True)
    p.lint(); p.route("main"); p.contract("w", "backup"); p.routes(); repr(p)
    e = engine.reload(p)
    e.begin("w").begin_attempt()
    e.route("main"); e.workflow("w"); e.tick()
    fivegates.Engine(p, clock=lambda: 5000000)
    fivegates.Region()
""",
    "cycles": """
def work():
    holder = []
    def tick():
        return clock.now_ms
    e = fivegates.Engine(policy, clock=tick, seed=3)
    tick.engine = e
    holder.append((e, e.begin("w"), e.begin("w").decision, holder))
    tick.holder = holder
""",
    "saved": """
def work():
    call = engine.begin("w"); call.begin_attempt()
    other = engine.resume(call.save()); other.decision; other.end()
    try:
        engine.resume(b"x")
    except fivegates.ArgumentError:
        pass
""",
    "scanner": """
def work():
    s = fivegates.SseScanner("chat")
    s.feed(b'data: {"choices":[{"delta":{"content":"x"}}]}\\n\\n')
    s.feed(bytearray(b"data: [DONE]\\n\\n")); s.answer(); s.evidence()
    fivegates.names("reason"); fivegates.gate_of("may_have_run")
""",
    "runs": """
def work():
    clock.slept.clear()
    engine.run("bare", FakeProvider("x", clock=clock), sleep=clock.sleep)
    for script in ((ProviderError(503), "x"), (ProviderError(400),)):
        send = FakeProvider(*script, clock=clock)
        try:
            engine.run("w", send, sleep=clock.sleep)
        except fivegates.Refused:
            pass
""",
}


@pytest.mark.parametrize("name", sorted(WORK))
def test_leaks(name: str) -> None:
    if os.environ.get("FIVEGATES_SANITIZE"):
        pytest.skip("sanitizers watch the memory themselves")
    done = subprocess.run(
        [sys.executable, "-c", HEAD + WORK[name] + TAIL, json.dumps(CARD)],
        capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
