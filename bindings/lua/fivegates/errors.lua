-- What can go wrong. A caller's mistake is raised, with the caller's line;
-- bad data from outside (a card, a region file, a saved call) is `nil, err`.
-- A refusal is neither: it is a decision.

local find = string.find
local format = string.format
local getinfo = debug.getinfo
local setmetatable = setmetatable
local tostring = tostring
local error = error


local _M = {}


-- The library's own words for its results, as the vectors and Python have them.
local RESULTS = {
    [-101] = "arg", [-102] = "state", [-103] = "abi", [-201] = "syntax",
    [-202] = "range", [-203] = "contract", [-204] = "region", [-205] = "full",
    [-501] = "nomem",
}
local TEXTS = {
    arg = "an id or value is outside its range, or now_ms is not the region's "
        .. "monotonic clock",
    state = "the call has ended, was never begun, or belongs to another engine",
    abi = "the library is of another version",
    region = "the region cannot be used",
    full = "no free slot or record is left in the region; make it with more",
    nomem = "no memory",
}


-- err of `nil, err`: code, message and, of a card, path, line, column. As a
-- string it is one line, so that assert() and a log show all of it.
local Error = {}
Error.__index = Error


function Error.__tostring(err)
    local place = ""
    if err.line and err.line > 0 then
        place = format("%d:%d: ", err.line, err.column)
    end
    if err.path and err.path ~= "" then
        place = place .. err.path .. ": "
    end
    return format("fivegates: %s%s [%s]", place, err.message, err.code)
end


function Error.__concat(a, b)
    return tostring(a) .. tostring(b)
end


function _M.new(code, message, path, line, column)
    return setmetatable({ code = code, message = message, path = path,
                          line = line, column = column }, Error)
end


function _M.result(rc)
    return RESULTS[rc] or tostring(rc)
end


-- This package's folder, as sources are named; nothing where there is none.
local HERE = getinfo(1, "S").source:match("^(@.*[/\\])") or "\0"


-- Raises with the line of whoever called into this package: the first one
-- outside of its files.
function _M.raise(message)
    local level = 2
    while true do
        local info = getinfo(level, "S")
        if not info then
            level = 1
            break
        end
        if info.what ~= "C" and find(info.source, HERE, 1, true) ~= 1 then
            break
        end
        level = level + 1
    end
    -- Not a tail call: the levels count from this function.
    error("fivegates: " .. message, level)
end


-- What a negative result of the library means for the caller of `what`:
-- raised when it is the caller's mistake, else `nil, err`.
function _M.refused(what, rc)
    local word = RESULTS[rc] or tostring(rc)
    local text = TEXTS[word] or "error"
    if rc > -200 then
        return _M.raise(format("%s: %s [%s]", what, text, word))
    end
    return nil, _M.new(word, what .. ": " .. text)
end


return _M
