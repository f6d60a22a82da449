-- The client's request: its API by its path, its body, bounded, and the facts
-- begin() is told. Chat completions, responses (OpenAI), messages (Anthropic).

local compact = require "fivegates.resty.compact"
local edits = require "fivegates.resty.edits"
local json = require "fivegates.resty.json"

local get = json.get
local list = json.list
local floor = math.floor
local max = math.max
local find = string.find
local gmatch = string.gmatch
local match = string.match
local gsub = string.gsub
local sub = string.sub
local open = io.open
local ngx = ngx
local next = next
local setmetatable = setmetatable
local tonumber = tonumber
local tostring = tostring
local type = type


local Request = {}
Request.__index = Request

local _M = {}

-- End of the path, the API, and the path below a base URL.
local PATHS = {
    { "/chat/completions$", "chat", "/chat/completions" },
    { "/responses$", "responses", "/responses" },
    { "/messages$", "messages", "/v1/messages" },
}
local BODY_MAX = 64 * 1048576  -- where client_max_body_size is off
local HEADERS_MAX = 100
local NAME_MAX = 64  -- bytes of it that an error shows
local LANGUAGES_MAX = 256  -- bytes of Accept-Language that are read
local LANGUAGE_MAX = 35  -- bytes of a language tag
local LIMITS = { "max_completion_tokens", "max_output_tokens", "max_tokens" }
local TOKENS_MAX = 4294967295
-- An estimate, as the real count comes with the answer: bytes of JSON for a
-- token of text, and tokens of an image or another long attachment.
local BYTES_PER_TOKEN = 4
local LONG_STRING = 2000
local ATTACHMENT_TOKENS = 1000
local TOOLS_MAX = 128
local RETRIES_MAX = 1000
-- Members that are read here, and how the text of each must begin: a server may
-- take 1 for true, and then another request is made than was weighed.
local BOOLEAN = { "^[tf]", "true or false" }
local NUMBER = { "^[%d-]", "a number" }
local LIST = { "^%[", "a list" }
local KINDS = {
    stream = BOOLEAN, store = BOOLEAN, background = BOOLEAN,
    parallel_tool_calls = BOOLEAN, max_tokens = NUMBER,
    max_completion_tokens = NUMBER, max_output_tokens = NUMBER,
    model = { '^"', "a string" }, messages = LIST, tools = LIST,
}


local function wire_of(path)
    if find(path, "/threads/", 1, true) then
        return nil  -- messages of the Assistants API ask no model
    end
    for i = 1, #PATHS do
        if find(path, PATHS[i][1]) then
            return PATHS[i][2], PATHS[i][3]
        end
    end
    return nil
end


local function read_body()
    ngx.req.read_body()
    local body = ngx.req.get_body_data()
    if body then
        return body
    end
    local path = ngx.req.get_body_file()
    if not path then
        return ""
    end
    local file, err = open(path, "rb")
    if not file then
        return nil, err
    end
    body = file:read(BODY_MAX + 1)
    file:close()
    return body or ""
end


local function refused(status, code, message, wire)
    return nil, { status = status, code = code, message = message, wire = wire }
end


local function is_utf8(text)
    return not find(text, "[\128-\255]") or ngx.re.find(text, "", "uo") ~= nil
end


-- A name of the client's for a sentence; cut between two letters.
local function shortened(name)
    if #name <= NAME_MAX then
        return name
    end
    return (gsub(sub(name, 1, NAME_MAX), "[\192-\255]?[\128-\191]*$", "")) .. "..."
end


