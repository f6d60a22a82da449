"""An agent in a job runner that starts over when anything fails: its refund is
made again."""

import os
import sys

import httpx

URL = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
TOOLS = [{"type": "function", "function": {
    "name": "refund", "parameters": {"type": "object", "properties": {
        "order": {"type": "string"}}}}}]


def refund() -> str:
    return '{"refunded": true}'


def ask(messages: list) -> dict:
    answer = httpx.post(URL, timeout=1, json={
        "model": "gpt-4o", "tools": TOOLS, "messages": messages})
    answer.raise_for_status()
    return answer.json()["choices"][0]["message"]


def job() -> str:
    messages: list = [{"role": "user", "content": "Refund order 17."}]
    while True:
        message = ask(messages)
        if not message.get("tool_calls"):
            return message["content"]
        messages.append(message)
        for call in message["tool_calls"]:
            messages.append({"role": "tool", "tool_call_id": call["id"],
                             "content": refund()})


for attempt in range(4):
    try:
        print(job())
        break
    except (httpx.HTTPError, KeyError, IndexError, ValueError) as error:
        print(f"starting over: {error}", file=sys.stderr)
else:
    sys.exit(1)
