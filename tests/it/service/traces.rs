//! The spans of calls, as a collector gets them. A test waits for the end of the process while its collector serves, so
//! it has two threads.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::Arc;

use futures_util::StreamExt as _;
use reqwest::Client;
use tokio::io::copy_bidirectional;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_stream::wrappers::TcpListenerStream;

use crate::support::certificates::{Authority, Identity};
use crate::support::collector::{Collector, Span, attributes};
use crate::support::grpc::{Rls, descriptor, request};
use crate::support::process::{Plan, Ratelimitd};
use crate::support::{http, wait};

const RULES: &str = "
domain: shop
descriptors:
  - key: user
    rate_limit: {unit: hour, requests_per_unit: 1}
";

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const SPAN: &str = "00f067aa0ba902b7";
const NAME: &str = "envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

fn plan(collector: &str) -> Plan {
    Plan::new(RULES).set("traces.endpoint", collector).set("server.drain", "1s")
}

/// Two calls that take the caller's span from these headers; the second is over the limit. Then the process ends, so
/// that every span has been sent.
async fn call_twice(mut service: Ratelimitd, headers: &[(&'static str, &str)]) {
    let mut rls = Rls::connect(service.grpc_port()).await;
    for _ in 0..2 {
        let call = request("shop", vec![descriptor(&[("user", "v4lue")])]);
        rls.send_with(call, headers).await.expect("an answer");
    }
    service.terminate();
    assert!(service.wait_exit().success());
}

fn hex(id: &[u8]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What is expected of the spans of `call_twice`, in their order.
fn assert_spans(collector: &Collector) {
    let mut spans = collector.spans();
    spans.sort_by_key(|(_, span)| span.start_time_unix_nano);
    assert_eq!(spans.len(), 2, "{spans:?}");
    for ((process, span), over) in spans.iter().zip([false, true]) {
        let process = attributes(process);
        assert_eq!((process["service.name"].as_str(), process["service.namespace"].as_str()), ("rl", "edge"));
        assert_eq!(process["service.instance.id"].len(), 36, "a UUID");
        assert_eq!((span.name.as_str(), span.kind), (NAME, 2), "a span of a server");
        assert_eq!((hex(&span.trace_id).as_str(), hex(&span.parent_span_id).as_str()), (TRACE, SPAN));
        assert!(span.end_time_unix_nano >= span.start_time_unix_nano && span.span_id.len() == 8);
        let found = attributes(&span.attributes);
        let mut expected = vec![
            ("ratelimit.code", if over { "OVER_LIMIT" } else { "OK" }),
            ("ratelimit.descriptors", "1"),
            ("ratelimit.domain", "shop"),
        ];
        expected.extend(over.then_some(("ratelimit.over_limit_rule", "shop.user")));
        expected.extend([
            ("rpc.method", "ShouldRateLimit"),
            ("rpc.service", "envoy.service.ratelimit.v3.RateLimitService"),
            ("rpc.system", "grpc"),
        ]);
        assert_eq!(found.iter().map(|(key, value)| (*key, value.as_str())).collect::<Vec<_>>(), expected);
        assert!(!format!("{span:?}").contains("v4lue"), "no value of a request: {span:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_call_is_a_span_below_that_of_its_caller_over_http() {
    let collector = Collector::start().await;
    let plan = plan(&collector.url())
        .set("traces.service_name", "rl")
        .set("traces.service_namespace", "edge")
        .set("traces.headers", "api-key=s3cret%20key");
    let traceparent = format!("00-{TRACE}-{SPAN}-01");
    call_twice(plan.start(), &[("traceparent", &traceparent)]).await;
    assert_spans(&collector);
    assert!(collector.header("api-key").iter().all(|key| key == "s3cret key"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_call_is_a_span_below_that_of_its_caller_over_grpc() {
    let collector = Collector::start().await;
    let plan = plan(&collector.url())
        .set("traces.protocol", "grpc")
        .set("traces.service_name", "rl")
        .set("traces.service_namespace", "edge")
        .set("traces.headers", "api-key=k");
    let b3 = format!("{TRACE}-{SPAN}-1");
    call_twice(plan.start(), &[("b3", &b3)]).await;
    assert_spans(&collector);
    assert!(collector.header("api-key").iter().all(|key| key == "k"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_decision_of_the_caller_is_kept_and_the_share_is_for_the_others() {
    let (sampled, unsampled) = (format!("00-{TRACE}-{SPAN}-01"), format!("00-{TRACE}-{SPAN}-00"));
    for (share, traceparent, spans) in
        [("1", Some(&unsampled), 0), ("0", Some(&sampled), 2), ("0", None, 0), ("1", None, 2)]
    {
        let collector = Collector::start().await;
        let service = plan(&collector.url()).set("traces.sampled_share", share).start();
        let headers: Vec<_> = traceparent.iter().map(|value| ("traceparent", value.as_str())).collect();
        call_twice(service, &headers).await;
        assert_eq!(collector.spans().len(), spans, "{share}, {traceparent:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_over_http_is_a_span_also_without_a_decision() {
    let folder = tempfile::TempDir::new().expect("a temporary directory");
    let map = folder.path().join("map.yaml");
    let text = "domain: d\ndescriptors:\n  - - { key: client, from: remote_addr }\n";
    std::fs::write(&map, text).expect("room for the map");
    for (path, expected) in [("/json", "POST /json"), ("/check", "/check")] {
        let collector = Collector::start().await;
        let plan = plan(&collector.url()).set("server.http.check.map", map.display().to_string());
        let mut service = plan.start();
        let url = format!("http://127.0.0.1:{}{path}", service.http_port());
        let body = r#"{"domain": "", "descriptors": []}"#;
        let post = Client::new().post(url).header("x-b3-traceid", TRACE).header("x-b3-spanid", SPAN);
        let answer = post.header("x-b3-sampled", "1").body(body).send().await.expect("an answer");
        assert_eq!(answer.status(), 400);
        service.terminate();
        assert!(service.wait_exit().success());
        let spans = collector.spans();
        let [(_, Span { name, trace_id, status, attributes: pairs, .. })] = spans.as_slice() else {
            panic!("{spans:?}");
        };
        assert_eq!((name.as_str(), hex(trace_id).as_str()), (expected, TRACE));
        assert_eq!(attributes(pairs)["error.type"], "invalid");
        assert_eq!(status.as_ref().map(|status| status.code), Some(2), "an error");
    }
}

fn spans_of(service: &Ratelimitd, name: &str) -> u64 {
    let page = http::get(service.http_port(), "/metrics", &[]).expect("an answer").body;
    let name = format!("ratelimitd_trace_spans_{name}_total ");
    let line = page.lines().find_map(|line| line.strip_prefix(&name));
    line.and_then(|count| count.parse().ok()).expect("a count")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spans_that_cannot_be_sent_are_lost_and_counted_and_no_call_waits() {
    let closed = TcpListener::bind("127.0.0.1:0").expect("a port");
    let no_listener = format!("http://{}", closed.local_addr().expect("an address"));
    drop(closed);
    // Takes connections, and answers nothing.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let silent_url = format!("http://{}", silent.local_addr().expect("an address"));
    for (url, protocol) in [
        (no_listener.as_str(), "http"),
        (no_listener.as_str(), "grpc"),
        ("http://collector.invalid:4318", "http"),
        (silent_url.as_str(), "http"),
        (silent_url.as_str(), "grpc"),
    ] {
        let plan = plan(url).set("traces.protocol", protocol).set("traces.timeout", "50ms");
        let mut service = plan.start();
        let mut rls = Rls::connect(service.grpc_port()).await;
        rls.send_one("shop", &[("user", "a")]).await;
        wait::expect("a lost span", || spans_of(&service, "lost") == 1);
        assert_eq!(spans_of(&service, "sent"), 0);
        service.log_with("cannot send spans to the collector");
        service.terminate();
        assert!(service.wait_exit().success());
    }
}

/// Takes the first connection and answers nothing. Further connections are forwarded to this port.
async fn answer_from_the_second_connection_on(listener: TcpListener, port: u16) {
    listener.set_nonblocking(true).expect("a listener of the runtime");
    let listener = tokio::net::TcpListener::from_std(listener).expect("a runtime");
    let (_silent, _) = listener.accept().await.expect("the first connection");
    let forward = |stream: std::io::Result<TcpStream>| async move {
        let mut stream = stream.expect("a connection");
        let mut collector =
            TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.expect("the collector listens");
        // It ends with either connection.
        drop(copy_bidirectional(&mut stream, &mut collector).await);
    };
    TcpListenerStream::new(listener).for_each_concurrent(None, forward).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spans_go_over_a_new_connection_after_one_that_got_no_answer() {
    for protocol in ["http", "grpc"] {
        let collector = Collector::start().await;
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let plan = plan(&url).set("traces.protocol", protocol).set("traces.timeout", "500ms");
        let service = plan.start();
        let mut rls = Rls::connect(service.grpc_port()).await;
        let calls = wait::until_async(wait::PATIENCE, async || {
            rls.send_one("shop", &[("user", "a")]).await;
            (spans_of(&service, "sent") > 0).then_some(())
        });
        tokio::select! {
            () = answer_from_the_second_connection_on(listener, collector.port) => panic!("it has no end"),
            sent = calls => assert!(sent.is_some(), "{protocol}: no span was sent"),
        }
        assert!(spans_of(&service, "lost") > 0, "{protocol}: the first connection was silent");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_domain_is_cut_in_its_span() {
    let collector = Collector::start().await;
    let mut service = plan(&collector.url()).start();
    let mut rls = Rls::connect(service.grpc_port()).await;
    // The bound of the attribute is within a character of two bytes.
    rls.send_one(&format!("d{}", "\u{e9}".repeat(20_000)), &[("user", "a")]).await;
    service.terminate();
    assert!(service.wait_exit().success());
    let spans = collector.spans();
    let [(_, span)] = spans.as_slice() else { panic!("{} spans", spans.len()) };
    assert_eq!(attributes(&span.attributes)["ratelimit.domain"], format!("d{}", "\u{e9}".repeat(127)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spans_that_the_collector_refuses_are_counted_as_lost() {
    let collector = Collector::start_with(None, 1).await;
    let service = plan(&collector.url()).start();
    let mut rls = Rls::connect(service.grpc_port()).await;
    rls.send_one("shop", &[("user", "a")]).await;
    wait::expect("a refused span", || spans_of(&service, "lost") == 1);
    service.log_with("the collector refused them");
}

pub(crate) fn acceptor(identity: &Identity) -> TlsAcceptor {
    let certificate = CertificateDer::from_pem_file(&identity.certificate).expect("a certificate");
    let key = PrivateKeyDer::from_pem_file(&identity.key).expect("a key");
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions of TLS")
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .expect("they belong together");
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    TlsAcceptor::from(Arc::new(config))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collector_with_tls_is_trusted_by_the_file_of_authorities() {
    const NAMES: [&str; 1] = ["127.0.0.1"];
    let (authority, shown) = (Authority::new(), Authority::for_server(&NAMES));
    let (signed, own) = (authority.certificate_for(&NAMES), shown.own_identity());
    for (identity, trusted, protocol, spans) in [
        (&signed, &authority, "http", 2),
        (&signed, &authority, "grpc", 2),
        // The certificate of the server is itself in the file.
        (&own, &shown, "http", 2),
        (&signed, &shown, "http", 0),
    ] {
        let collector = Collector::start_with(Some(acceptor(identity)), 0).await;
        let service = plan(&format!("https://127.0.0.1:{}", collector.port))
            .set("traces.protocol", protocol)
            .set("traces.ca_file", trusted.file().display().to_string())
            .start();
        call_twice(service, &[]).await;
        assert_eq!(collector.spans().len(), spans, "{protocol}");
    }
}

#[test]
fn an_authority_that_cannot_be_read_ends_the_start() {
    let plan = plan("https://collector:4318").set("traces.ca_file", "/nowhere/ca.pem");
    let Err(problem) = plan.try_start() else { panic!("there is no such file") };
    assert!(problem.log.contains("traces.ca_file") && problem.log.contains("/nowhere/ca.pem"), "{problem:?}");
}
