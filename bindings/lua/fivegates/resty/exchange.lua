-- One guarded request: asks the engine before every send, does what it says,
-- tells it what came of it. The engine decides; nothing here does.

local fivegates = require "fivegates"
local answers = require "fivegates.resty.answer"
local edits = require "fivegates.resty.edits"
local json = require "fivegates.resty.json"
local progress = require "fivegates.resty.progress"
local read = require "fivegates.resty.read"
local stream = require "fivegates.resty.stream"
local targets = require "fivegates.resty.target"

local band = bit.band
local bor = bit.bor
local concat = table.concat
local error = error
local find = string.find
local match = string.match
local max = math.max
local min = math.min
local ngx = ngx
local setmetatable = setmetatable
local tostring = tostring
local ipairs = ipairs
local type = type


local Exchange = {}
Exchange.__index = Exchange

local _M = {}

local SAW = fivegates.SAW
local BAD = bor(SAW.error, SAW.malformed)
-- Ladder steps that are sent, with an edited request.
local SENT_STEPS = { smaller_model = true, shorter = true, no_thinking = true,
                     compact = true, without_tools = true }
local GOES_ON = { proceed = true, retry = true, fallback = true, hold = true,
                  degrade = true }
-- Of an error answer, what is kept: the engine reads no more.
local ERROR_MAX = 65536
local ERROR_MS = 5000  -- how long its body may take: the status says enough
-- Whose fault, where the client is shown the server's own error.
local SHOWN_OWNERS = { request = true, policy = true }
-- Headers of an answer that go on to the client.
local PASSED = {
    ["content-type"] = true, ["x-request-id"] = true, ["request-id"] = true,
    ["openai-processing-ms"] = true, ["openai-version"] = true,
    ["openai-model"] = true, ["x-ratelimit-"] = true,
    ["anthropic-ratelimit-"] = true,
}


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
        gateway.ledger(self.call:ledger_line("decision", decision))
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


-- ---- the running attempt

function Exchange:now()
    return self.engine:now_ms()
end


-- The engine's clocks: nil while they run, else the decision that ended the
-- attempt.
function Exchange:look()
    local decision = must(self.call:deadline())
    if decision.action ~= "keep_waiting" then
        return decision
    end
    local wait = decision.wake_ms > 0 and decision.wake_ms or decision.wait_ms
    self.wake_at = self:now() + max(wait, 1)
    return nil
end


-- A clock of so many milliseconds began just now, beside those that run; 0 is
-- none.
function Exchange:clock(ms)
    if ms > 0 then
        self.wake_at = min(self.wake_at, self:now() + ms)
    end
end


function Exchange:due()
    return not self:whole() and self:now() >= self.wake_at
end


-- What a method of the connection gives: a value, or nil and what broke; nil,
-- "late" and a decision where a clock of the engine ended the attempt.
function Exchange:wait(method)
    local conn = self.conn
    while true do
        local got, err = conn[method](conn, self.wake_at)
        if got or err ~= "timeout" then
            return got, err
        elseif self:whole() then
            return nil, "end"  -- all of the answer came; only its end did not
        end
        local decision = self:look()
        if decision then
            return nil, "late", decision
        end
    end
end


Exchange.feed = progress.feed
Exchange.whole = progress.whole
Exchange.counted = progress.counted


-- The attempt failed; found: evidence, as far as it is known here.
function Exchange:failed(found)
    found.provider, found.api = self.target.provider, self.target.api
    found.attempt = self.number
    found.elapsed_ms = max(0, self:now() - self.started)
    return must(self.call:failure(found))
end


-- The wire broke at a phase.
function Exchange:broke(phase, message, kind)
    local found = { phase = phase, transport = {
        lib = "nginx", kind = kind or "connection", message = message } }
    if self.scanner then
        found.phase, found.status = "stream", 200
        found.progress = self.scanner:evidence().progress
        if message == "closed" then
            found.transport.message = "unexpected end of stream"
        end
    end
    return self:failed(found)
end


-- The answer ended, but not well: an error in it, or no end of its own.
function Exchange:ended_badly()
    local found = self.scanner:evidence()
    found.whole_body = true
    return self:failed(found)
end


-- ---- sending

