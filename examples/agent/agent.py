"""An agent with a tool that takes money: whatever fails, it takes it once.

    python examples/agent/agent.py
"""

from __future__ import annotations

import json
import os
import pathlib
import sys
import typing

import httpx2
import openai

import fivegates
from fivegates import transport
from fivegates.agent import Task

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
from loopback import Loopback, Request, chat  # noqa: E402

Json = typing.Dict[str, typing.Any]
TOOLS: "list[typing.Any]" = [{"type": "function", "function": {
    "name": "charge_card", "parameters": {"type": "object", "properties": {}}}}]


# ---- the agent


class Agent:
    def __init__(self, engine: fivegates.Engine, shop: str) -> None:
        self.engine = engine
        self.shop = httpx2.Client(base_url=shop)
        routes = map(engine.policy.route, engine.policy.routes())
        self.clients = {route["name"]: openai.OpenAI(
            base_url=route["base_url"], max_retries=0,
            http_client=transport.timed_client(httpx2),
            api_key=os.environ[route["key_env"]]) for route in routes}

    def run(self, order: str) -> str:
        """Serves one order; what the model says in the end."""
        messages: "list[Json]" = [{"role": "user", "content": f"Buy {order}."}]

        def send(attempt: fivegates.Attempt) -> typing.Any:
            client = self.clients[attempt.route or ""]
            return client.chat.completions.create(**attempt.apply({
                "model": "gpt-4o", "messages": messages, "tools": TOOLS}))

        task = Task(self.engine, "orders", stream=False, features=["tools"],
                    tools=["charge_card"], prompt_tokens=100,
                    max_output_tokens=100, on_decision=told)
        while True:
            message = task.ask(send).choices[0].message
            if not message.tool_calls:
                return message.content or ""
            messages.append(message.model_dump(exclude_none=True))
            for tool in message.tool_calls:
                receipt = self.charge(task, order)
                messages.append({"role": "tool", "tool_call_id": tool.id,
                                 "content": json.dumps(receipt)})

    def charge(self, task: Task, order: str) -> Json:
        """Charges once in this task, however often the model asks."""
        try:
            with task.tool("charge_card", key=order) as op:
                if not op.held:
                    op.result = self.shop.post(
                        "/", json={"op": op.id}).raise_for_status().json()
            return typing.cast(Json, op.result)
        except httpx2.HTTPError:
            print("  charge_card: no acknowledgement; looking it up")
            found = self.shop.get("/", params={"op": op.id}).json()
            task.resolve("charge_card", key=order, result=found or None,
                         effect="committed" if found else "none")
            return typing.cast(Json, found) or self.charge(task, order)


def told(decision: fivegates.Decision, call: fivegates.Call) -> None:
    if decision.action not in ("proceed", "accept"):
        print(f"  {decision.action}: {decision.reason}")


# ---- the demonstration


class Shop:
    """Takes money; keeps what it took. Some acknowledgements are lost."""

    def __init__(self) -> None:
        self.charges: "list[str]" = []

    def answer(self, request: Request, word: str, body: Json) -> None:
        op = body.get("op") or request.path.partition("op=")[2]
        op = op.replace("%3A", ":")
        if request.command == "POST":
            self.charges.append(op)
            if word == "lost":
                return request.reset()
        request.json(200, {"charged": op} if op in self.charges else {})
        return None


def main() -> None:
    os.environ.update(AGENT_KEY="demo", AGENT_KEY_BACKUP="demo")
    shop = Shop()

    def answer(request: Request, word: str, body: Json) -> None:
        (shop.answer if request.path.startswith("/shop") else chat)(
            request, word, body)

    # The stand-in asks for the charge once more; it is held, not made again.
    with Loopback(answer, main=["tool", "503", "503", "ok", "tool", "ok"],
                  backup=["tool"], shop=["ok", "lost", "ok"]) as provider:
        agent = Agent(fivegates.Engine(provider.policy(HERE / "card.yaml")),
                      provider.url + "/shop/")
        print("the provider fails after the tool has acted")
        print(" ", agent.run("order-1"))
        print("the acknowledgement of the tool is lost")
        print(" ", agent.run("order-2"))
        print("server:", json.dumps({**provider.seen, "charges": shop.charges}))
        agent.shop.close()
        for client in agent.clients.values():
            client.close()


if __name__ == "__main__":
    main()