-- The request, or nil and {status, code, message, wire}.
function _M.read()
    local wire, path = wire_of(ngx.var.uri)
    if not wire then
        return refused(404, "not_found", "this path asks no model; the gateway "
                       .. "serves /chat/completions, /responses and /messages")
    elseif ngx.req.get_method() ~= "POST" then
        return refused(405, "method_not_allowed", "use POST", wire)
    end
    local headers = ngx.req.get_headers(HEADERS_MAX)
    local encoding = headers["content-encoding"]
    if encoding and encoding ~= "identity" then
        return refused(415, "unsupported_encoding", "send the body without "
                       .. "a content-encoding", wire)
    end
    local text, err = read_body()
    if not text then
        ngx.log(ngx.ERR, "fivegates: the request's body: ", err)
        return refused(500, "internal", "the body could not be read", wire)
    elseif #text > BODY_MAX then
        return refused(413, "request_too_large", "the body is too large", wire)
    end
    local body = json.decode(text)
    if type(body) ~= "table" or not find(text, "^[ \t\r\n]*{") then
        return refused(400, "invalid_json", "the body is not a JSON object",
                       wire)
    end
    local flaw = json.flaw(text)
    if flaw then
        return refused(400, "invalid_json", "the body is not JSON: " .. flaw, wire)
    end
    if not is_utf8(text) then
        return refused(400, "invalid_json", "the body is not UTF-8", wire)
    end
    local twice = json.twice(text)
    if twice then
        return refused(400, "duplicate_key", "the body has a key twice: "
                       .. shortened(twice), wire)
    end
    local members = json.members(text)
    for i = 1, #members do
        local name, value = members[i].name, members[i].value
        local kind = KINDS[name]
        if kind and value ~= "null" and not find(value, kind[1]) then
            return refused(400, "invalid_value", name .. " must be " .. kind[2],
                           wire)
        end
    end
    return setmetatable({
        wire = wire, path = path, text = text, body = body, members = members,
        headers = headers, streamed = body.stream == true,
    }, Request)
end


-- The first value of a header, or nil.
function Request:header(name)
    local value = self.headers[name]
    if type(value) == "table" then
        value = value[1]
    end
    return type(value) == "string" and value or nil
end


-- The language its client likes best, as Accept-Language says: "en-GB"; nil where
-- it says none.
function Request:language()
    local best, liked = nil, 0
    for tag, rest in gmatch(sub(self:header("accept-language") or "", 1,
                                LANGUAGES_MAX), "([%w*-]+)([^,]*)") do
        local q = match(rest, "^%s*;%s*q%s*=%s*([%d.]+)")
        q = q and tonumber(q) or 1
        if q > liked and q <= 1 and #tag <= LANGUAGE_MAX
           and find(tag, "^%a[%w-]*$") then
            best, liked = tag, q
        end
    end
    return best
end


-- ---- facts

local function output_limit(body)
    local most = 0
    for i = 1, #LIMITS do
        local n = body[LIMITS[i]]
        if type(n) == "number" and n > 0 and n <= TOKENS_MAX then
            most = max(most, floor(n))
        end
    end
    return most
end


-- Bytes of a request's attachments, and how many they are.
local function attachments(value)
    local bytes, count = 0, 0
    for name, one in next, value do
        if type(one) == "table" then
            local b, n = attachments(one)
            bytes, count = bytes + b, count + n
        elseif compact.is_base64(name, one) then
            bytes, count = bytes + #one, count + 1
        end
    end
    return bytes, count
end


local function prompt_tokens(self)
    local size, extra = #self.text, 0
    if size > LONG_STRING then
        local bytes, count = attachments(self.body)
        size, extra = size - bytes, count * ATTACHMENT_TOKENS
    end
    return max(1, floor(size / BYTES_PER_TOKEN) + extra)
end


local function some(parts, test)
    for i = 1, #parts do
        if type(parts[i]) == "table" and test(parts[i]) then
            return true
        end
    end
    return false
end


local RESULTS = { function_call_output = true, custom_tool_call_output = true }
local IMAGES = { image = true, image_url = true, input_image = true }


local function answers_tool(turn)
    return turn.role == "tool" or turn.role == "function"
           or RESULTS[turn.type]
           or some(list(turn, "content"), function(part)
               return part.type == "tool_result"
           end)
end


local function has_image(turn)
    return some(list(turn, "content"), function(part)
        return IMAGES[part.type] or false
    end)
