//! What instances with one Redis report: `/fleet`, `rules wait`, and `failure.local_share: auto`.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::grpc::{Code, Rls};
use crate::support::http;
use crate::support::process::{Plan, Ratelimitd};
use crate::support::redis::Redis;
use crate::support::wait;

const RULES: &str = "
domain: shop
descriptors:
  - key: tenant
    rate_limit: { unit: year, requests_per_unit: 4, on_store_failure: local }
";

fn page(service: &Ratelimitd, path: &str) -> Value {
    let answer = http::get(service.admin_port(), path, &[]).expect("an answer");
    serde_json::from_str(&answer.body).expect("JSON")
}

fn live(service: &Ratelimitd) -> usize {
    let page = page(service, "/fleet");
    page["instances"].as_array().into_iter().flatten().filter(|instance| instance["live"] == true).count()
}

fn ctl(line: &[&str]) -> (Option<i32>, String) {
    let output =
        Command::new(env!("CARGO_BIN_EXE_ratelimitctl")).args(line).output().expect("the binary runs");
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(text).expect("UTF-8"))
}

fn digest(rules: &str) -> String {
    let output =
        Command::new(env!("CARGO_BIN_EXE_ratelimitd")).args(["validate", "--digest", rules]).output();
    String::from_utf8(output.expect("the binary runs").stdout).expect("UTF-8").trim().to_owned()
}

#[expect(clippy::disallowed_methods, reason = "how long a command waits for other processes")]
fn now() -> Instant {
    Instant::now()
}

#[test]
fn rules_wait_returns_once_every_instance_has_the_rules_or_one_refuses_them() {
    let redis = Redis::start();
    let [a, b] = [(); 2].map(|()| Plan::new(RULES).redis(&redis.url()).start());
    wait::expect("both report", || live(&a) == 2 && live(&b) == 2);
    let admin = format!("127.0.0.1:{}", a.admin_port());
    let wait_for = |rules: &str, more: &[&str]| {
        ctl(&[&["rules", "wait", "--admin", &admin, "--rules", rules][..], more].concat())
    };
    let folders = [&a, &b].map(|service| service.rules().to_str().expect("UTF-8").to_owned());
    assert_eq!(
        wait_for(&folders[0], &["--instances", "2"]),
        (Some(0), "2 instances: up to date\n".to_owned())
    );
    assert_eq!(page(&a, "/rules")["digest"], json!(digest(&folders[0])));
    let (code, told) = wait_for(&folders[0], &["--instances", "3", "--timeout", "100ms"]);
    assert_eq!((code, told.as_str()), (Some(1), "ratelimitctl rules wait: 2 of 3 instances are live\n"));

    // Only the other instance lags.
    let before = digest(&folders[0]);
    let newer = RULES.replace("4,", "5,");
    fs::write(a.rules().join("rules.yaml"), &newer).expect("a rule file");
    wait::expect("the change", || page(&a, "/rules")["generation"] == 2);
    let (code, told) = wait_for(&folders[0], &["--timeout", "100ms"]);
    assert!(code == Some(1) && told.ends_with(&format!(": rules {before}\n")), "{told}");
    fs::write(b.rules().join("rules.yaml"), &newer).expect("a rule file");
    wait::expect("the change", || page(&b, "/rules")["generation"] == 2);
    let start = now();
    assert_eq!(wait_for(&folders[0], &["--instances", "2"]).0, Some(0));
    assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());

    // Valid for the command, which merges domains, and not for the service.
    for service in [&a, &b] {
        fs::write(service.rules().join("more.yaml"), newer.replace("tenant", "user")).expect("a rule file");
    }
    wait::expect("the refusal", || page(&b, "/rules")["last_error"] != Value::Null);
    let start = now();
    let (code, told) = wait_for(&folders[1], &["--timeout", "1m"]);
    assert_eq!(code, Some(1), "{told}");
    assert!(told.contains(" (the new ones are refused: see /rules)\n"), "{told}");
    assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());

    // An invalid file is an error before any wait.
    fs::write(b.rules().join("more.yaml"), "domain: [\n").expect("a rule file");
    let (code, told) = wait_for(&folders[1], &[]);
    assert!(code == Some(1) && told.contains("more.yaml"), "{told}");
}

