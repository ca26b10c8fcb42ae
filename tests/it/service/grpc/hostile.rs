//! Requests of a hostile client: they must not crash or block the process, or use memory without limit.

use bytes::Bytes;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code as Failure, Status};

use super::raw_codec::Raw;
use super::{decide_one, plan, request_for, service};
use crate::service::http::post;
use crate::support::grpc::{Code, RateLimitDescriptor, RateLimitRequest, Rls, descriptor, request};
use crate::support::process::Ratelimitd;
use crate::support::process::plan::is_by_tonic;
use crate::support::{http, wait};

pub(super) async fn send_raw(channel: &Channel, path: &'static str, message: &[u8]) -> Result<Bytes, Status> {
    let mut client = tonic::client::Grpc::new(channel.clone());
    client.ready().await.map_err(|error| Status::unknown(error.to_string()))?;
    let path = ::http::uri::PathAndQuery::from_static(path);
    let request = tonic::Request::new(Bytes::copy_from_slice(message));
    client.unary(request, path, Raw).await.map(tonic::Response::into_inner)
}

pub(super) const CALL: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

pub(super) async fn channel(service: &Ratelimitd) -> Channel {
    let endpoint = Endpoint::from_shared(format!("http://127.0.0.1:{}", service.grpc_port())).expect("a URL");
    endpoint.connect().await.expect("a connection")
}

