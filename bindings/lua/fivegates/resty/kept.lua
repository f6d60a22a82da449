-- The text of an answer that is kept for the ladder's `cached`. None is kept of an
-- answer that is not text alone, or did not come to its own end: no calls of
-- tools (later they would act again), no other choices.

local json = require "fivegates.resty.json"

local get = json.get
local list = json.list
local concat = table.concat
local find = string.find
local gmatch = string.gmatch
local match = string.match
local type = type


local _M = {}

local ENDS = { end_turn = true, stop_sequence = true }
local NO_TEXT = { thinking = true, redacted_thinking = true }  -- and no act


local function text_or_nil(text, ended)
    return ended and type(text) == "string" and text ~= "" and text or nil
end


-- ---- whole answers

local WHOLE = {}


function WHOLE.chat(answer)
    local choices = list(answer, "choices")
    local message = get(choices, 1, "message")
    if #choices ~= 1 or #list(message, "tool_calls") > 0
       or get(message, "function_call") or get(message, "refusal") then
        return nil
    end
    return text_or_nil(get(message, "content"),
                       get(choices, 1, "finish_reason") == "stop")
end


function WHOLE.messages(answer)
    local blocks, texts = list(answer, "content"), {}
    for i = 1, #blocks do
        local kind = get(blocks[i], "type")
        if kind == "text" then
            texts[#texts + 1] = get(blocks[i], "text") or ""
        elseif not NO_TEXT[kind or ""] then
            return nil
        end
    end
    return text_or_nil(concat(texts), ENDS[get(answer, "stop_reason") or ""])
end


function WHOLE.responses(answer)
    local items, texts = list(answer, "output"), {}
    for i = 1, #items do
        local kind = get(items[i], "type")
        local parts = kind == "message" and list(items[i], "content") or {}
        if kind ~= "message" and kind ~= "reasoning" then
            return nil
        end
        for k = 1, #parts do
            if get(parts[k], "type") ~= "output_text" then
                return nil
            end
            texts[#texts + 1] = get(parts[k], "text") or ""
        end
    end
    return text_or_nil(concat(texts), get(answer, "status") == "completed")
end


-- ---- streams, event by event

-- Each adds to found.texts; found.ended: the answer's own end came; false: it is
-- more than text.
local EVENT = {}


function EVENT.chat(event, found)
    local choices = list(event, "choices")
    for i = 1, #choices do
        local delta = get(choices, i, "delta")
        local index = get(choices, i, "index")
        if (index ~= nil and index ~= 0) or #list(delta, "tool_calls") > 0
           or get(delta, "function_call") or get(delta, "refusal") then
            return false
        end
        local text = get(delta, "content")
        found.texts[#found.texts + 1] = type(text) == "string" and text or nil
        local reason = get(choices, i, "finish_reason")
        found.ended = found.ended or reason == "stop"
        if reason and reason ~= "stop" then
            return false
        end
    end
    return true
end


function EVENT.messages(event, found)
    local kind = get(event, "type")
    if kind == "content_block_start" then
        local block = get(event, "content_block", "type") or ""
        return block == "text" or NO_TEXT[block] or false
    elseif kind == "content_block_delta"
           and get(event, "delta", "type") == "text_delta" then
        found.texts[#found.texts + 1] = get(event, "delta", "text")
    elseif kind == "message_delta" then
        found.ended = ENDS[get(event, "delta", "stop_reason") or ""]
    end
    return true
end


function EVENT.responses(event, found)
    if get(event, "type") == "response.completed" then
        found.texts = { WHOLE.responses(get(event, "response")) }
        found.ended = true
    end
    return true
end


-- The text of an answer's body, whole or as the events of a stream; nil: it is
-- not kept.
function _M.text(wire, body, streamed)
    if not streamed then
        local answer = json.decode(body)
        return type(answer) == "table" and WHOLE[wire](answer) or nil
    end
    local found = { texts = {} }
    for line in gmatch(body, "[^\r\n]+") do
        local data = match(line, "^data: ?(.*)$")
        if data and find(data, "^{") then
            local event = json.decode(data)
            if not event or not EVENT[wire](event, found) then
                return nil
            end
        end
    end
    return text_or_nil(concat(found.texts), found.ended)
end


return _M
