"""A bedrock-runtime client whose calls the engine retries.

    python examples/bedrock/bedrock.py

guard() is the one line that a program with boto3 adds; here a client of
botocore, which is the same, talks to a loopback endpoint that fails.
"""

from __future__ import annotations

import json
import pathlib
import sys
import typing

import botocore.session  # type: ignore[import-untyped]

import fivegates
from fivegates.adapters.botocore import guard

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
from converse import converse  # noqa: E402
from loopback import Loopback  # noqa: E402

ASKED: "dict[str, typing.Any]" = {  # the card names the model that is asked
    "modelId": "vendor.large", "inferenceConfig": {"maxTokens": 100},
    "messages": [{"role": "user", "content": [{"text": "Say something."}]}]}


def guarded_client(engine: fivegates.Engine) -> typing.Any:
    """As boto3.client("bedrock-runtime"), then guard()."""
    client = botocore.session.Session().create_client(
        "bedrock-runtime", region_name="us-east-1",
        endpoint_url=engine.policy.route("large")["base_url"],
        aws_access_key_id="demo", aws_secret_access_key="demo")
    guard(client, engine, "answers", on_decision=told)
    return client


def told(decision: fivegates.Decision, call: fivegates.Call) -> None:
    if decision.action not in ("proceed", "accept"):
        print(f"  {decision.action}: {decision.reason}")


def whole(client: typing.Any, title: str) -> None:
    print(title)
    answer = client.converse(**ASKED)
    print(" ", answer["output"]["message"]["content"][0]["text"])


def streamed(client: typing.Any, title: str) -> None:
    print(title)
    words: "list[str]" = []
    try:
        for event in client.converse_stream(**ASKED)["stream"]:
            if "contentBlockDelta" in event:
                words.append(event["contentBlockDelta"]["delta"]["text"])
    except fivegates.Refused as refused:  # after text: nothing is sent again
        print(f"  {''.join(words)!r}, then: {refused.user_text}")
    else:
        print(f"  {''.join(words)} ({len(words)} events)")


def main() -> None:
    scripts = {"vendor.large": ["429", "ok", "503", "503", "ok", "early", "cut"],
               "vendor.small": ["ok"]}
    with Loopback(converse, **scripts) as provider:
        client = guarded_client(fivegates.Engine(
            provider.policy(HERE / "card.yaml")))
        whole(client, "throttled, then answered")
        whole(client, "unavailable: the smaller model answers")
        streamed(client, "a stream")
        streamed(client, "an error in a stream, before any text")
        streamed(client, "a stream that breaks after some text")
        client.close()
        print("server:", json.dumps(provider.seen))


if __name__ == "__main__":
    main()
