-- What the gateway tells the engine of a stream: as many tokens however the
-- network cut it, and no speed where there is none to tell.

require "tests.lua.helper"

local fivegates = require "fivegates"
local progress = require "fivegates.resty.progress"


local function delta(text)
    return 'data: {"choices":[{"index":0,"delta":{"content":"' .. text .. '"}}]}\n\n'
end


-- Reads chunks; what was told: tokens in all, and the kinds of events.
local function told(chunks, no_speed)
    local tokens, kinds = 0, {}
    local self = {
        wire = "chat", number = 1, saw = 0, counts = {}, no_speed = no_speed,
        scanner = fivegates.sse { wire = "chat" },
        call = { event = function(_, kind, value)
            kinds[#kinds + 1] = kind
            tokens = tokens + (kind == "token" and value or 0)
        end, usage = function() end },
    }
    for _, chunk in ipairs(chunks) do
        progress.feed(self, chunk)
    end
    return tokens, table.concat(kinds, " ")
end


describe("tokens of a stream", function()
    for _, word in ipairs { "a", "\228\189\160", "word", "a longer word" } do
        it("are as many in one chunk as in many: " .. word, function()
            local each = {}
            for i = 1, 20 do
                each[i] = delta(word)
            end
            assert.equal((told(each)), (told { table.concat(each) }))
        end)
    end

    it("are as many with other line ends", function()
        local crs = delta("a"):rep(20):gsub("\n", "\r")
        assert.equal(20, (told { crs }))
        local both = delta("a"):rep(20):gsub("\n", "\r\n")
        assert.equal(20, (told { both }))
    end)

    it("have no speed where several answers come at once", function()
        assert.is_true(progress.several { n = 2 })
        assert.is_false(progress.several { n = 1 })
        assert.is_false(progress.several {})
        assert.is_false(progress.several { n = "2" })
        local chunks = { delta("a"), delta("b") }
        assert.equal("token token", select(2, told(chunks)))
        assert.equal("reasoning token reasoning token",
                     (select(2, told(chunks, true))))
    end)
end)
