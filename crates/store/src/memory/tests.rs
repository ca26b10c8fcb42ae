//! Whole requests on the memory store: all or nothing, exact under concurrency, bounded.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use engine::algorithm::{Blocked, FixedWindow, Gcra, IntervalBucket, Kernel, SlidingLog, SlidingWindow};
use engine::{Charge, Charges, Charging, Cost, FailurePolicy, Outcomes, Pacing, Reset, Role, Verdict};
use futures_util::FutureExt;

use super::{MemoryOptions, MemoryStore};
use base::clock::{Clock, ManualClock};

const T0: u64 = 1_700_000_040_000_000;

fn window(limit: u64) -> Kernel {
    Kernel::FixedWindow(FixedWindow::new(limit, 60_000_000))
}

fn charge(kernel: Kernel, units: u64) -> Charge {
    Charge {
        kernel,
        cost: Cost::take(units),
        charging: Charging::Prepaid,
        role: Role::Enforce,
        on_store_failure: FailurePolicy::Error,
    }
}

fn request(charges: &[(&str, Charge)]) -> Charges {
    let mut all = Charges::default();
    for (key, charge) in charges {
        all.push(charge.clone(), |keys| keys.push_str(key));
    }
    all
}

fn store(max_keys: usize) -> MemoryStore<ManualClock> {
    MemoryStore::new(MemoryOptions { max_keys, grace_us: 0 }, ManualClock::at(T0))
}

fn remaining(outcomes: &Outcomes) -> Vec<u64> {
    outcomes.by_charge.iter().map(|outcome| outcome.report.remaining).collect()
}

#[test]
fn verdicts_change_nothing() {
    let store = store(100);
    let two = request(&[("a", charge(window(3), 2))]);
    assert_eq!(store.verdicts_at(&two, T0)[..], [Verdict::Fits]);
    assert_eq!(remaining(&store.decide_at(&two, T0)), [1]);
    assert_eq!(store.verdicts_at(&two, T0)[..], [Verdict::Over]);
    assert_eq!(store.verdicts_at(&two, T0 + 60_000_000)[..], [Verdict::Fits]);
    assert_eq!(store.stats().keys, 1);
}

#[test]
fn costs_on_one_counter_are_added_up() {
    let store = store(100);
    let twice = request(&[("k", charge(window(5), 3)), ("k", charge(window(5), 3))]);
    assert_eq!(twice.len(), 1);
    assert_eq!(store.decide_at(&twice, T0).by_charge[0].verdict, Verdict::Over);
}

#[test]
fn blocked_values_leave_the_store_as_it_was() {
    let store = store(256);
    let login = request(&[("login", charge(window(3), 1))]);
    for _ in 0..4 {
        let _ = store.decide_at(&login, T0);
    }
    for n in 0..10_000 {
        let postpaid = Charge {
            charging: Charging::Postpaid,
            ..charge(Kernel::Blocked(Blocked::new(86_400_000_000)), 1)
        };
        let blocked = store.decide_at(&request(&[(&format!("path{n}"), postpaid)]), T0);
        assert_eq!(blocked.by_charge[0].verdict, Verdict::Over);
    }
    assert_eq!((store.stats().keys, store.stats().evictions), (1, 0));
    assert_eq!(store.decide_at(&login, T0).by_charge[0].verdict, Verdict::Over);
}

#[test]
fn refunds_leave_no_key_when_nothing_is_used() {
    const YEAR_US: u64 = 365 * 86_400_000_000;
    let yearly = [
        Kernel::FixedWindow(FixedWindow::new(5, YEAR_US)),
        Kernel::SlidingWindow(SlidingWindow::new(5, YEAR_US)),
        Kernel::SlidingLog(SlidingLog::new(5, YEAR_US)),
        Kernel::Gcra(Gcra::new(5, YEAR_US, 5, Pacing::Meter)),
        Kernel::IntervalBucket(IntervalBucket::new(5, 5, YEAR_US)),
    ];
    for kernel in yearly {
        let store = store(10_000);
        let decide = |keys: &[String], cost: Cost| {
            let mut all = Charges::default();
            for key in keys {
                all.push(Charge { cost, ..charge(kernel, 1) }, |text| text.push_str(key));
            }
            remaining(&store.decide_at(&all, T0))
        };
        let unused: Vec<_> = (0..50).map(|n| format!("unused{n}")).collect();
        let used: Vec<_> = (0..50).map(|n| format!("used{n}")).collect();
        assert_eq!(decide(&unused, Cost::refund(1)), [5; 50]);
        assert_eq!(store.stats().keys, 0, "{kernel:?}");
        assert_eq!(decide(&used, Cost::take(2)), [3; 50]);
        assert_eq!(decide(&["kept".to_owned()], Cost::take(2)), [3]);
        assert_eq!(decide(&used, Cost::refund(3)), [5; 50]);
        assert_eq!(store.stats().keys, 1, "{kernel:?}");
        assert_eq!(decide(&["kept".to_owned()], Cost::PEEK), [3]);
    }
}

