-- The table of success() and usage() on its way into the one fg_answer that is
-- here for all calls; `held` as in request.lua.

local ffi = require "ffi"
local C = require("fivegates.lib").C
local check = require "fivegates.check"
local names = require "fivegates.names"

local u32 = check.u32
local str = check.str
local word = names.word
local nkeys = check.nkeys
local plain = check.plain
local fill = ffi.fill
local bor = bit.bor
local rawget = rawget


local _M = {}

local KEYS = check.set [[
    prompt_tokens cached_tokens output_tokens finish_reason output visible
    tool_calls cost_usd cost_nusd final attempt
]]
local CALL_KEYS = check.set "id name arguments"
local CALLS_MAX = 4096

local SIZE = ffi.sizeof("fg_answer")
local OUTPUT_KNOWN = C.FG_ANSWER_OUTPUT_KNOWN
local USAGE_FINAL = C.FG_ANSWER_USAGE_FINAL

local answer = ffi.new("fg_answer")
local output = answer.output
local room = 16
local calls = ffi.new("fg_tool_call[?]", room)
local held = false  -- luacheck: ignore 231


local function fill_tool_calls(list)
    local count = check.list(list, "tool_calls", CALLS_MAX)
    if count > room then
        room = count
        calls = ffi.new("fg_tool_call[?]", room)
    end
    for i = 1, count do
        local one, to = rawget(list, i), calls[i - 1]
        check.unknown_key(check.plain(one, "a tool call"), CALL_KEYS,
                          "a tool call")
        fill(to, ffi.sizeof("fg_tool_call"))
        str(to.id, one.id, "tool_calls.id")
        str(to.name, one.name, "tool_calls.name")
        str(to.arguments, one.arguments, "tool_calls.arguments")
    end
    answer.tool_calls = calls
    answer.tool_call_count = count
end


-- What fewer callers tell; how many keys it was, the number of the attempt,
-- and whether the usage is final (nil: not said).
local function fill_rest(t)
    local a, n, attempt, final = answer, 0, 0, nil
    local v = t.cached_tokens
    if v ~= nil then
        a.cached_tokens = u32(v, "cached_tokens")
        n = n + 1
    end
    v = t.visible
    if v ~= nil then
        a.visible = u32(v, "visible")
        n = n + 1
    end
    v = t.cost_nusd
    if v ~= nil then
        a.cost_nusd = check.whole(v, "cost_nusd")
        n = n + 1
    end
    v = t.cost_usd
    if v ~= nil then
        a.cost_nusd = check.usd(v, "cost_usd")
        n = n + 1
    end
    v = t.attempt
    if v ~= nil then
        attempt = u32(v, "attempt")
        n = n + 1
    end
    v = t.final
    if v ~= nil then
        final = check.flag(v, "final")
        n = n + 1
    end
    v = t.tool_calls
    if v ~= nil then
        fill_tool_calls(v)
        n = n + 1
    end
    return n, attempt, final
end


-- Fills the answer and returns it with the number of the attempt it is of.
-- reported_is_final: usage that is told counts as final unless the table says
-- otherwise. n counts the keys, so that one of another name does not go
-- unnoticed.
function _M.fill(t, what, reported_is_final)
    plain(t, what)
    held = t
    fill(answer, SIZE)
    local a, n, flags, attempt = answer, 0, 0, 0
    a.size = SIZE
    local prompt, output_tokens = t.prompt_tokens, t.output_tokens
    if prompt ~= nil then
        a.prompt_tokens = u32(prompt, "prompt_tokens")
        n = n + 1
    end
    if output_tokens ~= nil then
        a.output_tokens = u32(output_tokens, "output_tokens")
        n = n + 1
    end
    local final = reported_is_final and n > 0
    local v = t.finish_reason
    if v ~= nil then
        a.finish = word("finish", v, "finish_reason")
        n = n + 1
    end
    v = t.output
    if v ~= nil then
        str(output, v, "output")
        flags = OUTPUT_KNOWN
        n = n + 1
    end
    if n < nkeys(t) then
        local more, of, said = fill_rest(t)
        if n + more < nkeys(t) then
            check.unknown_key(t, KEYS, what)
        end
        attempt = of
        if said ~= nil then
            final = said
        elseif reported_is_final and (t.cost_usd ~= nil
                                      or t.cost_nusd ~= nil) then
            final = true
        end
    end
    if final then
        flags = bor(flags, USAGE_FINAL)
    end
    a.flags = flags
    return a, attempt
end


-- C has read it: the caller's table is let go of.
function _M.done()
    held = false
end


return _M
