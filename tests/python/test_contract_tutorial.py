"""docs/contract.md and the README, as they are written: each command is run, and
each line the page shows is one that came."""

from __future__ import annotations

import json
import pathlib
import re
import shlex
import shutil
import socket
import subprocess
import sys
import typing

import pytest
import typer

import fivegates
from fivegates.contract.command import contract

from .conftest import ROOT
from .test_cli import cli

PAGE = (ROOT / "docs" / "contract.md").read_text(encoding="utf-8")
EXAMPLE = ROOT / "examples" / "contract"
PORT = "8701"


def section(title: str, page: str = PAGE) -> str:
    text, = re.findall(rf"## {title}\n(.*?)(?=\n## |\Z)", page, re.S)
    return str(text)


def commands(text: str) -> "list[str]":
    return [line for block in re.findall(r"```sh\n(.*?)```", text, re.S)
            for line in block.splitlines()]


def run(line: str, port: str) -> "tuple[int, str, str]":
    """One line of the page; a command of ours without a process of its own."""
    words = shlex.split(line.replace(PORT, port))
    if words[0] == "fivegates":
        return cli(*words[1:])
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=True)
    return 0, done.stdout, done.stderr


def came(shown: str, out: str) -> None:
    """Each line of a page's output is one of the output; ... stands for anything."""
    lines = [" ".join(line.split()) for line in out.splitlines()]
    for line in shown.splitlines():
        wanted = ".*".join(map(re.escape, " ".join(line.split()).split("...")))
        assert any(re.fullmatch(wanted, one) for one in lines), (line, out)


@pytest.fixture
def folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """A copy of the example, worked in."""
    for file in EXAMPLE.iterdir():
        if file.is_file():
            shutil.copy(file, tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def served(line: str, port: str) -> "subprocess.Popen[str]":
    """The provider of the page, once it listens."""
    words = shlex.split(line.removesuffix("&").replace(PORT, port))
    assert words[0] == "fivegates"
    process = subprocess.Popen([sys.executable, "-m", *words], text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None and process.stdout.readline().startswith("http")
    return process


def test_five_commands(folder: pathlib.Path) -> None:
    for name in ("h11", "httpx", "regex"):
        pytest.importorskip(name)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    card = folder / "card.yaml"
    before = card.read_text()
    assert before.count(PORT) == 2
    card.write_text(before.replace(PORT, port))
    text = section("Five commands")
    lines = commands(text)
    assert len(lines) == 5
    process = served(lines[0], port)
    try:
        codes, outs = [], []
        for line in lines[1:]:
            code, out, err = run(line, port)
            codes.append(code)
            outs.append(out)
            assert "Traceback" not in err, err
    finally:
        process.terminate()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
    assert codes == [0, 0, 1, 0], outs
    shown, = re.findall(r"```text\n(.*?)```", text, re.S)
    came(shown, outs[-1])
    assert fivegates.Policy.load(card).contract("answer", "spare")["approved"]
    one = json.loads(cli("contract", "show", card, "--json")[1])["stand_ins"][0]
    assert one["approved"] and one["approved_by"] == "ops@example.com"
    assert [one["evidence"][side] for side in ("route", "primary")] == [
        {"provider": "openai", "model": "gpt-4o-mini", "version": "2024-07-18"},
        {"provider": "anthropic", "model": "claude-sonnet-4-5"}]
    # Only added to, and nobody's comment lost.
    rows = iter(card.read_text().replace(port, PORT).splitlines())
    assert all(line in rows for line in before.splitlines())

    # And what makes it stale.
    parts = re.findall(r"```sh\n(.*?)```\n```text\n(.*?)```",
                       section("What makes it stale"), re.S)
    assert len(parts) == 4
    for block, shown in parts:
        *first, last = block.splitlines()
        for line in first:
            assert run(line, port)[0] == 0
        code, out, err = run(last, port)
        assert code == 1 and not err
        came(shown, out)


def test_the_readme() -> None:
    """Its commands are the tutorial's."""
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    lines = commands(section("May the other model stand in\\?", page))
    assert lines and set(lines) <= set(commands(section("Five commands")))


@pytest.mark.parametrize("name", ["new", "verify", "show", "approve"])
def test_every_option_is_told(name: str) -> None:
    """Each option of a command is in its section of the page, and no other is."""
    made = typer.main.get_command(contract)
    commands_of: typing.Any = made
    has = {option for param in commands_of.commands[name].params for option in param.opts
           if option.startswith("--")}
    said = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", section(name)))
    assert has - {"--json"} == said - {"--json"}
