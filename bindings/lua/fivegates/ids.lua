-- Ids of calls nobody else draws: 64 random bits of the engine, and a counter.
-- Written into the call's own memory: no string is made until one is asked for.

local ffi = require "ffi"
local C = require("fivegates.lib").C
local fork = require "fivegates.fork"

local fork_number = fork.number
local band = bit.band
local rshift = bit.rshift
local copy = ffi.copy
local format = string.format


local _M = { LENGTH = 28 }

-- fg-0123456789abcdef-00000001 and four bytes of nothing. Types without a name
-- can be made again when the module is loaded again.
_M.Id = ffi.typeof [[struct { char head[20]; uint16_t digits[4]; char tail[4]; }]]
local Ids = ffi.typeof("struct { $ next; uint32_t count, process; }", _M.Id)

local SIZE = ffi.sizeof(_M.Id)

-- The digits of a byte, as the two bytes they are in memory.
local PAIRS = ffi.new("uint16_t[256]")
for i = 0, 255 do
    copy(PAIRS + i, format("%02x", i), 2)
end


-- The engine's own part: another in each process, so that no two share one.
local function begin(ids, seed)
    ids.process = fork_number()
    ids.count = 0
    copy(ids.next.head, format("fg-%s-", bit.tohex(seed, 16)), 20)
end


function _M.new(seed)
    local ids = Ids()
    begin(ids, seed)
    return ids
end


function _M.draw(ids, into)
    if ids.process ~= fork_number() then
        begin(ids, C.fg_host_seed())
    end
    local n = ids.count + 1
    local digits = ids.next.digits
    ids.count = n
    digits[0] = PAIRS[rshift(n, 24)]
    digits[1] = PAIRS[band(rshift(n, 16), 255)]
    digits[2] = PAIRS[band(rshift(n, 8), 255)]
    digits[3] = PAIRS[band(n, 255)]
    copy(into, ids.next, SIZE)
end


return _M
