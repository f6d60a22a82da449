"""The status page, as JSON, HTML and Prometheus text; hooks that break."""

from __future__ import annotations

import typing

import httpx
import prometheus_client.parser

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
