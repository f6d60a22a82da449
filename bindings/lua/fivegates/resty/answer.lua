-- What the gateway says itself: a text of the ladder in the form of the API,
-- and refusals as the API's own errors. Built as text, for the decoder's
-- tables know no empty list.

local json = require "fivegates.resty.json"

local encode = json.encode
local concat = table.concat
local ceil = math.ceil
local format = string.format
local match = string.match
local ngx = ngx


local _M = {}


local function event(data)
    local kind = match(data, '^{"type":"([%w_.]+)"')
    return (kind and "event: " .. kind .. "\n" or "") .. "data: " .. data .. "\n\n"
end


-- ---- a text as an answer

local function chat(id, model, text, streamed)
    local head = format('{"id":"%s","created":%d,"model":"%s"', id, ngx.time(),
                        model)
    if not streamed then
        return head .. ',"object":"chat.completion","choices":[{"index":0,'
               .. '"finish_reason":"stop","message":{"role":"assistant",'
               .. '"content":' .. text .. '}}],"usage":{"prompt_tokens":0,'
               .. '"completion_tokens":0,"total_tokens":0}}'
    end
    head = head .. ',"object":"chat.completion.chunk","choices":[{"index":0,'
    return event(head .. '"delta":{"role":"assistant","content":' .. text
                 .. '},"finish_reason":null}]}')
           .. event(head .. '"delta":{},"finish_reason":"stop"}]}')
           .. "data: [DONE]\n\n"
end


local function messages(id, model, text, streamed)
    local head = format('"id":"%s","type":"message","role":"assistant",'
                        .. '"model":"%s","stop_sequence":null,"usage":'
                        .. '{"input_tokens":0,"output_tokens":0}', id, model)
    if not streamed then
        return "{" .. head .. ',"stop_reason":"end_turn","content":[{"type":'
               .. '"text","text":' .. text .. "}]}"
    end
    return event('{"type":"message_start","message":{' .. head
                 .. ',"stop_reason":null,"content":[]}}')
           .. event('{"type":"content_block_start","index":0,'
                    .. '"content_block":{"type":"text","text":""}}')
           .. event('{"type":"content_block_delta","index":0,"delta":'
                    .. '{"type":"text_delta","text":' .. text .. "}}")
           .. event '{"type":"content_block_stop","index":0}'
           .. event('{"type":"message_delta","usage":{"output_tokens":0},'
                    .. '"delta":{"stop_reason":"end_turn","stop_sequence":null}}')
           .. event '{"type":"message_stop"}'
end


local function responses(id, model, text, streamed)
    local item_id = '"' .. id .. '-message"'
    local part = '{"type":"output_text","text":' .. text .. ',"annotations":[]}'
    local function item(status, content)
        return '{"id":' .. item_id .. ',"type":"message","role":"assistant",'
               .. '"status":"' .. status .. '","content":[' .. content .. "]}"
    end
    local function whole(status, output, usage)
        return format('{"id":"%s","object":"response","created_at":%d,'
            .. '"model":"%s","status":"%s","output":[%s],"error":null,'
            .. '"incomplete_details":null,"instructions":null,"metadata":{},'
            .. '"parallel_tool_calls":true,"temperature":null,"tool_choice":'
            .. '"auto","tools":[],"top_p":null,"usage":%s}', id, ngx.time(),
            model, status, output, usage)
    end
    local done = item("completed", part)
    local full = whole("completed", done, '{"input_tokens":0,"output_tokens":0,'
        .. '"total_tokens":0,"input_tokens_details":{"cached_tokens":0},'
        .. '"output_tokens_details":{"reasoning_tokens":0}}')
    if not streamed then
        return full
    end
    local where = ',"item_id":' .. item_id .. ',"output_index":0,"content_index":0'
    local all = {
        '{"type":"response.created","response":'
            .. whole("in_progress", "", "null"),
        '{"type":"response.output_item.added","output_index":0,"item":'
            .. item("in_progress", ""),
        '{"type":"response.content_part.added"' .. where
            .. ',"part":{"type":"output_text","text":"","annotations":[]}',
        '{"type":"response.output_text.delta"' .. where .. ',"logprobs":[],'
            .. '"delta":' .. text,
        '{"type":"response.output_text.done"' .. where .. ',"logprobs":[],'
            .. '"text":' .. text,
        '{"type":"response.content_part.done"' .. where .. ',"part":' .. part,
        '{"type":"response.output_item.done","output_index":0,"item":' .. done,
        '{"type":"response.completed","response":' .. full,
    }
    for i = 1, #all do
        all[i] = event(all[i] .. ',"sequence_number":' .. i - 1 .. "}")
    end
    return concat(all)
