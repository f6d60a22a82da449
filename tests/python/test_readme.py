"""The README's example runs as it stands, against the loopback provider."""

from __future__ import annotations

import re
import typing

import pytest

import fivegates

from .conftest import ROOT, Provider

README = (ROOT / "bindings" / "python" / "README.md").read_text(encoding="utf-8")


def test_the_guarded_call(provider: Provider, tmp_path: typing.Any,
                          monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("openai")
    pytest.importorskip("httpx2")
    code, = re.findall(r"## A guarded call\n\n```python\n(.*?)```", README, re.S)
    card, = re.findall(r"```yaml\n(.*?)```", README, re.S)
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
