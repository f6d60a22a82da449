-- One attempt: a request sent to a route, its answer read by the engine's
-- clocks, and told. Methods of an exchange (exchange.lua); each that ends the
-- attempt returns the engine's decision.

local fivegates = require "fivegates"
local client = require "fivegates.resty.client"
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
local ipairs = ipairs
local max = math.max
local min = math.min
local tostring = tostring


local Attempt = {}

local SAW = fivegates.SAW
local BAD = bor(SAW.error, SAW.malformed)
-- Of an error answer, what is kept: the engine reads no more.
local ERROR_MAX = 65536
local ERROR_MS = 5000  -- how long its body may take: the status says enough
-- How long an answer may take that came before the request was all sent: it is
-- there, or it never comes.
local EARLY_MS = 500
local LOOK_MS = 1000  -- the longest time without a look whether the client is there
-- A 2xx above this one, but 204 (nothing), answers no request of this kind.
local ANSWER_MAX, NOTHING = 203, 204
-- The gateway's own advice where the same server would do the same again.
local SAME_AGAIN = { { "x-should-retry", "false" } }


local function must(decision, err)
    if not decision then
        return error(tostring(err), 0)
    end
    return decision
end


function Attempt:now()
    return self.engine:now_ms()
end


-- ---- clocks

-- The engine's clocks: nil while they run, else the decision that ended the
-- attempt.
function Attempt:look()
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
function Attempt:clock(ms)
    if ms > 0 then
        self.wake_at = min(self.wake_at, self:now() + ms)
    end
end


function Attempt:due()
    return not self:whole() and self:now() >= self.wake_at
end


-- What a method of the connection gives: a value, or nil and what broke; nil,
-- "late" and a decision where a clock of the engine ended the attempt.
function Attempt:wait(method)
    local conn = self.conn
    while true do
        local look_at = self:now() + LOOK_MS
        local got, err = conn[method](conn, min(self.wake_at, look_at))
        if got or err ~= "timeout" then
            return got, err
        elseif client.gone() then
            conn:close()
            return self:mind_client()
        elseif self:now() >= self.wake_at then
            if self:whole() then
                return nil, "end"  -- all of the answer came; only its end did not
            end
            local decision = self:look()
            if decision then
                return nil, "late", decision
            end
        end
    end
end


-- ---- what came

Attempt.feed = progress.feed
Attempt.scan = progress.scan
Attempt.tell = progress.tell
Attempt.counted = progress.counted


-- Has the answer come to its own good end? A message (Anthropic) ends with an
-- event of its own, behind the stop reason.
function Attempt:whole()
    return progress.whole(self) and (self.stopped or self.wire ~= "messages")
end


-- ---- failures

-- The attempt failed; found: evidence, as far as it is known here.
function Attempt:failed(found)
    found.provider, found.api = self.target.provider, self.target.api
    found.attempt = self.number
    found.elapsed_ms = max(0, self:now() - self.started)
    return must(self.call:failure(found))
end


-- What the scanner saw of a stream, as far as it counts: what was never given
-- out was not shown, and a stream without its end has none.
local function scanned(self)
    local found = self.scanner:evidence()
    if not self.given then
        found.progress.visible, found.progress.tool_args_bytes = 0, 0
    end
    if not self:whole() then
        found.progress.terminal = "none"
    end
    return found
end


-- The wire broke at a phase.
function Attempt:broke(phase, message, kind)
    local found = { phase = phase, transport = {
        lib = "nginx", kind = kind or "connection", message = message } }
    if self.scanner then
        found.phase, found.status = "stream", 200
        found.progress = scanned(self).progress
        if message == "closed" then
            found.transport.message = "unexpected end of stream"
        end
    end
    return self:failed(found)
end


-- The answer ended, but not well: an error in it, or no end of its own.
function Attempt:ended_badly()
    local found = scanned(self)
    found.whole_body = true
    return self:failed(found)
end


