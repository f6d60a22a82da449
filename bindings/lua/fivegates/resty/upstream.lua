-- A small HTTP/1.1 client on cosockets that trusts no server: heads, lines and
-- sizes are bounded, lengths that contradict each other are refused. Another
-- client can stand in for it: connect(), and the four methods below.

local C = require("fivegates.lib").C

local byte = string.byte
local concat = table.concat
local find = string.find
local gmatch = string.gmatch
local lower = string.lower
local match = string.match
local max = math.max
local min = math.min
local sub = string.sub
local ngx = ngx
local ipairs = ipairs
local pcall = pcall
local setmetatable = setmetatable
local tonumber = tonumber
local tostring = tostring


local Connection = {}
Connection.__index = Connection

local _M = {}

local PIECE = 16384
local HEAD_MAX = 65536
local HEADERS_MAX = 256
local INTERIM_MAX = 8
local LINE_MAX = 1024  -- of a chunk's size
local TRAILER_MAX = 8192
local KEEP_MS = 10000
local KEEP_MOST = 64
local SEMICOLON = 59
local NO_BODY = { [204] = true, [304] = true }


local function now_ms()
    return tonumber(C.fg_host_now_ms())
end


-- What went wrong with a handshake, or nil. lua-resty-core (0.1.25) raises where
-- a certificate that came in one go is not trusted.
local function handshake(sock, host)
    local fine, done, err = pcall(sock.sslhandshake, sock, nil, host, true)
    if not fine then
        ngx.log(ngx.WARN, "fivegates: TLS with ", host, ": ", tostring(done))
        return "tls handshake or certificate"
    end
    return err
end


-- Connects; target as of target.lua, timeout_ms for connecting, for the TLS
-- handshake and for each write. Connection, or nil and evidence of the failure:
-- {phase, kind, message}.
function _M.connect(target, timeout_ms)
    local sock = ngx.socket.tcp()
    sock:settimeouts(timeout_ms, timeout_ms, timeout_ms)
    local ok, err = sock:connect(target.host, target.port, {
        pool = target.pool, pool_size = KEEP_MOST })
    if not ok then
        return nil, { phase = "connect", message = err,
                      kind = err == "timeout" and "connect timeout" or "connect" }
    end
    if target.tls and sock:getreusedtimes() == 0 then
        err = handshake(sock, target.host)
        if err then
            sock:close()
            return nil, { phase = "tls", kind = err == "timeout"
                          and "tls handshake timeout" or "tls handshake",
                          message = err }
        end
    end
    return setmetatable({ sock = sock, buffer = "", ended = false,
                          keep = false, left = 0 }, Connection)
end


-- Sends a request; true, or nil and why.
function Connection:send(head, body)
    return self.sock:send({ head, body })
end


-- More bytes behind the buffer: true, or nil and "timeout" (nothing is lost:
-- it may be asked again) or the socket's word.
local function fill(self, until_ms)
    local left = until_ms - now_ms()
    if left <= 0 then
        return nil, "timeout"
    end
    self.sock:settimeouts(left, left, left)
    local data, err = self.sock:receiveany(PIECE)
    if not data then
        return nil, err
    end
    self.buffer = self.buffer .. data
    return true
end


local function fields(text)
    local all, count = {}, 0
    for line in gmatch(text, "([^\r\n]+)\r\n") do
        local name, value = match(line, "^([!#$%%&'*+%-.^_`|~%w]+):[ \t]*(.-)[ \t]*$")
        if not name or find(value, "[%z\1-\8\10-\31\127]") then
            return nil
        end
        count = count + 1
        if count > HEADERS_MAX then
            return nil
        end
        all[count] = { lower(name), value }
    end
    return all
end


