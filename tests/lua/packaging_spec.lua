-- What is shipped: the README's code runs, the rock lists what is there.

local cards = require "cards"
local ROOT = require("paths").ROOT

describe("README.md", function()
    it("shows code that runs", function()
        local text = cards.slurp(ROOT .. "/bindings/lua/README.md")
        local blocks = {}
        for block in text:gmatch("```lua\n(.-)```") do
            blocks[#blocks + 1] = block
        end
        assert.is_true(#blocks >= 4)
        -- The loop is a function: it is called here.
        blocks[2] = blocks[2] .. [[
            local slept = 0
            local function sleep(seconds) slept = slept + seconds end
            local tries = 0
            local function send(route)
                tries = tries + 1
                if tries < 2 then
                    return nil, { phase = "response", status = 503 }
                end
                assert(route.model == "gpt-4o")
                return { output = "hello", finish_reason = "stop" }
            end
            local now = 1000000
            local played = assert(fivegates.engine(policy, { seed = 1,
                clock = function() return now + slept * 1000 end }))
            local done = assert(guarded(played, { workflow = "answer" }, send, sleep))
            assert(done.action == "accept" and tries == 2 and slept > 0,
                   done:json() .. tries .. " " .. slept)
            local none, why = guarded(played, { workflow = "answer" }, function()
                return nil, { phase = "response", status = 401 }
            end, sleep)
            assert(none == nil and why.action == "fail_closed", why:json())
        ]]
        -- The first block's route was told to wait.
        blocks[4] = "engine = assert(fivegates.engine(policy))\n" .. blocks[4]
        local said, ok = cards.run(table.concat(blocks, "\n"))
        assert.is_true(ok, said)
        assert.is_truthy(said:find("^retry\t%d+\trate_limited\n"), said)
    end)
end)

describe("the packages", function()
    it("list the files that are there", function()
        local pipe = io.popen(("cd '%s' && python3 core/tools/gen_rockspec.py --check")
                              :format(ROOT))
        assert.equal("", pipe:read("*a"))
        pipe:close()
    end)

    it("have the version of the library", function()
        local version = cards.slurp(ROOT .. "/core/VERSION"):match("%S+")
        local ini = cards.slurp(ROOT .. "/bindings/lua/dist.ini")
        assert.equal(version, ini:match("\nversion = (%S+)"))
        assert.equal(version, require("fivegates").version)
    end)

    it("are a rockspec that LuaRocks would take", function()
        local env = {}
        local chunk = assert(loadfile(ROOT .. "/bindings/lua/fivegates-scm-1.rockspec"))
        setfenv(chunk, env)()
        assert.equal("fivegates", env.package)
        local modules = env.build.modules
        assert.is_true(#modules["libfivegates-host"].sources > 80)
        for name, file in pairs(modules) do
            for _, path in ipairs(type(file) == "table" and file.sources or { file }) do
                assert.is_true(cards.exists(ROOT .. "/" .. path), name .. ": " .. path)
            end
        end
    end)
end)
