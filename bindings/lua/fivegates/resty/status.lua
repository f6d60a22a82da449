-- The live state of all processes that share the region: as JSON, as a page,
-- as Prometheus text. No prompt, key or answer is in it; routes are named, so
-- let only those see it who may (allow 127.0.0.1; deny all;).

local fivegates = require "fivegates"
local json = require "fivegates.resty.json"
local resty = require "fivegates.resty"
local tally = require "fivegates.resty.tally"
local targets = require "fivegates.resty.target"

local concat = table.concat
local find = string.find
local format = string.format
local gsub = string.gsub
local ipairs = ipairs
local match = string.match
local ngx = ngx
local os_date = os.date
local pairs = pairs
local select = select
local tonumber = tonumber
local tostring = tostring


local _M = {}

local RECENT = 32
local RESULTS = { "primary_success", "retry_recovery", "fallback_recovery",
                  "degraded", "failed_closed", "queued", "cancelled" }
local BREAKERS = {}
for word in pairs(fivegates.names "breaker") do
    BREAKERS[#BREAKERS + 1] = word
end
table.sort(BREAKERS)
local NUSD = 1e9
local MILLI = 1000


local function state()
    local gateway = resty.gateway()
    local engine, policy = gateway.engine, gateway.policy
    local out = { policy = policy.fingerprint, region = engine.region:path(),
                  routes = {}, workflows = {} }
    for i, name in ipairs(policy:routes()) do
        local view = engine:route(name) or {}
        view.name = name
        local target = gateway.targets[name]
        view.usable = not targets.lacks_key(target)  -- by this gateway
        view.lacks = not view.usable and target.key_env or nil
        out.routes[i] = view
    end
    for i, name in ipairs(policy:workflows()) do
        local view = engine:workflow(name) or {}
        view.name = name
        out.workflows[i] = view
    end
    local counts = tally.counts(gateway.recent_name)
    out.decisions, out.rejected = counts.decisions, counts.rejected
    return out, gateway
end


-- The last decisions that were no plain success, the newest first: texts.
local function recent(gateway)
    local dict = gateway.recent_name and ngx.shared[gateway.recent_name]
    local lines = {}
    for _ = 1, dict and dict:llen("decisions") or 0 do
        -- A list of the dictionary can only be read by its ends.
        local line = dict:rpop("decisions")
        if not line then
            break
        end
        dict:lpush("decisions", line)
        lines[#lines + 1] = line
        if #lines == RECENT then
            break
        end
    end
    for i = 1, #lines / 2 do
        lines[i], lines[#lines + 1 - i] = lines[#lines + 1 - i], lines[i]
    end
    return lines
end


-- Everything as one JSON object.
function _M.json()
    local out, gateway = state()
    local decisions = {}
    for i, line in ipairs(recent(gateway)) do
        local at, decision = match(line, "^(%d+) (.*)$")
        decisions[i] = '{"unix_s":' .. at .. ',"decision":' .. decision .. "}"
    end
    -- The encoder cannot tell an empty list from an object.
    for _, name in ipairs { "decisions", "rejected" } do
        out[name] = #out[name] > 0 and out[name] or nil
    end
    local text = json.encode(out)
    ngx.header["content-type"] = "application/json"
    ngx.header["cache-control"] = "no-store"
    ngx.print(text:sub(1, -2), ',"recent":[', concat(decisions, ","), "]}")
end


-- ---- the page

local ESCAPES = { ["<"] = "&lt;", [">"] = "&gt;", ["&"] = "&amp;",
                  ['"'] = "&quot;" }

local function escape(value)
    return (gsub(tostring(value), '[<>&"]', ESCAPES))
end


local function row(cells, class)
    local out = {}
    for i, one in ipairs(cells) do
        out[i] = "<td>" .. escape(one) .. "</td>"
    end
    return "<tr" .. (class and ' class="' .. class .. '"' or "") .. ">"
           .. concat(out) .. "</tr>\n"
end


local function head(...)
    return "<tr><th>" .. concat({ ... }, "</th><th>") .. "</th></tr>\n"
end


local HEAD = [[
<!doctype html><html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta http-equiv="refresh" content="5">
<title>fivegates</title><style>
body { font: 15px/1.4 system-ui, sans-serif; margin: 2em auto; max-width: 70em;
       padding: 0 1em; color: #222; background: #fff; }
h1 { font-size: 1.3em } h2 { font-size: 1em; margin-top: 2em }
table { border-collapse: collapse; width: 100% }
th, td { text-align: left; padding: .3em .8em .3em 0; border-bottom: 1px solid #ddd;
         font-variant-numeric: tabular-nums }
.bad { background: #fdecea } .note { color: #666 }
@media (prefers-color-scheme: dark) { body { color: #ddd; background: #181818 }
th, td { border-color: #333 } .bad { background: #4a1c18 } .note { color: #999 } }
</style></head><body><h1>fivegates</h1>
]]


local function routes_table(routes)
    local out = { "<h2>Routes</h2><table>", head("route", "breaker", "health",
        "latch", "in flight", "at most", "a second at most",
        "retry tokens", "attempts", "ok", "failed", "first token ms", "opened") }
    for _, one in ipairs(routes) do
        local well = one.breaker == "closed" and one.latch == "none"
                     and one.usable
        local breaker = one.breaker
        if one.open_for_ms > 0 then
            breaker = format("%s for %.0f s", breaker, one.open_for_ms / MILLI)
        end
        out[#out + 1] = row({ one.usable and one.name
            or one.name .. ": no key here, set " .. one.lacks, breaker,
            one.health, one.latch, one.in_flight,
            one.limit > 0 and one.limit or "",
            one.rate_milli > 0 and one.rate_milli / MILLI or "",
            one.balance_milli / MILLI, one.attempts, one.successes,
            one.failures, one.first_token_ms, one.opened_count },
            not well and "bad" or nil)
    end
    out[#out + 1] = "</table>\n"
    return concat(out)
end


local function workflows_table(workflows)
    local out = { "<h2>Workflows</h2><table>", head("workflow", "calls",
        "by the primary", "after a retry", "by a stand-in", "degraded",
        "refused", "queued", "left", "retries this hour", "USD today") }
    for _, one in ipairs(workflows) do
        out[#out + 1] = row { one.name, one.calls, one.primary_success,
            one.retry_recovery, one.fallback_recovery, one.degraded,
            one.failed_closed, one.queued, one.cancelled,
            one.retries_this_hour, format("%.4f", one.spent_today_nusd / NUSD) }
    end
    out[#out + 1] = "</table>\n"
    return concat(out)
end


-- What this nginx was told: decisions, and routes that were weighed and not
-- taken.
local function counts_tables(out)
    local one = { "<h2>Decisions of this nginx</h2><table>",
                  head("workflow", "action", "reason", "count") }
    for _, each in ipairs(out.decisions) do
        one[#one + 1] = row { each.workflow, each.action, each.reason,
                              each.count }
    end
    one[#one + 1] = "</table>\n<h2>Routes rejected</h2><table>"
                    .. head("workflow", "route", "why", "count")
    for _, each in ipairs(out.rejected) do
        one[#one + 1] = row { each.workflow, each.route, each.why, each.count }
    end
    one[#one + 1] = "</table>\n"
    return concat(one)
end


local function recent_table(lines)
    local out = { "<h2>Last decisions</h2><table>", head("UTC", "action",
        "route", "reason", "gate", "owner", "kind") }
    for _, line in ipairs(lines) do
        local at, text = match(line, "^(%d+) (.*)$")
        local one = json.decode(text)
        out[#out + 1] = row { os_date("!%H:%M:%S", tonumber(at)), one.action,
            json.get(one, "route") or "", one.reason, one.gate, one.owner,
            one.kind }
    end
    out[#out + 1] = "</table>\n"
    return #lines > 0 and concat(out) or "<p class=note>No retry, fallback or "
           .. "refusal yet.</p>\n"
end


-- The page for people; JSON for those who do not ask for HTML.
function _M.page()
    if not find(ngx.var.http_accept or "", "text/html", 1, true) then
        return _M.json()
    end
    local out, gateway = state()
    ngx.header["content-type"] = "text/html; charset=utf-8"
    ngx.header["cache-control"] = "no-store"
    ngx.print(HEAD, '<p class="note">', escape(out.policy), " on ",
              escape(out.region or "memory of each worker"), "</p>\n",
              routes_table(out.routes), workflows_table(out.workflows),
              recent_table(recent(gateway)), counts_tables(out), "</body></html>\n")
end


-- ---- Prometheus

local LABEL = { ["\\"] = "\\\\", ['"'] = '\\"', ["\n"] = "\\n" }


local function sample(out, name, value, ...)
    local labels = { ... }
    for i = 1, #labels, 2 do
        labels[(i + 1) / 2] = labels[i] .. '="'
            .. gsub(labels[i + 1], '[\\"\n]', LABEL) .. '"'
    end
    out[#out + 1] = format("fivegates_%s{%s} %.17g\n", name,
                           concat(labels, ",", 1, select("#", ...) / 2), value)
end


local function family(out, name, kind, what)
    out[#out + 1] = format("# HELP fivegates_%s %s\n"
                           .. "# TYPE fivegates_%s %s\n", name, what,
                           name, kind)
end


local ROUTES = {
    { "region_attempts_total", "counter", "Permitted sends", "attempts", 1 },
    { "region_successes_total", "counter", "Attempts that went well", "successes", 1 },
    { "region_failures_total", "counter", "Attempts that failed", "failures", 1 },
    { "region_breaker_opened_total", "counter", "Times the breaker opened",
      "opened_count", 1 },
    { "region_tokens_total", "counter", "Tokens used or held", "tokens", 1 },
    { "region_in_flight", "gauge", "Attempts that run", "in_flight", 1 },
    { "region_in_flight_limit", "gauge", "Attempts that may run at once, of the "
      .. "card or learned; 0: no limit", "limit", 1 },
    { "region_rate_limit", "gauge", "Attempts a second that may start, learned "
      .. "from 429s; 0: no limit", "rate_milli", MILLI },
    { "region_retry_tokens", "gauge", "Balance of the retry bucket",
      "balance_milli", MILLI },
    { "region_first_token_seconds", "gauge", "Median time to the first token",
      "first_token_ms", MILLI },
}


-- Text for a scrape. fivegates_region_: figures of all processes on the region,
-- to be taken from one of them; fivegates_nginx_: of this nginx since it started.
function _M.metrics()
    local now, out = state(), {}
    for _, one in ipairs(ROUTES) do
        family(out, one[1], one[2], one[3])
        for _, route in ipairs(now.routes) do
            sample(out, one[1], route[one[4]] / one[5], "route", route.name)
        end
    end
    family(out, "region_breaker", "gauge", "1 for the state a route's breaker is in")
    for _, route in ipairs(now.routes) do
        for _, word in ipairs(BREAKERS) do
            sample(out, "region_breaker", route.breaker == word and 1 or 0, "route",
                   route.name, "state", word)
        end
    end
    family(out, "region_latched", "gauge", "1 while a route is latched")
    for _, route in ipairs(now.routes) do
        sample(out, "region_latched", route.latch ~= "none" and 1 or 0, "route",
               route.name)
    end
    family(out, "region_calls_total", "counter", "Ended calls by result")
    for _, workflow in ipairs(now.workflows) do
        for _, result in ipairs(RESULTS) do
            sample(out, "region_calls_total", workflow[result], "workflow",
                   workflow.name, "result", result)
        end
    end
    family(out, "region_spent_today_usd", "gauge", "Money settled and held today")
    for _, workflow in ipairs(now.workflows) do
        sample(out, "region_spent_today_usd", workflow.spent_today_nusd / NUSD,
               "workflow", workflow.name)
    end
    family(out, "nginx_route_usable", "gauge", "0 where this gateway has no key "
           .. "for a route")
    for _, route in ipairs(now.routes) do
        sample(out, "nginx_route_usable", route.usable and 1 or 0, "route",
               route.name)
    end
    family(out, "nginx_decisions_total", "counter", "Decisions by action and reason")
    for _, one in ipairs(now.decisions) do
        sample(out, "nginx_decisions_total", one.count, "workflow", one.workflow,
               "action", one.action, "reason", one.reason)
    end
    family(out, "nginx_rejected_total", "counter",
           "Routes weighed and not taken, by why")
    for _, one in ipairs(now.rejected) do
        sample(out, "nginx_rejected_total", one.count, "workflow", one.workflow,
               "route", one.route, "why", one.why)
    end
    ngx.header["content-type"] = "text/plain; version=0.0.4"
    ngx.print(out)
end


return _M
