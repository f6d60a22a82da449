-- luacheck bindings/lua tests/lua benchmarks examples
std = "luajit"
max_line_length = 90
cache = false
exclude_files = { "bindings/lua/fivegates/cdef.lua" }
files["tests/lua/*_spec.lua"] = { std = "luajit+busted" }
files["bindings/lua/fivegates/resty"] = { std = "ngx_lua" }
files["benchmarks/openresty"] = { std = "ngx_lua" }
files["examples/openresty"] = { std = "ngx_lua", globals = { "kong" } }
-- A method keeps its self, whether it looks at it or not.
self = false
