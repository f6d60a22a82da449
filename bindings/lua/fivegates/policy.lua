-- Policy: a checked and compiled card. Immutable; any number of engines use it.

local ffi = require "ffi"
local C = require("fivegates.lib").C
local check = require "fivegates.check"
local errors = require "fivegates.errors"
local json = require "fivegates.json"
local names = require "fivegates.names"
local text = require "fivegates.text"

local raise = errors.raise
local u32 = check.u32
local reasons = names.name.reason
local string_of = ffi.string
local new = ffi.new
local open = io.open
local setmetatable = setmetatable
local tonumber = tonumber
local tostring = tostring
local type = type


local Policy = {}
Policy.__index = Policy

local _M = { Policy = Policy }

local ROUTE, WORKFLOW = C.FG_FIND_ROUTE, C.FG_FIND_WORKFLOW


-- ---- loading

local function load_error(err)
    local message = string_of(err.message)
    local code = names.name.load[err.what]
    if code == nil or code == "none" then
        code = errors.result(err.code)
        message = message ~= "" and message or "the card does not load"
    end
    return errors.new(code, message, string_of(err.path), err.line, err.column)
end


-- Names of the routes or workflows: a list by id, and ids by name.
local function names_of(block, what)
    local list, ids = {}, {}
    local str = new("fg_str")
    for id = 1, C.fg_policy_count(block, what) do
        C.fg_policy_name(block, what, id, str)
        list[id] = string_of(str.ptr, str.len)
        ids[list[id]] = id
    end
    return list, ids
end


-- load(text, #text, allocator, out, err) answers the library's result.
function _M.compile(load, source)
    local mem = C.fg_host_mem()
    local out = new("fg_policy *[1]")
    local err = new("fg_error")
    err.size = ffi.sizeof(err)
    local rc = load(source, #source, mem, out, err)
    if rc ~= 0 then
        return nil, load_error(err)
    end
    -- The block moves into memory of the Lua state: no finalizer that could
    -- run while an engine still uses it.
    local bytes = tonumber(C.fg_policy_bytes(out[0]))
    local memory = new("uint64_t[?]", (bytes + 7) / 8)
    ffi.copy(memory, out[0], bytes)
    C.fg_policy_free(out[0], mem)
    local block = ffi.cast("const fg_policy *", memory)
    local self = { memory = memory, block = block, bytes = bytes }
    self.route_names, self.route_ids = names_of(block, ROUTE)
    self.workflow_names, self.workflow_ids = names_of(block, WORKFLOW)
    local print = new("fg_str")
    C.fg_policy_fingerprint(block, print)
    self.fingerprint = string_of(print.ptr, print.len)
    return setmetatable(self, Policy)
end


-- A card, as JSON text or as a table, compiled: Policy, or nil and an error
-- with code, path, line, column and message.
function _M.policy(card)
    local source = card
    if type(card) == "table" then
        source = json.encode(card, "a card as a table")
    elseif type(card) ~= "string" then
        return raise("a card is JSON text or a table, not " .. type(card))
    end
    return _M.compile(C.fg_card_load, source)
end


-- The same of a file.
function _M.load(path)
    if type(path) ~= "string" then
        return raise("load takes the path of a JSON file, not " .. type(path))
    end
    local file, why = open(path, "rb")
    if not file then
        return nil, errors.new("file", tostring(why))
    end
    local source
    source, why = file:read("*a")
    file:close()
    if not source then
        return nil, errors.new("file", path .. ": " .. tostring(why))
    end
    local policy, err = _M.policy(source)
    if err then
        err.file = path
    end
    return policy, err
end


-- ---- reading

local function find(ids, name, what)
    local id = type(name) == "string" and ids[name] or nil
    if not id then
        return raise("the card has no " .. what .. " " .. tostring(name)
                     .. " [arg]")
    end
    return id
end


function Policy:route_id(name)
    return find(self.route_ids, name, "route")
end


function Policy:workflow_id(name)
    return find(self.workflow_ids, name, "workflow")
end


local function copy(list)
    local out = {}
    for i = 1, #list do
        out[i] = list[i]
    end
    return out
end


-- Names of the routes, in the card's order.
function Policy:routes()
    return copy(self.route_names)
end


function Policy:workflows()
    return copy(self.workflow_names)
end


local function price(nusd)
    return nusd >= 0 and tonumber(nusd) or nil
end


-- What the card says of a route: where to send. Prices are nano-dollars per
-- million tokens; what is not given is nil.
function Policy:route(name)
    local info = new("fg_route_info")
    info.size = ffi.sizeof(info)
    local rc = C.fg_policy_route_info(self.block, self:route_id(name), info)
    if rc ~= 0 then
        return errors.refused("policy:route", rc)
    end
    return {
        name = text.of(info.name), provider = text.of(info.provider),
        model = text.of(info.model), base_url = text.of(info.base_url),
        key_env = text.of(info.key_env), account = text.of(info.account_name),
        api = text.of(info.api),
        price_nusd_per_million = { input = price(info.price_input),
                                   cached_input = price(info.price_cached),
                                   output = price(info.price_output) },
    }
end


-- Warnings about the card: a list of {path, message, line, column}.
function Policy:lint()
    local all = {}
    local err = new("fg_error")
    err.size = ffi.sizeof(err)
    while C.fg_policy_lint(self.block, #all, err) == 0 do
        all[#all + 1] = { path = string_of(err.path), line = err.line,
                          message = string_of(err.message),
                          column = err.column }
    end
    return all
end


-- May a route serve a workflow? {approved, barred, fingerprint}: why not, and
-- what an approval must name. Dates are not looked at.
function Policy:contract(workflow, route)
    local barred, print = new("uint32_t[1]"), new("fg_str")
    local rc = C.fg_policy_contract(self.block, self:workflow_id(workflow),
                                    self:route_id(route), barred, print)
    if rc ~= 0 then
        return errors.refused("policy:contract", rc)
    end
    return { approved = barred[0] == 0, fingerprint = text.of(print),
             barred = barred[0] ~= 0 and reasons[barred[0]] or nil }
end


-- Where a decision's changes say drop_tools: must this tool be taken out?
function Policy:drops_tool(workflow, route, tool)
    if type(tool) ~= "string" then
        return raise("policy:drops_tool: tool must be a string, not "
                     .. type(tool))
    end
    local rc = C.fg_policy_drops_tool(self.block, self:workflow_id(workflow),
                                      self:route_id(route), tool, #tool)
    if rc < 0 then
        return errors.refused("policy:drops_tool", rc)
    end
    return rc == 1
end


-- A preset text (decision.text_id) in a language such as "en-GB", or nil.
function Policy:preset(id, language)
    if language ~= nil and type(language) ~= "string" then
        return raise("policy:preset: language must be a string, not "
                     .. type(language))
    end
    local out = new("fg_str")
    local rc = C.fg_policy_preset(self.block, u32(id, "policy:preset: id"),
                                  language, language and #language or 0, out)
    if rc ~= 0 then
        return nil
    end
    return text.of(out)
end


-- One line on the rule that classified a failure (failure.rule); "" for none.
function Policy:rule_why(rule)
    return string_of(C.fg_rule_why(self.block, u32(rule, "rule")))
end


function Policy:__tostring()
    return "fivegates.policy " .. self.fingerprint
end


return _M
