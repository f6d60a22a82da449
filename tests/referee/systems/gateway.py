"""fivegates in nginx: the openai package, without retries of its own, and the
gateway between it and the provider. The application knows nothing of it but
its address; how long its prompt is, it says in a header.

An nginx runs for each scenario. Tools act between two requests, where no
gateway is. So the application of an agent keeps a task around its requests,
whose engine sends each of them once and only knows what the tool did.
"""

from __future__ import annotations

import atexit
import pathlib
import shutil
import tempfile
import typing

import openai

import fivegates
from fivegates.agent import Task
from openresty.gateway import Gateway
from referee.ask import Ask, Setup
from referee.client import Json, Reply, Screen, System, Tools
from referee.systems.fivegates_card import card_of
from referee.systems.fivegates_tools import refund
from referee.systems.openai_call import ask_openai, reply_of

_AGENT: Json = {  # the application's own card: the gateway is its one route
    "version": 1, "routes": {"gateway": {"provider": "openai", "model": "any"}},
    "workflows": {"agent": {"routes": ["gateway"],
                            "budget": {"total_attempts": 1}}}}
_COUNTED = """facts = function(request)
    return { prompt_tokens = tonumber(request:header("x-prompt-tokens")) }
end"""


class InNginx(System):
    packages = ("fivegates", "openai")

    def __init__(self, setup: Setup, ask: Ask) -> None:
        super().__init__(setup, ask)
        self.route = next(iter(setup.routes.values()))
        folder = pathlib.Path(tempfile.mkdtemp(prefix="referee-gateway-"))
        atexit.register(shutil.rmtree, folder, True)
        gateway = Gateway(folder, card_of(setup, ask), '"ask"', workers=2,
                          env={"REFEREE_KEY": "k"}, options=_COUNTED).start()
        atexit.register(gateway.stop)
        self.client = openai.AsyncOpenAI(
            base_url=f"{gateway.url}/v1", api_key="of the gateway's clients",
            default_headers={"x-prompt-tokens": str(ask.prompt_tokens)},
            **{"max_retries": 0, **self.sdk_options()})
        self.task = Task(fivegates.Engine(_AGENT), "agent", reraise=True)

    async def model(self, messages: "list[Json]", screen: Screen) -> Reply:
        if not self.ask.agent:
            return await self._asked(messages, screen)
        return await self.task.aask(
            lambda attempt: self._asked(messages, screen))

    async def tool(self, tools: Tools, one: Json, reply: Reply) -> str:
        return await refund(self.task, tools, one["arguments"])

    async def _asked(self, messages: "list[Json]", screen: Screen) -> Reply:
        request = {"model": self.route.model, **self.request(messages)}
        if self.ask.stream:
            return await ask_openai(self.client, request, screen)
        raw: typing.Any = (
            await self.client.chat.completions.with_raw_response.create(
                **request))
        reply = reply_of(raw.parse())
        reply.spent = int(raw.headers["x-fivegates-tokens"])
        return reply


SYSTEM = InNginx
