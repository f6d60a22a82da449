-- What the client gets of a call: a route's answer with its labels, an answer
-- of the ladder that needs no send, or a refusal. Functions of an exchange.

local answers = require "fivegates.resty.answer"
local json = require "fivegates.resty.json"

local find = string.find
local gmatch = string.gmatch
local gsub = string.gsub
local lower = string.lower
local match = string.match
local next = next
local ngx = ngx
local ipairs = ipairs
local pcall = pcall
local sub = string.sub
local type = type


local _M = {}

-- Whose fault, where the client is shown the server's own error.
local SHOWN_OWNERS = { request = true, policy = true }
-- Headers of an answer that go on to the client.
local PASSED = {
    ["content-type"] = true, ["x-request-id"] = true, ["request-id"] = true,
    ["openai-processing-ms"] = true, ["openai-version"] = true,
    ["openai-model"] = true, ["x-ratelimit-"] = true,
    ["anthropic-ratelimit-"] = true,
}
local REDACTED = "[redacted]"
local PART_MIN = 12  -- of a key, letters and digits that are no chance
local KEY_MIN = 8  -- what is shorter is no secret, and stands in any text


local function keys_of(x)
    local all = {}
    for _, target in next, x.gateway.targets do
        if target.key and #target.key >= KEY_MIN then
            all[#all + 1] = target.key
        end
    end
    return all
end


-- A text without the keys this gateway holds: a server may repeat what it was
-- asked with.
local function without_keys(x, text)
    for _, key in ipairs(keys_of(x)) do
        if find(text, key, 1, true) then
            text = gsub(text, (gsub(key, "%p", "%%%0")), REDACTED)
        end
    end
    return text
end


-- Does a text still hold a long part of a key: cut, encoded, in other letters?
local function holds_part(x, text)
    text = lower(text)
    for _, key in ipairs(keys_of(x)) do
        for part in gmatch(lower(key), "%w+") do
            if #part >= PART_MIN and find(text, part, 1, true) then
                return true
            end
        end
    end
    return false
end


-- An error body for the client; nil where it is no JSON, or where a key is in
-- it in other letters.
local function shown_body(x, body)
    body = without_keys(x, body)
    local value = json.decode(body)
    local fine, same = pcall(json.encode, value)
    if type(value) ~= "table" or not fine or holds_part(x, same) then
        return nil
    end
    for _, key in ipairs(keys_of(x)) do
        if find(same, sub(json.encode(key), 2, -2), 1, true) then
            return nil
        end
    end
    return body
end


-- Status and headers of an answer that a route gave.
function _M.begin(x, tokens)
    local header = ngx.header
    for _, one in ipairs(x.head.headers) do
        if PASSED[one[1]] or PASSED[match(one[1], "^[%w]+%-ratelimit%-")] then
            local value = without_keys(x, one[2])
            header[one[1]] = not holds_part(x, value) and value or REDACTED
        end
    end
    header["x-fivegates-call"] = x.call:id()
    header["x-fivegates-attempts"] = x.attempts
    if x.target.name ~= x.primary then
        header["x-fivegates-route"] = x.target.name
    end
    if x.step then
        header["x-fivegates-step"] = x.step
    end
    if tokens then
        header["x-fivegates-tokens"] = tokens
    end
    ngx.status = x.head.status
end


-- A whole answer; tokens: what the call spent.
function _M.whole(x, tokens)
    _M.begin(x, tokens)
    ngx.header["content-length"] = #x.result
    ngx.print(x.result)
end


-- The text of a ladder's step that needs no send, and of a kept one its age in
-- seconds, where it is known; nil where there is none.
function _M.text_of(x, decision)
    local gateway, text, age = x.gateway, nil, nil
    if decision.ladder_step == "cached" and gateway.cache then
        text, age = gateway.cache:lookup(x:key(), decision.max_age_s)
    elseif decision.ladder_step == "cached" then
        if gateway.cached then
            text, age = gateway.cached(x.request.body, decision)
        end
    elseif x.request.takes_words then
        text = decision.text
    end
    return type(text) == "string" and text or nil, age
end


function _M.stand_in(x, step, text, age)
    local streamed = x.request.streamed
    local body = answers.text(x.wire, text, step, streamed)
    local header = ngx.header
    header["content-type"] = streamed and "text/event-stream"
                             or "application/json"
    header["content-length"] = #body
    header["x-fivegates-call"] = x.call:id()
    header["x-fivegates-action"] = "degrade"
    header["x-fivegates-step"] = step
    header["age"] = age
    ngx.print(body)
end


function _M.refuse(x, decision, tokens)
    local last, shown = x.last, nil
    if last and SHOWN_OWNERS[decision.owner] and last.status >= 400
       and last.status < 500 then
        local body = shown_body(x, last.body)
        shown = body and { status = last.status, body = body }
    elseif x.keyless and decision.owner == "local" then
        shown = { status = 503, body = answers.error_body(x.wire, "no_key",
            "fivegates: this gateway has no key for the route; its error log "
            .. "says which, and what to set") }
    end
    local header = ngx.header
    header["x-fivegates-call"] = x.call:id()
    header["x-fivegates-attempts"] = x.attempts
    header["x-fivegates-tokens"] = tokens
    answers.refuse(x.wire, decision, shown)
end


return _M
