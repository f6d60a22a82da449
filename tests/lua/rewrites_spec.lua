-- The edits of requests: tests/rewrites, which Python passes too.

require "tests.lua.helper"

local cjson = require "cjson"
local edits = require "fivegates.resty.edits"
local json = require "fivegates.resty.json"
local paths = require "tests.lua.support.paths"


local function request_of(wire, text)
    return { wire = wire, text = text, body = json.decode(text),
             members = json.members(text) }
end


local function drops_of(names)
    local all = {}
    for _, name in ipairs(names or {}) do
        all[name] = true
    end
    return function(name) return all["*"] or all[name] or false end
end


-- The cases' own text of a body or an expectation: no number or list is read
-- and written again.
local function cases()
    local file = assert(io.open(paths.ROOT .. "/tests/rewrites/edits.json"))
    local text = json.member(file:read("*a"), "cases")
    file:close()
    local all = {}
    for i, one in ipairs(json.elements(text)) do
        all[i] = json.decode(one)
        all[i].text = json.member(one, "body")
    end
    return all
end


describe("an edit", function()
    local count = 0
    for _, case in ipairs(cases()) do
        if case.api ~= "generateContent" then  -- no API of the gateway's
            count = count + 1
            it(case.name .. " (" .. case.api .. ")", function()
                local request = request_of(case.api, case.text)
                local made = edits.apply(request, nil, case.changes,
                                         drops_of(case.drops), case.provider)
                if case.expect == cjson.null then
                    assert.is_nil(made)
                else
                    assert.same(case.expect, json.decode(made))
                end
                if next(case.changes) == nil then
                    assert.equal(case.text, made)
                end
            end)
        end
    end
    it("has its cases", function() assert.is_true(count > 40) end)

    it("leaves what it does not touch byte for byte", function()
        local text = '{ "n":1.0e0,"messages":[{"role":"user","content":"old '
            .. ("x"):rep(99) .. '"},{"role":"assistant","content":"\\u00fc"},'
            .. '{"role":"user","content" : "a \\"b\\" [{","z":[ ],"y":1.50}],'
            .. '"stop":[ ] }'
        assert.equal('{"n":1.0e0,"messages":[{"role":"user","content" : '
                     .. '"a \\"b\\" [{","z":[ ],"y":1.50}],"stop":[ ]}',
                     edits.apply(request_of("chat", text), nil, { compact = 40 },
                                 drops_of {}))
    end)
end)


describe("the edits of a decision", function()
    it("say why", function()
        local function of(decision)
            return edits.changes_of(setmetatable(decision, { __index = {
                max_tokens = 5, compact_tokens = 9, reason = "transient",
                detail = "none" } }))
        end
        assert.same({ max_tokens = 5, compact = 9 },
                    of { change = { "max_tokens", "compact" } })
        assert.same({ no_thinking = "less", drop_tools = "some" },
                    of { change = { "no_thinking", "drop_tools" } })
        assert.same({ no_thinking = "refused", drop_tools = "all" },
                    of { change = { "no_thinking", "drop_tools" },
                         ladder_step = "without_tools", detail = "unsupported" })
    end)
end)
