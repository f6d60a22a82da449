-- Replays one case of a vector file: engines, calls, and what is expected.
-- The format is tests/vectors/README.md.

local ffi = require "ffi"
local fivegates = require "fivegates"
local C = require("fivegates.lib").C
local engines = require "fivegates.engine"
local errors = require "fivegates.errors"
local policies = require "fivegates.policy"
local json = require "json"
local match = require "match"
local memory_region = require "memory_region"

-- Not in the header: it fills in "fingerprint": "auto", for the vectors.
ffi.cdef [[
int32_t fg_card_load_flags(const char *text, uint64_t len, const fg_mem *mem,
                           uint32_t flags, fg_policy **out, fg_error *err);
]]

local BASE_MS = 1000000000
local PROCS = 64
local FAULTS_SHOWN = 8
local CALL_ID_MAX = 40
local OPERATIONS = 1000000  -- of one case, repeats counted

local Case = {}
Case.__index = Case

-- ---- strict reading

local function fault(text, ...)
    error({ fault = select("#", ...) > 0 and text:format(...) or text }, 0)
end

-- The object, whose keys must all be words of `allowed`; nil is {}.
local function only(object, what, allowed)
    if object == nil then
        return {}
    elseif not json.is_object(object) then
        fault("%s is not an object", what)
    end
    allowed = " " .. allowed .. " "
    for _, key in ipairs(json.keys(object)) do
        if key == "" or not allowed:find(" " .. key .. " ", 1, true) then
            fault("unknown key \"%s\" in %s", key, what)
        end
    end
    return object
end

local function whole(object, key, lo, hi)
    local value = object[key] == nil and 0 or object[key]
    if type(value) ~= "number" or value ~= math.floor(value) or value < lo
       or value > hi then
        fault("%s is not a whole number from %.0f to %.0f", key, lo, hi)
    end
    return value
end

-- ---- reporting

function Case:fail(where, op, text)
    if self.faults == 0 then
        self.report:say(("%s: \"%s\""):format(self.file, self.name))
    end
    self.faults = self.faults + 1
    if self.faults <= FAULTS_SHOWN then
        self.report:say(("  step %s %s: %s"):format(where, op, text))
    end
end

function Case:dump(where, text)
    self.report:dump(("%s\t%s\t%s"):format(self.name, where, text))
end

local function text_of(problem)
    if type(problem) == "table" and problem.fault then
        return problem.fault
    end
    return tostring(problem)
end

-- ---- cards

local function load_flags(text, len, mem, out, err)
    return C.fg_card_load_flags(text, len, mem, 1, out, err)
end

local function load_card(card)
    return policies.compile(load_flags, type(card) == "string" and card
                                        or json.text_of(card))
end

function Case:load_error(want, err)
    local got = { code = err and err.code or "none", path = err and err.path or "",
                  line = err and err.line or 0, column = err and err.column or 0 }
    self:dump("error", json.encode { pairs = true, { "code", got.code },
                                     { "path", got.path } })
    for _, key in ipairs(json.keys(want)) do
        if not match.matches(want[key], got[key]) then
            self:fail("-", "load", ("expected %s, got %s at \"%s\" line %d "
                .. "column %d: %s"):format(json.encode(want), got.code, got.path,
                got.line, got.column, err and err.message or "a card that loads"))
            return
        end
    end
end

-- ---- running

function Case:run()
    local ok, problem = pcall(self.run_all, self)
    if not ok then
        self:fail("-", "case", text_of(problem))
    end
    for _, begun in pairs(self.calls) do
        if begun.call then
            begun.call:forget()
        end
    end
    if self.faults > FAULTS_SHOWN then
        self.report:say(("  … %d more"):format(self.faults - FAULTS_SHOWN))
    end
    local report = self.report
    if self.faults > 0 then
        report.failed = report.failed + 1
    else
        report.passed = report.passed + 1
    end
end

function Case:run_all()
    local spec = only(self.spec, "a case", "name why needs policy seed steps error")
    local want, card = spec.error, spec.policy
    only(want, "error", "code path line column")
    self.seed = whole(spec, "seed", 0, 2 ^ 53)
    if not json.is_object(card) and type(card) ~= "string" then
        fault("no policy")
    elseif (want == nil) == (spec.steps == nil)
           or (want == nil and not json.is_list(spec.steps)) then
        fault("a case has either steps or error")
    end
    local err
    self.policy, err = load_card(card)
    if want ~= nil then
        return self:load_error(want, err)
    elseif not self.policy then
        fault("the card does not load: %s at %s line %d: %s", err.code, err.path,
              err.line, err.message)
    end
    self.region = memory_region.new(BASE_MS)
    self:steps(spec.steps, "", 0, 0)
