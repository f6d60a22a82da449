"""A client that takes a 429 for bad luck and tries again at once."""

import os
import sys

import httpx

with httpx.Client(timeout=1) as client:
    for attempt in range(8):
        try:
            answer = client.post(
                os.environ["OPENAI_BASE_URL"] + "/chat/completions", json={
                    "model": "gpt-4o", "messages": [
                        {"role": "user", "content": "Hello."}]})
            if answer.status_code != 429:
                break
        except httpx.HTTPError as error:
            sys.exit(f"failed: {error}")
if answer.status_code != 200:
    sys.exit(f"failed: {answer.status_code}")
try:
    print(answer.json()["choices"][0]["message"]["content"])
except (ValueError, LookupError):
    sys.exit("no answer in it")
