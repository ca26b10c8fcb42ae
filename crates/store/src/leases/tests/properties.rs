//! Properties of the layer: bounds, transparency of a single process, conservation of units, concurrency.

use engine::Pacing;
use engine::algorithm::{FixedWindow, Gcra, IntervalBucket, SlidingWindow, Verdict};

use super::*;

const SECOND_US: u64 = 1_000_000;
const KEYS: [&str; 3] = ["{a}", "{b}", "{c}"];

fn within(random: &mut fastrand::Rng, most: u64) -> u64 {
    random.u64(1..=most)
}

/// Kernels whose units can be taken ahead, with small limits.
fn kernel(kind: u64, random: &mut fastrand::Rng) -> Kernel {
    let (limit, burst, period_us) = (within(random, 40), within(random, 40), 1_000 * within(random, 400));
    match kind {
        0 => Kernel::FixedWindow(FixedWindow::new(limit, period_us)),
        1 => Kernel::SlidingWindow(SlidingWindow::new(limit, period_us)),
        2 => Kernel::Gcra(Gcra::new(limit, period_us, burst, Pacing::Meter)),
        _ => Kernel::IntervalBucket(IntervalBucket::new(burst, limit, period_us)),
    }
}

/// How much may be admitted between two instants, both included, by docs/algorithms.md.
fn bound(kernel: &Kernel, start_us: u64, end_us: u64) -> u64 {
    let passed_us = end_us - start_us;
    match kernel {
        Kernel::FixedWindow(k) => k.limit * (end_us / k.window_us - start_us / k.window_us + 1),
        Kernel::SlidingWindow(k) if passed_us < k.window_us => {
            k.limit + k.limit * (end_us % k.window_us) / k.window_us
        }
        Kernel::Gcra(k) => k.burst + passed_us * k.limit / k.period_us,
        Kernel::IntervalBucket(k) => k.capacity + k.refill * passed_us.div_ceil(k.interval_us),
        _ => u64::MAX,
    }
}

fn excess(kernel: &Kernel, spent: &[(u64, u64)]) -> u64 {
    let mut most = 0;
    for (first, &(start_us, _)) in spent.iter().enumerate() {
        let mut sum = 0;
        for &(end_us, units) in &spent[first..] {
            sum += units;
            most = most.max(sum.saturating_sub(bound(kernel, start_us, end_us)));
        }
    }
    most
}

fn is_conserved(process: &Process) -> bool {
    let stats = process.leases.stats();
    let units = all_units(&stats);
    units.granted == units.spent + units.returned + units.lapsed + stats.held
}

/// Three processes charge two limits at once or one alone, ask, lose replies, sweep, and lose all that they hold.
/// Returns the excess over the bounds, and how many requests needed no store.
fn story(kind: u64, seed: u64) -> (u64, u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let clock = Arc::new(ManualClock::at(1_700_000_000 * SECOND_US));
    let memory = memory(&clock);
    let kernels = [kernel(kind, &mut random), kernel(kind, &mut random)];
    let mut processes: [Process; 3] = std::array::from_fn(|_| Process::new(&memory, &clock));
    let mut spent: [Vec<(u64, u64)>; 2] = Default::default();
    for _ in 0..120 {
        let step_us = if random.bool() { 0 } else { random.u64(0..=kernels[0].period_us().unwrap_or(1) / 4) };
        clock.set(clock.now_us() + step_us);
        let process = &mut processes[random.usize(0..3)];
        let which = random.usize(0..2);
        let most = kernels[which].max_cost();
        match random.u64(0..12) {
            0 => process.lose_ask(KEYS[which], kernels[which], within(&mut random, most)),
            1..=2 => drop(process.ask(KEYS[which], kernels[which], within(&mut random, most))),
            3 => process.sweep(),
            4 => process.send_asks(),
            5 if random.u64(0..8) == 0 => process.leases.forget_all(),
            _ => {
                let hit = |index: usize, random: &mut fastrand::Rng| Hit {
                    key: KEYS[index],
                    kernel: kernels[index],
                    cost: Cost::take(within(random, (kernels[index].max_cost() / 6).max(1))),
                    charging: Charging::Prepaid,
                    role: Role::Enforce,
                };
                let mut hits = vec![hit(which, &mut random)];
                if random.bool() {
                    hits.push(hit(1 - which, &mut random));
                }
                let outcomes = process.decide(&hits);
                if outcomes.by_charge.iter().all(|outcome| outcome.verdict == Verdict::Fits) {
                    for hit in &hits {
                        let index = usize::from(hit.key == KEYS[1]);
                        spent[index].push((clock.now_us(), hit.cost.taken()));
                    }
                }
            }
        }
        assert!(is_conserved(process), "seed {seed}: {:?}", process.leases.stats());
    }
    let most = (0..2).map(|index| excess(&kernels[index], &spent[index])).max().unwrap_or_default();
    (most, processes.iter().map(|process| process.leases.stats().decisions).sum())
}