end


local MAKE = { chat = chat, messages = messages, responses = responses }


-- A body with one text; its model is "fivegates/<step>".
function _M.text(wire, text, step, streamed)
    return MAKE[wire]("fivegates-" .. step, "fivegates/" .. step, encode(text),
                      streamed)
end


-- ---- errors

-- An error's body in the form of an API. code: one word; message: for people.
function _M.error_body(wire, code, message)
    if wire == "messages" then
        return '{"type":"error","error":{"type":' .. encode(code)
               .. ',"message":' .. encode(message) .. "}}"
    end
    return '{"error":{"message":' .. encode(message) .. ',"type":"fivegates",'
           .. '"param":null,"code":' .. encode(code) .. "}}"
end


-- The same as an event of a stream that has begun.
function _M.error_event(wire, code, message)
    local body = _M.error_body(wire, code, message)
    if wire == "responses" then
        body = '{"type":"error","code":' .. encode(code) .. ',"message":'
               .. encode(message) .. ',"param":null,"sequence_number":0}'
    end
    return event(body)
end


-- What a decision says, in words an operator knows; routes are not named.
function _M.reason_text(decision)
    local parts = { decision.reason }
    local function add(name, word)
        if word and word ~= "none" and word ~= "unknown" then
            parts[#parts + 1] = name .. word
        end
    end
    add("", decision.kind)
    add("repair ", decision.repair)
    add("look-up ", decision.lookup)
    local rejected = decision.rejected
    for i = 1, #rejected do
        add("not elsewhere: ", rejected[i].why)
    end
    return concat(parts, ", ")
end


local function send(status, wire, code, message)
    local body = _M.error_body(wire, code, message)
    ngx.status = status
    ngx.header["content-type"] = "application/json"
    ngx.header["content-length"] = #body
    ngx.print(body)
end


-- Refuses a request that was no call: {status, code, message, wire}.
function _M.bad_request(refusal)
    ngx.header["x-should-retry"] = "false"
    ngx.header["x-fivegates-reason"] = refusal.code
    send(refusal.status, refusal.wire, refusal.code,
         "fivegates: " .. refusal.message)
end


-- Ends a call that the engine refused, before anything was shown. last: the
-- error answer of the server where the request itself was at fault, {status,
-- body}: who asked should see what to change. Of other faults, of keys and
-- accounts, the client learns the reason's word alone.
function _M.refuse(wire, decision, last)
    local header = ngx.header
    header["x-fivegates-reason"] = decision.reason
    header["x-fivegates-action"] = decision.action
    if not decision.hint_should_retry then
        header["x-should-retry"] = "false"
    end
    local wait = decision.hint_retry_after_ms
    if wait == 0 and decision.action == "queue" then
        wait = decision.wait_ms
    end
    if wait > 0 then
        header["retry-after"] = ceil(wait / 1000)
    end
    if last then
        ngx.status = last.status
        header["content-type"] = "application/json"
        header["content-length"] = #last.body
        ngx.print(last.body)
        return
    end
    local status = decision.hint_status
    send(status ~= 0 and status or 503, wire, decision.reason,
         "fivegates: " .. _M.reason_text(decision))
end


return _M
