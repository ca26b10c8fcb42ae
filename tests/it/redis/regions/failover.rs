//! Sentinels replace the primary of home while regions hold its units.

use super::*;
use crate::support::redis::sentinel::{MASTER, Monitored, SENTINEL_PASSWORD};

/// Grows by at least what home charges to the hot key: borrowed units, and admitted calls, some of which home decided.
/// What home got back is not subtracted, since the replica may have heard of it or not.
fn charged(regions: &[&Region]) -> u64 {
    let borrowed = "ratelimitd_lease_units_total{event=\"granted\",place=\"window\"} ";
    regions.iter().map(|region| region.metric(borrowed) + region.admitted()).sum()
}

/// The replica may lack the last charges. Units of all other charges stay within the limit.
#[test]
fn a_failover_of_home_admits_again_at_most_what_the_replica_did_not_hear() {
    const LIMIT: u64 = 8_000;
    let monitored = Monitored::start();
    let sentinels = monitored.urls();
    let address = sentinels[0].trim_start_matches("redis://").parse().expect("an address");
    let by_sentinel = |plan: Plan| {
        let plan = plan.set("store.redis.home.topology", "sentinel");
        let plan = plan.set("store.redis.home.sentinel.master", MASTER);
        plan.env("STORE__REDIS__HOME__SENTINEL__PASSWORD", SENTINEL_PASSWORD)
    };
    let [a, b] = std::array::from_fn(|_| Region::start_with(address, &rules(LIMIT), by_sentinel));
    let regions = [&a, &b];
    let lost = under_load(&regions, || {
        wait::expect("units in each region", || regions.iter().all(|region| region.held() >= 100));
        let before = charged(&regions);
        monitored.primary.signal("STOP");
        let lost = charged(&regions) - before;
        wait::expect("the sentinels to report the replica", || {
            monitored.is_reported_primary(&monitored.replica)
        });
        let calls = script_calls(&monitored.replica);
        wait::expect("calls of the new primary", || script_calls(&monitored.replica) > calls);
        regions.iter().for_each(|region| region.expect_admitted(200));
        let is_over = || {
            let before = sum(&regions);
            regions.iter().for_each(|region| region.expect_denied());
            before >= LIMIT / 2 && sum(&regions) == before
        };
        wait::expect("the limit", is_over);
        lost
    });
    let all = sum(&regions);
    println!("{all} of {LIMIT} admitted; home charged at most {lost} around its end");
    assert!(all <= LIMIT + lost, "{all} admitted, and at most {lost} forgotten");
    assert!(lost < LIMIT / 4, "{lost}: else the bound says little");
}
