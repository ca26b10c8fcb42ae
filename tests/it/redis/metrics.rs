//! The recorded behaviours of metrics, played on Redis.

use crate::metrics::behaviour::Behaviour;
use crate::metrics::prometheus::compare;
use crate::support::redis::Redis;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recorded_behaviours_lead_to_the_recorded_series_on_redis() {
    let mut problems = Vec::new();
    for behaviour in Behaviour::all() {
        if !behaviour.prometheus.is_empty() {
            problems.extend(compare(&behaviour, Some(Redis::start())).await);
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}
