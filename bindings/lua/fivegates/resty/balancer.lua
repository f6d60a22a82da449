-- A peer picker for balancer_by_lua: the engine names the route, nginx sends.
-- The configuration is examples/openresty/recipes/balancer.conf.
--
-- What it cannot see or do: it cannot wait, so it falls back and never retries
-- after a pause; an error's body is gone; which errors may move on is nginx's
-- fixed list (no 408, 409, 529); a refusal after the first try is a bare 500.
-- All routes of the workflow must have one path and one scheme, and addresses,
-- not names.

local answers = require "fivegates.resty.answer"
local balancer = require "ngx.balancer"
local edits = require "fivegates.resty.edits"
local notice = require "fivegates.resty.notice"
local requests = require "fivegates.resty.request"
local resty = require "fivegates.resty"
local targets = require "fivegates.resty.target"
local watches = require "fivegates.resty.watch"

local find = string.find
local ngx = ngx
local tostring = tostring


local _M = {}

local UNABLE = { "wait", "edit", "clear", "cache", "preset", "queue", "resume",
                 "hedge" }


-- Can this request go there, to another route than where it began?
local function reachable(watch, target)
    local home = watch.home
    return target and target.tls == home.tls and target.path == home.path
           and target.query == home.query and find(target.host, "^[%d.]+$")
           and not (target.api and target.api ~= watch.wire)
           and not targets.lacks_key(target)
end


-- Why nothing can be sent to the primary from here: evidence, or nil.
local function fault_of(target)
    if targets.lacks_key(target) then
        return targets.no_key(target)
    elseif not find(target.host, "^[%d.]+$") then
        notice.say(ngx.ERR, "no address for route " .. target.name,
                   "route ", target.name, ": the balancer recipe needs an "
                   .. "address in base_url, not the name ", target.host)
        return { phase = "connect", origin = "local",
                 headers = { ["x-should-retry"] = "false" },
                 transport = { lib = "fivegates", kind = "noaddress" } }
    end
    return nil
end


-- The decision to a permitted send on a route that can be reached, or to none.
local function permitted(watch, decision)
    while true do
        watch:told(decision)
        local action = decision.action
        if action ~= "proceed" and action ~= "fallback" and action ~= "retry" then
            return decision
        end
        local target = watch.gateway.targets[decision.route]
        if target ~= watch.home and not reachable(watch, target) then
            decision = watch.call:unable("reroute")
        else
            decision = watch.call:begin_attempt()
            if decision.action == "proceed" then
                watch:told(decision)
                local fault = fault_of(target)
                if not fault then
                    return decision
                end
                decision = watch.call:failure(fault)
            end
        end
    end
end


local function prepare(watch, permit)
    watch:sent(permit)
    local target, var = watch.target, ngx.var
    local name, value = targets.key_header(target, watch.wire)
    var.fivegates_host = target.authority
    var.fivegates_authorization = name == "authorization" and value or ""
    var.fivegates_api_key = name == "x-api-key" and value or ""
    var.fivegates_azure_key = name == "api-key" and value or ""
    var.fivegates_body = edits.apply(watch.request, target.model, {})
    var.fivegates_call = watch.call:id()
end


-- In access_by_lua.
function _M.begin(workflow, facts)
    local gateway = resty.gateway()
    local request, refusal = requests.read()
    if not request then
        answers.bad_request(refusal)
        return ngx.exit(ngx.HTTP_OK)
    end
    local call, name = resty.begin(request, workflow, UNABLE, facts)
    if not call then
        answers.bad_request(name)
        return ngx.exit(ngx.HTTP_OK)
    end
    local watch = watches.new(gateway, call, name, request)
    local decision = call.decision
    watch.home = gateway.targets[decision.requested or decision.route]
    if gateway.ledger then
        gateway.ledger(call:ledger_line("call"))
    end
    local permit = permitted(watch, decision)
    if permit.action ~= "proceed" then
        watch:ends(permit)
        answers.refuse(request.wire, permit)
        return ngx.exit(ngx.HTTP_OK)
    end
    prepare(watch, permit)
    ngx.var.fivegates_path = targets.path(watch.target, request.path)
    ngx.ctx.fivegates = watch
end


-- In balancer_by_lua.
function _M.pick()
    local watch = ngx.ctx.fivegates
    if not watch or watch.over then
        return ngx.exit(503)
    end
    local state, status = balancer.get_last_failure()
    if state then
        local found = watch:evidence()
        if state == "next" and not found.status then
            found.phase, found.status, found.transport = "response", status, nil
        end
        local permit = permitted(watch, watch.call:failure(found))
        if permit.action ~= "proceed" then
            watch:ends(permit)
            return ngx.exit(503)  -- which nginx makes a 500
        end
        prepare(watch, permit)
        balancer.recreate_request()
    end
    local target = watch.target
    local ok, err = balancer.set_current_peer(target.host, target.port)
    if not ok then
        ngx.log(ngx.ERR, "fivegates: route ", target.name, ": ", tostring(err))
        return ngx.exit(503)
    end
    balancer.set_more_tries(1)
end


watches.in_phases(_M)


return _M
