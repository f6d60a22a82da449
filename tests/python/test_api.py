"""The types of fivegates._core, as a program uses them."""

from __future__ import annotations

import gc
import json
import pathlib
import typing

import pytest

import fivegates
from fivegates.testing import ManualClock

from .conftest import UNIX_MS


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(unix_ms=UNIX_MS)


@pytest.fixture
def engine(policy: fivegates.Policy, clock: ManualClock) -> fivegates.Engine:
    return fivegates.Engine(policy, seed=1, clock=clock)


FACTS: "dict[str, typing.Any]" = {"prompt_tokens": 900,
                                  "max_output_tokens": 300}


def sent(engine: fivegates.Engine, workflow: str = "w",
         **facts: typing.Any) -> fivegates.Call:
    call = engine.begin(workflow, **{**FACTS, **facts})
    assert call.begin_attempt().action == "proceed"
    call.event("sent")
    return call


def test_version() -> None:
    assert fivegates.__version__.count(".") == 2


def test_policy(policy: fivegates.Policy) -> None:
    assert policy.routes() == ("main", "backup")
    assert policy.workflows() == ("w", "bare", "batch")
    assert policy.fingerprint.startswith("sha256:")
    assert len(policy.fingerprint) == 71
    assert policy.nbytes > 100
    info = policy.route("main")
    assert info["model"] == "m1"
    assert info["provider"] == "openai"
    assert info["base_url"] == "http://127.0.0.1:1/v1"
    assert info["key_env"] == "KEY_A"
    assert info["price_nusd_per_million"]["input"] == 2_500_000_000
    assert policy.contract("w", "backup")["approved"] is True
    with pytest.raises(fivegates.ArgumentError):
        policy.contract("bare", "backup")
    assert all({"path", "message", "line", "column"} <= set(one)
               for one in policy.lint())
    assert "3 workflows" in repr(policy)


def test_policy_sources(card: "dict[str, typing.Any]",
                        tmp_path: pathlib.Path) -> None:
    card.pop("contracts")
    text = json.dumps(card)
    file = tmp_path / "card.json"
    file.write_text(text)
    yaml_file = tmp_path / "card.yaml"
    yaml_file.write_text(text)
    prints = {fivegates.Policy(source).fingerprint for source in (
        card, text, file, str(file), yaml_file)}
    prints.add(fivegates.Policy.load(file).fingerprint)
    prints.add(fivegates.Policy.loads(text).fingerprint)
    prints.add(fivegates.Policy.loads(text.encode()).fingerprint)
    prints.add(fivegates.Engine(file).policy.fingerprint)
    assert len(prints) == 1


def test_a_call_that_succeeds(engine: fivegates.Engine,
                              clock: ManualClock) -> None:
    call = sent(engine)
    assert call.decision.action == "proceed"
    clock.advance(300)
    call.event("accepted")
    call.event("token", 10)
    clock.advance(500)
    call.event("terminal", "stop")
    decision = call.success(prompt_tokens=900, output_tokens=100,
                            finish_reason="stop", output="hello")
    assert decision.action == "accept"
    view = engine.route("main")
    assert view["attempts"] == view["successes"] == 1
    assert view["breaker"] == "closed"
    assert engine.workflow("w")["primary_success"] == 1


def test_retry_then_fallback(engine: fivegates.Engine,
                             clock: ManualClock) -> None:
    call = sent(engine)
    clock.advance(50)
    busy = {"phase": "response", "status": 503, "body": json.dumps(
        {"error": {"code": "server_is_overloaded", "message": "overloaded"}})}
    decision = call.failure(busy)
    assert (decision.action, decision.route) == ("retry", "main")
    assert decision.owner == "transient"
    hold = call.begin_attempt()
    if decision.wait_ms:
        assert hold.action == "hold"
        clock.advance(hold.wait_ms)
        assert call.begin_attempt().action == "proceed"
    call.event("sent")
    decision = call.failure(busy)
    assert (decision.action, decision.route) == ("fallback", "backup")
    clock.advance(decision.wait_ms)
    permit = call.begin_attempt()
    assert permit.action == "proceed"
    assert permit.requested == "main"
    assert permit.label is not None and permit.label["served"] == "backup"


