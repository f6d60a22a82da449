"""The sketches for Kong and APISIX against stubs of their hooks, in nginx."""

from __future__ import annotations

import pathlib
import typing

import httpx
import pytest

from openresty.gateway import ROOT, Gateway
from openresty.upstream import OVERLOADED, Upstream, json_reply, whole

Run = typing.Callable[..., Gateway]
ASK: typing.Any = {"model": "model-of-main", "messages": [{"role": "user", "content": "hi"}]}
STUBS = pathlib.Path(__file__).parent / "stubs"
PLUGINS = ROOT / "examples/openresty/plugins"
PATH = (f'package.path = "{PLUGINS}/?.lua;{STUBS}/?.lua;" .. package.path')

# Kong calls configure() in each worker and access() in each request.
KONG = """location /kong/ { access_by_lua_block {
    %s
    kong = { client = { get_consumer = function() return { id = "c1" } end },
             response = { exit = function(status) return ngx.exit(status) end } }
    local plugin = require "kong.plugins.fivegates.handler"
    assert(require("kong.plugins.fivegates.schema").name == "fivegates")
    local conf = { workflow = "w", card = "%s/card.json", region = "%s/region",
                   keys = { main = "k1", backup = "k2" } }
    plugin:configure { conf }
    plugin:access(conf)
} }"""

APISIX = """location /apisix/ { content_by_lua_block {
    %s
    local plugin = require "apisix.plugins.fivegates"
    local base = require "apisix.plugins.ai-proxy.base"
    local main, backup = {}, {}
    for word in ngx.var.arg_main:gmatch "%%d+" do main[#main + 1] = tonumber(word) end
    for word in ngx.var.arg_backup:gmatch "%%d+" do backup[#backup + 1] = tonumber(word) end
    local conf = { workflow = "w", card = "%s/card.json", region = "%s/region",
                   instances = { { name = "main", script = main },
                                 { name = "backup", script = backup } } }
    assert(plugin.check_schema(conf))
    assert(not plugin.check_schema {})
    base.asked = {}
    local ctx = { var = {} }
    local code, body = plugin.access(conf, ctx)
    if not code then code, body = plugin.before_proxy(conf, ctx) end
    if code then
        ngx.status = code
        ngx.print(type(body) == "table" and body.error.code or body)
    end
    ngx.print(" asked " .. table.concat(base.asked, " "))
} }"""


def test_kong(run: Run, tmp_path: pathlib.Path) -> None:
    upstream = Upstream(main=[json_reply(503, OVERLOADED)],
                        backup=[whole("from backup")])
    gateway = run(upstream, server=KONG % (PATH, tmp_path, tmp_path))
    answer = httpx.post(f"{gateway.url}/kong/v1/chat/completions", json=ASK)
    assert answer.status_code == 200 and "from backup" in answer.text
    assert upstream.seen["backup"][0].headers["authorization"] == "Bearer k2"
    assert gateway.engine().workflow("w")["fallback_recovery"] == 1
    bad = httpx.post(f"{gateway.url}/kong/v1/chat/completions", content=b"{")
    assert bad.status_code == 400


@pytest.mark.parametrize(("main", "backup", "status", "text"), [
    ("200", "200", 200, "answered by main asked main"),
    ("503", "200", 200, "answered by backup asked main main backup"),
    ("503-200", "200", 200, "answered by main asked main main"),
    # Of the network, perhaps run: not sent there again.
    ("504", "200", 200, "answered by backup asked main backup"),
    ("500", "200", 200, "answered by backup asked main backup"),
    ("401", "200", 503, "key_rejected asked main"),
    ("400", "200", 400, "request_invalid asked main"),
])
def test_apisix(run: Run, tmp_path: pathlib.Path, main: str, backup: str,
                status: int, text: str) -> None:
    upstream = Upstream(main=[whole()], backup=[whole()])
    gateway = run(upstream, server=APISIX % (PATH, tmp_path, tmp_path))
    answer = httpx.post(f"{gateway.url}/apisix/v1/chat/completions", json=ASK,
                        params={"main": main, "backup": backup})
    assert (answer.status_code, answer.text) == (status, text)
    view = gateway.engine().route("main")
    assert view["in_flight"] == 0
