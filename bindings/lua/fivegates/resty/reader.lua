-- A client that reads slowly holds back what its route would give: that is no
-- measure of the route, and no silence of it. Without this a few clients that
-- stop reading would look like a provider that has come to a stop, to all
-- processes on the region.

local next = next
local setmetatable = setmetatable


local _M = {}

local SLOW_MS = 100  -- a write that takes longer waits for the client

-- Exchanges of this worker whose write is under way. One whose request nginx
-- has dropped without a word is not held by it.
local writing = setmetatable({}, { __mode = "k" })


-- Content that has no speed: it renews the attempt's clocks, and the text that
-- follows is not compared with the text before.
function _M.unmeasured(x)
    x.call:event("reasoning", nil, x.number)
end


function _M.begins(x)
    x.writing_since = x:now()
    writing[x] = true
end


-- The write is over. From the first slow one on, what comes of the attempt is
-- not measured: what had piled up comes at once.
function _M.ends(x)
    writing[x] = nil
    if not x.over and x:now() - x.writing_since > SLOW_MS then
        x.no_speed = true
        _M.unmeasured(x)
    end
end


-- In each worker's timer. An answer may take its total time, however slowly it
-- is read; then its client counts as gone.
function _M.look(now_ms)
    for x in next, writing do
        if x.over then
            writing[x] = nil
        elseif now_ms >= x.started + x.total_ms then
            x:left()
        elseif now_ms - x.writing_since > SLOW_MS then
            _M.unmeasured(x)
        end
    end
end


return _M
