-- The root of the tree, from where this file lies.
local source = debug.getinfo(1, "S").source
return { ROOT = source:match("^@(.*)/tests/lua/support/paths%.lua$") or "." }
