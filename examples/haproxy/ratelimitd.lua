-- The action `lua.ratelimitd`: asks /check of ratelimitd about the request, through the section `listen ratelimitd` of
-- haproxy.cfg, which has the addresses, the deadlines and the connections.
--
-- It sets these variables of the transaction:
--   txn.ratelimitd_status             the status of the answer, such as 200 or 429; 503 or 504 from HAProxy itself if
--                                     ratelimitd is away or too slow; 0 if the call cannot be made
--   txn.retry_after, txn.ratelimit, txn.ratelimit_policy
--                                     headers of the answer, if it has them

local CHECK = "http://127.0.0.1:10001/check"
-- In milliseconds; longer than the deadlines of `listen ratelimitd`, which end the call first.
local TIMEOUT = 500
-- Variable by header.
local ANSWERED = {
    ["retry-after"] = "txn.retry_after",
    ["ratelimit"] = "txn.ratelimit",
    ["ratelimit-policy"] = "txn.ratelimit_policy",
}
-- Headers of the client that the map reads, in lower case, such as "x-api-key". Others are not sent: the HTTP client of
-- HAProxy 2.6 crashes when it is given about a hundred headers, and a client must not be able to do that.
local READ_BY_MAP = {}

-- The headers of the call: what the map knows of the request.
local function call_headers(txn)
    local headers = {
        ["x-forwarded-method"] = { txn.sf:method() },
        ["x-forwarded-uri"] = { txn.sf:pathq() },
        ["x-forwarded-host"] = { txn.sf:req_fhdr("host") },
        ["x-forwarded-for"] = { txn.sf:src() },
    }
    local received = txn.http:req_get_headers()
    for _, name in ipairs(READ_BY_MAP) do
        -- HAProxy counts the values of a header from 0.
        local values = received[name]
        if values then
            headers[name] = { table.concat(values, ", ", 0, #values) }
        end
    end
    return headers
end

core.register_action("ratelimitd", { "http-req" }, function(txn)
    local answer = core.httpclient():get({ url = CHECK, headers = call_headers(txn), timeout = TIMEOUT })
    txn:set_var("txn.ratelimitd_status", answer.status or 0)
    for header, variable in pairs(ANSWERED) do
        local values = answer.headers and answer.headers[header]
        if values then
            txn:set_var(variable, values[0])
        end
    end
end)
