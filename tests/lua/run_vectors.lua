-- luajit tests/lua/run_vectors.lua [--dump FILE] PATH...
-- Prints each failure and last "N passed, N failed"; exit code 1 if any failed.

local here = arg[0]:match("^(.*/)") or "./"
dofile(here .. "helper.lua")

local paths, dump = {}, nil
local i = 1
while arg[i] do
    if arg[i] == "--dump" then
        dump = assert(io.open(arg[i + 1] or "", "wb"))
        i = i + 1
    else
        paths[#paths + 1] = arg[i]
    end
    i = i + 1
end

local report = require("vectors").replay(paths, print, dump)
if dump then
    dump:close()
end
print(("%d passed, %d failed"):format(report.passed, report.failed))
os.exit(report.failed == 0 and 0 or 1)
