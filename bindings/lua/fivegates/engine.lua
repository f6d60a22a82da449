-- Engine: a policy on a region, in this process's slot. It follows its process
-- through a fork, and tells the region the wall time.

local ffi = require "ffi"
local C = require("fivegates.lib").C
local call = require "fivegates.call"
local check = require "fivegates.check"
local errors = require "fivegates.errors"
local fork = require "fivegates.fork"
local ids = require "fivegates.ids"
local names = require "fivegates.names"
local policies = require "fivegates.policy"
local regions = require "fivegates.region"

local raise = errors.raise
local refused = errors.refused
local ms = check.ms
local whole = check.whole
local fork_number = fork.number
local breakers = names.name.breaker
local healths = names.name.health
local Policy = policies.Policy
local cast = ffi.cast
local new = ffi.new
local istype = ffi.istype
local string_of = ffi.string
local getmetatable = getmetatable
local setmetatable = setmetatable
local tonumber = tonumber
local type = type


local Engine = {}
Engine.__index = Engine

local _M = { Engine = Engine }

local OPTIONS = check.set("region procs seed clock slot")
local U64 = ffi.typeof("uint64_t")


-- ---- making, and making anew

-- Dated contracts and daily limits need wall time. A clock of the caller's
-- own has none that we know: engine:wall_clock tells it.
local function tell_wall_time(self, now_ms)
    if self.own_clock then
        C.fg_engine_clock(self.handle, C.fg_host_unix_ms(), now_ms)
    end
end


-- Makes the engine in its memory, for the slot and region of this moment.
local function make(self, now_ms)
    local region = self.region
    local at, slot = region.at, self.slot
    if region.map then
        slot = C.fg_host_map_slot(region.map, now_ms)
        at = C.fg_host_map_region(region.map)
    end
    if slot < 0 then
        return refused("engine", slot)
    end
    local out = new("fg_engine *[1]")
    local err = new("fg_error")
    err.size = ffi.sizeof(err)
    local rc = C.fg_engine_init(self.memory, self.bytes, self.policy.block, at,
                                slot, self.seed, now_ms, out, err)
    if rc ~= 0 then
        if err.message[0] == 0 then
            return refused("engine", rc)
        end
        return nil, errors.new(errors.result(rc), string_of(err.message),
                               string_of(err.path))
    end
    self.handle = cast("const fg_engine *", out[0])
    self.at, self.slot = at, slot
    tell_wall_time(self, now_ms)
    return self
end


-- A call that the collector takes away was dropped without a word: neutral.
-- One function for all calls of an engine, and it holds what the engine points
-- into; so neither is collected before the last of its calls.
local function finisher(self)
    local keep = { self.memory, self.policy.memory, self.region }
    local state = self.region.state
    local handle = self.handle
    return function(block)
        if block.begun ~= 0 and state.open and keep
           and block.process == fork_number() then
            block.begun = 0
            C.fg_call_end(handle, block.call)
        end
    end
end


local function new_engine(policy, region, options)
    local bytes = tonumber(C.fg_engine_bytes(policy.block))
    local self = setmetatable({
        policy = policy, region = region, bytes = bytes,
        memory = new("uint64_t[?]", (bytes + 7) / 8),
        seed = options.seed, clock = options.clock,
        own_clock = options.own_clock, slot = options.slot or 0,
        ids = ids.new(options.id_seed),
    }, Engine)
    local ok, err = make(self, self:now_ms())
    if not ok then
        return nil, err
    end
    self.finish = finisher(self)
    return self
end


local function host_now_ms()
    return tonumber(C.fg_host_now_ms())
end


local function seed_of(seed)
    if seed == nil then
        return C.fg_host_seed()
    elseif type(seed) == "cdata" and istype(U64, seed) then
        return seed
    end
    return cast(U64, whole(seed, "seed"))
end


