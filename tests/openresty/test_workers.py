"""Several workers and Python processes, one state; workers that are killed and
an nginx that is reloaded."""

from __future__ import annotations

import asyncio
import os
import pathlib
import pwd
import shutil
import signal
import tempfile
import time
import typing

import fivegates
import httpx
import pytest

from openresty.conftest import KEYS, card_of
from openresty.gateway import Gateway, missing
from openresty.upstream import (
    OVERLOADED,
    Peer,
    Upstream,
    chat_events,
    json_reply,
    kept,
    stream,
    whole,
)

Run = typing.Callable[..., Gateway]
ASK: typing.Any = {"model": "model-of-main", "messages": [{"role": "user", "content": "hi"}]}
BROKEN = json_reply(500, {"error": {"message": "Internal.", "code": None,
                                    "type": "server_error"}})


def post(gateway: Gateway, **headers: str) -> httpx.Response:
    return httpx.post(f"{gateway.url}/v1/chat/completions", json=ASK,
                      headers=headers)


def waits_until(test: typing.Callable[[], object], seconds: float = 20) -> None:
    until = time.monotonic() + seconds
    while not test():
        assert time.monotonic() < until, "it did not come to that"
        time.sleep(0.01)


def test_a_breaker_opened_by_python_is_open_in_nginx(run: Run) -> None:
    upstream = Upstream(main=[whole("main")], backup=[whole("backup")])
    gateway = run(upstream, workers=2)
    assert post(gateway).json()["choices"][0]["message"]["content"] == "main"
    engine = gateway.engine()
    for _ in range(5):
        call = engine.begin("w", prompt_tokens=10)
        assert call.begin_attempt().action == "proceed"
        call.event("sent")
        call.failure({"phase": "response", "status": 503})
    assert engine.route("main")["breaker"] == "open"
    made = len(upstream.seen["main"])
    answer = post(gateway)  # the very next request
    assert answer.headers["x-fivegates-route"] == "backup"
    assert len(upstream.seen["main"]) == made


def test_a_breaker_opened_by_nginx_is_open_in_python(run: Run) -> None:
    upstream = Upstream(main=[json_reply(503, OVERLOADED)],
                        backup=[whole("backup")])
    gateway = run(upstream, workers=2)
    engine = gateway.engine()
    assert engine.route("main")["breaker"] == "closed"
    for _ in range(6):
        assert post(gateway).status_code == 200
    assert engine.route("main")["breaker"] == "open"
    assert engine.begin("w", prompt_tokens=10).decision.route == "backup"
    # Each worker knows it, whichever opened it.
    made = len(upstream.seen["main"])
    for _ in range(8):
        assert post(gateway).headers["x-fivegates-route"] == "backup"
    assert len(upstream.seen["main"]) == made


async def _load(gateway: Gateway, over: asyncio.Event, streamed: bool,
                ) -> "list[str]":
    """Requests one after the other, each on a new connection, until it is over,
    and a few at least; how each went."""
    out: "list[str]" = []
    while not over.is_set() or len(out) < 10:
        started = time.monotonic()
        async with httpx.AsyncClient(verify=False) as http:
            try:
                answer = await http.post(
                    f"{gateway.url}/v1/chat/completions",
                    json={**ASK, "stream": streamed}, timeout=10)
                good = answer.status_code == 200 and (
                    not streamed or answer.text.endswith("[DONE]\n\n"))
                out.append("good" if good else f"bad {answer.status_code} "
                           f"{answer.text[:200]}")
            except httpx.TransportError as exc:
                out.append(f"broke {started} {exc!r}")
    return out


async def _loads(gateway: Gateway, over: asyncio.Event, count: int = 4,
                 ) -> "list[str]":
    done = await asyncio.gather(*(_load(gateway, over, i % 2 == 0)
                                  for i in range(count)))
    return [one for each in done for one in each]


def test_killed_workers(run: Run) -> None:
    """Only what a killed worker had in hand is lost, as with a plain proxy; its
    gauges come down, the state of all stays."""
    upstream = Upstream(main=[stream(chat_events(*"abcdef"), 0.02)],
                        backup=[whole()])
    upstream.scripts["main"] = [lambda peer: (
        stream(chat_events(*"abcdef"), 0.01) if peer.body.get("stream")
        else lambda peer: peer.send(whole()))(peer)]
    gateway = run(upstream, workers=2)
    kills = 4

    async def play() -> "list[str]":
        over = asyncio.Event()
        load = asyncio.ensure_future(_loads(gateway, over))
        for _ in range(kills):
            await asyncio.sleep(0.35)
            os.kill(gateway.workers()[0], signal.SIGKILL)
        over.set()
        return await load

    went = asyncio.run(play())
    bad = [one for one in went if one != "good"]
    assert not [one for one in bad if one.startswith("bad")]
    assert len(bad) <= kills * 4  # at most all that it served
    assert len(gateway.workers()) == 2
    engine = gateway.engine()
    waits_until(lambda: engine.route("main")["in_flight"] == 0)
    view = engine.route("main")
    assert view["breaker"] == "closed" and view["successes"] >= went.count("good")
    assert post(gateway).status_code == 200


