//! Exceptions of files while the service runs: an upgrade of a customer, a blocked network, bad files, many rows.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::grpc::{Code, Rls};
use crate::support::process::{Plan, Ratelimitd};
use crate::support::{http, wait};

const RULES: &str = "
domain: llm
descriptors:
  - key: tenant
    rate_limit: { unit: year, requests_per_unit: 60, algorithm: fixed_window, name: tokens, tiers: { pro: 600 } }
  - key: address
    rate_limit: { unit: year, requests_per_unit: 60, algorithm: fixed_window }
";

const HEADER: &str = "domain,key,value,tier\n";

/// A service with a directory of exceptions.
struct Served {
    folder: TempDir,
    service: Ratelimitd,
}

impl Served {
    fn start(files: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, text) in files {
            fs::write(folder.path().join(name), text).expect("a file");
        }
        let path = folder.path().display().to_string();
        Self { service: Plan::new(RULES).set("exceptions.path", path).start(), folder }
    }

    /// Puts a file in place in one step.
    fn write(&self, name: &str, text: &str) {
        let beside = self.folder.path().join(format!(".{name}"));
        fs::write(&beside, text).expect("a file");
        fs::rename(&beside, self.folder.path().join(name)).expect("a rename");
    }

    fn page(&self) -> Value {
        let page = http::get(self.service.admin_port(), "/exceptions", &[]).expect("an answer").body;
        serde_json::from_str(&page).expect("JSON")
    }

    fn wait_for_load(&self, field: &str, loads: u64) {
        wait::expect("the load", || self.page()[field] == json!(loads));
    }

    fn metric(&self, name: &str) -> Option<String> {
        let page = http::get(self.service.http_port(), "/metrics", &[]).expect("an answer").body;

        page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ').map(str::to_owned))
    }
}