#[test]
fn several_processes_never_admit_more_than_the_bound() {
    for kind in 0..4 {
        let mut decisions = 0;
        for seed in 0..400 {
            let (excess, decided) = story(kind, seed);
            assert_eq!(excess, 0, "kind {kind}, seed {seed}");
            decisions += decided;
        }
        assert!(decisions > 500, "kind {kind}: only {decisions} requests used units taken ahead");
    }
}

/// A single process answers as without leases, call by call, also with shared counters, debt, checks and quotas.
#[test]
fn one_process_is_transparent_for_windows() {
    let mut decisions = 0;
    for seed in 0..400 {
        let mut random = fastrand::Rng::with_seed(seed);
        let clock = Arc::new(ManualClock::at(1_700_000_000 * SECOND_US));
        let (leased, plain) = (memory(&clock), memory(&clock));
        let mut process = Process::new(&leased, &clock);
        let of = |random: &mut fastrand::Rng| match random.bool() {
            true => Kernel::FixedWindow(FixedWindow::new(within(random, 60), SECOND_US)),
            false => Kernel::SlidingWindow(SlidingWindow::new(within(random, 60), SECOND_US)),
        };
        let kernels: [Kernel; 3] = std::array::from_fn(|_| of(&mut random));
        let chargings: [Charging; 3] =
            std::array::from_fn(|_| if random.bool() { Charging::Prepaid } else { Charging::Postpaid });
        for call in 0..300 {
            clock.set(clock.now_us() + random.u64(0..8_000));
            let hit = |index: usize, random: &mut fastrand::Rng| Hit {
                key: KEYS[index],
                kernel: kernels[index],
                cost: if random.u64(0..8) == 0 { Cost::PEEK } else { Cost::take(random.u64(1..=3)) },
                charging: chargings[index],
                role: [Role::Enforce, Role::Enforce, Role::Shadow, Role::Quota(0), Role::Quota(1)]
                    [random.usize(0..5)],
            };
            let first = random.usize(0..3);
            let count = random.usize(1..=3);
            let hits: Vec<Hit> = (0..count).map(|step| hit((first + step) % 3, &mut random)).collect();
            let expected = now(plain.decide(&request(&hits))).expect("memory does not fail");
            let found = process.decide(&hits);
            let shown = |outcomes: &Outcomes| {
                outcomes.by_charge.iter().map(|outcome| (outcome.verdict, outcome.report)).collect::<Vec<_>>()
            };
            assert_eq!(shown(&found), shown(&expected), "seed {seed}, call {call}: {hits:?} {kernels:?}");
            process.send_asks();
            if random.u64(0..10) == 0 {
                process.ask(KEYS[first], kernels[first], random.u64(1..=10));
            }
            if random.u64(0..10) == 0 {
                process.sweep();
            }
            assert!(is_conserved(&process), "seed {seed}: {:?}", process.leases.stats());
        }
        decisions += process.leases.stats().decisions;
    }
    assert!(decisions > 2_000, "only {decisions} requests used units taken ahead");
}

