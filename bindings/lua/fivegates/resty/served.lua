-- How its provider calls an attempt: the id of the answer and of the request.
-- They stand in the ledger's line of its end, and a bill's row is found again
-- by them.

local ipairs = ipairs
local ngx = ngx


local _M = {}

-- The header of the answer's own id (OpenRouter sends it before the answer); and
-- those of the request's: OpenAI and most gateways, Anthropic, AWS, Azure.
local ANSWER = "x-generation-id"
local REQUEST = { "x-request-id", "request-id", "x-amzn-requestid",
                  "apim-request-id" }


-- Both ids, nil what was not told; value(name): a header's value or nil,
-- scanner: what read the answer, nil where none came.
local function ids(value, scanner)
    local request
    for _, name in ipairs(REQUEST) do
        request = request or value(name)
    end
    return value(ANSWER) or scanner and scanner:response_id(), request
end


-- Of an answer whose head was read: {name, value} pairs, names in lower case;
-- nil where no head came.
function _M.of_head(head, scanner)
    local values = {}
    for _, one in ipairs(head and head.headers or values) do
        values[one[1]] = values[one[1]] or one[2]
    end
    return ids(function(name)
        return values[name]
    end, scanner)
end


local function variable(name)
    return ngx.var["upstream_http_" .. name:gsub("-", "_")]
end


-- Of the latest answer that nginx itself passes on.
function _M.of_upstream(scanner)
    return ids(variable, scanner)
end


return _M
