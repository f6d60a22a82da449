-- The edits an attempt makes to the request, as its API takes them: the model,
-- and what the engine asks for. The same as in Python (fivegates/edits.py, which
-- says why); tests/rewrites has the cases that both must pass. Where an edit
-- cannot be made so that the API takes it, there is none.

local compact = require "fivegates.resty.compact"
local json = require "fivegates.resty.json"

local get = json.get
local list = json.list
local concat = table.concat
local find = string.find
local floor = math.floor
local max = math.max
local format = string.format
local sub = string.sub
local type = type
local next = next


local _M = {}

local LIMITS = { "max_completion_tokens", "max_output_tokens", "max_tokens" }
-- OpenAI's models that reason refuse max_tokens; others know no other.
local OPENAI = { openai = true, ["azure-openai"] = true }
local RESPONSES_LEAST = 16  -- max_output_tokens below it is refused
local BUDGET_LEAST = 1024  -- thinking.budget_tokens below it is refused
local EFFORT = '"low"'  -- what every model that reasons takes
local EFFORTS_BELOW = { none = true, minimal = true, low = true }
local THOUGHTS = { thinking = true, redacted_thinking = true }
-- Reasons of a decision that say: this model does not take the parameter.
local UNSUPPORTED = { unsupported = true, does_not_fit_features = true,
                      does_not_fit_tools = true }


-- The edits of a decision, for apply(): max_tokens and compact have their
-- numbers, no_thinking is "refused" or "less", drop_tools "all" or "some".
function _M.changes_of(decision)
    local out = {}
    for _, name in next, decision.change do
        out[name] = true
    end
    if out.max_tokens then
        out.max_tokens = decision.max_tokens
    end
    if out.compact then
        out.compact = decision.compact_tokens
    end
    if out.drop_tools then
        out.drop_tools = decision.ladder_step == "without_tools" and "all"
                         or "some"
    end
    if out.no_thinking then
        out.no_thinking = (UNSUPPORTED[decision.reason]
                           or UNSUPPORTED[decision.detail]) and "refused"
                          or "less"
    end
    return out
end


-- A tool's name in any of the APIs, or nil for one that has none.
function _M.tool_name(tool)
    local name = get(tool, "function", "name") or get(tool, "name")
    return type(name) == "string" and name ~= "" and name or nil
end


-- The text of a member of the request; nil where it has none.
local function text_of(request, name)
    for i = 1, #request.members do
        if request.members[i].name == name then
            return request.members[i].value
        end
    end
    return nil
end


