"""Starts a real nginx with fivegates in it."""

from __future__ import annotations

import ctypes
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import time
import typing

import fivegates

ROOT = pathlib.Path(__file__).resolve().parents[2]
Json = typing.Dict[str, typing.Any]
_MODULES = pathlib.Path("/usr/lib/nginx/modules")
_PR_SET_PDEATHSIG = 1
_MODULE_NAMES = ("ndk_http_module.so", "ngx_http_lua_module.so")

CONF = """
%(modules)s
%(user)s
worker_processes %(workers)d;
daemon off;
pid %(dir)s/nginx.pid;
error_log %(dir)s/error.log info;
events { worker_connections 1024; }
http {
    access_log %(dir)s/access.log;
    client_body_temp_path %(dir)s/body;
    proxy_temp_path %(dir)s/proxy;
    fastcgi_temp_path %(dir)s/fastcgi;
    uwsgi_temp_path %(dir)s/uwsgi;
    scgi_temp_path %(dir)s/scgi;
    lua_package_path "%(root)s/bindings/lua/?.lua;%(root)s/bindings/lua/?/init.lua;;";
    lua_shared_dict fivegates 1m;
    lua_check_client_abort on;
    lua_socket_log_errors off;
    client_max_body_size 2m;
    client_body_buffer_size 16k;
    %(http)s
    init_by_lua_block {
        resty = require "fivegates.resty"
        resty.open { card = "%(dir)s/card.json", region = "%(dir)s/region",
                     recent = "fivegates", ledger = "%(dir)s/ledger.jsonl",
                     %(options)s }
    }
    init_worker_by_lua_block { resty.worker() }
    server {
        listen 127.0.0.1:%(port)d %(listen)s;
        location / { content_by_lua_block { resty.proxy(%(proxy)s) } }
        %(server)s
    }
}
"""


def missing() -> "str | None":
    """What is not installed; None: all is there."""
    if shutil.which("nginx") is None:
        return "nginx is not installed"
    if not all((_MODULES / name).exists() for name in _MODULE_NAMES):
        return "libnginx-mod-http-lua is not installed"
    return None


def library() -> pathlib.Path:
    """The folder of the library: FIVEGATES_LIB, or a build folder's."""
    named = os.environ.get("FIVEGATES_LIB")
    places = [pathlib.Path(named)] if named else [
        ROOT / "build" / one for one in ("meson", "release")]
    return next((one for one in places if one.exists()), places[0])


def approved(card: Json) -> Json:
    """The card with the fingerprints its contracts must name."""
    policy = fivegates.Policy.loads(card, auto_fingerprint=True)
    out: Json = json.loads(json.dumps(card))
    for one in out.get("contracts", ()):
        if one["fingerprint"] == "auto":
            one["fingerprint"] = policy.contract(
                one["workflow"], one["route"])["fingerprint"]
    return out


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as one:
        return typing.cast(int, one.getsockname()[1])


def _ends_with_us() -> None:
    """A test that is killed leaves no nginx behind."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


class Gateway:
    """One nginx in a folder of its own. conf: parts of CONF."""

    def __init__(self, folder: pathlib.Path, card: Json, proxy: str = '"w"',
                 workers: int = 1, env: "dict[str, str] | None" = None,
                 **conf: str) -> None:
        self.dir = folder
        self.port = free_port()
        self.env = env or {}
        self.card = approved(card)
        self._conf = {
            "modules": "\n".join(f"load_module {_MODULES / name};"
                                 for name in _MODULE_NAMES),
            "user": "user root;" if os.geteuid() == 0 else "",
            "workers": workers, "dir": folder, "root": ROOT, "port": self.port,
            "proxy": proxy, "http": "", "server": "", "options": "",
            "listen": "", **conf}
        self.write_card(self.card)
        self._write_conf()

    def write_card(self, card: Json) -> None:
        (self.dir / "card.json").write_text(json.dumps(card))

    def _write_conf(self) -> None:
        self._conf["port"] = self.port
        (self.dir / "nginx.conf").write_text(CONF % self._conf)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def region(self) -> str:
        return str(self.dir / "region")

    def start(self) -> "Gateway":
        """Starts it; on another port where somebody has taken this one since
        it was free."""
        for _ in range(3):
            said = self._try()
            if said is None:
                return self
            if "Address already in use" not in said:
                break
            self.port = free_port()
            self._write_conf()
        raise RuntimeError(f"nginx did not start\n{said}{self.log()}")

    def _try(self) -> "str | None":
        """What nginx says where it does not start."""
        pid = self.dir / "nginx.pid"  # written when the port is its own
        pid.unlink(missing_ok=True)
        with open(self.dir / "stderr", "wb") as log:
            self.process = subprocess.Popen(
                ["nginx", "-p", str(self.dir), "-c",
                 str(self.dir / "nginx.conf")],
                env={**os.environ, "FIVEGATES_LIB": str(library()), **self.env},
                stdout=log, stderr=log, preexec_fn=_ends_with_us)
        until = time.monotonic() + 10
        while time.monotonic() < until and self.process.poll() is None:
            if pid.exists():
                try:
                    socket.create_connection(("127.0.0.1", self.port), 0.2).close()
                except OSError:
                    pass
                else:
                    return None
            time.sleep(0.01)
        self.stop()
        return (self.dir / "stderr").read_text()

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def __enter__(self) -> "Gateway":
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def log(self) -> str:
        path = self.dir / "error.log"
        return path.read_text() if path.exists() else ""

    def ledger(self) -> "list[Json]":
        return [json.loads(line) for line in
                (self.dir / "ledger.jsonl").read_text().splitlines()]

    def ended(self, calls: int = 1) -> "list[Json]":
        """The ledger's last lines of so many calls; waits for them."""
        until = time.monotonic() + 5
        while True:
            ends = [one for one in self.ledger() if one["line"] == "end"]
            if len(ends) >= calls or time.monotonic() > until:
                return ends
            time.sleep(0.01)

    def workers(self) -> "list[int]":
        path = pathlib.Path(f"/proc/{self.process.pid}/task/"
                            f"{self.process.pid}/children")
        return [int(one) for one in path.read_text().split()]

    def reload(self) -> None:
        self.process.send_signal(signal.SIGHUP)

    def engine(self, procs: "int | None" = None) -> fivegates.Engine:
        """An engine of this process on the same state; procs as in open{}."""
        region = (fivegates.Region(self.region, procs=procs) if procs
                  else self.region)
        return fivegates.Engine(fivegates.Policy.loads(self.card),
                                region=region)
