-- Cards and helpers the specs share.

local fivegates = require "fivegates"

local M = {}

M.CARD = [[{"version": 1,
  "retry_bucket": {"credit_ppm": 1000000, "cap": 100, "start": 100},
  "routes": {"main": {"provider": "openai", "model": "gpt-4o", "account": "a",
    "base_url": "https://api.example/v1", "key_env": "KEY",
    "price": {"input": 2.5, "cached_input": 1.25, "output": 10}},
    "backup": {"provider": "other", "model": "m", "account": "b"}},
  "workflows": {"answer": {"routes": ["main", "backup"],
    "ladder": [{"step": "preset", "text": {"en": "Not now.", "de": "Jetzt nicht."}}]},
    "bare": {"routes": ["main"]}}}]]

M.BASE = 1000000000

-- An engine whose clock is set(ms): its start is BASE.
function M.engine(options)
    local now = M.BASE
    options = options or {}
    options.clock = function() return now end
    options.seed = options.seed or 1
    local engine = assert(fivegates.engine(assert(fivegates.policy(M.CARD)), options))
    return engine, function(ms) now = M.BASE + ms end
end

-- A call whose first attempt was sent.
function M.sent(engine, facts)
    local call = assert(engine:begin(facts or { workflow = "bare" }))
    assert(call:begin_attempt().action == "proceed")
    call:event("sent")
    return call
end

-- What a function raises, as a string.
function M.raised(f, ...)
    local ok, problem = pcall(f, ...)
    assert(not ok, "nothing was raised")
    assert(type(problem) == "string", "raised " .. type(problem))
    return problem
end

-- Runs a Lua script in a process of its own, with this one's paths; what it
-- printed, and whether it ended with 0.
function M.run(script, ...)
    local name = os.tmpname()
    local file = assert(io.open(name, "wb"))
    file:write(("package.path, package.cpath = %q, %q\n"):format(package.path,
                                                                package.cpath))
    file:write(script)
    file:close()
    local words = { "timeout 60 luajit", name }
    for _, word in ipairs { ... } do
        words[#words + 1] = "'" .. word .. "'"
    end
    local pipe = io.popen(table.concat(words, " ") .. " 2>&1; echo \"[$?]\"")
    local text = pipe:read("*a")
    pipe:close()
    os.remove(name)
    local said, code = text:match("^(.*)%[(%d+)%]\n$")
    return said, code == "0"
end

function M.slurp(path)
    local file = assert(io.open(path, "rb"))
    local text = file:read("*a")
    file:close()
    return text
end

function M.exists(path)
    local file = io.open(path, "rb")
    if file then
        file:close()
    end
    return file ~= nil
end

return M
