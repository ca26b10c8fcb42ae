//! The configuration of the Envoy under test: an HTTP and a TCP listener with a rate-limit filter each.
//!
//! A test sets routes, failure mode and timeout. This module adds the rest.

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
const HEADER_METADATA_TYPE: &str =
    "type.googleapis.com/envoy.extensions.filters.http.header_to_metadata.v3.Config";
const FILE_LOG_TYPE: &str = "type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog";
const TLS_TYPE: &str = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext";
const TRACER_TYPE: &str = "type.googleapis.com/envoy.config.trace.v3.OpenTelemetryConfig";
const PROTOCOL_TYPE: &str = "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions";

/// The configuration of an Envoy. A field that is not set is absent, so that Envoy's default applies.
pub struct Bootstrap {
    rls_port: u16,
    domain: String,
    timeout: Option<&'static str>,
    fail_closed: bool,
    health_checked: bool,
    tls: Option<Value>,
    routes: Vec<Value>,
    tcp_descriptors: Value,
    access_logs: Vec<Value>,
    traced: bool,
    /// `None` for the upstream of this configuration.
    upstream_port: Option<u16>,
    /// Filters before the rate-limit filter.
    filters: Vec<Value>,
    /// In place of the rate-limit filter of this configuration.
    own_filters: Option<Vec<Value>>,
}

/// A route to the upstream, with `rate_limits` in the route table.
pub fn route(prefix: &str, rate_limits: Value) -> Value {
    json!({"match": {"prefix": prefix}, "route": {"cluster": "upstream", "rate_limits": rate_limits}})
}

/// A route with `rate_limits` in the per-route configuration of the filter, the only place that allows `hits_addend`.
pub fn per_filter_route(prefix: &str, rate_limits: Value) -> Value {
    json!({
        "match": {"prefix": prefix},
        "route": {"cluster": "upstream"},
        "typed_per_filter_config": {FILTER: {"@type": PER_ROUTE_TYPE, "rate_limits": rate_limits}},
    })
}

impl Bootstrap {
    /// The filters call the rate limiter at `rls_port` of this machine for the domain `envoy`, and fail open.
    pub fn new(rls_port: u16) -> Self {
        Self {
            rls_port,
            domain: "envoy".to_owned(),
            timeout: Some("5s"),
            fail_closed: false,
            health_checked: false,
            tls: None,
            routes: Vec::new(),
            tcp_descriptors: json!([{"entries": [{"key": "listener", "value": "tcp"}]}]),
            access_logs: Vec::new(),
            traced: false,
            upstream_port: None,
            filters: Vec::new(),
            own_filters: None,
        }
    }

    /// Adds an entry to the route table. The first entry that matches applies.
    pub fn route(mut self, route: Value) -> Self {
        self.routes.push(route);
        self
    }

    /// Requests that cannot be decided are denied.
    pub fn fail_closed(mut self) -> Self {
        self.fail_closed = true;
        self
    }

    /// Uses Envoy's default timeout of a decision (20 ms) instead of 5 s, which is enough on a busy machine.
    pub fn default_timeout(mut self) -> Self {
        self.timeout = None;
        self
    }

