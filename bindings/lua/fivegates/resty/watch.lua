-- Watches an answer that nginx itself passes on (proxy_pass): for the recipes
-- of log.lua, error_page.lua and balancer.lua. What nginx does not tell stays
-- unknown; the clocks are nginx's own (proxy_read_timeout), not the engine's.

local fivegates = require "fivegates"
local progress = require "fivegates.resty.progress"
local served = require "fivegates.resty.served"

local band = bit.band
local bor = bit.bor
local concat = table.concat
local find = string.find
local match = string.match
local max = math.max
local ngx = ngx
local setmetatable = setmetatable
local sub = string.sub
local tonumber = tonumber
local ipairs = ipairs


local Watch = {}
Watch.__index = Watch

local _M = {}

local BAD = bor(fivegates.SAW.error, fivegates.SAW.malformed)
local ERROR_MAX = 65536
-- Headers of an answer that say when to come again.
local HINTS = {
    "retry-after", "retry-after-ms", "x-should-retry", "date",
    "x-ratelimit-remaining-requests", "x-ratelimit-remaining-tokens",
    "x-ratelimit-reset-requests", "x-ratelimit-reset-tokens",
    "anthropic-ratelimit-requests-reset", "anthropic-ratelimit-tokens-reset",
}


function _M.new(gateway, call, workflow, request)
    local first = call.decision
    return setmetatable({ gateway = gateway, call = call, workflow = workflow,
                          primary = first.requested or first.route,
                          request = request, wire = request.wire, saw = 0,
                          counts = {}, over = false }, Watch)
end


Watch.feed = progress.feed
Watch.whole = progress.whole
Watch.counted = progress.counted


-- An attempt goes out: permit, the engine's proceed.
function Watch:sent(permit)
    self.number, self.target = permit.attempt, self.gateway.targets[permit.route]
    self.started = self.gateway.engine:now_ms()
    self.scanner, self.status, self.saw, self.visible = nil, nil, 0, 0
    self.rest = 0
    self.no_speed = true  -- nginx reads on as the client reads
    self.eof, self.parts, self.size = false, {}, 0
    self.call:event("sent")
end


-- The last of nginx's values for the tries of a request.
local function last(value)
    return match(value or "", "([^,: ]+)%s*$")
end


-- In header_filter_by_lua.
function Watch:head()
    self.status = tonumber(last(ngx.var.upstream_status))
    if self.over or not self.status or self.status >= 300 then
        return
    end
    self.call:event("accepted")
    local kind = ngx.header["content-type"] or ""
    self.sse = find(kind, "event-stream", 1, true) ~= nil
    self.scanner = fivegates.sse { wire = self.wire, whole = not self.sse }
end


-- In body_filter_by_lua.
function Watch:body()
    local chunk, eof = ngx.arg[1], ngx.arg[2]
    if self.over then
        return
    elseif chunk ~= "" and self.scanner then
        self:feed(chunk)
    elseif chunk ~= "" and self.size < ERROR_MAX then
        self.parts[#self.parts + 1] = sub(chunk, 1, ERROR_MAX - self.size)
        self.size = self.size + #self.parts[#self.parts]
    end
    self.eof = self.eof or eof
end


-- Evidence of the last try, as nginx's variables tell it.
function Watch:evidence()
    local var = ngx.var
    local status = tonumber(last(var.upstream_status))
    local out = {
        provider = self.target.provider, api = self.target.api,
        attempt = self.number,
        elapsed_ms = max(0, self.gateway.engine:now_ms() - self.started),
    }
    if (last(var.upstream_header_time) or "-") ~= "-" then
        out.phase, out.status, out.headers = "response", status, {}
        for _, name in ipairs(HINTS) do
            out.headers[name] = var["upstream_http_" .. name:gsub("-", "_")]
        end
        out.body = self.parts and concat(self.parts) or nil
        return out
    end
    local connected = last(var.upstream_connect_time)
    if not connected or connected == "-" then
        out.phase = "connect"
        out.transport = { lib = "nginx", kind = status == 504
                          and "connect timeout" or "connect" }
    else
        out.phase = "read"
        out.transport = { lib = "nginx", kind = status == 504
                          and "read timeout" or "connection closed" }
    end
    return out
end


function Watch:told(decision)
    if self.gateway.ledger then
        self.gateway.ledger(self.call:ledger_line(
            "decision", decision, nil, served.of_upstream(self.scanner)))
    end
    if self.gateway.recent then
        self.gateway.recent(decision)
    end
    if self.gateway.on_decision then
        self.gateway.on_decision(decision, self.call)
    end
end


-- The call is over, by this decision.
function Watch:ends(decision)
    self.over = true
    if self.gateway.ledger then
        self.gateway.ledger(self.call:ledger_line("end", decision))
    end
end


local function outcome(self)
    local call = self.call
    local left = ngx.status == 499 or (ngx.var.request_completion ~= "OK"
                                       and not self.eof)
    if not self.scanner then
        if left then
            return call:cancel()
        end
        return call:failure(self:evidence())
    end
    local good
    if self.sse then
        good = self:whole()
    else
        good = self.eof and band(self.saw, BAD) == 0
    end
    if good then
        return call:success(self:counted())
    elseif left then
        return call:cancel()
    end
    local found = self.scanner:evidence()
    found.attempt, found.provider = self.number, self.target.provider
    found.phase, found.status = self.sse and "stream" or "body", self.status
    found.whole_body = true
    return call:failure(found)
end


-- In log_by_lua: tells the engine how it ended. Whatever it decides, no other
-- request is made from here.
function Watch:done()
    if self.over then
        return
    end
    local decision, err = outcome(self)
    if not decision then
        ngx.log(ngx.ERR, "fivegates: ", err)
        self.over = true
    else
        self:told(decision)
        self:ends(decision)
    end
    self.call:drop()
end


local function with(method)
    return function()
        local watch = ngx.ctx.fivegates
        if watch then
            watch[method](watch)
        end
    end
end


-- Gives a recipe its three phases, which watch the request's answer, if any.
function _M.in_phases(recipe)
    recipe.head = with "head"  -- in header_filter_by_lua
    recipe.body = with "body"  -- in body_filter_by_lua
    recipe.done = with "done"  -- in log_by_lua
end


return _M
