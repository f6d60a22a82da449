-- A forked child takes its own slot; the parent's calls stay the parent's.

local cards = require "cards"

local HEAD = [[
local cards = require "cards"
local ffi = require "ffi"
ffi.cdef "int fork(void); int waitpid(int, int *, int); void _exit(int);"
local function child(work)
    local pid = ffi.C.fork()
    if pid == 0 then
        local ok, problem = pcall(work)
        if not ok then
            io.stderr:write(tostring(problem), "\n")
        end
        ffi.C._exit(ok and 0 or 1)
    end
    local status = ffi.new("int[1]")
    ffi.C.waitpid(pid, status, 0)
    assert(status[0] == 0, "the child failed")
end
local engine = cards.engine(arg[1] and { region = arg[1] } or nil)
local call = cards.sent(engine)
local slot, id = engine.slot, call:id()
]]

local function good(script, ...)
    local said, ok = cards.run(HEAD .. script, ...)
    assert.is_true(ok, said)
    assert.equal("", said)
end

local CHILD = [[
    child(function()
        local mine = cards.sent(engine)
        %s
        assert(mine:id() ~= id)
        assert(mine:success({ output = "x" }).action == "accept")
        for _, name in ipairs { "begin_attempt", "deadline", "cancel", "save" } do
            assert(cards.raised(call[name], call):find("before a fork", 1, true))
        end
        call:drop()
        call = nil
        collectgarbage() collectgarbage()
    end)
    assert(engine.slot == slot)
    assert(engine:route("main").in_flight == 1)
    assert(call:success({ output = "x" }).action == "accept")
    assert(engine:route("main").in_flight == 0)
]]

describe("a fork", function()
    it("on a file: the child has a slot of its own", function()
        local path = os.tmpname()
        good(CHILD:format [[
            assert(engine.slot ~= slot)
            assert(engine:route("main").in_flight == 2)
        ]], path)
        os.execute("rm -f '" .. path .. "'*")
    end)

    it("on memory alone: the child has a copy without the parent's calls", function()
        good(CHILD:format [[
            assert(engine:route("main").in_flight == 1)
        ]])
    end)

    it("leaves the parent's calls alone when the child collects them", function()
        local path = os.tmpname()
        good([[
            local extra = cards.sent(engine)
            child(function()
                cards.sent(engine):drop()
                extra, call = nil, nil
                collectgarbage() collectgarbage()
                assert(engine:route("main").in_flight == 2)
            end)
            assert(engine:route("main").in_flight == 2)
        ]], path)
        os.execute("rm -f '" .. path .. "'*")
    end)

    it("draws other ids in each child", function()
        good [[
            local seen = os.tmpname()
            for i = 1, 3 do
                child(function()
                    local file = io.open(seen, "ab")
                    file:write(engine:begin({ workflow = "bare" }):id(), "\n")
                    file:close()
                end)
            end
            local all, count = {}, 0
            for line in io.lines(seen) do
                assert(not all[line])
                all[line], count = true, count + 1
            end
            os.remove(seen)
            assert(count == 3)
        ]]
    end)
end)
