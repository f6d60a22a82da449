-- Values on their way into C structs. A wrong one is raised with its name:
-- the FFI alone would cut, wrap or refuse it without saying which it was.

local errors = require "fivegates.errors"

local raise = errors.raise
local floor = math.floor
local format = string.format
local type = type
local tostring = tostring
local getmetatable = getmetatable
local next = next
local rawget = rawget
local pcall = pcall
local require = require
local concat = table.concat
local sort = table.sort


local _M = {}

local U32 = 4294967295
local WHOLE = 9007199254740992  -- 2^53: beyond it a Lua number is not exact


local function wanted(key, what, value)
    return raise(format("%s must be %s, not %s", key, what,
                        type(value) == "number" and tostring(value)
                        or type(value)))
end


-- A whole number from 0 to 2^32 - 1; nil is 0.
function _M.u32(value, key)
    if value == nil then
        return 0
    end
    if type(value) ~= "number" or not (value >= 0 and value <= U32)
       or value ~= floor(value) then
        return wanted(key, "a whole number from 0 to 4294967295", value)
    end
    return value
end


-- A whole number from -2^31 to 2^31 - 1; nil is 0.
function _M.i32(value, key)
    if value == nil then
        return 0
    end
    if type(value) ~= "number" or value ~= floor(value)
       or not (value >= -2147483648 and value <= 2147483647) then
        return wanted(key, "a whole number of 32 bits", value)
    end
    return value
end


-- A whole number from 0 to 2^53; nil is 0.
function _M.whole(value, key)
    if value == nil then
        return 0
    end
    if type(value) ~= "number" or not (value >= 0 and value <= WHOLE)
       or value ~= floor(value) then
        return wanted(key, "a whole number from 0 to 2^53", value)
    end
    return value
end


-- Milliseconds of a clock; fractions are cut off.
function _M.ms(value, key)
    if type(value) ~= "number" or not (value >= 0 and value <= WHOLE) then
        return wanted(key, "a number of milliseconds", value)
    end
    return floor(value)
end


-- US dollars as nano-dollars, rounded to the nearest; nil is 0.
function _M.usd(value, key)
    if value == nil then
        return 0
    end
    if type(value) ~= "number" or not (value >= 0 and value <= 2251799) then
        return wanted(key, "an amount in USD up to 2251799", value)
    end
    local n = value * 1e9
    local down = floor(n)
    return n - down >= 0.5 and down + 1 or down
end


function _M.flag(value, key)
    if value ~= nil and type(value) ~= "boolean" then
        return wanted(key, "true or false", value)
    end
    return value == true
end


-- Points an fg_str into a string; nil is none. The string's owner must stay
-- reachable until C has read it.
function _M.str(out, value, key)
    if value == nil then
        return
    end
    if type(value) ~= "string" then
        return wanted(key, "a string", value)
    end
    out.ptr = value
    out.len = #value
end


-- A table read by its keys alone: with a metatable, reading could run code
-- that uses the structs being filled.
function _M.plain(value, key)
    if type(value) ~= "table" then
        return wanted(key, "a table", value)
    end
    if getmetatable(value) ~= nil then
        return raise(key .. " must be a plain table, without a metatable")
    end
    return value
end


-- Length of a list of at most `most`, read by its keys alone.
function _M.list(value, key, most)
    if type(value) ~= "table" then
        return wanted(key, "a list", value)
    end
    local n = 0
    while rawget(value, n + 1) ~= nil do
        n = n + 1
        if n > most then
            return raise(format("%s holds more than %d", key, most))
        end
    end
    if n == 0 and next(value) ~= nil then
        return raise(key .. " must be a list: keys 1, 2, 3")
    end
    return n
end


-- Number of keys of a table. OpenResty's LuaJIT counts without leaving
-- compiled code.
local has_nkeys, nkeys = pcall(require, "table.nkeys")
if not has_nkeys then
    nkeys = function(t)
        local n = 0
        for _ in next, t do
            n = n + 1
        end
        return n
    end
end
_M.nkeys = nkeys


-- Raises for the first key of t that is not in `known`, a set.
function _M.unknown_key(t, known, what)
    for key in next, t do
        if rawget(known, key) == nil then
            local all = {}
            for name in next, known do
                all[#all + 1] = name
            end
            sort(all)
            return raise(format("%s has no key %s; it has %s", what,
                                type(key) == "string" and format("%q", key)
                                or type(key), concat(all, ", ")))
        end
    end
end


-- A set of the words of a text.
function _M.set(text)
    local all = {}
    for word in text:gmatch("%S+") do
        all[word] = true
    end
    return all
end


return _M
