"""LiteLLM's Router: two retries, then the fallback."""

from __future__ import annotations

import os
import typing

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # asks no network

import litellm  # noqa: E402

from referee.ask import Ask, Setup  # noqa: E402
from referee.client import Json, Reply, Screen, System  # noqa: E402
from referee.systems.openai_call import reply_of  # noqa: E402

litellm.telemetry = False
litellm.suppress_debug_info = True


class LiteLLM(System):
    packages = ("litellm", "openai")

    def __init__(self, setup: Setup, ask: Ask) -> None:
        super().__init__(setup, ask)
        names = list(setup.routes)
        self.router = litellm.Router(
            model_list=[{"model_name": name, "litellm_params": {
                "model": f"openai/{route.model}", "api_key": "k",
                "api_base": setup.base_url(name),
                "timeout": ask.patience_s, "stream_timeout": ask.patience_s,
                **self.sdk_options()}}
                for name, route in setup.routes.items()],
            fallbacks=[{names[0]: names[1:]}], num_retries=2,
            timeout=ask.patience_s, cooldown_time=5 / ask.scale)
        self.primary = names[0]

    async def model(self, messages: "list[Json]", screen: Screen) -> Reply:
        answer: typing.Any = await self.router.acompletion(
            model=self.primary, **self.request(messages))
        if not self.ask.stream:
            return reply_of(answer)
        reply = Reply()
        async for chunk in answer:
            reply.model = chunk.model
            usage = getattr(chunk, "usage", None)
            if usage:
                reply.spent = usage.total_tokens
            if chunk.choices and chunk.choices[0].delta.content:
                reply.text += chunk.choices[0].delta.content
                screen.show(chunk.choices[0].delta.content)
        return reply


SYSTEM = LiteLLM
