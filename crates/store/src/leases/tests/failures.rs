//! What becomes of units set aside for requests that the store below does not answer, or denies from its cache.

use std::sync::atomic::{AtomicBool, Ordering};

use engine::algorithm::{FixedWindow, Gcra};
use engine::{Pacing, Verdict};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::deny_cache::{DenyCache, DenyCacheOptions, DenyCached};

const T0: u64 = 1_700_000_000_000_000;

/// Memory that fails while a flag is set.
#[derive(Debug)]
struct Flaky {
    memory: Memory,
    fails: AtomicBool,
}

impl Store for Flaky {
    async fn decide(&self, charges: &Charges) -> Result<Outcomes, StoreError> {
        if self.fails.load(Ordering::Relaxed) {
            Err(StoreError::Timeout)
        } else {
            self.memory.decide(charges).await
        }
    }
}

fn window(limit: u64) -> Kernel {
    Kernel::FixedWindow(FixedWindow::new(limit, 60_000_000))
}

fn hit(key: &'static str, kernel: Kernel, charging: Charging) -> Hit {
    Hit { key, kernel, cost: Cost::take(1), charging, role: Role::Enforce }
}

/// A layer over `below`, with units of the key `{a}`.
fn holding<S: Store>(
    below: S,
    memory: &Memory,
    clock: &TestClock,
    (kernel, units): (Kernel, u64),
) -> (Leased<S, TestClock>, Arc<Leases>) {
    let leases = exact();
    let (layer, _lender) = Leased::new(below, Arc::clone(&leases), Arc::clone(clock));
    let snapshot = peek(memory, "{a}", kernel).decided_by.snapshot().expect("a counter");
    let ask = leases.ask_for(("{a}", kernel, units), snapshot, clock.now_us());
    now(lender::run(memory, &leases, clock, ask));
    assert_eq!(leases.held("{a}"), units);
    (layer, leases)
}

#[test]
fn held_units_decide_while_the_store_fails_and_go_back_if_the_request_does_not_proceed() {
    let clock = Arc::new(ManualClock::at(T0));
    let memory = memory(&clock);
    let flaky = Flaky { memory: Arc::clone(&memory), fails: AtomicBool::new(true) };
    let (layer, leases) = holding(flaky, &memory, &clock, (window(100), 10));
    let [a, b] = ["{a}", "{b}"].map(|key| hit(key, window(100), Charging::Prepaid));
    let alone = now(layer.decide(&request(&[a]))).expect("the units of the process decide");
    assert!(matches!(alone.by_charge[0].decided_by, DecidedBy::Lease(_)));
    assert_eq!((leases.held("{a}"), all_units(&leases.stats()).spent), (9, 1));
    let both = || now(layer.decide(&request(&[b, a]))).expect_err("b has no answer");
    for is_kept in [false, true] {
        let error = both();
        assert_eq!(leases.held("{a}"), 8, "set aside");
        assert_eq!(error.outcome(0), Err(&StoreError::Timeout));
        assert_eq!(error.outcome(1).expect("decided").verdict, Verdict::Fits);
        let StoreError::Partial(partial) = &error else { panic!("{error:?}") };
        if is_kept {
            partial.keep();
        }
        drop(error);
        assert_eq!(leases.held("{a}"), if is_kept { 8 } else { 9 });
    }
    // A postpaid charge is recorded whatever the answer.
    let postpaid = hit("{a}", window(100), Charging::Postpaid);
    drop(now(layer.decide(&request(&[b, postpaid]))));
    let stats = leases.stats();
    assert_eq!((stats.held, all_units(&stats).spent, all_units(&stats).granted), (7, 3, 10));
}

