-- The loop of APISIX's ai-proxy, with instances that answer what their script
-- says: a status, or 200.
local _M = { asked = {} }

function _M.detect_request_type(ctx)
    ctx.var.request_type = "ai_chat"
end

function _M.before_proxy(conf, ctx, on_error)
    while true do
        local instance = ctx.picked_ai_instance
        _M.asked[#_M.asked + 1] = instance.name
        local script = instance.script
        local code = #script > 1 and table.remove(script, 1) or script[1]
        if code == 200 then
            ctx.var.llm_prompt_tokens, ctx.var.llm_completion_tokens = 9, 3
            ngx.print("answered by " .. instance.name)
            return nil
        end
        local abort = on_error(ctx, conf, code, "an error")
        if abort then
            return abort, "an error"
        end
    end
end

return _M