end

function Case:steps(steps, prefix, base_ms, round)
    for i = 1, json.len(steps) do
        local spec, where = steps[i], prefix .. (i - 1)
        local op = json.is_object(spec) and type(spec.op) == "string" and spec.op
                   or "?"
        local ok, problem = pcall(self.step, self, spec, where, op, base_ms,
                                  prefix ~= "", round)
        if not ok then
            self:fail(where, op, text_of(problem))
        end
    end
end

local CALL_OPS, ENGINE_OPS = {}, {}

function Case:step(spec, where, op, base_ms, inner, round)
    self.operations = self.operations + 1
    if self.operations > OPERATIONS then  -- repeats inside repeats
        if self.operations == OPERATIONS + 1 then
            self:fail(where, "repeat", "a case may have a million operations, "
                                       .. "repeats counted")
        end
        return
    end
    local at = inner and "after_ms" or "at_ms"
    only(spec, "a step", at .. " op call in expect proc why needs")
    if spec[at] == nil and not inner then
        fault("no at_ms")
    end
    local proc = spec.proc ~= nil and whole(spec, "proc", 1, PROCS) or 1
    local at_ms = base_ms + whole(spec, at, 0, 100000000000)
    local name = spec.call == nil and "" or spec.call
    if type(name) ~= "string" then
        fault("call is not text")
    end
    name = name:gsub("{i}", tostring(round), 1)
    if #name > CALL_ID_MAX then
        fault("the call's name is longer than %d bytes", CALL_ID_MAX)
    end
    local step = { where = where, op = op, proc = proc, at_ms = at_ms, name = name,
                   now_ms = BASE_MS + at_ms, given = spec["in"], result = "ok" }
    self.now_ms = step.now_ms
    if op == "repeat" then
        return self:repeat_steps(step)
    end
    local run = CALL_OPS[op] and self.call_op or self.engine_op
    local ok, problem = pcall(run, self, step)
    if not ok then
        -- What the library itself refused is raised with its word at the end.
        local word = type(problem) == "string"
                     and problem:match("^[^\n]*fivegates: .*%[(%l+)%]$")
        if not word then
            error(problem, 0)
        end
        step.result = word
    end
    self:dump(where, step.out and step.result == "ok" and step.out
                     or json.encode { pairs = true, { "result", step.result } })
    self:expect(step, spec.expect)
end

function Case:repeat_steps(step)
    local given = only(step.given, "repeat", "times every_ms steps")
    local times = whole(given, "times", 0, 100000)
    local every_ms = whole(given, "every_ms", 0, 2 ^ 32 - 1)
    if not json.is_list(given.steps) then
        fault("repeat needs times up to 100,000 and a list of steps")
    end
    for i = 0, times - 1 do
        if self.operations > OPERATIONS then
            break
        end
        self:steps(given.steps, ("%s.%d."):format(step.where, i),
                   step.at_ms + i * every_ms, i)
    end
end

function Case:expect(step, expect)
    local answer = step.out and json.decode(step.out) or json.decode("{}")
    if expect == nil then
        expect = json.decode("{}")
    elseif not json.is_object(expect) then
        self:fail(step.where, step.op, "expect is not an object")
        expect = json.decode("{}")
    end
    if step.result ~= "ok" and expect.result == nil then
        self:fail(step.where, step.op,
                  "the library answers error " .. step.result)
    end
    answer.result = step.result
    for _, key in ipairs(json.keys(expect)) do
        local got = match.find(answer, key)
        if got == nil and step.extra then
            got = match.find(step.extra, key)
        end
        if got == nil or not match.matches(expect[key], got) then
            self:fail(step.where, step.op, ("%s: expected %s, got %s"):format(
                key, json.encode(expect[key]),
                got == nil and "(no such field)" or json.encode(got)))
        end
    end
end

-- ---- engines

