"""`fivegates provider`: its options, its control, its end; and what is said of
scripts that are none."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
import typing
import urllib.error
import urllib.request

import pytest

from fivegates.provider import (FAULTS, SettingsError, read_file, read_script,
                                read_value)

from .test_cli import cli

pytest.importorskip("h11")
if os.environ.get("FIVEGATES_SANITIZE"):
    pytest.skip("nothing of the library is in it", allow_module_level=True)

Json = typing.Dict[str, typing.Any]


@contextlib.contextmanager
def command(*args: "str | pathlib.Path") -> "typing.Iterator[tuple[str, subprocess.Popen[str]]]":
    """The command in a process of its own: its URL."""
    with subprocess.Popen(
            [sys.executable, "-m", "fivegates", "provider", *map(str, args)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip(), process
        finally:
            process.kill()


def call(url: str, body: "Json | str | None" = None,
         **headers: str) -> "tuple[int, Json]":
    raw = (None if body is None else
           (body if isinstance(body, str) else json.dumps(body)).encode())
    request = urllib.request.Request(url, raw, {
        "Content-Type": "application/json", **headers})
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


CHAT: Json = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}


def test_a_life(tmp_path: pathlib.Path) -> None:
    """Faults in order, another script while it runs, the journal, the end."""
    file = tmp_path / "journal.jsonl"
    with command("--fault", "server_error:status=502", "--fault", "ok",
                 "--journal", file) as (url, process):
        chat = url + "/v1/chat/completions"
        key = {"Authorization": "Bearer sk-secret", "X-Request-Attempt": "1"}
        assert [call(chat, CHAT, **key)[0] for _ in range(2)] == [502, 200]
        status, state = call(url + "/_control/state")
        assert (status, state["requests"], state["whole"]) == (200, 2, 1)
        assert state["faults"] == ["server_error, ok"] and state["billed"] > 2
        assert call(url + "/_control/script", {"faults": ["blackout"]})[0] == 200
        assert call(chat, CHAT)[0] == 503
        status, said = call(url + "/_control/script", '{"faults": [1]}')
        assert status == 400 and "script:1:" in said["error"]["message"]
        assert call(chat, CHAT)[0] == 503  # the script that stood before
        assert call(url + "/_control/script", {"faults": ["ok"]},
                    **{"Content-Type": "text/plain"})[0] == 415
        assert call(url + "/_control/state", Host="example.com")[0] == 403
        assert call(url + "/_control/nothing")[0] == 404
        for _ in range(2):
            call(url + "/_effects/refund", {"op": "r1"})
        assert call(url + "/_effects/refund?op=r1")[1]["count"] == 2
        assert call(url + "/_effects/refund?op=r2")[1] == {}
        journal = call(url + "/_control/journal")[1]
        assert len(journal["requests"]) == 4 and len(journal["effects"]) == 2
        process.send_signal(signal.SIGTERM)
        assert process.wait(5) == 0
        assert process.stderr is not None
        assert "requests 4, whole answers 1, " in process.stderr.read()
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [one["event"] for one in lines] == [
        *["received", "ended"] * 4, "effect", "effect"]
    assert lines[1]["status"] == 502 and lines[3]["whole"]
    assert lines[0]["headers"]["x-request-attempt"] == "1"
    assert "secret" not in file.read_text()


def test_a_request_in_the_air_is_written_at_the_end(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "journal.jsonl"
    with command("--fault", "no_response", "--journal", file) as (url, process):
        host, port = url.rpartition("/")[2].split(":")
        raw = json.dumps(CHAT).encode()
        with socket.create_connection((host, int(port))) as client:
            client.sendall(b"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\n"
                           b"Content-Length: %d\r\n\r\n" % len(raw) + raw)
            while "received" not in file.read_text():
                time.sleep(0.01)
            process.send_signal(signal.SIGINT)
            assert process.wait(5) == 0
    end = json.loads(file.read_text().splitlines()[-1])
    assert end["event"] == "ended" and end["billed_output"] and not end["whole"]


def test_a_taken_port() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        code, out, err = cli("provider", "--port", str(port))
    assert (code, out) == (2, "")
    assert f"port {port} is taken by another program" in err


@pytest.mark.parametrize("args", [["provider"], ["gauntlet", "--", "true"]])
def test_without_the_extra(args: "list[str]",
                           monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "h11", None)
    code, out, err = cli(*args)
    assert (code, out) == (2, "")
    assert "pip install 'fivegates[provider]'" in err


def test_the_list() -> None:
    code, out, _ = cli("provider", "--list")
    assert code == 0
    for name in FAULTS:
        assert f"\n{name} " in out
    for wanted in ("brownout", "blackout", "ratelimit", "trickle",
                   "brownout_layered", "brownout_cancel"):
        assert wanted in FAULTS


@pytest.mark.parametrize("args, words", [
    (["--fault", "cutt"], "--fault cutt: fault: no fault is called cutt; did "
                          "you mean cut?"),
    (["--fault", "zzzz"], "see --list"),
    (["--fault", "cut:after_token=3"], "did you mean after_tokens?"),
    (["--fault", "cut:after_tokens=x"], "after_tokens=x is not number=value"),
    (["--fault", "cut:after_tokens=1.5"], "a whole number from 0"),
    (["--fault", "ok", "--script", "x.yaml"], "give one of them"),
    (["--script", "/nowhere.yaml"], "/nowhere.yaml: No such file"),
    (["--journal", "/nowhere/x"], "name a file that can be written"),
])
def test_bad_options(args: "list[str]", words: str) -> None:
    code, out, err = cli("provider", *args)
    assert (code, out) == (2, "")
    assert words in err and "Traceback" not in err


@pytest.mark.parametrize("text, words", [
    ("", "nothing is in it"),
    ("faults: [okk]", ":1:10: faults[0]: no fault is called okk"),
    ("faults:\n- ok\n- {fault: cut, after_tokens: many}\n",
     ":3:16: faults[1].after_tokens: must be a whole number from 0 to 100000, "
     'not "many"'),
    ("faults: [{after_tokens: 3}]", 'with "fault"'),
    ("fault: ok", ":1:1: fault: no such key; did you mean faults?"),
    ("faults: []", "the list is empty"),
    ("faults: 3", "must be a list, not 3"),
    ("per: user\nfaults: ok", "must be server or conversation, not user"),
    ("speed: {slots: -1}\nfaults: ok", "speed.slots: must be a whole number"),
    ("speed: {slots: true}\nfaults: ok", "not true"),
    ("speed: {frees_when_left: 1}\nfaults: ok", "must be true or false"),
    ("speed: {}\n", '"faults" is missing'),
    ("phases: [{faults: ok}, {faults: ok}]", '"for_s" is missing'),
    ("phases: [{faults: ok}]\nfaults: ok", "stands beside phases"),
    ("faults: ok\nfaults: cut", ":2:1: faults: this key stands here twice"),
    ("{", "flow node"), ("[1, 2]", "must be an object"), ("faults: [\n", ":2:1: "),
    ('{"faults": ["ok"], "per": NaN}', 'must be text|must be server'),
])
def test_bad_scripts(tmp_path: pathlib.Path, text: str, words: str) -> None:
    file = tmp_path / "script.yaml"
    file.write_text(text)
    with pytest.raises(SettingsError) as caught:
        read_script(read_file(str(file)))
    said = str(caught.value)
    assert said.startswith(str(file))
    assert any(word in said for word in words.split("|"))


def test_every_number_has_bounds() -> None:
    for name, fault in FAULTS.items():
        for number, param in fault.params.items():
            assert param.low <= param.default <= param.high, name
            with pytest.raises(SettingsError, match=number):
                read_script(read_value({"faults": [
                    {"fault": name, number: param.high * 2}]}))
