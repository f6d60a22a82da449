local cards = require "cards"
local fivegates = require "fivegates"

local RATE = { phase = "response", status = 429,
               headers = { ["Retry-After"] = "2", ["x-ids"] = { "a", "b" }, n = 3 },
               body = '{"error": {"message": "slow down"}}' }

describe("a call", function()
    local engine, at

    before_each(function() engine, at = cards.engine() end)

    it("lives from begin to success", function()
        local call = assert(engine:begin { workflow = "answer", prompt_tokens = 900,
                                           max_output_tokens = 300, tenant = "t" })
        local d = call.decision
        assert.equal("proceed", d.action)
        assert.equal("main", d.route)
        assert.equal("primary_ready", d.reason)
        assert.equal(d, call:begin_attempt())
        assert.equal(1, d.attempt)
        assert.is_true(d.wake_ms > 0)
        assert.is_true(call:event("sent"))
        at(100)
        assert.is_true(call:event("token", 3))
        assert.is_true(call:event("token"))
        assert.is_true(call:event("terminal", "stop"))
        assert.is_true(call:usage { prompt_tokens = 900, output_tokens = 4,
                                    final = true })
        assert.equal("accept", call:success({ finish_reason = "stop",
                                              output = "hello" }).action)
        assert.equal("complete", d.reason)
    end)

    it("retries after a wait, then ends", function()
        local call = cards.sent(engine)
        at(300)
        local d = call:failure(RATE)
        assert.equal("retry", d.action)
        assert.is_true(d.wait_ms >= 2000 and d.wait_ms <= 3000)
        assert.equal("rate", d.owner)
        assert.equal("rate_limited", d.kind)
        assert.equal("owner", d.gate)
        assert.equal("rate_limited", d.reason)
        at(300 + d.wait_ms)
        assert.equal("proceed", call:begin_attempt().action)
        call:event("sent")
        d = call:failure { phase = "response", status = 401 }
        assert.equal("fail_closed", d.action)
        assert.equal("fix_key", d.repair)
        assert.same({ "key_latched" }, d.alert)
        assert.is_boolean(d.user_may_retry)
        assert.is_true(d.hint_status > 0)
    end)

    it("gives a degraded answer with its text in the call's language", function()
        local call = cards.sent(engine, { workflow = "answer", language = "de",
                                          unable = "wait" })
        local d = call:failure(RATE)
        assert.equal("degrade", d.action)
        assert.equal("preset", d.ladder_step)
        assert.equal(1, d.step)
        assert.equal("Jetzt nicht.", d.text)
        assert.is_true(d.labelled)
        assert.equal("main", d.requested)
        assert.same({ { route = "main", why = "host_cannot_wait" },
                      { route = "backup", why = "not_approved" } }, d.rejected)
    end)

    it("holds its fields by name, and no others", function()
        local call = cards.sent(engine)
        local d = call.decision
        local whole = d:to_table()
        for _, key in ipairs { "action", "route", "attempt", "wait_ms", "wake_ms",
                               "reason", "detail", "gate", "owner", "kind",
                               "attempts_left", "elapsed_left_ms", "tokens_left",
                               "resume_from", "cancel", "reuse_ops", "max_age_s",
                               "lookup", "repair", "may_pay_twice" } do
            assert.equal(whole[key], d[key], key)
        end
        assert.is_true(d.cost_left_nusd > 0)
        assert.equal(whole.cost_left_nusd, d.cost_left_nusd)
        local free = assert(engine:reload(assert(fivegates.policy(
            (cards.CARD:gsub('"price": %b{}', '"weight": 1'))))))
        assert.is_nil(free:begin({ workflow = "bare" }).decision.cost_left_nusd)
        assert.equal(whole.timeouts.idle_ms, d.idle_ms)
        assert.same({}, d.change)
        assert.is_nil(d.text)
        assert.is_nil(d.ladder_step)
        assert.equal(1, d.route_id)
        assert.equal(d:json(), tostring(d))
        assert.is_truthy(cards.raised(function() return d.acton end)
                         :find("no field acton", 1, true))
    end)

    it("overwrites its decision; a copy stays", function()
        local call = cards.sent(engine)
        local copy = call.decision:copy()
        local d = call:failure(RATE)
        assert.equal("retry", d.action)
        assert.equal("proceed", copy.action)
        assert.equal("main", copy.route)
    end)

    it("explains itself and writes the ledger", function()
        local call = cards.sent(engine)
        assert.is_truthy(call:failure(RATE):explain():find("=> retry on main", 1, true))
        for _, line in ipairs { "call", "decision", "end" } do
            local json = require("cjson").decode(call:ledger_line(line))
            assert.equal(call:id(), json.call or json.call_id or json.id)
        end
        local line = require("cjson").decode(call:ledger_line("decision"))
        assert.equal("failure", line.after)
        assert.equal("rate", line.failure.class)
        assert.equal(429, line["http.response.status_code"])
        local first = call:ledger_line("decision", call.decision:copy())
        assert.equal(first, call:ledger_line("decision"))
        cards.raised(call.ledger_line, call, "nope")
        cards.raised(call.ledger_line, call, "decision", {})
        cards.raised(call.ledger_line, call, "decision", nil, nil, 5)
        local named = require("cjson").decode(
            call:ledger_line("decision", nil, nil, "gen-1", "req_2"))
        assert.equal("gen-1", named["gen_ai.response.id"])
        assert.equal("req_2", named.server_request_id)
        assert.equal(first, call:ledger_line("decision", nil, nil, "no id", ""))
    end)

    it("has an id of its own, or the one given", function()
        local seen = {}
        for _ = 1, 1000 do
            local id = engine:begin({ workflow = "bare" }):id()
            assert.is_truthy(id:match("^fg%-%x+%-%x+$"))
            assert.is_nil(seen[id])
            seen[id] = true
        end
        local other = cards.engine { seed = 2 }
        assert.is_nil(seen[other:begin({ workflow = "bare" }):id()])
        local call = engine:begin { workflow = "bare", call_id = "mine" }
        assert.equal("mine", call:id())
        assert.equal("fivegates.call mine", tostring(call))
        assert.is_truthy(cards.raised(engine.begin, engine,
            { workflow = "bare", call_id = ("x"):rep(41) }):find("40 bytes", 1, true))
    end)

    it("waits, is cancelled, cannot, goes on, is settled", function()
        local call = cards.sent(engine)
        assert.equal("keep_waiting", call:deadline().action)
        assert.equal(1, call:cancel().cancel)
        call = cards.sent(engine)
        call:failure(RATE)
        local d = call:unable { "wait", "queue" }
        assert.equal("fail_closed", d.action)
        assert.equal("host_cannot_wait", d.reason)
        at(10000)
        call = cards.sent(engine)
        call:success { output = "x" }
        assert.equal("proceed", call:step(10, 20).action)
        call:begin_attempt()
        call:event("sent")
        call:tool("pay", "started", false)
        d = call:failure { phase = "read", transport = { kind = "reset" } }
        assert.equal("reconcile_first", d.reason)
        assert.equal("fail_closed", call:resolved("pay", "committed").action)
    end)

    it("is used again without a trace of the one before", function()
        local call = cards.sent(engine, { workflow = "answer", call_id = "one",
                                          language = "de" })
        assert.equal(1, engine:route("main").in_flight)
        local again = engine:begin({ workflow = "bare" }, call)
        assert.equal(call, again)
        assert.equal(0, engine:route("main").in_flight)  -- the old one was dropped
        assert.not_equal("one", again:id())
        assert.is_nil(again.language)
        assert.equal("proceed", again:begin_attempt().action)
        cards.raised(engine.begin, engine, { workflow = "bare" }, {})
        cards.raised(engine.begin, engine, { workflow = "bare" }, engine)
    end)

    it("may be asked by a clock that begins another", function()
        local busy, inner = false, nil
        local policy = assert(fivegates.policy(cards.CARD))
        local other
        other = assert(fivegates.engine(policy, { seed = 1, clock = function()
            if other and not busy then
                busy = true
                inner = cards.sent(other, { workflow = "bare", call_id = "inner" })
                inner:failure { phase = "response", status = 400 }
                busy = false
            end
            return cards.BASE
        end }))
        local call = other:begin { workflow = "answer", call_id = "outer" }
        assert.equal("outer", call:id())
        assert.is_truthy(call.decision:explain():find("workflow answer, call outer", 1,
                                                      true))
        call:begin_attempt()
        call:event("sent")
        assert.equal("rate", call:failure(RATE).owner)
        assert.equal("inner", inner:id())
    end)

    it("takes news of an attempt by its number", function()
        local call = cards.sent(engine)
        call:failure(RATE)
        at(3000)
        call:begin_attempt()
        call:event("sent")
        assert.is_true(call:event("token", 1, 1))  -- late news of the first
        assert.equal(2, call.decision.attempt)
        assert.equal("accept", call:success({ output = "x", attempt = 2 }).action)
    end)

    it("out of turn is the caller's mistake, and names his line", function()
        local call = cards.sent(engine)
        local said = cards.raised(function() call:begin_attempt() end)
        assert.is_truthy(said:find("call_spec.lua:%d+: fivegates: begin_attempt: "))
        assert.is_truthy(said:find("[state]", 1, true))
        said = cards.raised(function() engine:begin { workflow = "bare", promt = 1 } end)
        assert.is_truthy(said:find("call_spec.lua:%d+: fivegates: begin has no key "
                                   .. '"promt"'))
        said = cards.raised(function() call:failure { status = "x" } end)
        assert.is_truthy(said:find("call_spec.lua:%d+: fivegates: status must be"))
        call:drop()
        call:drop()
        assert.is_truthy(cards.raised(call.deadline, call):find("[state]", 1, true))
    end)
end)

