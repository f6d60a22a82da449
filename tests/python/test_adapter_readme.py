"""The README's adapters run as they stand, against the loopback providers."""

from __future__ import annotations

import asyncio
import re
import sys
import types
import typing

import pytest

import fivegates

from .conftest import ROOT, Provider

README = (ROOT / "bindings" / "python" / "README.md").read_text(encoding="utf-8")
PART, = re.findall(r"## Adapters\n(.*?)\n## ", README, re.S)
SNIPPETS = {re.findall(r"import (\w+)", code)[0]: code for code in re.findall(
    r"```python\n(.*?)```", PART, re.S)}
REQUEST = {"messages": [{"role": "user", "content": "x"}]}


@pytest.fixture
def run(provider: Provider, card: "dict[str, typing.Any]",
        ) -> "typing.Callable[..., dict[str, typing.Any]]":
    """Runs one snippet; its engine has sent one request in the end."""
    base = provider.url + "/ok/v1"
    card["routes"]["main"].update(base_url=base)
    card["workflows"]["support-answer"] = card["workflows"]["bare"]

    def build(name: str, **more: typing.Any) -> "dict[str, typing.Any]":
        policy = fivegates.Policy.loads(card, auto_fingerprint=True)
        scope = {"engine": fivegates.Engine(policy), "request": REQUEST,
                 "key": {"Authorization": "Bearer k"},
                 "messages": REQUEST["messages"], **more}
        code = SNIPPETS[name].replace("https://api.openai.com/v1", base)
        exec(compile(code.replace("https://api.openai.com", provider.url),
                     "README.md", "exec"), scope)
        return scope

    return build


def served(scope: "dict[str, typing.Any]") -> bool:
    return bool(scope["engine"].route("main")["successes"] == 1)


def test_all_are_here() -> None:
    assert set(SNIPPETS) == {"tenacity", "requests", "aiohttp", "urllib3",
                             "boto3"}


def test_tenacity(run: typing.Any) -> None:
    pytest.importorskip("tenacity")
    openai = pytest.importorskip("openai")
    made: "list[typing.Any]" = []

    def client_for(attempt: fivegates.Attempt) -> typing.Any:
        made.append(openai.OpenAI(base_url=attempt.base_url, api_key="k",
                                  max_retries=0))
        return made[-1]

    scope = run("tenacity", client_for=client_for)
    got = scope["answer"](REQUEST["messages"])
    assert got.choices[0].message.content == "hello" and served(scope)
    made[0].close()


def test_requests(run: typing.Any) -> None:
    pytest.importorskip("requests")
    scope = run("requests")
    assert scope["answer"].json()["choices"] and served(scope)
    scope["session"].close()


def test_aiohttp(run: typing.Any) -> None:
    pytest.importorskip("aiohttp")
    scope = run("aiohttp")
    assert asyncio.run(scope["answer"](REQUEST))["choices"] and served(scope)


def test_urllib3(run: typing.Any) -> None:
    pytest.importorskip("urllib3")
    scope = run("urllib3")
    assert scope["answer"].json()["choices"] and served(scope)


def test_boto3(run: typing.Any, card: "dict[str, typing.Any]",
               monkeypatch: pytest.MonkeyPatch) -> None:
    """botocore's client is boto3's; boto3 only finds the region and the key."""
    pytest.importorskip("botocore")
    from .test_adapter_botocore import SESSION, serving

    for server in serving():
        card["routes"]["main"].update(provider="bedrock", model="ok:1",
                                      base_url=server.url)
        made: "list[typing.Any]" = []

        def client(service: str, url: str = server.url) -> typing.Any:
            made.append(SESSION.create_client(
                service, region_name="us-east-1", endpoint_url=url,
                aws_access_key_id="a", aws_secret_access_key="s"))
            return made[-1]

        monkeypatch.setitem(sys.modules, "boto3",
                            types.SimpleNamespace(client=client))
        scope = run("boto3", messages=[{"role": "user",
                                        "content": [{"text": "x"}]}])
        assert scope["answer"]["stopReason"] == "end_turn" and served(scope)
        made[0].close()
