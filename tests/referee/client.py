"""A system's process: makes users' requests through it and tells what they got.

    python -m referee.client SYSTEM < jobs > results

A job is a line of JSON, {"job", "setup", "ask"}; so is a result, {"job",
"got"}. All systems are asyncio programs, as web applications are: a user who
leaves cancels the task.
"""

from __future__ import annotations

import asyncio
import dataclasses
import importlib
import importlib.metadata
import json
import os
import sys
import time
import typing

import httpx

from referee.ask import Ask, Got, Setup

__all__ = ["Reply", "Screen", "System", "Tools"]

Json = typing.Dict[str, typing.Any]
AT_ONCE = 8  # scenarios at the same time in one process
LIMIT_S = 15.0  # the referee's own patience with one user's request
TOOLS: "list[Json]" = [{"type": "function", "function": {
    "name": "refund", "description": "Refund an order.",
    "parameters": {"type": "object", "required": ["order"],
                   "properties": {"order": {"type": "string"}}}}}]


class Screen:
    """What the user sees. Text appears as it is shown."""

    def __init__(self, leaves_after_words: "int | None") -> None:
        self.text = ""
        self.first_at: "float | None" = None
        self.left_at: "float | None" = None
        self.task: "asyncio.Task[typing.Any] | None" = None
        self._leaves = leaves_after_words

    def show(self, piece: str) -> None:
        if not piece:
            return
        if self.first_at is None:
            self.first_at = time.monotonic()
        self.text += piece
        if self._leaves and len(self.text.split()) >= self._leaves:
            self.leave()

    def leave(self) -> None:
        """The user closes the page; the web server cancels the handler."""
        if self.left_at is None and self.task is not None:
            self.left_at = time.monotonic()
            self.task.cancel()


class Tools:
    """The application's side of the refund tool."""

    def __init__(self, url: str) -> None:
        self.url = f"{url}/tool/refund"

    async def refund(self, op: str, arguments: str) -> str:
        """Does it; raises when the arguments are no JSON, or when the tool's
        service does not acknowledge."""
        order = str(json.loads(arguments)["order"])
        async with httpx.AsyncClient() as http:
            answer = await http.post(self.url, json={"op": op, "about": order})
        answer.raise_for_status()
        return answer.text


@dataclasses.dataclass
class Reply:
    """A model's answer, as a system gave it."""

    text: str = ""
    tool_calls: "list[Json]" = dataclasses.field(default_factory=list)
    model: "str | None" = None
    spent: "int | None" = None
    call: typing.Any = None  # a system's own handle of the call


class System:
    """A way of retrying. One object serves all requests of a scenario."""

    packages: "tuple[str, ...]" = ()  # whose versions are told

    def __init__(self, setup: Setup, ask: Ask) -> None:
        self.setup = setup
        self.ask = ask

    async def model(self, messages: "list[Json]", screen: Screen) -> Reply:
        """One model request: streamed text goes to the screen as it comes."""
        raise NotImplementedError

    async def turn(self, screen: Screen, tools: Tools) -> Reply:
        """One user's request: the model, its tools, the model again."""
        messages = conversation(self.ask)
        reply = await self.model(messages, screen)
        while reply.tool_calls:
            results = [await self.tool(tools, one, reply)
                       for one in reply.tool_calls]
            messages += after_tools(reply.tool_calls, results)
            reply = await self.model(messages, screen)
        return reply

    async def tool(self, tools: Tools, one: Json, reply: Reply) -> str:
        """Does what the model asks for."""
        return await tools.refund(str(one["id"]), one["arguments"])

    def request(self, messages: "list[Json]") -> Json:
        """Arguments of chat.completions.create, without the model."""
        out: Json = {"messages": messages, "max_tokens": self.ask.max_tokens}
        if self.ask.agent:
            out["tools"] = TOOLS
        if self.ask.stream:
            out.update(stream=True, stream_options={"include_usage": True})
        return out

    def sdk_options(self) -> Json:
        """max_retries, where the scenario forces it; else the SDK's own."""
        return ({} if self.ask.sdk_retries is None
                else {"max_retries": self.ask.sdk_retries})


def conversation(ask: Ask) -> "list[Json]":
    out: "list[Json]" = [{"role": "user", "content": "Please help me."}]
    if ask.prefill:
        out.append({"role": "assistant", "content": "{"})
    return out


def after_tools(calls: "list[Json]", results: "list[str]") -> "list[Json]":
    out: "list[Json]" = [{"role": "assistant", "content": None, "tool_calls": [
        {"id": one["id"], "type": "function", "function": {
            "name": one["name"], "arguments": one["arguments"]}}
        for one in calls]}]
    return out + [{"role": "tool", "tool_call_id": one["id"], "content": text}
                  for one, text in zip(calls, results)]


