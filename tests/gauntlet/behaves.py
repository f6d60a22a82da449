"""A client as it should be: one layer that retries, a deadline, and only a
whole answer is one."""

import sys

import openai

client = openai.OpenAI(max_retries=1, timeout=1)
try:
    stream = client.chat.completions.create(
        model="gpt-4o", stream=True,
        messages=[{"role": "user", "content": "Hello."}])
    text, finish = "", None
    for chunk in stream:
        for choice in chunk.choices:
            text += choice.delta.content or ""
            finish = choice.finish_reason or finish
except (openai.APIError, ValueError) as error:
    sys.exit(f"failed: {error}")
if finish != "stop":
    sys.exit(f"the answer was cut: {text}")
print(text)
