//! The page of the console in an outage of Redis: needs Chromium, too.

use serde_json::Value;

use crate::console::ask;
use crate::console::browser::{has_text, open};
use crate::support::chromium::Chromium;
use crate::support::process::Plan;
use crate::support::redis::Redis;
use crate::support::wait;

const RULES: &str = "
domain: edge
descriptors:
  - { key: user, rate_limit: { unit: day, requests_per_unit: 1000000, on_store_failure: allow } }
";

#[test]
fn an_outage_is_told_in_words_and_drawn_as_a_span() {
    let mut redis = Redis::start();
    let service = Plan::new(RULES).redis(&redis.url()).set("store.redis.timeout", "50ms").start();
    let mut browser = open(&service);
    // Requests come all the time.
    let until = |browser: &mut Chromium, condition: &str| {
        let found = wait::until(wait::PATIENCE, || {
            ask(&service, "edge", &[("user", "ann")]);
            (browser.evaluate(condition) == true).then_some(())
        });
        let shown = browser.texts("main").remove(0);
        assert!(found.is_some(), "never: {condition}; the page is {shown}");
    };
    until(&mut browser, &has_text("#verdict", "requests/s, none denied."));
    until(&mut browser, &has_text("#tiles", "Redis, p99"));
    redis.stop();
    until(&mut browser, &has_text("#notices .bad", "Redis has not answered since"));
    until(&mut browser, &has_text("#notices .bad", "on_store_failure admitted"));
    until(&mut browser, &has_text("#tiles > div:last-child", "Redisunavailable since"));
    until(&mut browser, &has_text("#store .bad", "does not answer"));
    until(&mut browser, &has_text("#chart text.bad", "Redis unavailable"));
    until(&mut browser, "document.querySelectorAll('#chart .span').length === 1");
    redis.restart();
    until(&mut browser, &has_text("#store .dot", "answers"));
    until(&mut browser, &has_text("#tiles", "Redis, p99"));
    until(&mut browser, &has_text("#notices li:not(.bad, .warn)", "Redis was unavailable from"));
    until(&mut browser, "document.querySelectorAll('#chart .span').length === 1");
    assert_eq!(browser.complaints(), [&Value::Null; 0]);
}
