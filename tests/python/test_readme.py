"""The documents' examples run as they stand, against the loopback provider,
their links lead somewhere, and their tables are whole."""

from __future__ import annotations

import re
import types
import typing

import pytest

import fivegates
from fivegates import _core
from fivegates.testing import ProviderError

from .conftest import ROOT, Provider

README = (ROOT / "bindings" / "python" / "README.md").read_text(encoding="utf-8")


def section(title: str) -> "tuple[str, str]":
    """The Python and the YAML of a section of the README."""
    text, = re.findall(rf"## {title}\n(.*?)\n## ", README, re.S)
    code, = re.findall(r"```python\n(.*?)```", text, re.S)
    return code, "".join(re.findall(r"```yaml\n(.*?)```", text, re.S))


def test_the_guarded_call(provider: Provider, tmp_path: typing.Any,
                          monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("openai", "3")
    code, card = section("A guarded call")
    (tmp_path / "card.yaml").write_text(card.replace(
        "https://api.openai.com/v1", provider.url + "/ok/v1"))
    code = code.replace("/dev/shm/support", str(tmp_path / "region"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    scope: "dict[str, typing.Any]" = {}
    exec(compile(code, "README.md", "exec"), scope)
    answer = scope["answer"]([{"role": "user", "content": "x"}])
    assert answer == "one two three four five "
    assert scope["engine"].route("main")["successes"] == 1
    for client in scope["clients"].values():
        client.close()


def test_without_the_loop(policy: fivegates.Policy) -> None:
    code, = re.findall(r"## Without the loop\n\n```python\n(.*?)```", README, re.S)
    scope = {"fivegates": fivegates, "engine": fivegates.Engine(policy)}
    exec(compile(code.replace('"support-answer"', '"w"'), "README.md", "exec"),
         scope)


def test_the_first_page(provider: Provider, tmp_path: typing.Any,
                        monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("openai")
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    guarded, loop = re.findall(r"```python\n(.*?)```", page, re.S)
    card, = re.findall(r"```yaml\n(.*?)```", page, re.S)
    (tmp_path / "card.yaml").write_text(card)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    monkeypatch.setenv("OPENAI_BASE_URL", provider.url + "/ok/v1")
    scope: "dict[str, typing.Any]" = {
        "messages": [{"role": "user", "content": "x"}]}
    for code in (guarded, loop):
        scope["answer"] = None
        exec(compile(code, "README.md", "exec"), scope)
        assert scope["answer"] == "one two three four five "
    assert scope["engine"].workflow("answer")["primary_success"] == 2
    scope["timed_client"].close()
    scope["client"].close()


def test_the_ledger(policy: fivegates.Policy, tmp_path: typing.Any,
                    monkeypatch: pytest.MonkeyPatch) -> None:
    prom = pytest.importorskip("prometheus_client")
    pytest.importorskip("opentelemetry.sdk")
    monkeypatch.chdir(tmp_path)
    code, _ = section("Ledger and metrics")
    scope: "dict[str, typing.Any]" = {
        "engine": fivegates.Engine(policy), "send": lambda attempt: "a"}
    try:
        exec(compile(code.replace('"support-answer"', '"w"'), "README.md",
                     "exec"), scope)
        assert scope["answer"] == "a"
        assert prom.REGISTRY.get_sample_value("fivegates_calls_total", {
            "workflow": "w", "result": "primary_success"}) == 1
    finally:
        for one in set(prom.REGISTRY._names_to_collectors.values()):
            if getattr(one, "_name", "").startswith("fivegates"):
                prom.REGISTRY.unregister(one)
    lines = (tmp_path / "calls.jsonl").read_text().splitlines()
    assert len(lines) == 5
    assert [sink.lost for sink in scope["ledger"].sinks] == [0, 0, 0, 0]
    scope["ledger"].sinks[0].close()


def test_answers_when_all_fails(card: "dict[str, typing.Any]",
                                monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a Redis: then each lookup is a miss, and the call goes on."""
    redis = pytest.importorskip("redis")
    yaml = pytest.importorskip("yaml")
    code, ladder = section("Answers when all fails")
    card["workflows"]["support-answer"] = {
        "routes": ["main"], "budget": {"total_attempts": 1},
        **yaml.safe_load(ladder)}
    engine = fivegates.Engine(fivegates.Policy.loads(card, auto_fingerprint=True))
    monkeypatch.setenv("REDIS_URL", "unix:///nowhere/redis.sock")
    monkeypatch.setenv("CACHE_SECRET", "s")
    script: "list[typing.Any]" = ["we open at 9"]

    def send(attempt: fivegates.Attempt) -> str:
        if isinstance(script[0], Exception):
            raise script[0]
        return str(script[0])

    scope: "dict[str, typing.Any]" = {"fivegates": fivegates, "engine": engine,
                                      "send": send}
    exec(compile(code, "README.md", "exec"), scope)
    answer = scope["answer_or_less"]
    assert answer({"messages": []}, "de") == "we open at 9"
    script[0] = ConnectionResetError("gone")
    assert answer({"messages": []}, "de") == (
        "Wir können gerade nicht antworten. (limited service)")
    script[0] = ProviderError(400, body='{"error": {"type": '
                              '"invalid_request_error", "message": "bad"}}')
    assert answer({"messages": []}, "de") == (
        "This request cannot be answered as it is.")
    assert isinstance(scope["client"], redis.Redis)
    scope["client"].close()


@pytest.mark.parametrize("lost", ["", "done", "not done"])
def test_agents(policy: fivegates.Policy, lost: str) -> None:
    """The tool acts once, also when its acknowledgement is lost."""
    httpx2 = pytest.importorskip("httpx2")
    code, _ = section("Agents")
    tried: "list[str]" = []
    paid: "list[str]" = []

    def pay_back(op: str) -> str:
        tried.append(op)
        first = len(tried) == 1
        if not (first and lost == "not done"):
            paid.append(op)
        if first and lost:
            raise httpx2.ReadError("the connection broke")
        return "paid"

    def named(**facts: typing.Any) -> types.SimpleNamespace:
        return types.SimpleNamespace(**facts)

    def said(content: "str | None", *tools: typing.Any) -> typing.Any:
        return named(choices=[named(
            finish_reason="tool_calls" if tools else "stop",
            message=named(content=content, tool_calls=list(tools)))])

    answers = [said(None, named(id="1", function=named(
        name="refund", arguments="{}"))), ConnectionRefusedError("no"),
        said("It is paid.")]
    asked: "list[list[typing.Any]]" = []

    def create(**request: typing.Any) -> typing.Any:
        asked.append(list(request["messages"]))
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    client = named(chat=named(completions=named(create=create)))
    client.with_options = lambda **options: client
    scope: "dict[str, typing.Any]" = {
        "engine": fivegates.Engine(policy), "httpx2": httpx2, "TOOLS": [],
        "client_for": lambda attempt: client, "pay_back": pay_back,
        "was_paid_back": lambda op: "paid" if op in paid else None}
    exec(compile(code.replace('"support-answer"', '"bare"'), "README.md",
                 "exec"), scope)
    assert scope["serve"]("order-1", []) == "It is paid."
    assert paid == ["refund:order-1"]
    assert len(tried) == (2 if lost == "not done" else 1)
    # The step after the tool was sent again alone, with the same history.
    assert len(asked) == 3 and asked[1] == asked[2]
    assert asked[2][-1]["content"] == "paid"


def test_inside_the_sdk(provider: Provider,
                        card: "dict[str, typing.Any]",
                        monkeypatch: pytest.MonkeyPatch,
                        capsys: "pytest.CaptureFixture[str]") -> None:
    pytest.importorskip("openai", "3")
    card["routes"]["main"]["base_url"] = provider.url + "/ok/v1"
    card["routes"]["main"]["model"] = "gpt-4o"
    card["workflows"]["support-answer"] = card["workflows"]["bare"]
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    monkeypatch.setenv("OPENAI_BASE_URL", provider.url + "/ok/v1")
    scope: "dict[str, typing.Any]" = {
        "engine": fivegates.Engine(fivegates.Policy.loads(
            card, auto_fingerprint=True)),
        "messages": [{"role": "user", "content": "x"}]}
    code, _ = section("Inside the SDK you already use")
    exec(compile(code, "README.md", "exec"), scope)
    told = capsys.readouterr().out
    assert told.startswith("1 workflow support-answer") and "=> accept" in told
    scope["client"].close()


def test_the_approved_stand_in() -> None:
    text = (ROOT / "core/doc/card.md").read_text(encoding="utf-8")
    card, = re.findall(r"Approving a stand-in\n.*?```yaml\n(.*?)```", text, re.S)
    policy = fivegates.Policy.loads(card)
    assert policy.contract("answer", "spare")["approved"]
    assert policy.lint() == []


def test_the_reasons() -> None:
    """Each reason once, with its gate, and every kind and repair."""
    text = (ROOT / "core/doc/reasons.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(\w+)` \| (\w*) ?\|", text, re.M))
    header = (ROOT / "core/include/fivegates.h").read_text(encoding="utf-8")
    block, = re.findall(r"define FG_REASON_MAP\(XX\)(.*?)\n\n", header, re.S)
    assert rows == {
        name: "" if gate == "NONE" else gate.lower()
        for name, gate in re.findall(r", (\w+), ([A-Z]+)\)", block)}
    for title, table in (("Kinds", "kind"), ("Repairs", "repair")):
        part, = re.findall(rf"## {title}\n(.*?)(?:\n## |\Z)", text, re.S)
        said = re.findall(r"`(\w+)`", part.partition(":\n")[2])
        assert said == list(_core.names(table))


def test_links() -> None:
    """Every relative link of the documents leads to a file, and its heading."""
    pages = [path for folder in (".", "core", "core/doc", "bindings/python",
                                 "bindings/python/docs", "docs", "tests",
                                 "tests/vectors", "benchmarks", "examples",
                                 "examples/*")
             for path in ROOT.glob(f"{folder}/*.md")]
    assert len(pages) > 6
    for page in pages:
        for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
            if "://" in link:
                continue
            name, _, mark = link.partition("#")
            target = page.parent / name if name else page
            assert target.exists(), f"{page}: {link}"
            if mark:
                titles = re.findall(r"^#+ (.*)$", target.read_text(encoding="utf-8"), re.M)
                marks = {re.sub(r"[^\w -]", "", one.lower()).replace(" ", "-")
                         for one in titles}
                assert mark in marks, f"{page}: {link}"