local function values_of(headers, name)
    local all = {}
    for i = 1, #headers do
        if headers[i][1] == name then
            all[#all + 1] = headers[i][2]
        end
    end
    return all
end


-- How the body ends: its length, chunks, or the connection's end. A head that
-- says two things is refused: somebody between would read it otherwise.
local function frame(self, status, headers, version)
    local lengths = values_of(headers, "content-length")
    local codings = values_of(headers, "transfer-encoding")
    if NO_BODY[status] then
        self.frame, self.left = "length", 0
    elseif #codings > 0 then
        if #codings > 1 or #lengths > 0 or version ~= "1"
           or lower(codings[1]) ~= "chunked" then
            return nil
        end
        self.frame, self.chunk = "chunked", "size"
    elseif #lengths > 0 then
        for i = 1, #lengths do
            local digits = match(lengths[i], "^0*(%d+)$")
            if not digits or #digits > 15 or lengths[i] ~= lengths[1] then
                return nil
            end
        end
        self.frame, self.left = "length", tonumber(lengths[1])
    else
        self.frame = "close"
    end
    self.keep = version == "1" and self.frame ~= "close"
    for _, value in ipairs(values_of(headers, "connection")) do
        if find(lower(value), "close", 1, true) then
            self.keep = false
        end
    end
    return true
end


local function parse_head(self, text)
    local version, status, reason, rest =
        match(text, "^HTTP/1%.([01]) (%d%d%d)([^\r\n%z]*)\r\n(.*)$")
    status = (reason == "" or find(reason or "", "^ ")) and tonumber(status)
    -- Each line ends with CR LF; a bare one of either is in no line.
    if not status or status < 100 or find(rest, "\r[^\n]")
       or find("\n" .. rest, "[^\r]\n") then
        return nil, "malformed http head"
    end
    local headers = fields(rest)
    if not headers or status == 101 then
        return nil, "malformed http head"
    elseif status >= 200 and not frame(self, status, headers, version) then
        return nil, "malformed http head: lengths contradict each other"
    end
    return { status = status, headers = headers }
end


-- The head of the answer: {status, headers}, headers a list of {name, value}
-- with names in lower case. Nil and "timeout" (ask again), or what broke.
function Connection:head(until_ms)
    while true do
        local _, last = find(self.buffer, "\r\n\r\n", 1, true)
        if last and last <= HEAD_MAX then
            local head, err = parse_head(self, sub(self.buffer, 1, last - 2))
            if not head then
                return nil, err
            end
            self.buffer = sub(self.buffer, last + 1)
            if head.status >= 200 then
                return head
            end
            self.interim = (self.interim or 0) + 1
            if self.interim > INTERIM_MAX then
                return nil, "malformed http head: too many interim ones"
            end
        elseif last or #self.buffer > HEAD_MAX then
            return nil, "malformed http head: too long"
        else
            local ok, err = fill(self, until_ms)
            if not ok then
                return nil, err
            end
        end
    end
end


-- ---- the body

local function take(self, most)
    local data = self.buffer
    if #data > most then
        self.buffer = sub(data, most + 1)
        return sub(data, 1, most)
    end
    self.buffer = ""
    return data
end


local function some(self, until_ms)
    if self.buffer ~= "" then
        return true
    end
    return fill(self, until_ms)
end


-- Reads on in the chunks of the buffer, from `at`: their data into parts. Where
-- it came to, and what is wrong, or "end".
local function chunks(self, data, at, parts)
    while true do
        local state = self.chunk
        if state == "data" then
            local last = min(#data, at + self.left - 1)
            if last < at then
                return at
            end
            parts[#parts + 1] = sub(data, at, last)
            self.left = self.left - (last - at + 1)
            at = last + 1
            if self.left > 0 then
                return at
            end
            self.chunk = "end"
        else
            local stop = find(data, "\r\n", at, true)
            local most = state == "trailer" and TRAILER_MAX or LINE_MAX
            if (stop or #data) - at > most then
                return at, "invalid chunk"
            elseif not stop then
                return at
            end
            if state == "end" then
                if stop ~= at then
                    return at, "invalid chunk"
                end
                self.chunk = "size"
            elseif state == "trailer" then
                self.trailer = (self.trailer or 0) + stop - at
                if self.trailer > TRAILER_MAX then
                    return at, "invalid chunk"
                elseif stop == at then
                    return stop + 2, "end"
                end
            else
                local size, after = match(data, "^0*(%x+)[ \t]*()", at)
                if not size or #size > 8
                   or (after ~= stop and byte(data, after) ~= SEMICOLON) then
                    return at, "invalid chunk"
                end
                self.left = tonumber(size, 16)
                self.chunk = self.left == 0 and "trailer" or "data"
            end
            at = stop + 2
        end
    end
end


-- All that has come of a chunked body, at least something.
local function chunked(self, until_ms)
    while true do
        local parts = {}
        local at, err = chunks(self, self.buffer, 1, parts)
        self.buffer = sub(self.buffer, at)
        self.ended = err == "end"
        if #parts > 0 and (not err or self.ended) then
            return #parts == 1 and parts[1] or concat(parts)
        elseif err then
            return nil, err
        end
        local ok
        ok, err = fill(self, until_ms)
        if not ok then
            return nil, err
        end
    end
end


-- Bytes of the body as they come, at most some 32 KiB; nil and "end",
-- "timeout" (ask again), or what broke.
function Connection:read(until_ms)
    if self.ended then
        return nil, "end"
    elseif self.frame == "chunked" then
        return chunked(self, until_ms)
    elseif self.frame == "length" and self.left == 0 then
        self.ended = true
        return nil, "end"
    end
    local ok, err = some(self, until_ms)
    if not ok then
        if self.frame == "close" and err == "closed" then
            self.ended = true
            return nil, "end"
        end
        return nil, err
    end
    if self.frame == "close" then
        return take(self, PIECE)
    end
    local data = take(self, min(self.left, PIECE))
    self.left = max(0, self.left - #data)
    return data
end


-- Done with: kept for the next request where the answer was read to its end,
-- else closed. Twice is fine.
function Connection:close()
    local sock = self.sock
    if not sock then
        return
    end
    self.sock = nil
    if self.keep and self.ended and self.buffer == "" then
        local ok = sock:setkeepalive(KEEP_MS, KEEP_MOST)
        if ok then
            return
        end
    end
    sock:close()
end


return _M
