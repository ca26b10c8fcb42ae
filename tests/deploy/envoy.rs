//! Every Envoy configuration of `examples/`, in a real Envoy in front of the running service.

use serde_json::{Value, json};

use crate::support::envoy::{Bootstrap, Envoy, route};
use crate::support::process::{Plan, Ratelimitd};
use crate::support::wait;
use crate::tools::{document, documents, read};

/// Two requests per year and client, or per listener: no unit returns during a test.
const RULES: [(&str, &str); 2] = [
    (
        "edge.yaml",
        "{domain: edge, descriptors: [{key: remote_address, rate_limit: {unit: year, requests_per_unit: 2}}]}",
    ),
    (
        "tcp.yaml",
        "{domain: tcp, descriptors: [{key: listener, value: database, rate_limit: {unit: year, requests_per_unit: 2}}]}",
    ),
];

fn service() -> Ratelimitd {
    RULES.iter().fold(Plan::default(), |plan, (name, text)| plan.rule_file(name, text)).start()
}

pub fn upstream() -> Envoy {
    Envoy::start(&Bootstrap::new(9).route(route("/", json!([]))))
}

/// A configuration of the project with free ports, and the servers of the test in place of those that it names.
pub fn local(path: &str, services: &[&Ratelimitd], upstream: &Envoy) -> Value {
    let mut configuration = document(&read(path));
    let endpoint = |port: u16| {
        let address = json!({"socket_address": {"address": "127.0.0.1", "port_value": port}});
        json!({"endpoint": {"address": address}})
    };
    let any_port = endpoint(0)["endpoint"]["address"].take();
    configuration["admin"]["address"] = any_port.clone();
    let resources = &mut configuration["static_resources"];
    for listener in resources["listeners"].as_array_mut().expect("listeners") {
        listener["address"] = any_port.clone();
    }
    for cluster in resources["clusters"].as_array_mut().expect("clusters") {
        let ports = match cluster["name"].as_str() {
            Some("ratelimitd") => services.iter().map(|service| service.grpc_port()).collect(),
            _ => vec![upstream.port("http")],
        };
        let endpoints = ports.into_iter().map(endpoint).collect::<Vec<_>>();
        cluster["load_assignment"]["endpoints"][0]["lb_endpoints"] = json!(endpoints);
    }
    configuration
}

fn start(configuration: &Value) -> Envoy {
    let envoy = Envoy::start_text(&configuration.to_string());
    wait::expect("the service is healthy", || envoy.stat("cluster.ratelimitd.membership_healthy") == 1);
    envoy
}

#[test]
fn the_http_example_limits_each_client_address() {
    let (service, upstream) = (service(), upstream());
    let envoy = start(&local("examples/envoy/http.yaml", &[&service], &upstream));
    let codes = [(); 4].map(|()| envoy.get("/").status);
    assert_eq!(codes, [200, 200, 429, 429]);
    let forged = envoy.get_with("/", &[("x-forwarded-for", "198.51.100.7")]);
    assert_eq!(forged.status, 429, "a client cannot choose its address");
}

#[test]
fn the_tcp_example_closes_connections_over_the_limit() {
    let (service, upstream) = (service(), upstream());
    let envoy = start(&local("examples/envoy/tcp.yaml", &[&service], &upstream));
    let answers = [(); 4].map(|()| envoy.get_over_tcp().map(|answer| answer.status));
    assert_eq!(answers, [Some(200), Some(200), None, None]);
}

/// The patches of the EnvoyFilters in the place where Istio puts them: the filter before the router, the descriptors in
/// the virtual host, and the cluster under the name that Istio gives to the Service.
#[test]
fn the_patches_for_istio_limit_each_client_address() {
    let patches: Vec<Value> = documents(&read("examples/istio/envoyfilter.yaml"))
        .iter()
        .map(|object| object["spec"]["configPatches"][0]["patch"]["value"].clone())
        .collect();
    let (service, upstream) = (service(), upstream());
    let mut configuration = local("examples/envoy/http.yaml", &[&service], &upstream);
    let cluster = patches[0].pointer("/typed_config/rate_limit_service/grpc_service/envoy_grpc/cluster_name");
    let cluster = cluster.and_then(Value::as_str).expect("the name of the cluster").to_owned();
    let named = &mut configuration["static_resources"]["clusters"][1];
    named["name"] = json!(cluster);
    named["alt_stat_name"] = json!("ratelimitd");
    // The default is the name of the cluster, and HTTP forbids `|` in an authority.
    named["health_checks"][0]["grpc_health_check"]["authority"] = json!("ratelimitd");
    let manager = configuration
        .pointer_mut("/static_resources/listeners/0/filter_chains/0/filters/0/typed_config")
        .expect("the connection manager");
    manager["http_filters"][0] = patches[0].clone();
    let host = &mut manager["route_config"]["virtual_hosts"][0];
    host["rate_limits"] = patches[1]["rate_limits"].clone();
    host["routes"][0]["route"].as_object_mut().expect("a route").remove("rate_limits");

    let envoy = start(&configuration);
    let codes = [(); 4].map(|()| envoy.get("/").status);
    assert_eq!(codes, [200, 200, 429, 429]);
}
