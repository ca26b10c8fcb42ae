//! Every Envoy configuration of the project, while the two instances behind it are restarted one after the other as in
//! a rolling update: no call is lost.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use crate::envoy::{local, upstream};
use crate::support::envoy::Envoy;
use crate::support::process::{Plan, Ratelimitd};
use crate::support::wait;

/// The domains and keys of the configurations.
const KEYS: [(&str, &str); 3] = [("edge", "remote_address"), ("tcp", "listener"), ("llm", "tenant")];
/// Each caller makes at most a hundred requests per second.
const CALLERS: usize = 3;
/// The time for two drains of 5 s and two starts, on a slow and busy machine.
const LONGEST: Duration = Duration::from_secs(120);
/// The requests that callers make between the steps, and at least while an instance drains.
const SOME: u64 = 50;

/// An instance by whose rules no request is over its limit: an answer other than 200 is a lost call.
fn instance() -> Ratelimitd {
    let plan = KEYS.iter().fold(Plan::default(), |plan, (domain, key)| {
        let rule =
            json!({"key": key, "rate_limit": {"unit": "year", "requests_per_unit": 4_000_000_000_u32}});
        plan.rule_file(
            &format!("{domain}.yaml"),
            &json!({"domain": domain, "descriptors": [rule]}).to_string(),
        )
    });
    plan.start()
}

/// Makes each rate-limit filter deny a request that is not decided, so that a lost call is an error and not an
/// admission. On a busy machine a decision may take longer than the 0.1 s of the configurations.
fn fail_closed(part: &mut Value) {
    match part {
        Value::Object(fields) => {
            if let Some(deny) = fields.get_mut("failure_mode_deny") {
                *deny = true.into();
                fields.insert("timeout".to_owned(), "5s".into());
            }
            fields.values_mut().for_each(fail_closed);
        }
        Value::Array(parts) => parts.iter_mut().for_each(fail_closed),
        _ => {}
    }
}

/// The answers to the callers so far.
#[derive(Default)]
struct Answers {
    admitted: AtomicU64,
    lost: AtomicU64,
    is_enough: AtomicBool,
}

impl Answers {
    /// Asks until it is enough.
    fn gather(&self, ask: impl Fn() -> Option<u16>) {
        let ended = wait::until(LONGEST, || {
            let counter = if ask() == Some(200) { &self.admitted } else { &self.lost };
            counter.fetch_add(1, Ordering::Relaxed);
            self.is_enough.load(Ordering::Relaxed).then_some(())
        });
        assert!(ended.is_some(), "the restarts took more than {LONGEST:?}");
    }

    fn count(&self) -> u64 {
        self.admitted.load(Ordering::Relaxed) + self.lost.load(Ordering::Relaxed)
    }

    fn wait_for_some(&self) {
        let before = self.count();
        wait::expect("answers", || self.count() >= before + SOME);
    }
}

/// Restarts both instances behind an Envoy with the configuration `path` while `ask` calls through it. Envoy has had no
/// request before.
fn assert_no_call_is_lost(path: &str, ask: fn(&Envoy) -> Option<u16>) {
    let (mut first, mut second, upstream) = (instance(), instance(), upstream());
    let mut configuration = local(path, &[&first, &second], &upstream);
    fail_closed(&mut configuration);
    let envoy = Envoy::start_text(&configuration.to_string());
    let both_healthy =
        || wait::expect("two healthy instances", || envoy.stat("cluster.ratelimitd.membership_healthy") == 2);
    both_healthy();

    let answers = Answers::default();
    std::thread::scope(|scope| {
        for _ in 0..CALLERS {
            scope.spawn(|| answers.gather(|| ask(&envoy)));
        }
        for instance in [&mut first, &mut second] {
            answers.wait_for_some();
            let before = answers.count();
            instance.terminate();
            assert!(instance.wait_exit().success(), "{}", instance.log());
            assert!(answers.count() >= before + SOME, "callers do not ask during the drain");
            // Its port is closed.
            answers.wait_for_some();
            instance.restart();
            both_healthy();
        }
        answers.wait_for_some();
        answers.is_enough.store(true, Ordering::Relaxed);
    });
    let (admitted, lost) = (answers.admitted.into_inner(), answers.lost.into_inner());
    assert_eq!(lost, 0, "{path}: lost beside {admitted} decided calls");
    let decided = envoy.stat("cluster.ratelimitd.upstream_rq_total");
    assert!(decided >= admitted, "{path}: {decided} decisions of {admitted} admitted requests");
}

#[test]
fn the_http_example_loses_no_call() {
    assert_no_call_is_lost("examples/envoy/http.yaml", |envoy| Some(envoy.get("/").status));
}

#[test]
fn the_tcp_example_loses_no_call() {
    assert_no_call_is_lost("examples/envoy/tcp.yaml", |envoy| Some(envoy.get_over_tcp()?.status));
}

#[test]
fn the_gateway_for_language_models_loses_no_call() {
    assert_no_call_is_lost("examples/llm-gateway/envoy.yaml", |envoy| {
        Some(envoy.get_with("/", &[("x-tenant", "acme")]).status)
    });
}

#[test]
fn the_configuration_for_docker_compose_loses_no_call() {
    assert_no_call_is_lost("deploy/envoy.yaml", |envoy| Some(envoy.get("/").status));
}
