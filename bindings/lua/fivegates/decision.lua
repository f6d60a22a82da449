-- Decision: an answer of the engine, read field by field. A call has one and
-- overwrites it: copy() keeps it.

local ffi = require "ffi"
local errors = require "fivegates.errors"
local json = require "fivegates.json"
local names = require "fivegates.names"
local text = require "fivegates.text"

local name = names.name
local raise = errors.raise
local band = bit.band
local rshift = bit.rshift
local setmetatable = setmetatable
local getmetatable = getmetatable
local tonumber = tonumber
local tostring = tostring
local type = type


local _M = {}

local Decision = {}

local UNLIMITED = 4294967295
local UNLIMITED_NUSD = 9223372036854775807LL

-- Fields that are words, by the table of their names.
local WORDS = {
    action = name.action, reason = name.reason, detail = name.reason,
    gate = name.gate, owner = name.owner, kind = name.kind,
    resume_from = name.resume, lookup = name.lookup, repair = name.repair,
}
local NUMBERS = {}
for field in ([[
    attempt wait_ms wake_ms step cancel connect_ms first_token_ms idle_ms
    progress_ms total_ms max_tokens compact_tokens max_age_s reuse_ops
    hint_status hint_retry_after_ms
]]):gmatch("%S+") do
    NUMBERS[field] = true
end
-- nil where there is no limit.
local LEFT = { attempts_left = true, elapsed_left_ms = true,
               tokens_left = true }
local FLAGS = { may_pay_twice = true, user_may_retry = true,
                hint_should_retry = true }
local GET = {}


function Decision.__index(self, field)
    local words = WORDS[field]
    if words then
        return words[self.raw[field]]
    end
    if NUMBERS[field] then
        return self.raw[field]
    end
    local get = GET[field]
    if get then
        return get(self, self.raw)
    end
    if FLAGS[field] then
        return self.raw[field] ~= 0
    end
    if LEFT[field] then
        local left = self.raw[field]
        if left == UNLIMITED then
            return nil
        end
        return left
    end
    local method = _M[field]
    if method then
        return method
    end
    return raise("a decision has no field " .. tostring(field))
end


function GET.route(self, raw)
    return self.routes[raw.route]
end


function GET.route_id(_, raw)
    return raw.route
end


function GET.requested(self, raw)
    return self.routes[raw.requested]
end


-- The answer comes from a stand-in or is degraded, and should say so.
function GET.labelled(_, raw)
    return raw.label ~= 0
end


function GET.ladder_step(_, raw)
    return raw.ladder_step ~= 0 and name.step[raw.ladder_step] or nil
end


function GET.cost_left_nusd(_, raw)
    local left = raw.cost_left_nusd
    if left == UNLIMITED_NUSD then
        return nil
    end
    return tonumber(left)
end


function GET.change(_, raw)
    return names.words("change", raw.change)
end


function GET.alert(_, raw)
    return names.words("alert", raw.alert)
end


function GET.rejected(self, raw)
    local all = {}
    for i = 1, raw.rejected_count do
        local one = raw.rejected[i - 1]
        all[i] = { route = self.routes[band(one, 0xffff)],
                   why = name.reason[rshift(one, 16)] }
    end
    return all
end


function GET.text_id(_, raw)
    return raw.text
end


-- The preset text to show, in the call's language, or nil.
function GET.text(self, raw)
    if raw.text == 0 then
        return nil
    end
    return self.policy:preset(raw.text, self.call.language)
end


-- ---- methods

-- The decision as it is now; the call's next operation leaves it alone. Its
-- explain() speaks of the call as it is then.
function _M.copy(self)
    local raw = ffi.new("fg_decision")
    ffi.copy(raw, self.raw, ffi.sizeof("fg_decision"))
    return setmetatable({ raw = raw, routes = self.routes, call = self.call,
                          policy = self.policy }, Decision)
end


-- As compact JSON, in the ledger's form.
function _M.json(self)
    return text.decision_json(self.policy.block, self.raw)
end


-- The same as a table; needs lua-cjson.
function _M.to_table(self)
    return json.decode(_M.json(self), "decision:to_table")
end


-- The five gates for it, in plain words; "" when the call is gone.
function _M.explain(self)
    local call = self.call
    return text.explain(call.engine.handle, call.ref, self.raw)
end


function Decision.__tostring(self)
    return _M.json(self)
end


-- Makes the decision object of a call; raw is a part of the call's memory.
function _M.of(call, raw)
    return setmetatable({ raw = raw, call = call, policy = call.engine.policy,
                          routes = call.engine.policy.route_names }, Decision)
end


function _M.is(value)
    return type(value) == "table" and getmetatable(value) == Decision
end


return _M
