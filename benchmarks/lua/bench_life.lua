-- One protected call from LuaJIT, as benchmarks/c/bench_protect.c takes it in C:
-- the same card, the same steps, the same clock.
--
--     luajit benchmarks/lua/bench_life.lua
--
-- FIVEGATES_LIB or package.cpath names the library. Prints one JSON object a
-- line, read by benchmarks/run.py: the median of many rounds, in nanoseconds of
-- this thread's CPU time.

local here = arg[0]:match("^(.*)/benchmarks/lua/[^/]*$") or "."
package.path = here .. "/bindings/lua/?.lua;" .. here .. "/bindings/lua/?/init.lua;"
               .. package.path
package.cpath = here .. "/build/release/?.so;" .. package.cpath

local ffi = require "ffi"
local fivegates = require "fivegates"

ffi.cdef [[
    struct bench_time { long seconds, nanoseconds; };
    int clock_gettime(int clock, struct bench_time *out);
]]

local CARD = [[{"version":1,"retry_bucket":{"credit_ppm":1000000,"cap":100,"start":100},
    "routes":{"main":{"provider":"openai","model":"m","account":"a",
                      "price":{"input":2.5,"output":10}},
              "dark":{"provider":"openai","model":"m","account":"b",
                      "price":{"input":2.5,"output":10}}},
    "workflows":{"up":{"routes":["main"]},
                 "down":{"routes":["dark"],"budget":{"total_attempts":1}}},
    "breaker":{"failure_ppm":900000,"open_ms":3600000,"open_max_ms":3600000}}]]
local ROUNDS, SIZE = 301, 1000
local THREAD_CPUTIME = 3

local policy = assert(fivegates.policy(CARD))
local engine = assert(fivegates.engine(policy, { seed = 1 }))
local still = engine:now_ms()
local ahead = 0  -- waits are not slept through: the clock goes on
local later = assert(fivegates.engine(policy, {
    seed = 1, clock = function() return engine:now_ms() + ahead end }))
local given = assert(fivegates.engine(policy, {
    seed = 1, clock = function() return still end }))

local UP = { workflow = "up", prompt_tokens = 900, max_output_tokens = 300 }
local DOWN = { workflow = "down", prompt_tokens = 900, max_output_tokens = 300 }
local ANSWER = { prompt_tokens = 900, output_tokens = 120, finish_reason = "stop" }
local EVIDENCE = { phase = "response", status = 503 }

local call = assert(engine:begin(UP))

local function answer(c)
    c:event("sent")
    c:event("token", 12)
    return c:success(ANSWER).action == "accept"
end

local function succeed()
    engine:begin(UP, call)
    call:begin_attempt()
    return answer(call)
end

local held = assert(given:begin(UP))
local function succeed_given()
    given:begin(UP, held)
    held:begin_attempt()
    return answer(held)
end

-- Tables of its own for each call, as most programs write it.
local function succeed_fresh()
    local c = engine:begin { workflow = "up", prompt_tokens = 900,
                             max_output_tokens = 300 }
    c:begin_attempt()
    c:event("sent")
    c:event("token", 12)
    return c:success({ prompt_tokens = 900, output_tokens = 120,
                       finish_reason = "stop" }).action == "accept"
end

local again = assert(later:begin(UP))
local function recover()
    later:begin(UP, again)
    again:begin_attempt()
    again:event("sent")
    local d = again:failure(EVIDENCE)
    if d.action ~= "retry" then
        return false
    end
    ahead = ahead + d.wait_ms
    again:begin_attempt()
    return answer(again)
end

local down = assert(engine:begin(DOWN))
local function refused()
    return engine:begin(DOWN, down).decision.action == "fail_closed"
end

for _ = 1, 8 do
    engine:begin(DOWN, down)
    if down.decision.action == "proceed"
       and down:begin_attempt().action == "proceed" then
        down:event("sent")
        down:failure(EVIDENCE)
    end
end
assert(engine:route("dark").breaker == "open")

local at = ffi.new("struct bench_time")
local function cpu_ns()
    ffi.C.clock_gettime(THREAD_CPUTIME, at)
    return tonumber(at.seconds) * 1e9 + tonumber(at.nanoseconds)
end

local function measure(path, what, work)
    local took = {}
    for round = -40, ROUNDS do
        local good, from = 0, cpu_ns()
        for _ = 1, SIZE do
            if work() then
                good = good + 1
            end
        end
        local ns = (cpu_ns() - from) / SIZE
        assert(good == SIZE, what .. ": not as expected")
        if round > 0 then
            took[round] = ns
        end
    end
    table.sort(took)
    print(('{"peer":"fivegates","version":"%s","path":"%s","what":"%s","ns":%.1f,'
           .. '"runtime":"%s"}'):format(fivegates.version, path, what,
                                        took[math.ceil(ROUNDS / 2)], jit.version))
end

-- A process each, when asked for one: the compiler's luck with one case is not
-- the next one's.
local CASES = {
    { "", "success, time given", succeed_given },
    { "success", "success, clock read 5 times", succeed },
    { "success", "success, new tables and a new call", succeed_fresh },
    { "reject", "begin, breaker open", refused },
    { "retry", "a 503, a paid retry, success", recover },
}
local only = tonumber(arg[1])
for i, one in ipairs(CASES) do
    if not only or only == i then
        measure(one[1], one[2], one[3])
    end
end