end


local function wants_schema(body)
    return get(body, "response_format", "type") == "json_schema"
           or get(body, "output_format", "type") == "json_schema"
           or get(body, "text", "format", "type") == "json_schema"
end


-- Is a sentence an answer: not to who waits for JSON, or for the call of a tool.
local function takes_words(body)
    local choice = get(body, "tool_choice") or get(body, "function_call")
    if wants_schema(body) or get(body, "response_format", "type") == "json_object"
       or get(body, "text", "format", "type") == "json_object"
       or choice == "required" or choice == "any" then
        return false
    elseif type(choice) ~= "table" then
        return true
    elseif get(choice, "type") == "allowed_tools" then
        return (get(choice, "allowed_tools", "mode") or get(choice, "mode"))
               ~= "required"
    end
    return get(choice, "type") == "auto" or get(choice, "type") == "none"
end


-- Is a value there, and not empty?
local function there(value)
    return value ~= nil and value ~= json.null and value ~= false
           and value ~= "" and (type(value) ~= "table" or next(value) ~= nil)
end


local function features(body, turns, tools, schema)
    local last = turns[#turns]
    local found = {
        tools = #tools > 0,
        parallel_tools = body.parallel_tool_calls == true,
        tool_round_trip = some(turns, answers_tool),
        system_prompt = there(body.system) or there(body.instructions)
            or some(turns, function(turn)
                return turn.role == "system" or turn.role == "developer"
            end),
        prefill = get(last, "role") == "assistant",
        json_schema = schema,
        reasoning = there(body.reasoning_effort) or there(body.reasoning)
            or there(body.thinking),
        image = some(turns, has_image),
    }
    local all = {}
    for name, yes in next, found do
        if yes then
            all[#all + 1] = name
        end
    end
    return all
end


-- A tool the provider runs itself, so that its effects are out of sight.
local function runs_on_server(tool, wire)
    local kind = get(tool, "type")
    if kind == nil or kind == "function" or kind == "custom" then
        return false
    end
    kind = tostring(kind)
    return not (wire == "messages"
                and (find(kind, "^bash_") or find(kind, "^text_editor_")
                     or find(kind, "^computer_") or find(kind, "^memory_")))
end


-- What the server keeps, or does by itself, for this request.
local function server_state(self, tools)
    local body = self.body
    if some(tools, function(tool) return runs_on_server(tool, self.wire) end)
       or there(body.mcp_servers) or there(body.container) then
        return "tools"
    elseif self.wire ~= "responses" then
        return there(body.store) and "stored" or nil
    elseif there(body.background) then
        return "background"
    elseif there(body.previous_response_id) or there(body.conversation) then
        return "conversation"
    end
    return body.store ~= false and "stored" or nil
end


local function turns_of(body)
    local turns = list(body, "messages")
    return #turns > 0 and turns or list(body, "input")
end


-- The facts of begin(), as far as the request tells them; nil and a refusal
-- where the engine could not weigh them.
function Request:facts(workflow)
    local body = self.body
    local tools = list(body, "tools")
    local facts = {
        workflow = workflow, prompt_tokens = prompt_tokens(self),
        request_bytes = #self.text, stream = self.streamed,
        server_state = server_state(self, tools),
    }
    local limit = output_limit(body)
    if limit > 0 then
        facts.max_output_tokens = limit
    end
    self.takes_words = takes_words(body)
    facts.features = features(body, turns_of(body), tools, wants_schema(body))
    local names = {}
    for i = 1, #tools do
        names[#names + 1] = edits.tool_name(tools[i])
    end
    if #names > TOOLS_MAX then
        return refused(400, "too_many_tools", "the request has more than "
                       .. TOOLS_MAX .. " tools", self.wire)
    end
    facts.tools = names
    local retries = tonumber(self:header("x-stainless-retry-count"))
    if retries and retries >= 1 and retries <= RETRIES_MAX then
        facts.prior = { attempts = floor(retries) }
    end
    return facts
end


return _M
