//! The recorded behaviours of metrics, played on Redis.

use crate::metrics::behaviour::Behaviour;
use crate::metrics::{prometheus, statsd};
use crate::support::redis::Redis;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recorded_behaviours_lead_to_the_recorded_series_on_redis() {
    let mut problems = Vec::new();
    for behaviour in Behaviour::all() {
        if !behaviour.prometheus.is_empty() {
            problems.extend(prometheus::compare(&behaviour, Some(Redis::start())).await);
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recorded_behaviours_lead_to_the_recorded_lines_on_redis() {
    let mut problems = Vec::new();
    for format in ["statsd", "dogstatsd"] {
        for behaviour in statsd::recorded(format, true) {
            problems.extend(statsd::compare(&behaviour, format, Some(Redis::start())).await);
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}
