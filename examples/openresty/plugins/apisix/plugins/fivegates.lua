-- A sketch of an APISIX plugin: APISIX's own AI proxying (providers, protocol
-- conversion, streaming), with the engine picking the instance and deciding
-- after each error. Instances are named as the card's routes.
--
-- What the hook on_error(ctx, conf, code, body) does not see: headers (a
-- Retry-After is lost), the phase of a fault of the network (it comes as 500 or
-- 504: taken for one that may have run, so only a stand-in follows), a stream's
-- events (a fault after the head ends the call). The engine's clocks do not
-- run: conf.timeout is fixed.

local base = require "apisix.plugins.ai-proxy.base"
local core = require "apisix.core"
local fivegates = require "fivegates"

local floor = math.floor
local ipairs = ipairs
local max = math.max
local ngx = ngx
local tonumber = tonumber
local tostring = tostring
local type = type


local _M = { version = 0.1, priority = 1042, name = "fivegates" }

_M.schema = {
    type = "object",
    required = { "card", "region", "workflow", "instances" },
    properties = {
        card = { type = "string" },    -- a file
        region = { type = "string" },  -- the state's file, writable by workers
        workflow = { type = "string" },
        timeout = { type = "integer", default = 60000 },  -- as of ai-proxy-multi
        keepalive = { type = "boolean", default = true },
        keepalive_timeout = { type = "integer", default = 60000 },
        keepalive_pool = { type = "integer", default = 30 },
        ssl_verify = { type = "boolean", default = true },
        instances = {                  -- as of ai-proxy-multi; name: the route
            type = "array", minItems = 1,
            items = { type = "object", required = { "name", "provider", "auth" } },
        },
    },
}

-- What this host cannot do; APISIX edits no request for us.
local UNABLE = { "edit", "clear", "cache", "preset", "queue", "resume", "hedge" }
local GOES_ON = { proceed = true, retry = true, fallback = true, hold = true }
-- Codes that APISIX makes itself of faults of the network.
local NETWORK = { [500] = "connection closed", [504] = "read timeout" }

local engines = {}  -- by card and region


function _M.check_schema(conf)
    return core.schema.check(_M.schema, conf)
end


local function engine_of(conf)
    local key = conf.card .. "\n" .. conf.region
    if not engines[key] then
        local policy, err = fivegates.load(conf.card)
        if policy then
            engines[key], err = fivegates.engine(policy, { region = conf.region })
        end
        if not engines[key] then
            core.log.error("fivegates: ", tostring(err))
        end
    end
    return engines[key]
end


local function instance_of(conf, route)
    for _, one in ipairs(conf.instances) do
        if one.name == route then
            return one
        end
    end
    return nil
end


-- From a decision to permission for a send on an instance there is: the
-- instance, or nil and the decision that ends the call.
local function permitted(conf, call, decision)
    while GOES_ON[decision.action] do
        local instance = instance_of(conf, decision.route)
        if not instance then
            decision = call:unable "reroute"
        else
            if decision.wait_ms > 0 then
                ngx.sleep(decision.wait_ms / 1000)
            end
            decision = call:begin_attempt()
            if decision.action == "proceed" then
                call:event "sent"
                return instance
            end
        end
    end
    return nil, decision
end


local function refusal(decision)
    core.response.set_header("x-should-retry", "false")
    core.response.set_header("x-fivegates-reason", decision.reason)
    local status = decision.hint_status
    return status ~= 0 and status or 503, { error = {
        message = "fivegates: " .. decision.reason .. ", " .. decision.kind,
        type = "fivegates", code = decision.reason } }
end


local function failure(call, code, body)
    if ngx.headers_sent then
        call:event "token"  -- the client has some of it: never again
    end
    local kind = NETWORK[code]
    if kind then
        return call:failure { phase = "read", transport = { lib = "apisix",
                                                            kind = kind } }
    end
    return call:failure { phase = "response", status = code,
                          body = type(body) == "string" and body or nil }
end


function _M.access(_, ctx)
    local err = base.detect_request_type(ctx)
    if err then
        return 400, { message = err }
    end
end


function _M.before_proxy(conf, ctx)
    local engine = engine_of(conf)
    if not engine then
        return 503, { message = "fivegates has no card" }
    end
    local body = core.request.get_body() or ""
    local call, err = engine:begin {
        workflow = conf.workflow, prompt_tokens = max(1, floor(#body / 4)),
        stream = ctx.var.request_type == "ai_stream", unable = UNABLE,
    }
    if not call then
        core.log.error("fivegates: ", tostring(err))
        return 503
    end
    local instance, ended = permitted(conf, call, call.decision)
    if not instance then
        return refusal(ended)
    end
    ctx.picked_ai_instance = instance
    local code, answer = base.before_proxy(conf, ctx, function(_, _, status, said)
        instance, ended = permitted(conf, call, failure(call, status, said))
        ctx.picked_ai_instance = instance
        return not instance and status or nil
    end)
    if ended then
        if ngx.headers_sent then
            return code, answer
        end
        return refusal(ended)
    elseif code then
        call:drop()  -- APISIX ended it by itself, before anything was sent
        return code, answer
    end
    call:success { prompt_tokens = tonumber(ctx.var.llm_prompt_tokens) or 0,
                   output_tokens = tonumber(ctx.var.llm_completion_tokens) or 0,
                   finish_reason = "stop" }
end


return _M
