//! Soft limits and limits that reserve, through both doors of the running service: the header for the upstream, the
//! metadata, the metrics, the counters and the warning. The same on every store.

use envoy_types::pb::google::protobuf::value::Kind;
use envoy_types::pb::google::protobuf::{Struct, UInt64Value};
use serde_json::{Value, json};

use crate::cli::counters::counters_of;
use crate::service::http::post;
use crate::support::grpc::{RateLimitResponse, Rls, descriptor, request};
use crate::support::http;
use crate::support::process::{Plan, Ratelimitd};

/// The windows last a year, so that none ends during a test.
pub(crate) const RULES: &str = "
domain: d
descriptors:
  - key: soft
    rate_limit: { name: soft, unit: year, requests_per_unit: 10, on_over: announce, near: 0.8 }
  - { key: hard, rate_limit: { name: hard, unit: year, requests_per_unit: 1, algorithm: fixed_window } }
  - key: prepaid
    rate_limit: { name: prepaid, unit: year, requests_per_unit: 10, algorithm: fixed_window, near: 0.8 }
  - key: shadow
    shadow_mode: true
    rate_limit: { name: shadow, unit: year, requests_per_unit: 10, on_over: announce, near: 0.8 }
  - { key: tokens, rate_limit: { unit: year, requests_per_unit: 1000, algorithm: fixed_window, reserve: 500 } }
  - { key: unchecked, rate_limit: { unit: year, requests_per_unit: 1000, algorithm: fixed_window, reserve: 500 } }
";

pub(crate) fn plan() -> Plan {
    Plan::new(RULES)
}

/// What a caller is told: the code, the units left of the last descriptor, the header for the upstream, and what the
/// metadata announces.
#[derive(Debug, PartialEq)]
struct Told {
    code: String,
    left: u64,
    header: String,
    metadata: String,
}

/// A descriptor: its key, and its hits.
type Hits<'h> = (&'h str, u64);

async fn by_grpc(rls: &mut Rls, hits: &[Hits<'_>]) -> Told {
    let one = |&(key, units): &Hits<'_>| {
        let hits_addend = Some(UInt64Value { value: units });
        crate::support::grpc::RateLimitDescriptor { hits_addend, ..descriptor(&[(key, "grpc")]) }
    };
    let answer = rls.send(request("d", hits.iter().map(one).collect())).await.expect("an answer");
    let header = match &answer.request_headers_to_add[..] {
        [] => String::new(),
        [header] => format!("{}: {}", header.key, header.value),
        more => panic!("{more:?}"),
    };
    Told {
        code: answer.overall_code().as_str_name().to_owned(),
        left: answer.statuses.last().expect("a status").limit_remaining.into(),
        header,
        metadata: announced(&answer),
    }
}

/// The field `announce` as JSON. No other field is sent by default.
fn announced(answer: &RateLimitResponse) -> String {
    let Some(Struct { fields }) = &answer.dynamic_metadata else { return String::new() };
    assert_eq!(fields.keys().collect::<Vec<_>>(), ["announce"]);
    let Some(Kind::StructValue(Struct { fields })) = &fields["announce"].kind else { panic!("{answer:?}") };
    let text = |kind: &Option<Kind>| match kind {
        Some(Kind::StringValue(text)) => text.clone(),
        other => panic!("{other:?}"),
    };
    json!(
        fields
            .iter()
            .map(|(name, value)| (name, text(&value.kind)))
            .collect::<std::collections::BTreeMap<_, _>>()
    )
    .to_string()
}

