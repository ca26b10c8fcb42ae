//! What was used stays used when the number of a limit changes: windows keep the used units, GCRA and buckets the used
//! share. Known answers, and the borders of the largest numbers, for every store.

use std::sync::Arc;

use ::store::clock::ManualClock;
use ::store::memory::{MemoryOptions, MemoryStore};
use engine::algorithm::{FixedWindow, Gcra, Kernel, SlidingLog, SlidingWindow};
use engine::{
    Charge, Charges, Charging, Cost, FailurePolicy, Outcome, Pacing, RetryAfter, Role, Store, Verdict,
};

/// A minute boundary.
const T0_US: u64 = 1_700_000_040_000_000;
const SECOND_US: u64 = 1_000_000;
const MINUTE_US: u64 = 60 * SECOND_US;
const DAY_US: u64 = 1_440 * MINUTE_US;

/// The number of every limit per minute, and of every burst, with a cost in units: 0 is a check. The answers of fixed
/// window, sliding window, GCRA and sliding log are the remaining units and the seconds until the counter is unused,
/// then `r` with the seconds until the same cost fits.
struct Row {
    at_s: u64,
    limit: u64,
    units: u64,
    answers: [&'static str; 4],
}

const fn row(at_s: u64, limit: u64, units: u64, answers: [&'static str; 4]) -> Row {
    Row { at_s, limit, units, answers }
}

const TABLE: [Row; 9] = [
    row(0, 10, 6, ["OK 4/60", "OK 4/120", "OK 4/36", "OK 4/60"]),
    // The limit becomes 20.
    row(1, 20, 0, ["OK 14/59", "OK 14/119", "OK 8/35", "OK 14/59"]),
    row(2, 20, 14, ["OK 0/58", "OK 0/118", "OVER 8/34 r16", "OK 0/60"]),
    row(3, 20, 1, ["OVER 0/57 r57", "OVER 0/117 r60", "OK 8/36", "OVER 0/59 r57"]),
    // The limit becomes 4, which is less than what is used.
    row(4, 4, 0, ["OVER 0/56 r56", "OVER 0/116 r107", "OK 1/35", "OVER 0/58 r58"]),
    row(5, 4, 1, ["OVER 0/55 r55", "OVER 0/115 r106", "OK 0/49", "OVER 0/57 r57"]),
    // The limit is what it was.
    row(6, 10, 0, ["OVER 0/54 r54", "OVER 0/114 r87", "OK 2/48", "OVER 0/56 r56"]),
    row(61, 10, 0, ["OK 10/0", "OVER 0/59 r32", "OK 10/0", "OVER 0/1 r1"]),
    row(61, 10, 4, ["OK 6/59", "OVER 0/59 r41", "OK 6/24", "OVER 0/1 r1"]),
];

fn kernels(limit: u64) -> [(&'static str, Kernel); 4] {
    [
        ("fixed window", Kernel::FixedWindow(FixedWindow::new(limit, MINUTE_US))),
        ("sliding window", Kernel::SlidingWindow(SlidingWindow::new(limit, MINUTE_US))),
        ("gcra", Kernel::Gcra(Gcra::new(limit, MINUTE_US, limit, Pacing::Meter))),
        ("sliding log", Kernel::SlidingLog(SlidingLog::new(limit, MINUTE_US))),
    ]
}

/// A store, its clock, and what the keys of its counters start with.
pub(crate) struct Subject<S> {
    pub(crate) store: S,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) prefix: String,
}

impl<S: Store> Subject<S> {
    async fn decide(&self, at_us: u64, name: &str, charge: Charge) -> Outcome {
        self.clock.set(T0_US + at_us);
        let mut charges = Charges::default();
        charges.push(charge, |keys| keys.extend([&self.prefix, name]));
        let outcomes = self.store.decide(&charges).await.expect("the store answers");
        outcomes.by_charge[0]
    }

    async fn prepaid(&self, at_us: u64, name: &str, kernel: Kernel, cost: Cost) -> String {
        text(&self.decide(at_us, name, charge(kernel, cost)).await)
    }

    async fn postpaid(&self, at_us: u64, name: &str, kernel: Kernel, cost: Cost) -> String {
        let charge = Charge { charging: Charging::Postpaid, ..charge(kernel, cost) };
        text(&self.decide(at_us, name, charge).await)
    }

    /// Checks a store without counters.
    pub(crate) async fn check(&self) {
        self.check_table().await;
        self.check_states_of_gcra().await;
        self.check_debts().await;
        self.check_largest_fixed_window().await;
        self.check_largest_sliding_window().await;
    }

    async fn check_table(&self) {
        for (number, Row { at_s, limit, units, answers }) in TABLE.iter().enumerate() {
            for ((name, kernel), answer) in kernels(*limit).into_iter().zip(answers) {
                let found = self.prepaid(at_s * SECOND_US, name, kernel, Cost::take(*units)).await;
                assert_eq!(found, *answer, "{name}, row {}", number + 1);
            }
        }
    }

    /// With a fraction, and without one: the text in Redis has 16 and 8 bytes. A fraction that is none under the new
    /// number is the next microsecond. In a row: limit and burst, units to take, and the answer with the microseconds
    /// until the counter is unused.
    async fn check_states_of_gcra(&self) {
        let table: [(u64, u64, &str); 8] = [
            (7, 3, "OK 4/25714286"),  // 25,714,285 5/7 us
            (10, 0, "OK 5/25714286"), // no fraction: the next microsecond
            (3, 0, "OK 1/25714286"),  // nothing was written
            (10, 2, "OK 3/37714286"), // 8 bytes instead of 16
            (7, 1, "OK 1/46285715"),  // 8,571,428 4/7 us more, and 16 bytes again
            (9, 1, "OK 1/52952382"),  // 4 is no fraction in thirds: 46,285,715 us, and 6,666,666 2/3 us more
            (11, 1, "OK 0/58406927"), // 2/3 is read as 2/11: 52,952,381 2/11 us, and 5,454,545 5/11 us more
            (9, 0, "OVER 0/58406927"),
        ];
        for (number, (burst, units, answer)) in table.into_iter().enumerate() {
            let kernel = Kernel::Gcra(Gcra::new(burst, MINUTE_US, burst, Pacing::Meter));
            let outcome = self.decide(0, "fractions", charge(kernel, Cost::take(units))).await;
            let code = if outcome.verdict == Verdict::Fits { "OK" } else { "OVER" };
            let found = format!("{code} {}/{}", outcome.report.remaining, outcome.report.reset_after_us);
            assert_eq!(found, answer, "row {}", number + 1);
        }
    }

    /// A fixed window counts every postpaid unit. The other kernels record at most one further limit, of the number in
    /// force; a lower number takes nothing away.
    async fn check_debts(&self) {
        let [fixed, sliding, gcra, log] = ["fixed debt", "sliding debt", "gcra debt", "log debt"];
        let of = |limit| kernels(limit).map(|(_, kernel)| kernel);
        for (index, name) in [fixed, sliding, gcra, log].into_iter().enumerate() {
            for _ in 0..3 {
                self.postpaid(0, name, of(10)[index], Cost::take(10)).await;
            }
            self.postpaid(0, name, of(4)[index], Cost::take(1)).await;
        }
        // Used are 31 of the fixed window, and 20 of the other windows.
        let table = [
            (fixed, 0, 40, "OK 9/60"),
            (sliding, 1, 40, "OK 20/120"),
            (gcra, 2, 40, "OVER 0/120 r61.5"),
            (log, 3, 40, "OK 20/60"),
        ];
        for (name, index, limit, answer) in table {
            assert_eq!(self.prepaid(0, name, of(limit)[index], Cost::PEEK).await, answer, "{name}");
        }
        assert_eq!(self.prepaid(0, fixed, of(10)[0], Cost::refund(21)).await, "OK 0/60");
        assert_eq!(self.prepaid(0, fixed, of(10)[0], Cost::refund(4)).await, "OK 4/60");
    }

    async fn check_largest_fixed_window(&self) {
        const MOST: u64 = 1 << 52;
        let (name, kernel) = ("largest fixed", Kernel::FixedWindow(FixedWindow::new(MOST, DAY_US)));
        let at_us = DAY_US - T0_US % DAY_US;
        assert_eq!(self.prepaid(at_us, name, kernel, Cost::take(MOST - 1)).await, "OK 1/86400");
        assert_eq!(self.prepaid(at_us, name, kernel, Cost::take(2)).await, "OVER 1/86400 r86400");
        assert_eq!(self.prepaid(at_us, name, kernel, Cost::take(1)).await, "OK 0/86400");
        assert_eq!(self.prepaid(at_us, name, kernel, Cost::take(1)).await, "OVER 0/86400 r86400");
        assert_eq!(self.prepaid(at_us, name, kernel, Cost::take(u64::MAX)).await, "OVER 0/86400 never");
        // The count ends at 2^53 - 1.
        for _ in 0..2 {
            let over = self.postpaid(at_us, name, kernel, Cost::take(MOST - 1)).await;
            assert_eq!(over, "OVER 0/86400 r86400");
        }
        assert_eq!(self.prepaid(at_us, name, kernel, Cost::refund(MOST - 1)).await, "OK 0/86400");
        assert_eq!(self.prepaid(at_us, name, kernel, Cost::refund(1)).await, "OK 1/86400");
        assert_eq!(self.prepaid(at_us, name, kernel, Cost::refund(u64::MAX)).await, format!("OK {MOST}/0"));
    }

    async fn check_largest_sliding_window(&self) {
        const MOST: u64 = 1 << 46;
        let kernel = Kernel::SlidingWindow(SlidingWindow::new(MOST, DAY_US));
        let (name, at_us) = ("largest sliding", DAY_US - T0_US % DAY_US);
        assert_eq!(self.prepaid(at_us, name, kernel, Cost::take(MOST)).await, "OK 0/172800");
        // A microsecond into the next window, 2^46 / 86,400,000,000 units are free, which is 814.4.
        let next_us = at_us + DAY_US + 1;
        assert_eq!(
            self.prepaid(next_us, name, kernel, Cost::take(815)).await,
            "OVER 814/86399.999999 r0.000001"
        );
        assert_eq!(self.prepaid(next_us, name, kernel, Cost::take(814)).await, "OK 0/172799.999999");
        assert_eq!(self.prepaid(next_us, name, kernel, Cost::PEEK).await, "OVER 0/172799.999999 r0.000001");
        // A debt is at most one further limit.
        let over = self.postpaid(next_us, name, kernel, Cost::take(u64::MAX)).await;
        assert_eq!(over, "OVER 0/172799.999999 never");
        assert_eq!(
            self.prepaid(next_us, name, kernel, Cost::refund(2 * MOST - 814)).await,
            "OK 0/172799.999999"
        );
    }
}

fn charge(kernel: Kernel, cost: Cost) -> Charge {
    Charge {
        kernel,
        cost,
        charging: Charging::Prepaid,
        role: Role::Enforce,
        on_store_failure: FailurePolicy::Error,
    }
}

fn text(outcome: &Outcome) -> String {
    let seconds = |us: u64| {
        let text = format!("{}.{:06}", us / SECOND_US, us % SECOND_US);
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    };
    let report = &outcome.report;
    let code = if outcome.verdict == Verdict::Fits { "OK" } else { "OVER" };
    let retry = match report.retry_after {
        RetryAfter::Now => String::new(),
        RetryAfter::In(us) => format!(" r{}", seconds(us)),
        RetryAfter::Never => " never".to_owned(),
    };
    format!("{code} {}/{}{retry}", report.remaining, seconds(report.reset_after_us))
}

#[tokio::test]
async fn memory_keeps_what_was_used() {
    let clock = Arc::new(ManualClock::default());
    let store = MemoryStore::new(MemoryOptions::default(), Arc::clone(&clock));
    Subject { store, clock, prefix: String::new() }.check().await;
}
