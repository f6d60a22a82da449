"""A loopback provider on a thread, and a card beside it, for the tests of
fivegates contract verify."""

from __future__ import annotations

import asyncio
import contextlib
import json
import pathlib
import threading
import typing

import pytest
import typer
from typer.testing import CliRunner

from fivegates.contract import verify_command
from fivegates.errors import FivegatesError
from fivegates.provider import Journal, Provider, Record, read_script, read_value

__all__ = ["APP", "Bench", "KEYS", "Server", "TEXT", "TOOL", "WRONG", "bench", "row", "serve"]

Json = typing.Dict[str, typing.Any]
APP = typer.Typer()
APP.command()(verify_command.verify)
SPEED = {"first_token_s": 0.001, "prompt_tokens_per_s": 1e6, "tokens_per_s": 1e5,
         "output_tokens": 8}
TEXT = "This answer was made on loopback, one word"
KEYS = {"KEY_MAIN": "sk-main-5ecret", "KEY_SPARE": "sk-spare-5ecret",
        "KEY_BAD": "sk-5ecret\n"}


class Waiting(Journal):
    """Lets a test wait until so many requests have come."""

    def __init__(self) -> None:
        super().__init__()
        self.turn = threading.Condition()

    def received(self, *args: typing.Any) -> Record:
        with self.turn:
            record = super().received(*args)
            self.turn.notify_all()
        return record

    def wait_for(self, count: int) -> None:
        with self.turn:
            assert self.turn.wait_for(lambda: len(self.records) >= count, 30)


class Server:
    """A provider on a thread of its own."""

    def __init__(self, script: Json) -> None:
        self.loop = asyncio.new_event_loop()
        self.journal = Waiting()
        self.provider = Provider(self.read(script), self.journal)
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()
        self.do(self.provider.start())

    @staticmethod
    def read(script: Json) -> typing.Any:
        return read_script(read_value({"speed": SPEED, "faults": ["ok"], **script}))

    def do(self, coroutine: typing.Any) -> None:
        asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(30)

    def switch(self, script: Json) -> None:
        self.loop.call_soon_threadsafe(self.provider.switch, self.read(script))
        self.do(asyncio.sleep(0))

    def close(self) -> None:
        self.do(self.provider.stop())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()

    def url(self, name: str) -> str:
        return f"{self.provider.url}/{name}/v1"

    def asked(self, name: str = "") -> "list[Record]":
        return [one for one in self.journal.records if one.path.startswith(f"/{name}")]


@pytest.fixture
def serve() -> "typing.Iterator[typing.Callable[..., Server]]":
    with contextlib.ExitStack() as stack:
        def make(**script: typing.Any) -> Server:
            server = Server(script)
            stack.callback(server.close)
            return server
        yield make


class Bench:
    """A card, fixtures and results in a folder of their own."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.card = folder / "card.json"
        self.fixtures = folder / "f.jsonl"
        self.results = folder / "r.jsonl"
        self.data: Json = {
            "version": 1,
            "backoff": {"base_ms": 1, "rate_base_ms": 1, "cap_ms": 1},
            "routes": {
                "main": {"provider": "openai", "model": "m1", "key_env": "KEY_MAIN",
                         "price": {"input": 2.5, "output": 10},
                         "provides": {"output": {"max_tokens": 100}}},
                "spare": {"provider": "anthropic", "model": "m2", "version": "v1",
                          "key_env": "KEY_SPARE", "price": {"input": 3, "output": "15"},
                          "provides": {"output": {"max_tokens": 100},
                                       "operations": {"latency_p95_ms": 60000}}}},
            "workflows": {"w": {"routes": ["main", "spare"]}}}
        self.output = ""

    def at(self, server: Server) -> "Bench":
        for name, route in self.data["routes"].items():
            route["base_url"] = server.url(name)
        return self.write()

    def write(self, *rows: Json, count: int = 0) -> "Bench":
        self.card.write_text(json.dumps(self.data))
        if rows or count or not self.fixtures.exists():
            self.fixtures.write_text("".join(json.dumps(one) + "\n" for one in rows or [
                row(f"case {number}") for number in range(count or 3)]))
        return self

    def arguments(self, *more: str) -> "list[str]":
        return [str(self.card), "--workflow", "w", "--route", "spare", "--fixtures",
                str(self.fixtures), "--out", str(self.results), *more]

    def run(self, *more: str) -> "tuple[int, Json]":
        """The exit code and the report; 2 for bad input, as the command line's."""
        done = CliRunner().invoke(APP, [*self.arguments(*more), "--json"])
        self.output = done.output
        if isinstance(done.exception, FivegatesError):
            self.output = str(done.exception)
            return 2, {}
        if done.exit_code == 2:
            return 2, {}
        assert done.exception is None or isinstance(done.exception, SystemExit), (
            done.exception)
        found: Json = json.loads(done.stdout)
        return done.exit_code, found

    def now(self) -> Json:
        found: Json = json.loads(self.card.read_text())
        return found

    def contract(self) -> Json:
        found: Json = self.now()["contracts"][0]
        return found

    def lines(self, kind: str = "case") -> "list[Json]":
        found = map(json.loads, self.results.read_text().splitlines())
        return [one for one in found if one["line"] == kind]


@pytest.fixture
def bench(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    return Bench(tmp_path)


def row(name: str, *expect: Json, **request: typing.Any) -> Json:
    prompt = f"the pr0mpt of {name}"
    asked: Json = {"prompt": prompt} if not request else {"request": {
        "messages": [{"role": "user", "content": prompt}], **request}}
    return {"id": name, **asked, "expect": list(expect) or {
        "scorer": "contains", "value": "loopback"}}


TOOL = {"type": "function", "function": {"name": "refund", "parameters": {
    "type": "object", "properties": {"order": {"type": "string"}}}}}
WRONG = {"scorer": "exact", "value": "something else"}
