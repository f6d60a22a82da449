-- fivegates in nginx: a gateway to models that asks the engine what to do.
--
--     init_by_lua_block { require("fivegates.resty").open {
--         card = "/etc/fivegates/card.json", region = "/dev/shm/fivegates" } }
--     init_worker_by_lua_block { require("fivegates.resty").worker() }
--     location /v1/ {
--         content_by_lua_block { require("fivegates.resty").proxy "support" } }

local fivegates = require "fivegates"
local answers = require "fivegates.resty.answer"
local check = require "fivegates.check"
local exchanges = require "fivegates.resty.exchange"
local notice = require "fivegates.resty.notice"
local reader = require "fivegates.resty.reader"
local requests = require "fivegates.resty.request"
local sink = require "fivegates.resty.ledger"
local tally = require "fivegates.resty.tally"
local targets = require "fivegates.resty.target"
local upstream = require "fivegates.resty.upstream"

local concat = table.concat
local error = error
local getenv = os.getenv
local ipairs = ipairs
local max = math.max
local min = math.min
local next = next
local ngx = ngx
local pcall = pcall
local tostring = tostring
local type = type


local _M = {}

local OPTIONS = check.set [[
    card region procs keys facts forward cached ledger on_decision recent
    answer_max http any_model workflow prompt_tokens cache
]]
local ANSWER_MAX = 32 * 1048576
local UNABLE = { "clear", "queue", "resume", "hedge" }
local LOOK_S = 1  -- the longest time between two looks at overdue attempts

local gateway


-- ---- once

local function engine_of(options)
    local policy, err = fivegates.load(options.card)
    if not policy then
        return error("fivegates: " .. tostring(options.card) .. ": "
                     .. tostring(err), 0)
    end
    local region
    region, err = fivegates.region(options.region, { procs = options.procs })
    if not region then
        return error("fivegates: " .. tostring(err), 0)
    elseif region.warning then
        ngx.log(ngx.WARN, "fivegates: ", region.warning)
    end
    if not options.region then
        ngx.log(ngx.WARN, "fivegates: no region: each worker process will have "
                .. "a state of its own; name a file with region = ...")
    end
    local engine
    engine, err = fivegates.engine(policy, { region = region })
    if not engine then
        return error("fivegates: " .. tostring(err), 0)
    end
    return engine, policy
end


-- Is this a workflow of the card? nil, or what to say.
local function unknown(policy, workflow)
    if policy.workflow_ids[workflow] then
        return nil
    end
    local why = workflow == nil and "no workflow is named"
                or "the card has no workflow " .. tostring(workflow)
    return why .. "; it has: " .. concat(policy:workflows(), ", ")
end


local function targets_of(card, policy, keys)
    local all = {}
    for name in next, keys do
        policy:route_id(name)  -- raises for one the card does not have
    end
    for _, name in ipairs(policy:routes()) do
        local route = policy:route(name)
        local key = keys[name] or (route.key_env and getenv(route.key_env))
        all[name] = targets.of(card, route, key ~= "" and key or nil)
        if targets.lacks_key(all[name]) then
            ngx.log(ngx.ERR, "fivegates: ", targets.key_advice(all[name]))
        end
    end
    return all
end


