-- What was seen of a failed attempt, on its way into the one fg_evidence that
-- is here for all calls; `held` as in request.lua. What is missing is unknown.

local ffi = require "ffi"
local C = require("fivegates.lib").C
local check = require "fivegates.check"
local errors = require "fivegates.errors"
local names = require "fivegates.names"

local raise = errors.raise
local u32 = check.u32
local str = check.str
local word = names.word
local nkeys = check.nkeys
local fill = ffi.fill
local bor = bit.bor
local next = next
local rawget = rawget
local tostring = tostring
local type = type


local _M = {}

local KEYS = check.set [[
    provider api phase status headers body transport elapsed_ms progress
    inner_attempts origin client_gone whole_body timeout unix_ms attempt
]]
local TRANSPORT = check.set "lib kind code message"
local PROGRESS = check.set [[
    visible lifecycle reasoning tool_args_bytes terminal last_byte_ms
    last_progress_ms
]]
-- More headers than any server sends: the rest is unknown.
local HEADERS_MAX = 4096

local SIZE = ffi.sizeof("fg_evidence")
local FINISH_OTHER, FINISH_NONE = C.FG_FINISH_OTHER, C.FG_FINISH_NONE
local CLIENT_GONE, LOCAL = C.FG_EV_CLIENT_GONE, C.FG_EV_LOCAL
local KNOWN_PROGRESS, WHOLE_BODY = C.FG_EV_PROGRESS, C.FG_EV_WHOLE_BODY

local evidence = ffi.new("fg_evidence")
local provider, api, body = evidence.provider, evidence.api, evidence.body
local lib, kind, message = evidence.lib, evidence.kind, evidence.message
local held = { evidence = false, made = {} }

-- Headers, and references to the name and the value of each: made once, not
-- at each use.
local room = 64
local headers, header_name, header_value

local function make_headers()
    headers = ffi.new("fg_header[?]", room)
    header_name, header_value = {}, {}
    for i = 0, room - 1 do
        header_name[i], header_value[i] = headers[i].name, headers[i].value
    end
end

make_headers()


-- Keys are counted, not walked through: a loop in the middle of a failure keeps
-- the compiler from going through it.
local function has(value)
    return value ~= nil and 1 or 0
end


local function known_keys(t)
    return has(t.provider) + has(t.api) + has(t.phase) + has(t.status)
           + has(t.headers) + has(t.body) + has(t.transport) + has(t.elapsed_ms)
           + has(t.progress) + has(t.inner_attempts) + has(t.origin)
           + has(t.client_gone) + has(t.whole_body) + has(t.timeout)
           + has(t.unix_ms) + has(t.attempt)
end