#[test]
fn rules_wait_sees_a_live_row_everywhere_and_a_process_alone() {
    let redis = Redis::start();
    let [a, b] = [(); 2].map(|()| Plan::new(RULES).redis(&redis.url()).start());
    wait::expect("both report", || live(&a) == 2);
    let [at_a, at_b] = [&a, &b].map(|service| format!("127.0.0.1:{}", service.admin_port()));
    let set =
        ["exceptions", "set", "--domain", "shop", "tenant=acme", "--block", "--permanent", "--reason", "r"];
    let (_, answer) = ctl(&[&set[..], &["--json", "--admin", &at_b]].concat());
    let answer: Value = serde_json::from_str(&answer).expect("JSON");
    let version = answer["rows"][0]["version"].as_str().expect("a version").to_owned();
    let wait_for =
        |version: &str, more: &[&str]| ctl(&[&["rules", "wait", "--exceptions", version][..], more].concat());
    let up_to_date = (Some(0), "2 instances: up to date\n".to_owned());
    assert_eq!(wait_for(&version, &["--admin", &at_a, "--instances", "2"]), up_to_date);
    let later = (version.parse::<u64>().expect("a number") + 1).to_string();
    let (code, told) = wait_for(&later, &["--admin", &at_a, "--timeout", "100ms"]);
    assert!(code == Some(1) && told.ends_with(&format!(": live rows of version {version}\n")), "{told}");

    // Without Redis each port lists its own process, and `rules wait` adds them up.
    let [c, d] = [(); 2].map(|()| Ratelimitd::start(RULES));
    let of_c = page(&c, "/fleet");
    assert_eq!((&of_c["source"], of_c["instances"].as_array().map(Vec::len)), (&json!("process"), Some(1)));
    let [at_c, at_d] = [&c, &d].map(|service| format!("127.0.0.1:{}", service.admin_port()));
    let line = ["--admin", &at_c, "--admin", &at_d, "--instances", "2"];
    assert_eq!(wait_for("0", &line), up_to_date);
    drop(d);
    let (code, told) = wait_for("0", &[&line[..], &["--timeout", "100ms"]].concat());
    assert!(code == Some(1) && told.contains("cannot connect to"), "{told}");
    drop(c);
    assert_eq!(wait_for("0", &[&line[..], &["--timeout", "100ms"]].concat()).0, Some(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn local_limits_follow_the_number_of_instances_and_keep_it_while_redis_is_away() {
    let mut redis = Redis::start();
    let plan = || Plan::new(RULES).redis(&redis.url()).set("failure.local_share", "auto");
    let others = [(); 3].map(|()| plan().start());
    wait::expect("the others report", || live(&others[0]) == 3);
    let service = plan().start();
    // It counts the instances when it starts, before or after its first report, and every 5 s.
    wait::expect("the count", || page(&service, "/fleet")["local_share"].as_u64() >= Some(3));
    let mut rls = Rls::connect(service.grpc_port()).await;
    redis.stop();
    let mut admitted = 0;
    for _ in 0..6 {
        admitted += u32::from(rls.send_one("shop", &[("tenant", "acme")]).await.0 == Code::Ok);
    }
    assert!((1..=2).contains(&admitted), "4 by 4 or 3 instances: {admitted}");
    let shown = page(&service, "/fleet");
    assert!(shown["local_share"].as_u64() >= Some(3), "the last number stays: {shown}");
    assert_eq!(shown["instances"].as_array().map(Vec::len), Some(1), "{shown}");
    assert!(shown["error"].as_str().is_some_and(|error| error.starts_with("Redis does not list")), "{shown}");
}
