"""The demo: the same few hundred requests, the same faults, two clients.

First the openai package with its own retries inside a plain loop of three;
then the openai package without retries, asking fivegates. What is printed was
counted by the server.

    python examples/demo/demo.py [--users 300] [--seed 7] [--threads 8] [--keep DIR]
"""

from __future__ import annotations

import argparse
import concurrent.futures
import csv
import json
import os
import pathlib
import shutil
import subprocess
import sys
import textwrap
import threading
import time
import typing
import urllib.error
import urllib.request

import openai
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table
from rich.text import Text

import fivegates
from fivegates import transport
from fivegates.ledger import ListLedger
from fivegates.yaml import to_json

HERE = pathlib.Path(__file__).resolve().parent
TOOL_EVERY = 6  # each sixth user asks for a refund: a tool call with an effect
PATIENCE_S = 1.0  # the plain client's time-out, as such clients have one
TOOLS = [{"type": "function", "function": {
    "name": "refund", "description": "Refund an order.",
    "parameters": {"type": "object",
                   "properties": {"order": {"type": "string"}}}}}]

Json = typing.Dict[str, typing.Any]


# ---- the provider, in a process of its own


class Provider:
    """The loopback provider, seen from here."""

    def __init__(self, seed: int) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "provider.py"), "--seed", str(seed)],
            stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            sys.exit("demo: the provider did not start")
        self.url = f"http://127.0.0.1:{int(line)}"

    def call(self, path: str, body: "Json | None" = None) -> Json:
        raw = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(
            self.url + path, raw, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=5) as answer:
            return typing.cast(Json, json.load(answer))

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(timeout=5)


def effect(provider: Provider, op: str, user: str) -> None:
    """What the refund tool does in the outside world."""
    provider.call("/effects", {"op": op, "user": user})


def request_of(number: int) -> Json:
    """What a user asks the model for."""
    out: Json = {"model": "demo-model", "max_tokens": 100, "messages": [
        {"role": "user", "content": f"Please help with order {number}."}]}
    if number % TOOL_EVERY == 0:
        out["tools"] = TOOLS
    else:
        out["stream"] = True
        out["stream_options"] = {"include_usage": True}
    return out


# ---- a client with retries in a loop


class Plain:
    """The openai package's own two retries inside three tries."""

    name = "retries in a loop"

    def __init__(self, provider: Provider) -> None:
        self.provider = provider
        self.client = openai.OpenAI(
            base_url=provider.url + "/main/v1", api_key="demo", max_retries=2,
            timeout=PATIENCE_S)

    def serve(self, number: int) -> bool:
        user = f"u{number}"
        for attempt in range(3):
            try:
                answer = self.client.chat.completions.create(
                    **request_of(number), extra_headers={"X-Demo-User": user})
                if number % TOOL_EVERY == 0:
                    effect(self.provider, f"{user}-{attempt}", user)
                else:
                    for _ in answer:
                        pass
                return True
            except Exception:  # noqa: BLE001 - as such loops are written
                time.sleep(0.2 * (attempt + 1))
        return False


# ---- a client that asks


