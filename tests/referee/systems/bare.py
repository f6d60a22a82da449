"""The openai package as it comes: it retries twice by itself."""

from __future__ import annotations

import openai

from referee.ask import Ask, Setup
from referee.client import Json, Reply, Screen, System
from referee.systems.openai_call import ask_openai


class Bare(System):
    packages: "tuple[str, ...]" = ("openai",)

    def __init__(self, setup: Setup, ask: Ask) -> None:
        super().__init__(setup, ask)
        name, self.route = next(iter(setup.routes.items()))
        self.client = openai.AsyncOpenAI(
            base_url=setup.base_url(name), api_key="k",
            timeout=ask.patience_s, **self.sdk_options())

    async def model(self, messages: "list[Json]", screen: Screen) -> Reply:
        return await ask_openai(self.client, {
            "model": self.route.model, **self.request(messages)}, screen)


SYSTEM = Bare
