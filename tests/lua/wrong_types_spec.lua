-- Whatever a function is given: it answers, or raises a string; it never
-- crashes. What is wrong is said with its name.

local cards = require "cards"
local ffi = require "ffi"
local fivegates = require "fivegates"

local cycle = {}
cycle.cycle, cycle[1] = cycle, cycle

-- Values of every kind, and some of each that are trouble.
local function odd_values()
    return {
        false, true, 0, -1, 1.5, 2 ^ 31, 2 ^ 32, 2 ^ 53, 2 ^ 63, 1e308, 0 / 0, 1 / 0,
        -1 / 0, "", "x", "stop", "sent", "a\0b", "\255\254", ("y"):rep(70000), {},
        { 1, 2 }, { "stop" }, { {} }, cycle, { [1.5] = 1 }, { [true] = "x" },
        setmetatable({}, { __index = function() error("asked") end }),
        setmetatable({}, { __len = function() return 1e9 end }),
        print, coroutine.create(print), io.stdout, 12LL, 0xffffffffffffffffULL,
        ffi.new("int[3]"), ffi.new("fg_call"), ffi.cast("void *", 0),
    }
end

-- A reproducible stream of numbers.
local function random(seed)
    local state = seed
    return function(n)
        state = (state * 1103515245 + 12345) % 2147483648
        return math.floor(state / 65536) % n + 1
    end
end

local function survives(f, ...)
    local ok, problem = pcall(f, ...)
    if not ok and type(problem) ~= "string" then
        error("raised a " .. type(problem))
    end
end

local FACTS = { "workflow", "call_id", "tenant", "affinity", "account", "data_class",
                "region", "language", "prompt_tokens", "max_output_tokens",
                "request_bytes", "max_wait_ms", "stream", "delivery", "server_state",
                "features", "unable", "tools", "tool_choice", "prior" }
local EVIDENCE = { "provider", "api", "phase", "status", "headers", "body", "transport",
                   "elapsed_ms", "progress", "inner_attempts", "origin", "client_gone",
                   "whole_body", "timeout", "unix_ms", "attempt" }
local ANSWER = { "prompt_tokens", "cached_tokens", "output_tokens", "finish_reason",
                 "output", "visible", "tool_calls", "cost_usd", "cost_nusd", "final",
                 "attempt" }

-- Operations of a call, and how many arguments they look at.
local METHODS = { begin_attempt = 1, failure = 2, success = 2, deadline = 1, unable = 2,
                  step = 3, cancel = 1, resolved = 3, event = 4, usage = 2, tool = 4,
                  drop = 1, id = 1, ledger_line = 3 }