#[tokio::test]
async fn malformed_messages_are_refused_and_the_next_request_is_answered() {
    let service = service();
    let channel = channel(&service).await;
    // Message, and why it is malformed.
    let table: [(&[u8], &str); 4] = [
        (b"\x0a\x7fabc", "a domain longer than the message"),
        (b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", "a tag that does not end"),
        (b"\x0f", "a wire type that does not exist"),
        (b"\x12\x00", "a descriptor without entries and no domain"),
    ];
    for (message, why) in table {
        let error = send_raw(&channel, CALL, message).await.expect_err(why);
        assert!(matches!(error.code(), Failure::Internal | Failure::InvalidArgument), "{why}: {error:?}");
    }
    let wrong_type = b"\x0a\x04test\x12\x0b\x0a\x09\x0a\x04user\x12\x01u\xf8\x07\x01\x1a\x00";
    assert!(send_raw(&channel, CALL, wrong_type).await.is_err(), "field 3 is a number, not a message");
    let unknown_field = b"\x0a\x04test\x12\x0b\x0a\x09\x0a\x04user\x12\x01u\xf8\x07\x01";
    let answer = send_raw(&channel, CALL, unknown_field).await.expect("unknown fields are ignored");
    assert!(answer.starts_with(b"\x08\x01"), "overall_code OK comes first: {answer:?}");
}

#[tokio::test]
async fn methods_and_services_that_do_not_exist_are_unimplemented() {
    let service = service();
    let channel = channel(&service).await;
    for path in [
        "/envoy.service.ratelimit.v3.RateLimitService/ShouldNot",
        "/envoy.service.ratelimit.v2.RateLimitService/ShouldRateLimit",
        "/",
    ] {
        let error = send_raw(&channel, path, b"").await.expect_err(path);
        assert_eq!(error.code(), Failure::Unimplemented, "{path}");
    }
}

fn with_entries(count: usize) -> RateLimitDescriptor {
    descriptor(&vec![("k", "v"); count])
}

#[tokio::test]
async fn the_error_names_what_is_incomplete_or_too_large() {
    let service = service();
    let mut rls = Rls::connect(service.grpc_port()).await;
    let (long, longest) = ("x".repeat(65_537), "x".repeat(65_536));
    let table: [(RateLimitRequest, &str); 6] = [
        (RateLimitRequest::default(), "rate limit domain must not be empty"),
        (request_for(vec![]), "rate limit descriptor list must not be empty"),
        (request_for(vec![with_entries(33)]), "descriptor 0: 33 entries, more than the 32 allowed"),
        (request_for(vec![with_entries(1); 65]), "65 descriptors, more than the 64 allowed"),
        (
            request_for(vec![descriptor(&[("k", &long)])]),
            "descriptor 0: entry 0: 65537 bytes in the value, more than the 65536 allowed",
        ),
        (
            request(&long, vec![with_entries(1)]),
            "rate limit domain has 65537 bytes, more than the 65536 allowed",
        ),
    ];
    for (request, reason) in table {
        let error = rls.send(request).await.expect_err(reason);
        assert_eq!((error.code(), error.message()), (Failure::InvalidArgument, reason));
    }
    let at_the_bounds = request_for(vec![with_entries(32); 64]);
    assert_eq!(rls.send(at_the_bounds).await.expect("within bounds").statuses.len(), 64);
    assert_eq!(decide_one(&mut rls, descriptor(&[("user", &longest)])).await, (Code::Ok, 2));

    let several = request_for(vec![descriptor(&[("k", &longest)]); 3]);
    assert_eq!(rls.send(several).await.expect("a message of 192 KiB").statuses.len(), 3);
    let huge = request_for(vec![descriptor(&[("k", &longest)]); 4]);
    let error = rls.send(huge).await.expect_err("more bytes than a message may have");
    assert_eq!(error.code(), Failure::OutOfRange, "{error:?}");
    // tonic reads the length of a message, and has its own words.
    let reason = match is_by_tonic(module_path!()) {
        true => ", the limit is: 262144 bytes",
        false => " bytes in the message, more than the 262144 allowed",
    };
    assert!(error.message().ends_with(reason), "{error:?}");
    assert_eq!(decide_one(&mut rls, descriptor(&[("user", "after")])).await, (Code::Ok, 2));
}

#[tokio::test]
async fn the_bounds_are_settings() {
    let plan = plan()
        .set("server.max_descriptors", 1)
        .set("server.max_entries", 1)
        .set("server.max_value_bytes", 4)
        .set("server.max_message_bytes", 4_096);
    let service = plan.start();
    let mut rls = Rls::connect(service.grpc_port()).await;
    for request in [
        request_for(vec![with_entries(1); 2]),
        request_for(vec![with_entries(2)]),
        request_for(vec![descriptor(&[("user", "12345")])]),
    ] {
        let error = rls.send(request).await.expect_err("over a bound");
        assert_eq!(error.code(), Failure::InvalidArgument, "{error:?}");
    }
    let error = rls.send(request(&"x".repeat(4_096), vec![])).await.expect_err("over a bound");
    assert_eq!(error.code(), Failure::OutOfRange, "{error:?}");
    assert_eq!(decide_one(&mut rls, descriptor(&[("user", "1234")])).await, (Code::Ok, 2));
    let (status, ..) = post(&service, " ".repeat(4_097)).await;
    assert_eq!(status.as_u16(), 413);
}

#[tokio::test]
async fn values_of_descriptors_are_not_logged() {
    let service = plan().set("log.level", "debug").start();
    let mut rls = Rls::connect(service.grpc_port()).await;
    for request in [
        request_for(vec![descriptor(&[("user", "a secret")])]),
        request_for(vec![descriptor(&vec![("user", "a secret"); 33])]),
    ] {
        // The answer does not matter here, only the log.
        let _ = rls.send(request).await;
    }
    // Lines are written by their own thread.
    wait::expect("the refused request in the log", || service.log().contains("33 entries, more than the 32"));
    let log = service.log();
    assert!(!log.contains("secret"), "{log}");
}

#[tokio::test]
async fn every_refused_request_is_counted_and_one_in_a_minute_is_logged() {
    let service = service();
    let channel = channel(&service).await;
    for message in [&b"\x0f"[..], b"\x0a\x7fabc", b"\x0a\x00"] {
        send_raw(&channel, CALL, message).await.expect_err("malformed, malformed, without a domain");
    }
    let too_large = vec![b'x'; 257 << 10];
    let error = send_raw(&channel, CALL, &too_large).await.expect_err("more than 256 KiB");
    assert_eq!(error.code(), Failure::OutOfRange);

    let metrics = http::get(service.http_port(), "/metrics", &[]).expect("an answer").body;
    for line in [
        r#"ratelimitd_request_errors_total{kind="invalid",transport="grpc"} 4"#,
        r#"ratelimit_service_should_rate_limit_error{err_type="service_error"} 4"#,
    ] {
        assert!(metrics.lines().any(|shown| shown == line), "{line} is not in\n{metrics}");
    }
    wait::expect("a line", || service.log().contains("requests rejected: invalid"));
    let log = service.log();
    assert_eq!(log.matches("requests rejected: invalid").count(), 1, "{log}");
}

#[tokio::test]
async fn an_invalid_request_is_denied_if_the_settings_say_so() {
    let service = plan().set("server.on_invalid", "deny").start();
    let channel = channel(&service).await;
    let mut rls = Rls::connect(service.grpc_port()).await;
    let too_long = request_for(vec![descriptor(&[("user", &"x".repeat(65_537))])]);
    let answer = rls.send(too_long).await.expect("an answer");
    assert_eq!((answer.overall_code(), answer.statuses.len()), (Code::OverLimit, 0));
    let answer = send_raw(&channel, CALL, b"\x0f").await.expect("an answer");
    assert_eq!(answer, &b"\x08\x02"[..], "overall_code OVER_LIMIT and nothing else");
    let long = "x".repeat(130 << 10);
    let answer = rls.send_with(request_for(vec![with_entries(1)]), &[("x-long", &long)]).await;
    assert_eq!(answer.expect("an answer").overall_code(), Code::OverLimit, "headers of 130 KiB");
    assert_eq!(decide_one(&mut rls, descriptor(&[("user", "valid")])).await, (Code::Ok, 2));

    let (status, _, body) = post(&service, "{").await;
    assert_eq!((status.as_u16(), body.as_str()), (429, r#"{"overallCode":"OVER_LIMIT"}"#));
    let metrics = http::get(service.http_port(), "/metrics", &[]).expect("an answer").body;
    let line = r#"ratelimitd_request_errors_total{kind="invalid",transport="grpc"} 3"#;
    assert!(metrics.lines().any(|shown| shown == line), "{metrics}");

    let shadow = plan().set("server.on_invalid", "deny").set("shadow_mode", true).start();
    let mut rls = Rls::connect(shadow.grpc_port()).await;
    let error = rls.send(RateLimitRequest::default()).await.expect_err("shadow mode denies nothing");
    assert_eq!(error.code(), Failure::InvalidArgument);
}

/// The longest message that settings allow, and the most memory that one takes.
const LONGEST_MESSAGE: usize = 1 << 20;
const MOST_KIB: u64 = 80 << 10;

#[tokio::test]
async fn a_message_of_the_smallest_fields_takes_a_bounded_amount_of_memory() {
    let fields = |field: &[u8], bytes: usize| field.repeat(bytes / field.len());
    // The length of the entries as a varint.
    let entries = [&b"\x12\xfa\xff\x3f"[..], &fields(b"\x0a\x00", LONGEST_MESSAGE - 6)].concat();
    let table = [
        (fields(b"\x12\x00", LONGEST_MESSAGE), "524288 descriptors, more than the 64 allowed"),
        (entries, "rate limit domain must not be empty"),
        (fields(b"\x0a\x00", LONGEST_MESSAGE), "rate limit domain must not be empty"),
        (fields(b"\x78\x01", LONGEST_MESSAGE), "rate limit domain must not be empty"),
    ];
    let start = || plan().set("server.max_message_bytes", LONGEST_MESSAGE).start();
    for (message, reason) in table {
        // The peak of a process is that of one message only if it has had no other.
        let service = start();
        let channel = channel(&service).await;
        let before = service.peak_memory_kib();
        let error = send_raw(&channel, CALL, &message).await.expect_err(reason);
        assert_eq!((error.code(), error.message()), (Failure::InvalidArgument, reason));
        let grown = service.peak_memory_kib() - before;
        assert!(grown < MOST_KIB, "{grown} KiB for a message of 1 MiB: {reason}");
    }
    let service = start();
    let channel = channel(&service).await;
    let above = vec![0; LONGEST_MESSAGE + 1];
    let error = send_raw(&channel, CALL, &above).await.expect_err("more than a message may have");
    assert_eq!(error.code(), Failure::OutOfRange, "{error:?}");
}