    /// Envoy waits for a decision for this long (a duration of protobuf's JSON).
    pub fn decided_within(mut self, timeout: &'static str) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Envoy checks the health of the rate limiter, under the name `ratelimit`.
    pub fn health_checked(mut self) -> Self {
        self.health_checked = true;
        self
    }

    /// Traces requests with OpenTelemetry: Envoy then passes on a client's `traceparent` and `tracestate`. The upstream
    /// plays the collector.
    pub fn traced(mut self) -> Self {
        self.traced = true;
        self
    }

    /// Sends requests to this port of this machine instead of the upstream of this configuration.
    pub fn upstream_port(mut self, port: u16) -> Self {
        self.upstream_port = Some(port);
        self
    }

    /// Keeps the number in a header of the upstream's answer as dynamic metadata.
    pub fn header_metadata(self, header: &str, namespace: &str, key: &str) -> Self {
        let value = json!({"metadata_namespace": namespace, "key": key, "type": "NUMBER"});
        let rules = json!([{"header": header, "on_header_present": value}]);
        let config = json!({"@type": HEADER_METADATA_TYPE, "response_rules": rules});
        self.filter_before(json!({"name": "envoy.filters.http.header_to_metadata", "typed_config": config}))
    }

    /// Adds a filter before the rate-limit filter.
    pub fn filter_before(mut self, filter: Value) -> Self {
        self.filters.push(filter);
        self
    }

    /// Uses these filters, in this order, in place of the rate-limit filter of this configuration. They call the
    /// cluster
    /// `ratelimit`.
    pub fn http_filters(mut self, filters: Vec<Value>) -> Self {
        self.own_filters = Some(filters);
        self
    }

    /// Asks for this domain instead of `envoy`.
    pub fn domain(mut self, domain: &str) -> Self {
        domain.clone_into(&mut self.domain);
        self
    }

    /// Calls the rate limiter over TLS, with this `UpstreamTlsContext`.
    pub fn tls(mut self, context: Value) -> Self {
        self.tls = Some(context);
        self
    }

    /// Writes a log of the requests to a file, besides those asked for before: in Envoy's default format, or one JSON
    /// object of `fields` per line.
    pub fn access_log(mut self, path: &Path, fields: Option<Value>) -> Self {
        let mut log = json!({"@type": FILE_LOG_TYPE, "path": path});
        if let Some(fields) = fields {
            log["log_format"] = json!({"json_format": fields});
        }
        self.access_logs.push(json!({"name": "envoy.access_loggers.file", "typed_config": log}));
        self
    }

    /// The whole configuration; the upstream listens on the Unix socket `upstream`.
    pub(super) fn to_json(&self, upstream: &Path) -> Value {
        let pipe = json!({"pipe": {"path": upstream}});
        let port = |port| json!({"socket_address": {"address": "127.0.0.1", "port_value": port}});
        let used = self.upstream_port.map_or_else(|| pipe.clone(), port);
        json!({
            "admin": {"address": any_port()},
            "static_resources": {
                "listeners": [self.http_listener(), self.tcp_listener(), upstream_listener(&pipe)],
                "clusters": [self.rls_cluster(), cluster("upstream", &used)],
            },
        })
    }

    fn http_listener(&self) -> Value {
        let mut filter = self.filter(FILTER_TYPE);
        filter["enable_x_ratelimit_headers"] = json!("DRAFT_VERSION_03");
        let own = vec![json!({"name": FILTER, "typed_config": filter})];
        let mut filters = self.filters.clone();
        filters.extend(self.own_filters.clone().unwrap_or(own));
        filters.push(router());
        let filters = json!(filters);
        let mut manager = connection_manager("ingress", &filters, &json!(self.routes));
        manager["typed_config"]["access_log"] = json!(self.access_logs);
        if self.traced {
            manager["typed_config"]["tracing"] = tracing();
        }
        json!({
            "name": "http",
            "address": any_port(),
            "filter_chains": [{"filters": [manager]}],
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

    /// The common part of both rate-limit filters.
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
        if let Some(context) = &self.tls {
            let mut context = context.clone();
            context["@type"] = json!(TLS_TYPE);
            cluster["transport_socket"] =
                json!({"name": "envoy.transport_sockets.tls", "typed_config": context});
        }
        if self.health_checked {
            cluster["health_checks"] = json!([{
                "timeout": "5s",
                "interval": "0.1s",
                "no_traffic_interval": "0.1s",
                "unhealthy_threshold": 1,
                "healthy_threshold": 1,
                "grpc_health_check": {"service_name": "ratelimit"},
            }]);
            // Without this, Envoy uses all hosts of a cluster if every host is unhealthy (panic mode).
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

fn tracing() -> Value {
    let collector = json!({"uri": "http://upstream/v1/traces", "cluster": "upstream", "timeout": "5s"});
    json!({"provider": {
        "name": "envoy.tracers.opentelemetry",
        "typed_config": {
            "@type": TRACER_TYPE,
            "http_service": {"http_uri": collector},
            "service_name": "envoy",
        },
    }})
}

fn router() -> Value {
    json!({"name": "envoy.filters.http.router", "typed_config": {"@type": ROUTER_TYPE}})
}
