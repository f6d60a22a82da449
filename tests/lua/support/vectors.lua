-- Replays vector files and counts their cases, as tests/c/run_vectors.c and
-- the Python package do.

local json = require "json"
local vector_case = require "vector_case"

local M = {}

local function quoted(text)
    return "'" .. text:gsub("'", "'\\''") .. "'"
end

-- A file itself; of a folder all .json below it but schema.json, in byte order.
function M.files(path)
    local list = io.popen("find " .. quoted(path) .. " -name '*.json' ! -name "
                          .. "schema.json ! -name '.*' 2>/dev/null "
                          .. "| LC_ALL=C sort")
    local all = {}
    for line in list:lines() do
        all[#all + 1] = line
    end
    list:close()
    return #all > 0 and all or { path }  -- what is not there is said as such
end

local function run_file(path, report)
    local file = io.open(path, "rb")
    if not file then
        return "cannot be read"
    end
    local text = file:read("*a")
    file:close()
    local ok, document = pcall(json.decode, text)
    if not ok then
        return type(document) == "table" and document.json or tostring(document)
    elseif not json.is_object(document) or not json.is_list(document.cases) then
        return "has no cases"
    end
    for _, key in ipairs(json.keys(document)) do
        if not (" name why needs cases "):find(" " .. key .. " ", 1, true) then
            return ("unknown key \"%s\" in the file"):format(key)
        end
    end
    for i = 1, json.len(document.cases) do
        vector_case(path, document.cases[i], report):run()
    end
end

-- say(line) gets each failure; dump, an open file, one line per op. Returns
-- {passed, failed}.
function M.replay(paths, say, dump)
    local report = { passed = 0, failed = 0 }
    function report.say(_, line) say(line) end
    function report.dump(_, line)
        if dump then
            dump:write(line, "\n")
        end
    end
    for _, path in ipairs(paths) do
        for _, file in ipairs(M.files(path)) do
            local wrong = run_file(file, report)
            if wrong then
                say(file .. ": " .. wrong)
                report.failed = report.failed + 1
            end
        end
    end
    return report
end

return M