async fn by_json(service: &Ratelimitd, hits: &[Hits<'_>]) -> Told {
    let one =
        |(key, units): &Hits<'_>| json!({"entries": [{"key": key, "value": "json"}], "hitsAddend": units});
    let body = json!({"domain": "d", "descriptors": hits.iter().map(one).collect::<Value>()});
    let (_, _, body) = post(service, body.to_string()).await;
    let answer: Value = serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {body}"));
    let header = match answer["requestHeadersToAdd"].as_array().map(Vec::as_slice) {
        None => String::new(),
        Some([header]) => format!(
            "{}: {}",
            header["key"].as_str().expect("a name"),
            header["value"].as_str().expect("a value")
        ),
        Some(more) => panic!("{more:?}"),
    };
    let statuses = answer["statuses"].as_array().expect("a list");
    Told {
        code: answer["overallCode"].as_str().expect("a code").to_owned(),
        left: statuses.last().expect("a status")["limitRemaining"].as_u64().unwrap_or(0),
        header,
        metadata: answer
            .get("dynamicMetadata")
            .map(|fields| fields["announce"].to_string())
            .unwrap_or_default(),
    }
}

/// The metrics whose names start so, without the names.
fn counted(service: &Ratelimitd, name: &str) -> Vec<String> {
    let metrics = http::get(service.http_port(), "/metrics", &[]).expect("metrics").body;
    metrics.lines().filter_map(|line| line.strip_prefix(name)).map(str::to_owned).collect()
}

pub(crate) async fn soft_limits_are_announced(plan: Plan) {
    let service = plan.start();
    let mut rls = Rls::connect(service.grpc_port()).await;
    let (near, over) = ("x-ratelimit-announce: soft;near", "x-ratelimit-announce: soft;over");
    let (near_field, over_field) = (r#"{"soft":"near"}"#, r#"{"soft":"over"}"#);
    let table: [(&[Hits<'_>], &str, u64, &str, &str); 13] = [
        (&[("soft", 7)], "OK", 3, "", ""),
        (&[("soft", 1)], "OK", 2, "", ""),
        (&[("soft", 1)], "OK", 1, near, near_field),
        (&[("soft", 1)], "OK", 0, near, near_field),
        (&[("soft", 1)], "OK", 0, over, over_field),
        (&[("soft", 0)], "OK", 0, over, over_field),
        (&[("hard", 1)], "OK", 0, "", ""),
        (&[("soft", 1), ("hard", 1)], "OVER_LIMIT", 0, "", over_field),
        (&[("soft", 20)], "OK", 0, over, over_field),
        (&[("prepaid", 9)], "OK", 1, "x-ratelimit-announce: prepaid;near", r#"{"prepaid":"near"}"#),
        (&[("prepaid", 2)], "OVER_LIMIT", 1, "", ""),
        (
            &[("soft", 1), ("prepaid", 1)],
            "OK",
            0,
            "x-ratelimit-announce: soft;over, prepaid;near",
            r#"{"prepaid":"near","soft":"over"}"#,
        ),
        (&[("shadow", 11)], "OK", 0, "", ""),
    ];
    for (row, (hits, code, left, header, metadata)) in table.into_iter().enumerate() {
        let expected =
            Told { code: code.to_owned(), left, header: header.to_owned(), metadata: metadata.to_owned() };
        assert_eq!(by_grpc(&mut rls, hits).await, expected, "row {row}");
        assert_eq!(by_json(&service, hits).await, expected, "row {row} as JSON");
    }
    assert_eq!(
        counted(&service, "ratelimitd_announced_total"),
        [
            r#"{domain="d",rule="prepaid",state="near"} 4"#,
            r#"{domain="d",rule="prepaid",state="over"} 0"#,
            r#"{domain="d",rule="shadow",state="near"} 0"#,
            r#"{domain="d",rule="shadow",state="over"} 0"#,
            r#"{domain="d",rule="soft",state="near"} 4"#,
            r#"{domain="d",rule="soft",state="over"} 10"#,
        ]
    );
    let outcome = |rule: &str, outcome: &str| {
        let labels = format!(r#"{{domain="d",outcome="{outcome}",rule="{rule}"}} "#);
        let decisions = counted(&service, "ratelimitd_decisions_total");
        decisions.iter().find_map(|line| line.strip_prefix(&labels)?.parse::<u64>().ok()).expect("a count")
    };
    assert_eq!((outcome("soft", "shadow"), outcome("soft", "over_limit")), (10, 0), "over, but not denied");
}

#[tokio::test]
async fn soft_limits_in_memory_are_announced() {
    soft_limits_are_announced(plan()).await;
}

#[tokio::test]
async fn the_header_has_the_name_of_the_settings_or_is_left_out() {
    for (name, expected) in [("X-Quota", "X-Quota: soft;over"), ("", "")] {
        let service = plan().set("response.announce_header", name).start();
        let mut rls = Rls::connect(service.grpc_port()).await;
        let told = by_grpc(&mut rls, &[("soft", 11)]).await;
        assert_eq!((told.header.as_str(), told.metadata.as_str()), (expected, r#"{"soft":"over"}"#));
    }
}

pub(crate) async fn checks_take_and_charges_book(plan: Plan) {
    let service = plan.start();
    let mut rls = Rls::connect(service.grpc_port()).await;
    let table = [
        (0, "OK", 500),
        (120, "OK", 880),
        (0, "OK", 380),
        (700, "OK", 180),
        (0, "OVER_LIMIT", 180),
        (900, "OK", 0),
    ];
    for (hits, code, left) in table {
        for told in
            [by_grpc(&mut rls, &[("tokens", hits)]).await, by_json(&service, &[("tokens", hits)]).await]
        {
            assert_eq!((told.code.as_str(), told.left), (code, left), "{hits} hits");
        }
        // An operator looks, and takes nothing.
        let (exit, shown, error) = counters_of(&service, "d", &["show", "--json", "tokens=grpc"]);
        assert_eq!(exit, Some(0), "{error}");
        let shown: Value = serde_json::from_str(&shown).expect("JSON");
        assert_eq!(shown["counters"][0]["remaining"], left, "{shown}");
    }
    assert_eq!(
        counted(&service, "ratelimitd_reserve_total"),
        [r#"{domain="d",kind="charge",rule="d.tokens"} 6"#, r#"{domain="d",kind="check",rule="d.tokens"} 6"#]
    );
    for _ in 0..1_100 {
        by_grpc(&mut rls, &[("unchecked", 10)]).await;
    }
    let warning = "more than two charges per check";
    let log = service.log_with(warning);
    assert_eq!(log.matches(warning).count(), 1, "once for the limit: {log}");
    assert!(service.log().contains("d.unchecked"), "{}", service.log());
}

#[tokio::test]
async fn checks_in_memory_take_and_charges_book() {
    checks_take_and_charges_book(plan()).await;
}
