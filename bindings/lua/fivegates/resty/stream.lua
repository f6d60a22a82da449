-- A streamed answer: held until its first content, as long as another route
-- could still answer; then passed on event by event, and watched to its end.

local fivegates = require "fivegates"
local answers = require "fivegates.resty.answer"
local json = require "fivegates.resty.json"
local reader = require "fivegates.resty.reader"
local reply = require "fivegates.resty.reply"

local band = bit.band
local bnot = bit.bnot
local bor = bit.bor
local concat = table.concat
local find = string.find
local gmatch = string.gmatch
local match = string.match
local max = math.max
local min = math.min
local ngx = ngx
local sub = string.sub


local _M = {}

local SAW = fivegates.SAW
local CONTENT = bor(SAW.token, SAW.tool_args)
local PROGRESS = bor(CONTENT, SAW.reasoning, SAW.usage, SAW.terminal)
-- What is held before the first content, and of one event that does not end.
-- More goes on as it is where the model is thinking, and else answers nothing.
local HELD_MAX = 1048576
local SEAM = 2
local GRACE_MS = 100
-- APIs whose answers are text: a stream of them without any is an empty answer.
local TEXT = { chat = true, messages = true }


-- To the client, now; false when it has left.
local function give(x, data)
    if data == "" then
        return true
    end
    reader.begins(x)
    local ok = ngx.print(data)
    if ok then
        local flushed, why = ngx.flush(true)
        -- For HTTP/1.0 nginx keeps the answer until its end, unless
        -- lua_http10_buffering is off: nobody has left.
        ok = flushed or ngx.req.http_version() == 1.0 and why ~= "client abort"
    end
    reader.ends(x)
    if not ok or x.over then
        x:left()
        x.cut = true
        return false
    end
    -- A client that reads slowly has kept us from reading: what waits there is
    -- looked at before a clock is; but the total time is for both.
    x.wake_at = max(x.wake_at, min(x:now() + GRACE_MS, x.started + x.total_ms))
    return true
end


