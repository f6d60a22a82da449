-- How an expectation of a vector is compared with an answer.

local json = require "json"

local M = {}

local function same(want, got)
    if type(want) ~= type(got) or want == json.null or got == json.null then
        return want == got
    elseif type(want) ~= "table" then
        return want == got
    elseif json.is_list(want) ~= json.is_list(got) then
        return false
    elseif json.is_list(want) then
        if json.len(want) ~= json.len(got) then
            return false
        end
        for i = 1, json.len(want) do
            if not same(want[i], got[i]) then
                return false
            end
        end
        return true
    end
    if #json.keys(want) ~= #json.keys(got) then
        return false
    end
    for _, key in ipairs(json.keys(want)) do
        if got[key] == nil or not same(want[key], got[key]) then
            return false
        end
    end
    return true
end

-- A value, a range [low, high] of a number, {"not": x} or {"in": [x, ...]}.
function M.matches(want, got)
    if json.is_object(want) and #json.keys(want) == 1 then
        if want["not"] ~= nil then
            return not M.matches(want["not"], got)
        elseif json.is_list(want["in"]) then
            for i = 1, json.len(want["in"]) do
                if M.matches(want["in"][i], got) then
                    return true
                end
            end
            return false
        end
    end
    if json.is_list(want) and type(got) == "number" then
        return json.len(want) == 2 and type(want[1]) == "number"
               and type(want[2]) == "number" and want[1] <= got
               and got <= want[2]
    end
    return same(want, got)
end

-- The member named, or the one at a dotted path ("rejected.0.route"); nil.
function M.find(object, path)
    if object[path] ~= nil then
        return object[path]
    end
    local at = object
    for key in path:gmatch("[^.]+") do
        if json.is_list(at) then
            at = at[(tonumber(key) or -1) + 1]
        elseif json.is_object(at) then
            at = at[key]
        else
            return nil
        end
        if at == nil then
            return nil
        end
    end
    return at
end

return M
