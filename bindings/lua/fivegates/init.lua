-- fivegates: what to do after a call to a large model fails. The engine is the
-- C library; this is its binding for LuaJIT, in plain programs and in nginx.
--
-- Errors: the caller's mistakes are raised; bad data from outside is nil and
-- an error; a refusal is a decision.

local cdef = require "fivegates.cdef"
local lib = require "fivegates.lib"
local engine = require "fivegates.engine"
local failure = require "fivegates.failure"
local names = require "fivegates.names"
local policy = require "fivegates.policy"
local region = require "fivegates.region"
local sse = require "fivegates.sse"


local _M = {
    version = cdef.version,
    library = lib.path,         -- the file that was loaded
    policy = policy.policy,     -- policy(card): JSON text or a table
    load = policy.load,         -- load(path): the same of a JSON file
    region = region.open,       -- region(path, options)
    engine = engine.engine,     -- engine(policy, options)
    classify = failure.classify,
    sse = sse.sse,              -- sse(options): a scanner
    SAW = sse.SAW,
    names = names.table_of,     -- names("reason"): words and their numbers
}


-- The gate (none, owner, commit, budget, contract, health) of a reason.
function _M.gate_of(reason)
    local number = names.word("reason", reason, "reason")
    return names.name.gate[lib.C.fg_reason_gate(number)]
end


return _M
