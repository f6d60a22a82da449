-- One card and one live state with Python: a breaker opened there is open
-- here, a call saved there goes on here, and the other way round.

local cards = require "cards"
local fivegates = require "fivegates"
local ROOT = require("paths").ROOT

local PYTHON = ROOT .. "/.venv/bin/python"
local CARD = [[{"version": 1, "breaker": {"consecutive": 3, "open_ms": 600000,
      "open_max_ms": 600000},
    "routes": {"main": {"provider": "openai", "model": "m"}},
    "workflows": {"w": {"routes": ["main"], "budget": {"total_attempts": 1}}}}]]
local HEAD = [[
import sys, fivegates
engine = fivegates.Engine(fivegates.Policy.loads(sys.argv[1]), region=sys.argv[2])
]]

local function has_python()
    return os.execute(("'%s' -c 'import fivegates' 2>/dev/null"):format(PYTHON)) == 0
end

describe("Lua and Python on one region", function()
    local path, engine

    before_each(function()
        path = os.tmpname()
        engine = assert(fivegates.engine(assert(fivegates.policy(CARD)),
                                         { region = path }))
    end)

    after_each(function()
        engine = nil
        collectgarbage()
        os.execute("rm -f '" .. path .. "'*")
    end)

    -- What a Python program prints; other is its third argument.
    local function python(script, other)
        local name = os.tmpname()
        local file = assert(io.open(name, "wb"))
        file:write(HEAD, script)
        file:close()
        -- Away from the tree, where only the installed package is found.
        local pipe = io.popen(("cd / && '%s' '%s' '%s' '%s' '%s' 2>&1"):format(
            PYTHON:sub(1, 1) == "/" and PYTHON
            or io.popen("pwd"):read("*l") .. "/" .. PYTHON, name, CARD, path,
            other or ""))
        local said = pipe:read("*a")
        pipe:close()
        os.remove(name)
        return said
    end

    local function fail_here(times)
        for _ = 1, times do
            local call = assert(engine:begin { workflow = "w" })
            if call:begin_attempt().action == "proceed" then
                call:event("sent")
                call:failure { phase = "response", status = 503 }
            end
        end
    end

    it("a breaker opened in Python is open in Lua", function()
        if not has_python() then
            return pending("no .venv with the Python package")
        end
        assert.equal("closed", engine:route("main").breaker)
        local said = python [[
for _ in range(3):
    call = engine.begin("w")
    call.begin_attempt()
    call.event("sent")
    call.failure({"phase": "response", "status": 503})
print(engine.route("main")["breaker"])
]]
        assert.equal("open\n", said)
        assert.equal("open", engine:route("main").breaker)
        assert.equal("route_open", engine:begin({ workflow = "w" }).decision.reason)
    end)

    it("a breaker opened in Lua is open in Python", function()
        if not has_python() then
            return pending("no .venv with the Python package")
        end
        fail_here(3)
        assert.equal("open", engine:route("main").breaker)
        assert.equal("open route_open\n", python [[
print(engine.route("main")["breaker"], engine.begin("w").decision.reason)
]])
    end)

    it("a call saved in one goes on in the other", function()
        if not has_python() then
            return pending("no .venv with the Python package")
        end
        local name = os.tmpname()
        local file = assert(io.open(name, "wb"))
        file:write(engine:begin({ workflow = "w", call_id = "from-lua" }):save())
        file:close()
        assert.equal("from-lua proceed accept\n", python([[
call = engine.resume(open(sys.argv[3], "rb").read())
first = call.begin_attempt().action
call.event("sent")
print(call.id, first, call.success(output="x").action)
open(sys.argv[3], "wb").write(engine.begin("w", call_id="from-python").save())
]], name))
        local call = assert(engine:resume(cards.slurp(name)))
        os.remove(name)
        assert.equal("from-python", call:id())
        assert.equal("proceed", call:begin_attempt().action)
        call:event("sent")
        assert.equal("accept", call:success({ output = "x" }).action)
        assert.equal(2, engine:workflow("w").primary_success)
    end)
end)
