-- Wire names and their numbers, asked of the library once: nothing here can
-- differ from the header. Numbers on the C side, words on the Lua side.

local ffi = require "ffi"
local C = require("fivegates.lib").C
local check = require "fivegates.check"
local errors = require "fivegates.errors"

local raise = errors.raise
local list = check.list
local lshift = bit.lshift
local bor = bit.bor
local format = string.format
local concat = table.concat
local type = type
local tostring = tostring
local rawget = rawget
local pairs = pairs


local _M = {}


local TABLES = {
    action = C.FG_TABLE_ACTION, owner = C.FG_TABLE_OWNER,
    gate = C.FG_TABLE_GATE, class = C.FG_TABLE_CLASS, phase = C.FG_TABLE_PHASE,
    scope = C.FG_TABLE_SCOPE, period = C.FG_TABLE_PERIOD,
    billed = C.FG_TABLE_BILLED, commit = C.FG_TABLE_COMMIT,
    kind = C.FG_TABLE_KIND, repair = C.FG_TABLE_REPAIR,
    billing = C.FG_TABLE_BILLING, shown = C.FG_TABLE_SHOWN,
    effect = C.FG_TABLE_EFFECT, stream = C.FG_TABLE_STREAM,
    delivery = C.FG_TABLE_DELIVERY, server_state = C.FG_TABLE_SERVER_STATE,
    tool = C.FG_TABLE_TOOL, event = C.FG_TABLE_EVENT,
    finish = C.FG_TABLE_FINISH, feature = C.FG_TABLE_FEATURE,
    unable = C.FG_TABLE_UNABLE, step = C.FG_TABLE_STEP,
    resume = C.FG_TABLE_RESUME, lookup = C.FG_TABLE_LOOKUP,
    change = C.FG_TABLE_CHANGE, alert = C.FG_TABLE_ALERT,
    breaker = C.FG_TABLE_BREAKER, health = C.FG_TABLE_HEALTH,
    reason = C.FG_TABLE_REASON, wire = C.FG_TABLE_WIRE,
    load = C.FG_TABLE_LOAD,
}
local VALUES = 256  -- no table has numbers beyond


-- name[table][number] and number[table][word]; of a bit set, its bits' numbers.
local name, number = {}, {}
_M.name, _M.number = name, number

for key, id in pairs(TABLES) do
    local names, numbers = {}, {}
    for value = 0, VALUES - 1 do
        local text = C.fg_name(id, value)
        if text ~= nil then
            names[value] = ffi.string(text)
            numbers[names[value]] = value
        end
    end
    name[key], number[key] = names, numbers
end


local function no_word(words, value, key)
    if type(value) ~= "string" then
        return raise(format("%s must be a string, not %s", key, type(value)))
    end
    local known = {}
    for i = 0, VALUES - 1 do
        known[#known + 1] = words[i]
    end
    return raise(format("%s is %q; it is one of: %s", key, value,
                        concat(known, ", ")))
end


-- The number of a word in a table; nil is 0.
function _M.word(of, value, key)
    if value == nil then
        return 0
    end
    local n = number[of][value]
    if n == nil then
        return no_word(name[of], value, key)
    end
    return n
end


-- A word, or a list of words, of a bit set's table; nil is 0.
function _M.bits(of, value, key)
    if value == nil then
        return 0
    end
    local numbers = number[of]
    if type(value) == "string" then
        return lshift(1, numbers[value] or no_word(name[of], value, key))
    end
    local all = 0
    for i = 1, list(value, key, 64) do
        local one = rawget(value, i)
        all = bor(all, lshift(1, numbers[one]
                                 or no_word(name[of], one, key)))
    end
    return all
end


-- Words of the bits that are set, as a list.
function _M.words(of, bits)
    local all, names = {}, name[of]
    for i = 0, 31 do
        if names[i] and bit.band(bits, lshift(1, i)) ~= 0 then
            all[#all + 1] = names[i]
        end
    end
    return all
end


-- A copy of a table's words with their numbers, for those who ask.
function _M.table_of(of)
    local numbers = number[of]
    if not numbers then
        return raise(format("no table %s; such as action, owner, reason",
                            tostring(of)))
    end
    local copy = {}
    for word, n in pairs(numbers) do
        copy[word] = n
    end
    return copy
end


return _M