def test_decision_fields(engine: fivegates.Engine) -> None:
    decision = sent(engine).decision
    fields = [name for name in dir(decision) if not name.startswith("_")]
    values = {name: getattr(decision, name) for name in fields}
    assert values["attempt"] == 1
    assert values["timeouts"]["total_ms"] == values["total_ms"]
    assert values["rejected"] == []
    assert values["request_changes"] == {}
    assert values["change"] == values["alert"] == []
    assert values["ladder_step"] is None
    assert values["cost_left_nusd"] is None or values["cost_left_nusd"] > 0
    as_dict = decision.to_dict()
    assert as_dict == json.loads(decision.json())
    for name in ("action", "route", "attempt", "wait_ms", "wake_ms", "reason",
                 "detail", "gate", "owner", "kind", "attempts_left",
                 "elapsed_left_ms", "tokens_left", "cost_left_nusd", "timeouts",
                 "request_changes", "resume_from", "cancel", "reuse_ops",
                 "ladder_step", "lookup", "repair", "alert", "may_pay_twice",
                 "user", "http_hint", "label", "rejected", "max_age_s"):
        assert as_dict[name] == values[name], name
    assert "proceed" in repr(decision)
    assert decision.explain().count("\n") >= 5


def test_decision_matches(engine: fivegates.Engine) -> None:
    match sent(engine).decision:
        case fivegates.Decision("proceed", route):
            assert route == "main"
        case _:
            pytest.fail("no match")


def test_no_instances_of_answers() -> None:
    for kind in (fivegates.Decision, fivegates.Failure, fivegates.Call):
        with pytest.raises(TypeError):
            kind()
    with pytest.raises((AttributeError, TypeError)):
        fivegates.Policy.load = None  # type: ignore[method-assign, assignment]


def test_preset_text_by_language(engine: fivegates.Engine) -> None:
    for language, text in (("de", "Leider."), ("en", "Sorry."), (None, "Sorry.")):
        call = sent(engine, language=language, unable=["cache", "reroute"])
        decision = call.failure({"phase": "read", "transport": {
            "lib": "httpx", "kind": "ReadTimeout", "message": ""}})
        assert (decision.action, decision.ladder_step) == ("degrade", "preset")
        assert decision.text == text
        assert decision.user["text"] == "Sorry."


def test_unable(engine: fivegates.Engine) -> None:
    call = sent(engine)
    evidence = {"phase": "read", "transport": {"lib": "httpx",
                                               "kind": "ReadTimeout"}}
    decision = call.failure(evidence)
    assert decision.action == "fallback"
    decision = call.unable("reroute")
    assert decision.ladder_step == "cached"
    decision = call.unable(["cache", "preset"])
    assert decision.action == "fail_closed"


def test_tool_effects(engine: fivegates.Engine) -> None:
    evidence = {"phase": "read", "transport": {"lib": "httpx",
                                               "kind": "ReadTimeout"}}
    call = sent(engine)
    call.tool("op-1", "started")
    decision = call.failure(evidence)
    assert decision.reason == "reconcile_first"
    call = sent(engine)
    call.tool("op-1", "committed")
    assert call.failure(evidence).reason == "effect_committed"
    call = sent(engine)
    call.tool("op-1", "started", True)
    assert call.failure(evidence).action in ("retry", "fallback")


def test_cancel_and_end(engine: fivegates.Engine) -> None:
    call = sent(engine)
    assert engine.route("main")["in_flight"] == 1
    decision = call.cancel()
    assert (decision.action, decision.reason) == ("fail_closed", "client_gone")
    assert engine.route("main")["in_flight"] == 0
    call = sent(engine)
    call.end()
    call.end()
    assert engine.route("main")["in_flight"] == 0


def test_dropping_a_call_ends_it(engine: fivegates.Engine) -> None:
    call = sent(engine)
    kept = call.decision
    assert engine.route("main")["in_flight"] == 1
    del call
    gc.collect()
    assert engine.route("main")["in_flight"] == 0
    assert "proceed" in kept.json()  # a decision outlives its call
    assert kept.explain()


def test_save_and_resume(engine: fivegates.Engine, clock: ManualClock) -> None:
    call = sent(engine, call_id="job-1")
    saved = call.save()
    with pytest.raises(fivegates.StateError):
        call.begin_attempt()
    del call
    gc.collect()
    assert engine.route("main")["in_flight"] == 1
    call = engine.resume(saved)
    assert call.id == "job-1"
    clock.advance(10)
    assert call.success(output_tokens=5, prompt_tokens=5,
                        output="x").action == "accept"
    for bad in (b"", b"xx", saved[:-1], b"x" + saved[1:], saved + b"x"):
        with pytest.raises(fivegates.ArgumentError):
            engine.resume(bad)
    with pytest.raises(fivegates.FivegatesError):
        engine.resume(saved[:-1024] + b"\xff" * 1024)
    for at in range(len(saved)):  # no bit may change on the way
        bad_bit = bytes([saved[at] ^ 1 << at % 8])
        with pytest.raises(fivegates.ArgumentError):
            engine.resume(saved[:at] + bad_bit + saved[at + 1:])


def test_steps(engine: fivegates.Engine) -> None:
    call = sent(engine)
    call.tool("op-1", "committed")
    assert call.success(output_tokens=5, prompt_tokens=5,
                        output="x").action == "accept"
    decision = call.step(1000, 200)
    assert decision.action == "proceed"
    call.begin_attempt()
    decision = call.failure({"phase": "response", "status": 503, "body": ""})
    assert decision.action == "retry"
    assert decision.resume_from == "step"


