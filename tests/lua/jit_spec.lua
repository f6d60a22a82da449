-- The hot path is compiled and leaves nothing for the collector.

local ROOT = require("paths").ROOT

-- Facts of jit_check.lua, as numbers.
local function check(mode, options)
    local pipe = io.popen(("luajit %s '%s/tests/lua/jit_check.lua' %s 2>&1")
                          :format(options or "", ROOT, mode))
    local said = pipe:read("*a")
    pipe:close()
    local facts = { said = said }
    for key, value in said:gmatch("(%w+)=(%d+)") do
        facts[key] = tonumber(value)
    end
    assert.is_number(facts.garbage, said)
    return facts
end

describe("the hot path", function()
    -- One try may lose its last trace to the compiler's own dice.
    it("from begin to success is one compiled loop without garbage", function()
        local facts
        for _ = 1, 3 do
            facts = check("loop")
            if facts.events == 0 and facts.loops > 0 then
                break
            end
        end
        assert.equal(0, facts.ours, facts.said)
        assert.equal(0, facts.events, facts.said)
        assert.is_true(facts.loops > 0, facts.said)
        assert.is_true(facts.garbage < 1024, facts.said)
    end)

    it("with a failure and a paid retry leaves no garbage either", function()
        local facts = check("failure")
        assert.equal(0, facts.ours, facts.said)
        assert.is_true(facts.garbage / facts.lives < 1, facts.said)
    end)

    it("cut up by yields, as in nginx, is compiled piece by piece", function()
        local facts = check("yield")
        assert.equal(0, facts.ours, facts.said)
        assert.is_true(facts.garbage / facts.lives < 1, facts.said)
        -- The measure measures: interpreted, each life leaves boxed numbers.
        local interpreted = check("yield", "-joff")
        assert.is_true(interpreted.garbage / interpreted.lives > 100)
    end)
end)