-- The texts of a list's elements that pass a test of their values.
local function filtered(texts, values, keeps)
    local kept = {}
    for i = 1, #values do
        if keeps(values[i]) then
            kept[#kept + 1] = texts[i]
        end
    end
    return kept
end


-- An object's text with some members set anew, or taken out (false).
local function set(text, to)
    return json.edited(json.members(text), to)
end


-- The text of a member that is an object; nil where it is none.
local function object_of(request, name)
    local text = text_of(request, name)
    return text and sub(text, 1, 1) == "{" and text or nil
end


-- ---- thinking

-- OpenAI's APIs. Without the parameter a model that reasons does so by its
-- default, which is more than "low".
local function thinks_less(request, refused, to)
    local body = request.body
    if refused then
        to.thinking, to.reasoning, to.reasoning_effort = false, false, false
        local include = list(body, "include")
        if #include > 0 then
            to.include = "[" .. concat(filtered(
                json.elements(text_of(request, "include")), include,
                function(one) return one ~= "reasoning.encrypted_content" end),
                ",") .. "]"
        end
        return
    end
    local effort = get(body, "reasoning_effort")
    if effort and effort ~= "" and not EFFORTS_BELOW[effort] then
        to.reasoning_effort = EFFORT
    end
    local reasoning = object_of(request, "reasoning")
    if reasoning and not EFFORTS_BELOW[get(body, "reasoning", "effort") or ""] then
        to.reasoning = set(reasoning, { max_tokens = false, effort = EFFORT })
    end
    if object_of(request, "thinking") then  -- DeepSeek's and others'
        to.thinking = '{"type":"disabled"}'
    end
end


local function is_no_thought(part)
    return not THOUGHTS[get(part, "type") or ""]
end


local function clears_no_thinking(one)
    local kind = get(one, "type")
    return type(kind) ~= "string" or sub(kind, 1, 14) ~= "clear_thinking"
end


-- Without thinking neither old thoughts nor rules for them are taken. texts:
-- those of the messages. False where nothing would be left of one.
local function claude_thinks_not(request, texts, to)
    to.thinking = false
    local body = request.body
    local edits = list(get(body, "context_management"), "edits")
    if #edits > 0 then
        local text = text_of(request, "context_management")
        local left = filtered(json.elements(json.member(text, "edits")), edits,
                              clears_no_thinking)
        to.context_management = #left > 0
            and set(text, { edits = "[" .. concat(left, ",") .. "]" })
    end
    local messages = list(body, "messages")
    for i = 1, #messages do
        local content = list(messages[i], "content")
        local left = #content > 0 and (not texts.kept or texts.kept[i])
            and filtered(json.elements(json.member(texts[i], "content")),
                         content, is_no_thought)
        if left and #left == 0 then
            return false
        elseif left and #left < #content then
            texts[i] = set(texts[i], { content = "[" .. concat(left, ",") .. "]" })
            texts.changed = true
        end
    end
    return true
end


-- ---- the output limit

local function limit_tokens(request, limit, provider, texts, to)
    local body, wire, found = request.body, request.wire, false
    if wire == "responses" then
        limit = max(limit, RESPONSES_LEAST)
    end
    local text = format("%d", limit)
    for i = 1, #LIMITS do
        if body[LIMITS[i]] ~= nil then
            to[LIMITS[i]] = text
            found = true
        end
    end
    if not found then
        to[wire == "responses" and "max_output_tokens"
           or wire == "chat" and OPENAI[provider] and "max_completion_tokens"
           or "max_tokens"] = text
    end
    local budget = get(body, "thinking", "budget_tokens")
    if wire ~= "messages" or type(budget) ~= "number" or budget < limit
       or to.thinking == false then
        return true
    elseif limit <= BUDGET_LEAST then  -- no budget is below it
        return claude_thinks_not(request, texts, to)
    end
    to.thinking = set(text_of(request, "thinking"), {
        budget_tokens = format("%d", max(BUDGET_LEAST, floor(limit / 2))) })
    return true
end


-- ---- tools

-- The text of a tool choice without the tools that are taken out; false: none.
local function choice_of(request, name, drops)
    local choice = get(request.body, name)
    if choice == nil then
        return false
    end
    local text = text_of(request, name)
    if type(choice) ~= "table" then
        return text
    end
    local inner = type(get(choice, "allowed_tools")) == "table"
    local place = inner and choice.allowed_tools or choice
    local allowed = list(place, "tools")
    if #allowed > 0 then  -- no others than these
        local held = inner and json.member(text, "allowed_tools") or text
        local left = filtered(json.elements(json.member(held, "tools")), allowed,
                              function(one)
            return not drops(_M.tool_name(one) or "")
        end)
        if #left == 0 then
            return '"none"'
        end
        held = set(held, { tools = "[" .. concat(left, ",") .. "]" })
        return inner and set(text, { allowed_tools = held }) or held
    end
    local forced = _M.tool_name(choice)
    return not (forced and drops(forced)) and text
end


-- Do the messages that are kept tell of calls of tools?
local function has_tool_history(body, kept)
    local messages = list(body, "messages")
    for i = 1, #messages do
        local content = (not kept or kept[i]) and list(messages[i], "content")
                        or {}
        for k = 1, #content do
            local kind = get(content[k], "type")
            if type(kind) == "string" and (find(kind, "tool_use$")
                                           or find(kind, "tool_result$")) then
                return true
            end
        end
    end
    return false
end


local function drop_tools(request, drops, every, kept, to)
    local body = request.body
    for name, choice in next, { tools = "tool_choice",
                                functions = "function_call" } do
        local tools = list(body, name)
        local left = #tools > 0 and filtered(
            json.elements(text_of(request, name)), tools, function(tool)
                return not drops(_M.tool_name(tool) or "")
            end)
        if left and #left == 0 and request.wire == "messages"
           and has_tool_history(body, kept) then
            if every then
                return false  -- such a history is refused without tools
            end
            to[choice] = '{"type":"none"}'
        elseif left and #left > 0 then
            to[name] = "[" .. concat(left, ",") .. "]"
            to[choice] = choice_of(request, choice, drops)
        elseif left then
            to[name], to[choice] = false, false
            to.parallel_tool_calls, to.max_tool_calls = false, false
            to.mcp_servers = false
        end
    end
    return true
end


-- ---- all

-- The body as an attempt sends it; the very text where nothing changes; nil where
-- a change cannot be made. model: the route's, or nil; changes: of changes_of();
-- drops(name): is this tool taken out? provider: the route's; count: of
-- compact.kept().
function _M.apply(request, model, changes, drops, provider, count)
    local to = {}
    local kept, name
    if model and request.body.model ~= model then
        to.model = json.encode(model)
    end
    if changes.compact then
        name, kept = compact.kept(request.body, changes.compact, count)
        if not name then
            return nil  -- or the request that was too long, once more
        end
    end
    if changes.drop_tools
       and not drop_tools(request, drops, changes.drop_tools == "all", kept,
                          to) then
        return nil
    end
    local listed = name or "messages"
    local texts = (kept or request.wire == "messages")
                  and #list(request.body, listed) > 0
                  and json.elements(text_of(request, listed)) or {}
    texts.kept = kept
    local fine = true
    if changes.no_thinking and request.wire == "messages" then
        fine = claude_thinks_not(request, texts, to)
    elseif changes.no_thinking then
        thinks_less(request, changes.no_thinking == "refused", to)
    end
    if fine and changes.max_tokens then
        fine = limit_tokens(request, changes.max_tokens, provider, texts, to)
    end
    if not fine then
        return nil
    end
    if kept then
        to[name] = compact.text(texts, kept)
    elseif texts.changed then
        to[listed] = "[" .. concat(texts, ",") .. "]"
    end
    if next(to) == nil then
        return request.text
    end
    return json.edited(request.members, to)
end


return _M
