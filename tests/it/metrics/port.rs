//! The port for metrics alone, and the settings of the metrics that are refused.

use crate::support::process::Plan;
use crate::support::{http, ports};

const RULES: &str =
    "domain: shop\ndescriptors: [{ key: user, rate_limit: { unit: hour, requests_per_unit: 9 } }]\n";

#[test]
fn metrics_have_a_port_and_a_path_of_their_own_if_the_settings_say_so() {
    let port = ports::free();
    let plan = Plan::new(RULES).set("metrics.address", format!("127.0.0.1:{port}"));
    let service = plan.set("metrics.path", "/stats/prometheus").start();
    let page = http::get(port, "/stats/prometheus", &[]).expect("an answer");
    assert_eq!(page.status, 200);
    assert_eq!(page.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    for name in ["ratelimitd_build_info{", "ratelimitd_ready 1", "ratelimit_service_config_load_success 1"] {
        assert!(page.body.lines().any(|line| line.starts_with(name)), "{name}: {}", page.body);
    }
    for path in ["/metrics", "/json", "/readyz"] {
        assert_eq!(http::get(port, path, &[]).expect("an answer").status, 404, "{path}");
    }
    assert_eq!(http::get(service.http_port(), "/metrics", &[]).expect("an answer").status, 200);
    service.log_with(&format!("metrics=127.0.0.1:{port}"));
}

#[test]
fn a_port_for_metrics_that_is_taken_ends_the_start_with_its_setting() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    let Err(problem) = Plan::new(RULES).set("metrics.address", address.as_str()).try_start() else {
        panic!("the port is taken");
    };
    assert!(problem.log.contains(&format!("metrics.address: cannot listen on {address}")), "{problem:?}");
}