/// Threads spend one lease: the sum of what they spend is what was granted.
#[test]
fn concurrent_workers_spend_each_unit_once() {
    const THREADS: u64 = 8;
    const LIMIT: u64 = 100_000;
    let clock = Arc::new(ManualClock::at(1_700_000_000 * SECOND_US));
    let memory = memory(&clock);
    let process = Process::new(&memory, &clock);
    let kernel = Kernel::FixedWindow(FixedWindow::new(LIMIT, 60 * SECOND_US));
    assert!(process.ask(KEYS[0], kernel, LIMIT / 2));
    let hit =
        Hit { key: KEYS[0], kernel, cost: Cost::take(1), charging: Charging::Prepaid, role: Role::Enforce };
    let layer = &process.layer;
    let admitted: u64 = std::thread::scope(|scope| {
        let admit = move || {
            let fits = |_: &u64| {
                let outcomes = now(layer.decide(&request(&[hit]))).expect("memory does not fail");
                outcomes.by_charge[0].verdict == Verdict::Fits
            };
            (0..LIMIT / 4).filter(fits).count() as u64
        };
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(admit)).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
    });
    let stats = process.leases.stats();
    assert_eq!((admitted, all_units(&stats).spent, stats.held), (LIMIT, LIMIT / 2, 0));
}

/// A steady key needs the store for few of its hits, and an idle one keeps nothing.
#[test]
fn a_hot_key_is_decided_without_the_store_and_an_idle_one_holds_nothing() {
    let kernels = [
        Kernel::FixedWindow(FixedWindow::new(10_000, SECOND_US)),
        Kernel::SlidingWindow(SlidingWindow::new(600_000, 60 * SECOND_US)),
        Kernel::Gcra(Gcra::new(10_000, SECOND_US, 10_000, Pacing::Meter)),
    ];
    for kernel in kernels {
        let clock = Arc::new(ManualClock::at(1_700_000_000 * SECOND_US));
        let memory = memory(&clock);
        let mut process = Process::new(&memory, &clock);
        let hit = Hit {
            key: KEYS[0],
            kernel,
            cost: Cost::take(1),
            charging: Charging::Prepaid,
            role: Role::Enforce,
        };
        for call in 0..16_000 {
            clock.set(clock.now_us() + 500);
            assert_eq!(process.decide(&[hit]).by_charge[0].verdict, Verdict::Fits, "{kernel:?}, call {call}");
            process.send_asks();
            if call % 100 == 0 {
                process.sweep();
            }
        }
        let stats = process.leases.stats();
        let calls = 16_000 - stats.decisions + stats.asks_granted + stats.asks_refused;
        assert!(calls < 16_000 * 3 / 100, "{kernel:?}: {calls} calls, {stats:?}");
        clock.set(clock.now_us() + SECOND_US);
        process.sweep();
        let stats = process.leases.stats();
        assert_eq!((stats.keys, stats.held), (0, 0), "{kernel:?}: {stats:?}");
        assert!(is_conserved(&process), "{stats:?}");
    }
}

