"""The example, started as its README says, with a client pointed at it."""

from __future__ import annotations

import json
import os
import pathlib
import socket
import subprocess
import time
import typing

import fivegates
import httpx
import openai
import pytest

from openresty.gateway import ROOT, free_port, missing

EXAMPLE = ROOT / "examples/openresty"


def _free_pair() -> int:
    """A port that is free, as is the next."""
    while True:
        port = free_port()
        try:
            socket.create_server(("127.0.0.1", port + 1)).close()
        except (OSError, OverflowError):
            continue
        return port


@pytest.fixture(scope="module")
def url() -> "typing.Iterator[str]":
    if missing() is not None or not pathlib.Path(
            "/etc/nginx/modules-enabled").exists():
        pytest.skip("the example is for Debian's nginx with its Lua module")
    port = _free_pair()
    process = subprocess.Popen(
        [str(EXAMPLE / "run"), str(port)], stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, env=dict(os.environ))
    url = f"http://127.0.0.1:{port}"
    for _ in range(500):
        try:
            httpx.get(f"{url}/v1/models")
            break
        except httpx.TransportError:
            assert process.poll() is None, process.communicate()[0].decode()
            time.sleep(0.01)
    yield url
    process.terminate()
    told = process.communicate(timeout=10)[0].decode()
    assert f"gateway: {url}/v1" in told and "[error]" not in told


@pytest.fixture
def client(url: str) -> "typing.Iterator[openai.OpenAI]":
    with openai.OpenAI(base_url=f"{url}/v1", api_key="any",
                       max_retries=0) as made:
        yield made


def ask(client: openai.OpenAI, text: str, stream: bool = False) -> typing.Any:
    return client.chat.completions.with_raw_response.create(
        model="gpt-4o", stream=stream,
        messages=[{"role": "user", "content": text}])


def test_answers(client: openai.OpenAI) -> None:
    whole = ask(client, "hi").parse().choices[0].message.content
    text = "".join(one.choices[0].delta.content or ""
                   for one in ask(client, "hi", stream=True).parse())
    assert whole == text == "Every request is one decision."


@pytest.mark.parametrize("word", ["503", "429", "silent"])
def test_the_other_account_answers(client: openai.OpenAI, word: str) -> None:
    raw = ask(client, word, stream=True)
    assert raw.headers["x-fivegates-route"] == "backup"
    assert raw.parse().response.is_success


def test_the_other_account_fits_after_a_silent_whole_answer() -> None:
    """As the README's table says; a second later than the time-out, as hosts are."""
    now = [1_000]
    engine = fivegates.Engine(str(EXAMPLE / "card.json"), clock=lambda: now[0])
    engine.clock(1_796_000_000_000)
    call = engine.begin("chat", stream=False, prompt_tokens=20)
    first = call.begin_attempt()
    call.event("sent")
    now[0] += first.timeouts["total_ms"] + 1_000
    decision = call.deadline()
    assert (decision.action, decision.route) == ("fallback", "backup")
    readme = (EXAMPLE / "README.md").read_text()
    assert f"the total one ({first.timeouts['total_ms'] // 1000} s)" in readme


def test_cut(client: openai.OpenAI) -> None:
    text = ""
    with pytest.raises(openai.APIError, match="partial_output"):
        for one in ask(client, "cut", stream=True).parse():
            text += one.choices[0].delta.content or ""
    assert text == "Every request "


def test_both_are_down(client: openai.OpenAI) -> None:
    raw = ask(client, "both 503")
    assert raw.headers["x-fivegates-step"] == "preset"
    assert "try again soon" in raw.parse().choices[0].message.content


def test_its_state(url: str, client: openai.OpenAI) -> None:
    ask(client, "hi")
    told = httpx.get(f"{url}/fivegates").json()
    assert {one["name"] for one in told["routes"]} == {"main", "backup"}
    assert "fivegates_region_calls_total" in httpx.get(f"{url}/metrics").text


def _run(*args: str) -> "tuple[int, str]":
    ended = subprocess.run([str(EXAMPLE / "run"), *args], timeout=20,
                           capture_output=True, text=True)
    return ended.returncode, ended.stdout + ended.stderr


def test_nothing_is_promised_where_nginx_does_not_start(url: str) -> None:
    """The port is another gateway's: what answers there is not this one."""
    code, told = _run(url.rpartition(":")[2])
    assert code == 1 and "the gateway did not start" in told
    assert "gateway: http" not in told and "Address already in use" in told


def test_a_port_that_is_none(url: str) -> None:
    code, told = _run("eighty")
    assert code == 2 and "usage: " in told


def test_the_service_card_pays_for_two_more_sends() -> None:
    """By default a call pays for one."""
    card = json.loads((EXAMPLE / "service/card.json").read_text())
    now = 1000
    engine = fivegates.Engine(fivegates.Policy.loads(card), clock=lambda: now)
    call = engine.begin("chat", prompt_tokens=2000)
    for _ in range(2):
        assert call.begin_attempt().action == "proceed"
        call.event("sent")
        failed = call.failure({"phase": "response", "status": 500})
        assert failed.action == "retry"
        now += failed.wait_ms