local function changes_of(decision)
    local out = {}
    for _, name in ipairs(decision.change) do
        out[name] = true
    end
    if out.max_tokens then
        out.max_tokens = decision.max_tokens
    end
    return out
end


-- What of a decision this gateway cannot do; the engine decides again.
function Exchange:lacks(decision)
    for _, change in ipairs(decision.change) do
        if change == "compact" or change == "no_stream" or change == "stream"
           or change == "prefill" then
            return "edit"
        end
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


-- Waits, asks for permission, sends: the decision after that; nil where the
-- answer has been passed on to its end.
function Exchange:next(decision)
    local lack = self:lacks(decision)
    if lack then
        return must(self.call:unable(lack))
    end
    if decision.wait_ms > 0 then
        ngx.sleep(decision.wait_ms / 1000)
    end
    local permit = must(self.call:begin_attempt())
    if permit.action ~= "proceed" then
        return permit
    end
    self:told(permit)
    return self:send(permit)
end


local function body_of(self, permit)
    local workflow, route = self.workflow, permit.route
    local all = permit.ladder_step == "without_tools"
    local policy = self.engine.policy
    return edits.apply(self.request, self.target.model, changes_of(permit),
                       function(tool)
        return all or policy:drops_tool(workflow, route, tool)
    end)
end


function Exchange:send(permit)
    local gateway, call = self.gateway, self.call
    local target = gateway.targets[permit.route]
    self.target, self.number = target, permit.attempt
    self.attempts = self.attempts + 1
    self.step = permit.ladder_step
    self.started = self:now()
    self.wake_at = self.started + max(permit.wake_ms, 1)
    self.idle_ms, self.progress_ms = permit.idle_ms, permit.progress_ms
    self.scanner, self.saw, self.visible = nil, 0, 0
    self.last = nil
    if targets.lacks_key(target) then  -- of the primary: not sent without
        ngx.log(ngx.ERR, "fivegates: no key for route ", target.name, ": set ",
                target.key_env, " where nginx starts, or give keys to open{}")
        return self:failed { phase = "connect", origin = "local", transport = {
            lib = "fivegates", kind = "nocredentialserror" } }
    end
    local body = body_of(self, permit)
    local head = targets.head(target, self.request, #body, call:id(),
                              permit.attempt, gateway.forward)
    local connect_ms = permit.connect_ms > 0 and permit.connect_ms or 5000
    local conn, fault = gateway.http.connect(target, connect_ms)
    if not conn then
        return self:broke(fault.phase, fault.message, fault.kind)
    end
    self.conn = conn
    call:event("sent")
    local ok, err = conn:send(head, body)
    local decision
    if ok then
        decision = self:answered()
    else
        decision = self:broke("send", err)
    end
    conn:close()
    self.conn = nil
    return decision
end


-- The head, and all of the answer that follows.
function Exchange:answered()
    local head, err, decision = self:wait("head")
    if decision then
        return decision
    elseif not head then
        return self:broke("read", err)
    end
    self.head = head
    if head.status >= 300 then  -- a redirect is not followed
        return self:refused()
    end
    self.call:event("accepted")
    local kind, encoding = "", nil
    for _, one in ipairs(head.headers) do
        if one[1] == "content-type" then
            kind = one[2]:lower()
        elseif one[1] == "content-encoding" and one[2]:lower() ~= "identity" then
            encoding = one[2]
        end
    end
    if encoding then
        return self:failed { phase = "body", status = head.status, transport = {
            lib = "nginx", kind = "contentencodingerror",
            message = "the answer is encoded, though none was asked for" } }
    elseif self.request.streamed and not find(kind, "json", 1, true) then
        self:clock(self.idle_ms)
        return stream.hold(self)
    end
    return self:read_whole()
end