-- Decides for the calls of this process. options: region (a path shared with
-- other processes, an opened region, or nil for memory of this process
-- alone), procs (slots of a new region), seed (of all jitter, unless the card
-- names one), clock (a function that answers milliseconds of a monotonic
-- clock; the host's). Engine, or nil and an error.
function _M.engine(policy, options)
    if type(policy) ~= "table" or getmetatable(policy) ~= Policy then
        return raise("engine: the first argument is a policy: "
                     .. "fivegates.policy(card)")
    end
    options = check.plain(options == nil and {} or options,
                          "the engine's options")
    check.unknown_key(options, OPTIONS, "an engine")
    local clock = options.clock
    if clock ~= nil and type(clock) ~= "function" then
        return raise("clock must be a function that answers milliseconds, not "
                     .. type(clock))
    end
    local seed = seed_of(options.seed)
    local region = options.region
    if not regions.is(region) then
        local opened, err = regions.open(region, { procs = options.procs },
                                         clock and clock() or nil)
        if not opened then
            return nil, err
        end
        region = opened
    elseif options.procs ~= nil then
        return raise("procs is said when the region is opened")
    end
    return new_engine(policy, region, {
        seed = seed, clock = clock or host_now_ms, own_clock = clock == nil,
        slot = check.u32(options.slot, "slot"),
        id_seed = options.seed == nil and C.fg_host_seed() or seed,
    })
end


-- A new engine with another card on the same region. Calls go on with the
-- engine they began with. Engine, or nil and an error.
function Engine:reload(policy)
    if type(policy) ~= "table" or getmetatable(policy) ~= Policy then
        return raise("engine:reload: the argument is a policy")
    end
    return new_engine(policy, self.region, {
        seed = self.seed, clock = self.clock, own_clock = self.own_clock,
        slot = self.slot, id_seed = C.fg_host_seed(),
    })
end


-- ---- for every operation

-- The engine's clock, in milliseconds.
function Engine:now_ms()
    return ms(self.clock(), "what the clock answers")
end


-- The time of an operation; after a fork the engine is made anew first, in
-- the child's own slot.
function Engine:ready(now_ms)
    if now_ms == nil then
        now_ms = self.clock()
    end
    now_ms = ms(now_ms, "now_ms")
    local map = self.region.map
    if map and (C.fg_host_map_slot(map, now_ms) ~= self.slot
                or C.fg_host_map_region(map) ~= self.at) then
        local ok, err = make(self, now_ms)
        if not ok then
            return raise(err.message .. " [" .. err.code .. "]")
        end
    end
    return now_ms
end


Engine.begin = call.begin
Engine.resume = call.resume


-- ---- views, ticks, clocks

local ROUTE_NUMBERS = {
    "open_for_ms", "generation", "opened_count", "in_flight", "retries",
    "limit", "z_milli", "run", "window_ok", "window_failed", "first_token_ms",
    "stall_ms", "samples", "rate_milli", "not_before_ms", "balance_milli",
    "latch_for_ms", "attempts", "successes", "failures", "tokens",
}
local WORKFLOW_NUMBERS = {
    "calls", "primary_success", "retry_recovery", "fallback_recovery",
    "degraded", "failed_closed", "queued", "cancelled", "retries_this_hour",
    "spent_today_nusd",
}


local function numbers(view, keys)
    local out = {}
    for i = 1, #keys do
        out[keys[i]] = tonumber(view[keys[i]])
    end
    return out
end


-- Live state of a route, over all processes of the region: a table, or nil
-- and an error.
function Engine:route(name, now_ms)
    local id = self.policy:route_id(name)
    local view = new("fg_route_view")
    view.size = ffi.sizeof(view)
    local now = self:ready(now_ms)
    local rc = C.fg_engine_route(self.handle, id, now, view)
    if rc ~= 0 then
        return refused("engine:route", rc)
    end
    local out = numbers(view, ROUTE_NUMBERS)
    out.breaker = breakers[view.breaker]
    out.health = healths[view.health]
    out.latch = view.latch == 0 and "none" or healths[view.latch]
    return out
end


-- Counters of a workflow since its record was made: a table, or nil and an
-- error.
function Engine:workflow(name, now_ms)
    local id = self.policy:workflow_id(name)
    local view = new("fg_workflow_view")
    view.size = ffi.sizeof(view)
    local now = self:ready(now_ms)
    local rc = C.fg_engine_workflow(self.handle, id, now, view)
    if rc ~= 0 then
        return refused("engine:workflow", rc)
    end
    return numbers(view, WORKFLOW_NUMBERS)
end


-- Looks at overdue attempts of all processes, so that silence is noticed
-- while no call asks. Returns the milliseconds until the next look is useful.
function Engine:tick(now_ms)
    local now = self:ready(now_ms)
    if now_ms == nil then
        tell_wall_time(self, now)
    end
    local next_ms = C.fg_engine_tick(self.handle, now)
    if next_ms < 0 then
        return refused("engine:tick", next_ms)
    end
    return next_ms
end


-- Tells the region the wall time: unix_ms, milliseconds since 1970. Only
-- needed with a clock of one's own.
function Engine:wall_clock(unix_ms, now_ms)
    unix_ms = ms(unix_ms, "unix_ms")
    local now = self:ready(now_ms)
    local rc = C.fg_engine_clock(self.handle, unix_ms, now)
    if rc ~= 0 then
        return refused("engine:wall_clock", rc)
    end
    return true
end



-- For tests that move a region: the engine anew, where the region is now.
_M.renew = make

return _M
