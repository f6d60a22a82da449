-- Finding the library, the handshake with it, and the declarations.

local cards = require "cards"
local cdef = require "fivegates.cdef"
local ffi = require "ffi"
local lib = require "fivegates.lib"
local ROOT = require("paths").ROOT

-- A library that says it is what `fields` say.
local function pretend(fields)
    return {
        fg_version = function() return fields.version or lib.C.fg_version() end,
        fg_abi = function() return fields.abi or cdef.abi end,
        fg_sizeof = function(name)
            return fields[name] or lib.C.fg_sizeof(name)
        end,
    }
end

local function mismatch(fields)
    return lib.mismatch(pretend(fields), "/lib/x.so", ffi.sizeof)
end

describe("the library", function()
    it("that fits is taken", function()
        assert.is_nil(mismatch {})
        assert.is_nil(lib.mismatch(lib.C, "x", ffi.sizeof))
        -- A later patch of the same line fits.
        assert.is_nil(mismatch { version = tonumber(lib.C.fg_version()) + 1 })
    end)

    it("of another version is refused, and both are named", function()
        local said = mismatch { version = 9 * 65536 + 8 * 256 + 7 }
        assert.is_truthy(said:find("fivegates 9.8.7", 1, true))
        assert.is_truthy(said:find("are " .. cdef.version, 1, true))
        assert.is_truthy(said:find("/lib/x.so", 1, true))
        assert.is_truthy(mismatch({ abi = 77 }):find("77", 1, true))
        assert.is_truthy(mismatch({ fg_decision = 8 }):find("fg_decision of 8 bytes", 1,
                                                            true))
        assert.is_truthy(lib.mismatch({}, "x", ffi.sizeof):find("not fivegates", 1, true))
    end)

    it("has every function that is declared", function()
        local text = cards.slurp(ROOT .. "/bindings/lua/fivegates/cdef.lua")
        local count = 0
        for name in text:gmatch("[%s*](fg_[%w_]+)%(") do
            assert.is_truthy(lib.C[name], name)
            count = count + 1
        end
        assert.is_true(count >= 60)
    end)

    it("has structs of the sizes that are declared", function()
        assert.is_true(#cdef.structs >= 19)
        for _, name in ipairs(cdef.structs) do
            assert.equal(tonumber(lib.C.fg_sizeof(name)), ffi.sizeof(name), name)
        end
    end)

    it("is declared as the headers say", function()
        assert.equal(0, os.execute(("cd '%s' && python3 core/tools/gen_cdef.py --check")
                                   :format(ROOT)))
    end)
end)

-- What requiring the binding says in a process with this environment.
local function with(env, script)
    local name = os.tmpname()
    local file = assert(io.open(name, "wb"))
    file:write(("package.path = %q\n"):format(package.path), script
               or "print(pcall(require, 'fivegates'))")
    file:close()
    local pipe = io.popen(("env %s luajit %s 2>&1"):format(env, name))
    local said = pipe:read("*a")
    pipe:close()
    os.remove(name)
    return said
end

describe("finding it", function()
    local folder = lib.path:match("^(.*)/")

    it("goes by FIVEGATES_LIB, file or folder, and nowhere else", function()
        local print_path = "print(require('fivegates').library)"
        assert.equal(lib.path .. "\n", with("FIVEGATES_LIB='" .. folder .. "'",
                                            print_path))
        assert.equal(lib.path .. "\n", with("FIVEGATES_LIB='" .. lib.path .. "'",
                                            print_path))
        local said = with("FIVEGATES_LIB=/nowhere LD_LIBRARY_PATH='" .. folder .. "'")
        assert.is_truthy(said:find("false", 1, true))
        assert.is_truthy(said:find("\n\t/nowhere: ", 1, true))
    end)

    it("goes by package.cpath, then by the system's path", function()
        local by_cpath = ("package.cpath = '%s/?.so' print(require('fivegates').library)")
                         :format(folder)
        assert.equal(lib.path .. "\n", with("-u FIVEGATES_LIB", by_cpath))
        local by_path = "package.cpath = '' print(require('fivegates').library)"
        assert.equal("fivegates-host\n", with("-u FIVEGATES_LIB LD_LIBRARY_PATH='"
                                              .. folder .. "'", by_path))
    end)

    it("that fails lists where it looked and what to do", function()
        local said = with("-u FIVEGATES_LIB", "package.cpath = '/no/?.so' "
                          .. "print(pcall(require, 'fivegates'))")
        if said:find("^true") then
            return pending("fivegates is installed on this machine")
        end
        for _, words in ipairs { "libfivegates-host.so not found", "fivegates-host:",
                                 "libfivegates-host.so.0:", "FIVEGATES_LIB" } do
            assert.is_truthy(said:find(words, 1, true), said)
        end
    end)

    it("refuses a real library of another version", function()
        local dir = os.tmpname()
        os.remove(dir)
        os.execute("mkdir -p " .. dir)
        local file = assert(io.open(dir .. "/x.c", "wb"))
        file:write("unsigned fg_version(void) { return 0x10203; }")
        file:close()
        local built = os.execute(("cc -shared -fPIC -o %s/libfivegates-host.so %s/x.c")
                                 :format(dir, dir))
        local said = with("FIVEGATES_LIB=" .. dir)
        os.execute("rm -r " .. dir)
        assert.equal(0, built)
        assert.is_truthy(said:find("is fivegates 1.2.3, these Lua files are "
                                   .. cdef.version, 1, true), said)
    end)

    -- busted hides what ffi.cdef says of a second definition; plain LuaJIT does not.
    it("twice in one Lua state is fine", function()
        local said = with("FIVEGATES_LIB='" .. lib.path .. "'", [[
            local first = require "fivegates"
            for name in pairs(package.loaded) do
                if name:find("^fivegates") then
                    package.loaded[name] = nil
                end
            end
            local second = require "fivegates"
            print(first ~= second, second.policy("{"))
        ]])
        assert.is_truthy(said:find("^true\tnil"), said)
    end)
end)
