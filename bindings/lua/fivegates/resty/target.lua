-- Where a route is and how it is asked: its base URL, its key, the headers of
-- a request to it. Nothing of the client's goes there but what is named here.

local notice = require "fivegates.resty.notice"

local find = string.find
local gsub = string.gsub
local lower = string.lower
local match = string.match
local sub = string.sub
local concat = table.concat
local error = error
local io_open = io.open
local ngx = ngx
local tonumber = tonumber


local _M = {}

-- The client's headers that go on: what a server needs to read the request.
local FORWARDED = {
    "accept", "user-agent", "openai-beta", "anthropic-version",
    "anthropic-beta", "traceparent", "tracestate", "idempotency-key",
}
local ANTHROPIC_VERSION = "2023-06-01"
local PORTS = { http = 80, https = 443 }


-- Where a card says a route's base URL: "path:line: ", or "path: " where it is
-- not found, as a name may be written with escapes.
local function place(card, route)
    local file = io_open(card, "rb")
    local text = file and file:read("*a") or ""
    if file then
        file:close()
    end
    local quoted = gsub(route.name, "%p", "%%%0")
    local _, from = find(text, '"routes"%s*:')
    local at
    at, from = find(text, '"' .. quoted .. '"%s*:%s*{', from or #text + 1)
    local url_at, _, url = find(text, '"base_url"%s*:%s*"([^"]*)"', from or #text + 1)
    if url and gsub(url, "\\/", "/") == route.base_url then
        at = url_at
    end
    if not at then
        return card .. ": "
    end
    local _, lines = gsub(sub(text, 1, at), "\n", "\n")
    return card .. ":" .. lines + 1 .. ": "
end


local function wrong(card, route, what)
    return error("fivegates: " .. place(card, route) .. "route " .. route.name
                 .. ": base_url " .. (route.base_url or "") .. ": " .. what, 0)
end


-- A route of a card (its path) as a target: {name, host, port, tls, authority,
-- path, query, ...}. Raises for a URL nothing can be sent to.
function _M.of(card, route, key)
    local url = route.base_url
    if not url then
        return wrong(card, route, "a gateway needs one: add base_url")
    end
    local scheme, authority, rest = match(url, "^(%a+)://([^/?#]+)([^#]*)$")
    scheme = scheme and lower(scheme)
    if not PORTS[scheme] then
        return wrong(card, route, "it must be http:// or https://")
    end
    local host, port = match(authority, "^(%[[%x:.]+%])(.*)$")
    if not host then
        host, port = match(authority, "^([%w%-._]+)(.*)$")
    end
    if not host or not (port == "" or find(port, "^:%d+$")) then
        return wrong(card, route, "its host is not one")
    elseif find(rest, "[%c ]") then
        return wrong(card, route, "it has spaces")
    elseif key and find(key, "[%c]") then
        return error("fivegates: route " .. route.name .. ": its key has "
                     .. "control characters", 0)
    end
    local path, query = match(rest, "^([^?]*)%??(.*)$")
    return {
        name = route.name, provider = route.provider, api = route.api,
        model = route.model, key = key, key_env = route.key_env,
        tls = scheme == "https", host = host, authority = authority,
        port = port ~= "" and tonumber(sub(port, 2)) or PORTS[scheme],
        path = gsub(path, "/+$", ""), query = query,
        pool = "fivegates:" .. route.name .. ":" .. scheme .. ":" .. authority,
    }
end


-- Is the key missing that the card asks for?
function _M.lacks_key(target)
    return target.key_env ~= nil and target.key == nil
end


-- Evidence of a send that is not made for want of a key, which is said in the
-- log: this gateway's fault, so neither the route's health nor its latches,
-- which others share, take note; and the same route would fail again.
function _M.no_key(target)
    notice.say(ngx.ERR, "no key for route " .. target.name, _M.key_advice(target))
    return { phase = "connect", origin = "local",
             headers = { ["x-should-retry"] = "false" },
             transport = { lib = "fivegates", kind = "nokey",
                           message = "this gateway has no key for the route" } }
end


function _M.key_advice(target)
    return "no key for route " .. target.name .. ": set " .. target.key_env
           .. " where nginx starts, or give keys to open{}; until then the "
           .. "route is not used here"
end


-- What of the client's own query goes on, where the base URL has none: what the
-- APIs read. Anything else may be a key, whatever it is called.
local QUERY = { alt = true, beta = true, ["api-version"] = true }


local function client_query()
    local args = ngx.var.args
    if not args or args == "" or find(args, "[^%w%-._~%%&=+,:;@/?!$'()*]") then
        return ""
    end
    local kept = {}
    for pair in args:gmatch("[^&]+") do
        if QUERY[match(pair, "^[^=]*")] then
            kept[#kept + 1] = pair
        end
    end
    return concat(kept, "&")
end


-- The path of an API on a target, with its query.
function _M.path(target, path)
    local base = target.path
    if sub(path, 1, 4) == "/v1/" and sub(base, -3) == "/v1" then
        path = sub(path, 4)
    end
    local query = target.query ~= "" and target.query or client_query()
    return base .. path .. (query ~= "" and "?" .. query or "")
end


function _M.url(target, path)
    return (target.tls and "https://" or "http://") .. target.authority
           .. _M.path(target, path)
end


-- Name and value of the header with a target's key; nil where it has none.
function _M.key_header(target, wire)
    if not target.key then
        return nil
    elseif target.provider == "azure-openai" then
        return "api-key", target.key
    elseif wire == "messages" then
        return "x-api-key", target.key
    end
    return "authorization", "Bearer " .. target.key
end


-- The head of a request to a target, to its empty line. more: names of further
-- client headers that go on; id, number: of the call and the attempt.
function _M.head(target, request, length, id, number, more)
    local name, value = _M.key_header(target, request.wire)
    local parts = {
        "POST " .. _M.path(target, request.path) .. " HTTP/1.1\r\n"
        .. "host: " .. target.authority .. "\r\n"
        .. "content-type: application/json\r\n"
        .. "content-length: " .. length .. "\r\n"
        .. "accept-encoding: identity\r\n"
        .. "x-client-request-id: " .. id .. "\r\n"
        .. "x-request-attempt: " .. number .. "\r\n"
        .. (name and name .. ": " .. value .. "\r\n" or ""),
    }
    local function forward(header)
        local text = request:header(header)
        if text and not find(text, "%c") then
            parts[#parts + 1] = header .. ": " .. text .. "\r\n"
        end
    end
    for i = 1, #FORWARDED do
        forward(FORWARDED[i])
    end
    for i = 1, #more do
        forward(more[i])
    end
    if request.wire == "messages" and not request:header("anthropic-version") then
        parts[#parts + 1] = "anthropic-version: " .. ANTHROPIC_VERSION .. "\r\n"
    end
    parts[#parts + 1] = "\r\n"
    return concat(parts)
end


return _M
