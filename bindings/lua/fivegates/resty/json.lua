-- JSON of requests and answers. A request is edited in its text: what is not
-- changed goes on byte for byte, with its numbers, order and empty lists.

local cjson = require "cjson"

local byte = string.byte
local find = string.find
local gmatch = string.gmatch
local gsub = string.gsub
local match = string.match
local sub = string.sub
local concat = table.concat
local pcall = pcall
local type = type
local next = next
local select = select


local _M = { null = cjson.null }

local codec = cjson.new()
codec.decode_invalid_numbers(false)

local QUOTE, BACKSLASH, OPEN, CLOSE = 34, 92, 123, 125
local LIST, LIST_END, COMMA = 91, 93, 44


-- The value of a text, or nil where it is none.
function _M.decode(text)
    local ok, value = pcall(codec.decode, text)
    if ok then
        return value
    end
    return nil
end


_M.encode = codec.encode


-- t.a[1].b, through what may be anything; nil where it ends or is null.
function _M.get(value, ...)
    for i = 1, select("#", ...) do
        if type(value) ~= "table" then
            return nil
        end
        value = value[(select(i, ...))]
    end
    if value == cjson.null then
        return nil
    end
    return value
end


-- The list under a key, or an empty one. (The decoder tells no empty list from
-- an empty object.)
function _M.list(value, key)
    local found = _M.get(value, key)
    return type(found) == "table" and found or {}
end


-- ---- what the decoder lets pass

local function is_number(word)
    local whole, rest = match(word, "^%-?(%d+)(.*)$")
    if not whole or find(whole, "^0%d") then
        return false
    end
    rest = gsub(rest, "^%.%d+", "")
    return rest == "" or find(rest, "^[eE][+-]?%d+$") ~= nil
end


-- What a text that the decoder took has that is not JSON: a sentence, or nil.
-- Other readers would refuse it, or read it otherwise.
function _M.flaw(text)
    local at = find(text, "[%z\1-\8\11\12\14-\31]")
    if at then
        return "it has a raw control character at byte " .. at
    end
    local start = 1
    while true do
        local quote = find(text, '"', start, true)
        for word, place in gmatch(sub(text, start, (quote or 0) - 1),
                                  "([%w+.-]+)()") do
            if find(word, "[%d+.-]") and not is_number(word) then
                return "it has a malformed number before byte "
                       .. start + place - 1
            end
        end
        if not quote then
            return nil
        end
        local from = quote
        repeat  -- to the string's end
            from = find(text, '["\\\t\r\n]', from + 1)
            local c = byte(text, from)
            if c == BACKSLASH then
                from = from + 1
            elseif c ~= QUOTE then
                return "it has a raw control character in a string, at byte "
                       .. from
            end
        until c == QUOTE
        start = from + 1
    end
end


-- ---- text that has been decoded before, so it is JSON

local function past_space(text, at)
    return (find(text, "[^ \t\r\n]", at))
end


local function end_of_string(text, at)
    local i = at + 1
    while true do
        local p = find(text, '["\\]', i)
        if byte(text, p) == QUOTE then
            return p
        end
        i = p + 2
    end
end


local function end_of_value(text, at)
    local c = byte(text, at)
    if c == QUOTE then
        return end_of_string(text, at)
    elseif c ~= OPEN and c ~= LIST then
        return (find(text, "[ \t\r\n,%]}]", at) or #text + 1) - 1
    end
    local depth, i = 0, at
    while true do
        local p = find(text, '["%[%]{}]', i)
        c = byte(text, p)
        if c == QUOTE then
            p = end_of_string(text, p)
        elseif c == OPEN or c == LIST then
            depth = depth + 1
        else
            depth = depth - 1
            if depth == 0 then
                return p
            end
        end
        i = p + 1
    end
end


-- The name in a key's text, quotes and all.
local function name_of(raw)
    return find(raw, "\\", 1, true) and codec.decode("[" .. raw .. "]")[1]
           or sub(raw, 2, -2)
end


-- A name that an object has twice, however deep it lies; nil where none has.
-- Two readers would read it differently.
function _M.twice(text)
    local depth, seen, is_key = 0, {}, false  -- seen: by depth; false in a list
    local at = 1
    while true do
        local p = find(text, '["%[%]{},]', at)
        if not p then
            return nil
        end
        local c = byte(text, p)
        if c == QUOTE then
            local last = end_of_string(text, p)
            if is_key then
                local name = name_of(sub(text, p, last))
                if seen[depth][name] then
                    return name
                end
                seen[depth][name], is_key = true, false
            end
            p = last
        elseif c == OPEN or c == LIST then
            depth = depth + 1
            seen[depth] = c == OPEN and {}
            is_key = c == OPEN
        elseif c == COMMA then
            is_key = seen[depth] ~= false
        else
            depth, is_key = depth - 1, false
        end
        at = p + 1
    end
end


-- The texts of an object's members, in order: a list of {name, member, value}.
function _M.members(text)
    local all = {}
    local at = past_space(text, find(text, "{", 1, true) + 1)
    while byte(text, at) ~= CLOSE do
        local key_end = end_of_string(text, at)
        local name = name_of(sub(text, at, key_end))
        local value = past_space(text, past_space(text, key_end + 1) + 1)
        local value_end = end_of_value(text, value)
        all[#all + 1] = { name = name, member = sub(text, at, value_end),
                          value = sub(text, value, value_end) }
        at = past_space(text, value_end + 1)
        if byte(text, at) == COMMA then
            at = past_space(text, at + 1)
        end
    end
    return all
end


-- The texts of a list's elements.
function _M.elements(text)
    local all = {}
    local at = past_space(text, 2)
    while byte(text, at) ~= LIST_END do
        local value_end = end_of_value(text, at)
        all[#all + 1] = sub(text, at, value_end)
        at = past_space(text, value_end + 1)
        if byte(text, at) == COMMA then
            at = past_space(text, at + 1)
        end
    end
    return all
end


-- The text of one member's value in an object's text; nil where there is none.
-- Of several the last counts, as for the decoder.
function _M.member(text, name)
    local all, found = _M.members(text), nil
    for i = 1, #all do
        if all[i].name == name then
            found = all[i].value
        end
    end
    return found
end


-- An object's text with some members set anew or, where `to` has false, taken
-- out. to: {name = text of the value, or false}.
function _M.edited(members, to)
    local parts, left = {}, {}
    for name, value in next, to do
        left[name] = value
    end
    for i = 1, #members do
        local one = members[i]
        local value = to[one.name]
        if value == nil then
            parts[#parts + 1] = one.member
        elseif value then
            parts[#parts + 1] = codec.encode(one.name) .. ":" .. value
        end
        left[one.name] = nil
    end
    for name, value in next, left do
        if value then
            parts[#parts + 1] = codec.encode(name) .. ":" .. value
        end
    end
    return "{" .. concat(parts, ",") .. "}"
end


return _M
