"""The example, started as its README says, with a client pointed at it."""

from __future__ import annotations

import os
import pathlib
import socket
import subprocess
import time
import typing

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