-- An answer of a 2xx that is none; kind and message: of the transport.
function Attempt:no_answer(kind, message, headers)
    return self:failed { phase = "body", status = self.head.status,
                         headers = headers, transport = {
        lib = "nginx", kind = kind, message = message } }
end


-- ---- sending

-- The body as a send by this decision has it; nil where an edit cannot be made.
function Attempt:body_of(decision)
    local workflow, route = self.workflow, decision.route
    local all = decision.ladder_step == "without_tools"
    local policy, target = self.engine.policy, self.gateway.targets[route]
    return edits.apply(self.request, target.model, edits.changes_of(decision),
                       function(tool)
        return all or policy:drops_tool(workflow, route, tool)
    end, target.provider, self.gateway.prompt_tokens)
end


local function reset(self, permit)
    self.number, self.step = permit.attempt, permit.ladder_step
    self.attempts = self.attempts + 1
    self.started = self:now()
    self.wake_at = self.started + max(permit.wake_ms, 1)
    self.idle_ms, self.progress_ms = permit.idle_ms, permit.progress_ms
    self.total_ms = permit.total_ms
    self.scanner, self.saw, self.visible, self.stopped = nil, 0, 0, false
    self.head = nil
    self.tail, self.last, self.rest = nil, nil, 0
    self.no_speed = progress.several(self.request.body)
end


-- Sends what the permit allows and reads what comes of it: the decision after
-- that; nil where the answer has been passed on to its end.
function Attempt:send(permit)
    local gateway, call = self.gateway, self.call
    local target = gateway.targets[permit.route]
    self.target = target
    reset(self, permit)
    if targets.lacks_key(target) then  -- of the primary: not sent without
        self.keyless = true
        return self:failed(targets.no_key(target))
    end
    local body = self:body_of(permit)
    if not body then  -- lacks() was not asked: another decision now
        must(call:unable("edit"))
        return self:failed { phase = "connect", origin = "local",
                             headers = SAME_AGAIN, transport = {
            lib = "fivegates", kind = "edit",
            message = "the request cannot be edited as the engine asks" } }
    end
    local head = targets.head(target, self.request, #body, call:id(),
                              permit.attempt, gateway.forward)
    local connect_ms = permit.connect_ms > 0 and permit.connect_ms or 5000
    local conn, fault = gateway.http.connect(target, connect_ms)
    if not conn then
        return self:broke(fault.phase, fault.message, fault.kind)
    end
    self.conn = conn
    self:mind_client()  -- the last moment before it costs
    call:event("sent")
    local ok, err = conn:send(head, body)
    local decision
    if ok then
        decision = self:answered()
    else
        decision = self:answered_early(err)
    end
    conn:close()
    self.conn = nil
    return decision
end


-- The head, and all of the answer that follows.
function Attempt:answered()
    local head, err, decision = self:wait("head")
    if decision then
        return decision
    elseif not head then
        return self:broke("read", err)
    end
    return self:judged(head)
end


-- The request could not be sent to its end: a server that wants no more of it
-- may have said why before it hung up.
function Attempt:answered_early(err)
    local head = self.conn:head(self:now() + EARLY_MS)
    if not head then
        return self:broke("send", err)
    end
    return self:judged(head)
end


function Attempt:judged(head)
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
    if head.status > ANSWER_MAX and head.status ~= NOTHING then
        return self:no_answer("invalid http response", "a status that answers "
                              .. "nothing", SAME_AGAIN)
    elseif encoding then
        return self:no_answer("contentencodingerror", "the answer is encoded, "
                              .. "though none was asked for", SAME_AGAIN)
    elseif self.request.streamed and not find(kind, "json", 1, true) then
        self:clock(self.idle_ms)
        return stream.hold(self)
    end
    return self:read_whole()
end


-- An error answer: read as far as it comes, told, kept.
function Attempt:refused()
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


function Attempt:read_whole()
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
            return self:no_answer("invalid http response", "the answer is longer "
                                  .. "than the gateway takes", SAME_AGAIN)
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
    return must(self.call:success(read.answer(self.wire, answer, body,
                                              self:counted())))
end


return Attempt