-- Only whole events go on, so that what is cut is cut between two of them.
-- x.parts: what has come of the next event; x.seam: its last bytes, where a
-- blank line may be half; x.torn: the beginning of an event has gone on.
local function whole_events(x, chunk)
    local seam, parts = x.seam, x.parts
    local data = seam .. chunk
    local past = max(match(data, "^.*\n\r?\n()") or 0,
                     match(data, "^.*\r\r()") or 0) - #seam
    x.size = x.size + #chunk
    if past < 1 then
        parts[#parts + 1] = chunk
        x.seam = sub(data, -SEAM)
        if x.size <= HELD_MAX then
            return ""
        end
        past = #chunk + 1
        x.torn = true
    else
        parts[#parts + 1] = sub(chunk, 1, past - 1)
        x.torn = false
    end
    local out = concat(parts)
    local rest = sub(chunk, past)
    x.parts, x.size, x.seam = { rest }, #rest, sub(rest, -SEAM)
    return out
end


-- The stream has failed after its first content: it ends with an error event,
-- and not as an answer ends. In the middle of an event no other can follow; then
-- the broken connection alone must do.
local function cut(x, decision)
    x:told(decision)
    x:ends(decision)
    x.cut = true
    if x.torn then
        return
    end
    if ngx.print(answers.error_event(x.wire, decision.reason, "fivegates: "
                                     .. answers.reason_text(decision))) then
        ngx.flush(true)
    end
end


-- Is a text all of an event but for the blank line behind it?
local function is_event(text)
    local data = {}
    for line in gmatch(text, "[^\r\n]+") do
        data[#data + 1] = match(line, "^data: ?(.*)$")
    end
    local value = concat(data, "\n")
    return value == "[DONE]" or json.decode(value) ~= nil
end


-- The server's stream is over, or silent long enough behind its own end.
local function ended(x)
    local rest = concat(x.parts)
    if not x.torn and is_event(rest) then
        rest = rest .. (find(rest, "\n$") and "\n" or "\n\n")
        x:feed("\n\n")
    else
        rest = ""
    end
    if not x:whole() then
        return cut(x, x:ended_badly())
    end
    local decision = x.call:success(x:counted())
    x:told(decision)
    x:ends(decision)
    ngx.print(rest)
    x.cut = x.torn
    if x.all and not x.cut and decision.action == "accept" then
        x:keep(concat(x.all), true)
    end
end


-- Remembers a chunk for the cache; of a stream that is too long nothing.
local function remember(x, chunk)
    if x.all then
        x.all[#x.all + 1] = chunk
        x.all_size = x.all_size + #chunk
        x.all = x.all_size <= HELD_MAX and x.all or nil
    end
end


-- The clocks behind a stream's own end: bytes and content as before it, and the
-- total. Is one of them over?
local function tail_over(x, saw)
    local now = x:now()
    if not x.tail_until or band(saw, PROGRESS) ~= 0 then
        x.tail_until = min(now + x.progress_ms, x.started + x.total_ms)
    end
    x.wake_at = min(now + x.idle_ms, x.tail_until)
    return now >= x.tail_until
end


-- Passes on a stream whose first content is held.
local function pass(x, held)
    x.given = true
    x.parts, x.size, x.seam, x.torn = {}, 0, "", false
    x.all, x.all_size = x.gateway.cache and {}, 0
    remember(x, held)
    x:clock(x.progress_ms)
    reply.begin(x)
    ngx.header["cache-control"] = "no-cache"
    ngx.header["x-accel-buffering"] = "no"
    if not give(x, whole_events(x, held)) then
        return
    end
    local over = x:whole() and tail_over(x, x.saw)
    while not over do
        local chunk, err, decision = x:wait("read")
        if decision then
            return cut(x, decision)
        elseif not chunk then
            if err == "end" or x:whole() then
                return ended(x)
            end
            return cut(x, x:broke("stream", err))
        end
        local saw = x:feed(chunk)
        if band(saw, SAW.error) ~= 0 then
            return cut(x, x:ended_badly())
        end
        remember(x, chunk)
        decision = x:due() and x:look()
        if decision then
            return cut(x, decision)
        elseif not give(x, whole_events(x, chunk)) then
            return
        end
        over = x:whole() and tail_over(x, saw)
    end
    return ended(x)
end


-- A stream that ended before any content.
local function ended_held(x, held)
    if not x:whole() then
        return x:ended_badly()
    end
    local facts = x:counted()
    if TEXT[x.wire] and band(x.saw, SAW.reasoning) == 0 then
        facts.output = ""
    end
    x.result = held
    return x.call:success(facts)
end


-- Reads an answer until its first content or its end. The decision after it;
-- nil where it was passed on.
function _M.hold(x)
    x.scanner = fivegates.sse { wire = x.wire }
    local held, size = {}, 0
    while true do
        local chunk, err, decision = x:wait("read")
        if decision then
            return decision
        elseif not chunk then
            if err == "end" then
                return ended_held(x, concat(held))
            end
            return x:broke("stream", err)
        end
        local saw = x:scan(chunk)
        if band(saw, SAW.error) ~= 0 then
            -- Content that came with it is shown to nobody.
            x:tell(band(saw, bnot(CONTENT)), chunk)
            return x:ended_badly()
        end
        x:tell(saw, chunk)
        held[#held + 1] = chunk
        size = size + #chunk
        local full = size > HELD_MAX
        if full and band(x.saw, bor(CONTENT, SAW.reasoning)) == 0 then
            return x:broke("stream", "invalid http response: too long before "
                           .. "its first content")
        elseif full or band(x.saw, CONTENT) ~= 0 then
            if band(x.saw, SAW.token) == 0 then
                x.call:event("token", 1)  -- given away: no way to take it back
            end
            pass(x, concat(held))
            return nil
        end
        decision = x:due() and x:look()
        if decision then
            return decision
        end
    end
end


return _M
