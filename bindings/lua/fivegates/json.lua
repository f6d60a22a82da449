-- JSON, by lua-cjson where that is installed: cards as tables, decisions as
-- tables. The library itself takes and gives text and needs none of it.

local errors = require "fivegates.errors"

local pcall = pcall
local require = require
local tostring = tostring


local _M = {}


local codec

local function cjson(what)
    if not codec then
        local ok, module = pcall(require, "cjson")
        if not ok then
            return errors.raise(what .. " needs lua-cjson, which is not "
                                .. "installed; JSON text needs nothing")
        end
        -- One of our own: its settings are not other people's business.
        codec = module.new()
        -- Prices in a card are exact to 15 digits; some versions allow 14.
        pcall(codec.encode_number_precision, 15)
        -- "routes": [..., nil, ...] is a mistake, not an object.
        codec.encode_sparse_array(false, 1, 0)
    end
    return codec
end


function _M.encode(value, what)
    local ok, text = pcall(cjson(what).encode, value)
    if not ok then
        return errors.raise(what .. ": " .. tostring(text))
    end
    return text
end


function _M.decode(text, what)
    return cjson(what).decode(text)
end


return _M
