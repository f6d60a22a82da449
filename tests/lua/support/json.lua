-- JSON as the vectors need it: strict, objects remember the order of their
-- keys and the text they came from, null is a value, lists know their length.

local M = {}

M.null = setmetatable({}, { __tostring = function() return "null" end })

-- Side tables, so that the values stay plain tables the binding takes.
local order = setmetatable({}, { __mode = "k" })   -- object -> its keys
local length = setmetatable({}, { __mode = "k" })  -- list -> its length
local source = setmetatable({}, { __mode = "k" })  -- object -> its text

function M.is_object(value) return type(value) == "table" and order[value] ~= nil end
function M.is_list(value) return type(value) == "table" and length[value] ~= nil end
function M.keys(object) return order[object] end
function M.len(list) return length[list] end
function M.text_of(object) return source[object] end

local function fault(at, what)
    error({ json = ("is not JSON at byte %d: %s"):format(at, what) }, 0)
end

local ESCAPES = { b = "\b", f = "\f", n = "\n", r = "\r", t = "\t",
                  ["\""] = "\"", ["\\"] = "\\", ["/"] = "/" }

local function utf8_of(code)
    if code < 0x80 then
        return string.char(code)
    elseif code < 0x800 then
        return string.char(0xc0 + math.floor(code / 64), 0x80 + code % 64)
    elseif code < 0x10000 then
        return string.char(0xe0 + math.floor(code / 4096),
                           0x80 + math.floor(code / 64) % 64, 0x80 + code % 64)
    end
    return string.char(0xf0 + math.floor(code / 262144),
                       0x80 + math.floor(code / 4096) % 64,
                       0x80 + math.floor(code / 64) % 64, 0x80 + code % 64)
end

