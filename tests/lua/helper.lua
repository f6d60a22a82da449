-- Where the tests find the binding and the library: the tree's own files, and
-- the library of FIVEGATES_LIB or of a build folder.

local ROOT = debug.getinfo(1, "S").source:match("^@(.*)/tests/lua/helper%.lua$") or "."

package.path = table.concat({
    ROOT .. "/bindings/lua/?.lua", ROOT .. "/bindings/lua/?/init.lua",
    ROOT .. "/tests/lua/support/?.lua", package.path,
}, ";")
-- Builds without sanitizers: theirs would have to be loaded first.
package.cpath = table.concat({
    ROOT .. "/build/meson/?.so", ROOT .. "/build/release/?.so", package.cpath,
}, ";")
