"""fivegates around the openai package: await engine.arun()."""

from __future__ import annotations

import typing

import httpx2
import openai

import fivegates
from fivegates.runner import prior_of
from referee.ask import Ask, Setup
from referee.client import (
    Json,
    Reply,
    Screen,
    System,
    Tools,
    after_tools,
    conversation,
)
from referee.systems.fivegates_card import engine_of
from referee.systems.openai_call import reply_of


class Runner(System):
    packages = ("fivegates", "openai")

    def __init__(self, setup: Setup, ask: Ask) -> None:
        super().__init__(setup, ask)
        self.engine = engine_of(setup, ask)
        options = {"max_retries": 0, **self.sdk_options()}
        self.clients = {name: openai.AsyncOpenAI(
            base_url=setup.base_url(name), api_key="k", **options)
            for name in setup.routes}

    async def turn(self, screen: Screen, tools: Tools) -> Reply:
        messages = conversation(self.ask)
        call: "fivegates.Call | None" = None
        results: "list[str]" = []

        async def send(attempt: fivegates.Attempt) -> typing.Any:
            client = self.clients[str(attempt.route)].with_options(
                timeout=attempt.timeout(httpx2))
            answer = await client.chat.completions.create(
                **attempt.apply(self.request(messages)))
            if not self.ask.stream:
                for one in answer.choices[0].message.tool_calls or () if (
                        answer.choices) else ():
                    if answer.choices[0].finish_reason == "tool_calls":
                        results.append(await self.refund(attempt, tools, one))
                return answer
            text = ""
            async for chunk in attempt.awatch(answer):
                if chunk.choices and chunk.choices[0].delta.content:
                    text += chunk.choices[0].delta.content
                    screen.show(chunk.choices[0].delta.content)
            return text

        while True:
            outcome = await self.engine.arun(
                "ask", send, outcome=True, reraise=True, call=call, resume=True,
                prompt_tokens=self.ask.prompt_tokens,
                max_output_tokens=self.ask.max_tokens, stream=self.ask.stream,
                features=self.features(),
                tools=["refund"] if self.ask.agent else None)
            reply = (Reply(outcome.value) if self.ask.stream
                     else reply_of(outcome.value))
            reply.model = self.engine.policy.route(
                outcome.decision.label["served"])["model"] if (
                outcome.decision.label) else reply.model
            reply.spent = prior_of(outcome.call)["tokens"]
            if not reply.tool_calls:
                return reply
            messages += after_tools(reply.tool_calls, results)
            call, results = outcome.call, []

    def features(self) -> "list[typing.Any]":
        return (["prefill"] if self.ask.prefill else []) + (
            ["tools"] if self.ask.agent else [])

    async def refund(self, attempt: fivegates.Attempt, tools: Tools,
                     tool: typing.Any) -> str:
        """Acts on the world, under one id for all attempts of the call."""
        op = f"{attempt.call.id}-refund"
        attempt.tool(op, "started")
        result = await tools.refund(op, tool.function.arguments)
        attempt.tool(op, "committed")
        return result


SYSTEM = Runner
