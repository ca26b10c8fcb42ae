//! A service without calls: it notices that Redis is killed and restarted, and says what that cost.

use serde_json::{Value, json};

use super::RULES;
use crate::service::store_page::page;
use crate::support::process::{Plan, Ratelimitd};
use crate::support::redis::Redis;
use crate::support::{http, wait};

const NOTICED: &str = "Redis is unavailable; failure policies apply";
const RESTARTED: &str = "Redis restarted or failed over; counters it had not saved are lost";

fn start(plan: Plan) -> Ratelimitd {
    plan.set("server.workers", 1).start()
}

fn breakers_open(service: &Ratelimitd) -> u64 {
    let metrics = http::get(service.http_port(), "/metrics", &[]).expect("an answer").body;
    let line = metrics.lines().find_map(|line| line.strip_prefix("ratelimitd_redis_breakers_open "));
    line.expect("the gauge").parse().expect("a number")
}

fn times_logged(service: &Ratelimitd, words: &str) -> usize {
    service.log().lines().filter(|line| line.contains(words)).count()
}

/// Redis is killed and started again, twice. No call is made.
#[test]
fn a_killed_redis_is_noticed_without_a_call_and_so_are_its_lost_counters() {
    let mut redis = Redis::start();
    let service = start(Plan::new(RULES).redis(&redis.url()));
    let store = || page(&service)["redis"].clone();
    wait::expect("the description of the server", || store()["servers"][0].is_object());
    for kill in 1..=2 {
        assert_eq!((&store()["answers"], &store()["restarts"]), (&json!(true), &json!(kill - 1)));
        redis.stop();
        wait::expect("the page says that Redis does not answer", || store()["answers"] == false);
        let error = store()["last_outage"]["error"].to_string();
        assert!(error.contains("refused"), "{error}");
        // One for the worker, and one for the HTTP port.
        wait::expect("the metric counts every breaker", || breakers_open(&service) == 2);
        wait::expect("a line", || times_logged(&service, NOTICED) == kill);

        redis.restart();
        wait::expect("the page says that Redis answers", || store()["answers"] == true);
        wait::expect("a line about the counters", || times_logged(&service, RESTARTED) == kill);
        assert_eq!(store()["restarts"], kill);
        wait::expect("no breaker is open", || breakers_open(&service) == 0);
    }
    assert_eq!(times_logged(&service, "Redis is available again"), 2);
    assert!(service.log().contains("calls=0"), "no call was touched: {}", service.log());
}

/// Its memory is gone before any breaker opens.
#[test]
fn a_redis_that_is_back_at_once_has_lost_its_counters_all_the_same() {
    let mut redis = Redis::start();
    let service = start(Plan::new(RULES).redis(&redis.url()));
    wait::expect("the description of the server", || page(&service)["redis"]["servers"][0].is_object());
    redis.restart();
    let log = service.log_with(RESTARTED);
    let line = log.lines().find(|line| line.contains(RESTARTED)).expect("the line");
    assert!(line.contains("WARN") && line.contains("keys="), "{line}");
    // A connection that is closed is no restart.
    redis.run::<u64>(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).expect("CLIENT KILL");
    let clients = || redis.run::<String>(&["INFO", "clients"]).expect("INFO");
    wait::expect("new connections", || !clients().contains("connected_clients:1\r"));
    assert_eq!(page(&service)["redis"]["restarts"], 1);
    assert_eq!(page(&service)["redis"]["last_outage"], Value::Null);
}
