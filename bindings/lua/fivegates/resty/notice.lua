-- What whoever runs the gateway should read in nginx's error log: refusals,
-- breakers and latches. Names of the card and words of decisions alone: no
-- prompt, key or answer. A fault that stays makes a line now and then, with
-- the count of those left out, not a flood.

local concat = table.concat
local format = string.format
local ipairs = ipairs
local next = next
local ngx = ngx
local tostring = tostring


local _M = {}

local EVERY_S = 10  -- a worker's lines of one kind are at least so far apart
local ENDS = { fail_closed = "refused", queue = "refused",
               degrade = "the ladder answers" }
-- Whose fault is no news for an operator: the client's own request.
local CLIENTS = { request = true, policy = true }

local said = {}   -- by kind of line: {at = seconds, held = lines left out, ...}
local known = {}  -- of each route, what was told last: breaker, latch


-- Logs a line, unless one of its kind was logged just now. kind: of few values,
-- for it is remembered.
function _M.say(level, kind, ...)
    local now, one = ngx.now(), said[kind]
    if one and now - one.at < EVERY_S and now >= one.at then
        one.held = one.held + 1
        return
    end
    said[kind] = { at = now, held = 0, level = level }
    ngx.log(level, "fivegates: ", ...)
end


-- The counts of what was left out; in each worker, now and then.
function _M.flush()
    local now = ngx.now()
    for kind, one in next, said do
        if now - one.at >= EVERY_S or now < one.at then
            if one.held > 0 then
                ngx.log(one.level, "fivegates: ", one.held, " more within ",
                        format("%.0f", now - one.at), " s: ", kind)
            end
            said[kind] = nil
        end
    end
end


-- A decision that is no plain success.
function _M.decided(decision, workflow)
    local what = ENDS[decision.action]
    local reason = decision.reason
    if not what or reason == "client_gone" then
        return
    end
    local rejected = {}
    for i, one in ipairs(decision.rejected) do
        rejected[i] = tostring(one.route) .. " (" .. one.why .. ")"
    end
    local kind = format("%s: workflow %s, %s", what, tostring(workflow), reason)
    _M.say(CLIENTS[decision.owner] and ngx.NOTICE or ngx.WARN, kind, kind,
           "; kind ", decision.kind, ", repair ", decision.repair,
           #rejected > 0 and "; routes " .. concat(rejected, ", ") or "")
end


-- Breakers and latches that changed since the last look. Of all workers one
-- looks; what opens and closes within a second is one line.
function _M.changes(engine, names)
    for _, name in ipairs(names) do
        local view = engine:route(name)
        local was = known[name] or { breaker = "closed", latch = "none",
                                     opened = view and view.opened_count }
        local flashed = view and view.breaker == "closed"
                        and was.breaker == "closed"
                        and view.opened_count > was.opened
        if view and (view.breaker == "closed") ~= (was.breaker == "closed") then
            if view.breaker == "closed" then
                ngx.log(ngx.WARN, "fivegates: the breaker of route ", name,
                        " closed: it is used again")
            else
                -- The counts begin anew with each state; silence has none.
                local ended = view.window_failed + view.window_ok
                ngx.log(ngx.WARN, "fivegates: the breaker of route ", name,
                        " opened: ", ended > 0 and view.window_failed
                        .. " of its last " .. ended .. " attempts failed; " or "",
                        "it is tried again in ",
                        format("%.0f", view.open_for_ms / 1000), " s")
            end
        elseif flashed then
            _M.say(ngx.WARN, "the breaker of route " .. name
                   .. " opened and closed",
                   "the breaker of route ", name, " opened and closed again")
        end
        if view and view.latch ~= was.latch then
            ngx.log(ngx.WARN, "fivegates: route ", name,
                    view.latch == "none" and " is no longer latched"
                    or " is latched: " .. view.latch)
        end
        if view then
            known[name] = { breaker = view.breaker, latch = view.latch,
                            opened = view.opened_count }
        end
    end
end


return _M
