"""The referee's rows of fivegates, and whether the referee sees bad clients.

The other systems' rows are what they are: `python -m referee` prints them.
"""

from __future__ import annotations

import asyncio
import json
import os
import pathlib
import sys
import typing

import pytest

pytest.importorskip("openai")
httpx = pytest.importorskip("httpx")

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
import referee.play  # noqa: E402
from referee import faults  # noqa: E402
from referee.ask import Setup  # noqa: E402
from referee.client import Json, Reply, Screen, System, Tools  # noqa: E402
from referee.play import Played, play, play_here  # noqa: E402
from referee.report import as_json, as_markdown, totals  # noqa: E402
from referee.scenarios import SCENARIOS, Scenario  # noqa: E402

SYSTEMS = ["fivegates", "fivegates transport"]


@pytest.fixture(scope="module")
def rows() -> "dict[tuple[str, str], Played]":
    if os.environ.get("FIVEGATES_SANITIZE"):
        pytest.skip("the scenarios' clocks are real, and sanitizers slow")
    played, _ = asyncio.run(play(SYSTEMS))
    return {(one.system, one.scenario.name): one for one in played}


@pytest.mark.parametrize("scenario", [one.name for one in SCENARIOS])
@pytest.mark.parametrize("system", SYSTEMS)
def test_fivegates(rows: "dict[tuple[str, str], Played]", system: str,
                   scenario: str) -> None:
    played = rows[system, scenario]
    assert not [f"{check.name}: {what}" for check, what in played.failed], (
        json.dumps(played.seen.journal.report(), indent=1))


# ---- clients as nobody should write them


class Careless(System):
    """Makes its requests by hand; what it does wrong, its children say."""

    async def post(self, route: str, messages: "list[Json]") -> typing.Any:
        async with httpx.AsyncClient() as http:
            answer = await http.post(
                self.setup.base_url(route) + "/chat/completions",
                json={"model": "m", **self.request(messages)})
            answer.raise_for_status()
            return answer.json()

    async def stream(self, route: str, messages: "list[Json]",
                     screen: Screen) -> str:
        """Shows what comes, and takes any end for the end."""
        text = ""
        async with httpx.AsyncClient() as http, http.stream(
                "POST", self.setup.base_url(route) + "/chat/completions",
                json={"model": "m", **self.request(messages)}) as answer:
            try:
                async for line in answer.aiter_lines():
                    if line.startswith("data: {"):
                        delta = json.loads(line[6:])["choices"][0]["delta"]
                        text += delta.get("content", "")
                        screen.show(delta.get("content", ""))
            except httpx.TransportError:
                pass
        return text

    async def model(self, messages: "list[Json]", screen: Screen) -> Reply:
        if self.ask.stream:
            return Reply(await self.stream("main", messages, screen))
        message = (await self.post("main", messages))["choices"][0]["message"]
        return Reply(message["content"] or "", [
            {"id": one["id"], **one["function"]}
            for one in message.get("tool_calls", ())])


class Twice(Careless):
    """Does a tool once more when its acknowledgement is lost."""

    async def tool(self, tools: Tools, one: Json, reply: Reply) -> str:
        try:
            return await super().tool(tools, one, reply)
        except httpx.HTTPStatusError:
            return await super().tool(tools, one, reply)


class Splicing(Careless):
    """Puts the stand-in's answer behind the beginning of the primary's."""

    async def model(self, messages: "list[Json]", screen: Screen) -> Reply:
        await self.stream("main", messages, screen)
        return Reply(await self.stream("backup", messages, screen))


class Hasty(Careless):
    """Tries again at once, until it works."""

    async def model(self, messages: "list[Json]", screen: Screen) -> Reply:
        while True:
            try:
                return await super().model(messages, screen)
            except httpx.HTTPStatusError:
                await asyncio.sleep(0.02)


class Deaf(Careless):
    """Goes on after the user has left."""

    async def model(self, messages: "list[Json]", screen: Screen) -> Reply:
        asking = asyncio.ensure_future(super().model(messages, screen))
        try:
            return await asyncio.shield(asking)
        except asyncio.CancelledError:
            await asyncio.sleep(0.15)
            await self.stream("backup", messages, Screen(None))
            raise


def scenario(name: str) -> Scenario:
    return next(one for one in SCENARIOS if one.name == name)


@pytest.mark.parametrize(("kind", "name", "missed"), [
    (Twice, "tool acknowledgement lost", "the tool acts at most once"),
    (Careless, "stream cut", "what is given out as an answer is a whole one"),
    (Careless, "no terminal sentinel",
     "what is given out as an answer is a whole one"),
    (Splicing, "stream cut", "nothing of two answers stands together"),
    (Hasty, "429 with Retry-After", "nothing sent there for the 1 s asked for"),
    (Hasty, "request that can never fit", "at most 1 request on main"),
    (Deaf, "client gone in the stream",
     "nothing is sent for a user who has left"),
    (Deaf, "client gone in the stream", "the server is told within 1 s"),
])
def test_bad_clients_are_seen(kind: "type[System]", name: str,
                              missed: str, monkeypatch: pytest.MonkeyPatch,
                              ) -> None:
    monkeypatch.setattr("referee.client.LIMIT_S", 3.0)
    played = asyncio.run(play_here(kind, scenario(name)))
    assert played.status == "failed"
    assert missed in {check.name for check, _ in played.failed if check.required}


def test_a_client_without_faults_passes() -> None:
    """The checks ask for nothing that a plain client cannot have."""
    fine = scenario("500 once")
    easy = Scenario(fine.name, fine.why, {"main": [faults.ok()]}, fine.ask,
                    fine.checks)
    played = asyncio.run(play_here(Careless, easy))
    assert played.status == "pass", played.failed
    assert totals([played]) == {
        "pass": 1, "advisory": 0, "failed": 0, "users": 1, "requests": 1,
        "billed": 62, "delivered": 12, "double_effects": 0}


def test_the_journal_counts() -> None:
    """What the server saw of one cut stream, and how it is told."""
    played = asyncio.run(play_here(Careless, scenario("stream cut")))
    request, = played.seen.journal.requests
    assert (request.route, request.fault, request.status) == ("main", "cut", 200)
    assert (request.billed, request.sent_tokens, request.whole) == (55, 5, False)
    assert played.seen.delivered == 0
    versions = {"Careless": {"httpx": "1"}}
    cell, = json.loads(as_json([played], versions))["cells"]
    assert cell["status"] == "failed" and cell["server"]["billed"] == 55
    assert "| stream cut | **failed** 1, 55/0 |" in as_markdown(
        [played], ["Careless"], versions)


def test_a_system_that_cannot_run_is_told(
        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(referee.play.SYSTEMS, "odd",
                        referee.play._System("no_such_module", False))
    with pytest.raises(RuntimeError, match="odd: 1 scenarios have no result"
                       "(?s:.*)no_such_module"):
        asyncio.run(play(["odd"], [scenario("500 once")]))


def test_setup_goes_through_json() -> None:
    raw = json.loads(json.dumps({
        "url": "http://127.0.0.1:1/w", "prices": {"input": 1.0},
        "routes": {"main": {"model": "m", "account": "a"}}}))
    assert Setup.of(raw).base_url("main") == "http://127.0.0.1:1/w/main/v1"
