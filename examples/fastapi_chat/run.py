"""The chat app, served to a few clients, on a provider that fails.

    python examples/fastapi_chat/run.py
"""

from __future__ import annotations

import asyncio
import json
import os
import pathlib
import sys

import httpx2
import uvicorn

import fivegates

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
from app import make_app  # noqa: E402
from loopback import Loopback  # noqa: E402


async def ask(client: httpx2.AsyncClient, title: str, *,
              most: int = 99, patience_s: float = 5) -> None:
    """Asks; leaves after so many events, or so much silence."""
    print(f"\n{title}")
    try:
        async with client.stream("POST", "/chat", json={"text": "hi"},
                                 timeout=patience_s) as answer:
            print(f"  HTTP {answer.status_code}")
            async for line in answer.aiter_lines():
                if line:
                    print(f"  {line}")
                else:
                    most -= 1
                if most == 0:
                    break
    except httpx2.ReadTimeout:
        print("  (left before anything came)")


async def demonstrate(provider: Loopback) -> None:
    engine = fivegates.Engine(provider.policy(HERE / "card.yaml"))
    server = uvicorn.Server(uvicorn.Config(make_app(engine), port=0,
                                           log_level="warning"))
    serving = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
        await ask(client, "an answer, event by event")
        await ask(client, "one account is overloaded; the other answers")
        await ask(client, "an answer without an end; the client leaves", most=3)
        print("  upstream stopped:", await asyncio.to_thread(provider.hung_up))
        await ask(client, "silence; the client leaves", patience_s=0.3)
        print("  upstream stopped:", await asyncio.to_thread(provider.hung_up))
        await ask(client, "a stream that breaks after some text")
        await ask(client, "a request that the provider rejects")
        await ask(client, "both accounts are down")
    server.should_exit = True
    await serving
    told = engine.workflow("chat")
    print("\nengine:", json.dumps({name: told[name] for name in (
        "calls", "primary_success", "fallback_recovery", "cancelled",
        "failed_closed")}))


def main() -> None:
    os.environ.update(CHAT_KEY="demo", CHAT_KEY_BACKUP="demo")
    with Loopback(main=["ok", "503", "503", "endless", "silent", "cut", "400",
                        "503"], backup=["ok", "503"]) as provider:
        asyncio.run(demonstrate(provider))
        print("server:", json.dumps(provider.seen))


if __name__ == "__main__":
    main()
