"""fivegates around the openai package: await engine.arun(), as the steps of a
task where the model may use a tool."""

from __future__ import annotations

import typing

import httpx2
import openai

import fivegates
from fivegates.agent import Task
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
from referee.systems.fivegates_tools import refund
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
        self.task = Task(self.engine, "ask", **self.facts(), tools=["refund"],
                         features=["tools"])  # a job runner's tries share it

    def facts(self) -> Json:
        return {"prompt_tokens": self.ask.prompt_tokens, "reraise": True,
                "max_output_tokens": self.ask.max_tokens,
                "stream": self.ask.stream}

    async def send(self, attempt: fivegates.Attempt, messages: "list[Json]",
                   screen: Screen) -> typing.Any:
        """One request: a whole answer, or the text of a stream."""
        client = self.clients[str(attempt.route)].with_options(
            timeout=attempt.timeout(httpx2))
        answer = await client.chat.completions.create(
            **attempt.apply(self.request(messages)))
        if not self.ask.stream:
            return answer
        text = ""
        async for chunk in attempt.awatch(answer):
            if chunk.choices and chunk.choices[0].delta.content:
                text += chunk.choices[0].delta.content
                screen.show(chunk.choices[0].delta.content)
        return text

    async def model(self, messages: "list[Json]", screen: Screen) -> Reply:
        outcome = await self.engine.arun(
            "ask", lambda attempt: self.send(attempt, messages, screen),
            outcome=True, features=["prefill"] if self.ask.prefill else [],
            **self.facts())
        reply = (Reply(outcome.value) if self.ask.stream
                 else reply_of(outcome.value))
        if outcome.decision.label:
            served = self.engine.policy.route(outcome.decision.label["served"])
            reply.model = served["model"]
        reply.spent = prior_of(outcome.call)["tokens"]
        return reply

    async def turn(self, screen: Screen, tools: Tools) -> Reply:
        if not self.ask.agent:
            return await super().turn(screen, tools)
        messages = conversation(self.ask)
        while True:
            reply = reply_of(await self.task.aask(
                lambda attempt: self.send(attempt, messages, screen)))
            if not reply.tool_calls:
                return reply
            messages += after_tools(reply.tool_calls, [
                await refund(self.task, tools, one["arguments"])
                for one in reply.tool_calls])


SYSTEM = Runner