class Guarded:
    """The openai package without retries; fivegates decides."""

    name = "fivegates"

    def __init__(self, provider: Provider) -> None:
        self.provider = provider
        self.card = (HERE / "card.yaml").read_text(encoding="utf-8").replace(
            "http://127.0.0.1:0", provider.url)
        self.engine = fivegates.Engine(fivegates.Policy.loads(self.card))
        self.clients = {
            name: openai.OpenAI(
                base_url=route["base_url"], api_key="demo", max_retries=0,
                http_client=transport.timed_client(openai_http()))
            for name, route in json.loads(to_json(self.card).json)["routes"].items()}
        self.ledger = ListLedger()
        self.shown: "list[tuple[fivegates.Decision, fivegates.Call, str]]" = []
        self.lock = threading.Lock()

    def heard(self, decision: fivegates.Decision, call: fivegates.Call) -> None:
        """Keeps one decision of each kind for the end."""
        if decision.action in ("proceed", "accept"):
            return
        key = (decision.action, decision.reason)
        with self.lock:
            if all((d.action, d.reason) != key for d, _, _ in self.shown):
                self.shown.append((decision, call, decision.explain()))

    def serve(self, number: int) -> bool:
        user = f"u{number}"
        request = request_of(number)
        tool = number % TOOL_EVERY == 0

        def send(attempt: fivegates.Attempt) -> typing.Any:
            assert attempt.route is not None
            client = self.clients[attempt.route]
            sent = attempt.apply(request)
            sent["extra_headers"]["X-Demo-User"] = user
            answer = client.chat.completions.create(**sent)
            if tool:
                op = f"{attempt.call.id}-refund"
                attempt.tool(op, "started")
                effect(self.provider, op, user)
                attempt.tool(op, "committed")
                return answer
            text = ""
            for chunk in attempt.watch(answer):
                for choice in chunk.choices:
                    text += choice.delta.content or ""
            return text

        try:
            self.engine.run(
                "refund" if tool else "answer", send, prompt_tokens=400,
                max_output_tokens=100, stream=not tool,
                features=["tools"] if tool else None,
                tools=["refund"] if tool else None,
                clear=lambda decision: None, preset=lambda decision: None,
                on_decision=self.heard, ledger=self.ledger)
            return True
        except fivegates.Refused as refused:
            return self.settle(refused)

    def settle(self, refused: fivegates.Refused) -> bool:
        """Looks up what a refund did, instead of doing it again."""
        if refused.decision.reason != "reconcile_first" or refused.call is None:
            return False
        op = f"{refused.call.id}-refund"
        done = self.provider.call(f"/effects/{op}")["done"]
        refused.call.resolved(op, "committed" if done else "none")
        return bool(done)


def openai_http() -> typing.Any:
    """The HTTP package under this version of openai."""
    return sys.modules.get("httpx2") or sys.modules["httpx"]


# ---- running and telling


def run(client: "Plain | Guarded", provider: Provider, users: int,
        threads: int, progress: Progress) -> "tuple[Json, int, float]":
    """All users through one client: the server's report, answers, seconds."""
    provider.call("/run", {"name": client.name})
    task = progress.add_task(client.name, total=users)
    started = time.monotonic()
    good = 0
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        for answered in pool.map(client.serve, range(1, users + 1)):
            good += answered
            progress.advance(task)
    seconds = time.monotonic() - started
    while (report := provider.call("/journal"))["active"]:
        time.sleep(0.1)  # what was hung up on is still being worked on
    return report, good, seconds


def table_of(runs: "dict[str, tuple[Json, int, float]]", users: int) -> Table:
    table = Table("counted by the server", *runs, title=f"{users} user requests")
    rows: "list[tuple[str, typing.Callable[[Json, int, float], str]]]" = [
        ("requests per user request",
         lambda r, good, s: f"{r['requests'] / users:.2f}"),
        ("tokens billed", lambda r, good, s: f"{r['billed']:,}"),
        ("billed per answer token delivered",
         lambda r, good, s: f"{r['billed'] / max(1, r['delivered']):.2f}"),
        ("users with a whole answer", lambda r, good, s: str(r["answers"])),
        ("whole answers sent", lambda r, good, s: str(r["answers_sent"])),
        ("effects of the refund tool", lambda r, good, s: str(r["effects"])),
        ("double effects", lambda r, good, s: str(r["double_effects"])),
        ("503 / 429 answered", lambda r, good, s: " / ".join(
            str(r["statuses"].get(code, 0)) for code in ("503", "429"))),
        ("requests hung up on",
         lambda r, good, s: str(r["statuses"].get("hung up", 0))),
        ("users told all is well", lambda r, good, s: str(good)),
        ("seconds", lambda r, good, s: f"{s:.1f}"),
    ]
    for name, tell in rows:
        table.add_row(name, *(tell(*result) for result in runs.values()))
    return table


def choose(shown: "list[typing.Any]") -> "list[typing.Any]":
    """Five of them, with as many different actions as there are."""
    first: "dict[str, typing.Any]" = {}
    for one in shown:
        first.setdefault(one[0].action, one)
    out = list(first.values())
    out += [one for one in shown if one not in out]
    return out[:5]