def says_stop(exc: BaseException) -> bool:
    """Whether an error says that the same must not be tried again: by the
    header x-should-retry of its response, or by a decision it carries."""
    headers = getattr(getattr(exc, "response", None), "headers", None) or {}
    if headers.get("x-should-retry") == "false":
        return True
    decision = _decision(exc)
    return decision is not None and not decision.hint_should_retry


def _decision(exc: BaseException) -> typing.Any:
    """fivegates' decision; other systems' exceptions carry none."""
    return (getattr(exc, "decision", None)
            or getattr(getattr(exc, "refused", None), "decision", None))


def _tell(exc: BaseException, got: Got) -> None:
    """Everything the exception and its cause say, and what it is."""
    parts = [f"{type(one).__name__}: {one}" for one in (exc, exc.__cause__)
             if one is not None]
    decision = _decision(exc)
    if decision is not None:
        parts.append(f"{decision.reason} {decision.kind} {decision.repair} "
                     f"{decision.lookup} "
                     f"{[one['why'] for one in decision.rejected]}")
    got.error = " | ".join(parts)[:600]
    got.error_class = f"{type(exc).__module__}.{type(exc).__name__}"
    got.error_bases = [f"{kind.__module__.partition('.')[0]}.{kind.__name__}"
                       for kind in type(exc).__mro__]


async def _tries(system: System, screen: Screen, tools: Tools) -> Reply:
    """The user's request, within a job runner that tries again: on any error,
    but for one that says it must not."""
    ask = system.ask
    for left in reversed(range(ask.outer)):
        try:
            reply = await system.turn(screen, tools)
        except Exception as exc:
            if not left or says_stop(exc):
                raise
            await asyncio.sleep(0.1)
        else:
            if not ask.stream:
                screen.show(reply.text)
            return reply
    raise AssertionError("outer is at least 1")


async def one_user(system: System) -> Got:
    ask, got = system.ask, Got()
    screen, tools = Screen(ask.leaves_after_words), Tools(system.setup.url)
    started = time.monotonic()
    screen.task = task = asyncio.ensure_future(_tries(system, screen, tools))
    if ask.leaves_after_s is not None:
        asyncio.get_running_loop().call_later(ask.leaves_after_s, screen.leave)
    await asyncio.wait({task}, timeout=LIMIT_S)
    got.seconds = time.monotonic() - started
    if not task.done():
        got.hung = True
        task.cancel()
        await asyncio.wait({task}, timeout=5)
    elif task.cancelled():
        got.error = "cancelled"
    elif (exc := task.exception()) is not None:
        _tell(exc, got)
    else:
        reply = task.result()
        got.complete, got.model, got.spent = True, reply.model, reply.spent
    got.text, got.left_at = screen.text, screen.left_at
    if screen.first_at is not None:
        got.first_s = screen.first_at - started
    return got


async def _job(system: System) -> "list[Got]":
    users = []
    for _ in range(system.ask.count):
        users.append(asyncio.ensure_future(one_user(system)))
        if system.ask.every_s:
            await asyncio.sleep(system.ask.every_s)
        else:
            await asyncio.wait({users[-1]})
    return [await one for one in users]


def load(name: str) -> "type[System]":
    module = importlib.import_module(f"referee.systems.{name}")
    return typing.cast("type[System]", module.SYSTEM)


async def serve(kind: "type[System]", jobs: "list[Json]",
                tell: "typing.Callable[[Json], None]") -> None:
    """Builds every system first, so that building disturbs no clock."""
    built = [(job["job"], kind(Setup.of(job["setup"]), Ask(**job["ask"])))
             for job in jobs]
    at_once = asyncio.Semaphore(AT_ONCE)

    async def run(job: str, system: System) -> None:
        async with at_once:
            got = await _job(system)
        tell({"job": job, "got": [dataclasses.asdict(one) for one in got]})

    await asyncio.gather(*(run(job, system) for job, system in built))


def main() -> None:
    # Libraries print to stdout, so results go out by another descriptor.
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)

    def tell(line: Json) -> None:
        out.write(json.dumps(line) + "\n")

    kind = load(sys.argv[1])
    tell({"versions": {name: importlib.metadata.version(name)
                       for name in kind.packages}})
    jobs = [json.loads(line) for line in sys.stdin if line.strip()]
    asyncio.run(serve(kind, jobs, tell))


if __name__ == "__main__":
    main()
