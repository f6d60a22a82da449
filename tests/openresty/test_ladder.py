"""Every step of the ladder through nginx, at a provider that fails: what it was
asked, and what the SDK's caller was told. See support/ladder.py."""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time
import typing

import anthropic
import httpx
import openai
import pytest
from support import cap, ladder
from support.cap import HOLD_NUSD
from support.ladder import Json, Provider

from openresty.gateway import ROOT, Gateway, missing

httpx2 = pytest.importorskip("httpx2")
KEYS = {"KEY_MAIN": "key-of-main", "KEY_SMALL": "key-of-small"}
CACHE = """cache = require("fivegates.resty.cache").new {
    store = require("fivegates.resty.cache").dict "answers", secret = "s" },"""
DICT = "lua_shared_dict answers 1m;"
# One gateway has a workflow for each step and API: w is named in the path.
PROXY = 'function(request) return ngx.var.uri:match("^/([%w_]+)/") end'


@pytest.fixture(scope="module")
def provider() -> "typing.Iterator[Provider]":
    with ladder.provider() as made:
        yield made


@pytest.fixture(scope="module")
def gateway(provider: Provider, tmp_path_factory: pytest.TempPathFactory,
            ) -> "typing.Iterator[Gateway]":
    if missing() is not None:
        pytest.skip(str(missing()))
    card: Json = {}
    for api in ladder.APIS:
        for step in ladder.STEPS:
            one = ladder.card_of(provider.url, api, step)
            card = card or {**one, "routes": {}, "workflows": {}, "contracts": []}
            for name, route in one["routes"].items():
                # Each workflow has routes of its own, with a health of their own.
                card["routes"][f"{name}_{api}_{step}"] = route
            workflow = one["workflows"]["w"]
            workflow["routes"] = [f"main_{api}_{step}"]
            for rung in workflow["ladder"]:
                if "route" in rung:
                    rung["route"] = f"small_{api}_{step}"
            card["workflows"][f"{api}_{step}"] = workflow
            card["contracts"] += [{**contract, "workflow": f"{api}_{step}",
                                   "route": f"small_{api}_{step}"}
                                  for contract in one["contracts"]]
    with Gateway(tmp_path_factory.mktemp("nginx"), card, PROXY, env=KEYS,
                 options=CACHE, http=DICT, server=STORES) as made:
        yield made


STORES = """
location = /keys { content_by_lua_block {
    for _, key in ipairs(ngx.shared.answers:get_keys()) do
        ngx.say(key, " ", ngx.shared.answers:get(key))
    end
} }
location = /clear { content_by_lua_block { ngx.shared.answers:flush_all() } }
"""


@contextlib.contextmanager
def client_of(gateway: Gateway, api: str, step: str, **headers: str,
              ) -> "typing.Iterator[typing.Any]":
    url = f"{gateway.url}/{api}_{step}"
    headers = {name.replace("_", "-"): text for name, text in headers.items()}
    sdk: typing.Any = anthropic.Anthropic if api == "messages" else openai.OpenAI
    with sdk(base_url=url if api == "messages" else f"{url}/v1", api_key="k",
             max_retries=0, default_headers=headers, http_client=wire()) as made:
        yield made


def wire() -> typing.Any:
    """What the SDKs send with; no certificates are read for loopback."""
    return httpx2.Client(verify=False)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("api", ladder.APIS)
@pytest.mark.parametrize("step", ladder.STEPS)
def test_a_step(provider: Provider, gateway: Gateway, step: str, api: str,
                stream: bool) -> None:
    request = ladder.request_of(api, step)
    fresh = ladder.Answer("", "", {})
    with client_of(gateway, api, step, accept_language="de-CH, en;q=0.8") as client:
        if step == "cached":
            httpx.get(gateway.url + "/clear")
            provider.play("ok")
            fresh = ladder.ask(client, api, not stream, request)
            assert "x-fivegates-step" not in fresh.headers
            kept_in(gateway)
        provider.play(*ladder.FAULTS[step], small="ok")
        answer = ladder.ask(client, api, stream, request)
    assert answer.headers["x-fivegates-step"] == step
    first, *rest = provider.asked()
    assert ladder.same(first, request)
    if step in ladder.SENT:
        rest += provider.asked("small")
        assert len(rest) == 1
        assert ladder.same(rest[0], ladder.edited(api, step, request))
        assert len(answer.text.split()) == 6
        assert ("x-fivegates-route" in answer.headers) == (step == "smaller_model")
    else:
        assert not rest and not provider.asked("small")
        assert answer.model == f"fivegates/{step}"
        assert answer.headers["x-fivegates-action"] == "degrade"
        assert answer.text == (fresh.text if step == "cached"
                               else ladder.SORRY["de"])
        assert step != "cached" or 0 <= int(answer.headers["age"]) <= 60


