-- What people put in front of a model today: lua-resty-limit-traffic (a rate
-- and a number of connections, in shared memory), and a counter of failures.

local _M = {}

local THRESHOLD = 5
local SECONDS = 10
local rate, connections


function _M.load()
    local ok, req = pcall(require, "resty.limit.req")
    if ok then
        rate = assert(req.new("limits", 1e6, 1e6))
        connections = assert(require("resty.limit.conn").new("limits", 1e5, 1e5, 0.5))
    end
end


-- Both limiters, for requests of one key.
function _M.incoming(key)
    rate:incoming("rate " .. key, true)
    return connections:incoming(key, true)
end


function _M.leave(key)
    return connections:leaving(key, 0.01)
end


_M.has_limits = function() return rate ~= nil end


function _M.limit()
    if not rate:incoming("rate main", true) or not connections:incoming("main", true) then
        return ngx.exit(503)
    end
end


function _M.leaving()
    connections:leaving("main", tonumber(ngx.var.request_time))
end


-- A breaker as it is written by hand: failures in a row, in a shared dictionary.
function _M.counter_gate()
    if (ngx.shared.counters:get "main" or 0) >= THRESHOLD then
        return ngx.exit(503)
    end
end


function _M.counted()
    if ngx.status >= 500 then
        ngx.shared.counters:incr("main", 1, 0, SECONDS)
    else
        ngx.shared.counters:delete "main"
    end
end


return _M
