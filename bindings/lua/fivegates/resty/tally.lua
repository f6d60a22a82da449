-- Decisions counted by action and reason, and routes that were not taken by
-- why: of this nginx since it started, in the lua_shared_dict that keeps the
-- last decisions. The keys are names of the card and words of the engine, so
-- they are few.

local concat = table.concat
local ipairs = ipairs
local ngx = ngx
local gmatch = string.gmatch
local sort = table.sort
local sub = string.sub
local tostring = tostring


local _M = {}

local SEP = "\31"
-- A wait is asked again and again; it is no decision to count.
local UNCOUNTED = { keep_waiting = true }


local function add(dict, ...)
    dict:incr(concat({ ... }, SEP), 1, 0)
end


-- Counts a decision of a call; dict: the lua_shared_dict's name.
function _M.count(name, decision, workflow)
    local dict = ngx.shared[name]
    local action = decision.action
    if not dict or UNCOUNTED[action] then
        return
    end
    workflow = tostring(workflow)
    add(dict, "d", workflow, action, decision.reason)
    if action == "proceed" and decision.attempt > 0 and decision.wake_ms > 0 then
        return  -- the permit of a decision that was counted with its routes
    end
    for _, one in ipairs(decision.rejected) do
        add(dict, "r", workflow, tostring(one.route), one.why)
    end
end


-- Both lists, sorted: decisions {workflow, action, reason, count}, and routes
-- not taken {workflow, route, why, count}.
function _M.counts(name)
    local out = { decisions = {}, rejected = {} }
    local dict = name and ngx.shared[name]
    local keys = dict and dict:get_keys(0) or {}
    sort(keys)
    for _, key in ipairs(keys) do
        local part = {}
        for word in gmatch(key, "[^" .. SEP .. "]+") do
            part[#part + 1] = word
        end
        local count = #part == 4 and dict:get(key)
        if count and sub(key, 1, 2) == "d" .. SEP then
            out.decisions[#out.decisions + 1] = { workflow = part[2],
                action = part[3], reason = part[4], count = count }
        elseif count and sub(key, 1, 2) == "r" .. SEP then
            out.rejected[#out.rejected + 1] = { workflow = part[2],
                route = part[3], why = part[4], count = count }
        end
    end
    return out
end


return _M
