"""fivegates contract verify: functions that are asked, interrupts, and input
that it refuses before anything is sent."""

from __future__ import annotations

import os
import signal
import sys
import typing

import pytest
import typer

from .contract_rig import TOOL, Bench, bench, row, serve

__all__ = ["bench", "serve"]

for _needed in ("regex", "jsonschema", "httpx", "h11"):
    pytest.importorskip(_needed)
if os.environ.get("FIVEGATES_SANITIZE"):
    pytest.skip("nothing of the library is in it", allow_module_level=True)

Json = typing.Dict[str, typing.Any]


# ---- functions


def function(bench: Bench, monkeypatch: pytest.MonkeyPatch, body: str) -> str:
    name = f"asked_{bench.folder.name}".replace("-", "_")
    (bench.folder / f"{name}.py").write_text(
        "import asyncio, os, signal\nimport httpx\nSEEN = []\n" + body)
    monkeypatch.syspath_prepend(str(bench.folder))
    return f"{name}:ask"


PLAIN = """
def ask(request, route):
    SEEN.append((request["model"], route["name"]))
    return "Paris" if route["name"] == "main" else "London"
"""


def test_a_function_is_asked(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    name = function(bench, monkeypatch, PLAIN)
    bench.write(row("one", {"scorer": "exact", "value": "Paris"}))
    code, report = bench.run("--call", name)
    assert code == 0
    assert report["sides"]["primary"]["passed"] == 1 and report["sides"]["route"]["failed"] == 1
    module = sys.modules[name.partition(":")[0]]
    assert set(module.SEEN) == {("m1", "main"), ("m2", "spare")}
    # A text tells no usage: what it may have cost at most stays counted.
    assert [one["billed"] for one in bench.lines()] == [False, False]
    assert all(one["cost_nusd"] > 1_000_000 for one in bench.lines())
    assert report["operations"]["first_token_p95_ms"]["measured"] is None


@pytest.mark.parametrize("text", ["", " \n", None])
def test_blanks_are_no_answer(bench: Bench, monkeypatch: pytest.MonkeyPatch,
                              text: "str | None") -> None:
    """The engine's own check says so, whatever the fixtures expect."""
    name = function(bench, monkeypatch, f"""
def ask(request, route):
    return {{"choices": [{{"finish_reason": "stop", "message": {{"content": {text!r}}}}}]}}
""")
    bench.write(row("one", {"scorer": "regex", "pattern": "^"}))
    _, report = bench.run("--call", name)
    assert [one["reasons"] for one in report["failing"]] == [["output check: empty_answer"]] * 2
    assert [one["result"] for one in report["failing"]] == ["failed"] * 2


def test_a_coroutine_function_whose_calls_fail(
        bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    name = function(bench, monkeypatch, """
async def ask(request, route):
    SEEN.append(route["name"])
    if SEEN.count(route["name"]) == 1:
        raise httpx.ConnectError("refused")
    return {"choices": [{"finish_reason": "length", "message": {"content": "Paris"}}],
            "usage": {"prompt_tokens": 10, "completion_tokens": 2}}
""")
    bench.write(row("one", {"scorer": "exact", "value": "Paris"}))
    code, report = bench.run("--call", name)
    assert code == 0 and {tuple(one["reasons"]) for one in report["failing"]} == {
        ("ended by length",)}
    assert [one["sends"] for one in bench.lines()] == [2, 2]
    # What never left cost nothing; the rest by the usage.
    assert sorted(one["cost_nusd"] for one in bench.lines()) == [45_000, 60_000]


def test_what_an_answer_says_it_cost_counts(
        bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it is more than the card's price makes of it: 45,000 and 60,000."""
    name = function(bench, monkeypatch, """
def ask(request, route):
    return {"choices": [{"finish_reason": "stop", "message": {"content": "loopback"}}],
            "usage": {"prompt_tokens": 10, "completion_tokens": 2, "cost": 0.00005}}
""")
    assert bench.write(count=1).run("--call", name)[0] == 0
    assert sorted(one["cost_nusd"] for one in bench.lines()) == [50_000, 60_000]


def test_a_mistake_in_a_function_is_no_result(
        bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    name = function(bench, monkeypatch, """
def ask(request, route):
    raise KeyError(str(request))
def judge(answer, row):
    raise KeyError(answer["text"])
""")
    assert bench.write().run("--call", name)[0] == 2
    assert "--call raised KeyError" in bench.output and "pr0mpt" not in bench.output
    assert bench.lines() == [] and bench.lines("left") != []
    judge = name.replace(":ask", ":judge")
    (bench.folder / "plain.py").write_text(PLAIN.replace("SEEN.append", "len"))
    bench.write(row("one", {"scorer": judge}))
    assert bench.run("--call", "plain:ask", "--fresh", "--scorer", judge)[0] == 2
    assert "raised KeyError for case one" in bench.output and bench.lines() == []
    assert "contracts" not in bench.now()


@pytest.mark.parametrize("body, code, words", [
    ("def ask(request, route):\n    raise SystemExit(0)", 2, "--call raised SystemExit"),
    ("async def ask(request, route):\n    raise SystemExit(0)", 2, "--call raised SystemExit"),
    ("def ask(request, route):\n    raise KeyboardInterrupt", 2, "raised KeyboardInterrupt"),
    ("async def ask(request, route):\n    raise asyncio.CancelledError", 3, ""),
    ("def ask(request, route):\n    return None", 2, "--call returned NoneType"),
    ("def ask(request, route):\n    return b'loopback'", 2, "--call returned bytes"),
    ("raise SystemExit(0)", 2, "does not load: SystemExit")])
def test_a_function_that_ends_the_program_or_says_nothing(
        bench: Bench, monkeypatch: pytest.MonkeyPatch, body: str, code: int, words: str) -> None:
    """Exit code 0 would say that the evidence is there."""
    name = function(bench, monkeypatch, body)
    assert bench.write().run("--call", name)[0] == code
    assert words in bench.output and "contracts" not in bench.now()


MEDDLER = """
def ask(request, route):
    print("asked")
    SEEN.append(len(request["messages"]))
    request["messages"].clear()
    os.chdir("/")
    return "loopback"
def judge(answer, row):
    print("judged")
    row["request"].clear()
    return answer["text"] == "loopback"
def leave(answer, row):
    raise SystemExit(0)
"""


def test_a_function_that_meddles(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it prints, and does to what it is given and to the directory, is its own."""
    name = function(bench, monkeypatch, MEDDLER)
    judge = name.replace(":ask", ":judge")
    bench.write(row("one", {"scorer": judge}, {"scorer": judge}, max_tokens=9))
    monkeypatch.chdir(bench.folder)
    bench.card = bench.card.relative_to(bench.folder)
    code, report = bench.run("--call", name, "--scorer", judge)
    monkeypatch.chdir(bench.folder)
    assert code == 0 and report["failing"] == [] and bench.contract()["evidence"]
    assert sys.modules[name.partition(":")[0]].SEEN == [1, 1]
    bench.write(row("one", {"scorer": name.replace(":ask", ":leave")}))
    assert bench.run("--call", name, "--fresh", "--scorer", name.replace(":ask", ":leave"))[0] == 2
    assert "leave raised SystemExit for case one" in bench.output


def test_a_name_is_no_path(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    name = function(bench, monkeypatch, 'def ask(request, route):\n    return "loopback"\n')
    bench.data["routes"]["../x/y"] = bench.data["routes"]["spare"]
    bench.data["workflows"]["w"]["routes"].append("../x/y")
    monkeypatch.chdir(bench.folder)
    assert bench.write().run("--call", name, "--route", "../x/y", "--out", "")[0] == 0
    assert (bench.folder / "card.w..._x_y.jsonl").exists()


def test_a_function_that_hangs_is_left(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    name = function(bench, monkeypatch, """
import threading
HEARD, END, LEFT = threading.Event(), threading.Event(), threading.Event()
def ask(request, route):
    return "loopback"
def judge(answer, row):
    os.kill(os.getpid(), signal.SIGINT)
    HEARD.wait(30)
    os.kill(os.getpid(), signal.SIGINT)
    END.wait(30)
    LEFT.set()
""")
    judge = name.replace(":ask", ":judge")
    bench.write(row("one", {"scorer": judge}))
    say = typer.echo

    def heard(*args: typing.Any, **options: typing.Any) -> None:
        sys.modules[name.partition(":")[0]].HEARD.set()
        say(*args, **options)

    monkeypatch.setattr(typer, "echo", heard)
    code, report = bench.run("--call", name, "--scorer", judge, "--concurrency", "1")
    module = sys.modules[name.partition(":")[0]]
    assert not module.LEFT.is_set()
    assert code == 3 and report["stopped"]["kind"] == "interrupt"
    module.END.set()
    assert module.LEFT.wait(30)


def test_an_interrupt_lets_paid_answers_come(
        bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    name = function(bench, monkeypatch, """
async def ask(request, route):
    SEEN.append(route["name"])
    if len(SEEN) == 3:
        os.kill(os.getpid(), signal.SIGINT)
    await asyncio.sleep(0)
    return "loopback"
""")
    bench.write(count=10)
    code, report = bench.run("--call", name, "--concurrency", "2")
    assert code == 3 and report["stopped"]["kind"] == "interrupt"
    assert 3 <= len(bench.lines()) <= 4 and report["evidence"] is None
    assert len(bench.lines()) == len(bench.lines("sent"))
    assert bench.run("--call", name)[0] == 0


def test_an_interrupt_ends_the_wait_for_another_send(
        bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    name = function(bench, monkeypatch, """
async def ask(request, route):
    SEEN.append(route["name"])
    os.kill(os.getpid(), signal.SIGINT)
    await asyncio.sleep(0)
    raise httpx.ConnectError("refused")
""")
    bench.data["backoff"] = {"base_ms": 5000}
    code, report = bench.write().run("--call", name, "--concurrency", "1")
    assert code == 3 and report["stopped"]["kind"] == "interrupt"
    assert len(sys.modules[name.partition(":")[0]].SEEN) == 1
    assert bench.lines() == [] and bench.lines("left")[0]["cost_nusd"] == 0


def test_a_second_interrupt_ends_the_run(
        bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    name = function(bench, monkeypatch, """
async def ask(request, route):
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.sleep(0)
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.get_running_loop().create_future()
""")
    code, report = bench.write().run("--call", name, "--concurrency", "1")
    assert code == 3 and report["stopped"]["left"] == 6
    [left] = bench.lines("left")
    assert left["cost_nusd"] == bench.lines("sent")[0]["held_nusd"]
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


# ---- bad input


def test_a_twin_needs_no_measuring(bench: Bench) -> None:
    bench.data["routes"]["spare"] = {**bench.data["routes"]["main"], "account": "b"}
    bench.data["contracts"] = [{"workflow": "w", "route": "spare", "twin": True}]
    code, report = bench.write().run()
    assert (code, report["twin"]) == (0, True) and not bench.results.exists()


def without(path: str, value: typing.Any = None) -> "typing.Callable[[Json], None]":
    """Sets or takes out one value of a card."""
    *way, last = path.split(".")

    def change(card: Json) -> None:
        for key in way:
            card = card.setdefault(key, {})
        if value is None:
            card.pop(last)
        else:
            card[last] = value
    return change


@pytest.mark.parametrize("change, more, words", [
    (None, ["--workflow", "x"], "no workflow is called x"),
    (None, ["--route", "main"], "main is the primary of w"),
    (None, ["--route", "other"], "w does not use route other"),
    (without("routes.spare.base_url"), [], "spare has no base_url"),
    (without("routes.spare.base_url", "http://u:p@127.0.0.1:1/v1"), [], "has a user in it"),
    (without("routes.spare.base_url", "ftp://h"), [], "base URL of route spare is none"),
    (without("routes.spare.base_url", "http://h:x/v1"), [], "base URL of route spare is none"),
    (None, ["--route-url", "localhost:1"], "base URL of route spare is none"),
    (without("routes.spare.key_env", "KEY_NONE"), [], "no key for route spare: set KEY_NONE"),
    (without("routes.spare.key_env", "KEY_BAD"), [], "the value of KEY_BAD is no key"),
    (without("routes.spare.api", "responses"), [], "spare speaks responses"),
    (without("routes.spare.provider", "gemini"), [], "speaks the API of gemini"),
    (without("workflows.w.requires", {"quality": {"cases_min": 9}}), [], "cases_min is 9"),
    (without("workflows.w.requires", {"quality": {"fixtures": "sha256:x"}}), [],
     "fixtures is sha256:x, and these are sha256:"),
    (without("routes.spare.price"), ["--max-usd", "1"], "price is missing"),
    (without("routes.spare.provides"), ["--max-usd", "1", "--route-url", "http://h/v1"],
     "needs an output limit"),
    (without("routes.main.provides"), ["--max-usd", "1"], "costs at most is not known"),
    (None, ["--max-usd", "0"], "USD over 0"), (None, ["--max-usd", "NaN"], "USD over 0"),
    (None, ["--max-usd", "0.0000000001"], "USD over 0"),
    (None, ["--days", "0"], ""), (None, ["--concurrency", "0"], ""),
    (None, ["--scorer", "magic"], "no scorer is called magic"),
    (None, ["--call", "no_such:f"], "does not load"),
    (None, ["--out", "/nowhere/r.jsonl"], "No such file"),
    (None, ["--fixtures", "none.jsonl"], "none.jsonl: No such file"),
])
def test_bad_input_asks_nothing(bench: Bench, serve: typing.Any, change: typing.Any,
                                more: "list[str]", words: str) -> None:
    server = serve()
    bench.data["routes"]["other"] = {"provider": "openai", "model": "m"}
    bench.at(server)
    if change is not None:
        change(bench.data)
        bench.write()
    code, _ = bench.run(*more)
    assert code == 2 and words in " ".join(bench.output.replace("│", " ").split())
    assert server.asked() == [] and not bench.results.exists()


def test_a_card_that_may_not_be_written_asks_nothing(
        bench: Bench, serve: typing.Any) -> None:
    server = serve()
    bench.at(server).card.chmod(0o444)
    assert bench.run()[0] == 2 and "read-only" in bench.output
    assert server.asked() == [] and not bench.results.exists()


def test_routes_without_a_price_can_be_measured(bench: Bench, serve: typing.Any) -> None:
    for route in bench.data["routes"].values():
        del route["price"]
    bench.at(serve())
    assert bench.run("--max-usd", "1", "--no-price")[0] == 0


@pytest.mark.parametrize("request_, words", [
    ({"response_format": {"type": "json_object"}}, "response_format has no form in messages"),
    ({"tools": [{"type": "web_search"}]}, "a tool that is no function"),
    ({"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]}, "input_audio"),
])
def test_what_the_other_api_cannot_say(bench: Bench, serve: typing.Any, request_: Json,
                                       words: str) -> None:
    server = serve()
    one = row("one", **{"max_tokens": 5, **request_})
    bench.at(server).write(one)
    assert bench.run()[0] == 2
    assert "f.jsonl:1: route spare: " in bench.output and words in bench.output
    assert server.asked() == []


def image(url: str) -> Json:
    return {"messages": [{"role": "user", "content": [
        {"type": "image_url", "image_url": {"url": url}}]}]}


@pytest.mark.parametrize("request_, words", [
    (image("https://example.com/a.png"), "an image behind a URL"),
    ({"messages": [{"role": "user", "content": [{"type": "file", "file": {}}]}]},
     "a part of type file"),
    ({"messages": [{"role": "user", "content": [
        {"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}]}]},
     "cache_control"),
    ({"service_tier": "priority"}, "service_tier"),
    ({"web_search_options": {}}, "web_search_options")])
def test_what_has_no_bound_is_not_asked_under_a_cap(
        bench: Bench, serve: typing.Any, request_: Json, words: str) -> None:
    server = serve()
    bench.data["routes"]["spare"]["provider"] = "openai"
    bench.at(server).write(row("one", **request_))
    assert bench.run("--max-usd", "1")[0] == 2
    assert f"f.jsonl:1: {words}" in bench.output and server.asked() == []
    assert bench.run()[0] != 2


def test_what_an_image_or_a_tool_may_cost_is_held(bench: Bench, serve: typing.Any) -> None:
    """However few bytes they have: 50,000 and 1,000 tokens."""
    bench.at(serve()).write(row("one", **image("data:image/png;base64,AA==")),
                            row("two", tools=[TOOL]), row("three"))
    bench.run("--max-usd", "1", "--concurrency", "1")
    held = {(one["id"], one["side"]): one["held_nusd"] for one in bench.lines("sent")}
    for side, price in (("primary", 2500), ("route", 3000)):
        plain = held["three", side]
        assert 50_000 * price <= held["one", side] - plain <= 50_100 * price
        assert 1000 * price <= held["two", side] - plain <= 1300 * price


def test_the_contract_leaves_tools_out(bench: Bench, serve: typing.Any) -> None:
    """As when the stand-in serves: measured without the tool, it answers in words."""
    bench.data["contracts"] = [{"workflow": "w", "route": "spare",
                                "changes": {"drop_tools": ["refund"]}}]
    server = serve()
    bench.at(server).write(row("one", {"scorer": "tool_calls", "calls": [
        {"name": "refund", "arguments": {"order": "one"}}]}, tools=[TOOL]))
    _, report = bench.run()
    assert [one["side"] for one in report["failing"]] == ["route"]
    assert [one.has_tools for one in server.asked("main")] == [True]
    assert [one.has_tools for one in server.asked("spare")] == [False]
    assert bench.contract()["changes"] == {"drop_tools": ["refund"]}
