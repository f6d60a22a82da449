-- The answers of the benchmark's provider.

local _M = {}

local EVERY = 20  -- one request in so many is answered 503, where faults are
local count = 0
local WHOLE = [[{"id":"c1","object":"chat.completion","created":1,"model":"m",]]
    .. [["choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant",]]
    .. [["content":"]] .. ("word "):rep(60) .. [["}}],"usage":{"prompt_tokens":40,]]
    .. [["completion_tokens":60,"total_tokens":100}}]]
local CHUNK = [[data: {"id":"c1","object":"chat.completion.chunk","created":1,]]
    .. [["model":"m","choices":[{"index":0,"delta":{%s},"finish_reason":%s}]}]] .. "\n\n"
local EVENTS = {}


function _M.load()
    for i = 1, 30 do
        EVENTS[i] = CHUNK:format('"content":"word "', "null")
    end
    EVENTS[31] = CHUNK:format("", '"stop"')
    EVENTS[32] = "data: [DONE]\n\n"
end


function _M.answer(faults)
    ngx.req.read_body()
    count = count + 1
    if faults and count % EVERY == 0 then
        ngx.status = 503
        ngx.header["content-type"] = "application/json"
        ngx.print '{"error":{"message":"Overloaded.","type":"server_error"}}'
    elseif ngx.req.get_body_data():find('"stream":true', 1, true) then
        ngx.header["content-type"] = "text/event-stream"
        for i = 1, #EVENTS do
            ngx.print(EVENTS[i])
            ngx.flush(true)
        end
    else
        ngx.header["content-type"] = "application/json"
        ngx.print(WHOLE)
    end
end


return _M
