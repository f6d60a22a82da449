-- Where the ledger's lines go, and the last decisions for the status page.

local find = string.find
local io_open = io.open
local ngx = ngx
local error = error
local type = type


local _M = {}

local LOG_MAX = 1900  -- nginx cuts longer lines of its log
local RECENT = 32
local QUIET = { proceed = true, accept = true, keep_waiting = true }


-- A function that takes a line; where: "log", a path, a function, or nil. A
-- file is opened before the workers are forked, and each line is one write.
function _M.open(where)
    if where == nil or type(where) == "function" then
        return where
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
        file:write(line, "\n")
        file:flush()
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