describe("a saved call", function()
    it("goes on elsewhere, once", function()
        local engine = cards.engine()
        local call = cards.sent(engine, { workflow = "bare", call_id = "held" })
        local bytes = call:save()
        cards.raised(call.begin_attempt, call)
        assert.equal(1, engine:route("main").in_flight)
        local again = assert(engine:resume(bytes))
        assert.equal("held", again:id())
        assert.equal("accept", again:success({ output = "x" }).action)
        assert.equal(0, engine:route("main").in_flight)
    end)

    it("that changed on the way, or is another's, is nil and an error", function()
        local engine = cards.engine()
        local bytes = cards.sent(engine):save()
        for at = 1, #bytes, 37 do
            local wrong = bytes:sub(1, at - 1)
                          .. string.char((bytes:byte(at) + 1) % 256) .. bytes:sub(at + 1)
            local none, err = engine:resume(wrong)
            assert.is_nil(none)
            assert.equal("arg", err.code)
        end
        for _, wrong in ipairs { "", "fgc2", "fgc2\255", bytes:sub(1, -2), bytes .. "x",
                                 ("x"):rep(1e6), 1, false, {} } do
            assert.is_nil(engine:resume(wrong))
        end
        local other = assert(fivegates.engine(assert(fivegates.policy(
            (cards.CARD:gsub("gpt%-4o", "gpt-9")))), { seed = 1 }))
        local none, err = other:resume(bytes)
        assert.is_nil(none)
        assert.equal("state", err.code)
    end)
end)