function Case:make(slot)
    local engine = assert(fivegates.engine(self.policy, {
        region = self.region, slot = slot, seed = self.seed,
        clock = function() return self.now_ms end,
    }))
    local made = { engine = engine, slot = slot }
    self.made[#self.made + 1] = made
    self.procs[slot] = made
    return made
end

function Case:engine(step)
    return self.procs[step.proc - 1] or self:make(step.proc - 1)
end

-- A field of a library's answer, `pairs` for json.encode.
local function fields(from, out, names)
    for name in names:gmatch("%S+") do
        out[#out + 1] = { name, from[name] }
    end
    return out
end

local function failure_text(failure)
    return json.encode(fields(failure, { pairs = true },
        "owner kind class overload trips_breaker retry_after_ms period "
        .. "should_retry billed commit scope repair never_sent silent local_fault"))
end

local EVIDENCE = "provider api phase status headers body transport elapsed_ms "
                 .. "progress inner_attempts origin client_gone timeout "
                 .. "whole_body unix_ms attempt"

local function evidence_of(given)
    only(given, "evidence", EVIDENCE)
    return json.plain(given or {})
end

function ENGINE_OPS.route(_, step, made)
    local name = only(step.given, "route", "route").route
    local v, at = made.engine:route(name, step.now_ms), step.at_ms
    local out = fields(v, { pairs = true }, "breaker health")
    out[#out + 1] = { "until_ms", v.breaker ~= "closed" and at + v.open_for_ms
                                  or nil }
    fields(v, out, "open_for_ms generation opened_count in_flight retries limit "
           .. "z_milli run window_ok window_failed first_token_ms stall_ms "
           .. "samples rate_milli")
    out[#out + 1] = { "not_before_ms", v.not_before_ms ~= 0
                                       and at + v.not_before_ms or nil }
    out[#out + 1] = { "bucket", v.balance_milli }
    out[#out + 1] = { "latch", v.latch }
    out[#out + 1] = { "latch_until_ms", v.latch ~= "none" and at + v.latch_for_ms
                                        or nil }
    step.out = json.encode(fields(v, out, "attempts successes failures tokens"))
end

function ENGINE_OPS.workflow(_, step, made)
    local name = only(step.given, "workflow", "workflow").workflow
    step.out = json.encode(fields(
        made.engine:workflow(name, step.now_ms), { pairs = true },
        "calls primary_success retry_recovery fallback_recovery degraded "
        .. "failed_closed queued cancelled retries_this_hour spent_today_nusd"))
end

function ENGINE_OPS.tick(_, step, made)
    only(step.given, "tick", "")
    step.out = json.encode { pairs = true,
                             { "next_ms", made.engine:tick(step.now_ms) } }
end

function ENGINE_OPS.classify(_, step, made)
    step.out = failure_text(fivegates.classify(evidence_of(step.given),
                                               made.engine.policy))
end

function ENGINE_OPS.restart(self, step)
    only(step.given, "restart", "")
    memory_region.restart(self.region, step.now_ms)
    for _, made in ipairs(self.made) do
        if not made.gone then
            assert(engines.renew(made.engine, step.now_ms))
        end
    end
end

function ENGINE_OPS.clock(_, step, made)
    local given = only(step.given, "clock", "unix_ms")
    made.engine:wall_clock(whole(given, "unix_ms", 0, 2 ^ 53), step.now_ms)
end

-- Those that are not run by an engine of the step's process.
local REGION_OPS = {}

function REGION_OPS.reload(self, step)
    local card = only(step.given, "reload", "policy").policy
    if not json.is_object(card) and type(card) ~= "string" then
        fault("the new card does not load: missing")
    end
    local policy, err = load_card(card)
    if not policy then
        fault("the new card does not load: %s", tostring(err))
    end
    self.policy = policy
    self:make(step.proc - 1)
end

local function proc_of(step)
    local proc = only(step.given, step.op, "proc").proc
    if type(proc) ~= "number" or proc ~= math.floor(proc) or proc < 1
       or proc > PROCS then
        fault("proc is not 1 to %d", PROCS)
    end
    return proc
end

function REGION_OPS.reap(self, step)
    local rc = memory_region.reap(self.region, proc_of(step) - 1, step.now_ms)
    step.result = rc == 0 and "ok" or errors.result(rc)
end

function REGION_OPS.kill(self, step)
    local slot = proc_of(step) - 1
    for _, begun in pairs(self.calls) do
        if begun.made and begun.made.slot == slot then
            begun.killed = true
            if begun.call then
                begun.call:forget()
            end
        end
    end
    for _, made in ipairs(self.made) do
        made.gone = made.gone or made.slot == slot
    end
    self.procs[slot] = nil
end

function Case:engine_op(step)
    local op = step.op
    if REGION_OPS[op] then
        return REGION_OPS[op](self, step)
    end
    local made = self:engine(step)
    if not ENGINE_OPS[op] then
        fault("unknown op")
    end
    return ENGINE_OPS[op](self, step, made)
end

-- ---- calls

local BEGIN = "workflow prompt_tokens max_output_tokens request_bytes stream "
              .. "delivery features tools tool_choice data_class region tenant "
              .. "affinity account server_state unable max_wait_ms prior language"

local function decided(step, begun, decision)
    step.out = decision:json()
    begun.route = decision.route
end

function CALL_OPS.begin(self, step)
    local before = self.calls[step.name]
    if before and before.call then
        before.call:forget()
    end
    local begun = {}
    self.calls[step.name] = begun
    local facts = json.plain(only(step.given, "begin", BEGIN))
    facts.call_id = step.name
    begun.made = self:engine(step)
    local call, err = begun.made.engine:begin(facts, nil, step.now_ms)
    if not call then
        step.result = err.code
        return
    end
    begun.call = call
    decided(step, begun, call.decision)
end

function CALL_OPS.event(_, step, begun)
    local call, now = begun.call, step.now_ms
    local given = json.plain(only(step.given, "an event",
        "attempt kind op_id state idempotent prompt_tokens cached_tokens "
        .. "output_tokens cost_usd final count bytes reason"))
    local kind = given.kind
    if type(kind) ~= "string" then
        fault("an event has no kind")
    elseif kind == "tool" then
        only(step.given, "a tool event", "attempt kind op_id state idempotent")
        call:tool(given.op_id, given.state, given.idempotent, now)
    elseif kind == "usage" then
        only(step.given, "a usage event", "attempt kind prompt_tokens "
             .. "cached_tokens output_tokens cost_usd final")
        given.kind = nil
        call:usage(given, now)
    else
        local words = { token = "count", tool_args = "bytes", terminal = "reason" }
        only(step.given, "an event", "attempt kind " .. (words[kind] or ""))
        call:event(kind, given[words[kind] or ""], given.attempt, now)
    end
end

function CALL_OPS.failure(_, step, begun)
    local evidence = evidence_of(step.given)
    local route, policy = begun.route, begun.made.engine.policy
    decided(step, begun, begun.call:failure(evidence, step.now_ms))
    if route then
        local info = policy:route(route)
        evidence.provider = evidence.provider or info.provider
        evidence.api = evidence.api or info.api
    end
    step.extra = json.decode(failure_text(fivegates.classify(evidence, policy)))
end

function CALL_OPS.success(_, step, begun)
    local given = only(step.given, "success", "prompt_tokens output_tokens "
        .. "cached_tokens cost_usd finish_reason output visible tool_calls attempt "
        .. "final")
    decided(step, begun, begun.call:success(json.plain(given), step.now_ms))
end

function CALL_OPS.step(_, step, begun)
    local given = only(step.given, "step", "prompt_tokens max_output_tokens")
    decided(step, begun, begun.call:step(given.prompt_tokens,
                                         given.max_output_tokens, step.now_ms))
end

function CALL_OPS.unable(_, step, begun)
    local given = json.plain(only(step.given, "unable", "what"))
    decided(step, begun, begun.call:unable(given.what, step.now_ms))
end

function CALL_OPS.resolved(_, step, begun)
    local given = only(step.given, "resolved", "op_id effect")
    decided(step, begun, begun.call:resolved(given.op_id, given.effect,
                                             step.now_ms))
end

for _, op in ipairs { "begin_attempt", "deadline", "cancel" } do
    CALL_OPS[op] = function(_, step, begun)
        only(step.given, op, "")
        decided(step, begun, begun.call[op](begun.call, step.now_ms))
    end
end

-- The library's own drop: the call answers its final decision afterwards, so
-- the object must not let go of it.
function CALL_OPS.drop(_, step, begun)
    only(step.given, "drop", "")
    local call = begun.call
    local rc = C.fg_call_end(call.engine.handle, call.ref)
    step.result = rc == 0 and "ok" or errors.result(rc)
end

function Case:call_op(step)
    if step.name == "" then
        fault("no call is named")
    elseif step.op == "begin" then
        return CALL_OPS.begin(self, step)
    end
    local begun = self.calls[step.name]
    if not begun or begun.killed or not begun.made then
        fault("call %s was never begun, or its process is gone", step.name)
    elseif not begun.call then  -- its begin was refused by the library
        step.result = "state"
        return
    end
    return CALL_OPS[step.op](self, step, begun)
end

return function(file, spec, report)
    return setmetatable({
        file = file, spec = spec, report = report, faults = 0, operations = 0,
        name = json.is_object(spec) and type(spec.name) == "string" and spec.name
               or "?",
        now_ms = BASE_MS, made = {}, procs = {}, calls = {},
    }, Case)
end
