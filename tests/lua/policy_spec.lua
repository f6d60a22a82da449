local cards = require "cards"
local fivegates = require "fivegates"

describe("a policy", function()
    local policy = assert(fivegates.policy(cards.CARD))

    it("is read from text and from a table alike", function()
        local same = assert(fivegates.policy(require("cjson").decode(cards.CARD)))
        assert.equal(policy.fingerprint, same.fingerprint)
        assert.is_truthy(policy.fingerprint:match("^sha256:%x+$"))
        assert.equal("fivegates.policy " .. policy.fingerprint, tostring(policy))
    end)

    it("tells its names", function()
        assert.same({ "main", "backup" }, policy:routes())
        assert.same({ "answer", "bare" }, policy:workflows())
        policy:routes()[1] = "changed"
        assert.equal("main", policy:routes()[1])
    end)

    it("tells where to send", function()
        local route = policy:route("main")
        assert.equal("gpt-4o", route.model)
        assert.equal("https://api.example/v1", route.base_url)
        assert.equal("KEY", route.key_env)
        assert.same({ input = 2500000000, cached_input = 1250000000,
                      output = 10000000000 }, route.price_nusd_per_million)
        assert.is_nil(policy:route("backup").price_nusd_per_million.input)
        assert.is_truthy(cards.raised(policy.route, policy, "none")
                         :find("no route none", 1, true))
    end)

    it("has lint, contracts, presets, rules", function()
        local lint = policy:lint()
        assert.is_true(#lint > 0)
        assert.is_true(lint[1].line > 0 and #lint[1].message > 0)
        local contract = policy:contract("answer", "backup")
        assert.is_false(contract.approved)
        assert.equal("not_approved", contract.barred)
        assert.is_truthy(contract.fingerprint:find("sha256:", 1, true))
        assert.is_false(policy:drops_tool("answer", "backup", "search"))
        assert.equal("Not now.", policy:preset(1))
        assert.equal("Jetzt nicht.", policy:preset(1, "de-AT"))
        assert.is_nil(policy:preset(99))
        assert.equal("", policy:rule_why(0))
    end)

    it("that does not load is nil and an error with its place", function()
        local none, err = fivegates.policy('{"version": 1,\n "routs": {}}')
        assert.is_nil(none)
        assert.equal("unknown_key", err.code)
        assert.equal("routs", err.path)
        assert.equal(2, err.line)
        assert.is_true(err.column > 0)
        assert.is_truthy(tostring(err):find("2:", 1, true))
        assert.equal("x " .. tostring(err), "x " .. err)
        local _, syntax = fivegates.policy("{")
        assert.equal("syntax", syntax.code)
    end)

    it("in YAML says who reads it", function()
        local _, err = fivegates.policy("version: 1\nroutes:\n")
        assert.is_truthy(err.message:find("fivegates check", 1, true))
    end)

    it("of a file", function()
        local name = os.tmpname()
        local file = assert(io.open(name, "wb"))
        file:write(cards.CARD)
        file:close()
        assert.equal(policy.fingerprint, assert(fivegates.load(name)).fingerprint)
        file = assert(io.open(name, "wb"))
        file:write("{")
        file:close()
        local _, err = fivegates.load(name)
        assert.equal(name, err.file)
        os.remove(name)
        _, err = fivegates.load(name)
        assert.equal("file", err.code)
    end)

    it("takes nothing that is no card", function()
        for _, wrong in ipairs { 1, true, print, io.stdout } do
            assert.is_truthy(cards.raised(fivegates.policy, wrong)
                             :find("a card is JSON text or a table", 1, true))
        end
        local cycle = {}
        cycle.cycle = cycle
        cards.raised(fivegates.policy, cycle)
        cards.raised(fivegates.policy, { version = print })
        cards.raised(fivegates.policy, { version = 0 / 0 })
        -- Neither a list with a hole nor an empty table is guessed at.
        cards.raised(fivegates.policy, { classify = { [3] = "x" } })
    end)

    it("is refused whole when it holds a NUL or is huge", function()
        for _, text in ipairs { "\0", '{"version": 1\0}', ("["):rep(1e6),
                                ("\255"):rep(1000), "",
                                '{"version": "' .. ("x"):rep(5e6) .. '"}' } do
            local none, err = fivegates.policy(text)
            assert.is_nil(none)
            assert.is_string(err.code)
        end
    end)
end)
