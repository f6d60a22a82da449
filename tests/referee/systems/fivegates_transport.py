"""fivegates under the openai package: the policy transport. The application's
code is that of the bare package, but for the tool, which a transport cannot
see: it is told of as an operation of a task."""

from __future__ import annotations

import httpx2
import openai

from fivegates import transport
from fivegates.agent import Task
from fivegates.runner import prior_of
from referee.ask import Ask, Setup
from referee.client import Json, Reply, Screen, System, Tools
from referee.systems.fivegates_card import engine_of
from referee.systems.fivegates_tools import refund
from referee.systems.openai_call import ask_openai


class Transport(System):
    packages = ("fivegates", "openai")

    def __init__(self, setup: Setup, ask: Ask) -> None:
        super().__init__(setup, ask)
        name, self.route = next(iter(setup.routes.items()))
        engine = engine_of(setup, ask)
        self.client = openai.AsyncOpenAI(
            base_url=setup.base_url(name), api_key="k",
            http_client=transport.async_client(
                httpx2, engine, "ask", keys=dict.fromkeys(setup.routes, "k")),
            **{"max_retries": 0, **self.sdk_options()})
        self.task = Task(engine, "ask")  # a job runner's tries share it

    async def model(self, messages: "list[Json]", screen: Screen) -> Reply:
        self.task.ready()  # refuses while a refund is unresolved
        with transport.guarded(prompt_tokens=self.ask.prompt_tokens) as seen:
            reply = await ask_openai(self.client, {
                "model": self.route.model, **self.request(messages)}, screen)
        if seen.call is not None:
            reply.call, reply.spent = seen.call, prior_of(seen.call)["tokens"]
        return reply

    async def tool(self, tools: Tools, one: Json, reply: Reply) -> str:
        self.task.took(reply.call)
        return await refund(self.task, tools, one["arguments"])


SYSTEM = Transport
