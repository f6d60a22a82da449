"""The status page, as JSON, HTML and Prometheus text; hooks that break."""

from __future__ import annotations

import time
import typing

import httpx
import prometheus_client.parser
import pytest

from openresty.conftest import card_of
from openresty.gateway import Gateway
from openresty.upstream import OVERLOADED, Upstream, json_reply, whole

Run = typing.Callable[..., Gateway]
ASK: typing.Any = {"model": "model-of-main", "messages": [{"role": "user", "content": "hi"}]}
PAGES = """
location = /fivegates { content_by_lua_block { require("fivegates.resty.status").page() } }
location = /metrics { content_by_lua_block { require("fivegates.resty.status").metrics() } }
"""


def post(gateway: Gateway) -> httpx.Response:
    return httpx.post(f"{gateway.url}/v1/chat/completions", json=ASK)


def used(run: Run, **options: str) -> Gateway:
    """A gateway whose primary's breaker is open, after six calls."""
    upstream = Upstream(main=[json_reply(503, OVERLOADED)], backup=[whole()])
    gateway = run(upstream, workers=2, server=PAGES, **options)
    for _ in range(6):
        assert post(gateway).status_code == 200
    return gateway


def test_json(run: Run) -> None:
    gateway = used(run)
    told = httpx.get(f"{gateway.url}/fivegates").json()
    routes = {one["name"]: one for one in told["routes"]}
    assert routes["main"]["breaker"] == "open"
    assert routes["backup"]["successes"] == 6
    workflow, = told["workflows"]
    assert (workflow["name"], workflow["fallback_recovery"]) == ("w", 6)
    # Other processes' calls are in it.
    engine = gateway.engine()
    engine.begin("w", prompt_tokens=1).cancel()
    again = httpx.get(f"{gateway.url}/fivegates").json()
    assert again["workflows"][0]["calls"] == 7
    actions = [one["decision"]["action"] for one in again["recent"]]
    assert actions[-2:] == ["fallback", "retry"]  # the newest first
    assert len(actions) <= 32
    assert again["recent"] == httpx.get(f"{gateway.url}/fivegates").json()["recent"]


def test_page(run: Run) -> None:
    gateway = used(run)
    page = httpx.get(f"{gateway.url}/fivegates", headers={"accept": "text/html"})
    assert page.headers["content-type"].startswith("text/html")
    for word in ("main", "backup", "open for", "fallback", "overloaded"):
        assert word in page.text
    assert "key-of" not in page.text and "hi" not in page.text.split()


def test_metrics(run: Run) -> None:
    gateway = used(run)
    text = httpx.get(f"{gateway.url}/metrics").text
    values = {(one.name, *sorted(one.labels.values())): one.value
              for family in prometheus_client.parser.text_string_to_metric_families(
                  text) for one in family.samples}
    assert values["fivegates_region_calls_total", "fallback_recovery", "w"] == 6
    assert values["fivegates_region_breaker", "main", "open"] == 1
    assert values["fivegates_region_breaker", "closed", "main"] == 0
    assert values["fivegates_region_successes_total", "backup"] == 6
    assert values["fivegates_region_in_flight", "backup"] == 0


def test_hooks_that_break_break_no_call(run: Run) -> None:
    upstream = Upstream(main=[json_reply(503, OVERLOADED)],
                        backup=[json_reply(503, OVERLOADED)])
    gateway = run(upstream, {"ladder": [
        {"step": "cached", "max_age_s": 60},
        {"step": "preset", "text": {"en": "Sorry."}}]}, options="""
        on_decision = function() error("a bug in on_decision") end,
        cached = function() error("a bug in cached") end""")
    assert "Sorry." in post(gateway).text
    for word in ("a bug in on_decision", "a bug in cached"):
        assert word in gateway.log()


def test_facts_of_a_wrong_name_fail_closed(run: Run) -> None:
    upstream = Upstream(main=[whole()], backup=[whole()])
    gateway = run(upstream, options="facts = { tennant = 'x' }")
    assert post(gateway).json()["error"]["code"] == "internal"
    assert not upstream.seen["main"]
    assert 'begin has no key "tennant"' in gateway.log()


def test_reasons_are_counted(run: Run) -> None:
    """By action and reason, and why a route was not taken: on the page, in the
    JSON and for Prometheus."""
    gateway = used(run)
    gateway_told = httpx.get(f"{gateway.url}/fivegates").json()
    counts = {(one["action"], one["reason"]): one["count"]
              for one in gateway_told["decisions"]}
    assert counts["accept", "complete"] == 6
    assert counts["retry", "transient"] >= 1
    assert counts["proceed", "primary_out"] >= 1
    rejected = {(one["route"], one["why"]): one["count"]
                for one in gateway_told["rejected"]}
    assert rejected["main", "route_open"] >= 1
    text = httpx.get(f"{gateway.url}/metrics").text
    assert ('fivegates_nginx_decisions_total{workflow="w",action="accept",'
            'reason="complete"} 6\n') in text
    assert (f'fivegates_nginx_rejected_total{{workflow="w",route="main",'
            f'why="route_open"}} {rejected["main", "route_open"]}\n') in text
    page = httpx.get(f"{gateway.url}/fivegates", headers={"accept": "text/html"})
    assert "Routes rejected" in page.text and "route_open" in page.text


