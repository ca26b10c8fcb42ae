//! Windows of a calendar while the boundaries of the calls move on with the time of a process, whose clock may be wrong
//! by any amount.

use engine::Calendar;
use engine::algorithm::CalendarWindow;
use engine::{Charging, Role};

use super::sequence::{Amount, RandomCharge};
use super::*;

const HOUR_US: u64 = 3_600_000_000;

/// The hours of each window; then for each charge the hours that pass, the hours by which the process's clock is wrong,
/// and the charge.
type Story = (Vec<u64>, Vec<(f64, f64, RandomCharge)>);

fn story() -> impl Strategy<Value = Story> {
    let amount = prop_oneof![
        6 => (1..4_u64).prop_map(Amount::Few),
        2 => (0.0..1.2).prop_map(Amount::Take),
        2 => (0.0..1.2).prop_map(Amount::Refund),
        1 => Just(Amount::Peek),
        1 => Just(Amount::Saturated),
    ];
    let charging = prop_oneof![3 => Just(Charging::Prepaid), 1 => Just(Charging::Postpaid)];
    let charge = (amount, charging).prop_map(|(amount, charging)| {
        let role = Role::Enforce;
        RandomCharge { counter: 0, amount, charging, role }
    });
    let passed = prop_oneof![6 => 0.0..12.0, 2 => 12.0..60.0, 1 => -20.0..0.0];
    let error = prop_oneof![4 => -11.0..11.0, 1 => -90.0..90.0];
    let charges = proptest::collection::vec((passed, error, charge), 1..40);
    (proptest::collection::vec(1..48_u64, 2..60), charges)
}

fn steps((hours, charges): &Story, case: u64) -> Vec<Step> {
    let starts = hours.iter().scan(START_US, |at_us, hours| {
        *at_us += hours * HOUR_US;
        Some(*at_us)
    });
    let calendar = Calendar::new("UTC", "test", starts.collect()).expect("rising boundaries");
    let later = |now_us: u64, hours: f64| now_us.saturating_add_signed((hours * HOUR_US as f64) as i64);
    let (mut model, mut now_us) = (Model::default(), START_US);
    let steps = charges.iter().map(|(passed, error, random)| {
        now_us = later(now_us, *passed);
        let window = CalendarWindow::new(5, calendar.around(later(now_us, *error)));
        let mut request = Charges::default();
        request.push(random.charge(Kernel::CalendarWindow(window)), |key| {
            key.push_str(&format!("calendar/{case}"))
        });
        let expected = vec![model.decide(&request, now_us)];
        Step { now_us, requests: vec![request], expected }
    });
    steps.collect()
}

#[test]
fn script_and_engine_agree_while_the_boundaries_move() {
    let (fixture, cases) = (Fixture::start(), AtomicU64::new(0));
    let mut runner = properties::runner(file!());
    let result = runner
        .run(&story(), |story| fixture.check_steps(&steps(&story, cases.fetch_add(1, Ordering::Relaxed))));
    if let Err(failure) = result {
        panic!("{failure}");
    }
    assert_ttls(&fixture.redis);
}
