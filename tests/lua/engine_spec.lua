local cards = require "cards"
local fivegates = require "fivegates"

describe("an engine", function()
    it("shows a route and a workflow", function()
        local engine = cards.engine()
        local call = cards.sent(engine)
        local view = engine:route("main")
        assert.equal("closed", view.breaker)
        assert.equal("none", view.latch)
        assert.equal(1, view.in_flight)
        assert.equal(1, view.attempts)
        call:success { prompt_tokens = 1, output_tokens = 1, finish_reason = "stop" }
        assert.equal(0, engine:route("main").in_flight)
        assert.equal(1, engine:workflow("bare").primary_success)
        cards.raised(engine.route, engine, "none")
        cards.raised(engine.workflow, engine, nil)
    end)

    it("ticks, and takes wall time", function()
        local engine = cards.engine()
        local after = engine:tick()
        assert.is_true(after >= 1 and after <= 1000)
        assert.is_true(engine:wall_clock(1796000000000))
    end)

    it("reads the monotonic clock when it has no other", function()
        local engine = assert(fivegates.engine(assert(fivegates.policy(cards.CARD))))
        local uptime = tonumber(cards.slurp("/proc/uptime"):match("^%S+")) * 1000
        assert.is_true(math.abs(engine:now_ms() - uptime) < 60000)
        assert.is_true(engine:tick() > 0)
    end)

    it("goes by a clock that begins anywhere", function()
        local policy = assert(fivegates.policy(cards.CARD))
        for _, from in ipairs { 0, 5, 1e6, 1e11 } do
            local engine = assert(fivegates.engine(policy, {
                clock = function() return from end }))
            assert.equal("proceed", cards.sent(engine).decision.action)
        end
    end)

    it("refuses wall time as its clock", function()
        local engine = cards.engine()
        assert.is_truthy(cards.raised(engine.begin, engine, { workflow = "bare" }, nil,
                                      1796000000000):find("[arg]", 1, true))
    end)

    it("is reloaded on the same region; old calls go on", function()
        local engine = cards.engine()
        local call = cards.sent(engine)
        local other = assert(engine:reload(assert(fivegates.policy(
            (cards.CARD:gsub('"bare"', '"plain"'))))))
        assert.equal(1, other:route("main").in_flight)
        assert.equal("accept", call:success({ output = "x" }).action)
        assert.equal(0, other:route("main").in_flight)
        cards.raised(other.begin, other, { workflow = "bare" })
        assert.is_truthy(other:begin { workflow = "plain" })
        -- The memory of the old engine's call serves the new engine.
        local again = other:begin({ workflow = "plain" }, call)
        assert.equal(call, again)
        assert.equal(other, again.engine)
        assert.equal("proceed", again:begin_attempt().action)
    end)

    it("says the same with the same seed and ids", function()
        local function waits()
            local engine = cards.engine { seed = 7 }
            local call = cards.sent(engine, { workflow = "bare", call_id = "c" })
            return call:failure({ phase = "response", status = 503 }).wait_ms
        end
        assert.equal(waits(), waits())
    end)

    it("takes a number or a uint64 as seed, and no other option", function()
        local policy = assert(fivegates.policy(cards.CARD))
        assert.is_truthy(fivegates.engine(policy, { seed = 2 ^ 53 }))
        assert.is_truthy(fivegates.engine(policy, { seed = 0xffffffffffffffffULL }))
        for _, wrong in ipairs { { seed = -1 }, { seed = 0.5 }, { seed = "1" },
                                 { seed = 0 / 0 }, { clock = 1 }, { region = 1 },
                                 { region = "" }, { region = {} }, { procs = "x" },
                                 { region = "a\0b" }, { slots = 1 }, 1, "x",
                                 setmetatable({}, {}) } do
            cards.raised(fivegates.engine, policy, wrong)
        end
        cards.raised(fivegates.engine, cards.CARD)
        cards.raised(fivegates.engine, nil)
    end)
end)

describe("a region in a file", function()
    local path

    before_each(function() path = os.tmpname() end)
    after_each(function() os.execute("rm -f '" .. path .. "'*") end)

    it("is shared by engines of one process", function()
        local region = assert(fivegates.region(path, { procs = 16 }))
        assert.equal(1, region:path():find(path .. ".fg", 1, true))
        assert.is_nil(region.warning)
        assert.equal(0, region:reap())
        local policy = assert(fivegates.policy(cards.CARD))
        local one = assert(fivegates.engine(policy, { region = region }))
        local two = assert(fivegates.engine(policy, { region = path, procs = 16 }))
        local call = cards.sent(one)
        assert.equal(1, two:route("main").in_flight)
        call:drop()
        assert.equal(0, two:route("main").in_flight)
        cards.raised(fivegates.engine, policy, { region = region, procs = 8 })
    end)

    it("that cannot be used is an error that says so", function()
        local none, err = fivegates.region("/nowhere/at/all")
        assert.is_nil(none)
        assert.equal("region", err.code)
        assert.is_truthy(err.path:find("/nowhere", 1, true))
        local policy = assert(fivegates.policy(cards.CARD))
        none, err = fivegates.engine(policy, { region = "/nowhere/at/all" })
        assert.is_nil(none)
        assert.equal("region", err.code)
    end)

    it("of noise warns", function()
        local region = assert(fivegates.region(path))
        local file = assert(io.open(region:path(), "rb"))
        file:close()
        local said, ok = cards.run([[
            local fivegates = require "fivegates"
            local f = assert(io.open(arg[1] .. "x.fg2", "wb")) f:close()
            for i = 0, 9 do
                local f = assert(io.open(arg[1] .. "x.fg" .. i, "wb"))
                f:write(("noise"):rep(1000)) f:close()
            end
            print(assert(fivegates.region(arg[1] .. "x")).warning)
        ]], path)
        assert.is_true(ok)
        assert.is_truthy(said:find(path .. "x.fg", 1, true), said)
    end)

    it("of a size out of range is the caller's mistake", function()
        assert.is_nil(fivegates.region(nil, { procs = 8 }):path())
        local ok, none, err = pcall(fivegates.region, nil, { procs = 4000000000 })
        assert.is_true(not ok or (none == nil and err.code == "arg"))
        cards.raised(fivegates.region, nil, { proc = 8 })
    end)
end)
