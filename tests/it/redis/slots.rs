//! Slots on a real Redis: the known answers on a server and on the primaries of a cluster, all or nothing over two
//! nodes, and values that are no slots.

use engine::algorithm::{FixedWindow, Kernel, Slots};
use engine::{Charge, Charges, Charging, Cost, FailurePolicy, Grant, Role, Store, Verdict};
use fastrand::Rng;
use tokio::runtime::Runtime;

use super::DAY_US;
use super::cluster::{cluster_store, keys_on_each_primary};
use super::settle::Timed;
use crate::settle::T0;
use crate::slots::check_known_answers;
use crate::support::redis::Redis;
use crate::support::redis::cluster::{Cluster, run};

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
    for value in 0..9 {
        check_known_answers(&value.to_string(), |charges, now_us| {
            let primary = cluster.primary_of(charges.keys().next().expect("a counter"));
            used[primary] = true;
            primaries[primary].decide(charges, now_us)
        });
    }
    assert_eq!(used, [true; 3]);
}

const SLOTS: u64 = 3;
const UNITS: u64 = 8;

fn push(charges: &mut Charges, key: &str, kernel: Kernel, cost: Cost) {
    let (charging, role) = match cost.is_refund() {
        true => (Charging::Postpaid, Role::Shadow),
        false => (Charging::Prepaid, Role::Enforce),
    };
    let charge = Charge { kernel, cost, charging, role, on_store_failure: FailurePolicy::Error };
    charges.push(charge, |text| text.push_str(key));
}

fn slots() -> Kernel {
    Kernel::Slots(Slots::new(SLOTS, DAY_US))
}

/// One caller asks for a slot on one node and for units of a window on another, and gives some back: either both are
/// taken or none.
#[test]
fn a_request_over_two_nodes_takes_a_slot_and_units_or_neither() {
    let (cluster, runtime) = (Cluster::start(), Runtime::new().expect("a runtime"));
    let store = runtime.block_on(async { cluster_store(&cluster) });
    let [first, second, _] = keys_on_each_primary(&cluster);
    let (slot_key, window_key) = (format!("{first}#co"), format!("{second}#fw:{DAY_US}"));
    let window = Kernel::FixedWindow(FixedWindow::new(UNITS, 366 * DAY_US));
    let mut random = Rng::with_seed(3);
    let mut open: Vec<(u64, u64)> = Vec::new();
    let mut denied = [0; 2];
    for id in 1..=10_000 {
        let mut charges = Charges::default();
        let is_release = !open.is_empty() && random.u8(..5) < 2;
        if is_release {
            let (id, units) = open.swap_remove(random.usize(..open.len()));
            push(&mut charges, &slot_key, slots(), Cost::undo(1, Grant { id, limit: None }));
            let outcomes = runtime.block_on(store.decide(&charges)).expect("an answer");
            assert_eq!(outcomes.by_charge[0].report.remaining, SLOTS - open.len() as u64);
            charges = Charges::default();
            push(&mut charges, &window_key, window, Cost::refund(units));
            runtime.block_on(store.decide(&charges)).expect("an answer");
            continue;
        }
        let units = random.u64(1..=4);
        let used: u64 = open.iter().map(|(_, units)| units).sum();
        push(&mut charges, &slot_key, slots(), Cost::slot(id));
        push(&mut charges, &window_key, window, Cost::take(units));
        let outcomes = runtime.block_on(store.decide(&charges)).expect("an answer");
        let over = [open.len() as u64 == SLOTS, used + units > UNITS];
        if over == [false; 2] {
            open.push((id, units));
        }
        denied = [denied[0] + u64::from(over[0]), denied[1] + u64::from(over[1] && !over[0])];
        let used: u64 = open.iter().map(|(_, units)| units).sum();
        let seen: Vec<_> = outcomes.by_charge.iter().map(|o| (o.verdict, o.report.remaining)).collect();
        let verdict = |is_over| if is_over { Verdict::Over } else { Verdict::Fits };
        let left = [SLOTS - open.len() as u64, UNITS - used];
        assert_eq!(seen, [(verdict(over[0]), left[0]), (verdict(over[1]), left[1])], "request {id}");
    }
    assert!(denied.iter().all(|count| *count > 100), "{denied:?}");
}

#[test]
fn a_value_of_another_type_counts_as_no_slots_and_the_next_take_replaces_it() {
    let (redis, runtime) = (Redis::start(), Runtime::new().expect("a runtime"));
    let mut server = Timed::connect(&runtime, &redis.url());
    let single = |cost| {
        let mut charges = Charges::default();
        push(&mut charges, "k", slots(), cost);
        charges
    };
    let mut several = single(Cost::slot(7));
    push(&mut several, "l", slots(), Cost::slot(7));
    let kinds: [&[&str]; 2] = [&["SET", "it:k", "x"], &["RPUSH", "it:k", "x"]];
    for words in kinds {
        for charges in [single(Cost::slot(7)), several.clone()] {
            run::<()>(&redis, &["DEL", "it:k", "it:l"]);
            run::<()>(&redis, words);
            let left = |outcomes: engine::Outcomes| outcomes.by_charge[0].report.remaining;
            assert_eq!(left(server.decide(&single(Cost::PEEK), T0)), SLOTS);
            assert_eq!(left(server.decide(&charges, T0)), SLOTS - 1);
            assert_eq!(run::<String>(&redis, &["TYPE", "it:k"]), "zset");
        }
    }
}

#[test]
fn a_counter_is_a_set_of_ids_with_their_ends_and_expires_with_the_last() {
    let (redis, runtime) = (Redis::start(), Runtime::new().expect("a runtime"));
    let mut server = Timed::connect(&runtime, &redis.url());
    let mut charges = Charges::default();
    push(&mut charges, "k", slots(), Cost::slot(1));
    server.decide(&charges, T0);
    let stored = run::<Vec<String>>(&redis, &["ZRANGE", "it:k", "0", "-1", "WITHSCORES"]);
    assert_eq!(stored, ["1".to_owned(), (T0 + DAY_US).to_string()]);
    let ttl_ms = run::<u64>(&redis, &["PTTL", "it:k"]);
    // Counters of a replay are kept for another hour.
    let expected = DAY_US / 1_000 + 3_600_000;
    assert!((expected - 10_000..=expected).contains(&ttl_ms), "{ttl_ms}");
}

#[tokio::test]
async fn operators_see_and_release_open_slots() {
    crate::cli::slots::check_in_redis().await;
}
