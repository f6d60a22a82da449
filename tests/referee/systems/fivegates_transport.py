"""fivegates under the openai package: the policy transport. The application's
code is that of the bare package."""

from __future__ import annotations

import httpx
import httpx2
import openai

import fivegates
from fivegates import transport
from fivegates.runner import prior_of
from referee.ask import Ask, Setup
from referee.client import Json, Reply, Screen, System, Tools
from referee.systems.fivegates_card import engine_of
from referee.systems.openai_call import ask_openai


class Transport(System):
    packages = ("fivegates", "openai")

    def __init__(self, setup: Setup, ask: Ask) -> None:
        super().__init__(setup, ask)
        name, self.route = next(iter(setup.routes.items()))
        http = transport.async_client(httpx2, engine_of(setup, ask), "ask",
                                      keys=dict.fromkeys(setup.routes, "k"))
        self.client = openai.AsyncOpenAI(
            base_url=setup.base_url(name), api_key="k", http_client=http,
            **{"max_retries": 0, **self.sdk_options()})

    async def model(self, messages: "list[Json]", screen: Screen) -> Reply:
        with transport.guarded(prompt_tokens=self.ask.prompt_tokens) as seen:
            reply = await ask_openai(self.client, {
                "model": self.route.model, **self.request(messages)}, screen)
        if seen.call is not None:
            reply.call, reply.spent = seen.call, prior_of(seen.call)["tokens"]
        return reply

    async def tool(self, tools: Tools, one: Json, reply: Reply) -> str:
        """A transport sees no tools, so the application tells of them."""
        call, op = reply.call, f"{reply.call.id}-refund"
        call.tool(op, "started")
        try:
            result = await tools.refund(op, one["arguments"])
        except httpx.HTTPError as lost:  # done or not: look it up, do not repeat
            raise fivegates.Refused(call.cancel(), call) from lost
        call.tool(op, "committed")
        return result


SYSTEM = Transport
