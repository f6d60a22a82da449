-- One guarded request: asks the engine before every send, does what it says,
-- tells it what came of it. The engine decides; nothing here does.

local attempts = require "fivegates.resty.attempt"
local client = require "fivegates.resty.client"
local kept = require "fivegates.resty.kept"
local reply = require "fivegates.resty.reply"
local served = require "fivegates.resty.served"
local targets = require "fivegates.resty.target"

local error = error
local ipairs = ipairs
local match = string.match
local min = math.min
local ngx = ngx
local setmetatable = setmetatable
local tostring = tostring


-- An exchange has one attempt at a time: attempt.lua has its methods.
local Exchange = setmetatable({}, { __index = attempts })
Exchange.__index = Exchange

local _M = {}

-- Ladder steps that are sent, with an edited request.
local SENT_STEPS = { smaller_model = true, shorter = true, no_thinking = true,
                     compact = true, without_tools = true }
local GOES_ON = { proceed = true, retry = true, fallback = true, hold = true,
                  degrade = true }
local LOOK_S = 1  -- the longest time without a look whether the client is there
local CLIENT_GONE = 499


local function must(decision, err)
    if not decision then
        return error(tostring(err), 0)
    end
    return decision
end


-- An exchange of a gateway (init.lua) for a request and the call begun for it.
function _M.new(gateway, request, call, workflow)
    local decision = call.decision
    return setmetatable({
        gateway = gateway, engine = gateway.engine, request = request,
        call = call, wire = request.wire, workflow = workflow,
        primary = decision.requested or decision.route,
        over = false, attempts = 0, saw = 0, wake_at = 0, counts = {},
    }, Exchange)
end


-- ---- what is told

function Exchange:told(decision)
    local gateway = self.gateway
    if gateway.ledger then
        gateway.ledger(self.call:ledger_line(
            "decision", decision, nil, served.of_head(self.head, self.scanner)))
    end
    if gateway.recent then
        gateway.recent(decision)
    end
    if gateway.on_decision then
        gateway.on_decision(decision, self.call)
    end
end


-- The call's last line; what it spent, in tokens. Nothing of it is asked later.
function Exchange:ends(decision)
    self.over = true
    local text = self.call:ledger_line("end", decision)
    if self.gateway.ledger then
        self.gateway.ledger(text)
    end
    return match(text, '"tokens":(%d+)')
end


-- The client has left: no other send, and nobody is blamed. After a stream's
-- own end that is its end.
function Exchange:left()
    if self.over then
        return
    elseif self.given and self:whole() then
        local decision = self.call:success(self:counted())
        self:told(decision)
        self:ends(decision)
        return
    end
    local decision = self.call:cancel()
    if decision.reason == "client_gone" then
        self:told(decision)
    end
    self:ends(decision)
end


-- Ends here, and does not return, where the client has left unnoticed.
function Exchange:mind_client()
    if client.gone() then
        self:left()
        return ngx.exit(CLIENT_GONE)
    end
end


-- ---- answers that are kept

-- The key of this request's answer.
function Exchange:key()
    return self.gateway.cache:key(self.request, self.workflow, self.call.tenant,
                                  self.call.language)
end


-- Keeps an accepted answer that is with the client, but one that the ladder had
-- made smaller.
function Exchange:keep(body, streamed)
    if not self.gateway.cache or self.step then
        return
    end
    local text = kept.text(self.wire, body, streamed)
    if text then
        ngx.eof()  -- the client need not wait for it
        self.gateway.cache:keep(self:key(), text)
    end
end


-- ---- sending

-- What of a decision this gateway cannot do; the engine decides again.
function Exchange:lacks(decision)
    for _, change in ipairs(decision.change) do
        if change == "no_stream" or change == "stream" or change == "prefill" then
            return "edit"
        end
    end
    if #decision.change > 0 and not self:body_of(decision) then
        return "edit"
    end
    local target = self.gateway.targets[decision.route]
    if not target or decision.route == self.primary then
        return nil
    elseif (target.api and target.api ~= self.wire)
           or targets.lacks_key(target) then
        return "reroute"
    end
    return nil
end


function Exchange:pause(wait_ms)
    local until_ms = self:now() + wait_ms
    local left = wait_ms
    while left > 0 do
        ngx.sleep(min(left / 1000, LOOK_S))
        self:mind_client()
        left = until_ms - self:now()
    end
end


-- Waits, asks for permission, sends: the decision after that; nil where the
-- answer has been passed on to its end.
function Exchange:next(decision)
    local lack = self:lacks(decision)
    if lack then
        return must(self.call:unable(lack))
    end
    self:pause(decision.wait_ms)
    self:mind_client()
    local permit = must(self.call:begin_attempt())
    if permit.action ~= "proceed" then
        return permit
    end
    self:told(permit)
    return self:send(permit)
end


-- Runs the call to its end. True: what was given out is not whole, and the
-- connection must say so.
function Exchange:drive()
    local decision = self.call.decision
    if self.gateway.ledger then
        self.gateway.ledger(self.call:ledger_line("call"))
    end
    while true do
        self:told(decision)
        local action = decision.action
        if action == "accept" then
            reply.whole(self, self:ends(decision))
            self:keep(self.result, false)
            return nil
        elseif action == "degrade" and not SENT_STEPS[decision.ladder_step] then
            local step = decision.ladder_step
            local text, age = reply.text_of(self, decision)
            if text then
                self:ends(decision)
                reply.stand_in(self, step, text, age)
                return nil
            end
            decision = must(self.call:unable(step == "cached" and "cache"
                                             or "preset"))
        elseif not GOES_ON[action] then
            reply.refuse(self, decision, self:ends(decision))
            return nil
        else
            decision = self:next(decision)
            if not decision then
                return self.cut
            end
        end
    end
end


return _M