def kept_in(gateway: Gateway) -> str:
    """What the cache has; an answer is kept after it has been given."""
    for _ in range(200):
        text = httpx.get(gateway.url + "/keys").text
        if text:
            return text
        time.sleep(0.01)
    raise AssertionError("nothing is kept")


@pytest.mark.parametrize("api", ladder.APIS)
def test_what_cannot_be_compacted_is_not_sent(provider: Provider,
                                              gateway: Gateway, api: str) -> None:
    """The provider's own words come."""
    request = ladder.request_of(api, "compact")
    turns = "input" if api == "responses" else "messages"
    request[turns] = request[turns][:1 if api != "chat" else 2]
    provider.play("context_length", "ok")
    with client_of(gateway, api, "compact") as client:
        with pytest.raises((openai.BadRequestError, anthropic.BadRequestError)):
            ladder.ask(client, api, False, request)
    assert len(provider.asked()) == 1


# ---- one workflow w, made anew


@contextlib.contextmanager
def single(provider: Provider, folder: pathlib.Path, *steps: str,
           card: "Json | None" = None, options: str = CACHE, http: str = DICT,
           **more: typing.Any) -> "typing.Iterator[tuple[Gateway, typing.Any]]":
    if missing() is not None:
        pytest.skip(str(missing()))
    made = card or ladder.card_of(provider.url, "chat", *steps)
    with Gateway(folder, made, env=KEYS, options=options, http=http, server=STORES,
                 **more) as gateway:
        with openai.OpenAI(base_url=f"{gateway.url}/v1", api_key="k",
                           max_retries=0, http_client=wire()) as client:
            yield gateway, client


TENANT = """facts = function(request)
    return { tenant = request:header "x-tenant" } end,"""


def test_who_shares_an_answer(provider: Provider, tmp_path: pathlib.Path) -> None:
    """Only the same question of the same tenant in the same language, and not
    while the primary answers; nothing of it is in the key."""
    request = ladder.request_of("chat", "cached")
    with single(provider, tmp_path, "cached", "preset",
                options=CACHE + TENANT) as (gateway, client):
        def told(request: Json, **headers: str) -> str:
            return ladder.ask(client, "chat", False, request, extra_headers={
                name.replace("_", "-"): text for name, text in headers.items()}).model

        provider.play("ok")
        for _ in range(2):
            assert told(request, x_tenant="t1") == "model-of-main"
        assert len(provider.asked()) == 2
        kept = kept_in(gateway)
        assert "t1" not in kept and "question" not in kept
        provider.play("unavailable")
        assert told(request, x_tenant="t1") == "fivegates/cached"
        for other, headers in ((request, {"x_tenant": "t2"}), (request, {}),
                               ({**request, "temperature": 0.5}, {"x_tenant": "t1"}),
                               (request, {"x_tenant": "t1", "accept_language": "de"})):
            assert told(other, **headers) == "fivegates/preset"


def test_an_answer_that_is_too_old(provider: Provider,
                                   tmp_path: pathlib.Path) -> None:
    """By the age that is written with it."""
    card = ladder.card_of(provider.url, "chat", "cached", "preset")
    with single(provider, tmp_path, card=card) as (gateway, client):
        provider.play("ok")
        request = ladder.request_of("chat", "cached")
        ladder.ask(client, "chat", False, request)
        kept_in(gateway)
        provider.play("unavailable")
        stored = SET % 50
        gateway._conf["server"] = STORES + stored + SET.replace("/age", "/old") % 61
        gateway._write_conf()
        gateway.reload()
        for path, model in (("/age", "cached"), ("/old", "preset"), ("/age", "cached")):
            for _ in range(200):
                if httpx.get(gateway.url + path).status_code == 200:
                    break
                time.sleep(0.02)
            answer = ladder.ask(client, "chat", False, request)
            assert answer.model == f"fivegates/{model}"
            assert model == "preset" or 50 <= int(answer.headers["age"]) <= 60