#[test]
fn held_units_come_before_a_denial_in_the_cache() {
    let clock = Arc::new(ManualClock::at(T0));
    let memory = memory(&clock);
    let options = DenyCacheOptions { max_age: Duration::from_secs(60), max_keys: 10, store_reserves: false };
    let cache = Arc::new(DenyCache::new(options));
    let denied = DenyCached::new(Arc::clone(&memory), Some((Arc::clone(&cache), Arc::clone(&clock))));
    let (layer, leases) = holding(denied, &memory, &clock, (window(100), 10));
    let mut large = hit("{a}", window(100), Charging::Prepaid);
    large.cost = Cost::take(95);
    // Another process exhausts the limit.
    let rest = Hit { cost: Cost::take(90), ..large };
    assert_eq!(now(memory.decide(&request(&[rest]))).expect("memory").by_charge[0].verdict, Verdict::Fits);
    for _ in 0..2 {
        let outcome = now(layer.decide(&request(&[large]))).expect("an answer").by_charge[0];
        assert_eq!(
            (outcome.verdict, outcome.report.remaining),
            (Verdict::Over, 10),
            "only own units are left"
        );
    }
    assert_eq!((cache.stats().hits, leases.held("{a}")), (1, 10));
    let small = hit("{a}", window(100), Charging::Prepaid);
    let fits = |_: &u64| {
        now(layer.decide(&request(&[small]))).expect("an answer").by_charge[0].verdict == Verdict::Fits
    };
    assert_eq!((0..20).filter(fits).count(), 10);
}

/// The story of `units_that_are_set_aside_keep_their_places` in the engine's laws.
#[test]
fn units_that_come_back_do_not_make_up_for_ended_places() {
    let clock = Arc::new(ManualClock::at(T0));
    let memory = memory(&clock);
    let flaky = Flaky { memory: Arc::clone(&memory), fails: AtomicBool::new(true) };
    let bucket = Kernel::Gcra(Gcra::new(10, 1_000_000, 20, Pacing::Meter));
    let (layer, leases) = holding(flaky, &memory, &clock, (bucket, 20));
    let one = hit("{a}", bucket, Charging::Prepaid);
    let five = Hit { cost: Cost::take(5), ..one };
    let b = hit("{b}", window(100), Charging::Prepaid);
    let waiting = now(layer.decide(&request(&[five, b]))).expect_err("b has no answer");
    clock.set(T0 + 600_000);
    for _ in 0..4 {
        assert_eq!(now(layer.decide(&request(&[one]))).expect("held").by_charge[0].verdict, Verdict::Fits);
    }
    clock.set(T0 + 800_000);
    drop(waiting);
    let stats = leases.stats();
    assert_eq!((stats.held, stats.gcra.spent, stats.gcra.lapsed), (10, 4, 6), "12 places are left");
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_never_asks_ends_too() {
    let clock = Arc::new(ManualClock::at(T0));
    let Process { layer, lender, leases, .. } = Process::new(&memory(&clock), &clock);
    let stop = CancellationToken::new();
    let calls = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let one = request(&[hit("{a}", window(1_000), Charging::Prepaid)]);
        for _ in 0..4 {
            layer.decide(&one).await.expect("memory does not fail");
        }
        assert_eq!(leases.stats().keys, 1);
        clock.set(T0 + 10_000_000);
        tokio::time::sleep(Duration::from_secs(1)).await;
        let stats = leases.stats();
        assert_eq!((stats.keys, stats.asks_granted), (0, 0));
        stop.cancel();
    };
    tokio::join!(lender.run(stop.clone()), calls);
}

#[test]
fn a_lease_ends_once_calls_are_rare() {
    let bucket = Kernel::Gcra(Gcra::new(1_000, 1_000_000, 1_000, Pacing::Meter));
    for (kernel, usual_us, rare_us) in [(window(1_000), 100_000, 700_000), (bucket, 5_000, 50_000)] {
        check_the_end(kernel, usual_us, rare_us);
    }
}

/// With these gaps between calls.
fn check_the_end(kernel: Kernel, usual_us: u64, rare_us: u64) {
    let clock = Arc::new(ManualClock::at(T0));
    let memory = memory(&clock);
    let mut process = Process::new(&memory, &clock);
    let one = hit("{a}", kernel, Charging::Prepaid);
    let mut call = |count: u64, gap_us: u64| {
        for _ in 0..count {
            process.sweep();
            process.decide(&[one]);
            process.send_asks();
            clock.set(clock.now_us() + gap_us);
        }
        process.sweep();
        let stats = process.leases.stats();
        (stats.keys, stats.decisions)
    };
    assert_eq!(call(3, usual_us), (0, 0), "three calls within the horizon");
    assert_eq!(call(1, usual_us), (1, 0), "the fourth");
    let (keys, decisions) = call(80, usual_us);
    assert_eq!(keys, 1);
    assert!(decisions > 20, "{decisions} of 80");
    // Such gaps are usual, so the key is not idle.
    let (keys, decisions) = call(40, rare_us);
    assert_eq!(keys, 0);
    assert_eq!(call(20, rare_us), (0, decisions), "cold");
}
