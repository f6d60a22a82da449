-- A sketch of a Kong plugin: requests to models are answered in the access
-- phase by fivegates.resty, and Kong's own proxying is not reached.
--
-- Kong loads plugins in each worker, so the state's file must be one that
-- workers may write. What Kong does not see then: upstreams, targets and their
-- health checks (the card's routes take their place), the latencies of its
-- balancer in logs. The nginx directive lua_check_client_abort on belongs into
-- Kong's configuration (nginx_proxy_lua_check_client_abort = on).

local resty = require "fivegates.resty"

local Plugin = {
    PRIORITY = 771,  -- before ai-proxy (770), after authentication
    VERSION = "0.1.0",
}

local opened = false


-- Kong calls this in each worker with the configurations of all plugins, again
-- whenever one of them changes. One card serves all.
function Plugin:configure(configs)
    local conf = configs and configs[1]
    if not conf or opened then
        return
    end
    resty.open { card = conf.card, region = conf.region, keys = conf.keys,
                 forward = conf.forward, recent = conf.recent }
    resty.worker()
    opened = true
end


function Plugin:access(conf)
    if not opened then
        return kong.response.exit(503, { message = "fivegates has no card" })
    end
    local consumer = kong.client.get_consumer()
    resty.proxy(conf.workflow, consumer and { tenant = consumer.id } or nil)
    return ngx.exit(ngx.HTTP_OK)  -- what was said is the answer
end


return Plugin