SET = """
location = /age { content_by_lua_block {
    local all = ngx.shared.answers
    for _, key in ipairs(all:get_keys()) do
        all:set(key, (all:get(key):gsub('"at":%%d+', '"at":' .. ngx.time() - %d)))
    end
} }
"""


def test_what_is_not_kept(provider: Provider, tmp_path: pathlib.Path) -> None:
    """A call of a tool, an answer that was cut, one of the ladder itself."""
    with single(provider, tmp_path, "shorter", "cached") as (gateway, client):
        create = client.chat.completions.create
        provider.play("ok")
        for stream in (False, True):
            for more in (ladder.request_of("chat", "without_tools"),
                         {**ladder.request_of("chat", "cached"),
                          "max_completion_tokens": 2}):
                answer: typing.Any = create(**more, stream=stream)
                for _ in answer if stream else ():
                    pass
        for stream in (False, True):
            provider.play("server_error", "ok")
            assert ladder.ask(client, "chat", stream, ladder.request_of(
                "chat", "shorter")).headers["x-fivegates-step"] == "shorter"
        assert httpx.get(gateway.url + "/keys").text == ""


@pytest.mark.parametrize(("header", "text"), [
    ("en-GB", "Sorry, mate."), ("en-US,en;q=0.9", "Sorry, later."),
    ("fr;q=0.5, de-DE;q=0.9", "Leider später."), ("de;q=0, en", "Sorry, later."),
    ("*", "Sorry, later."), ("de;q=nonsense", "Leider später."),
    ("x" * 300 + ", de", "Sorry, later."), ("fr", "Sorry, later."), ("", "Sorry, later.")])
def test_the_language(provider: Provider, gateway: Gateway, header: str,
                      text: str) -> None:
    provider.play("unavailable")
    answer = httpx.post(f"{gateway.url}/chat_preset/v1/chat/completions",
                        headers={"accept-language": header},
                        json=ladder.request_of("chat", "preset"))
    assert answer.json()["choices"][0]["message"]["content"] == text


@pytest.mark.parametrize(("api", "more"), [
    ("chat", {"response_format": {"type": "json_object"}}),
    ("chat", {"tool_choice": "required"}),
    ("chat", {"tool_choice": {"type": "function", "function": {"name": "look"}}}),
    ("chat", {"tool_choice": {"type": "allowed_tools", "allowed_tools": {
        "mode": "required", "tools": []}}}),
    ("responses", {"text": {"format": {"type": "json_object"}}}),
    ("messages", {"tool_choice": {"type": "any"}}),
    ("messages", {"tool_choice": {"type": "tool", "name": "look"}})])
def test_who_waits_for_no_sentence_gets_an_error(
        provider: Provider, gateway: Gateway, api: str, more: Json) -> None:
    provider.play("unavailable")
    request = ladder.request_of(api, "without_tools")
    with client_of(gateway, api, "preset") as client:
        with pytest.raises((openai.APIStatusError, anthropic.APIStatusError)):
            ladder.ask(client, api, False, {**request, **more})
        request["tool_choice"] = {"type": "auto"} if api == "messages" else "auto"
        assert ladder.ask(client, api, False, request).model == "fivegates/preset"


# ---- the day's money

AT_ONCE = 8
CAP_NUSD = (1 + AT_ONCE) * HOLD_NUSD + 1_000_000


