"""examples/fastapi_chat at the gauntlet: the service, and one user of it."""

import asyncio
import os
import pathlib
import sys

import httpx2
import uvicorn

import fivegates

HERE = pathlib.Path(__file__).resolve().parent
FOLDER = HERE.parents[1] / "examples" / "fastapi_chat"
sys.path.append(str(FOLDER))
from app import make_app  # noqa: E402
from cards import policy_of  # noqa: E402


async def main() -> int:
    os.environ.update(CHAT_KEY="k", CHAT_KEY_BACKUP="k")
    engine = fivegates.Engine(policy_of(FOLDER))
    server = uvicorn.Server(uvicorn.Config(make_app(engine), port=0,
                                           log_level="warning"))
    serving = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
        answer = await client.post("/chat", json={"text": "hi"}, timeout=60)
    print(answer.status_code, answer.text)
    server.should_exit = True
    await serving
    return 0 if "event: done" in answer.text else 1


sys.exit(asyncio.run(main()))