#[test]
fn expired_keys_are_removed() {
    let store = store(1_000_000);
    for n in 0..1_000 {
        let _ = store.decide_at(&request(&[(&format!("k{n}"), charge(window(5), 1))]), T0);
    }
    assert_eq!(store.stats().keys, 1_000);
    store.clock.set(T0 + 60_000_000);
    for _ in 0..64 {
        store.sweep();
    }
    assert_eq!(store.stats().keys, 0);
}

#[test]
fn a_full_store_evicts_the_counter_that_will_be_unused_first() {
    let store = store(64);
    let gcra = Kernel::Gcra(Gcra::new(100, 60_000_000, 100, Pacing::Meter));
    for n in 0..8 {
        let _ = store.decide_at(&request(&[(&format!("heavy{n}"), charge(gcra, 90))]), T0);
    }
    for n in 0..5_000 {
        let _ = store.decide_at(&request(&[(&format!("light{n}"), charge(gcra, 1))]), T0);
        assert!(store.stats().keys <= 64);
    }
    assert_eq!(store.stats().evictions, 5_008 - 64);
    for n in 0..8 {
        let peek = request(&[(&format!("heavy{n}"), charge(gcra, 0))]);
        assert_eq!(remaining(&store.decide_at(&peek, T0)), [10], "heavy{n} was evicted");
    }
}

#[test]
fn a_reproducible_store_evicts_the_same_counters_in_every_run() {
    let keys: Vec<String> = (0..5_000).map(|n| format!("user{n}")).collect();
    let kept = || {
        let options = MemoryOptions { max_keys: 1_000, grace_us: 0 };
        let store = MemoryStore::reproducible(options, ManualClock::at(T0));
        let left = |key: &String| remaining(&store.decide_at(&request(&[(key, charge(window(3), 1))]), T0));
        let left: Vec<_> = keys.iter().chain(&keys).map(left).collect();
        assert_eq!(store.stats().keys, 1_000);
        left
    };
    assert_eq!(kept(), kept());
}

#[test]
fn a_flood_of_values_of_a_long_limit_does_not_lift_a_used_up_short_limit() {
    const YEAR_US: u64 = 365 * 86_400_000_000;
    let long = Kernel::FixedWindow(FixedWindow::new(100, YEAR_US));
    for (name, units) in [("hardly used", 1), ("used up", 100)] {
        let store = store(512);
        let flood = |values: std::ops::Range<u32>, now_us| {
            for n in values {
                let key = format!("{{site|value=v{n}}}#long");
                let _ = store.decide_at(&request(&[(&key, charge(long, units))]), now_us);
            }
        };
        let login = request(&[("{site|login=ann}#short", charge(window(3), 1))]);
        for _ in 0..3 {
            let _ = store.decide_at(&login, T0);
        }
        flood(0..5_000, T0);
        assert_eq!(store.stats().keys, 512, "{name}");
        let verdict = store.decide_at(&login, T0).by_charge[0].verdict;
        assert_eq!(verdict, Verdict::Over, "{name}");
        // Once the window has passed, nothing keeps the counter.
        flood(5_000..6_000, T0 + 60_000_000);
        let existed = store.reset(&login).now_or_never().expect("memory does not wait");
        assert_eq!(existed, Ok(vec![false]), "{name}");
    }
}

#[test]
fn a_long_log_evicts_nothing_while_the_store_has_room() {
    let store = store(20_000);
    for n in 0..600 {
        let _ = store.decide_at(&request(&[(&format!("user{n}"), charge(window(3), 1))]), T0);
    }
    let log = Kernel::SlidingLog(SlidingLog::new(10_000, 60_000_000));
    for n in 0..9_000 {
        let _ = store.decide_at(&request(&[("log", charge(log, 1))]), T0 + n);
    }
    assert_eq!((store.stats().keys, store.stats().evictions), (601, 0));
}

#[test]
fn long_logs_count_as_many_keys() {
    let store = store(64);
    let log = Kernel::SlidingLog(SlidingLog::new(10_000, 60_000_000));
    let hit = |key: &str, at: u64| store.decide_at(&request(&[(key, charge(log, 1))]), at);
    for n in 0..64 {
        let _ = hit(&format!("k{n}"), T0);
    }
    assert_eq!(store.stats().keys, 64);
    // This counter alone exceeds the bound of the store. It stays, and every other counter is evicted.
    for n in 1..=2_000 {
        assert_eq!(remaining(&hit("long", T0 + n)), [10_000 - n]);
    }
    assert_eq!(store.stats().keys, 1);
    store.clock.set(T0 + 120_000_000);
    store.sweep();
    assert_eq!(store.stats().keys, 0);
    for n in 0..64 {
        let _ = store.decide_at(&request(&[(&format!("k{n}"), charge(log, 1))]), T0 + 120_000_000);
    }
    assert_eq!(store.stats().keys, 64, "a removed counter weighs nothing");
}

