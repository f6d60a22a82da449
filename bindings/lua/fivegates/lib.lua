-- Finds libfivegates-host (which brings libfivegates), and refuses one of
-- another version: the declarations of cdef.lua would not fit its structs.
--
-- Where: 1. the file or folder in the environment variable FIVEGATES_LIB, and
-- then nowhere else; 2. package.cpath; 3. the system's library path.

local ffi = require "ffi"
local cdef = require "fivegates.cdef"

local band = bit.band
local rshift = bit.rshift
local format = string.format
local concat = table.concat
local getenv = os.getenv
local open = io.open
local pcall = pcall
local tostring = tostring
local tonumber = tonumber
local ipairs = ipairs
local error = error


local _M = {}

local NAME = "libfivegates-host"
local FILE = NAME .. (ffi.os == "OSX" and ".dylib" or ".so")


local function version_text(packed)
    return format("%d.%d.%d", rshift(packed, 16), band(rshift(packed, 8), 255),
                  band(packed, 255))
end


-- nil when the library fits these files, else a sentence that names both.
-- `sizeof` is ffi.sizeof, but for tests.
function _M.mismatch(lib, path, sizeof)
    local ok, packed = pcall(function() return tonumber(lib.fg_version()) end)
    if not ok then
        return format("%s is not fivegates: %s", path, tostring(packed))
    end
    local found = version_text(packed)
    local want_line = cdef.version:match("^%d+%.%d+")
    local patch = tonumber(cdef.version:match("%.(%d+)$"))
    local why
    if found:match("^%d+%.%d+") ~= want_line or band(packed, 255) < patch then
        why = "the library"
    elseif tonumber(lib.fg_abi()) ~= cdef.abi then
        why = format("its binary interface %d, not %d,", tonumber(lib.fg_abi()),
                     cdef.abi)
    else
        for _, name in ipairs(cdef.structs) do
            if tonumber(lib.fg_sizeof(name)) ~= sizeof(name) then
                why = format("its %s of %d bytes, not %d,", name,
                             tonumber(lib.fg_sizeof(name)), sizeof(name))
                break
            end
        end
    end
    if not why then
        return nil
    end
    return format("%s is fivegates %s, these Lua files are %s: %s does not "
                  .. "fit; install both from one release", path, found,
                  cdef.version, why)
end


local function folder_file(path)
    local file = open(path .. "/" .. FILE, "rb")
    if file then
        file:close()
        return path .. "/" .. FILE
    end
    return path
end


-- Places to try, in order: what dlopen is given.
local function places()
    local named = getenv("FIVEGATES_LIB")
    if named and named ~= "" then
        return { folder_file(named) }, "FIVEGATES_LIB"
    end
    local all = {}
    local path = package.searchpath(NAME, package.cpath)
    if path then
        all[1] = path
    end
    all[#all + 1] = "fivegates-host"
    -- The name a package without development files has.
    all[#all + 1] = FILE .. ".0"
    return all, "package.cpath, then the system's library path"
end


local function find()
    local all, how = places()
    local tried = {}
    for _, path in ipairs(all) do
        local ok, lib = pcall(ffi.load, path)
        if ok then
            local wrong = _M.mismatch(lib, path, ffi.sizeof)
            if wrong then
                error("fivegates: " .. wrong, 0)
            end
            return lib, path
        end
        tried[#tried + 1] = "\n\t" .. path .. ": " .. tostring(lib)
    end
    error("fivegates: " .. FILE .. " not found (" .. how .. "):"
          .. concat(tried)
          .. "\nIt comes with `meson install` or the rock; else name its file "
          .. "or folder in FIVEGATES_LIB (in nginx also `env FIVEGATES_LIB;`)"
          .. ", or add its folder to package.cpath as DIR/?.so", 0)
end


_M.C, _M.path = find()

return _M
