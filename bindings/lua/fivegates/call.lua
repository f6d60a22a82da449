-- Call: one logical request, from begin to its end. Its memory belongs to the
-- Lua object; a call that is collected without a word was dropped: neutral.

local ffi = require "ffi"
local C = require("fivegates.lib").C
local answers = require "fivegates.answer"
local check = require "fivegates.check"
local decisions = require "fivegates.decision"
local errors = require "fivegates.errors"
local evidences = require "fivegates.evidence"
local fork = require "fivegates.fork"
local ids = require "fivegates.ids"
local names = require "fivegates.names"
local requests = require "fivegates.request"
local saved = require "fivegates.saved"
local text = require "fivegates.text"

local raise = errors.raise
local refused = errors.refused
local u32 = check.u32
local word = names.word
local draw_id = ids.draw
local request_of = requests.fill
local request_done = requests.done
local answer_of = answers.fill
local answer_done = answers.done
local evidence_of = evidences.fill
local evidence_done = evidences.done
local events = names.number.event
local fork_number = fork.number
local new = ffi.new
local string_of = ffi.string
local gc = ffi.gc
local getmetatable = getmetatable
local setmetatable = setmetatable
local tostring = tostring
local type = type


local Call = {}
Call.__index = Call

local _M = {}

-- begun: 1, to be ended; process: fork.number() when it began; id: drawn, when
-- the caller gave none.
local Block = ffi.typeof([[
    struct { fg_call call; fg_decision decision; uint32_t begun, process; $ id; }
]], ids.Id)
local DECISION_SIZE = ffi.sizeof("fg_decision")
local ID_MAX, ID_LENGTH = C.FG_CALL_ID_MAX, ids.LENGTH
local EVENT_TERMINAL, EVENT_TOKEN = C.FG_EVENT_TERMINAL, C.FG_EVENT_TOKEN
local served = new("fg_served", { size = ffi.sizeof("fg_served") })
local LINES = { call = C.FG_LINE_CALL, decision = C.FG_LINE_DECISION,
                ["end"] = C.FG_LINE_END }


-- ---- making, and making again

local function new_call(engine)
    local block = gc(new(Block), engine.finish)
    local raw = block.decision
    raw.size = DECISION_SIZE
    local self = setmetatable({ engine = engine, block = block,
                                ref = block.call, raw = raw, given_id = false,
                                language = false }, Call)
    self.decision = decisions.of(self, raw)
    return self
end


-- An old call's memory for a new call: nothing is allocated.
local function reuse(self, engine)
    if type(self) ~= "table" or getmetatable(self) ~= Call then
        return raise("begin: the second argument is a call to use again, or "
                     .. "nil")
    end
    self:drop()
    local old = self.engine
    if old ~= engine then
        gc(self.block, engine.finish)
        self.engine = engine
        local d = self.decision
        d.policy, d.routes = engine.policy, engine.policy.route_names
    end
    return self
end


local function begin_refused(engine, facts, rc)
    if rc == C.FG_ERR_ARG then
        local known = engine.policy.workflow_ids
        if not known[facts.workflow] then
            return raise("begin: the card has no workflow "
                         .. tostring(facts.workflow) .. " [arg]")
        elseif facts.call_id and #facts.call_id > ID_MAX then
            return raise("begin: call_id is longer than " .. ID_MAX
                         .. " bytes [arg]")
        end
    end
    return refused("begin", rc)
end


