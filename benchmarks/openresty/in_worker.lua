-- Costs inside a worker, in nanoseconds of its CPU time: medians of rounds.

local ffi = require "ffi"
local others = require "others"
local resty = require "fivegates.resty"

ffi.cdef [[
    struct bench_time { long seconds, nanoseconds; };
    int clock_gettime(int clock, struct bench_time *out);
]]

local _M = {}

local ROUNDS, SIZE = 101, 2000
local THREAD_CPUTIME = 3
local FACTS = { workflow = "good", prompt_tokens = 900, max_output_tokens = 300 }
local ANSWER = { prompt_tokens = 900, output_tokens = 120, finish_reason = "stop" }
local time = ffi.new "struct bench_time"


local function now()
    ffi.C.clock_gettime(THREAD_CPUTIME, time)
    return tonumber(time.seconds) * 1e9 + tonumber(time.nanoseconds)
end


-- Made anew for each row: what the compiler made of one would be in the way of
-- the next.
local MEDIAN = [[
    local body, now, rounds, size = ...
    local all = {}
    for round = 1, rounds do
        local started = now()
        for _ = 1, size do
            body()
        end
        all[round] = (now() - started) / size
    end
    table.sort(all)
    return all[math.ceil(rounds / 2)]
]]


local function median(body)
    return assert(loadstring(MEDIAN))(body, now, ROUNDS, SIZE)
end


function _M.measure()
    local engine = resty.gateway().engine
    local call = assert(engine:begin(FACTS))
    local dict = ngx.shared.counters
    local out = {}
    local function row(name, body)
        out[#out + 1] = string.format('"%s": %.1f', name, median(body))
    end
    local permitted = assert(engine:begin(FACTS))
    permitted:begin_attempt()
    permitted:event "sent"
    row("a decision: deadline of a running attempt", function()
        return permitted:deadline()
    end)
    permitted:cancel()
    row("a decision: begin to the first answer", function()
        engine:begin(FACTS, call)
    end)
    row("a call's life: begin, permit, sent, token, success", function()
        engine:begin(FACTS, call)
        call:begin_attempt()
        call:event "sent"
        call:event("token", 12)
        call:success(ANSWER)
    end)
    row("shared dictionary: get and delete", function()
        dict:get "main"
        dict:delete "main"
    end)
    row("shared dictionary: incr", function()
        dict:incr("n", 1, 0)
    end)
    if others.has_limits() then
        row("limit-traffic: req and conn in, conn out", function()
            others.incoming "main"
            others.leave "main"
        end)
    end
    ngx.print("{", table.concat(out, ", "), "}")
end


return _M
