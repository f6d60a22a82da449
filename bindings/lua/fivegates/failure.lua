-- classify(): evidence to a failure, without an engine and without state.

local ffi = require "ffi"
local C = require("fivegates.lib").C
local errors = require "fivegates.errors"
local evidences = require "fivegates.evidence"
local names = require "fivegates.names"
local policies = require "fivegates.policy"

local name = names.name
local band = bit.band
local getmetatable = getmetatable
local type = type


local _M = {}

local failure = ffi.new("fg_failure")
failure.size = ffi.sizeof(failure)


local function has(bit)
    return band(failure.flags, bit) ~= 0
end


-- What the evidence means, by the built-in rules and, when given, a policy's
-- own: a table of words, flags and waits. retry_after_ms and should_retry are
-- nil where the server said nothing; why is one line on the rule that matched.
function _M.classify(evidence, policy)
    local block
    if policy ~= nil then
        if type(policy) ~= "table"
           or getmetatable(policy) ~= policies.Policy then
            return errors.raise("classify: the second argument is a policy")
        end
        block = policy.block
    end
    local e = evidences.fill(evidence)
    local f = failure
    local rc = C.fg_classify(block, e, f)
    evidences.done()
    if rc ~= 0 then
        return errors.refused("classify", rc)
    end
    local should_retry
    if has(C.FG_FAIL_SHOULD_RETRY) then
        should_retry = true
    elseif has(C.FG_FAIL_MUST_NOT_RETRY) then
        should_retry = false
    end
    return {
        owner = name.owner[f.owner], kind = name.kind[f.kind],
        class = name.class[f.klass], scope = name.scope[f.scope],
        period = name.period[f.period], billed = name.billed[f.billed],
        commit = name.commit[f.commit], repair = name.repair[f.repair],
        overload = has(C.FG_FAIL_OVERLOAD),
        trips_breaker = has(C.FG_FAIL_TRIPS_BREAKER),
        never_sent = has(C.FG_FAIL_NEVER_SENT),
        silent = has(C.FG_FAIL_SILENT),
        local_fault = has(C.FG_FAIL_LOCAL_FAULT),
        should_retry = should_retry,
        retry_after_ms = has(C.FG_FAIL_HAS_RETRY_AFTER) and f.retry_after_ms
                         or nil,
        rule = f.rule, why = ffi.string(C.fg_rule_why(block, f.rule)),
    }
end


return _M
