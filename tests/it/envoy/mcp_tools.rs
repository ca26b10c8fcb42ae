//! The recipe of docs/recipes-proxies.md for tools of agents, with both filters that read the tool from the body.

use serde_json::{Value, json};

use super::pages::{filters, recipe, recipe_route};
use super::{FAILED_OPEN, in_project};
use crate::support::envoy::upstream::Upstream;
use crate::support::envoy::{Bootstrap, Envoy};
use crate::support::http;
use crate::support::process::Ratelimitd;

const TITLE: &str = "Tools of agents (MCP)";

struct Tools {
    envoy: Envoy,
    _upstream: Upstream,
    _service: Ratelimitd,
}

impl Tools {
    /// The filters and rate limits of the page.
    fn start(filters: Vec<Value>, mut route: Value) -> Self {
        let rules =
            std::fs::read_to_string(in_project("examples/recipes/mcp-tools.yaml")).expect("the rules");
        // As the page says: without the header there is no route.
        route["match"]["headers"] = json!([{"name": "x-agent", "present_match": true}]);
        let (service, upstream) = (Ratelimitd::start(&rules), Upstream::start(|_| 200));
        let bootstrap = Bootstrap::new(service.grpc_port())
            .upstream_port(upstream.port())
            .http_filters(filters)
            .route(route);
        Self { envoy: Envoy::start(&bootstrap), _upstream: upstream, _service: service }
    }

    fn by_json_to_metadata() -> Self {
        let page = recipe(TITLE, "envoy");
        Self::start(filters(&page), recipe_route(&page))
    }

    /// The other filter of the page in place of the first one, and the other place of the tool.
    fn by_mcp() -> Self {
        let mut page = recipe(TITLE, "envoy");
        let [filter] =
            recipe(TITLE, "mcp").as_array().expect("a list").clone().try_into().expect("one filter");
        let mut filters = filters(&page);
        filters[0] = filter;
        page["rate_limits"][1]["actions"][1]["metadata"]["metadata_key"] =
            json!({"key": "envoy.filters.http.mcp", "path": [{"key": "params"}, {"key": "name"}]});
        Self::start(filters, recipe_route(&page))
    }

    /// The statuses of equal requests of the agent, one after the other.
    fn send(&self, count: usize, agent: &str, content_type: &str, body: &str) -> Vec<u16> {
        let lines = [
            "POST /mcp HTTP/1.1".to_owned(),
            "host: localhost".to_owned(),
            "accept: application/json, text/event-stream".to_owned(),
            format!("content-type: {content_type}"),
            format!("x-agent: {agent}"),
        ];
        let send = || {
            let stream = http::connect(self.envoy.port("http")).expect("Envoy listens");
            http::exchange(stream, &lines, body).expect("an answer").status
        };
        (0..count).map(|_| send()).collect()
    }

    fn call(&self, agent: &str, tool: &str) -> u16 {
        self.send(1, agent, JSON, &call(tool))[0]
    }
}

const JSON: &str = "application/json";
/// Two calls of a tool that destroys something pass.
const DESTRUCTIVE: [u16; 4] = [200, 200, 429, 429];
/// Ten requests without a tool pass.
const WITHOUT_TOOL: [u16; 12] = [200, 200, 200, 200, 200, 200, 200, 200, 200, 200, 429, 429];

/// The body of a call.
fn call(tool: &str) -> String {
    json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": {}}})
        .to_string()
}

fn large(bytes: usize) -> String {
    call("delete_user").replace("{}", &json!({"padding": "x".repeat(bytes)}).to_string())
}

/// The same answers by both filters.
fn plays_the_calls_of_an_agent(tools: &Tools) {
    let codes = ["delete_user", "delete_user", "delete_repo", "search"].map(|tool| tools.call("ann", tool));
    assert_eq!(codes, [200, 200, 429, 200]);
    assert_eq!(tools.call("bob", "delete_user"), 200, "another agent");
    let escaped = call("delete_user").replace("name", "n\\u0061me");
    assert_eq!(tools.send(4, "escaped", JSON, &escaped), DESTRUCTIVE);
    let with_parameter = "application/json; charset=utf-8";
    assert_eq!(tools.send(4, "charset", with_parameter, &call("delete_user")), DESTRUCTIVE);
    assert_eq!(tools.envoy.stat(FAILED_OPEN), 0);
}

#[test]
fn tools_are_limited_by_json_to_metadata() {
    let tools = Tools::by_json_to_metadata();
    plays_the_calls_of_an_agent(&tools);
    assert_eq!(tools.envoy.get("/mcp").status, 404, "without an agent");
    for (agent, content_type, body) in
        [("plain", "text/plain", call("delete_user")), ("large", JSON, large(20_000))]
    {
        assert_eq!(tools.send(4, agent, content_type, &body), DESTRUCTIVE, "{agent}");
    }
    let batch = format!("[{}]", call("delete_user"));
    for (agent, body) in [("batch", batch.as_str()), ("text", "hello"), ("empty", "")] {
        assert_eq!(tools.send(12, agent, JSON, body), WITHOUT_TOOL, "{agent}");
    }
    // The last one of two names counts.
    let two = call("search").replace("\"name\":\"search\"", "\"name\":\"search\",\"name\":\"delete_user\"");
    assert_eq!(tools.send(4, "two", JSON, &two), DESTRUCTIVE);
}

#[test]
fn tools_are_limited_by_the_mcp_filter() {
    let tools = Tools::by_mcp();
    plays_the_calls_of_an_agent(&tools);
    let two = call("search").replace("\"name\":\"search\"", "\"name\":\"delete_user\",\"name\":\"search\"");
    let batch = format!("[{}]", call("delete_user"));
    for (agent, content_type, body) in [
        ("two", JSON, two),
        ("batch", JSON, batch),
        ("text", JSON, "hello".to_owned()),
        ("plain", "text/plain", call("delete_user")),
        ("large", JSON, large(20_000)),
    ] {
        assert_eq!(tools.send(1, agent, content_type, &body), [400], "{agent}");
    }
}
