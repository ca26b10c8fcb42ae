//! A real Envoy that calls over TLS, with a client certificate.

use std::fs;

use serde_json::json;

use super::{Site, handshakes, reloads, text};
use crate::support::certificates::Authority;
use crate::support::envoy::{Bootstrap, Envoy, route};
use crate::support::process::Ratelimitd;
use crate::support::tls::SERVER_NAME;
use crate::support::wait;

/// An Envoy that denies what it cannot decide, with a client certificate of `clients`.
fn envoy(service: &Ratelimitd, site: &Site, clients: &Authority) -> Envoy {
    let caller = clients.certificate_for(&["envoy"]);
    let file = |path: &std::path::Path| json!({"filename": text(path)});
    let context = json!({
        "sni": SERVER_NAME,
        "common_tls_context": {
            "tls_certificates": [
                {"certificate_chain": file(&caller.certificate), "private_key": file(&caller.key)},
            ],
            "validation_context": {
                "trusted_ca": file(&site.authority.file()),
                "match_typed_subject_alt_names": [{"san_type": "DNS", "matcher": {"exact": SERVER_NAME}}],
            },
        },
    });
    let any = json!([{"actions": [{"generic_key": {"descriptor_value": "any"}}]}]);
    let bootstrap = Bootstrap::new(service.grpc_port()).domain("tls").route(route("/", any)).fail_closed();
    Envoy::start(&bootstrap.tls(context))
}

#[test]
fn envoy_calls_with_a_client_certificate_while_certificates_are_replaced() {
    let site = Site::new();
    let service = site.mutual_plan().set("server.grpc.max_connection_age", "1s").start();
    let envoy = envoy(&service, &site, &site.authority);
    let mut answers = 0;
    let mut call = || {
        assert_eq!(envoy.get("/").status, 200, "after {answers} answers");
        answers += 1;
    };
    for replaced in 1..=4 {
        let next = site.authority.certificate(&format!("next {replaced}"), &[SERVER_NAME], |_| {});
        fs::copy(&next.certificate, &site.server.certificate).expect("room for a file");
        fs::copy(&next.key, &site.server.key).expect("room for a file");
        wait::expect("the new certificate", || {
            call();
            reloads(&service, "success") == replaced
        });
    }
    let before = handshakes(&service, "ok");
    wait::expect("a connection with the last certificate", || {
        call();
        handshakes(&service, "ok") > before
    });
    assert_eq!(envoy.stat("cluster.upstream.ratelimit.error"), 0);
    assert_eq!(envoy.stat("cluster.upstream.ratelimit.ok"), answers);
}

#[test]
fn an_envoy_of_another_authority_is_refused() {
    let site = Site::new();
    let service = site.mutual_plan().start();
    let envoy = envoy(&service, &site, &Authority::new());
    assert_eq!(envoy.get("/").status, 500, "not decided: denied");
    wait::expect("a count", || handshakes(&service, "certificate_invalid") > 0);
}
