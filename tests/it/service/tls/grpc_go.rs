//! grpc-go as client, as the callers of envoyproxy/ratelimit mostly are.

use super::{Site, any_request, plan};
use crate::support::certificates::Authority;
use crate::support::grpc_go::GrpcGo;

#[test]
fn clear_text_and_both_kinds_of_tls_are_answered() {
    let site = Site::new();
    let clear = plan().start();
    let tls = site.plan().start();
    let mutual = site.mutual_plan().start();
    let caller = site.authority.certificate_for(&["caller"]);
    let trusting = |port: u16| GrpcGo::new(port, &any_request()).trusting(&site.authority.file());
    let clients = [
        GrpcGo::new(clear.grpc_port(), &any_request()),
        trusting(tls.grpc_port()),
        trusting(tls.grpc_port()).showing(&caller),
        trusting(mutual.grpc_port()).showing(&caller),
        trusting(mutual.grpc_port()).showing(&caller).fresh(),
    ];
    for client in clients {
        let told = client.call(20);
        assert_eq!((told.answered, told.failed), (20, 0), "{}", told.reason);
    }
}

#[test]
fn a_refused_client_sees_the_alert() {
    let (site, other) = (Site::new(), Authority::new());
    let caller = site.authority.certificate_for(&["caller"]);
    let service = site.mutual_plan().set("server.grpc.tls.client_san", "client.local").start();
    let port = service.grpc_port();
    let client = || GrpcGo::new(port, &any_request());
    // The words of Go; each refusal is seen every time, not only by chance.
    let cases = [
        (client().trusting(&site.authority.file()), "remote error: tls: certificate required"),
        (client().trusting(&site.authority.file()).showing(&caller), "remote error: tls: bad certificate"),
        (client().trusting(&other.file()).showing(&caller), "certificate signed by unknown authority"),
        (client(), "Unavailable"),
    ];
    for (client, expected) in cases {
        let told = client.fresh().call(5);
        assert_eq!((told.answered, told.failed), (0, 5), "{expected}");
        assert!(told.reason.contains(expected), "{expected} is not in: {}", told.reason);
    }
}
