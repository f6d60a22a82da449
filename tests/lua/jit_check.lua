-- luajit tests/lua/jit_check.lua [loop|failure|yield]
-- The hot path, watched: traces that start, stop and abort, and what is left
-- for the collector. Prints one line of facts for jit_spec.lua; a separate
-- process, because busted has its own traces.

local here = arg[0]:match("^(.*/)") or "./"
dofile(here .. "helper.lua")

local cards = require "cards"
local fivegates = require "fivegates"
local vmdef = require "jit.vmdef"
local funcinfo = require("jit.util").funcinfo
local traceinfo = require("jit.util").traceinfo

local LIVES, WARM = 100000, 20000

-- A breaker that this many failures do not open.
local CARD = [[{"version": 1,
    "retry_bucket": {"credit_ppm": 1000000, "cap": 100, "start": 100},
    "breaker": {"failure_ppm": 900000, "consecutive": 100},
    "routes": {"main": {"provider": "openai", "model": "m"}},
    "workflows": {"bare": {"routes": ["main"]}}}]]
local now = cards.BASE
local engine = assert(fivegates.engine(assert(fivegates.policy(CARD)), {
    seed = 1, procs = 8, clock = function() return now end }))
local facts = { workflow = "bare", prompt_tokens = 900, max_output_tokens = 300 }
local answer = { finish_reason = "stop", prompt_tokens = 900, output_tokens = 100,
                 output = "hi" }
local evidence = { phase = "response", status = 503,
                   headers = { ["content-type"] = "application/json" },
                   body = '{"error": {"message": "overloaded"}}' }
local call = assert(engine:begin(facts))

local function succeed()
    call:event("sent")
    call:event("token", 1)
    if call:success(answer).action ~= "accept" then
        error(call.decision:json())
    end
end

local function begin()
    engine:begin(facts, call)
    local d = call:begin_attempt()
    if d.action ~= "proceed" or d.route ~= "main" then
        error(d:json())
    end
end

local lives = {}

function lives.loop(n)
    for _ = 1, n do
        begin()
        succeed()
    end
end

-- A failure, a paid retry, success.
function lives.failure(n)
    for _ = 1, n do
        now = now + 10
        begin()
        call:event("sent")
        local d = call:failure(evidence)
        if d.action ~= "retry" then
            error(d:json())
        end
        now = now + d.wait_ms
        call:begin_attempt()
        succeed()
    end
end

-- As in nginx: another coroutine runs between any two operations.
lives.yield = function(n)
    local yield = coroutine.yield
    local function work()
        local mine
        for _ = 1, n / 2 do
            mine = engine:begin(facts, mine)
            yield()
            mine:begin_attempt()
            yield()
            mine:event("sent")
            yield()
            mine:event("token", 1)
            yield()
            mine:success(answer)
        end
    end
    local one, two = coroutine.create(work), coroutine.create(work)
    while coroutine.status(one) ~= "dead" do
        assert(coroutine.resume(one))
        assert(coroutine.resume(two))
    end
end

local run = assert(lives[arg[1] or "loop"])

-- ---- watching

local ours = "bindings/lua/fivegates/"
local refused, events, watching = {}, 0, false

local function record(what, _, func, pc, code, reason)
    events = events + (watching and 1 or 0)
    if what ~= "abort" then
        return
    end
    local info = funcinfo(func, pc)
    local text = vmdef.traceerr[code] or "?"
    if type(reason) == "number" then
        reason = vmdef.ffnames[reason] or reason
    elseif type(reason) == "function" then
        reason = funcinfo(reason).loc
    end
    -- What the compiler cannot do at all; that it gave up at a length or a
    -- loop is its way of choosing where to begin.
    if text:find("NYI", 1, true) then
        local where = (info.source or "?") .. ":" .. (info.currentline or 0)
        refused[#refused + 1] = where .. " " .. text:format(tostring(reason))
    end
end

jit.attach(record, "trace")
run(WARM)
run(WARM)
collectgarbage()
collectgarbage("stop")
local before = collectgarbage("count")
watching = true
run(LIVES)
watching = false
local garbage = (collectgarbage("count") - before) * 1024
jit.attach(record)

local loops, all = 0, 0
for number = 1, 2000 do
    local info = traceinfo(number)
    if info then
        all = all + 1
        loops = loops + (info.linktype == "loop" and 1 or 0)
    end
end
local mine = 0
for _, one in ipairs(refused) do
    mine = mine + (one:find(ours, 1, true) and 1 or 0)
end
print(("lives=%d garbage=%.0f events=%d traces=%d loops=%d nyi=%d ours=%d %s")
      :format(LIVES, garbage, events, all, loops, #refused, mine,
              table.concat(refused, "; ")))