-- One header more; its value may be a list, or a number made a string here.
local function add_header(count, name, value)
    local of = type(value)
    if of == "table" then
        for i = 1, check.list(value, "a header's values", HEADERS_MAX) do
            count = add_header(count, name, rawget(value, i))
        end
        return count
    elseif of == "number" or of == "boolean" then
        value = tostring(value)
        held.made[#held.made + 1] = value
    end
    if count == HEADERS_MAX then
        return count
    end
    if count == room then
        local before = headers
        room = room * 2
        make_headers()
        ffi.copy(headers, before, count * ffi.sizeof("fg_header"))
    end
    if type(value) ~= "string" then
        return raise("the value of header " .. name .. " must be a string, not "
                     .. type(value))
    end
    str(header_name[count], name, "a header's name")
    str(header_value[count], value, "a header's value")
    return count + 1
end


-- headers: {name = value or list of values}, or a list of {name, value}. Read
-- by its keys alone; the tables of nginx have a metatable.
local function fill_headers(t)
    if type(t) ~= "table" then
        return raise("headers must be a table, not " .. type(t))
    end
    local count = 0
    if type(rawget(t, 1)) == "table" then
        for i = 1, check.list(t, "headers", HEADERS_MAX) do
            local pair = rawget(t, i)
            if type(pair) ~= "table" or type(rawget(pair, 1)) ~= "string" then
                return raise("headers as a list hold {name, value}")
            end
            count = add_header(count, rawget(pair, 1), rawget(pair, 2))
        end
    else
        for name, value in next, t do
            if type(name) ~= "string" then
                return raise("a header's name must be a string, not "
                             .. type(name))
            end
            count = add_header(count, name, value)
        end
    end
    evidence.headers = headers
    evidence.header_count = count
end


local function fill_transport(t)
    check.plain(t, "transport")
    if has(t.lib) + has(t.kind) + has(t.message) + has(t.code) ~= nkeys(t) then
        check.unknown_key(t, TRANSPORT, "transport")
    end
    str(lib, t.lib, "transport.lib")
    str(kind, t.kind, "transport.kind")
    str(message, t.message, "transport.message")
    evidence.code = check.i32(t.code, "transport.code")
end


local function fill_progress(t)
    check.plain(t, "progress")
    if has(t.visible) + has(t.lifecycle) + has(t.reasoning)
       + has(t.tool_args_bytes) + has(t.terminal) + has(t.last_byte_ms)
       + has(t.last_progress_ms) ~= nkeys(t) then
        check.unknown_key(t, PROGRESS, "progress")
    end
    local e = evidence
    e.visible = u32(t.visible, "progress.visible")
    e.lifecycle = u32(t.lifecycle, "progress.lifecycle")
    e.reasoning = u32(t.reasoning, "progress.reasoning")
    e.tool_args_bytes = u32(t.tool_args_bytes, "progress.tool_args_bytes")
    e.last_byte_ms = u32(t.last_byte_ms, "progress.last_byte_ms")
    e.last_progress_ms = u32(t.last_progress_ms, "progress.last_progress_ms")
    local terminal = t.terminal
    if type(terminal) == "boolean" then
        e.terminal = terminal and FINISH_OTHER or FINISH_NONE
    else
        e.terminal = word("finish", terminal, "progress.terminal")
    end
end


local function flags_of(t)
    local flags = 0
    if t.progress ~= nil then
        fill_progress(t.progress)
        flags = KNOWN_PROGRESS
    end
    if check.flag(t.client_gone, "client_gone") then
        flags = bor(flags, CLIENT_GONE)
    end
    if check.flag(t.whole_body, "whole_body") then
        flags = bor(flags, WHOLE_BODY)
    end
    local origin = t.origin
    if origin == "local" then
        flags = bor(flags, LOCAL)
    elseif origin ~= nil and origin ~= "upstream" then
        return raise("origin is upstream or local")
    end
    return flags
end


-- Fills the evidence and returns it with the number of the attempt it is of.
function _M.fill(t)
    check.plain(t, "evidence")
    if known_keys(t) ~= nkeys(t) then
        check.unknown_key(t, KEYS, "evidence")
    end
    held.evidence = t
    local e = evidence
    fill(e, SIZE)
    e.size = SIZE
    e.phase = word("phase", t.phase, "phase")
    e.status = check.i32(t.status, "status")
    str(provider, t.provider, "provider")
    str(api, t.api, "api")
    str(body, t.body, "body")
    e.elapsed_ms = u32(t.elapsed_ms, "elapsed_ms")
    e.inner_attempts = u32(t.inner_attempts, "inner_attempts")
    e.unix_ms = check.whole(t.unix_ms, "unix_ms")
    e.timeout = word("kind", t.timeout, "timeout")
    e.flags = flags_of(t)
    if t.headers ~= nil then
        fill_headers(t.headers)
    end
    if t.transport ~= nil then
        fill_transport(t.transport)
    end
    return e, u32(t.attempt, "attempt")
end


function _M.done()
    held.evidence = false
    for i = #held.made, 1, -1 do
        held.made[i] = nil
    end
end


return _M
