"""`fivegates drill --live`: short cells over loopback, its programs alone, bad input."""

from __future__ import annotations

import http.client
import json
import os
import pathlib
import shutil
import subprocess
import time
import typing

import pytest

from fivegates.drill.live import LIVE_LIMITS, LiveCell, live_table
from fivegates.drill.runs import Row

from .conftest import ROOT
from .test_cli import cli

CLIENT, SERVER = "fivegates-drill-client", "fivegates-drill-server"
SHORT = {"phases": {"warm_s": 10, "fault_s": 20, "after_s": 10}}
# A sanitizer's library is for this process, not for a compiler.
ENV = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The folder of the two programs, built from the tree."""
    if not shutil.which("gcc") or not shutil.which("curl-config"):
        pytest.skip("needs gcc and libcurl's headers")
    folder = tmp_path_factory.mktemp("programs")
    core = [ROOT / name for name in (ROOT / "core/SOURCES").read_text().split()]
    live = ROOT / "core/drill/live"
    drill = [path for path in sorted((ROOT / "core/drill").glob("*.c"))
             if not path.stem.endswith("_main")]
    includes = [f"-I{ROOT / 'core' / part}" for part in ("include", "src", "card", "drill")]
    cc = ["gcc", "-std=c11", "-O1", "-D_GNU_SOURCE", *includes]

    def compiled(name: str, sources: "list[pathlib.Path]") -> "list[str]":
        to = folder / name
        to.mkdir()
        subprocess.run([*cc, "-c", *map(str, sources)], cwd=to, env=ENV, check=True)
        return list(map(str, sorted(to.glob("*.o"))))

    archive = str(folder / "all.a")
    subprocess.run(["ar", "rcs", archive, *compiled("core", core), *compiled("drill", drill)],
                   env=ENV, check=True)
    for name, parts in ((CLIENT, ("client", "wire")), (SERVER, ("server", "http"))):
        own = [str(live / f"fg_live_{part}.c") for part in ("start", *parts)]
        subprocess.run([*cc, *own, archive, "-lcurl", "-lcjson", "-lm", "-lpthread",
                        "-o", str(folder / name)], env=ENV, check=True)
    return folder


def now_us() -> int:
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000


# ---- cells


def test_live_and_simulated_agree(programs: pathlib.Path, tmp_path: pathlib.Path) -> None:
    config = tmp_path / "short.json"
    config.write_text(json.dumps(SHORT))
    code, out, err = cli("drill", "--live", "--programs", programs, "--config", config,
                         "--fault", "ratelimit", "--strategy", "backoff",
                         "--strategy", "fivegates", "--json")
    assert code == 0, (out, err)
    backoff, engine = json.loads(out)
    assert (backoff["fault"], backoff["strategy"]) == ("ratelimit", "backoff")
    # The fault is there: 429 came over the wire, and each client did what it does.
    assert backoff["live"]["load"]["mean"] > 1.5
    assert 1 <= engine["live"]["load"]["mean"] < 1.2
    assert engine["live"]["useful"]["mean"] == 100
    assert engine["live"]["detected"] is not None
    for one in (backoff, engine):
        assert one["agrees"] and one["live"]["requests"] == one["simulated"]["requests"]


def row(load: float, useful: "float | None") -> Row:
    def measured(value: float) -> typing.Any:
        return {"mean": value, "sd": 0.0, "n": 1}

    return Row(fault="blackout", strategy="naive", metrics={
        "load": measured(load), "p95": None,
        "useful": measured(useful) if useful is not None else None})


@pytest.mark.parametrize("live, late_s, said", [
    (row(2.0, 90.0), 0.1, ""),
    (row(2.04, 92.9), 0.1, ""),
    (row(2.06, 90.0), 0.1, "OFF"),
    (row(2.0, 86.9), 0.1, "OFF"),
    (row(2.0, None), 0.1, "OFF"),
    (row(2.0, 90.0), 9.0, "LATE"),
])
def test_what_is_off_is_said(live: Row, late_s: float, said: str) -> None:
    assert LIVE_LIMITS == {"load": 0.05, "useful": 3.0}
    cell = LiveCell("blackout", "naive", live, row(2.0, 90.0), late_s, 1)
    assert cell.agrees == (said == "")
    assert list(live_table([cell]).columns[-1].cells) == [said]


# ---- the programs


def test_the_server_streams_an_answer(programs: pathlib.Path, tmp_path: pathlib.Path) -> None:
    config = tmp_path / "c.json"
    config.write_text('{"faults": ["none"]}')
    server = subprocess.Popen([programs / SERVER, str(now_us()), "100", "0", str(config)],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert server.stdin is not None and server.stdout is not None
    wire = http.client.HTTPConnection("127.0.0.1", int(server.stdout.readline()), timeout=10)
    asked: "dict[str, typing.Any]" = {
        "max_tokens": 7, "metadata": {"record": 1, "number": 1, "prefill_us": 200000, "decode_us": 900000},
        "messages": [{"role": "user", "content": "x" * 40}]}
    wire.request("POST", "/0/v1/chat/completions", json.dumps(asked))
    answer = wire.getresponse()
    assert answer.status == 200 and answer.getheader("Content-Type") == "text/event-stream"
    events = [one.removeprefix("data: ") for one in answer.read().decode().split("\n\n") if one]
    assert events[-1] == "[DONE]"
    chunks = [json.loads(one) for one in events[:-1]]
    text = "".join(one["choices"][0]["delta"].get("content", "") for one in chunks if one["choices"])
    assert len(text) == 4 * 7 and len(chunks) > 3
    assert chunks[-2]["choices"][0]["finish_reason"] == "stop"
    assert chunks[-1]["usage"] == {"prompt_tokens": 10, "completion_tokens": 7, "total_tokens": 17}
    # The connection is kept, and what is no request of a drill is refused.
    for path, body, status in (("/9/v1/chat/completions", "{}", 404), ("/0/v1/models", "{}", 404),
                               ("/0/v1/chat/completions", "{}", 400), ("/0/v1/chat/completions", "[", 400)):
        wire.request("POST", path, body)
        answer = wire.getresponse()
        assert answer.status == status and "error" in json.loads(answer.read())
    wire.close()
    server.stdin.close()
    assert server.wait(10) == 0
    server.stdout.close()


def test_a_client_without_a_server_says_so(programs: pathlib.Path, tmp_path: pathlib.Path) -> None:
    config = tmp_path / "c.json"
    config.write_text('{"faults": ["none"], "strategies": ["naive"]}')
    done = subprocess.run([programs / CLIENT, str(now_us()), "100", "1", str(config)],
                          capture_output=True, text=True, timeout=30)
    assert done.returncode == 3 and done.stdout == ""
    assert "connect" in done.stderr.lower()


@pytest.mark.parametrize("name", [CLIENT, SERVER])
@pytest.mark.parametrize("args, said", [
    ([], "ZERO_US TIMES PORT CONFIG..."),
    (["0", "0", "1", "{config}"], "TIMES 1 to 1000"),
    (["0", "1", "70000", "{config}"], "PORT 0 to 65535"),
    (["0", "1", "1", "nowhere.json"], "nowhere.json"),
    (["0", "1", "1", "{config}"], "seedz: no such key"),
])
def test_bad_arguments_of_the_programs(programs: pathlib.Path, tmp_path: pathlib.Path, name: str,
                                       args: "list[str]", said: str) -> None:
    config = tmp_path / "c.json"
    config.write_text('{"seedz": 1}')
    done = subprocess.run([programs / name, *(one.format(config=config) for one in args)],
                          capture_output=True, text=True, timeout=30)
    assert done.returncode == 2 and said in done.stderr and done.stdout == ""


# ---- the command


@pytest.mark.parametrize("args, said", [
    (["--seeds", "3"], "--live has one seed"),
    (["--goals"], "--live has one seed"),
    (["--strategy", "oracle"], "oracle has no live drill; there are naive"),
    (["--programs", "/nowhere"], "fivegates-drill-client is not in /nowhere; build it"),
])
def test_bad_options(tmp_path: pathlib.Path, args: "list[str]", said: str) -> None:
    if "oracle" in args:
        for name in (CLIENT, SERVER):
            (tmp_path / name).write_text("#!/bin/sh\n")
            (tmp_path / name).chmod(0o755)
        args = [*args, "--programs", str(tmp_path)]
    code, out, err = cli("drill", "--live", *args)
    assert code == 2 and out == ""
    assert said in err and "Traceback" not in err


def test_programs_are_for_live() -> None:
    code, _, err = cli("drill", "--programs", "/nowhere")
    assert code == 2 and "--programs is for --live" in err


@pytest.mark.parametrize("server, client, said", [
    ("echo no luck >&2; exit 3", "", "no luck"),
    ("echo 1; exec cat >/dev/null", "exit 3", "fivegates-drill-client ended with code 3"),
])
def test_a_program_that_fails_is_named(tmp_path: pathlib.Path, server: str, client: str,
                                       said: str) -> None:
    for name, text in ((SERVER, server), (CLIENT, client)):
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    code, out, err = cli("drill", "--live", "--programs", tmp_path, "--fault", "none",
                         "--strategy", "naive")
    assert code == 2 and out == ""
    assert said in err and "Traceback" not in err
