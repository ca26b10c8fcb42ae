//! Values that are not UTF-8: limited as every value is, by gRPC and by `/json`, and shown in printable characters.

use envoy_types::pb::envoy::service::ratelimit::v3::RateLimitResponse;
use prost::Message as _;
use serde_json::json;

use super::hostile::{CALL, channel, send_raw};
use crate::service::http::post;
use crate::service::secrets::KEY;
use crate::support::http;
use crate::support::process::{Plan, Ratelimitd};

const RULES: &str = "
domain: test
descriptors:
  - { key: user, detailed_metric: true, rate_limit: { unit: year, requests_per_unit: 10 } }
  - { key: token, secret: true, detailed_metric: true, rate_limit: { unit: year, requests_per_unit: 10 } }
";

/// `a` and a lone surrogate, which JSON can express as well.
const VALUE: &[u8] = b"a\xed\xa0\x80";
const SHOWN: &str = "a%xED%xA0%x80";

fn service() -> Ratelimitd {
    let plan = Plan::new(RULES).server_of(module_path!()).env("SECRETS__KEY", KEY);
    plan.set("response.dynamic_metadata", true).start()
}

fn field(tag: u8, content: &[u8]) -> Vec<u8> {
    [&[tag, u8::try_from(content.len()).expect("short")], content].concat()
}

/// A request with one entry, and `more` fields.
fn message(key: &str, value: &[u8], more: &[u8]) -> Vec<u8> {
    let entry = [field(0x0a, key.as_bytes()), field(0x12, value)].concat();
    [field(0x0a, b"test"), field(0x12, &field(0x0a, &entry)), more.to_vec()].concat()
}

async fn decide(service: &Ratelimitd, message: &[u8]) -> RateLimitResponse {
    let answer = send_raw(&channel(service).await, CALL, message).await.expect("an answer");
    RateLimitResponse::decode(answer).expect("an answer in protobuf")
}

#[tokio::test]
async fn bytes_that_are_no_text_are_one_value_by_every_way() {
    let service = service();
    let unknown_field = field(0x7a, b"x");
    let long = field(0x7a, &[b'x'; 100]).repeat(20);
    let mut remaining = Vec::new();
    // The decoder of usual requests; prost; prost, after the fields are counted.
    for more in [&b""[..], &unknown_field, &long] {
        let answer = decide(&service, &message("user", VALUE, more)).await;
        remaining.push(answer.statuses[0].limit_remaining);
        let metadata = format!("{:?}", answer.dynamic_metadata.expect("metadata"));
        assert!(metadata.contains(&format!("user={SHOWN}")), "{metadata}");
    }
    assert_eq!(remaining, [9, 8, 7]);
    let entry = r#"{"key":"user","value":"a\ud800"}"#;
    let request = format!(r#"{{"domain":"test","descriptors":[{{"entries":[{entry}]}}]}}"#);
    let (status, _, body) = post(&service, request.clone()).await;
    assert!(status == 200 && body.contains(r#""limitRemaining":6"#), "{status} {body}");

    let metrics = http::get(service.http_port(), "/metrics", &[]).expect("metrics").body;
    assert!(metrics.contains(&format!(r#"key1="user_{SHOWN}""#)), "{metrics}");
    // An operator writes the value as it is shown.
    let shown = json!({"domain": "test", "descriptors": [{"entries": [{"key": "user", "value": SHOWN}]}]});
    let lines = ["POST /counters/reset HTTP/1.1", "host: localhost", "content-type: application/json"];
    let admin = http::connect(service.admin_port()).expect("a connection");
    let reset = http::exchange(admin, &lines, &shown.to_string()).expect("an answer");
    assert_eq!(reset.status, 200, "{}", reset.body);
    assert_eq!(decide(&service, &message("user", VALUE, b"")).await.statuses[0].limit_remaining, 9);
}

#[tokio::test]
async fn a_secret_value_of_bytes_is_not_shown() {
    let service = service();
    for (value, remaining) in [(VALUE, 9), (VALUE, 8), (b"a\xed\xa0\x81", 9)] {
        let answer = decide(&service, &message("token", value, b"")).await;
        assert_eq!(answer.statuses[0].limit_remaining, remaining, "{}", value.escape_ascii());
        let metadata = format!("{:?}", answer.dynamic_metadata.expect("metadata"));
        assert!(metadata.contains("token=%k") && !metadata.contains("%x"), "{metadata}");
    }
    let metrics = http::get(service.http_port(), "/metrics", &[]).expect("metrics").body;
    assert!(metrics.contains(r#"key1="token_%k"#) && !metrics.contains("%xED"), "{metrics}");
}

#[tokio::test]
async fn keys_and_domains_may_be_bytes_too() {
    let service = service();
    let domain = [field(0x0a, b"\xff"), message("user", b"ann", b"")[6..].to_vec()].concat();
    for message in [domain, [field(0x0a, b"test"), b"\x12\x05\x0a\x03\x0a\x01\xff".to_vec()].concat()] {
        let answer = decide(&service, &message).await;
        assert_eq!((answer.overall_code, answer.statuses.len()), (1, 1), "no rule has them: {answer:?}");
    }
}
