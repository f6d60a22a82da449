"""A client without a time-out."""

import os
import sys

import httpx

try:
    answer = httpx.post(os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages",
                        timeout=None, json={
                            "model": "claude", "max_tokens": 100, "messages": [
                                {"role": "user", "content": "Hello."}]})
    print(answer.raise_for_status().json()["content"][0]["text"])
except (httpx.HTTPError, ValueError, LookupError) as error:
    sys.exit(f"failed: {error}")
