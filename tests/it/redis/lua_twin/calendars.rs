//! Windows of a calendar while the boundaries of the calls move on with the time of a process, whose clock may be
//! wrong by any amount. In no stored window are more units admitted than the limit, and none is left in the midst of a
//! window of the true time before it is as old as the shortest one. If all windows have the same length, or the clock
//! is wrong by less than half of the shortest one, no window of the true time admits more units than the limit.

use engine::Calendar;
use engine::algorithm::{CalendarWindow, CounterReading};
use engine::{Charging, CounterSnapshot, DecidedBy, Role};
use proptest::collection::vec;

use super::sequence::{Amount, RandomCharge};
use super::*;

const HOUR_US: u64 = 3_600_000_000;

const LIMIT: u64 = 5;

/// For each charge the hours that pass, the hours by which the process's clock is wrong, and the charge.
type Charged = (f64, f64, RandomCharge);

/// The hours of each window, and the charges.
type Story = (Vec<u64>, Vec<Charged>);

fn charge() -> impl Strategy<Value = RandomCharge> {
    let amount = prop_oneof![
        6 => (1..4_u64).prop_map(Amount::Few),
        2 => (0.0..1.2).prop_map(Amount::Take),
        2 => (0.0..1.2).prop_map(Amount::Refund),
        1 => Just(Amount::Peek),
        1 => Just(Amount::Saturated),
    ];
    let charging = prop_oneof![3 => Just(Charging::Prepaid), 1 => Just(Charging::Postpaid)];
    (amount, charging).prop_map(|(amount, charging)| {
        let role = Role::Enforce;
        RandomCharge { counter: 0, amount, charging, role }
    })
}

fn story() -> impl Strategy<Value = Story> {
    let equal = (1..48_u64, 2..60_usize).prop_map(|(hours, windows)| (vec![hours; windows], 400.0));
    let different = vec(1..48_u64, 2..60).prop_map(|hours| {
        let shortest = hours.iter().copied().min().unwrap_or(1);
        (hours, 0.49 * shortest as f64)
    });
    let far_off = vec(1..48_u64, 2..60).prop_map(|hours| (hours, 400.0));
    prop_oneof![equal, different, far_off].prop_flat_map(|(hours, most)| {
        let error = move || prop_oneof![Just(0.0), -most..most];
        let forward = || prop_oneof![6 => 0.0..12.0, 2 => 12.0..60.0];
        let also_back = prop_oneof![8 => forward(), 1 => -20.0..0.0];
        let charges = prop_oneof![
            vec((forward(), error(), charge()), 1..40),
            vec((also_back, error(), charge()), 1..40)
        ];
        (Just(hours), charges)
    })
}

/// The window that is stored.
#[derive(Default)]
struct Stored {
    start_us: u64,
    count: u64,
}

impl Stored {
    /// `begun_us` is the start of the window of the true time.
    fn check(
        &mut self,
        now_us: u64,
        (begun_us, shortest_us): (u64, u64),
        outcomes: &Outcomes,
        cost: Cost,
    ) -> Result<(), TestCaseError> {
        let outcome = outcomes.by_charge[0];
        let DecidedBy::Store(CounterSnapshot { reading: CounterReading::Calendar(state), .. }) =
            outcome.decided_by
        else {
            return Err(TestCaseError::fail("a counter of a calendar"));
        };
        if state.start_us != self.start_us {
            let is_over = begun_us > self.start_us || now_us >= self.start_us + shortest_us;
            let is_empty = self.count <= cost.refunded();
            prop_assert!(is_empty || is_over, "{} is left at {now_us}", self.start_us);
        }
        let is_admitted = outcome.verdict == Verdict::Fits && cost.taken() > 0;
        prop_assert!(!is_admitted || state.count <= LIMIT, "{} units at {now_us}", state.count);
        (self.start_us, self.count) = (state.start_us, state.count);
        Ok(())
    }
}

fn later(now_us: u64, hours: f64) -> u64 {
    now_us.saturating_add_signed((hours * HOUR_US as f64) as i64)
}

fn steps((hours, charges): &Story, case: u64) -> Result<Vec<Step>, TestCaseError> {
    let starts = hours.iter().scan(START_US, |at_us, hours| {
        *at_us += hours * HOUR_US;
        Some(*at_us)
    });
    let calendar = Calendar::new("UTC", "test", starts.collect()).expect("rising boundaries");
    let (mut model, mut now_us, mut steps) = (Model::default(), START_US, Vec::new());
    // The units that were admitted and not given back, by the start of the window. After a step back units count in
    // the latest window with units.
    let (mut admitted, steps_back) =
        (HashMap::<u64, u64>::new(), charges.iter().any(|(passed, ..)| *passed < 0.0));
    let shortest = hours.iter().copied().min().unwrap_or(1);
    let is_little = |(_, error, _): &Charged| error.abs() < shortest as f64 / 2.0;
    let is_exact = charges.iter().all(is_little) || hours.iter().all(|hours| *hours == shortest);
    let mut stored = Stored::default();
    for (passed, error, random) in charges {
        now_us = later(now_us, *passed);
        let window = CalendarWindow::new(LIMIT, calendar.around(later(now_us, *error)));
        let mut request = Charges::default();
        request.push(random.charge(Kernel::CalendarWindow(window), &[]), |key| {
            key.push_str(&format!("calendar/{case}"))
        });
        let expected = model.decide(&request, now_us);
        let units = admitted.entry(calendar.window(now_us).0).or_default();
        let (cost, verdict) = (request.charge(0).cost, expected.by_charge[0].verdict);
        *units = units.saturating_sub(cost.refunded());
        *units += if verdict == Verdict::Fits { cost.taken() } else { 0 };
        let is_bound = steps_back || !is_exact || *units <= LIMIT;
        prop_assert!(is_bound, "{units} units at {now_us}, {error} hours: {request:?}");
        if !steps_back {
            let begun_us = calendar.window(now_us).0;
            stored.check(now_us, (begun_us, shortest * HOUR_US), &expected, cost)?;
        }
        steps.push(Step { now_us, requests: vec![request], expected: vec![expected] });
    }
    Ok(steps)
}

#[test]
fn script_and_engine_agree_while_the_boundaries_move() {
    let (fixture, cases) = (Fixture::start(), AtomicU64::new(0));
    let mut runner = properties::runner(file!());
    let result = runner
        .run(&story(), |story| fixture.check_steps(&steps(&story, cases.fetch_add(1, Ordering::Relaxed))?));
    if let Err(failure) = result {
        panic!("{failure}");
    }
    assert_ttls(&fixture.redis);
}
