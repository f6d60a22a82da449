-- Of lua-resty-redis, which Debian does not package, what the page of the ladder
-- uses: the same names and answers, so that the page is tried with a real server.

local concat = table.concat
local ngx = ngx
local setmetatable = setmetatable
local sub = string.sub
local tonumber = tonumber


local Redis = {}
Redis.__index = Redis


function Redis.new()
    return setmetatable({ sock = ngx.socket.tcp() }, Redis)
end


function Redis:set_timeouts(connect, send, read)
    self.sock:settimeouts(connect, send, read)
end


function Redis:connect(host, port)
    if sub(host, 1, 5) == "unix:" then
        return self.sock:connect(host)
    end
    return self.sock:connect(host, port)
end


function Redis:set_keepalive(idle_ms, size)
    return self.sock:setkeepalive(idle_ms, size)
end


local function command(self, ...)
    local parts = { "*" .. select("#", ...) }
    for _, word in ipairs { ... } do
        word = tostring(word)
        parts[#parts + 1] = "$" .. #word .. "\r\n" .. word
    end
    local ok, err = self.sock:send(concat(parts, "\r\n") .. "\r\n")
    local line = ok
    if ok then
        line, err = self.sock:receive()
    end
    if not line then
        return nil, err
    elseif sub(line, 1, 1) == "$" then
        local size = tonumber(sub(line, 2))
        if size < 0 then
            return ngx.null
        end
        local text = self.sock:receive(size)
        self.sock:receive(2)
        return text
    elseif sub(line, 1, 1) == "-" then
        return false, sub(line, 2)
    end
    return sub(line, 2)
end


function Redis:get(key)
    return command(self, "get", key)
end


function Redis:setex(key, seconds, text)
    return command(self, "setex", key, seconds, text)
end


return Redis
