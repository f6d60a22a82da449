-- What the gateway keeps of an answer: tests/rewrites/kept.json, which Python
-- passes too.

require "tests.lua.helper"

local cjson = require "cjson"
local json = require "fivegates.resty.json"
local kept = require "fivegates.resty.kept"
local paths = require "tests.lua.support.paths"


local file = assert(io.open(paths.ROOT .. "/tests/rewrites/kept.json"))
local text = json.member(file:read("*a"), "cases")
file:close()


describe("what is kept of an answer", function()
    for i, one in ipairs(json.elements(text)) do
        local case = json.decode(one)
        it(("%s: %s %d"):format(case.api, case.name, i), function()
            local body = json.member(one, "answer")
            if case.events then
                body = ""
                for _, event in ipairs(json.elements(json.member(one, "events"))) do
                    body = body .. "event: x\r\ndata: " .. event .. "\r\n\r\n"
                end
            end
            local found = kept.text(case.api, body, case.events ~= nil)
            assert.equal(case.expect, found == nil and cjson.null or found)
        end)
    end

    it("is nothing of what is no answer", function()
        for _, api in ipairs { "chat", "messages", "responses" } do
            assert.is_nil(kept.text(api, "[1, 2", false))
            assert.is_nil(kept.text(api, '{"choices": 5, "content": {}}', false))
            assert.is_nil(kept.text(api, 'data: {"a"\n\ndata: 5\n\n', true))
        end
    end)
end)
