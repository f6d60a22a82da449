-- As much of apisix.core as the sketch asks for.
return {
    log = { error = function(...) ngx.log(ngx.ERR, ...) end },
    schema = { check = function(schema, conf)
        for _, name in ipairs(schema.required) do
            if conf[name] == nil then
                return false, "property \"" .. name .. "\" is required"
            end
        end
        return true
    end },
    request = { get_body = function()
        ngx.req.read_body()
        return ngx.req.get_body_data()
    end },
    response = { set_header = function(name, value) ngx.header[name] = value end },
}
