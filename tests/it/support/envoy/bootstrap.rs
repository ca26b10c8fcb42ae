//! The configuration of the Envoy under test: an HTTP and a TCP listener with a rate-limit filter each.
//!
//! What a test is about (routes, failure mode, timeout) is said by the test; this is the rest.

use std::path::Path;

use serde_json::{Value, json};

const FILTER: &str = "envoy.filters.http.ratelimit";
const FILTER_TYPE: &str = "type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit";
const PER_ROUTE_TYPE: &str =
    "type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute";
const TCP_FILTER_TYPE: &str = "type.googleapis.com/envoy.extensions.filters.network.ratelimit.v3.RateLimit";
const TCP_PROXY_TYPE: &str = "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy";
const HCM_TYPE: &str =
    "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";
const ROUTER_TYPE: &str = "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router";
const PROTOCOL_TYPE: &str = "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions";

/// What an Envoy is started with. A field not set is absent, so that Envoy's own default holds.
pub struct Bootstrap {
    rls_port: u16,
    domain: String,
    timeout: Option<&'static str>,
    fail_closed: bool,
    health_checked: bool,
    routes: Vec<Value>,
    tcp_descriptors: Value,
}

/// A route to the upstream, with `rate_limits` as Envoy's route table has them.
pub fn route(prefix: &str, rate_limits: Value) -> Value {
    json!({"match": {"prefix": prefix}, "route": {"cluster": "upstream", "rate_limits": rate_limits}})
}

/// A route whose `rate_limits` stand in the filter's own per-route part, the only place for `hits_addend`.
pub fn per_filter_route(prefix: &str, rate_limits: Value) -> Value {
    json!({
        "match": {"prefix": prefix},
        "route": {"cluster": "upstream"},
        "typed_per_filter_config": {FILTER: {"@type": PER_ROUTE_TYPE, "rate_limits": rate_limits}},
    })
}

impl Bootstrap {
    /// Asks the rate limiter at this port of this machine, about the domain `envoy`, and fails open.
    pub fn new(rls_port: u16) -> Self {
        Self {
            rls_port,
            domain: "envoy".to_owned(),
            timeout: Some("5s"),
            fail_closed: false,
            health_checked: false,
            routes: Vec::new(),
            tcp_descriptors: json!([{"entries": [{"key": "listener", "value": "tcp"}]}]),
        }
    }

    /// One more entry of the route table; the first that matches wins.
    pub fn route(mut self, route: Value) -> Self {
        self.routes.push(route);
        self
    }

    /// What cannot be decided is refused.
    pub fn fail_closed(mut self) -> Self {
        self.fail_closed = true;
        self
    }

    /// Envoy's own time limit on a decision (20 ms), in place of one that a busy machine cannot reach.
    pub fn default_timeout(mut self) -> Self {
        self.timeout = None;
        self
    }

    /// Envoy asks the rate limiter for its health, under the name `ratelimit`.
    pub fn health_checked(mut self) -> Self {
        self.health_checked = true;
        self
    }

    /// The whole configuration; the upstream listens on the Unix socket `upstream`.
    pub(super) fn to_json(&self, upstream: &Path) -> Value {
        let pipe = json!({"pipe": {"path": upstream}});
        json!({
            "admin": {"address": any_port()},
            "static_resources": {
                "listeners": [self.http_listener(), self.tcp_listener(), upstream_listener(&pipe)],
                "clusters": [self.rls_cluster(), cluster("upstream", &pipe)],
            },
        })
    }

    fn http_listener(&self) -> Value {
        let mut filter = self.filter(FILTER_TYPE);
        filter["enable_x_ratelimit_headers"] = json!("DRAFT_VERSION_03");
        let filters = json!([{"name": FILTER, "typed_config": filter}, router()]);
        json!({
            "name": "http",
            "address": any_port(),
            "filter_chains": [{"filters": [connection_manager("ingress", &filters, &json!(self.routes))]}],
        })
    }

    fn tcp_listener(&self) -> Value {
        let mut filter = self.filter(TCP_FILTER_TYPE);
        filter["stat_prefix"] = json!("tcp");
        filter["descriptors"] = self.tcp_descriptors.clone();
        let proxy = json!({"@type": TCP_PROXY_TYPE, "stat_prefix": "tcp", "cluster": "upstream"});
        json!({
            "name": "tcp",
            "address": any_port(),
            "filter_chains": [{"filters": [
                {"name": "envoy.filters.network.ratelimit", "typed_config": filter},
                {"name": "envoy.filters.network.tcp_proxy", "typed_config": proxy},
            ]}],
        })
    }

    /// What both rate-limit filters have in common.
    fn filter(&self, kind: &str) -> Value {
        let mut filter = json!({
            "@type": kind,
            "domain": self.domain,
            "failure_mode_deny": self.fail_closed,
            "rate_limit_service": {
                "grpc_service": {"envoy_grpc": {"cluster_name": "ratelimit"}},
                "transport_api_version": "V3",
            },
        });
        if let Some(timeout) = self.timeout {
            filter["timeout"] = json!(timeout);
        }
        filter
    }

    fn rls_cluster(&self) -> Value {
        let address = json!({"socket_address": {"address": "127.0.0.1", "port_value": self.rls_port}});
        let mut cluster = cluster("ratelimit", &address);
        cluster["typed_extension_protocol_options"] = json!({
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": PROTOCOL_TYPE,
                "explicit_http_config": {"http2_protocol_options": {}},
            },
        });
        if self.health_checked {
            cluster["health_checks"] = json!([{
                "timeout": "5s",
                "interval": "0.1s",
                "no_traffic_interval": "0.1s",
                "unhealthy_threshold": 1,
                "healthy_threshold": 1,
                "grpc_health_check": {"service_name": "ratelimit"},
            }]);
            // Without it a cluster whose every host is ill is used as if all were well.
            cluster["common_lb_config"] = json!({"healthy_panic_threshold": {"value": 0}});
        }
        cluster
    }
}

fn any_port() -> Value {
    json!({"socket_address": {"address": "127.0.0.1", "port_value": 0}})
}

fn cluster(name: &str, address: &Value) -> Value {
    json!({
        "name": name,
        "type": "STATIC",
        "load_assignment": {
            "cluster_name": name,
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address}}]}],
        },
    })
}

fn upstream_listener(address: &Value) -> Value {
    let routes = json!([{
        "match": {"prefix": "/"},
        "direct_response": {"status": 200, "body": {"inline_string": "upstream"}},
    }]);
    json!({
        "name": "upstream",
        "address": address,
        "filter_chains": [{"filters": [connection_manager("upstream", &json!([router()]), &routes)]}],
    })
}

fn connection_manager(stat_prefix: &str, filters: &Value, routes: &Value) -> Value {
    json!({
        "name": "envoy.filters.network.http_connection_manager",
        "typed_config": {
            "@type": HCM_TYPE,
            "stat_prefix": stat_prefix,
            "http_filters": filters,
            "route_config": {"virtual_hosts": [{"name": stat_prefix, "domains": ["*"], "routes": routes}]},
        },
    })
}

fn router() -> Value {
    json!({"name": "envoy.filters.http.router", "typed_config": {"@type": ROUTER_TYPE}})
}
