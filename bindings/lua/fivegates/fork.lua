-- Which process is this, counted from the one that loaded the module? A forked
-- child finds its parent's objects in its memory; a call among them is not its
-- own. Linux wipes a page of ours at a fork, which costs one read to notice;
-- elsewhere the process id is asked each time.

local ffi = require "ffi"

local cast = ffi.cast
local gc = ffi.gc


ffi.cdef [[
    int getpid(void);
    void *mmap(void *addr, size_t length, int prot, int flags, int fd, long offset);
    int munmap(void *addr, size_t length);
    int madvise(void *addr, size_t length, int advice);
]]

local C = ffi.C
local SIZE = 65536  -- a whole number of pages, whatever their size
local READ_WRITE, PRIVATE_ANONYMOUS, WIPE_ON_FORK = 3, 0x22, 18


local _M = {}

local page
local number = 1

if ffi.os == "Linux" and ffi.abi("64bit") then
    local at = C.mmap(nil, SIZE, READ_WRITE, PRIVATE_ANONYMOUS, -1, 0)
    if cast("intptr_t", at) ~= -1 then
        if C.madvise(at, SIZE, WIPE_ON_FORK) == 0 then
            page = gc(cast("uint32_t *", at), function(p)
                -- A Lua state that closes runs finalizers in no order: those
                -- of calls may still ask.
                page = ffi.new("uint32_t[1]", 1)
                C.munmap(p, SIZE)
            end)
            page[0] = 1
        else
            C.munmap(at, SIZE)
        end
    end
end

if page then
    -- The number of this process; a child's is another than its parent's.
    function _M.number()
        if page[0] ~= 1 then
            page[0] = 1
            number = number + 1
        end
        return number
    end
else
    local pid = C.getpid()

    function _M.number()
        local now = C.getpid()
        if now ~= pid then
            pid = now
            number = number + 1
        end
        return number
    end
end


function _M.pid()
    return C.getpid()
end


return _M