local function string_at(text, at)
    local parts, from = {}, at + 1
    while true do
        local stop = text:find("[%c\"\\]", from)
        if not stop then
            fault(at, "a string without an end")
        end
        parts[#parts + 1] = text:sub(from, stop - 1)
        local c = text:sub(stop, stop)
        if c == "\"" then
            return table.concat(parts), stop + 1
        elseif c ~= "\\" then
            if c ~= "\127" then
                fault(stop, "a control character in a string")
            end
            parts[#parts + 1], from = c, stop + 1
        else
            local e = text:sub(stop + 1, stop + 1)
            if e == "u" then
                local hex = text:match("^%x%x%x%x", stop + 2)
                if not hex then
                    fault(stop, "a wrong \\u")
                end
                local code = tonumber(hex, 16)
                from = stop + 6
                local low = code >= 0xd800 and code < 0xdc00
                            and text:match("^\\u([dD][c-fC-F]%x%x)", from)
                if low then
                    code = 0x10000 + (code - 0xd800) * 1024
                           + tonumber(low, 16) - 0xdc00
                    from = from + 6
                end
                -- A half of a pair alone is what it is in Python: "?".
                parts[#parts + 1] = code >= 0xd800 and code < 0xe000 and "?"
                                    or utf8_of(code)
            elseif ESCAPES[e] then
                parts[#parts + 1], from = ESCAPES[e], stop + 2
            else
                fault(stop, "a wrong escape")
            end
        end
    end
end

local value_at

local function skip(text, at)
    return text:find("[^ \t\r\n]", at) or #text + 1
end

local function list_at(text, at)
    local list, n = {}, 0
    local from = skip(text, at + 1)
    if text:sub(from, from) == "]" then
        length[list] = 0
        return list, from + 1
    end
    while true do
        local value
        value, from = value_at(text, from)
        n = n + 1
        list[n] = value
        from = skip(text, from)
        local c = text:sub(from, from)
        if c == "]" then
            length[list] = n
            return list, from + 1
        elseif c ~= "," then
            fault(from, "a list goes on with , or ]")
        end
        from = skip(text, from + 1)
    end
end

local function object_at(text, at)
    local object, keys = {}, {}
    local from = skip(text, at + 1)
    if text:sub(from, from) ~= "}" then
        while true do
            if text:sub(from, from) ~= "\"" then
                fault(from, "a key is a string")
            end
            local key, value
            key, from = string_at(text, from)
            from = skip(text, from)
            if text:sub(from, from) ~= ":" then
                fault(from, "a key is followed by :")
            end
            value, from = value_at(text, skip(text, from + 1))
            if object[key] ~= nil then
                error({ json = ("key %q twice"):format(key) }, 0)
            end
            keys[#keys + 1] = key
            object[key] = value
            from = skip(text, from)
            local c = text:sub(from, from)
            if c == "}" then
                break
            elseif c ~= "," then
                fault(from, "an object goes on with , or }")
            end
            from = skip(text, from + 1)
        end
    end
    order[object] = keys
    source[object] = text:sub(at, from)
    return object, from + 1
end

local WORDS = { ["true"] = true, ["false"] = false, null = M.null }

local depth = 0
function value_at(text, at)
    local c = text:sub(at, at)
    if c == "\"" then
        return string_at(text, at)
    elseif c == "{" or c == "[" then
        depth = depth + 1
        if depth > 200 then
            fault(at, "nested too deeply")
        end
        local value, next_at = (c == "{" and object_at or list_at)(text, at)
        depth = depth - 1
        return value, next_at
    end
    local word = text:match("^%a+", at)
    if word and WORDS[word] ~= nil then
        return WORDS[word], at + #word
    end
    local number = text:match("^-?%d+%.?%d*[eE]?[+-]?%d*", at)
    if not number or number:find("^-?0%d") or number:find("%.$")
       or number:find("%.[eE]") or not tonumber(number) then
        fault(at, "no value")
    end
    return tonumber(number), at + #number
end

-- The value of a text; raises {json = what is wrong}.
function M.decode(text)
    depth = 0
    local value, at = value_at(text, skip(text, 1))
    at = skip(text, at)
    if at <= #text then
        fault(at, "something after the end")
    end
    return value
end

local SHORT = { ["\b"] = "\\b", ["\f"] = "\\f", ["\n"] = "\\n", ["\r"] = "\\r",
                ["\t"] = "\\t", ["\""] = "\\\"", ["\\"] = "\\\\" }

local function quoted(text)
    return "\"" .. text:gsub("[%c\"\\]", function(c)
        return SHORT[c] or c == "\127" and c or ("\\u%04x"):format(c:byte())
    end) .. "\""
end

-- Compact JSON, as the library writes it. A list of {key, value} pairs with
-- `pairs = true` is an object in that order.
function M.encode(value)
    if value == nil or value == M.null then
        return "null"
    elseif type(value) == "string" then
        return quoted(value)
    elseif type(value) == "number" then
        return value == math.floor(value) and ("%.0f"):format(value)
               or ("%.15g"):format(value)
    elseif type(value) ~= "table" then
        return tostring(value)
    end
    local parts = {}
    if value.pairs == true then
        for i = 1, #value do
            parts[i] = quoted(value[i][1]) .. ":" .. M.encode(value[i][2])
        end
        return "{" .. table.concat(parts, ",") .. "}"
    elseif M.is_list(value) then
        for i = 1, M.len(value) do
            parts[i] = M.encode(value[i])
        end
        return "[" .. table.concat(parts, ",") .. "]"
    end
    for i, key in ipairs(M.keys(value)) do
        parts[i] = quoted(key) .. ":" .. M.encode(value[key])
    end
    return "{" .. table.concat(parts, ",") .. "}"
end

-- A copy without nulls, for functions that take nil for them.
function M.plain(value)
    if type(value) ~= "table" then
        return value
    end
    local out = {}
    for key, one in pairs(value) do
        if one ~= M.null then
            out[key] = M.plain(one)
        end
    end
    return out
end

return M
