-- Text the library writes into a buffer: one buffer, grown when a text needs
-- more. Nothing here yields, so one is enough.

local ffi = require "ffi"
local C = require("fivegates.lib").C

local new = ffi.new
local string_of = ffi.string


local _M = {}

local capacity = 4096
local buffer = new("char[?]", capacity)


-- Did it fit? If not, the next try will.
local function fits(need)
    if need < capacity then
        return true
    end
    capacity = need + 1
    buffer = new("char[?]", capacity)
    return false
end


function _M.explain(engine, call, decision)
    local need
    repeat
        need = C.fg_explain(engine, call, decision, buffer, capacity)
    until fits(need)
    return string_of(buffer, need)
end


-- A decision's line; served: an fg_served.
function _M.ledger_served(engine, call, decision, served, now_ms)
    local need
    repeat
        need = C.fg_ledger_served(engine, call, decision, served, now_ms,
                                  buffer, capacity)
    until fits(need)
    return string_of(buffer, need)
end


function _M.ledger_line(engine, call, decision, line, now_ms)
    local need
    repeat
        need = C.fg_ledger_line(engine, call, decision, line, now_ms, buffer,
                                capacity)
    until fits(need)
    return string_of(buffer, need)
end


function _M.decision_json(policy, decision)
    local need
    repeat
        need = C.fg_decision_json(policy, decision, buffer, capacity)
    until fits(need)
    return string_of(buffer, need)
end


-- A borrowed fg_str as a string; "" is nil.
function _M.of(str)
    if str.len == 0 then
        return nil
    end
    return string_of(str.ptr, str.len)
end


return _M
