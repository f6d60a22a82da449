"""LangChain: ChatOpenAI.with_fallbacks, each model with its own two retries."""

from __future__ import annotations

import json
import typing

from langchain_openai import ChatOpenAI

from referee.ask import Ask, Setup
from referee.client import TOOLS, Json, Reply, Screen, System


class LangChain(System):
    packages = ("langchain-core", "langchain-openai", "openai")

    def __init__(self, setup: Setup, ask: Ask) -> None:
        super().__init__(setup, ask)
        models: "list[typing.Any]" = [ChatOpenAI(
            base_url=setup.base_url(name), api_key="k", model=route.model,
            timeout=ask.patience_s, max_tokens=ask.max_tokens,
            stream_usage=True, **self.sdk_options())
            for name, route in setup.routes.items()]
        if ask.agent:
            models = [one.bind_tools(TOOLS) for one in models]
        self.chain = models[0].with_fallbacks(models[1:])

    async def model(self, messages: "list[Json]", screen: Screen) -> Reply:
        if not self.ask.stream:
            return _reply(await self.chain.ainvoke(messages))
        reply = Reply()
        async for chunk in self.chain.astream(messages):
            one = _reply(chunk)
            reply.text += one.text
            reply.model = one.model or reply.model
            reply.spent = one.spent or reply.spent
            screen.show(one.text)
        return reply


def _reply(message: typing.Any) -> Reply:
    usage = message.usage_metadata
    calls = [{"id": one["id"], "name": one["name"],
              "arguments": json.dumps(one["args"])}
             for one in message.tool_calls]
    calls += [{"id": one["id"], "name": one["name"], "arguments": one["args"]}
              for one in message.invalid_tool_calls]
    return Reply(str(message.content), calls,
                 message.response_metadata.get("model_name"),
                 usage["total_tokens"] if usage else None)


SYSTEM = LangChain
