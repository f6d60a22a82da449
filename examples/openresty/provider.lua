-- A provider on loopback for the example. The account "backup" always answers;
-- "main" does what the last message says: "503", "429", "cut" (a stream that
-- breaks after two words), "silent"; anything else is answered. "both 503"
-- fails at both.

local cjson = require "cjson"

local _M = {}

local WORDS = { "Every ", "request ", "is ", "one ", "decision", "." }


local function fault(body)
    local last = body.messages[#body.messages].content
    if ngx.var.uri:find("/backup/", 1, true) and not last:find("both", 1, true) then
        return nil
    end
    return last:match "503" or last:match "429" or last:match "cut"
           or last:match "silent"
end


local function chunk(delta, finish)
    ngx.print("data: " .. cjson.encode {
        id = "chatcmpl-1", object = "chat.completion.chunk", created = 1,
        model = "gpt-4o", choices = { { index = 0, delta = delta,
                                        finish_reason = finish or cjson.null } },
    } .. "\n\n")
    ngx.flush(true)
end


local function stream(word)
    ngx.header["content-type"] = "text/event-stream"
    for i, text in ipairs(WORDS) do
        if word == "cut" and i == 3 then
            return ngx.exit(ngx.ERROR)
        end
        chunk({ content = text })
        ngx.sleep(0.05)
    end
    chunk({ content = "" }, "stop")
    ngx.print("data: [DONE]\n\n")
end


function _M.answer()
    ngx.req.read_body()
    local body = cjson.decode(ngx.req.get_body_data())
    local word = fault(body)
    if word == "silent" then
        ngx.sleep(60)
    elseif word and word ~= "cut" then
        ngx.status = tonumber(word)
        ngx.header["content-type"] = "application/json"
        return ngx.print(cjson.encode { error = {
            type = "error", code = word == "429" and "rate_limit_exceeded"
                                   or "server_error", message = "A fault." } })
    elseif body.stream then
        return stream(word)
    end
    ngx.header["content-type"] = "application/json"
    ngx.print(cjson.encode {
        id = "chatcmpl-1", object = "chat.completion", created = 1,
        model = "gpt-4o", usage = { prompt_tokens = 40, completion_tokens = 6,
                                    total_tokens = 46 },
        choices = { { index = 0, finish_reason = "stop", message = {
            role = "assistant", content = table.concat(WORDS) } } },
    })
end


return _M
