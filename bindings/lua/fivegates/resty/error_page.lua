-- Decisions around nginx's own proxy_pass: an error is caught by error_page,
-- decided on, and sent again or elsewhere. The configuration is
-- examples/openresty/recipes/error_page.conf.
--
-- What it cannot see or do: the body of an error (so quota and rate may be
-- taken for each other), a stream's first content (a fault after the head is
-- the client's), the engine's clocks (nginx's are fixed). nginx allows ten
-- internal redirects: four attempts.

local answers = require "fivegates.resty.answer"
local edits = require "fivegates.resty.edits"
local requests = require "fivegates.resty.request"
local resty = require "fivegates.resty"
local targets = require "fivegates.resty.target"
local watches = require "fivegates.resty.watch"

local ipairs = ipairs
local ngx = ngx


local _M = {}

local UNABLE = { "clear", "cache", "preset", "queue", "resume", "hedge" }
local ATTEMPTS_MAX = 4
local GOES_ON = { proceed = true, retry = true, fallback = true, hold = true,
                  degrade = true }

-- Watches by call id, which a variable keeps: ngx.ctx does not live through a
-- redirect.
local running = {}


local function refuse(watch, decision)
    watch:ends(decision)
    answers.refuse(watch.wire, decision)
end


-- What a decision cannot have here, or nil.
local function lack(watch, decision)
    for _, change in ipairs(decision.change) do
        if change ~= "max_tokens" and change ~= "no_thinking" then
            return "edit"
        end
    end
    local target = watch.gateway.targets[decision.route]
    if target and decision.route ~= watch.primary
       and ((target.api and target.api ~= watch.wire)
            or targets.lacks_key(target)) then
        return "reroute"
    end
    return nil
end


local function send(watch, permit)
    watch:sent(permit)
    local target, request, var = watch.target, watch.request, ngx.var
    local changes = {}
    for _, name in ipairs(permit.change) do
        changes[name] = name == "max_tokens" and permit.max_tokens or true
    end
    ngx.req.set_body_data(edits.apply(request, target.model, changes))
    var.fivegates_url = targets.url(target, request.path)
    var.fivegates_host = target.authority
    local name, value = targets.key_header(target, watch.wire)
    var.fivegates_authorization = name == "authorization" and value or ""
    var.fivegates_api_key = name == "x-api-key" and value or ""
    var.fivegates_azure_key = name == "api-key" and value or ""
    return ngx.exec("@fivegates_send")
end


-- From a decision to the next send, or the end.
local function go_on(watch, decision)
    while true do
        watch:told(decision)
        if not GOES_ON[decision.action] or decision.attempt > ATTEMPTS_MAX then
            return refuse(watch, decision)
        end
        local missing = lack(watch, decision)
        if missing then
            decision = watch.call:unable(missing)
        else
            if decision.wait_ms > 0 then
                ngx.sleep(decision.wait_ms / 1000)
            end
            decision = watch.call:begin_attempt()
            if decision.action == "proceed" then
                watch:told(decision)
                local target = watch.gateway.targets[decision.route]
                if not targets.lacks_key(target) then
                    return send(watch, decision)
                end
                decision = watch.call:failure(targets.no_key(target))
            end
        end
    end
end


local function leaves(watch)
    ngx.on_abort(function()
        if not watch.over then
            local decision = watch.call:cancel()
            watch:told(decision)
            watch:ends(decision)
        end
        ngx.exit(499)
    end)
end


-- In content_by_lua of the location that clients use.
function _M.begin(workflow, facts)
    local gateway = resty.gateway()
    local request, refusal = requests.read()
    if not request then
        return answers.bad_request(refusal)
    end
    local call, name = resty.begin(request, workflow, UNABLE, facts)
    if not call then
        return answers.bad_request(name)
    end
    local watch = watches.new(gateway, call, name, request)
    local id = call:id()
    running[id] = watch
    ngx.var.fivegates_call = id
    if gateway.ledger then
        gateway.ledger(call:ledger_line("call"))
    end
    leaves(watch)
    return go_on(watch, call.decision)
end


-- In content_by_lua of @fivegates_decide: the last try has failed.
function _M.decide()
    local watch = running[ngx.var.fivegates_call]
    if not watch or watch.over then
        return ngx.exit(502)
    end
    leaves(watch)
    return go_on(watch, watch.call:failure(watch:evidence()))
end


local function with(method)
    return function()
        local watch = running[ngx.var.fivegates_call]
        if watch and watch.started then
            watch[method](watch)
        end
    end
end


_M.head = with "head"  -- in header_filter_by_lua of @fivegates_send
_M.body = with "body"  -- in body_filter_by_lua of @fivegates_send


-- In log_by_lua of the server.
function _M.done()
    local id = ngx.var.fivegates_call
    local watch = running[id]
    running[id] = nil
    if watch then
        watch:done()
    end
end


return _M