#[test]
fn threads_admit_exactly_the_limit() {
    let kernels = [
        window(100),
        Kernel::SlidingLog(SlidingLog::new(100, 60_000_000)),
        Kernel::Gcra(Gcra::new(100, 60_000_000, 100, Pacing::Meter)),
    ];
    for kernel in kernels {
        let store = Arc::new(store(100));
        let admitted = Arc::new(AtomicU64::new(0));
        let threads: Vec<_> = (0..8)
            .map(|thread| {
                let (store, admitted) = (Arc::clone(&store), Arc::clone(&admitted));
                std::thread::spawn(move || {
                    // Half of the threads name the two keys in the other order: the order of locks must not depend on
                    // it.
                    let (one, two) = if thread % 2 == 0 { ("k", "l") } else { ("l", "k") };
                    let both = request(&[(one, charge(kernel, 1)), (two, charge(kernel, 1))]);
                    for _ in 0..250 {
                        let outcomes = store.decide_at(&both, store.clock.now_us());
                        let fits = outcomes.by_charge.iter().all(|outcome| outcome.verdict == Verdict::Fits);
                        admitted.fetch_add(u64::from(fits), Ordering::Relaxed);
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().expect("no thread panics");
        }
        assert_eq!(admitted.load(Ordering::Relaxed), 100);
    }
}

const DAY_US: u64 = 86_400_000_000;
const USERS: u32 = 200;

fn gcra(limit: u64, period_us: u64) -> Kernel {
    Kernel::Gcra(Gcra::new(limit, period_us, limit, Pacing::Meter))
}

fn fixed(limit: u64, period_us: u64) -> Kernel {
    Kernel::FixedWindow(FixedWindow::new(limit, period_us))
}

/// Decides a hit on the counter of this value, of the limit with the key `name`.
fn ask(store: &MemoryStore<ManualClock>, (name, kernel): (&str, Kernel), value: u32, units: u64) -> Verdict {
    let key = format!("{{site|{name}=value{value}}}#limit");
    let outcomes = store.decide_at(&request(&[(&key, charge(kernel, units))]), T0);
    outcomes.by_charge[0].verdict
}

/// Requests of each value in a flood.
struct Flood {
    name: &'static str,
    /// Limit per minute.
    limit: u64,
    units: u64,
    times: u32,
    /// Number of limits over which the values are spread.
    limits: u32,
    /// Counters of another limit, created between two of the users' counters before the flood.
    between: u32,
}

const ONE_HIT: Flood = Flood { name: "one hit of 1", limit: 1, units: 1, times: 1, limits: 1, between: 0 };
const FLOODS: [Flood; 6] = [
    ONE_HIT,
    Flood { name: "one hit of 1, users apart", between: 40, ..ONE_HIT },
    Flood { name: "five units of 5", limit: 5, units: 5, ..ONE_HIT },
    Flood { name: "a fifth", limit: 5, ..ONE_HIT },
    Flood { name: "asked twice", times: 2, ..ONE_HIT },
    Flood { name: "two limits", limits: 2, ..ONE_HIT },
];

impl Flood {
    /// 60,000 different values.
    fn run(&self, store: &MemoryStore<ManualClock>, kernel: fn(u64, u64) -> Kernel) {
        let names = ["address", "session"];
        for value in 0..60_000 {
            let name = names[(value % self.limits) as usize];
            for _ in 0..self.times {
                let _ = ask(store, (name, kernel(self.limit, 60_000_000)), value, self.units);
            }
        }
    }
}

#[test]
fn a_flood_of_values_lifts_no_used_up_limit() {
    for (algorithm, kernel) in [("gcra", gcra as fn(u64, u64) -> Kernel), ("fixed_window", fixed)] {
        for flood in &FLOODS {
            let (store, login) = (store(20_000), ("login", kernel(3, DAY_US)));
            for user in 0..USERS {
                let _ = ask(&store, login, user, 3);
                for other in 0..flood.between {
                    let _ = ask(&store, ("page", kernel(100, 60_000_000)), user * flood.between + other, 1);
                }
            }
            flood.run(&store, kernel);
            assert!(store.stats().evictions > 40_000, "{}", store.stats().evictions);
            let admitted = (0..USERS).filter(|user| ask(&store, login, *user, 1) == Verdict::Fits).count();
            assert_eq!(admitted, 0, "{algorithm}, {}", flood.name);
        }
    }
}

/// Otherwise a user's hits would never add up during a flood: each hit would be the first.
#[test]
fn a_flood_of_used_up_limits_leaves_what_users_have_used() {
    for kernel in [gcra as fn(u64, u64) -> Kernel, fixed] {
        let (store, login) = (store(20_000), ("login", kernel(3, DAY_US)));
        for user in 0..USERS {
            let _ = ask(&store, login, user, 1);
        }
        ONE_HIT.run(&store, kernel);
        let admitted = (0..USERS).filter(|user| ask(&store, login, *user, 3) == Verdict::Fits).count();
        assert_eq!(admitted, 0, "{:?}", login.1);
    }
}