-- An error answer: read as far as it comes, told, kept.
function Exchange:refused()
    local parts, size = {}, 0
    local stop_at = self:now() + ERROR_MS
    while size < ERROR_MAX do
        local chunk = self.conn:read(stop_at)
        if not chunk then
            break
        end
        parts[#parts + 1] = chunk:sub(1, ERROR_MAX - size)
        size = size + #parts[#parts]
    end
    local head, body = self.head, concat(parts)
    self.last = { status = head.status, body = body }
    return self:failed { phase = "response", status = head.status,
                         headers = head.headers, body = body }
end


function Exchange:read_whole()
    local scanner = fivegates.sse { wire = self.wire, whole = true }
    local parts, size = {}, 0
    while true do
        local chunk, err, decision = self:wait("read")
        if decision then
            return decision
        elseif not chunk then
            if err == "end" then
                break
            end
            return self:failed { phase = "stream", status = self.head.status,
                transport = { lib = "nginx", kind = "incomplete read",
                              message = err } }
        end
        parts[#parts + 1] = chunk
        size = size + #chunk
        if size > self.gateway.answer_max then
            return self:failed { phase = "body", status = self.head.status,
                transport = { lib = "nginx", kind = "invalid http response",
                              message = "the answer is longer than the "
                                        .. "gateway takes" } }
        elseif self:now() >= self.wake_at then
            decision = self:look()
            if decision then
                return decision
            end
        end
    end
    local body = concat(parts)
    local saw = scanner:feed(body)
    local answer = band(saw, BAD) == 0 and json.decode(body) or nil
    if self.request.streamed or not read.answers(self.wire, answer) then
        return self:failed { phase = "body", status = self.head.status,
                             headers = self.head.headers, body = body,
                             whole_body = true }
    end
    self.scanner, self.result = scanner, body
    return must(self.call:success(read.answer(self.wire, answer,
                                              self:counted())))
end


-- ---- what the client gets

-- Status and headers of an answer that a route gave.
function Exchange:begin_answer(tokens)
    local header = ngx.header
    for _, one in ipairs(self.head.headers) do
        if PASSED[one[1]] or PASSED[match(one[1], "^[%w]+%-ratelimit%-")] then
            header[one[1]] = one[2]
        end
    end
    header["x-fivegates-call"] = self.call:id()
    header["x-fivegates-attempts"] = self.attempts
    if self.target.name ~= self.primary then
        header["x-fivegates-route"] = self.target.name
    end
    if self.step then
        header["x-fivegates-step"] = self.step
    end
    if tokens then
        header["x-fivegates-tokens"] = tokens
    end
    ngx.status = self.head.status
end


function Exchange:finish(decision)
    self:begin_answer(self:ends(decision))
    ngx.header["content-length"] = #self.result
    ngx.print(self.result)
end


-- An answer of the ladder that needs no send: was there one?
function Exchange:stand_in(decision)
    local gateway, step = self.gateway, decision.ladder_step
    local text
    if step == "cached" then
        text = gateway.cached and gateway.cached(self.request.body, decision)
    elseif not self.request.wants_schema then
        text = decision.text  -- no answer to who waits for JSON
    end
    if type(text) ~= "string" then
        return false
    end
    ngx.log(ngx.WARN, "fivegates: answered by the ladder's ", step, " instead of ",
            decision.requested, ": ", decision.reason, " / ", decision.detail)
    self:ends(decision)
    local streamed = self.request.streamed
    local body = answers.text(self.wire, text, step, streamed)
    local header = ngx.header
    header["content-type"] = streamed and "text/event-stream"
                             or "application/json"
    header["content-length"] = #body
    header["x-fivegates-call"] = self.call:id()
    header["x-fivegates-action"] = "degrade"
    header["x-fivegates-step"] = step
    ngx.print(body)
    return true
end


function Exchange:refuse(decision)
    local last = self.last
    if last and not (SHOWN_OWNERS[decision.owner] and last.status >= 400
                     and last.status < 500 and json.decode(last.body)) then
        last = nil
    end
    local tokens = self:ends(decision)
    ngx.header["x-fivegates-call"] = self.call:id()
    ngx.header["x-fivegates-attempts"] = self.attempts
    ngx.header["x-fivegates-tokens"] = tokens
    answers.refuse(self.wire, decision, last)
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
            return self:finish(decision)
        elseif action == "degrade" and not SENT_STEPS[decision.ladder_step] then
            if self:stand_in(decision) then
                return nil
            end
            decision = must(self.call:unable(
                decision.ladder_step == "cached" and "cache" or "preset"))
        elseif not GOES_ON[action] then
            return self:refuse(decision)
        else
            decision = self:next(decision)
            if not decision then
                return self.cut
            end
        end
    end
end


return _M
