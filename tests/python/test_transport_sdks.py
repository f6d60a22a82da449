"""docs/sdks.md runs as it stands, each snippet against a loopback server.

What is not installed in an environment is skipped there; each library is in
one of the two.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import re
import sys
import types
import typing
import warnings

import pytest
from support.cards import card_of
from support.wire_server import WireServer

import fivegates
from fivegates import transport

from .conftest import ROOT
from .test_transport_frameworks import server_of

PAGE = (ROOT / "bindings" / "python" / "docs" / "sdks.md").read_text(
    encoding="utf-8")
SNIPPETS: "dict[str, str]" = dict(re.findall(
    r"\n### ([^\n]+)\n+```python\n(.*?)```", PAGE, re.S))
MESSAGES = [{"role": "user", "content": "hi"}]
Scope = typing.Dict[str, typing.Any]


class Page:
    """Runs one snippet; its engine has had one answer in the end."""

    def __init__(self, server: WireServer,
                 monkeypatch: pytest.MonkeyPatch) -> None:
        self.server = server
        self.patch = monkeypatch
        self.card = card_of(f"{server.url}/ok/v1", f"{server.url}/ok/v1")
        self.card["workflows"]["support-answer"] = self.card["workflows"]["w"]
        self.card["contracts"][0]["workflow"] = "support-answer"
        del self.card["workflows"]["w"]

    def run(self, title: str, http: str = "httpx2",
            **more: typing.Any) -> Scope:
        """With httpx where the installed SDK is one of those before httpx2."""
        code = SNIPPETS[title].replace("httpx2", http)
        model = re.search(r"gpt-[\w.-]+|claude-[\w.-]+|gemini-[\w.-]+", code)
        if model is not None:  # the card serves what the snippet asks for
            self.card["routes"]["main"]["model"] = model.group()
        for name in ("OPENAI_BASE_URL", "OPENAI_API_BASE"):
            self.patch.setenv(name, self.server.url + "/ok/v1")
        for name in ("ANTHROPIC_BASE_URL", "GOOGLE_GEMINI_BASE_URL"):
            self.patch.setenv(name, self.server.url + "/ok")
        for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY"):
            self.patch.setenv(name, "key-a")
        scope: Scope = {
            "engine": fivegates.Engine(fivegates.Policy.loads(
                self.card, auto_fingerprint=True)),
            "transport": transport, "messages": MESSAGES, "show": show,
            "request": {"messages": MESSAGES},
            "key": {"Authorization": "Bearer key-a"}, **more}
        code = code.replace("https://api.openai.com/v1",
                            self.server.url + "/ok/v1")
        exec(compile(code.replace("https://api.openai.com", self.server.url),
                     "sdks.md", "exec"), scope)
        return scope


def show(decision: fivegates.Decision, call: fivegates.Call) -> None:
    print(decision.explain())


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> "typing.Iterator[Page]":
    with server_of() as server:
        yield Page(server, monkeypatch)


def served(scope: Scope, capsys: "pytest.CaptureFixture[str]") -> bool:
    """One request, guarded, answered; and it was shown."""
    told = capsys.readouterr().out
    return (scope["engine"].workflow("support-answer")["primary_success"] == 1
            and scope["engine"].route("main")["successes"] == 1
            and "=> accept" in told)


def http_of(package: str, since: int) -> str:
    """What the package sends with: httpx before that major, says the page."""
    module = pytest.importorskip(package)
    major = int(module.__version__.split(".")[0])
    return "httpx2" if major >= since else "httpx"


def test_all_are_here() -> None:
    assert set(SNIPPETS) == {
        "openai", "openai, async and streaming", "anthropic", "google-genai", "langchain-openai",
        "llama-index", "pydantic-ai", "anthropic middleware",
        "langchain agents", "litellm", "tenacity", "botocore", "urllib3",
        "requests", "aiohttp"}
    assert len(re.findall("```python", PAGE)) == len(SNIPPETS) + 1


def test_the_beginning(tmp_path: typing.Any,
                       monkeypatch: pytest.MonkeyPatch) -> None:
    code = re.findall(r"```python\n(.*?)```", PAGE, re.S)[0]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "card.yaml").write_text(
        "version: 1\nroutes: {main: {provider: openai, model: m}}\n"
        "workflows: {w: {routes: [main]}}\n")
    scope: Scope = {}
    exec(compile(code, "sdks.md", "exec"), scope)
    assert scope["engine"].policy.workflows() == ("w",)


# ---- by the transport


def test_openai(page: Page, capsys: "pytest.CaptureFixture[str]") -> None:
    scope = page.run("openai", http_of("openai", 3))
    assert scope["answer"].choices[0].message.content == "hello"
    assert served(scope, capsys)
    scope["client"].close()


def test_openai_async_and_streaming(page: Page,
                                    capsys: "pytest.CaptureFixture[str]") -> None:
    scope = page.run("openai, async and streaming", http_of("openai", 3))

    async def main() -> None:
        async with scope["client"]:
            await scope["ask"](MESSAGES)

    asyncio.run(main())
    told = capsys.readouterr().out
    assert told.startswith("hello")
    assert scope["engine"].workflow("support-answer")["primary_success"] == 1


def test_the_card_is_approved() -> None:
    [card] = re.findall(r"```yaml\n(.*?)```", PAGE, re.S)
    policy = fivegates.Policy.loads(card)
    assert policy.workflows() == ("support-answer",)
    assert policy.lint() == []  # nor is its contract stale


def test_anthropic(page: Page, capsys: "pytest.CaptureFixture[str]") -> None:
    scope = page.run("anthropic", http_of("anthropic", 1))
    assert scope["answer"].content[0].text == "hello"
    assert served(scope, capsys)
    scope["client"].close()


def test_google_genai(page: Page,
                      capsys: "pytest.CaptureFixture[str]") -> None:
    pytest.importorskip("google.genai")
    page.card["routes"]["main"].update(provider="gemini",
                                       base_url=page.server.url + "/ok")
    scope = page.run("google-genai")
    assert scope["answer"].text == "hello" and served(scope, capsys)
    scope["client"]._api_client._http_options.httpx_client.close()


def test_langchain_openai(page: Page,
                          capsys: "pytest.CaptureFixture[str]") -> None:
    pytest.importorskip("langchain_openai")
    scope = page.run("langchain-openai", http_of("openai", 3))
    assert scope["answer"].content == "hello" and served(scope, capsys)
    scope["chat"].http_client.close()
    asyncio.run(scope["chat"].http_async_client.aclose())


def test_llama_index(page: Page, capsys: "pytest.CaptureFixture[str]") -> None:
    pytest.importorskip("llama_index.llms.openai")
    scope = page.run("llama-index")
    assert scope["answer"].text == "hello" and served(scope, capsys)
    scope["llm"]._http_client.close()
    asyncio.run(scope["llm"]._async_http_client.aclose())


def test_pydantic_ai(page: Page, capsys: "pytest.CaptureFixture[str]") -> None:
    pytest.importorskip("pydantic_ai")
    scope = page.run("pydantic-ai")

    async def main() -> str:
        async with scope["provider"].client:
            return str(await scope["ask"]("hi"))

    assert asyncio.run(main()) == "hello" and served(scope, capsys)


# ---- by an adapter


def test_anthropic_middleware(page: Page,
                              capsys: "pytest.CaptureFixture[str]") -> None:
    pytest.importorskip("anthropic")
    page.card["routes"]["main"]["base_url"] = page.server.url + "/ok"
    page.patch.setenv("KEY_A", "key-a")
    scope = page.run("anthropic middleware")
    assert scope["answer"].content[0].text == "hello"
    assert served(scope, capsys)
    scope["client"].close()


def test_langchain_agents(page: Page,
                          capsys: "pytest.CaptureFixture[str]") -> None:
    chat = pytest.importorskip("langchain_openai").ChatOpenAI(
        model="m1", base_url=page.server.url + "/ok/v1", api_key="k",
        max_retries=0)
    scope = page.run("langchain agents", models={"main": chat}, tools=[])
    assert scope["answer"]["messages"][-1].content == "hello"
    assert served(scope, capsys)


@pytest.mark.filterwarnings(  # litellm leaves its sessions to the process's end
    "ignore::ResourceWarning", "ignore::DeprecationWarning",
    "ignore::UserWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_litellm(page: Page, capsys: "pytest.CaptureFixture[str]") -> None:
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # no request at import
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        litellm = pytest.importorskip("litellm")
    page.patch.setattr(litellm, "callbacks", [])
    scope = page.run("litellm", model_list=[{
        "model_name": "gpt-4o", "model_info": {"id": "main"},
        "litellm_params": {"model": "openai/m1", "api_key": "k",
                           "api_base": page.server.url + "/ok/v1"}}])

    async def main() -> typing.Any:
        answer = await scope["ask"](MESSAGES)
        for _ in range(200):  # its worker tells of the answer a little later
            if scope["engine"].route("main")["successes"]:
                break
            await asyncio.sleep(0.01)
        return answer

    assert asyncio.run(main()).choices[0].message.content == "hello"
    assert served(scope, capsys)


def test_tenacity(page: Page, capsys: "pytest.CaptureFixture[str]") -> None:
    pytest.importorskip("tenacity")
    openai = pytest.importorskip("openai")
    made: "list[typing.Any]" = []

    def client_for(attempt: fivegates.Attempt) -> typing.Any:
        made.append(openai.OpenAI(base_url=attempt.base_url, api_key="k",
                                  max_retries=0))
        return made[-1]

    scope = page.run("tenacity", client_for=client_for)
    assert scope["answer"](MESSAGES).choices[0].message.content == "hello"
    assert served(scope, capsys)
    made[0].close()


def test_botocore(page: Page, capsys: "pytest.CaptureFixture[str]") -> None:
    """botocore's client is boto3's; boto3 only finds the region and the key."""
    pytest.importorskip("botocore")
    module = importlib.import_module(".test_adapter_botocore", __package__)
    for server in module.serving():
        page.card["routes"]["main"].update(provider="bedrock", model="ok:1",
                                           base_url=server.url)
        made: "list[typing.Any]" = []

        def client(service: str, url: str = server.url) -> typing.Any:
            made.append(module.SESSION.create_client(
                service, region_name="us-east-1", endpoint_url=url,
                aws_access_key_id="a", aws_secret_access_key="s"))
            return made[-1]

        page.patch.setitem(sys.modules, "boto3",
                           types.SimpleNamespace(client=client))
        scope = page.run("botocore", messages=[{
            "role": "user", "content": [{"text": "x"}]}])
        assert scope["answer"]["stopReason"] == "end_turn"
        assert served(scope, capsys)
        made[0].close()


@pytest.mark.parametrize("title", ["urllib3", "requests"])
def test_blocking(page: Page, capsys: "pytest.CaptureFixture[str]",
                  title: str) -> None:
    pytest.importorskip(title)
    scope = page.run(title)
    assert scope["answer"].json()["choices"] and served(scope, capsys)
    if title == "requests":
        scope["session"].close()


def test_aiohttp(page: Page, capsys: "pytest.CaptureFixture[str]") -> None:
    pytest.importorskip("aiohttp")
    scope = page.run("aiohttp")
    assert asyncio.run(scope["answer"](scope["request"]))["choices"]
    assert served(scope, capsys)
