-- The edits an attempt makes to the request: the model, and what the engine
-- asks for (max_tokens, drop_tools, no_thinking).

local json = require "fivegates.resty.json"

local get = json.get
local concat = table.concat
local tostring = tostring
local type = type
local next = next


local _M = {}

local LIMITS = { "max_completion_tokens", "max_output_tokens", "max_tokens" }
local THINKING = { "thinking", "reasoning", "reasoning_effort" }
local LIMIT_NAME = { responses = "max_output_tokens" }  -- else max_tokens


-- A tool's name in any of the APIs, or nil for one that has none.
function _M.tool_name(tool)
    local name = get(tool, "function", "name") or get(tool, "name")
    return type(name) == "string" and name ~= "" and name or nil
end


local function limit_tokens(request, limit, to)
    local found = false
    for i = 1, #LIMITS do
        if request.body[LIMITS[i]] ~= nil then
            to[LIMITS[i]] = tostring(limit)
            found = true
        end
    end
    if not found then
        to[LIMIT_NAME[request.wire] or "max_tokens"] = tostring(limit)
    end
end


local function drop_tools(request, drops, to)
    local body = request.body
    local tools = json.list(body, "tools")
    if #tools == 0 then
        return
    end
    local texts
    for i = 1, #request.members do
        if request.members[i].name == "tools" then
            texts = json.elements(request.members[i].value)
        end
    end
    local kept = {}
    for i = 1, #tools do
        if not drops(_M.tool_name(tools[i]) or "") then
            kept[#kept + 1] = texts[i]
        end
    end
    to.tools = #kept > 0 and "[" .. concat(kept, ",") .. "]" or false
    local choice = get(body, "tool_choice")
    if #kept == 0 or (type(choice) == "table"
                      and drops(_M.tool_name(choice) or "")) then
        to.tool_choice = false
    end
    if #kept == 0 then
        to.parallel_tool_calls = false
    end
end


-- The body as an attempt sends it; the very text where nothing changes.
-- model: the route's, or nil; changes: {max_tokens = n, drop_tools = true,
-- no_thinking = true}; drops(name): is this tool taken out?
function _M.apply(request, model, changes, drops)
    local to = {}
    if model and request.body.model ~= model then
        to.model = json.encode(model)
    end
    if changes.max_tokens then
        limit_tokens(request, changes.max_tokens, to)
    end
    if changes.drop_tools then
        drop_tools(request, drops, to)
    end
    if changes.no_thinking then
        for i = 1, #THINKING do
            to[THINKING[i]] = false
        end
    end
    if next(to) == nil then
        return request.text
    end
    return json.edited(request.members, to)
end


return _M
