-- Answers kept for the ladder's `cached`: open{ cache = cache.new{...} }.
--
--     cache.new { store = cache.dict "answers", secret = os.getenv "SECRET" }
--
-- The text of each accepted answer is kept under its request, and served only
-- where the engine's decision says so: because nothing else can answer, no older
-- than the card's max_age_s. Requests of other workflows, tenants (a fact of
-- begin()) and languages never share an answer; a key is a hash keyed with the
-- secret, and shows nothing of what it is made from. A store that fails is a
-- miss, and is left alone for some seconds.

local json = require "fivegates.resty.json"
local notice = require "fivegates.resty.notice"

local concat = table.concat
local error = error
local floor = math.floor
local max = math.max
local ngx = ngx
local pcall = pcall
local setmetatable = setmetatable
local sort = table.sort
local tostring = tostring
local type = type


local Cache = {}
Cache.__index = Cache

local _M = {}

local KEEP_S = 86400
local PAUSE_S = 5
local AHEAD_S = 60  -- another machine's clock may be ahead so far
-- How an answer is delivered, not what is asked.
local DELIVERY = { stream = true, stream_options = true }


-- A lua_shared_dict of nginx, by name: for all workers of this nginx.
function _M.dict(name)
    local function shared()
        return ngx.shared[name] or error("no lua_shared_dict " .. name, 0)
    end
    return {
        get = function(_, key) return shared():get(key) end,
        set = function(_, key, text, keep_s)
            local ok, err = shared():set(key, text, keep_s)
            return ok or error(err, 0)
        end,
    }
end


-- options: store, with get(self, key), a text or nil, and set(self, key, text,
-- keep_s), which raise what goes wrong; secret: any text, the same for all that
-- share the store; keep_s: how long it keeps an answer (86400), at least the
-- card's max_age_s.
function _M.new(options)
    local store, secret = options.store, options.secret
    if type(store) ~= "table" or not store.get or not store.set then
        return error("fivegates: cache: store needs get and set; "
                     .. "cache.dict(name) is one", 2)
    elseif type(secret) ~= "string" or secret == "" then
        return error("fivegates: cache: secret is empty; give one random text to "
                     .. "all that share the cache", 2)
    end
    return setmetatable({ store = store, secret = secret,
                          keep_s = options.keep_s or KEEP_S, failed_at = -PAUSE_S },
                        Cache)
end


-- The key of a request (request.lua); tenant, language: nil where there is none.
function Cache:key(request, workflow, tenant, language)
    local parts = {}
    for i = 1, #request.members do
        local one = request.members[i]
        if not DELIVERY[one.name] then
            parts[#parts + 1] = json.encode(one.name) .. ":" .. one.value
        end
    end
    sort(parts)
    return "fivegates:" .. ngx.encode_base64(ngx.hmac_sha1(self.secret,
        json.encode { workflow, tenant or json.null, language or json.null,
                      request.wire } .. concat(parts, ",")))
end


-- Asks the store; nil where it fails, or has failed just now.
function Cache:ask(method, ...)
    if ngx.now() - self.failed_at < PAUSE_S then
        return nil
    end
    local ok, value = pcall(self.store[method], self.store, ...)
    if ok then
        return value
    end
    self.failed_at = ngx.now()
    notice.say(ngx.WARN, "the answer cache fails", "the answer cache fails, and "
               .. "is a miss until it is back: ", tostring(value))
    return nil
end


-- The text under a key and its age in seconds; nil: a miss.
function Cache:lookup(key, max_age_s)
    local text = self:ask("get", key)
    local kept = type(text) == "string" and json.decode(text)
    if type(kept) ~= "table" or kept.v ~= 1 or type(kept.at) ~= "number"
       or type(kept.text) ~= "string" then
        return nil
    end
    local age = ngx.time() - kept.at
    if age > max_age_s or age < -AHEAD_S then
        return nil
    end
    return kept.text, max(0, floor(age))
end


-- Keeps a text, in place of an older one.
function Cache:keep(key, text)
    self:ask("set", key, json.encode { v = 1, at = ngx.time(), text = text },
             self.keep_s)
end


return _M
