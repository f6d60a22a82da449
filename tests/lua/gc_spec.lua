-- Who keeps what alive, and what the collector may do in which order. The
-- scripts run in processes of their own: they end with their Lua state.

local cards = require "cards"

local HEAD = [[
local cards = require "cards"
local engine = cards.engine(arg[1] and { region = arg[1] } or nil)
local function in_flight() return engine:route("main").in_flight end
]]

local function good(script, ...)
    local said, ok = cards.run(HEAD .. script, ...)
    assert.is_true(ok, said)
    assert.equal("", said)
end

describe("the collector", function()
    local path

    before_each(function() path = os.tmpname() end)
    after_each(function() os.execute("rm -f '" .. path .. "'*") end)

    it("ends a call that nobody holds, neutrally", function()
        good [[
            for i = 1, 100 do cards.sent(engine) end
            collectgarbage() collectgarbage()
            assert(in_flight() == 0, in_flight())
            local view = engine:route("main")
            assert(view.failures == 0 and view.run == 0 and view.window_failed == 0)
            assert(view.attempts == 100)
        ]]
    end)

    it("leaves saved and forgotten calls alone", function()
        good [[
            local bytes = cards.sent(engine):save()
            cards.sent(engine):forget()
            collectgarbage() collectgarbage()
            assert(in_flight() == 2, in_flight())
            assert(engine:resume(bytes))
            collectgarbage() collectgarbage()
            assert(in_flight() == 1, in_flight())
        ]]
    end)

    it("keeps engine, policy and region while a call is there", function()
        good [[
            local call = cards.sent(engine)
            engine = nil
            for i = 1, 20 do
                collectgarbage()
                for j = 1, 20 do cards.engine() end
            end
            assert(call:failure({ phase = "response", status = 503 }).action == "retry")
            assert(call:deadline().route == "main")
            assert(#call.decision:explain() > 0)
        ]]
    end)

    it("keeps what the end of a call needs until it was", function()
        good [[
            local call = cards.sent(engine)
            local block, weak = call.block, setmetatable({}, { __mode = "v" })
            weak.engine, weak.policy = engine.memory, engine.policy.memory
            weak.region = engine.region
            call, engine = nil, nil
            collectgarbage() collectgarbage()
            assert(weak.engine and weak.policy and weak.region)
            block = nil
            collectgarbage() collectgarbage() collectgarbage()
            assert(not weak.engine and not weak.policy and not weak.region)
        ]]
    end)

    it("ends a call in the engine it was used again with", function()
        good [[
            local other = cards.engine { seed = 9 }
            do
                local call = cards.sent(engine)
                other:begin({ workflow = "bare" }, call):begin_attempt()
                assert(in_flight() == 0 and other:route("main").in_flight == 1)
            end
            collectgarbage() collectgarbage()
            assert(other:route("main").in_flight == 0)
        ]]
    end)

    it("keeps what a decision needs", function()
        good [[
            local kept = {}
            for i = 1, 200 do
                kept[i] = cards.sent((cards.engine())).decision
            end
            engine = nil
            collectgarbage() collectgarbage()
            for i = 1, 200 do
                assert(kept[i].action == "proceed" and kept[i].route == "main")
                assert(#kept[i]:json() > 0)
                kept[i]:explain()
            end
        ]]
    end)

    -- At every few allocations; strings made here alone. Compiled code with the
    -- first pace would only ever collect: it leaves its trace for each cycle.
    for _, pace in ipairs { "jit.off() pace(1, 5000)", "pace(50, 400)" } do
        it("may run at any moment of an operation: " .. pace, function()
            good([[
                local function pace(pause, stepmul)
                    collectgarbage("setpause", pause)
                    collectgarbage("setstepmul", stepmul)
                end
            ]] .. pace .. [[
                for i = 1, 3000 do
                    local n = tostring(i)
                    local call = assert(engine:begin { workflow = "ba" .. "re",
                        call_id = "id-" .. n, tenant = "t" .. n,
                        tools = { "a" .. n, "b" .. n }, tool_choice = "b" .. n })
                    call:begin_attempt()
                    call:event("sent")
                    call:failure { phase = "response", status = 503, body = "b" .. n,
                        headers = { ["x-" .. n] = i, ["y-" .. n] = { "z" .. n, n } } }
                    assert(call:id() == "id-" .. n)
                end
            ]])
        end)
    end

    it("closes a state with everything open, in any order", function()
        for round = 1, 12 do
            good(([[
                for i = 1, %d do
                    _G["x" .. i] = cards.sent(i %% 2 == 0 and engine
                                              or (cards.engine()))
                end
            ]]):format(round * 3), round % 2 == 0 and path or nil)
        end
    end)

    it("gives the slot of a file back with its region", function()
        good([[
            local fivegates = require "fivegates"
            local policy = assert(fivegates.policy(cards.CARD))
            assert(in_flight() == 0)
            local first = engine.slot
            engine = nil
            collectgarbage() collectgarbage()
            for i = 1, 100 do
                local again = assert(fivegates.engine(policy, { region = arg[1] }))
                assert(again.slot == first)
                again = nil
                collectgarbage()
            end
        ]], path)
    end)
end)

describe("a killed process", function()
    it("leaves nothing behind in the file for long", function()
        local path = os.tmpname()
        local said = cards.run([[
            local cards = require "cards"
            local engine = assert(require("fivegates").engine(
                assert(require("fivegates").policy(cards.CARD)), { region = arg[1] }))
            for i = 1, 5 do _G["x" .. i] = cards.sent(engine) end
            io.write(engine:route("main").in_flight)
            io.stdout:flush()
            require("ffi").cdef("int kill(int, int);")
            require("ffi").C.kill(require("ffi").C.getpid(), 9)
        ]], path)
        assert.equal("5", said:sub(1, 1))
        local said_after = cards.run([[
            local cards = require "cards"
            local fivegates = require "fivegates"
            local region = assert(fivegates.region(arg[1]))
            region:reap()
            local engine = assert(fivegates.engine(assert(fivegates.policy(cards.CARD)),
                                                   { region = region }))
            io.write(engine:route("main").in_flight, " ",
                     tonumber(engine:route("main").attempts))
        ]], path)
        os.execute("rm -f '" .. path .. "'*")
        assert.equal("0 5", said_after)
    end)
end)