#[tokio::test]
async fn an_upgrade_of_a_customer_is_in_force_and_keeps_what_was_used() {
    let served = Served::start(&[("tenants.csv", &format!("{HEADER}llm,tenant,other,pro\n"))]);
    let mut rls = Rls::connect(served.service.grpc_port()).await;
    for _ in 0..59 {
        rls.send_one("llm", &[("tenant", "acme")]).await;
    }
    assert_eq!(rls.send_one("llm", &[("tenant", "acme")]).await.1.limit_remaining, 0);
    assert_eq!(rls.send_one("llm", &[("tenant", "acme")]).await.0, Code::OverLimit);
    served.write("tenants.csv", &format!("{HEADER}llm,tenant,other,pro\nllm,tenant,acme,pro\n"));
    served.wait_for_load("loads_ok", 2);
    let (code, status) = rls.send_one("llm", &[("tenant", "acme")]).await;
    let limit = status.current_limit.expect("a limit").requests_per_unit;
    // The limit is prepaid, so the denial was not counted.
    assert_eq!((code, limit, status.limit_remaining), (Code::Ok, 600, 539));
    served.write(
        "oncall.yaml",
        "- { domain: llm, key: tenant, value: acme, multiplier: 2, reason: INC-42, by: oncall }\n",
    );
    served.wait_for_load("loads_ok", 3);
    assert_eq!(rls.send_one("llm", &[("tenant", "acme")]).await.1.limit_remaining, 1_138);
    let log = served.service.log_with("exception file changed");
    assert!(log.contains("oncall.yaml") && !log.contains("acme") && !log.contains("INC-42"), "{log}");
    for (series, value) in [
        (r#"ratelimitd_exceptions{kind="tier",source="file"}"#, "2"),
        (r#"ratelimitd_exceptions{kind="multiplier",source="file"}"#, "1"),
        (r#"ratelimitd_exception_loads_total{result="success",source="file"}"#, "3"),
        (r#"ratelimitd_exception_requests_total{domain="llm",kind="tier"}"#, "2"),
        (r#"ratelimitd_exception_requests_total{domain="llm",kind="multiplier"}"#, "1"),
    ] {
        assert_eq!(served.metric(series).as_deref(), Some(value), "{series}");
    }
    let age = served.metric(r#"ratelimitd_exceptions_age_seconds{source="file"}"#).expect("an age");
    assert!(age.parse::<u64>().is_ok_and(|age| age < 5), "{age}");
}

#[tokio::test]
async fn a_bad_file_keeps_the_exceptions_in_force() {
    let served =
        Served::start(&[("a.yaml", "- { domain: '*', key: address, value: 10.0.0.0/8, block: true }\n")]);
    let mut rls = Rls::connect(served.service.grpc_port()).await;
    assert_eq!(rls.send_one("llm", &[("address", "10.1.2.3")]).await.0, Code::OverLimit);
    assert_eq!(rls.send_one("llm", &[("address", "11.1.2.3")]).await.0, Code::Ok);
    served.write("a.yaml", "- { domain: '*', key: address, value: 10.0.0.0/8, blok: true }\n");
    served.wait_for_load("loads_failed", 1);
    assert_eq!(rls.send_one("llm", &[("address", "10.1.2.3")]).await.0, Code::OverLimit);
    let page = served.page();
    assert_eq!(
        (&page["in_force"], &page["rows"], &page["kinds"]),
        (&json!(false), &json!(1), &json!({"block": 1}))
    );
    let problem = page["last_error"]["problems"][0].as_str().expect("a problem").to_owned();
    assert!(problem.contains("a.yaml:1: unknown column 'blok'"), "{problem}");
    served.service.log_with("cannot load changed exceptions; keeping current exceptions");
    let failed = served.metric(r#"ratelimitd_exception_loads_total{result="failure",source="file"}"#);
    assert_eq!(failed.as_deref(), Some("1"));
    served.write(
        "a.yaml",
        "- { domain: '*', key: address, value: 10.1.2.3, exempt: true }\n- { domain: \
                  lmm, key: address, value: x, tier: gold }\n",
    );
    served.wait_for_load("loads_ok", 2);
    assert_eq!(rls.send_one("llm", &[("address", "10.1.2.3")]).await.0, Code::Ok);
    let page = served.page();
    let warning = page["warnings"][0].as_str().expect("a warning").to_owned();
    assert!(warning.ends_with("a.yaml:2: warning: no domain of the rules matches 'domain'"), "{warning}");
    assert_eq!((&page["in_force"], &page["last_error"]), (&json!(true), &Value::Null));
}

#[tokio::test]
async fn a_blocked_address_is_blocked_in_every_spelling_and_by_an_emptied_file() {
    let rows = "- { domain: llm, key: address, value: 203.0.113.7, block: true }\n\
                - { domain: llm, key: address, value: '2001:dead::1', block: true }\n";
    let served = Served::start(&[("a.yaml", rows), ("b.csv", &format!("{HEADER}llm,tenant,acme,pro\n"))]);
    let mut rls = Rls::connect(served.service.grpc_port()).await;
    let mut all_are_blocked = async || {
        for address in
            ["203.0.113.7", "::ffff:203.0.113.7", "203.0.113.7:1234", "2001:DEAD::1", "[2001:dead:0::1]:443"]
        {
            assert_eq!(rls.send_one("llm", &[("address", address)]).await.0, Code::OverLimit, "{address}");
        }
        assert_eq!(rls.send_one("llm", &[("address", "203.0.113.8:1234")]).await.0, Code::Ok);
        let (_, status) = rls.send_one("llm", &[("tenant", "acme")]).await;
        assert_eq!(status.current_limit.map(|limit| limit.requests_per_unit), Some(600));
    };
    all_are_blocked().await;
    // A full disk.
    served.write("a.yaml", "");
    served.wait_for_load("loads_failed", 1);
    all_are_blocked().await;
    served.write("a.yaml", rows);
    served.wait_for_load("loads_ok", 2);
    served.write("b.csv", "");
    served.wait_for_load("loads_failed", 2);
    all_are_blocked().await;
    let log = served.service.log_with("b.csv:1: the file is empty");
    assert!(log.contains("a.yaml:1: the file is empty") && log.contains("exceptions.path"), "{log}");
}

#[tokio::test]
async fn rules_and_exceptions_are_replaced_apart() {
    let served = Served::start(&[("a.csv", &format!("{HEADER}llm,tenant,acme,pro\nllm,tenant,x,gold\n"))]);
    let mut rls = Rls::connect(served.service.grpc_port()).await;
    let mut limit = async |tenant: &str| {
        let (_, status) = rls.send_one("llm", &[("tenant", tenant)]).await;
        status.current_limit.map(|limit| limit.requests_per_unit)
    };
    assert_eq!((limit("acme").await, limit("x").await), (Some(600), Some(60)));
    assert_eq!(served.metric(r#"ratelimitd_unknown_tier_total{domain="llm"}"#).as_deref(), Some("1"));
    assert_eq!(served.page()["warnings"].as_array().map(Vec::len), Some(1));
    let rules = RULES.replace("pro: 600", "pro: 700, gold: 900");
    fs::write(served.service.rules().join("rules.yaml"), &rules).expect("a rule file");
    wait::expect("the new rules", || served.page()["warnings"] == json!([]));
    assert_eq!((limit("acme").await, limit("x").await), (Some(700), Some(900)));
    served.write("a.csv", &format!("{HEADER}llm,tenant,x,pro\n"));
    served.wait_for_load("loads_ok", 2);
    assert_eq!((limit("acme").await, limit("x").await), (Some(60), Some(700)));
    let changes = served.page()["files"][0]["changes"].clone();
    assert_eq!(changes, json!({"added": 0, "removed": 1, "changed": 1}));
}

#[test]
fn the_first_exceptions_must_be_valid() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("a.csv"), "tenant\n").expect("a file");
    let path = folder.path().display().to_string();
    let failed = Plan::new(RULES).set("exceptions.path", path).try_start().err().expect("no start");
    let text = format!("{failed:?}");
    assert!(
        text.contains("exceptions.path: cannot load exceptions") && text.contains("unknown column 'tenant'"),
        "{text}"
    );
}

/// Without optimisation a million rows take half a minute. `make bench` loads a million.
const ROWS: u64 = 100_000;

fn many_rows(path: &Path, tier: &str) -> PathBuf {
    let mut text = HEADER.to_owned();
    for row in 0..ROWS {
        writeln!(text, "llm,tenant,t{row},{tier}").expect("a String takes any text");
    }
    let file = path.join(".many.csv");
    fs::write(&file, text).expect("a file");
    file
}

#[tokio::test(flavor = "multi_thread")]
async fn many_rows_are_loaded_while_requests_are_decided() {
    let served = Served::start(&[]);
    let mut rls = Rls::connect(served.service.grpc_port()).await;
    rls.send_one("llm", &[("tenant", "t99999")]).await;
    let port = served.service.grpc_port();
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let answered = Arc::new(AtomicU64::new(0));
    let answers = Arc::clone(&answered);
    let caller = async move {
        let mut rls = Rls::connect(port).await;
        let mut limits = Vec::new();
        while !stopped.load(Ordering::Relaxed) {
            let (_, status) = rls.send_one("llm", &[("tenant", "t99999")]).await;
            limits.push(status.current_limit.expect("a limit").requests_per_unit);
            answers.fetch_add(1, Ordering::Relaxed);
        }
        limits
    };
    let mut callers = tokio::task::JoinSet::new();
    callers.spawn(caller);
    for (load, tier) in [(2, "pro"), (3, "none"), (4, "pro")] {
        let file = many_rows(served.folder.path(), tier);
        fs::rename(file, served.folder.path().join("many.csv")).expect("a rename");
        tokio::task::block_in_place(|| served.wait_for_load("loads_ok", load));
        // The second answer from now on is to a call that began after the load.
        let before = answered.load(Ordering::Relaxed);
        let is_used = || answered.load(Ordering::Relaxed) >= before + 2;
        tokio::task::block_in_place(|| wait::expect("a call by the new table", is_used));
        let page = served.page();
        assert_eq!((&page["rows"], &page["in_force"]), (&json!(ROWS), &json!(true)));
    }
    stop.store(true, Ordering::Relaxed);
    let limits = callers.join_next().await.expect("one caller").expect("no panic");
    let mut different = limits.clone();
    different.dedup();
    // Each answer is by one of the tables, and a table that was replaced is never used again.
    assert_eq!(different, [60, 600, 60, 600]);
    let table = served.page()["table_bytes"].as_u64().expect("a number");
    assert!((1_060_000..1_100_000).contains(&table), "{table}");
}
