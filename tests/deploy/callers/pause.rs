//! A third party answers 429: one worker reports it, and all of them stop calling it.

use std::time::Duration;

use super::{ALLOW, Caller, NO_DECISION, PATIENT, REMEDY, go, job, node, python, read, rust, service};
use crate::support::daemon::Daemon;
use crate::support::http;
use crate::support::process::{Plan, Ratelimitd};
use crate::support::redis::Redis;
use crate::support::third_party::{RETRY_AFTER, ThirdParty};

const WORKERS: usize = 20;
const JOBS_OF_A_WORKER: &str = "4";
/// Until a pause is in force on every instance.
const EVERYWHERE: Duration = Duration::from_millis(1_200);

/// Reports that changed a pause, by the instances that sent them to Redis.
fn writes(service: &Ratelimitd) -> u64 {
    let metrics = http::get(service.http_port(), "/metrics", &[]).expect("an answer").body;
    let is_write =
        |line: &&str| line.starts_with("ratelimitd_pauses_total") && line.contains("result=\"set\"");
    let values = metrics.lines().filter(is_write).filter_map(|line| line.rsplit_once(' '));
    values.map(|(_, value)| value.parse::<u64>().expect("a number")).sum()
}

fn check_pause(caller: &Caller) {
    let redis = Redis::start();
    // Without the pause, 40 calls a second would reach the third party.
    let rules = read("examples/callers/rules.yaml");
    let rules =
        rules.replacen("requests_per_unit: 5, algorithm: gcra", "requests_per_unit: 40, algorithm: gcra", 1);
    let instance = || Plan::new(&rules).redis(&redis.url()).set("response.dynamic_metadata", true).start();
    let instances = [instance(), instance()];
    let third_party = ThirdParty::start(WORKERS, WORKERS + 10);
    let url = format!("http://127.0.0.1:{}/", third_party.port);
    let arguments = [&["--url", &url, "--jobs", JOBS_OF_A_WORKER], PATIENT].concat();
    let start = |index: usize| {
        let mut command = caller.command(&caller.worker, &instances[index % 2], &arguments);
        Daemon::spawn("a worker", REMEDY, &mut command)
    };
    let workers: Vec<_> = (0..WORKERS).map(start).collect();
    for mut worker in workers {
        assert!(worker.wait_exit().success());
        let jobs: Vec<_> = worker.log().lines().filter_map(job).map(|job| job.number).collect();
        assert_eq!(jobs, [0, 1, 2, 3], "{}", worker.log());
    }

    let calls = third_party.calls();
    let first = calls.iter().find(|call| call.status == 429).expect("a 429").at;
    let times: Vec<_> =
        calls.iter().map(|call| (call.at.saturating_duration_since(first), call.status)).collect();
    let too_early = times.iter().find(|(time, _)| (EVERYWHERE..RETRY_AFTER).contains(time));
    assert_eq!(too_early, None, "{times:?}");
    assert_eq!(times.iter().filter(|(_, status)| *status == 200).count(), WORKERS * 4);
    assert!(times.iter().filter(|(time, _)| *time >= RETRY_AFTER).count() >= 20, "they go on: {times:?}");
    let writes: u64 = instances.iter().map(writes).sum();
    assert!((1..=5).contains(&writes), "{writes} writes: {times:?}");
}

/// A worker whose report nobody takes waits by itself.
fn check_pause_in_an_outage(caller: &Caller) {
    let mut service = service();
    service.kill();
    let third_party = ThirdParty::start(1, 0);
    let url = format!("http://127.0.0.1:{}/", third_party.port);
    let arguments = [&["--url", &url, "--jobs", "1"], ALLOW].concat();
    let (printed, logged) = caller.finish(&caller.worker, &service, &arguments);
    assert!((printed + &logged).contains(NO_DECISION), "{logged}");
    let calls = third_party.calls();
    let statuses: Vec<_> = calls.iter().map(|call| call.status).collect();
    assert_eq!(statuses, [429, 200]);
    assert!(calls[1].at - calls[0].at >= RETRY_AFTER, "{calls:?}");
}

#[test]
fn python_pause() {
    check_pause(&python("worker.py"));
    check_pause_in_an_outage(&python("worker.py"));
}

#[test]
fn node_pause() {
    check_pause(&node());
    check_pause_in_an_outage(&node());
}

#[test]
fn go_pause() {
    check_pause(&go());
    check_pause_in_an_outage(&go());
}

#[test]
fn rust_pause() {
    check_pause(&rust());
    check_pause_in_an_outage(&rust());
}