def test_reload_keeps_history(engine: fivegates.Engine,
                              card: "dict[str, typing.Any]") -> None:
    old = sent(engine)
    card["workflows"]["more"] = {"routes": ["main"]}
    policy = fivegates.Policy.loads(card, auto_fingerprint=True)
    new = engine.reload(policy)
    assert new.region is engine.region
    assert new.route("main")["attempts"] == 1
    assert new.begin("more").decision.action == "proceed"
    assert old.success(output_tokens=1, prompt_tokens=1,
                       output="x").action == "accept"
    assert new.route("main")["successes"] == 1


def test_same_seed_same_answers(policy: fivegates.Policy) -> None:
    def play(seed: int) -> "list[str]":
        clock = ManualClock(unix_ms=UNIX_MS)
        engine = fivegates.Engine(policy, seed=seed, clock=clock)
        out = []
        for _ in range(5):
            call = sent(engine)
            out.append(call.id + call.failure(
                {"phase": "response", "status": 503}).json())
        return out

    assert play(1) == play(1)
    assert play(1) != play(2)


def test_ids_differ(policy: fivegates.Policy) -> None:
    one, two = fivegates.Engine(policy), fivegates.Engine(policy)
    ids = {engine.begin("w").id for engine in (one, two) for _ in range(500)}
    assert len(ids) == 1000
    assert len({engine.begin("w").id for engine in (
        one, one.reload(policy), one.reload(policy)) for _ in range(5)}) == 15


def test_ledger_lines(engine: fivegates.Engine) -> None:
    call = sent(engine, tenant="t1", data_class="public")
    lines = [json.loads(call.ledger_line(word)) for word in
             ("call", "decision", "end")]
    assert [one["line"] for one in lines] == ["call", "decision", "end"]
    assert {one["call"] for one in lines} == {call.id}
    assert "t1" not in call.ledger_line("call")
    line = call.ledger_line("decision", call.decision)
    assert json.loads(line)["action"] == "proceed"


def test_ledger_ids_stand_where_an_attempt_ended(engine: fivegates.Engine) -> None:
    call = sent(engine)
    ids = {"response_id": "gen-1", "request_id": "req_2"}
    keys = ("gen_ai.response.id", "server_request_id")
    begun = json.loads(call.ledger_line("decision", **ids))
    assert not set(keys) & set(begun)  # nothing has ended yet
    failed = call.failure({"status": 503})
    plain = call.ledger_line("decision", failed)
    line = json.loads(call.ledger_line("decision", failed, **ids))
    assert [line.pop(key) for key in keys] == ["gen-1", "req_2"]
    assert line == json.loads(plain)
    assert plain == call.ledger_line("decision", failed, response_id=None)
    end = call.ledger_line("end", failed, **ids)
    assert not set(keys) & set(json.loads(end))


@pytest.mark.parametrize("id", ["", " ", "a b", "a\nb", "x" * 129, "\u00e9",
                                "\udc80", "a\x7f", "a\x00b"])
def test_a_text_that_is_no_id_is_left_out(engine: fivegates.Engine, id: str) -> None:
    call = sent(engine)
    failed = call.failure({"status": 503})
    assert (call.ledger_line("decision", failed, response_id=id, request_id=id)
            == call.ledger_line("decision", failed))
    whole = call.ledger_line("decision", failed, request_id="x" * 128)
    assert json.loads(whole)["server_request_id"] == "x" * 128


def test_tick_and_clock(policy: fivegates.Policy, clock: ManualClock) -> None:
    engine = fivegates.Engine(policy, clock=lambda: clock.now_ms, seed=1)
    call = engine.begin("w", unable=["cache", "preset"], **FACTS)
    call.begin_attempt()
    failed = call.failure({"phase": "read", "transport": {
        "lib": "httpx", "kind": "ReadTimeout"}})
    assert failed.rejected[-1]["why"] == "no_wall_clock"
    engine.clock(UNIX_MS)
    assert engine.tick() >= 0
    call = sent(engine)
    decision = call.failure({"phase": "read", "transport": {
        "lib": "httpx", "kind": "ReadTimeout"}})
    assert decision.action == "fallback"
    assert engine.now_ms() == clock.now_ms


def test_now_ms_argument(policy: fivegates.Policy) -> None:
    engine = fivegates.Engine(policy, clock=lambda: 5_000_000)
    call = engine.begin("w", now_ms=5_000_000)
    call.begin_attempt(now_ms=5_000_010)
    call.event("sent", now_ms=5_000_020)
    assert call.deadline(now_ms=5_000_030).action == "keep_waiting"
    assert engine.route("main", now_ms=5_000_030)["in_flight"] == 1