def explain(console: Console, client: Guarded) -> None:
    """Five lines of the ledger, and why."""
    console.print(Text("\nFive decisions from the ledger, explained", "bold"))
    lines = [json.loads(line) for line in client.ledger.lines]
    for decision, call, text in choose(client.shown):
        line: Json = next((one for one in lines if one["line"] == "decision"
                     and one["call"] == call.id
                     and one["reason"] == decision.reason), {})
        short = {key: line[key] for key in (
            "call", "workflow", "action", "route", "wait_ms", "gate", "reason",
            "owner", "kind", "billing", "shown", "effect", "attempts_left",
            "elapsed_left_ms") if key in line}
        console.print(Text("\n" + json.dumps(short), "cyan"), soft_wrap=True)
        console.print(Text(textwrap.indent(text.rstrip(), "  ")),
                      soft_wrap=True)


def keep(folder: pathlib.Path, client: Guarded, bill: "list[Json]") -> None:
    """What the other commands read: the card, the ledger, and the provider's bill
    of the same requests in the form of OpenRouter's export."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "card.yaml").write_text(client.card, encoding="utf-8")
    (folder / "calls.jsonl").write_text("".join(
        line.rstrip("\n") + "\n" for line in client.ledger.lines), encoding="utf-8")
    with open(folder / "openrouter_activity.csv", "w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, bill[0])
        table.writeheader()
        table.writerows(bill)


def next_steps(folder: pathlib.Path) -> str:
    """The commands for what was kept, to be copied."""
    script = pathlib.Path(sys.executable).parent / "fivegates"
    command = "fivegates" if shutil.which("fivegates") else os.path.relpath(script)
    return (f"\nIts ledger, its card and the provider's bill are in {folder}. What next:\n\n"
            f"  {command} report {folder}/calls.jsonl\n"
            f"  {command} reconcile {folder}/calls.jsonl --bill {folder}/openrouter_activity.csv\n"
            f"  {command} replay {folder}/calls.jsonl --card {folder}/card.yaml "
            "--what-if retry_bucket.cap=5")


def main() -> int:
    parser = argparse.ArgumentParser(description="fivegates' demo")
    parser.add_argument("--users", type=int, default=300, help="requests of each client (300)")
    parser.add_argument("--seed", type=int, default=7, help="of the faults (7)")
    parser.add_argument("--threads", type=int, default=8, help="users at once (8)")
    parser.add_argument("--keep", type=pathlib.Path, metavar="DIR", help=(
        "leave the ledger, its card and the provider's bill there"))
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    console = Console(highlight=False)
    provider = Provider(options.seed)
    try:
        runs: "dict[str, tuple[Json, int, float]]" = {}
        guarded = Guarded(provider)
        with Progress(TextColumn("{task.description:<18}"), BarColumn(),
                      MofNCompleteColumn(), TimeElapsedColumn(),
                      console=Console(stderr=True)) as progress:
            for client in (Plain(provider), guarded):
                runs[client.name] = run(client, provider, options.users,
                                        options.threads, progress)
        if options.keep:
            keep(options.keep, guarded, provider.call("/bill")["rows"])
    finally:
        provider.stop()
    if options.json:
        print(json.dumps({name: {**report, "good": good, "seconds": seconds}
                          for name, (report, good, seconds) in runs.items()}))
        return 0
    console.print(Text(
        "\nThe same provider and the same faults for both: a fifth of the "
        "answers begins after 1.6 s, 503 for 2 s, 429 with Retry-After for "
        "2 s, 4 % of the streams cut in the middle, a quarter of the refunds "
        "done but not acknowledged. A hang-up does not stop the bill. The "
        f"plain client waits {PATIENCE_S:g} s; fivegates' card lets a first "
        "token take 5 s and names a second account.\n"))
    console.print(table_of(runs, options.users))
    explain(console, guarded)
    if options.keep:
        console.print(Text(next_steps(options.keep)), soft_wrap=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
