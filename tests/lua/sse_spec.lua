local cards = require "cards"
local fivegates = require "fivegates"

local SAW = fivegates.SAW
local STREAM = 'data: {"choices":[{"index":0,"delta":{"role":"assistant"}}]}\n\n'
    .. 'data: {"choices":[{"index":0,"delta":{"content":"Hi"}}]}\n\n'
    .. 'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
    .. 'data: {"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":1}}\n\n'
    .. "data: [DONE]\n\n"

local function saw(bits, what)
    return bit.band(bits, SAW[what]) ~= 0
end

describe("the scanner", function()
    it("sees tokens, the end and usage, cut anywhere", function()
        for size = 1, #STREAM, 13 do
            local scanner = fivegates.sse { wire = "chat" }
            local all = 0
            for at = 1, #STREAM, size do
                all = bit.bor(all, scanner:feed(STREAM:sub(at, at + size - 1)))
            end
            assert.is_true(saw(all, "token") and saw(all, "terminal")
                           and saw(all, "usage"))
            assert.is_false(saw(all, "error") or saw(all, "malformed"))
            local answer = scanner:answer()
            assert.equal("stop", answer.finish_reason)
            assert.equal(9, answer.prompt_tokens)
            assert.equal(1, answer.output_tokens)
        end
    end)

    it("fills a table of the caller's, begins anew, and feeds a call", function()
        local scanner = fivegates.sse()
        scanner:feed(STREAM)
        local mine = {}
        assert.equal(mine, scanner:answer(mine))
        local engine = cards.engine()
        assert.equal("accept", cards.sent(engine):success(mine).action)
        scanner:reset()
        assert.equal(0, scanner:answer().prompt_tokens)
    end)

    it("hands an error in the stream on as evidence", function()
        local scanner = fivegates.sse()
        local bits = scanner:feed('data: {"error":{"message":"overloaded",'
                                  .. '"code":503}}\n\n')
        assert.is_true(saw(bits, "error"))
        local evidence = scanner:evidence()
        assert.equal("stream", evidence.phase)
        assert.is_truthy(evidence.body:find("overloaded", 1, true))
        local engine = cards.engine()
        local d = cards.sent(engine):failure(evidence)
        assert.equal("transient", d.owner)
    end)

    it("reads a whole body", function()
        local scanner = fivegates.sse { whole = true }
        scanner:feed('{"choices":[{"message":{"content":"Hi"},"finish_reason":"length"}],'
                     .. '"usage":{"prompt_tokens":3,"completion_tokens":2}}')
        assert.equal("length", scanner:answer().finish_reason)
        assert.equal(2, scanner:answer().output_tokens)
        assert.is_nil(scanner:response_id())
        scanner:reset()
        scanner:feed('{"id":"gen-')
        assert.is_nil(scanner:response_id())
        scanner:feed('1"}')
        assert.equal("gen-1", scanner:response_id())
    end)

    it("takes nothing else", function()
        local scanner = fivegates.sse()
        for _, wrong in ipairs { 1, true, {}, print } do
            cards.raised(scanner.feed, scanner, wrong)
        end
        cards.raised(scanner.feed, scanner)
        cards.raised(fivegates.sse, { wire = "soap" })
        cards.raised(fivegates.sse, { whole = 1 })
        cards.raised(fivegates.sse, { wires = "chat" })
        assert.is_number(scanner:feed(""))
        assert.is_number(scanner:feed(("\0\255"):rep(1e6)))
    end)
end)
