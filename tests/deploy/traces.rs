//! The spans of calls in the OTLP receiver of the OpenTelemetry Collector (`tests/data/otlp_collector`), by gRPC and by
//! HTTP.

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::Value;

use crate::support::daemon::Daemon;
use crate::support::grpc::{Rls, descriptor, request};
use crate::support::ports;
use crate::support::process::Plan;
use crate::tools::{REMEDY, built};

const RULES: &str = "
domain: shop
descriptors:
  - key: user
    rate_limit: {unit: hour, requests_per_unit: 1}
";

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const SPAN: &str = "00f067aa0ba902b7";

/// A collector, and its ports for gRPC and for HTTP.
struct Collector {
    process: Daemon,
    grpc: u16,
    http: u16,
}

impl Collector {
    fn start() -> Self {
        let [grpc, http] = [ports::free(), ports::free()];
        let mut command = Command::new(built("otlp-collector"));
        command.args([grpc, http].map(|port| format!("127.0.0.1:{port}")));
        let process = Daemon::spawn("the collector", REMEDY, &mut command);
        process.log_with("listening\n");
        Self { process, grpc, http }
    }

    /// The spans so far, each with the attributes of its process, in the order of their times.
    fn spans(&self) -> Vec<(BTreeMap<String, String>, Value)> {
        let log = self.process.log();
        let batches = log.lines().filter(|line| line.starts_with('{'));
        let batches = batches.map(|line| serde_json::from_str::<Value>(line).expect("a line of JSON"));
        let mut spans: Vec<_> = batches.flat_map(|batch| spans_of(&batch)).collect();
        spans.sort_by_key(|(_, span)| span["startTimeUnixNano"].as_str().map(str::to_owned));
        spans
    }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn spans_of(batch: &Value) -> Vec<(BTreeMap<String, String>, Value)> {
    let of_resource = |resource: &Value| {
        let process = attributes(&resource["resource"]["attributes"]);
        let spans = list(&resource["scopeSpans"]).flat_map(|scope| list(&scope["spans"]));
        spans.map(|span| (process.clone(), span.clone())).collect::<Vec<_>>()
    };
    list(&batch["resourceSpans"]).flat_map(of_resource).collect()
}

/// Attributes as texts.
fn attributes(pairs: &Value) -> BTreeMap<String, String> {
    let text = |pair: &Value| {
        let value = pair["value"].as_object().and_then(|kinds| kinds.values().next()).expect("a value");
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        (pair["key"].as_str().expect("a key").to_owned(), text)
    };
    list(pairs).map(text).collect()
}

/// Two calls below a span of the caller, the second over the limit. The process ends, so that every span has been sent.
async fn check_spans(protocol: &str) {
    let collector = Collector::start();
    let port = if protocol == "grpc" { collector.grpc } else { collector.http };
    let mut service = Plan::new(RULES)
        .set("traces.endpoint", format!("http://127.0.0.1:{port}"))
        .set("traces.protocol", protocol)
        .set("traces.service_name", "rl")
        .set("server.drain", "1s")
        .start();
    let traceparent = format!("00-{TRACE}-{SPAN}-01");
    let mut rls = Rls::connect(service.grpc_port()).await;
    for _ in 0..2 {
        let call = request("shop", vec![descriptor(&[("user", "ann")])]);
        rls.send_with(call, &[("traceparent", &traceparent)]).await.expect("an answer");
    }
    service.terminate();
    assert!(service.wait_exit().success());

    let spans = collector.spans();
    assert_eq!(spans.len(), 2, "{spans:?}");
    for ((process, span), code) in spans.iter().zip(["OK", "OVER_LIMIT"]) {
        assert_eq!(process["service.name"], "rl");
        assert_eq!((&span["traceId"], &span["parentSpanId"]), (&Value::from(TRACE), &Value::from(SPAN)));
        assert_eq!(span["name"], "envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit");
        assert_eq!(span["kind"], 2, "a span of a server");
        let attributes = attributes(&span["attributes"]);
        let found = ["ratelimit.code", "ratelimit.domain", "rpc.system"].map(|key| attributes[key].as_str());
        assert_eq!(found, [code, "shop", "grpc"]);
        let rule = attributes.get("ratelimit.over_limit_rule").map(String::as_str);
        assert_eq!(rule, (code == "OVER_LIMIT").then_some("shop.user"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_collector_takes_the_spans_by_grpc() {
    check_spans("grpc").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_collector_takes_the_spans_by_http() {
    check_spans("http").await;
}
