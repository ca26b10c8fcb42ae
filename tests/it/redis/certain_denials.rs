//! Requests that a limit denies whatever its counter: a limit of 0, or a cost above the largest. Over several servers
//! or slots they take nothing from the other limits, not even for a moment.

use engine::algorithm::{Blocked, FixedWindow, Kernel};
use engine::{Charge, Charges, Charging, Cost, FailurePolicy, Role, Store, Verdict};
use futures_util::future::join_all;

use crate::redis::cluster::{cluster_store, keys_on_each_primary};
use crate::redis::per_second::{slow_bucket, two_servers};
use crate::redis::{add_charge, decide_one, kernels, patient_options, remaining};
use crate::support::redis::Redis;
use crate::support::redis::cluster::Cluster;
use crate::support::wait;

/// Requests of the attackers that are under way at the same time.
const AT_ONCE: usize = 200;

fn limit_of_0() -> (Kernel, Cost) {
    (Kernel::Blocked(Blocked::new(1_000_000)), Cost::take(1))
}

fn cost_above_the_limit() -> (Kernel, Cost) {
    (Kernel::FixedWindow(FixedWindow::new(5, 1_000_000)), Cost::take(6))
}

fn add(charges: &mut Charges, (kernel, cost): (Kernel, Cost), key: &str, role: Role) {
    let on_store_failure = FailurePolicy::default();
    let charge = Charge { kernel, cost, charging: Charging::Prepaid, role, on_store_failure };
    charges.push(charge, |text| text.push_str(key));
}

/// How many script calls the server has had.
fn script_calls(redis: &Redis) -> u64 {
    let stats: String = redis.run(&["INFO", "commandstats"]).expect("INFO");
    let calls = stats.lines().filter_map(|line| line.strip_prefix("cmdstat_eval"));
    let calls = calls.filter_map(|line| line.split_once(":calls=")?.1.split(',').next()?.parse::<u64>().ok());
    calls.sum()
}

#[tokio::test]
async fn a_request_that_never_fits_holds_no_unit_while_a_server_is_slow() {
    let (main, other) = (Redis::start(), Redis::start());
    let store = two_servers(patient_options(&main.url()), &other);
    store.probe().await.expect("both decide");
    let cases = [
        (limit_of_0(), Role::Enforce, 5),
        (cost_above_the_limit(), Role::Enforce, 5),
        (cost_above_the_limit(), Role::Quota(0), 5),
        // A shadow rule denies nothing: the request is admitted.
        (limit_of_0(), Role::IdleQuota, 4),
    ];
    for (name, kernel) in kernels(5) {
        for (case, (denying, role, expected)) in cases.into_iter().enumerate() {
            let shared = format!("{name} {case}");
            let mut charges = Charges::default();
            add_charge(&mut charges, slow_bucket(), "second", Cost::take(1));
            add_charge(&mut charges, kernel, &shared, Cost::take(1));
            add(&mut charges, denying, "denying", role);
            let before = script_calls(&main);
            other.signal("STOP");
            let (outcomes, held) = tokio::join!(store.decide(&charges), async {
                wait::until_async(wait::PATIENCE, async || (script_calls(&main) > before).then_some(()))
                    .await
                    .expect("the main server has decided its part");
                let left = remaining(&store, kernel, &shared).await;
                other.signal("CONT");
                5 - left
            });
            assert_eq!(outcomes.expect("both decide").by_charge[2].verdict, Verdict::Over);
            assert_eq!(5 - held, expected, "{shared}: while the other server is slow");
            assert_eq!(remaining(&store, kernel, &shared).await, expected, "{shared}");
        }
    }
}

#[tokio::test]
async fn attackers_that_are_denied_for_certain_take_nothing_from_a_limit_that_they_share() {
    let cluster = Cluster::start();
    let store = cluster_store(&cluster);
    let [first, second, third] = keys_on_each_primary(&cluster);
    let mut admitted = Vec::new();
    for (name, kernel) in kernels(100) {
        for (attack, denying) in [("limit of 0", limit_of_0()), ("cost", cost_above_the_limit())] {
            let shared = format!("{first}{name} {attack}");
            let attacks: Vec<Charges> = (0..AT_ONCE)
                .map(|n| {
                    let mut charges = Charges::default();
                    add_charge(&mut charges, kernels(1_000_000)[0].1, &second, Cost::take(1));
                    add_charge(&mut charges, kernel, &shared, Cost::take(1));
                    add(&mut charges, denying, &format!("{third}{n}"), Role::Enforce);
                    charges
                })
                .collect();
            let attackers = async {
                loop {
                    for answer in join_all(attacks.iter().map(|charges| store.decide(charges))).await {
                        let outcomes = answer.expect("the cluster decides");
                        assert_eq!(outcomes.by_charge[2].verdict, Verdict::Over);
                    }
                }
            };
            let honest = async {
                let mut admitted = 0;
                for _ in 0..100 {
                    let one = decide_one(&store, kernel, &shared, Cost::take(1)).await.expect("a decision");
                    admitted += u32::from(one.verdict == Verdict::Fits);
                }
                admitted
            };
            tokio::select! {
                () = attackers => {}
                of_100 = honest => admitted.push((name, attack, of_100)),
            }
        }
    }
    assert!(admitted.iter().all(|(_, _, of_100)| *of_100 == 100), "of 100 honest requests: {admitted:?}");
}
