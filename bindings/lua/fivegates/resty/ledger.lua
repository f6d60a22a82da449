-- Where the ledger's lines go, and the last decisions for the status page.

local find = string.find
local io_open = io.open
local ngx = ngx
local error = error
local pcall = pcall
local tostring = tostring
local type = type


local _M = {}

local LOG_MAX = 1900  -- nginx cuts longer lines of its log
local RECENT = 32
local QUIET = { proceed = true, accept = true, keep_waiting = true }


-- A function of the host's that breaks no call when it raises; nil is none.
function _M.safe(hook, what)
    if hook == nil then
        return nil
    elseif type(hook) ~= "function" then
        return error("fivegates: " .. what .. " is a function", 0)
    end
    return function(...)
        local ok, answer, more = pcall(hook, ...)
        if not ok then
            ngx.log(ngx.ERR, "fivegates: ", what, ": ", tostring(answer))
            return nil
        end
        return answer, more
    end
end


-- A function that takes a line; where: "log", a path, a function, or nil. A
-- file is opened before the workers are forked, and each line is one write.
function _M.open(where)
    if where == nil or type(where) == "function" then
        return _M.safe(where, "ledger")
    elseif where == "log" then
        return function(line)
            ngx.log(ngx.NOTICE, "fivegates ledger ",
                    #line <= LOG_MAX and line or line:sub(1, LOG_MAX))
        end
    elseif type(where) ~= "string" or find(where, "%z") then
        return error("fivegates: ledger is \"log\", a path or a function", 0)
    end
    local file, err = io_open(where, "ab")
    if not file then
        return error("fivegates: ledger: " .. err, 0)
    end
    file:setvbuf("full", 65536)
    return function(line)
        if not (file:write(line, "\n") and file:flush()) then
            ngx.log(ngx.ERR, "fivegates: ledger: a line was lost")
        end
    end
end


-- A function that keeps the last decisions that were no plain success, in a
-- lua_shared_dict.
function _M.recent(name)
    return function(decision)
        if QUIET[decision.action] then
            return
        end
        local dict = ngx.shared[name]
        local length = dict and dict:lpush("decisions",
                                           ngx.time() .. " " .. decision:json())
        if length and length > RECENT then
            dict:rpop("decisions")
        end
    end
end


return _M
