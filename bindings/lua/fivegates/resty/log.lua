-- Health alone, for nginx's own proxy_pass to one place: the primary of a
-- workflow. gate() refuses while its breaker, latch or room says so; the rest
-- tells the engine, and so all who share its state, how each request went.
-- Nothing is sent again and nothing goes elsewhere. The configuration is
-- examples/openresty/recipes/log.conf.

local answers = require "fivegates.resty.answer"
local requests = require "fivegates.resty.request"
local resty = require "fivegates.resty"
local watches = require "fivegates.resty.watch"

local ngx = ngx


local _M = {}

local UNABLE = { "wait", "reroute", "edit", "clear", "cache", "preset", "queue",
                 "resume", "hedge" }


-- In access_by_lua. workflow and facts as of proxy(). watch_only: never refuse.
function _M.gate(workflow, facts, watch_only)
    local gateway = resty.gateway()
    local request, refusal = requests.read()
    if not request then
        if watch_only then
            return
        end
        answers.bad_request(refusal)
        return ngx.exit(ngx.HTTP_OK)
    end
    local call, name = resty.begin(request, workflow, UNABLE, facts)
    if not call then
        if watch_only then
            return
        end
        answers.bad_request(name)
        return ngx.exit(ngx.HTTP_OK)
    end
    local watch = watches.new(gateway, call, name, request)
    if gateway.ledger then
        gateway.ledger(call:ledger_line("call"))
    end
    local decision = call.decision
    if decision.action == "proceed" then
        decision = call:begin_attempt()
    end
    watch:told(decision)
    if decision.action == "proceed" then
        watch:sent(decision)
        ngx.ctx.fivegates = watch
        return
    end
    watch:ends(decision)
    call:drop()
    if not watch_only then
        answers.refuse(request.wire, decision)
        return ngx.exit(ngx.HTTP_OK)
    end
end


watches.in_phases(_M)


return _M
