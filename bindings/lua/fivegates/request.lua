-- The facts of begin() on their way into the one fg_request that is here for
-- all calls. The strings stay the caller's: `held` keeps the table they are in
-- reachable until C has read them.

local ffi = require "ffi"
local C = require("fivegates.lib").C
local check = require "fivegates.check"
local errors = require "fivegates.errors"
local names = require "fivegates.names"

local raise = errors.raise
local u32 = check.u32
local str = check.str
local word = names.word
local bits = names.bits
local nkeys = check.nkeys
local plain = check.plain
local fill = ffi.fill
local rawget = rawget
local type = type


local _M = {}

local KEYS = check.set [[
    workflow call_id tenant affinity account data_class region language
    prompt_tokens max_output_tokens request_bytes max_wait_ms stream delivery
    server_state features unable tools tool_choice prior
]]
local PRIOR = check.set "attempts tokens cost_nusd"

local SIZE = ffi.sizeof("fg_request")
local TOOLS_MAX = C.FG_TOOLS_MAX
local STREAM_YES, STREAM_NO = C.FG_STREAM_YES, C.FG_STREAM_NO

local request = ffi.new("fg_request")
local workflow, call_id = request.workflow, request.call_id
local tools = ffi.new("fg_str[?]", TOOLS_MAX)
local held = false  -- luacheck: ignore 231


local function fill_tools(list, choice)
    local count = check.list(list, "tools", TOOLS_MAX)
    for i = 1, count do
        str(tools[i - 1], rawget(list, i), "tools")
        if rawget(list, i) == choice then
            request.tool_choice = i
        end
    end
    request.tools = tools
    request.tool_count = count
end


local function fill_prior(prior)
    check.unknown_key(check.plain(prior, "prior"), PRIOR, "prior")
    request.prior_attempts = u32(prior.attempts, "prior.attempts")
    request.prior_tokens = u32(prior.tokens, "prior.tokens")
    request.prior_cost_nusd = check.whole(prior.cost_nusd, "prior.cost_nusd")
end


-- The facts fewer callers give; how many there were.
local function fill_rest(facts)
    local r, n = request, 0
    local v = facts.tenant
    if v ~= nil then
        str(r.tenant, v, "tenant")
        n = n + 1
    end
    v = facts.affinity
    if v ~= nil then
        str(r.affinity, v, "affinity")
        n = n + 1
    end
    v = facts.features
    if v ~= nil then
        r.features = bits("feature", v, "features")
        n = n + 1
    end
    v = facts.unable
    if v ~= nil then
        r.unable = bits("unable", v, "unable")
        n = n + 1
    end
    v = facts.account
    if v ~= nil then
        str(r.account, v, "account")
        n = n + 1
    end
    v = facts.data_class
    if v ~= nil then
        str(r.data_class, v, "data_class")
        n = n + 1
    end
    v = facts.region
    if v ~= nil then
        str(r.region, v, "region")
        n = n + 1
    end
    v = facts.language
    if v ~= nil then
        str(r.language, v, "language")
        n = n + 1
    end
    v = facts.request_bytes
    if v ~= nil then
        r.request_bytes = u32(v, "request_bytes")
        n = n + 1
    end
    v = facts.max_wait_ms
    if v ~= nil then
        r.max_wait_ms = u32(v, "max_wait_ms")
        n = n + 1
    end
    v = facts.delivery
    if v ~= nil then
        r.delivery = word("delivery", v, "delivery")
        n = n + 1
    end
    v = facts.server_state
    if v ~= nil then
        r.server_state = word("server_state", v, "server_state")
        n = n + 1
    end
    v = facts.tools
    local choice = facts.tool_choice
    if v ~= nil then
        fill_tools(v, choice)
        n = n + 1
    end
    if choice ~= nil then
        if type(choice) ~= "string" then
            return raise("tool_choice must be a string, not " .. type(choice))
        elseif r.tool_choice == 0 then
            return raise("tool_choice " .. choice .. " is not one of tools")
        end
        n = n + 1
    end
    v = facts.prior
    if v ~= nil then
        fill_prior(v)
        n = n + 1
    end
    return n
end


-- Fills the request; n counts the facts that were there, so that a fact of
-- another name does not go unnoticed.
function _M.fill(facts)
    plain(facts, "the facts of begin")
    held = facts
    fill(request, SIZE)
    local r, n = request, 0
    r.size = SIZE
    local v = facts.workflow
    if v == nil or v == "" then
        return raise("begin needs the workflow's name")
    end
    str(workflow, v, "workflow")
    n = n + 1
    v = facts.prompt_tokens
    if v ~= nil then
        r.prompt_tokens = u32(v, "prompt_tokens")
        n = n + 1
    end
    v = facts.max_output_tokens
    if v ~= nil then
        r.max_output_tokens = u32(v, "max_output_tokens")
        n = n + 1
    end
    v = facts.call_id
    if v ~= nil then
        str(call_id, v, "call_id")
        n = n + 1
    end
    v = facts.stream
    if v ~= nil then
        if v == true then
            r.stream = STREAM_YES
        elseif v == false then
            r.stream = STREAM_NO
        else
            r.stream = word("stream", v, "stream")
        end
        n = n + 1
    end
    if n < nkeys(facts) then
        n = n + fill_rest(facts)
        if n < nkeys(facts) then
            check.unknown_key(facts, KEYS, "begin")
        end
    end
    return r
end


-- C has read it: the caller's table is let go of.
function _M.done()
    held = false
end


return _M
