-- A call as bytes, the same in every language: a mark, the length of the id,
-- the id, the call, a hash of all that. The engine believes a call's bytes, so
-- none may have changed on the way.

local ffi = require "ffi"

local bxor = bit.bxor
local bor = bit.bor
local lshift = bit.lshift
local rshift = bit.rshift
local min = math.min
local byte = string.byte
local char = string.char
local sub = string.sub
local type = type


local _M = {}

local MARK = "fgc2"
local HEAD = #MARK + 1
local SEED = 0x66676332ULL
local GOLDEN = 0x9e3779b97f4a7c15ULL
local CALL_BYTES = ffi.sizeof("fg_call")
local HASH_BYTES = 8
local ID_MAX = 40
local WRONG = "not a saved call, of another version, or changed since"


local function mix(z)
    z = bxor(z, rshift(z, 30)) * 0xbf58476d1ce4e5b9ULL
    z = bxor(z, rshift(z, 27)) * 0x94d049bb133111ebULL
    return bxor(z, rshift(z, 31))
end


-- The core's hash of bytes: words of eight, little-endian on every machine.
local function hash(bytes, len)
    local h = bxor(mix(SEED + GOLDEN), (len + 0ULL) * GOLDEN)
    for at = 0, len - 1, 8 do
        local w = 0ULL
        for i = min(at + 8, len) - 1, at, -1 do
            w = bor(lshift(w, 8), bytes[i] + 0ULL)
        end
        h = mix(bxor(h, w)) + GOLDEN
    end
    return mix(h)
end


function _M.write(id, call)
    local text = MARK .. char(#id) .. id .. ffi.string(call, CALL_BYTES)
    local word = ffi.new("uint64_t[1]",
                         hash(ffi.cast("const uint8_t *", text), #text))
    return text .. ffi.string(word, HASH_BYTES)
end


-- The id and where the call's bytes begin, or nil and what is wrong.
function _M.read(bytes)
    if type(bytes) ~= "string" or #bytes < HEAD
       or sub(bytes, 1, #MARK) ~= MARK then
        return nil, WRONG
    end
    local id_len = byte(bytes, HEAD)
    local hashed = HEAD + id_len + CALL_BYTES
    if id_len > ID_MAX or #bytes ~= hashed + HASH_BYTES then
        return nil, WRONG
    end
    local at = ffi.cast("const uint8_t *", bytes)
    local word = ffi.new("uint64_t[1]")
    ffi.copy(word, at + hashed, HASH_BYTES)
    if word[0] ~= hash(at, hashed) then
        return nil, WRONG
    end
    return sub(bytes, HEAD + 1, HEAD + id_len), HEAD + id_len
end


function _M.copy(call, bytes, at)
    ffi.copy(call, ffi.cast("const uint8_t *", bytes) + at, CALL_BYTES)
end


return _M
