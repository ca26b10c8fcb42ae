//! The page of the console with Redis: an outage, and exceptions for all instances. Needs Chromium, too.

use serde_json::Value;

use crate::console::browser::{click, has_text, open, submit};
use crate::console::{ask, state_with};
use crate::support::chromium::Chromium;
use crate::support::process::Plan;
use crate::support::redis::Redis;
use crate::support::wait;

const RULES: &str = "
domain: edge
descriptors:
  - { key: user, rate_limit: { unit: day, requests_per_unit: 1000000, on_store_failure: allow } }
";

const ONE_A_DAY: &str = "
domain: edge
descriptors:
  - { key: user, rate_limit: { unit: day, requests_per_unit: 1 } }
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

#[test]
fn a_key_is_blocked_on_every_instance_and_a_redis_that_is_away_is_told() {
    let mut redis = Redis::start();
    let plan = || Plan::new(ONE_A_DAY).redis(&redis.url()).set("store.redis.timeout", "50ms");
    let (first, second) = (plan().start(), plan().start());
    for user in ["mallory@example.org", "mallory@example.org", "trudy@example.org", "trudy@example.org"] {
        ask(&first, "edge", &[("user", user)]);
    }
    let mut browser = open(&first);
    let except = |browser: &mut Chromium| {
        click(browser, "#key-table tr:has(button):not(:has(.badge)) [data-do=except]");
        click(browser, "dialog [name=go]");
    };
    except(&mut browser);
    browser.wait_until(&has_text("#key-table .badge.block", "blocked until "));
    let mut other = open(&second);
    other.wait_until(&has_text("#live-table .badge", "block"));
    assert!(!other.texts("#live-table tbody tr").remove(0).contains("@example.org"));

    redis.stop();
    except(&mut browser);
    browser.wait_until(&has_text("dialog [role=alert]", "the rows in Redis cannot be changed now"));
    browser.evaluate("document.querySelector('dialog').close()");
    assert_eq!(browser.texts("#key-table .badge.block").len(), 1, "the row in force stays");
    let has_age = |is_wanted: fn(f64) -> bool| {
        for service in [&first, &second] {
            state_with(service, "rows of this age", |state| {
                state["live"]["age_s"].as_f64().is_some_and(is_wanted)
            });
        }
    };
    has_age(|age_s| age_s > 2.5);
    redis.restart();
    // The processes give Redis the row back.
    has_age(|age_s| age_s < 2.0);
    click(&mut other, "#live-table [data-do=remove]");
    submit(&mut other, &[("reason", "it is over")]);
    browser.wait_until("!document.querySelector('#key-table .badge')");
}