def test_the_days_money(provider: Provider, tmp_path: pathlib.Path) -> None:
    """Under several workers, one of them killed with a request in flight: what
    that may cost stays held. Then cache and preset answer."""
    card = ladder.card_of(provider.url, "chat", "cached", "preset")
    card.update(limits={"spend_per_day_usd": f"{CAP_NUSD / 1e9:.9f}"},
                adapt={"limit": False, "pace": False}, breaker={"stall": False})
    exact = f"prompt_tokens = function() return {cap.PROMPT} end,"
    with single(provider, tmp_path, card=card, workers=4,
                options=CACHE + exact) as (gateway, _), httpx.Client(
                    verify=False, timeout=20) as web:
        def ask(number: int) -> httpx.Response:
            return web.post(f"{gateway.url}/v1/chat/completions",
                            json=cap.body_of(number))

        provider.play("no_response", "ok")
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            lost = pool.submit(ask, 0)
            for _ in range(2000):
                if provider.journal("main"):
                    break
                time.sleep(0.005)
            for pid in gateway.workers():
                os.kill(pid, signal.SIGKILL)
            with pytest.raises(httpx.TransportError):
                lost.result()
            for _ in range(500):  # the master makes new ones
                if gateway.workers():
                    break
                time.sleep(0.01)
            answers = list(pool.map(ask, range(1, 33)))
        # What so many at a time had no room for.
        answers += [ask(1 + i % 32) for i in range(40)]
        records = provider.journal("main")
        spent = gateway.engine().workflow("w")["spent_today_nusd"]
    sent = [one for one in answers if "x-fivegates-step" not in one.headers]
    assert len(sent) == len(records) - 1
    assert cap.most_nusd(records) <= CAP_NUSD
    assert spent == cap.final_nusd(records)
    assert CAP_NUSD - HOLD_NUSD < spent <= CAP_NUSD
    rest = [one for one in answers if one not in sent]
    assert {one.headers["x-fivegates-step"] for one in rest} == {"cached", "preset"}
    for one in rest:
        assert one.status_code == 200
        assert one.headers["x-fivegates-action"] == "degrade"
        assert one.json()["model"] == "fivegates/" + one.headers["x-fivegates-step"]


# ---- docs/ladder.md


@contextlib.contextmanager
def redis(folder: pathlib.Path) -> "typing.Iterator[str]":
    if shutil.which("redis-server") is None:
        pytest.skip("redis-server is not installed")
    socket = folder / "redis.sock"
    with subprocess.Popen(
            ["redis-server", "--port", "0", "--unixsocket", str(socket), "--save", "",
             "--appendonly", "no", "--dir", str(folder)],
            stdout=subprocess.DEVNULL) as server:
        try:
            for _ in range(500):
                if socket.exists():
                    break
                time.sleep(0.01)
            yield str(socket)
        finally:
            server.kill()


@pytest.mark.parametrize("which", ["dict", "redis"])
def test_the_page(provider: Provider, tmp_path: pathlib.Path, which: str) -> None:
    """Its nginx configuration as it stands, with a folder of the test's own; of
    Redis a real server."""
    page = (ROOT / "docs" / "ladder.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```nginx\n(.*?)```", page, re.S)
    assert len(blocks) == 2
    block = blocks[which == "redis"]
    block = block.replace("/etc/fivegates/card.json", f"{tmp_path}/card.json")
    block = block.replace("/dev/shm/fivegates", f"{tmp_path}/region")
    card = ladder.card_of(provider.url, "chat", "cached", "preset")
    card["workflows"]["answer"] = card["workflows"].pop("w")
    with contextlib.ExitStack() as stack:
        if which == "redis":
            socket = stack.enter_context(redis(tmp_path))
            block = block.replace('"127.0.0.1", 6379', f'"unix:{socket}"').replace(
                "init_by_lua_block {", "init_by_lua_block { package.path = "
                f'"{ROOT}/tests/openresty/stubs/redis/?.lua;" .. package.path')
        gateway = Gateway(tmp_path, card, "", env={**KEYS, "CACHE_SECRET": "s"})
        conf = (tmp_path / "nginx.conf").read_text()
        conf = re.sub(r"init_by_lua_block \{.*?\n    \}\n", lambda _: (
            block + "\nlua_shared_dict x 1m;\n"), conf, count=1, flags=re.S)
        conf = conf.replace("resty.worker()", 'require("fivegates.resty").worker()')
        conf = conf.replace("resty.proxy()", 'require("fivegates.resty").proxy()')
        (tmp_path / "nginx.conf").write_text("env CACHE_SECRET;\n" + conf)
        stack.enter_context(gateway)
        client = stack.enter_context(openai.OpenAI(
            base_url=f"{gateway.url}/v1", api_key="k", max_retries=0,
            http_client=wire()))
        request = ladder.request_of("chat", "cached")
        provider.play("ok")
        fresh = ladder.ask(client, "chat", True, request)
        provider.play("unavailable")
        for _ in range(200):  # it is kept after it has been given
            answer = ladder.ask(client, "chat", False, request)
            if answer.model != "fivegates/preset":
                break
            time.sleep(0.01)
        assert (answer.text, answer.model) == (fresh.text, "fivegates/cached")
        assert "fails" not in gateway.log()
