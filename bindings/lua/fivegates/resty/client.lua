-- Is the client still there? nginx tells of one that leaves while its request
-- is answered (ngx.on_abort), but not of one that had left before, nor of one
-- whose further bytes lie unread: so the connection itself is asked.

local ffi = require "ffi"
local base = require "resty.core.base"

local band = bit.band
local cast = ffi.cast

-- The first members of nginx's own structs, the same in every version there is.
ffi.cdef [[
typedef struct {
    void *data, *read, *write;
    int fd;
} fivegates_connection;
typedef struct {
    uint32_t signature;
    fivegates_connection *connection;
} fivegates_request;
typedef struct {
    int fd;
    short events, revents;
} fivegates_pollfd;
int fivegates_poll(fivegates_pollfd *all, unsigned long count, int timeout_ms)
    __asm__("poll");
]]


local _M = {}

local SIGNATURE = 0x50545448  -- "HTTP", the first bytes of nginx's request
local HUNG_UP = 0x2000  -- POLLRDHUP: the other side sends no more
local GONE = 0x2000 + 0x08 + 0x10 + 0x20  -- that, POLLERR, POLLHUP, POLLNVAL

local asked = ffi.new("fivegates_pollfd[1]")


-- The connection of the running request; nil where nginx is not as it is known
-- here, or in a subrequest.
local function descriptor()
    local r = base.get_request()
    local request = r and cast("fivegates_request *", r)
    if not request or request.signature ~= SIGNATURE then
        return nil
    end
    local connection = request.connection
    if connection == nil or connection.data ~= cast("void *", request) then
        return nil
    end
    return connection.fd
end


-- True where the client has closed its side of the connection, wholly or, as
-- nginx too takes it, only for sending. False: it is there, or nobody knows.
-- Over HTTP/2 it is the connection, not the stream.
function _M.gone()
    local fd = descriptor()
    if not fd or fd < 0 then
        return false
    end
    asked[0].fd, asked[0].events, asked[0].revents = fd, HUNG_UP, 0
    return ffi.C.fivegates_poll(asked, 1, 0) == 1
           and band(asked[0].revents, GONE) ~= 0
end


return _M
