-- The library's scanner of one answer as it comes: streams of the four wire
-- forms, or one JSON document.

local ffi = require "ffi"
local C = require("fivegates.lib").C
local check = require "fivegates.check"
local errors = require "fivegates.errors"
local names = require "fivegates.names"
local text = require "fivegates.text"

local raise = errors.raise
local refused = errors.refused
local bor = bit.bor
local min = math.min
local cast = ffi.cast
local setmetatable = setmetatable
local tonumber = tonumber
local type = type


local Scanner = {}
Scanner.__index = Scanner

local _M = {}

-- What feed() answers: the sum of these.
_M.SAW = {
    byte = C.FG_SAW_BYTE, lifecycle = C.FG_SAW_LIFECYCLE,
    reasoning = C.FG_SAW_REASONING, token = C.FG_SAW_TOKEN,
    tool_args = C.FG_SAW_TOOL_ARGS, usage = C.FG_SAW_USAGE,
    terminal = C.FG_SAW_TERMINAL, error = C.FG_SAW_ERROR,
    malformed = C.FG_SAW_MALFORMED,
}
local OPTIONS = check.set "wire whole"
local PART = 1073741824  -- the library counts a chunk's bytes in 32 bits

local answer = ffi.new("fg_answer")
local evidence = ffi.new("fg_evidence")
local id = ffi.new("fg_str")
local finishes, phases = names.name.finish, names.name.phase


-- options: wire (auto, chat, responses, messages, generateContent), whole (the
-- body is one JSON document, not a stream).
function _M.sse(options)
    options = check.plain(options == nil and {} or options,
                          "the scanner's options")
    check.unknown_key(options, OPTIONS, "a scanner")
    local self = setmetatable({
        memory = ffi.new("fg_sse"),
        wire = names.word("wire", options.wire, "wire"),
        flags = check.flag(options.whole, "whole") and C.FG_SSE_WHOLE or 0,
    }, Scanner)
    self:reset()
    return self
end


-- Begins another answer in the same memory.
function Scanner:reset()
    C.fg_sse_init(self.memory, self.wire, self.flags)
end


-- Reads decoded bytes as they come, cut anywhere. Returns what they held: the
-- sum of fivegates.SAW's numbers.
function Scanner:feed(chunk)
    if type(chunk) ~= "string" then
        return raise("feed takes a string, not " .. type(chunk))
    end
    local len = #chunk
    if len <= PART then
        local saw = C.fg_sse_feed(self.memory, chunk, len)
        if saw < 0 then
            return refused("feed", saw)
        end
        return saw
    end
    local all, at = 0, 0
    while at < len do
        local part = min(PART, len - at)
        local saw = C.fg_sse_feed(self.memory, cast("const char *", chunk) + at,
                                  part)
        if saw < 0 then
            return refused("feed", saw)
        end
        all, at = bor(all, saw), at + part
    end
    return all
end


-- Finish reason, usage and counts so far, for call:success() and call:usage().
-- into: a table to fill instead of a new one.
function Scanner:answer(into)
    local a, out = answer, into or {}
    a.size = ffi.sizeof("fg_answer")
    local rc = C.fg_sse_answer(self.memory, a)
    if rc ~= 0 then
        return refused("answer", rc)
    end
    out.finish_reason = finishes[a.finish]
    out.prompt_tokens, out.cached_tokens = a.prompt_tokens, a.cached_tokens
    out.output_tokens, out.visible = a.output_tokens, a.visible
    out.cost_nusd = tonumber(a.cost_nusd)
    out.final = bit.band(a.flags, C.FG_ANSWER_USAGE_FINAL) ~= 0
    return out
end


-- The answer's id as its provider calls it; nil until it was told.
function Scanner:response_id()
    local rc = C.fg_sse_id(self.memory, id)
    if rc ~= 0 then
        return refused("response_id", rc)
    end
    return text.of(id)
end


-- Progress and any error inside the answer, for call:failure().
function Scanner:evidence()
    local e = evidence
    ffi.fill(e, ffi.sizeof("fg_evidence"))
    e.size = ffi.sizeof("fg_evidence")
    local rc = C.fg_sse_evidence(self.memory, e)
    if rc ~= 0 then
        return refused("evidence", rc)
    end
    return {
        phase = phases[e.phase], status = e.status,
        body = e.body.len > 0 and ffi.string(e.body.ptr, e.body.len) or "",
        whole_body = bit.band(e.flags, C.FG_EV_WHOLE_BODY) ~= 0,
        progress = { visible = e.visible, lifecycle = e.lifecycle,
                     reasoning = e.reasoning,
                     tool_args_bytes = e.tool_args_bytes,
                     terminal = finishes[e.terminal] },
    }
end


return _M
