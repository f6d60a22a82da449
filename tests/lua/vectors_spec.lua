-- The vectors through the Lua binding: every case passes, and the answers are
-- those of the C runner to the byte, where that has been built.

local cards = require "cards"
local fivegates = require "fivegates"
local json = require "json"
local vectors = require "vectors"

local ROOT = require("paths").ROOT
local VECTORS = ROOT .. "/tests/vectors"

local function count(file)
    return json.len(json.decode(cards.slurp(file)).cases)
end

describe("the vectors", function()
    local files = vectors.files(VECTORS)

    it("are many", function()
        local all = 0
        for _, file in ipairs(files) do
            all = all + count(file)
        end
        assert.is_true(all >= 800)
    end)

    for _, file in ipairs(files) do
        it(file:match("([^/]+)%.json$"), function()
            local said = {}
            local report = vectors.replay({ file }, function(line)
                said[#said + 1] = line
            end)
            assert.equal("", table.concat(said, "\n"))
            assert.equal(0, report.failed)
            assert.equal(count(file), report.passed)
        end)
    end

    it("give the same bytes as in C", function()
        local runner = fivegates.library:match("^(.*/)") .. "run_vectors"
        if not cards.exists(runner) then
            return pending("the C runner was not built beside " .. fivegates.library)
        end
        local theirs, ours = os.tmpname(), os.tmpname()
        local pipe = io.popen(("'%s' --dump '%s' '%s'"):format(runner, theirs, VECTORS))
        local last = pipe:read("*a"):match("([^\n]*)\n$")
        pipe:close()
        local dump = assert(io.open(ours, "wb"))
        local report = vectors.replay({ VECTORS }, function() end, dump)
        dump:close()
        local c, lua = cards.slurp(theirs), cards.slurp(ours)
        os.remove(theirs)
        os.remove(ours)
        assert.equal(last, ("%d passed, %d failed"):format(report.passed,
                                                           report.failed))
        local other = lua:gmatch("[^\n]*")
        for line in c:gmatch("[^\n]*") do
            if line ~= other() then
                assert.equal(line, "another line")
            end
        end
        assert.is_true(c == lua)
    end)
end)

local CARD = [[{"version": 1, "routes": {"main": {"provider": "openai", "model": "m"}},
               "workflows": {"w": {"routes": ["main"]}}}]]
local BEGIN = [["at_ms": 0, "op": "begin", "call": "c", "in": {"workflow": "w"}]]

-- What replaying one file with these cases says.
local function outcome(text, passed, failed)
    local name = os.tmpname()
    local file = assert(io.open(name, "wb"))
    file:write(text)
    file:close()
    local said = {}
    local report = vectors.replay({ name }, function(line) said[#said + 1] = line end)
    os.remove(name)
    assert.equal(passed, report.passed)
    assert.equal(failed, report.failed)
    return table.concat(said, "\n")
end

local function with_steps(steps)
    return ([[{"name": "x", "cases": [{"name": "c", "policy": %s, "steps": [%s]}]}]])
           :format(CARD, steps)
end

describe("a wrong vector", function()
    for _, one in ipairs {
        { "{" .. BEGIN .. [[, "expect": {"action": "retry"}}]], 'expected "retry"' },
        { "{" .. BEGIN .. [[, "expect": {"nope": 1}}]], "(no such field)" },
        { "{" .. BEGIN .. [[, "expect": {"attempt": [2, 9]}}]], "expected [2,9], got 1" },
        { "{" .. BEGIN .. [[, "expect": {"action": {"not": "proceed"}}}]], "got" },
        { "{" .. BEGIN .. [[, "expect": {"attempt": true}}]], "expected true, got 1" },
        { "{" .. BEGIN .. [[, "foo": 1}]], 'unknown key "foo"' },
        { [[{"at_ms": 0, "op": "fly"}]], "unknown op" },
        { [[{"op": "begin"}]], "no at_ms" },
        { [[{"at_ms": 0, "op": "begin", "in": {"workflow": "w"}}]], "no call is named" },
        { [[{"at_ms": 0, "op": "begin", "call": "c", "in": {"workflow": "w", "x": 1}}]],
          'unknown key "x" in begin' },
        { [[{"at_ms": 0, "op": "begin", "call": "]] .. ("x"):rep(41) .. [["}]],
          "longer than 40" },
        { [[{"at_ms": 0, "op": "deadline", "call": "z"}]], "was never begun" },
        { [[{"at_ms": 0, "op": "begin", "call": "c", "in": {"workflow": "none"}}]],
          "error arg" },
        { [[{"at_ms": 0, "op": "kill", "in": {"proc": 99}}]], "proc is not 1 to 64" },
        { [[{"at_ms": 0, "op": "repeat",
             "in": {"times": 1e6, "every_ms": 1, "steps": []}}]],
          "times" },
        { "{" .. BEGIN .. [[}, {"at_ms": 0, "op": "event", "call": "c",
            "in": {"kind": "sent", "bytes": 1}}]], 'unknown key "bytes"' },
        { "{" .. BEGIN .. [[}, {"at_ms": 0, "op": "event", "call": "c",
            "in": {"kind": "z"}}]], "kind" },
    } do
        it("fails: " .. one[2], function()
            local said = outcome(with_steps(one[1]), 0, 1)
            assert.is_truthy(said:find(one[2], 1, true), said)
        end)
    end

    it("of another form fails", function()
        for _, text in ipairs { "", "[]", "{}", '{"cases": [], "x": 1}', "\255",
                                '{"cases": [], "cases": []}', ("["):rep(100000) } do
            outcome(text, 0, 1)
        end
        assert.equal(1, vectors.replay({ "/nowhere.json" }, function() end).failed)
    end)

    it("with the right forms passes", function()
        assert.equal("", outcome(with_steps("{" .. BEGIN .. [[, "expect": {
            "action": {"in": ["x", "proceed"]}, "attempt": [1, 1],
            "route": {"not": "backup"}, "timeouts.connect_ms": 5000, "rejected": [],
            "user.text": null, "result": "ok"}},
            {"at_ms": 5, "op": "begin", "call": "d", "in": {"workflow": "z"},
             "expect": {"result": "arg"}}]]), 1, 0))
    end)
end)