describe("wrong types", function()
    local values = odd_values()
    local engine

    before_each(function() engine = cards.engine() end)

    it("alone in each field of each table", function()
        for _, value in ipairs(values) do
            for _, field in ipairs(FACTS) do
                survives(engine.begin, engine, { workflow = "bare", [field] = value })
            end
            for _, field in ipairs(EVIDENCE) do
                survives(fivegates.classify, { [field] = value })
                local call = cards.sent((cards.engine()))
                survives(call.failure, call, { [field] = value })
            end
            for _, field in ipairs(ANSWER) do
                local call = cards.sent((cards.engine()))
                survives(call.usage, call, { [field] = value })
                survives(call.success, call, { [field] = value })
            end
        end
    end)

    it("as each argument of each operation", function()
        for name, count in pairs(METHODS) do
            for at = 1, count do
                for _, value in ipairs(values) do
                    local call = cards.sent((cards.engine()))
                    local arguments = {}
                    arguments[at] = value
                    survives(call[name], call, unpack(arguments, 1, count))
                end
            end
        end
    end)

    it("as self", function()
        local call = cards.sent(engine)
        local scanner = fivegates.sse()
        for _, object in ipairs { call, engine, engine.policy, engine.region,
                                  call.decision, scanner } do
            local class = getmetatable(object).__index
            for _, method in pairs(type(class) == "table" and class or {}) do
                for _, value in ipairs(values) do
                    if type(method) == "function" then
                        survives(method, value)
                        survives(method, value, value)
                    end
                end
                survives(method)
                survives(method, object, object, object)
            end
        end
    end)

    it("in thousands of random mixtures", function()
        local pick = random(7)
        for _ = 1, 5000 do
            local facts, evidence, answer = { workflow = "bare" }, {}, {}
            for _ = 1, pick(3) do
                facts[FACTS[pick(#FACTS)]] = values[pick(#values)]
                evidence[EVIDENCE[pick(#EVIDENCE)]] = values[pick(#values)]
                answer[ANSWER[pick(#ANSWER)]] = values[pick(#values)]
            end
            survives(engine.begin, engine, facts)
            local call = engine:begin { workflow = "answer" }
            survives(call.begin_attempt, call)
            survives(call.event, call, values[pick(#values)], values[pick(#values)],
                     values[pick(#values)], values[pick(#values)])
            survives(call.failure, call, evidence)
            survives(call.success, call, answer)
            survives(fivegates.classify, evidence, engine.policy)
        end
    end)

    it("says which value is wrong", function()
        local function said(facts)
            facts.workflow = "bare"
            return cards.raised(engine.begin, engine, facts)
        end
        local function has(words, text)
            assert.is_truthy(text:find(words, 1, true), text)
        end
        has("prompt_tokens must be a whole number from 0 to 4294967295, not -1",
            said { prompt_tokens = -1 })
        has("tenant must be a string", said { tenant = 7 })
        has('features is "x"; it is one of', said { features = { "x" } })
        has("tool_choice b is not one of tools",
            said { tools = { "a" }, tool_choice = "b" })
        has('prior has no key "tries"', said { prior = { tries = 1 } })
        has('evidence has no key "stauts"; it has api, ',
            cards.raised(fivegates.classify, { phase = "response", stauts = 429 }))
        has('transport has no key "x"',
            cards.raised(fivegates.classify, { transport = { x = 1 } }))
        has('progress has no key "x"',
            cards.raised(fivegates.classify, { progress = { x = 1 } }))
        local call = cards.sent(engine)
        has('success has no key "tokens"',
            cards.raised(call.success, call, { tokens = 1, output = "x" }))
        has("begin needs the workflow's name", cards.raised(engine.begin, engine, {}))
        has("plain table", cards.raised(engine.begin, engine, setmetatable({}, {})))
    end)

    it("money is rounded to the nearest nano-dollar", function()
        local usd = require("fivegates.check").usd
        for i = 0, 9999 do
            assert.equal(i * 100000, usd(i / 10000, "cost_usd"))
        end
        assert.equal(1, usd(0.6e-9, "cost_usd"))
        assert.equal(0, usd(0.4e-9, "cost_usd"))
    end)

    it("zeros inside strings and huge strings pass as they are", function()
        local call = engine:begin { workflow = "bare", call_id = "a\0b",
                                    tenant = ("t"):rep(1e7) }
        assert.equal("a\0b", call:id())
        call:begin_attempt()
        call:event("sent")
        local f = fivegates.classify { phase = "response", status = 500,
                                       body = ("\0"):rep(1e7),
                                       headers = { ["x\0y"] = ("h"):rep(1e6) } }
        assert.equal("transient", f.owner)
        assert.equal("accept", call:success({ output = ("o"):rep(1e7) }).action)
    end)

    it("lists longer than their room are refused or grow", function()
        local many = {}
        for i = 1, 5000 do
            many[i] = "t" .. i
        end
        assert.is_truthy(cards.raised(engine.begin, engine, { workflow = "bare",
            tools = many }):find("tools holds more than 128", 1, true))
        local calls = {}
        for i = 1, 200 do
            calls[i] = { id = "c" .. i, name = "n", arguments = "{}" }
        end
        assert.equal("accept", cards.sent(engine):success({ tool_calls = calls,
            finish_reason = "tool_calls" }).action)
    end)
end)
