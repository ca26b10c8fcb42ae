-- The action `lua.ratelimitd`: asks /check of ratelimitd about the request, through the section `listen ratelimitd` of
-- haproxy.cfg, which has the addresses, the deadlines and the connections.
--
-- It sets these variables of the transaction:
--   txn.ratelimitd_status             the status of the answer, such as 200 or 429; 503 or 504 from HAProxy itself if
--                                     ratelimitd is away or too slow
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
-- Headers of the client that are about its own connection and body, and other names for what the map knows.
local NOT_SENT = {
    "connection", "content-length", "expect", "keep-alive", "te", "transfer-encoding", "upgrade",
    "x-original-host", "x-original-method", "x-original-uri", "x-original-url",
}

-- The headers for the check: those of the client, because the map may read any of them, and what the map knows of the
-- request. The latter replace headers of the same names that the client has sent.
local function check_headers(txn)
    local headers = {}
    for name, values in pairs(txn.http:req_get_headers()) do
        headers[name] = {}
        -- HAProxy counts the values of a header from 0, and its HTTP client wants a list that starts at 1.
        for index = 0, #values do
            headers[name][index + 1] = values[index]
        end
    end
    for _, name in ipairs(NOT_SENT) do
        headers[name] = nil
    end
    headers["x-forwarded-method"] = { txn.sf:method() }
    headers["x-forwarded-uri"] = { txn.sf:pathq() }
    headers["x-forwarded-host"] = headers["host"]
    headers["x-forwarded-for"] = { txn.sf:src() }
    return headers
end

core.register_action("ratelimitd", { "http-req" }, function(txn)
    local answer = core.httpclient():get({ url = CHECK, headers = check_headers(txn), timeout = TIMEOUT })
    txn:set_var("txn.ratelimitd_status", answer.status)
    for header, variable in pairs(ANSWERED) do
        local values = answer.headers and answer.headers[header]
        if values then
            txn:set_var(variable, values[0])
        end
    end
end)
