//! 10,000 rules: what a scrape holds, that a reload keeps the counts, and the memory of both.

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

/// The release binary needs 14 MB without rules and less than 60 MB with these. This one needs 43 to 46 MB more with
/// them, or 51 MB, if the allocator keeps what the first reload has freed.
#[test]
fn the_rules_are_loaded_again_in_less_than_55_mb() {
    let few = Ratelimitd::start("domain: few\ndescriptors: [{ key: a }]\n");
    let many = Ratelimitd::start(&rules(10));
    let loads = || many.log().matches("rules in force").count();
    for (index, requests_per_unit) in [20, 30].into_iter().enumerate() {
        std::fs::write(many.rules().join("rules.yaml"), rules(requests_per_unit)).expect("a rule file");
        wait::expect("the new rules", || loads() == index + 2);
    }
    let needed = many.peak_memory_kib() - few.peak_memory_kib();
    assert!(needed < 55 << 10, "{needed} KiB");
}
