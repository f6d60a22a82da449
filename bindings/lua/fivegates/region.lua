-- Region: the memory that outlives calls. A file the processes of a machine
-- share, or memory of this process alone.

local ffi = require "ffi"
local C = require("fivegates.lib").C
local check = require "fivegates.check"
local errors = require "fivegates.errors"

local raise = errors.raise
local u32 = check.u32
local string_of = ffi.string
local new = ffi.new
local find = string.find
local setmetatable = setmetatable
local getmetatable = getmetatable
local tonumber = tonumber
local type = type


local Region = {}
Region.__index = Region

local _M = { Region = Region }

local OPTIONS = check.set("procs routes accounts workflows rows")


local function config_of(options)
    local config = new("fg_region_config")
    config.size = ffi.sizeof(config)
    if options == nil then
        return config
    end
    check.unknown_key(check.plain(options, "the region's options"), OPTIONS,
                      "a region")
    config.procs = u32(options.procs, "procs")
    config.routes = u32(options.routes, "routes")
    config.accounts = u32(options.accounts, "accounts")
    config.workflows = u32(options.workflows, "workflows")
    config.rows = u32(options.rows, "rows")
    return config
end


local function error_of(rc, err)
    return errors.new(errors.result(rc), string_of(err.message),
                      string_of(err.path))
end


local function time_of(now_ms)
    return now_ms == nil and C.fg_host_now_ms() or check.ms(now_ms, "now_ms")
end


-- Opens a region. path: without its ".fg<layout>"; nil is memory of this
-- process alone. options: procs (process slots, 8 to 256; 64), routes,
-- accounts, workflows (records wanted), rows. All processes of a file give the
-- same ones. now_ms: of the engines' clock; nil is the host's. Region, or nil
-- and an error; region.warning says why a file could not be used as it was.
function _M.open(path, options, now_ms)
    if path ~= nil and (type(path) ~= "string" or path == ""
                        or find(path, "\0", 1, true)) then
        return raise("a region's path is a string, not empty; nil is memory "
                     .. "of this process alone")
    end
    local config = config_of(options)
    local out = new("fg_host_map *[1]")
    local err = new("fg_error")
    err.size = ffi.sizeof(err)
    local rc = C.fg_host_map_open(path, config, 0, time_of(now_ms), out, err)
    if rc ~= 0 then
        if err.message[0] == 0 then
            return errors.refused("region", rc)
        end
        return nil, error_of(rc, err)
    end
    -- Calls dropped by the collector ask `state` whether the region is still
    -- there: when a Lua state closes, finalizers run in no order.
    local state = { open = true }
    local map = ffi.gc(out[0], function(m)
        state.open = false
        C.fg_host_map_close(m)
    end)
    local self = setmetatable({ map = map, state = state }, Region)
    if C.fg_host_map_warning(map, err) ~= 0 then
        self.warning = string_of(err.path) .. ": " .. string_of(err.message)
    end
    return self
end


function _M.is(value)
    return type(value) == "table" and getmetatable(value) == Region
end


-- The file in use, or nil when the region is this process's alone.
function Region:path()
    local path = C.fg_host_map_path(self.map)
    return path ~= nil and string_of(path) or nil
end


-- Clears the slots of dead processes now, and says how many. The engines do
-- so once a second by themselves.
function Region:reap(now_ms)
    local rc = C.fg_host_map_reap(self.map, time_of(now_ms))
    if rc < 0 then
        return errors.refused("region:reap", rc)
    end
    return tonumber(rc)
end


return _M
