//! 10,000 rules: what a scrape holds, and that a reload keeps the counts.

use crate::support::grpc::{Code, Rls};
use crate::support::process::Ratelimitd;
use crate::support::{http, wait};

/// 100 tenants with 100 paths each.
fn rules(requests_per_unit: u32) -> String {
    let mut text = "domain: many\ndescriptors:\n".to_owned();
    for tenant in 0..100 {
        text += &format!("  - key: tenant\n    value: t{tenant}\n    descriptors:\n");
        for path in 0..100 {
            let limit = format!("{{ unit: year, requests_per_unit: {requests_per_unit} }}");
            text += &format!("      - {{ key: path, value: /p{path}, rate_limit: {limit} }}\n");
        }
    }
    text
}

/// The size of a scrape, and its series with the domain.
fn scrape(service: &Ratelimitd) -> (usize, Vec<String>) {
    let text = http::get(service.http_port(), "/metrics", &[]).expect("metrics").body;
    let series = text.lines().filter(|line| line.contains(r#"domain="many""#)).map(str::to_owned).collect();
    (text.len(), series)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scrape_holds_only_the_rules_that_requests_have_met() {
    let service = Ratelimitd::start(&rules(10));
    let (bytes, series) = scrape(&service);
    assert_eq!(series, [""; 0]);
    assert!(bytes < 50_000, "{bytes} bytes");

    let mut rls = Rls::connect(service.grpc_port()).await;
    for tenant in ["t7", "t8"] {
        assert_eq!(rls.send_one("many", &[("tenant", tenant), ("path", "/p3")]).await.0, Code::Ok);
    }
    let (_, series) = scrape(&service);
    // Five outcomes, one policy, and of the names of envoyproxy/ratelimit the two that have counted.
    assert_eq!(series.len(), 2 * 8, "{series:#?}");

    std::fs::write(service.rules().join("rules.yaml"), rules(20)).expect("a rule file");
    let limits = || http::get(service.admin_port(), "/rlconfig", &[]).expect("an answer").body;
    wait::expect("the new limits", || limits().contains("requests_per_unit=20"));
    assert_eq!(scrape(&service).1, series, "the counts outlive the reload");
}
