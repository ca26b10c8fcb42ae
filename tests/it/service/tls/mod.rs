//! TLS on the ports, with clients on rustls, openssl, grpc-go and Envoy.

use std::path::Path;

use crate::support::certificates::{Authority, Identity};
use crate::support::grpc::{Code, RateLimitRequest, Rls, descriptor, request};
use crate::support::http;
use crate::support::process::{Plan, Ratelimitd};
use crate::support::tls::SERVER_NAME;

mod bounds;
mod clients;
mod commands;
mod envoy;
mod files;
mod grpc_go;
mod protocol;
mod reload;

const RULES: &str = "
domain: tls
descriptors: [{ key: generic_key, rate_limit: { unit: year, requests_per_unit: 100000000 } }]
";

fn plan() -> Plan {
    Plan::new(RULES).server_of(module_path!())
}

/// An authority with the certificate of a service.
struct Site {
    authority: Authority,
    server: Identity,
}

impl Site {
    fn new() -> Self {
        let authority = Authority::new();
        Self { server: authority.certificate_for(&[SERVER_NAME]), authority }
    }

    /// TLS on the gRPC port.
    fn plan(&self) -> Plan {
        with_certificate(plan(), "grpc", &self.server)
    }

    /// TLS on the gRPC port, for clients of the same authority.
    fn mutual_plan(&self) -> Plan {
        self.plan().set("server.grpc.tls.client_ca_file", text(&self.authority.file()))
    }
}

fn with_certificate(plan: Plan, port: &str, identity: &Identity) -> Plan {
    plan.set(&format!("server.{port}.tls.cert_file"), text(&identity.certificate))
        .set(&format!("server.{port}.tls.key_file"), text(&identity.key))
}

fn text(path: &Path) -> String {
    path.to_str().expect("a path of a temporary file is text").to_owned()
}

fn any_request() -> RateLimitRequest {
    request("tls", vec![descriptor(&[("generic_key", "any")])])
}

async fn expect_answer(rls: &mut Rls) {
    let answer = rls.send(any_request()).await.expect("an answer");
    assert_eq!(answer.overall_code(), Code::Ok);
}

/// The value of a series of `/metrics`, on a clear text port.
fn metric(service: &Ratelimitd, series: &str) -> Option<u64> {
    let metrics = http::get(service.http_port(), "/metrics", &[]).expect("metrics").body;
    metrics.lines().find_map(|line| line.strip_prefix(series)?.trim().parse().ok())
}

fn handshakes(service: &Ratelimitd, result: &str) -> u64 {
    let series = format!("ratelimitd_tls_handshakes_total{{port=\"grpc\",result=\"{result}\"}}");
    metric(service, &series).expect("the series exists")
}

fn reloads(service: &Ratelimitd, result: &str) -> u64 {
    let series = format!("ratelimitd_tls_reloads_total{{port=\"grpc\",result=\"{result}\"}}");
    metric(service, &series).expect("the series exists")
}
