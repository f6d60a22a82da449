-- What comes of an answer, chunk by chunk, told to the engine. Functions of a
-- table with call, scanner, wire, number (of the attempt), saw (0), counts ({})
-- and no_speed: whether the time between its texts tells nothing of the route.

local fivegates = require "fivegates"
local reader = require "fivegates.resty.reader"

local band = bit.band
local bor = bit.bor
local find = string.find
local floor = math.floor
local ipairs = ipairs
local max = math.max
local sub = string.sub
local type = type


local _M = {}

local SAW = fivegates.SAW
local COUNTED = bor(SAW.token, SAW.usage, SAW.terminal)
local USAGE = { "prompt_tokens", "output_tokens", "cached_tokens", "cost_nusd" }
local CHARACTERS_PER_TOKEN = 4
local STOP_SEAM = 64  -- longer than the name of a message's last event


-- Has the last event of a message (Anthropic) begun? Its name stands in quotes of
-- its own, which no text inside the JSON has. self.tail: the chunk's end before.
local function look_for_stop(self, chunk)
    local data = (self.tail or "") .. chunk
    self.stopped = find(data, '"type"%s*:%s*"message_stop"') ~= nil
    self.tail = sub(data, -STOP_SEAM)
end


-- Does a request ask for several answers at once? They come side by side, so
-- that text comes as many times faster than the route writes one.
function _M.several(body)
    local n = body.n
    return type(n) == "number" and n > 1
end


-- Events of a stream that begin in a chunk.
local function events_in(chunk)
    local count = sub(chunk, 1, 5) == "data:" and 1 or 0
    local at = 1
    while true do
        at = find(chunk, "[\r\n]data:", at)
        if not at then
            return count
        end
        count, at = count + 1, at + 6
    end
end


-- Tokens of new text. Providers send one or a few an event, and some letters of
-- a language are a token each. The sum does not depend on how the network cut the
-- stream into chunks, so what is not counted yet counts next time (self.rest).
local function tokens_of(self, chunk, characters)
    characters = characters + (self.rest or 0)
    local count = max(1, events_in(chunk), floor(characters / CHARACTERS_PER_TOKEN))
    self.rest = max(0, characters - count * CHARACTERS_PER_TOKEN)
    return count
end


-- Reads a chunk: the scanner's bits, of which the engine does not know yet.
function _M.scan(self, chunk)
    local saw = self.scanner:feed(chunk)
    self.saw = bor(self.saw, saw)
    if self.wire == "messages" and not self.stopped then
        look_for_stop(self, chunk)
    end
    return saw
end


-- Tells the engine what a chunk held.
function _M.tell(self, saw, chunk)
    local scanner, call, number = self.scanner, self.call, self.number
    if band(saw, SAW.lifecycle) ~= 0 then
        call:event("lifecycle", nil, number)
    end
    if band(saw, SAW.reasoning) ~= 0 then
        call:event("reasoning", nil, number)
    end
    if band(saw, SAW.tool_args) ~= 0 then
        call:event("tool_args", 1, number)
    end
    if band(saw, COUNTED) == 0 then
        call:event("first_byte", nil, number)
        return saw
    end
    local before = self.visible or 0
    local now = scanner:answer(self.counts)
    self.visible = now.visible
    if band(saw, SAW.token) ~= 0 then
        if self.no_speed then
            reader.unmeasured(self)
        end
        call:event("token", tokens_of(self, chunk, now.visible - before),
                   number)
    end
    if band(saw, SAW.usage) ~= 0 then
        call:usage { prompt_tokens = now.prompt_tokens,
                     output_tokens = now.output_tokens,
                     cached_tokens = now.cached_tokens, final = now.final,
                     attempt = number }
    end
    if band(saw, SAW.terminal) ~= 0 then
        call:event("terminal", now.finish_reason, number)
    end
    return saw
end


function _M.feed(self, chunk)
    return _M.tell(self, _M.scan(self, chunk), chunk)
end


-- Has the answer come to its own good end?
function _M.whole(self)
    return band(self.saw, SAW.terminal) ~= 0 and band(self.saw, SAW.error) == 0
end


-- Arguments of success() that the scanner knows.
function _M.counted(self)
    local found, out = self.scanner:answer(self.counts), {}
    for _, name in ipairs(USAGE) do
        if found[name] > 0 then
            out[name] = found[name]
        end
    end
    out.visible = found.visible
    if found.finish_reason ~= "none" then
        out.finish_reason = found.finish_reason
    end
    if found.final then
        out.final = true
    end
    out.attempt = self.number
    return out
end


return _M