describe("classify", function()
    it("answers words, flags and waits", function()
        local f = fivegates.classify(RATE)
        assert.equal("rate", f.owner)
        assert.equal(2000, f.retry_after_ms)
        assert.is_nil(f.should_retry)
        assert.is_false(f.never_sent)
        assert.is_true(#f.why > 0)
        local policy = assert(fivegates.policy(cards.CARD))
        assert.equal("rate", fivegates.classify(RATE, policy).owner)
        f = fivegates.classify { phase = "response", status = 500,
                                 headers = { { "x-should-retry", "false" } } }
        assert.is_false(f.should_retry)
        assert.is_nil(f.retry_after_ms)
        assert.is_true(fivegates.classify({ phase = "connect", transport = {
            lib = "curl", code = 7 } }).never_sent)
        cards.raised(fivegates.classify, RATE, {})
    end)

    it("reads headers raw, hundreds of them", function()
        local headers = setmetatable({ ["retry-after"] = "7" }, {
            __index = function() error("asked") end })
        for i = 1, 300 do
            headers["x-" .. i] = i % 2 == 0
        end
        assert.equal(7000, fivegates.classify({ phase = "response", status = 429,
                                                headers = headers }).retry_after_ms)
    end)
end)

describe("names", function()
    it("are those of the library", function()
        assert.equal(0, fivegates.names("action").fail_closed)
        assert.equal(11, fivegates.names("reason").rate_limited)
        assert.equal(3, fivegates.names("feature").json_schema)
        fivegates.names("action").fail_closed = 9
        assert.equal(0, fivegates.names("action").fail_closed)
        assert.equal("health", fivegates.gate_of("route_open"))
        cards.raised(fivegates.names, "nope")
        cards.raised(fivegates.gate_of, "nope")
    end)
end)