/// One process sends ten times as much as each of three others, 1.2 times the limit in all.
#[test]
fn unequal_processes_get_the_shares_that_they_get_without_leases() {
    let kernel = Kernel::FixedWindow(FixedWindow::new(2_000, SECOND_US));
    let hit =
        Hit { key: KEYS[0], kernel, cost: Cost::take(1), charging: Charging::Prepaid, role: Role::Enforce };
    let play = |has_leases: bool| {
        let clock = Arc::new(ManualClock::at(1_700_000_000 * SECOND_US));
        let memory = memory(&clock);
        let mut processes: [Process; 4] = std::array::from_fn(|_| Process::new(&memory, &clock));
        let (mut random, mut admitted) = (fastrand::Rng::with_seed(1), [0_u64; 4]);
        for call in 0..5 * 2_400 {
            clock.set(clock.now_us() + random.u64(0..=2 * SECOND_US / 2_400));
            let who = random.usize(0..13).saturating_sub(9);
            let outcomes = match has_leases {
                true => processes[who].decide(&[hit]),
                false => now(memory.decide(&request(&[hit]))).expect("memory does not fail"),
            };
            admitted[who] += u64::from(outcomes.by_charge[0].verdict == Verdict::Fits);
            processes[who].send_asks();
            if call % 120 == 0 {
                processes.iter().for_each(Process::sweep);
            }
        }
        (admitted, processes.iter().map(|process| process.leases.stats().decisions).sum::<u64>())
    };
    let ((with, decisions), (without, _)) = (play(true), play(false));
    for (with_leases, without_leases) in with.iter().zip(&without) {
        assert!(with_leases.abs_diff(*without_leases) * 20 <= *without_leases, "{with:?} {without:?}");
    }
    let [all, all_without] = [with, without].map(|admitted| admitted.iter().sum::<u64>());
    assert!(all * 1_000 >= all_without * 999 && decisions * 2 > all, "{all} {all_without} {decisions}");
}

/// Rare keys are not leased.
#[test]
fn a_cold_key_is_decided_in_the_store() {
    let clock = Arc::new(ManualClock::at(1_700_000_000 * SECOND_US));
    let memory = memory(&clock);
    let process = Process::new(&memory, &clock);
    let kernel = Kernel::FixedWindow(FixedWindow::new(100, SECOND_US));
    let hit =
        Hit { key: KEYS[0], kernel, cost: Cost::take(1), charging: Charging::Prepaid, role: Role::Enforce };
    for _ in 0..100 {
        // Three calls in an eighth of the window.
        clock.set(clock.now_us() + 42_000);
        process.decide(&[hit]);
    }
    assert_eq!(process.leases.stats(), super::super::LeaseStats::default());
}

/// If the store's clock jumps ahead, its units cannot be trusted: they lapse.
#[test]
fn a_clock_that_jumps_drops_the_lease() {
    let (clock, store_clock) = (Arc::new(ManualClock::at(0)), Arc::new(ManualClock::at(SECOND_US)));
    let memory = memory(&store_clock);
    let process = Process::new(&memory, &clock);
    let kernel = Kernel::FixedWindow(FixedWindow::new(100, SECOND_US));
    assert!(process.ask(KEYS[0], kernel, 10));
    store_clock.set(SECOND_US + 100);
    let hit =
        Hit { key: KEYS[0], kernel, cost: Cost::take(20), charging: Charging::Prepaid, role: Role::Enforce };
    process.decide(&[hit]);
    let stats = process.leases.stats();
    assert_eq!((stats.held, stats.keys), (0, 0), "{stats:?}");
    assert!(is_conserved(&process), "{stats:?}");
}

/// Another kernel on the same key does not use the units, and they return once they are idle.
#[test]
fn a_changed_limit_does_not_use_the_lease_of_the_old_one() {
    let clock = Arc::new(ManualClock::at(1_700_000_000 * SECOND_US));
    let memory = memory(&clock);
    let process = Process::new(&memory, &clock);
    let [old, new] = [100, 50].map(|limit| Kernel::FixedWindow(FixedWindow::new(limit, 60 * SECOND_US)));
    assert!(process.ask(KEYS[0], old, 40));
    let hit = |kernel, units| Hit {
        key: KEYS[0],
        kernel,
        cost: Cost::take(units),
        charging: Charging::Prepaid,
        role: Role::Enforce,
    };
    assert_eq!(process.decide(&[hit(new, 11)]).by_charge[0].verdict, Verdict::Over, "40 are taken");
    clock.set(clock.now_us() + 10 * SECOND_US);
    process.sweep();
    assert_eq!(process.decide(&[hit(new, 50)]).by_charge[0].verdict, Verdict::Fits);
    assert_eq!(process.decide(&[hit(new, 1)]).by_charge[0].verdict, Verdict::Over);
}
