//! Windows of calendars on a real Redis: the known answers, on a server and on the primaries of a cluster.

use tokio::runtime::Runtime;

use crate::calendar::check_known_answers;
use crate::redis::settle::Timed;
use crate::support::redis::Redis;
use crate::support::redis::cluster::Cluster;

#[test]
fn redis_gives_the_known_answers() {
    let (redis, runtime) = (Redis::start(), Runtime::new().expect("a runtime"));
    let mut server = Timed::connect(&runtime, &redis.url());
    check_known_answers("acme", |charges, now_us| server.decide(charges, now_us));
}

#[test]
fn each_primary_of_a_cluster_gives_the_known_answers() {
    let (cluster, runtime) = (Cluster::start(), Runtime::new().expect("a runtime"));
    let mut primaries: Vec<_> = cluster.urls().iter().map(|url| Timed::connect(&runtime, url)).collect();
    let mut used = [false; 3];
    for value in 0..6 {
        check_known_answers(&value.to_string(), |charges, now_us| {
            let primary = cluster.primary_of(charges.keys().next().expect("a counter"));
            used[primary] = true;
            primaries[primary].decide(charges, now_us)
        });
    }
    assert_eq!(used, [true; 3]);
}