def test_an_empty_path_is_no_region(policy: fivegates.Policy) -> None:
    """os.environ.get("REGION", "") must not mean: shared with nobody."""
    with pytest.raises(ValueError, match="empty"):
        fivegates.Region("")
    with pytest.raises(ValueError, match="empty"):
        fivegates.Engine(policy, region="")


def test_region_file(policy: fivegates.Policy, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "region"
    one = fivegates.Engine(policy, region=path, seed=1)
    two = fivegates.Engine(policy, region=str(path), seed=2)
    assert one.region.path is not None
    assert one.region.path.startswith(str(path))
    assert one.region.warning is None
    sent(one).success(output_tokens=1, prompt_tokens=1, output="x")
    assert two.route("main")["attempts"] == 1
    assert fivegates.Region().path is None


def test_classify() -> None:
    failure = fivegates.classify({
        "provider": "openai", "status": 429, "phase": "response",
        "headers": [("Retry-After", "2"), ("Content-Type", "application/json")],
        "body": b'{"error": {"code": "rate_limit_exceeded"}}'})
    assert failure.owner == "rate"
    assert failure.retry_after_ms == 2000
    assert failure.class_ == "rate"
    assert failure.should_retry is None
    assert failure.why
    assert failure.to_dict()["class"] == "rate"
    match failure:
        case fivegates.Failure("rate", kind):
            assert kind == "rate_limited"
    assert "rate" in repr(failure)
    assert fivegates.classify({}).owner == "unknown"


def test_decide() -> None:
    facts: "dict[str, typing.Any]" = {
        "stage": "failure", "flags": ["streamed"],
        "safe_until": "first_visible_token", "after_silence": "any",
        "billing": "none", "attempts_left": 3, "resends_left": 3,
        "class_left": 1, "elapsed_left_ms": 9000, "tokens_left": None,
        "cost_left_nusd": None, "backoff_ms": 400,
        "failure": {"owner": "transient", "kind": "unavailable",
                    "class": "server", "flags": ["trips_breaker"]},
        "candidates": [{"route": 1, "flags": ["primary"], "sends_left": 1,
                        "estimate_ms": 500, "first_token_ms": 1000}]}
    decision = fivegates.decide(facts)
    assert (decision.action, decision.route_id) == ("retry", 1)
    assert decision.wait_ms == 400
    assert decision.tokens_left is None
    facts["failure"]["owner"] = "request"
    assert fivegates.decide(facts).action == "fail_closed"
    assert json.loads(decision.json())["action"] == "retry"


def test_names_and_gates() -> None:
    actions = fivegates.names("action")
    assert actions["fail_closed"] == 0
    assert list(fivegates.names("load"))[:2] == ["none", "syntax"]
    assert fivegates.gate_of("may_have_run") == "commit"
    for reason in fivegates.names("reason"):
        assert fivegates.gate_of(reason) in fivegates.names("gate")


def test_sse_scanner() -> None:
    scanner = fivegates.SseScanner("chat")
    assert scanner.response_id() is None
    text = ('data: {"id":"chatcmpl-1","choices":[{"index":0,"delta":'
            '{"content":"hi"},"finish_reason":null}]}\n\n'
            'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],'
            '"usage":{"prompt_tokens":9,"completion_tokens":2}}\n\n'
            'data: [DONE]\n\n')
    saw = 0
    for byte in text.encode():
        saw |= scanner.feed(bytes([byte]))
    assert saw & fivegates.SAW_TOKEN
    assert saw & fivegates.SAW_TERMINAL
    answer = scanner.answer()
    assert answer["finish_reason"] == "stop"
    assert answer["prompt_tokens"] == 9
    assert answer["output_tokens"] == 2
    assert scanner.evidence()["progress"]["visible"] > 0
    assert scanner.response_id() == "chatcmpl-1"
    whole = fivegates.SseScanner("chat", whole=True)
    assert whole.feed(bytearray(b'{"error": {"message": "x"}}')) & (
        fivegates.SAW_ERROR)


def test_explain_names_the_routes_a_budget_refused(
        card: "dict[str, typing.Any]") -> None:
    """A stand-in that would cost too much is not passed over in silence."""
    card["workflows"]["w"].update(budget={"extra_tokens": 0}, ladder=[])
    engine = fivegates.Engine(fivegates.Policy.loads(
        card, auto_fingerprint=True))
    call = engine.begin("w", prompt_tokens=10, max_output_tokens=10)
    call.begin_attempt()
    call.event("sent")
    decision = call.failure({"phase": "response", "status": 500})
    assert decision.action == "fail_closed"
    assert ("refused: main: tokens_exhausted, backup: tokens_exhausted"
            in decision.explain())