def waits_for(gateway: Gateway, words: str) -> str:
    until = time.monotonic() + 5
    while words not in gateway.log():
        assert time.monotonic() < until, f"no line says: {words}"
        time.sleep(0.02)
    return gateway.log()


def test_the_log_tells_of_a_breaker(run: Run) -> None:
    upstream = Upstream(main=[json_reply(503, OVERLOADED)] * 5 + [whole()],
                        backup=[whole()])
    card = card_of(upstream)
    card["breaker"] = {"open_ms": 1200, "open_max_ms": 1200, "jitter_ppm": 0,
                       "successes": 1}
    gateway = run(upstream, card=card, workers=2)
    until = time.monotonic() + 10
    while "of route main closed: it is used again" not in gateway.log():
        assert time.monotonic() < until, gateway.log()
        post(gateway)
        time.sleep(0.05)
    # Once, not by each worker.
    assert gateway.log().count("the breaker of route main opened: ") == 1
    assert "0 of its last 0" not in gateway.log()


def test_the_log_tells_of_a_latched_key(run: Run) -> None:
    upstream = Upstream(main=[json_reply(401, {"error": {
        "message": "Incorrect API key provided", "code": "invalid_api_key",
        "type": "invalid_request_error"}})], backup=[whole()])
    gateway = run(upstream)
    post(gateway)
    waits_for(gateway, "route main is latched: key_latched")


def test_the_log_tells_of_refusals_and_is_not_flooded(run: Run) -> None:
    upstream = Upstream(main=[json_reply(503, OVERLOADED)],
                        backup=[json_reply(503, OVERLOADED)])
    gateway = run(upstream)
    secret = {**ASK, "messages": [{"role": "user", "content": "my-secret"}]}
    for _ in range(30):
        answer = httpx.post(f"{gateway.url}/v1/chat/completions", json=secret,
                            headers={"authorization": "Bearer my-key"})
        assert answer.status_code == 503
    lines = [one for one in gateway.log().splitlines() if "refused: " in one]
    assert "workflow w, " in lines[0] and "[warn]" in lines[0]
    assert "backup (" in lines[0] and "kind overloaded" in lines[0]
    kinds = {one.split("refused: ")[1].split(";")[0] for one in lines}
    assert len(lines) == len(kinds) < 5  # one of each kind, of thirty
    for word in ("my-secret", "my-key", "key-of"):
        assert word not in gateway.log()


def test_a_route_without_a_key_is_not_used_here(run: Run) -> None:
    """Another process may have the key: the route's health stays as it was."""
    upstream = Upstream(main=[whole("main")], backup=[whole("backup")])
    gateway = run(upstream, env={"KEY_BACKUP": "b"}, server=PAGES)
    for _ in range(3):
        answer = post(gateway)
        assert answer.status_code == 200
        assert answer.headers["x-fivegates-route"] == "backup"
    assert not upstream.seen["main"]
    assert "[error]" in gateway.log()
    assert "no key for route main: set KEY_MAIN" in gateway.log()
    view = gateway.engine().route("main")
    assert (view["breaker"], view["latch"], view["failures"]) == (
        "closed", "none", 0)
    routes = {one["name"]: one for one in httpx.get(
        f"{gateway.url}/fivegates").json()["routes"]}
    assert (routes["main"]["usable"], routes["main"]["lacks"]) == (
        False, "KEY_MAIN")
    assert routes["backup"]["usable"] is True
    assert 'nginx_route_usable{route="main"} 0\n' in httpx.get(
        f"{gateway.url}/metrics").text
    page = httpx.get(f"{gateway.url}/fivegates", headers={"accept": "text/html"})
    assert "no key here, set KEY_MAIN" in page.text


def test_no_key_at_all_is_said(run: Run) -> None:
    upstream = Upstream(main=[whole()], backup=[whole()])
    gateway = run(upstream, env={})
    answer = post(gateway)
    assert answer.status_code == 503
    assert answer.json()["error"]["code"] == "no_key"
    assert answer.headers["x-should-retry"] == "false"
    assert "fix_endpoint" not in answer.text and "KEY_MAIN" not in answer.text


def test_a_workflow_that_the_card_lacks(run: Run) -> None:
    upstream = Upstream(main=[whole()], backup=[whole()])
    gateway = run(upstream, proxy='"chta"')
    for _ in range(3):
        answer = post(gateway)
        assert (answer.status_code, answer.json()["error"]["code"]) == (
            500, "no_workflow")
    line = "the card has no workflow chta; it has: w"
    assert gateway.log().count(line) == 1


def test_the_workflow_of_open_is_checked_at_the_start(run: Run) -> None:
    upstream = Upstream(main=[whole("main")], backup=[whole()])
    with pytest.raises(RuntimeError, match="open: workflow: the card has no "
                       "workflow chta; it has: w"):
        run(upstream, proxy="", options='workflow = "chta"')


def test_the_workflow_of_open_is_used(run: Run) -> None:
    upstream = Upstream(main=[whole("main")], backup=[whole()])
    gateway = run(upstream, proxy="", options='workflow = "w"')
    assert "main" in post(gateway).text