def test_reload_under_load(run: Run) -> None:
    """No request is lost; the state stays, with as many slots as two workers of
    each generation, the master and this process need."""
    upstream = Upstream(main=[whole()], backup=[whole()])
    upstream.scripts["main"] = [lambda peer: (
        stream(chat_events(*"abcdef"), 0.03) if peer.body.get("stream")
        else lambda peer: peer.send(whole()))(peer)]
    gateway = run(upstream, workers=2, options="procs = 16,")
    engine = gateway.engine(procs=16)

    async def play() -> "list[str]":
        over = asyncio.Event()
        load = asyncio.ensure_future(_loads(gateway, over))
        for _ in range(5):
            await asyncio.sleep(0.4)
            before = set(gateway.workers())
            gateway.reload()
            while not set(gateway.workers()) - before:
                await asyncio.sleep(0.01)
        over.set()
        return await load

    went = asyncio.run(play())
    assert set(went) == {"good"}
    waits_until(lambda: engine.route("main")["in_flight"] == 0)
    assert engine.route("main")["successes"] == len(went)
    assert "state of its own" not in gateway.log()
    assert "[error]" not in gateway.log()


def test_reload_takes_a_new_card(run: Run) -> None:
    upstream = Upstream(main=[json_reply(503, OVERLOADED)], backup=[whole()])
    gateway = run(upstream, workers=2)
    for _ in range(6):
        post(gateway)
    engine = gateway.engine()
    assert engine.route("main")["breaker"] == "open"
    opened = engine.route("main")["opened_count"]
    card = card_of(upstream)
    card["workflows"]["v"] = {"routes": ["main"]}
    from openresty.gateway import approved
    gateway.card = approved(card)
    gateway.write_card(gateway.card)
    before = set(gateway.workers())
    gateway.reload()
    waits_until(lambda: len(gateway.workers()) == 2
                and not before & set(gateway.workers()))
    assert gateway.engine().route("main")["opened_count"] == opened
    assert post(gateway).headers["x-fivegates-route"] == "backup"


def test_a_bad_card_stops_no_running_gateway(run: Run) -> None:
    upstream = Upstream(main=[whole()], backup=[whole()])
    gateway = run(upstream, workers=1)
    (gateway.dir / "card.json").write_text('{"version": 1, "rutes": {}}')
    gateway.reload()
    waits_until(lambda: "unknown_key" in gateway.log())
    assert "rutes" in gateway.log()
    assert post(gateway).status_code == 200


def test_keepalive_connections_survive(run: Run) -> None:
    upstream = Upstream(main=[kept()], backup=[whole()])
    gateway = run(upstream)
    with httpx.Client() as http:
        for _ in range(20):
            assert http.post(f"{gateway.url}/v1/chat/completions", json=ASK
                             ).status_code == 200
    assert upstream.connections == 1


def test_a_kept_connection_that_was_closed_is_not_used(run: Run) -> None:
    def reply(peer: Peer) -> None:
        kept()(peer)
        peer.keep = False  # type: ignore[attr-defined]
    upstream = Upstream(main=[reply], backup=[whole()])
    gateway = run(upstream)
    for _ in range(5):
        assert post(gateway).headers["x-fivegates-attempts"] == "1"
        time.sleep(0.02)
    assert upstream.connections == 5


def test_a_gateway_that_does_not_start_says_why(
        tmp_path: pathlib.Path, run: Run) -> None:
    upstream = Upstream(main=[whole()], backup=[whole()])
    card = card_of(upstream)
    card["routes"]["main"]["base_url"] = "ftp://x/v1"
    with pytest.raises(RuntimeError, match="card.json:1: route main: base_url "
                       "ftp://x/v1: it must be http"):
        run(upstream, card=card)


def _as_user(uid: int, gid: int, play: typing.Callable[[], bool]) -> bool:
    """What a function answers in a child that is another user."""
    child = os.fork()
    if child == 0:
        good = False
        try:
            os.setgroups([])
            os.setgid(gid)
            os.setuid(uid)
            good = play()
        finally:
            os._exit(0 if good else 1)
    return os.waitpid(child, 0)[1] == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to be root")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("umask, shared", [(0o007, True), (0o022, False)])
def test_other_users_share_the_state(umask: int, shared: bool) -> None:
    """A root's nginx, its workers www-data, a service of a third user in the
    group of the folder: as bindings/lua/README.md says."""
    if missing() is not None:
        pytest.skip(str(missing()))
    worker, service = pwd.getpwnam("www-data"), pwd.getpwnam("nobody")
    upstream = Upstream(main=[json_reply(503, OVERLOADED)], backup=[whole()])
    folder = pathlib.Path(tempfile.mkdtemp(dir="/dev/shm"))
    try:
        os.chown(folder, 0, service.pw_gid)
        folder.chmod(0o2775)
        before = os.umask(umask)
        try:
            gateway = Gateway(folder, card_of(upstream), workers=2, env=KEYS,
                              user=f"user {worker.pw_name};")
            with upstream, gateway:
                waits_until(lambda: {
                    pathlib.Path(f"/proc/{one}").stat().st_uid
                    for one in gateway.workers()} == {worker.pw_uid})
                _users(gateway, service, shared)
        finally:
            os.umask(before)
    finally:
        shutil.rmtree(folder)


def _users(gateway: Gateway, service: pwd.struct_passwd, shared: bool) -> None:
    file = gateway.dir / "region.fg1"
    assert file.stat().st_gid == service.pw_gid
    assert file.stat().st_mode & 0o777 == (0o660 if shared else 0o640)
    for _ in range(6):
        assert post(gateway).status_code == 200

    def play() -> bool:
        try:
            return bool(gateway.engine().route("main")["breaker"] == "open")
        except fivegates.RegionError as exc:
            return not shared and "let this user's group write it" in str(exc)

    assert _as_user(service.pw_uid, service.pw_gid, play)
    assert "state of its own" not in gateway.log()
