-- A shorter prompt for the ladder's `compact`: the oldest turns left out. The
-- same rules as in Python (fivegates/compact.py), which says what they are:
-- turns go whole, and what must stay is never touched.

local json = require "fivegates.resty.json"

local get = json.get
local list = json.list
local ceil = math.ceil
local floor = math.floor
local max = math.max
local find = string.find
local concat = table.concat
local next = next
local type = type


local _M = {}

-- Where each API has its turns.
local TURNS = { "contents", "messages", "input" }
-- The server has more of the prompt than the request: nobody here knows how much.
local ELSEWHERE = { "previous_response_id", "conversation", "cachedContent",
                    "prompt" }
-- The estimate, which the text's own spelling does not change: bytes for a token
-- of text, tokens of an image or another attachment.
local BYTES_PER_TOKEN = 4
local ATTACHMENT_TOKENS = 1000
local ATTACHMENTS = {
    image = true, image_url = true, input_image = true, file = true,
    input_file = true, document = true, input_audio = true, video_url = true,
}
local HOLDERS = { url = true, image_url = true, data = true, file_data = true }
local LONG = 2000  -- bytes; a shorter text is a text
-- Bytes of what stands around a value: quotes, commas, braces; and of a number.
local QUOTES, COMMA, BRACES, WORD = 3, 1, 2, 5
-- Members that join a call of a tool, its approval and its result.
local LINKS = { "id", "call_id", "tool_call_id", "tool_use_id",
                "approval_request_id" }


-- ---- size

-- Is a member what an API takes base64 in?
function _M.is_base64(name, value)
    if type(value) ~= "string" or #value <= LONG or not HOLDERS[name] then
        return false
    end
    local _, head = find(value, "^data:[^,]*;base64,")
    return not find(value, "[^%w+/=_-]", (head or 0) + 1)
end


local function is_attachment(value)
    return ATTACHMENTS[value.type] or value.inlineData ~= nil
           or value.fileData ~= nil
end


-- Bytes of a value without its attachments, and how many those are. inside: it
-- is a part of one, which is counted.
local function size_of(value, name, inside)
    if type(value) == "string" then
        if _M.is_base64(name, value) then
            return QUOTES, inside and 0 or 1
        end
        return #value + QUOTES, 0
    elseif type(value) ~= "table" then
        return WORD, 0
    end
    local size, count = BRACES, 0
    if #value > 0 then  -- a list
        for i = 1, #value do
            local inner, more = size_of(value[i], name, inside)
            size, count = size + inner + COMMA, count + more
        end
        return size, count
    end
    if not inside and is_attachment(value) then
        inside, count = true, 1
    end
    for key, one in next, value do
        local inner, more = size_of(one, key, inside)
        size = size + inner + #key + QUOTES + COMMA
        count = count + more
    end
    return size, count
end


-- Tokens of a decoded body, roughly.
function _M.estimate(body)
    local size, count = size_of(body, "", false)
    return ceil(size / BYTES_PER_TOKEN) + count * ATTACHMENT_TOKENS
end


-- ---- turns

local function parts_of(turn)
    local found = list(turn, "content")
    return #found > 0 and found or list(turn, "parts")
end


local function is_result(part)
    if type(part) ~= "table" then
        return false
    end
    local kind = part.type
    return type(kind) == "string" and find(kind, "tool_result$") ~= nil
           or part.functionResponse ~= nil
end


-- "user": what the user says; "stays": not part of the talk; else "other".
local function kind_of(turn)
    local role, kind = get(turn, "role"), get(turn, "type")
    if role == "system" or role == "developer" or kind == "compaction" then
        return "stays"
    elseif role == nil and turn.parts ~= nil then
        role = "user"
    end
    if role ~= "user" or (kind ~= nil and kind ~= "message") then
        return "other"
    end
    local parts = parts_of(turn)
    for i = 1, #parts do
        if is_result(parts[i]) then
            return "other"
        end
    end
    return "user"
end


local function add_links(value, found)
    if type(value) ~= "table" then
        return
    end
    for i = 1, #LINKS do
        local link = value[LINKS[i]]
        if type(link) == "string" then
            found[#found + 1] = link
        end
    end
end


-- What joins a turn to others: the ids of calls.
local function links_of(turn)
    local found = {}
    local function add(value)
        if type(value) == "table" then
            add_links(value, found)
            add_links(value.functionCall, found)
            add_links(value.functionResponse, found)
        end
    end
    add(turn)
    for _, all in next, { parts_of(turn), list(turn, "tool_calls") } do
        for i = 1, #all do
            add(all[i])
        end
    end
    return found
end


local function holds_compaction(turn)
    local parts = parts_of(turn)
    for i = 1, #parts do
        if get(parts[i], "type") == "compaction" then
            return true
        end
    end
    return false
end


-- Where the talk may begin instead: with words of the user's, behind others of
-- the talk, and with no call on one side and its result on the other.
local function cuts_of(turns)
    local links, last = {}, {}
    for i = 1, #turns do
        links[i] = links_of(turns[i])
        for _, link in next, links[i] do
            last[link] = i
        end
    end
    local cuts, before, open_until = {}, "stays", 0
    for i = 1, #turns do
        local kind = kind_of(turns[i])
        if kind == "user" and before == "other" and open_until < i then
            cuts[#cuts + 1] = i
        end
        if kind ~= "stays" then
            before = kind
        end
        for _, link in next, links[i] do
            open_until = max(open_until, last[link])
        end
        if holds_compaction(turns[i]) then
            break  -- it holds what went before
        end
    end
    return cuts
end


-- Which turns of a decoded body may stay so that it has no more than `tokens`:
-- the name of their member, and for each whether it stays. nil, nil: all of
-- them, it fits. nil, why: not to be had without touching what must stay.
-- count(body): its tokens; nil: estimate().
function _M.kept(body, tokens, count)
    count = count or _M.estimate
    for i = 1, #ELSEWHERE do
        local there = get(body, ELSEWHERE[i])
        if there and there ~= "" and (type(there) ~= "table" or next(there)) then
            return nil, "the server keeps a part of the prompt"
        end
    end
    if count(body) <= tokens then
        return nil
    end
    local name, turns
    for i = 1, #TURNS do
        turns = list(body, TURNS[i])
        if #turns > 0 then
            name = TURNS[i]
            break
        end
    end
    for i = 1, #turns do
        if type(turns[i]) ~= "table" or get(turns[i], "type") == "item_reference" then
            return nil, "a turn is none"
        end
    end
    local function left(cut)
        local kept = {}
        for i = 1, #turns do
            kept[i] = i >= cut or kind_of(turns[i]) == "stays"
        end
        return kept
    end
    local function tokens_of(cut)
        local kept, shorter, some = left(cut), {}, {}
        for key, value in next, body do
            shorter[key] = value
        end
        for i = 1, #turns do
            if kept[i] then
                some[#some + 1] = turns[i]
            end
        end
        shorter[name] = some
        return count(shorter)
    end
    local cuts = cuts_of(turns)
    local low, high = 1, #cuts + 1
    while low < high do  -- the first cut that is enough
        local middle = floor((low + high) / 2)
        if tokens_of(cuts[middle]) <= tokens then
            high = middle
        else
            low = middle + 1
        end
    end
    if low > #cuts then
        return nil, "what must stay is too long"
    end
    return name, left(cuts[low])
end


-- The text of the member with the turns that stay; texts: those of its elements.
function _M.text(texts, kept)
    local some = {}
    for i = 1, #texts do
        if kept[i] then
            some[#some + 1] = texts[i]
        end
    end
    return "[" .. concat(some, ",") .. "]"
end


return _M