-- engine:begin(facts, call, now_ms). call: one to use again; it is dropped
-- first when it is still open. The first decision is call.decision. Call, or
-- nil and an error when the region has no room.
function _M.begin(engine, facts, call, now_ms)
    -- First what may run other code (a clock of the caller's, the collector):
    -- the request is one for all.
    local now = engine:ready(now_ms)
    local self = call == nil and new_call(engine) or reuse(call, engine)
    local block = self.block
    local request = request_of(facts)
    local id = facts.call_id
    if id == nil then
        draw_id(engine.ids, block.id)
        request.call_id.ptr = block.id.head
        request.call_id.len = ID_LENGTH
    end
    local rc = C.fg_call_begin(engine.handle, self.ref, request, now, self.raw)
    request_done()
    if rc ~= 0 then
        return begin_refused(engine, facts, rc)
    end
    block.begun = 1
    block.process = fork_number()
    self.given_id = id or false
    self.language = facts.language
    return self
end


-- engine:resume(bytes, call): the call that save() turned into bytes, here or
-- in Python; the policy and the region must be those it began with. Call, or
-- nil and an error when the bytes are not a saved call, or not one of this
-- engine.
function _M.resume(engine, bytes, call, now_ms)
    local now = engine:ready(now_ms)
    local id, at = saved.read(bytes)
    if not id then
        return nil, errors.new("arg", at)
    end
    local self = call == nil and new_call(engine) or reuse(call, engine)
    saved.copy(self.ref, bytes, at)
    local rc = C.fg_call_event(engine.handle, self.ref, 0, C.FG_EVENT_NONE, 0,
                               now)
    if rc == 0 or rc == C.FG_ERR_ARG then  -- arg: no attempt was made yet
        rc = C.fg_call_decision(engine.handle, self.ref, self.raw)
    end
    if rc ~= 0 then
        return nil, errors.new(errors.result(rc), "resume: the call is of "
                               .. "another policy or region, or has ended")
    end
    self.block.begun = 1
    self.block.process = fork_number()
    self.given_id = id
    self.language = nil
    return self
end


-- ---- for every operation

-- Ready to be looked at: begun, and by this process.
local function look(self)
    local block = self.block
    if block.begun == 0 then
        return raise("this call was dropped, saved or never begun; "
                     .. "engine:resume goes on with a saved one [state]")
    elseif block.process ~= fork_number() then
        return raise("this call began before a fork: it belongs to the parent "
                     .. "process; begin a new one [state]")
    end
end


local function ready(self, now_ms)
    look(self)
    return self.engine:ready(now_ms)
end


-- ---- decisions

-- Permission to send what was decided: only its `proceed` allows one send.
function Call:begin_attempt(now_ms)
    local now = ready(self, now_ms)
    local rc = C.fg_call_begin_attempt(self.engine.handle, self.ref, now,
                                       self.raw)
    if rc ~= 0 then
        return refused("begin_attempt", rc)
    end
    return self.decision
end


-- The attempt failed; evidence: what was seen of it (README.md lists the
-- keys). What now?
function Call:failure(evidence, now_ms)
    local now = ready(self, now_ms)
    local e, attempt = evidence_of(evidence)
    local rc = C.fg_call_failure(self.engine.handle, self.ref, attempt, e, now,
                                 self.raw)
    evidence_done()
    if rc ~= 0 then
        return refused("failure", rc)
    end
    return self.decision
end


-- The attempt came to its end by itself; answer: {prompt_tokens,
-- output_tokens, cached_tokens, cost_usd or cost_nusd, finish_reason, output,
-- visible, tool_calls, final, attempt}. Is it good?
function Call:success(answer, now_ms)
    local now = ready(self, now_ms)
    local a, attempt = answer_of(answer, "success", true)
    local rc = C.fg_call_success(self.engine.handle, self.ref, attempt, a, now,
                                 self.raw)
    answer_done()
    if rc ~= 0 then
        return refused("success", rc)
    end
    return self.decision
end


-- Nothing came for decision.wake_ms: keep_waiting, or hang up.
function Call:deadline(now_ms)
    local now = ready(self, now_ms)
    local rc = C.fg_call_deadline(self.engine.handle, self.ref, now, self.raw)
    if rc ~= 0 then
        return refused("deadline", rc)
    end
    return self.decision
end


-- This host cannot do what was decided: a word or a list of wait, reroute,
-- edit, clear, cache, preset, queue, resume, hedge, tick.
function Call:unable(what, now_ms)
    local bits = names.bits("unable", what, "what")
    local now = ready(self, now_ms)
    local rc = C.fg_call_unable(self.engine.handle, self.ref, bits, now,
                                self.raw)
    if rc ~= 0 then
        return refused("unable", rc)
    end
    return self.decision
end


-- The next model request of an agent's loop, after an accepted answer: a
-- checkpoint, earlier steps are never sent again.
function Call:step(prompt_tokens, max_output_tokens, now_ms)
    local prompt = u32(prompt_tokens, "prompt_tokens")
    local output = u32(max_output_tokens, "max_output_tokens")
    local now = ready(self, now_ms)
    local rc = C.fg_call_step(self.engine.handle, self.ref, prompt, output,
                              now, self.raw)
    if rc ~= 0 then
        return refused("step", rc)
    end
    return self.decision
end


-- Nobody waits for the answer any more; decision.cancel: the attempt to hang
-- up, 0 none.
function Call:cancel(now_ms)
    local now = ready(self, now_ms)
    local rc = C.fg_call_cancel(self.engine.handle, self.ref, now, self.raw)
    if rc ~= 0 then
        return refused("cancel", rc)
    end
    return self.decision
end


local function operation(op_id, what)
    if type(op_id) ~= "string" then
        return raise(what .. ": op_id must be a string, not " .. type(op_id))
    end
    return op_id
end


-- A look-up settled what an operation did: effect is none or committed.
function Call:resolved(op_id, effect, now_ms)
    operation(op_id, "resolved")
    local number = word("effect", effect, "effect")
    local now = ready(self, now_ms)
    local rc = C.fg_call_resolved(self.engine.handle, self.ref, op_id, #op_id,
                                  number, now, self.raw)
    if rc ~= 0 then
        return refused("resolved", rc)
    end
    return self.decision
end


-- ---- facts without a decision

-- Something came or went: connected, sent, accepted, first_byte, lifecycle,
-- reasoning, tool_args (bytes), token (how many, 1), terminal (the finish
-- reason). attempt: its number; nil is the latest.
function Call:event(kind, value, attempt, now_ms)
    local number = events[kind] or word("event", kind, "kind")
    if number == EVENT_TERMINAL then
        value = word("finish", value, "value")
    elseif value == nil and number == EVENT_TOKEN then
        value = 1
    else
        value = u32(value, "value")
    end
    attempt = u32(attempt, "attempt")
    local now = ready(self, now_ms)
    local rc = C.fg_call_event(self.engine.handle, self.ref, attempt, number,
                               value, now)
    if rc ~= 0 then
        return refused("event", rc)
    end
    return true
end


-- Usage as the provider reports it: the keys of success(); final settles the
-- attempt's money, once, also after it is over.
function Call:usage(usage, now_ms)
    local now = ready(self, now_ms)
    local a, attempt = answer_of(usage, "usage", false)
    local rc = C.fg_call_usage(self.engine.handle, self.ref, attempt, a, now)
    answer_done()
    if rc ~= 0 then
        return refused("usage", rc)
    end
    return true
end


-- What became of an operation of this step: requested, started, committed,
-- acknowledged, failed. idempotent: sending it again under its id does nothing
-- twice.
function Call:tool(op_id, state, idempotent, now_ms)
    operation(op_id, "tool")
    local number = word("tool", state, "state")
    local flag = check.flag(idempotent, "idempotent") and 1 or 0
    local now = ready(self, now_ms)
    local rc = C.fg_call_tool(self.engine.handle, self.ref, 0, op_id, #op_id,
                              number, flag, now)
    if rc ~= 0 then
        return refused("tool", rc)
    end
    return true
end


-- ---- end

-- Dropped without a word: neutral. Twice is fine, and so is after the end.
function Call:drop()
    local block = self.block
    if block.begun ~= 0 and block.process == fork_number() then
        C.fg_call_end(self.engine.handle, self.ref)
    end
    block.begun = 0
end


-- The call as bytes for engine:resume(), here or in Python; this object lets
-- go of it. Keep the bytes as safe as the program itself.
function Call:save()
    look(self)
    local bytes = saved.write(self:id(), self.ref)
    self.block.begun = 0
    return bytes
end


-- Lets go of the call without ending it, as a killed process does.
function Call:forget()
    self.block.begun = 0
end


-- Sent to the provider with every attempt.
function Call:id()
    return self.given_id
           or string_of(self.block.id.head, ID_LENGTH)
end


local function id_of(id, name)
    if id ~= nil and type(id) ~= "string" then
        return raise("ledger_line: " .. name .. " must be a string or nil")
    end
    return id or ""
end


-- One JSON line of the ledger, without a newline: "call", "decision" or "end".
-- decision: the latest, or a copy. No prompt, key or answer is in it. response_id
-- and request_id: the provider's, for the line of a decision that ended an
-- attempt; one that is no printable ASCII of 1 to 128 characters is left out.
function Call:ledger_line(line, decision, now_ms, response_id, request_id)
    local number = LINES[line]
    if not number then
        return raise("line is one of: call, decision, end")
    end
    if decision ~= nil and not decisions.is(decision) then
        return raise("ledger_line: decision must be a decision")
    end
    local now = ready(self, now_ms)
    if (response_id or request_id) and line == "decision" then
        local response = id_of(response_id, "response_id")
        local request = id_of(request_id, "request_id")
        served.response_id.ptr, served.response_id.len = response, #response
        served.request_id.ptr, served.request_id.len = request, #request
        return text.ledger_served(self.engine.handle, self.ref,
                                  (decision or self.decision).raw, served, now)
    end
    return text.ledger_line(self.engine.handle, self.ref,
                            (decision or self.decision).raw, number, now)
end


function Call:__tostring()
    return "fivegates.call " .. self:id()
end


return _M
