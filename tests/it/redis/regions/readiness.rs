//! Home is not needed to be ready, so that a region can grow while home is away.

use ::base::clock::{Clock as _, SystemClock};

use super::*;

fn readyz(region: &Region) -> String {
    http::get(region.service.http_port(), "/readyz", &[]).expect("an answer").body
}

#[test]
fn a_region_becomes_ready_without_home_and_uses_it_once_it_is_back() {
    let mut home = Redis::start();
    let address = home.address();
    home.stop();
    let region = Region::start_with(address, &rules(FAR), Plan::wait_for_livez);
    wait::expect("the reason", || {
        readyz(&region).starts_with("not ready: the store has not decided yet (home: ")
    });
    wait::expect("readiness", || readyz(&region) == "ready\n");
    under_load(&[&region], || {
        region.expect_denied();
        assert_eq!(region.admitted(), 0, "the rule says `on_store_failure: deny`");
        home.restart();
        region.expect_admitted(100);
    });
}

#[test]
fn a_region_stays_ready_while_home_is_away_whatever_the_setting_says_of_outages() {
    let home = Redis::start();
    let unready = |plan: Plan| plan.set("store.redis.ready_in_outage", false);
    let region = Region::start_with(home.address(), &rules(FAR), unready);
    under_load(&[&region], || {
        region.expect_admitted(100);
        region.to_home.refuse();
        region.to_home.cut();
        region.expect_denied();
        let open = "ratelimitd_redis_home_breakers_open ";
        wait::expect("open breakers", || region.metric(open) > 0);
        // An outage is reported after two looks at the breakers, one per second.
        let end_us = SystemClock.now_us() + 3_000_000;
        wait::expect("3 s", || {
            assert_eq!(readyz(&region), "ready\n");
            SystemClock.now_us() > end_us
        });
    });
}

#[test]
fn a_region_that_home_rejects_does_not_become_ready() {
    let home = Redis::start_with(&["--requirepass", "secret"]);
    let region = Region::start_with(home.address(), &rules(FAR), Plan::wait_for_livez);
    let reason = "the store rejects this process (credentials, permissions or database)";
    wait::expect("the reason", || readyz(&region).contains(reason));
}
