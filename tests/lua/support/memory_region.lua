-- A region in memory of the test's own, with slots the test chooses, as the
-- vectors play several processes in one.

local ffi = require "ffi"
local C = require("fivegates.lib").C
local Region = require("fivegates.region").Region

local M = {}

local function open(self, memory, now_ms)
    local out, err = ffi.new("fg_region *[1]"), ffi.new("fg_error")
    err.size = ffi.sizeof(err)
    local rc = C.fg_region_open(memory, self.bytes, self.config, now_ms, out, err)
    assert(rc == 0, ffi.string(err.message))
    self.memory, self.at = memory, out[0]
end

function M.new(now_ms)
    local config = ffi.new("fg_region_config")
    config.size = ffi.sizeof(config)
    local self = { map = false, state = { open = true }, config = config,
                   bytes = tonumber(C.fg_region_bytes(config)) }
    open(self, ffi.new("uint64_t[?]", self.bytes / 8), now_ms)
    return setmetatable(self, Region)
end

-- The bytes live on at another address; engines are to be renewed.
function M.restart(self, now_ms)
    local old = self.memory
    local moved = ffi.new("uint64_t[?]", self.bytes / 8)
    ffi.copy(moved, old, self.bytes)
    ffi.fill(old, self.bytes, 0xA5)
    open(self, moved, now_ms)
end

function M.reap(self, slot, now_ms)
    return C.fg_region_reap(self.at, slot, now_ms)
end

return M
