-- The configuration of the plugin.

local typedefs = require "kong.db.schema.typedefs"

return {
    name = "fivegates",
    fields = {
        { consumer = typedefs.no_consumer },
        { protocols = typedefs.protocols_http },
        { config = {
            type = "record",
            fields = {
                { workflow = { type = "string", required = true } },
                { card = { type = "string", required = true } },
                { region = { type = "string", required = true } },
                { recent = { type = "string" } },
                { keys = { type = "map", keys = { type = "string" },
                           values = { type = "string", referenceable = true,
                                      encrypted = true } } },
                { forward = { type = "array", elements = { type = "string" } } },
            },
        } },
    },
}