-- Opens the gateway: in init_by_lua, so before the workers are forked. Raises
-- for a card or options that do not do. options:
--   card         path of the card, JSON
--   workflow     the one that proxy() answers by where it names none; checked
--                now, while a name given to proxy() is checked by its first
--                request
--   region       path of the state that all workers, and other processes of
--                this machine, share; /dev/shm is a good place
--   procs        process slots of a new region (64): two for each worker, as
--                a reload runs old and new ones side by side, and one for each
--                other process
--   keys         {route = key} where it is not in the environment under the
--                route's key_env
--   facts        of begin() for every call: a table, or a function of the
--                request (request.body, request:header(name))
--   prompt_tokens  function(body): the tokens of a request, for begin() and for
--                the ladder's compact; else an estimate by its length
--   forward      names of further client headers that go on to the routes
--   cache        answers kept for the ladder's `cached`: resty/cache.lua
--   cached       or, for a cache of your own, function(body, decision): a text
--                kept from before and its age in seconds, or nil
--   ledger       "log" (nginx's error log, level notice), a file's path, or a
--                function(line)
--   on_decision  function(decision, call)
--   recent       name of a lua_shared_dict that keeps the last decisions for
--                the status page
--   any_model    true: a request for another model than that of the workflow's
--                first route is sent with the card's; else it is refused
--   answer_max   bytes of a whole answer that are read (32 MiB)
--   http         a client instead of fivegates.resty.upstream
function _M.open(options)
    check.unknown_key(check.plain(options, "open's options"), OPTIONS, "open")
    local engine, policy = engine_of(options)
    -- What is likely a mistake, as a stand-in that nobody approved.
    for _, one in ipairs(policy:lint()) do
        ngx.log(ngx.WARN, "fivegates: ", options.card, ":", one.line, ": ",
                one.path, ": ", one.message)
    end
    local wrong = options.workflow ~= nil and unknown(policy, options.workflow)
    if wrong then
        return error("fivegates: open: workflow: " .. wrong, 0)
    end
    local on_decision = sink.safe(options.on_decision, "on_decision")
    local unable = {}
    for i, word in ipairs(UNABLE) do
        unable[i] = word
    end
    if options.cached and options.cache then
        return error("fivegates: open: cached and cache are two answers to one "
                     .. "step; give one of them", 0)
    elseif not options.cached and not options.cache then
        unable[#unable + 1] = "cache"
    end
    gateway = {
        engine = engine, policy = policy, unable = unable,
        targets = targets_of(options.card, policy, options.keys or {}),
        facts = options.facts, forward = options.forward or {},
        prompt_tokens = options.prompt_tokens,
        cached = sink.safe(options.cached, "cached"), cache = options.cache,
        ledger = sink.open(options.ledger),
        workflow = options.workflow,
        on_decision = function(decision, call)
            notice.decided(decision, call.workflow)
            if options.recent then
                tally.count(options.recent, decision, call.workflow)
            end
            if on_decision then
                on_decision(decision, call)
            end
        end,
        recent = options.recent and sink.recent(options.recent),
        recent_name = options.recent,
        answer_max = options.answer_max or ANSWER_MAX,
        any_model = options.any_model, primaries = {},
        http = options.http or upstream,
    }
    return gateway
end


-- The gateway that open() made.
function _M.gateway()
    return gateway or error("fivegates: open{} was not called in init_by_lua", 2)
end


local function look(premature)
    if premature then
        return
    end
    local engine = gateway.engine
    local looked, why = pcall(reader.look, engine:now_ms())
    if not looked then
        ngx.log(ngx.ERR, "fivegates: ", tostring(why))
    end
    local ok, wait = pcall(engine.tick, engine)
    if not ok or not wait then
        ngx.log(ngx.ERR, "fivegates: tick: ", tostring(wait))
        wait = LOOK_S * 1000
    end
    notice.flush()
    if ngx.worker.id() == 0 then  -- one of all
        notice.changes(gateway.engine, gateway.policy:routes())
    end
    ngx.timer.at(max(0.05, min(LOOK_S, wait / 1000)), look)
end


-- In init_worker_by_lua: this worker takes its own slot, and looks at overdue
-- attempts from now on.
function _M.worker()
    local engine = _M.gateway().engine
    engine:tick()
    local region = engine.region
    if gateway.recent_name and not ngx.shared[gateway.recent_name] then
        ngx.log(ngx.ERR, "fivegates: no lua_shared_dict ", gateway.recent_name)
    end
    if not region:path() then
        ngx.log(ngx.WARN, "fivegates: this worker has a state of its own: ",
                region.warning or "no region, or no free slot in it")
    end
    ngx.timer.at(0, look)
end


-- ---- each request

local function add(facts, more, request)
    if type(more) == "function" then
        more = more(request)
    end
    if more then
        for name, value in next, more do
            facts[name] = value
        end
    end
end


-- Another model than the one that will be asked is a surprise: a refusal, or nil.
local function another_model(request, route)
    local target = gateway.targets[route]
    local model = target and target.model
    local asked = request.body.model
    if gateway.any_model or not model or type(asked) ~= "string"
       or asked == model then
        return nil
    end
    return { status = 400, code = "another_model", wire = request.wire,
             message = "this workflow's model is " .. model .. "; ask for it, "
                       .. "or name none" }
end


-- Begins the call of a request (request.lua): the call and its workflow, or nil
-- and a refusal. unable: what this host cannot do; more: further facts.
function _M.begin(request, workflow, unable, more)
    _M.gateway()
    if type(workflow) == "function" then
        workflow = workflow(request)
    elseif workflow == nil then
        workflow = gateway.workflow
    end
    local wrong = unknown(gateway.policy, workflow)
    if wrong then
        notice.say(ngx.ERR, "a workflow that the card does not have", wrong)
        return nil, { status = 500, code = "no_workflow", wire = request.wire,
                      message = "the gateway's configuration names a workflow "
                                .. "that its card does not have" }
    end
    local primary = gateway.primaries[workflow]
    local refusal = primary and another_model(request, primary)
    local facts
    if not refusal then
        facts, refusal = request:facts(workflow)
    end
    if not facts then
        return nil, refusal
    end
    facts.language = request:language()
    facts.unable = unable
    if gateway.prompt_tokens then
        facts.prompt_tokens = gateway.prompt_tokens(request.body)
    end
    add(facts, gateway.facts, request)
    add(facts, more, request)
    local call, err = gateway.engine:begin(facts)
    if not call then
        ngx.log(ngx.ERR, "fivegates: ", tostring(err))
        return nil, { status = 503, code = "no_room", wire = request.wire,
                      message = "the gateway has no room for this call" }
    end
    if not primary then
        primary = call.decision.requested or call.decision.route
        gateway.primaries[facts.workflow] = primary
        refusal = another_model(request, primary)
        if refusal then
            call:drop()
            return nil, refusal
        end
    end
    call.workflow, call.tenant = facts.workflow, facts.tenant
    return call, facts.workflow
end


local function on_abort(exchange)
    local ok, err = ngx.on_abort(function()
        local fine, why = pcall(exchange.left, exchange)
        if not fine then
            ngx.log(ngx.ERR, "fivegates: ", tostring(why))
        end
        ngx.exit(499)
    end)
    if not ok then
        ngx.log(ngx.WARN, "fivegates: a client that leaves is noticed late: ",
                err, "; set lua_check_client_abort on")
    end
end


-- In content_by_lua: answers this request by a workflow of the card. workflow:
-- its name, a function of the request, or nil for open{}'s; more: facts, as of
-- open{}.
function _M.proxy(workflow, more)
    _M.gateway()
    local request, refusal = requests.read()
    if not request then
        return answers.bad_request(refusal)
    end
    local fine, call, name = pcall(_M.begin, request, workflow, gateway.unable,
                                   more)
    if not fine then
        ngx.log(ngx.ERR, "fivegates: ", tostring(call))
        call, name = nil, { status = 500, code = "internal", wire = request.wire,
                            message = "the gateway has failed" }
    end
    if not call then
        return answers.bad_request(name)
    end
    local exchange = exchanges.new(gateway, request, call, name)
    on_abort(exchange)
    local ok, cut = pcall(exchange.drive, exchange)
    if not ok then
        ngx.log(ngx.ERR, "fivegates: ", tostring(cut))
        if not exchange.over then
            pcall(exchange.left, exchange)
        end
        if not ngx.headers_sent then
            return answers.bad_request { status = 500, code = "internal",
                wire = request.wire, message = "the gateway has failed" }
        end
        cut = true
    end
    if cut then
        return ngx.exit(ngx.ERROR)  -- no end of an answer: the client must see
    end
end


return _M
