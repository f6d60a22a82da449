-- What a whole answer says of itself, for call:success(): its text, tool
-- calls and finish reason. Usage is the scanner's.

local json = require "fivegates.resty.json"

local get = json.get
local list = json.list
local concat = table.concat
local ipairs = ipairs
local type = type


local _M = {}

-- The APIs' own words for why an answer ended.
local FINISH = {
    stop = "stop", end_turn = "stop", stop_sequence = "stop",
    completed = "stop", length = "length", max_tokens = "length",
    max_output_tokens = "length", incomplete = "length",
    model_context_window_exceeded = "length", tool_calls = "tool_calls",
    tool_use = "tool_calls", function_call = "tool_calls",
    content_filter = "content_filter", refusal = "refusal", error = "error",
    failed = "error", pause_turn = "pause", pause = "pause",
}
local CALLS_MAX = 4096


local function text(value)
    return type(value) == "string" and value or nil
end


-- The input of a tool call, an object, as it stands in the answer's text: made
-- anew it would lose numbers and turn empty lists into objects.
local function input_of(body, number)
    local content = json.member(body, "content")
    local block = content and json.elements(content)[number]
    return block and json.member(block, "input")
end


-- Text and tool calls of a content or output list, into parts and calls; body:
-- the answer's text.
local function blocks(content, parts, calls, body)
    for i = 1, #content do
        local block = content[i]
        local kind = get(block, "type")
        if kind == "text" or kind == "output_text" then
            parts[#parts + 1] = text(get(block, "text")) or ""
        elseif kind == "message" then
            blocks(list(block, "content"), parts, calls, body)
        elseif kind == "tool_use" or kind == "function_call" then
            calls[#calls + 1] = {
                id = text(get(block, "id")) or text(get(block, "call_id")),
                name = text(get(block, "name")),
                arguments = kind == "tool_use" and input_of(body, i)
                            or text(get(block, "arguments")),
            }
        elseif kind ~= "thinking" and kind ~= "redacted_thinking"
               and kind ~= "reasoning" then
            parts.other = true
        end
    end
end


local function of_chat(answer, out)
    local message = get(answer, "choices", 1, "message")
    local calls = {}
    for _, one in ipairs(list(message, "tool_calls")) do
        calls[#calls + 1] = {
            id = text(get(one, "id")), name = text(get(one, "function", "name")),
            arguments = text(get(one, "function", "arguments")) }
    end
    out.output = text(get(message, "content"))
    if not out.output and #calls == 0 and get(message, "audio") == nil then
        out.output = ""  -- an answer without content is empty, not unknown
    end
    local refusal = get(message, "refusal")
    return calls, refusal ~= nil and refusal ~= "" and "refusal"
                  or get(answer, "choices", 1, "finish_reason")
end


local function of_blocks(answer, key, body, out)
    local parts, calls = {}, {}
    blocks(list(answer, key), parts, calls, body)
    if #parts > 0 then
        out.output = concat(parts)
    elseif key == "content" and #calls == 0 and not parts.other then
        out.output = ""  -- no block, or only thoughts
    end
    if key == "content" then
        return calls, get(answer, "stop_reason")
    end
    return calls, get(answer, "incomplete_details", "reason")
                  or (#calls > 0 and "tool_calls" or get(answer, "status"))
end


-- Adds to `out` what an answer of an API tells: decoded, and its text.
function _M.answer(wire, answer, body, out)
    local calls, reason
    if wire == "chat" then
        calls, reason = of_chat(answer, out)
    else
        calls, reason = of_blocks(answer, wire == "messages" and "content"
                                  or "output", body, out)
    end
    if reason ~= nil then
        out.finish_reason = FINISH[reason] or "other"
    end
    if #calls > 0 and #calls <= CALLS_MAX then
        out.tool_calls = calls
    end
    return out
end


-- Does a decoded body answer the request? What is in it the engine judges.
function _M.answers(wire, answer)
    return type(answer) == "table"
           and (wire ~= "chat" or #list(answer, "choices") > 0)
end


return _M
