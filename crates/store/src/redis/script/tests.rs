//! Requests and replies without a server.

use std::slice;

use engine::StoreError;
use engine::algorithm::{
    Attempt, CalendarWindow, CounterReading, Kernel, LogReading, SlotsReading, Tat, Verdict, WindowState,
};
use engine::{
    Algorithm, Charge, Charges, Charging, Cost, CounterSnapshot, DecidedBy, FailurePolicy, Limit, LimitSpec,
    Outcome, Period, Quantity, Refill, Role, Unit,
};

use super::layout::{ChargeMode, KERNELS, KernelLayout, LogUse};
use super::text::plain;
use super::*;

/// On a minute boundary.
const T0: u64 = 1_700_000_040_000_000;
const MINUTE_US: u64 = 60_000_000;

/// A limit of `limit` units per minute.
fn kernel(algorithm: Algorithm, limit: u32, refill: Refill) -> Kernel {
    let spec = LimitSpec { refill, ..LimitSpec::new(algorithm, limit.into(), Period::one(Unit::Minute)) };
    match Limit::new(spec).expect("a good limit").quantity {
        Quantity::Limited(kernel) => kernel,
        Quantity::Unlimited => panic!("{algorithm} counts"),
    }
}

/// A day of 23 hours, which includes [`T0`], and one of 24.
fn days() -> Kernel {
    let first_us = T0 - 60 * MINUTE_US;
    Kernel::CalendarWindow(CalendarWindow::new(
        60,
        [first_us, first_us + 1_380 * MINUTE_US, first_us + 2_820 * MINUTE_US],
    ))
}

/// Kernels of every algorithm: with whole and fractional intervals, by calendar, and of a limit that blocks.
fn kernels() -> Vec<Kernel> {
    let limits = [60, 7, 0];
    let refills = [Refill::Continuous, Refill::Interval];
    let of_limit = |limit| {
        let of_refill =
            move |refill| Algorithm::ALL.iter().map(move |&algorithm| kernel(algorithm, limit, refill));
        refills.into_iter().flat_map(of_refill)
    };
    limits.into_iter().flat_map(of_limit).chain([days()]).collect()
}

fn charge(kernel: Kernel, cost: Cost, charging: Charging, role: Role) -> Charge {
    Charge { kernel, cost, charging, role, on_store_failure: FailurePolicy::Error }
}

/// Charges on the keys k0, k1, ...
fn charges(all: impl IntoIterator<Item = Charge>) -> Charges {
    let mut charges = Charges::default();
    for (index, charge) in all.into_iter().enumerate() {
        charges.push(charge, |key| key.push_str(&format!("k{index}")));
    }
    charges
}

fn taken(kernel: Kernel) -> Charge {
    charge(kernel, Cost::take(1), Charging::Prepaid, Role::Enforce)
}

fn window() -> Kernel {
    kernel(Algorithm::FixedWindow, 60, Refill::Continuous)
}

/// A charge's bytes: marks, then doubles.
fn charge_bytes(marks: &[u8], numbers: &[f64]) -> Vec<u8> {
    let numbers = numbers.iter().flat_map(|number| number.to_le_bytes());
    marks.iter().copied().chain(numbers).collect()
}

#[test]
fn every_kernel_is_encoded_as_its_layout_says() {
    let mut seen = 0;
    for kernel in kernels() {
        let layout = KernelLayout::for_kernel(&kernel);
        let encoded = EncodedRequest::new(&charges([taken(kernel)]), "p:");
        assert_eq!(encoded.bytes()[..2], [layout.number, ChargeMode::Take as u8], "{kernel:?}");
        assert_eq!(encoded.bytes().len(), 2 + layout.parameters_size(), "{kernel:?}");
        assert_eq!(encoded.key_count(), usize::from(layout.parameters_size() > 0), "{kernel:?}");
        assert_eq!(encoded.reply_width, layout.reply_width());
        let needs_more = matches!(kernel, Kernel::SlidingLog(_) | Kernel::Slots(_));
        assert_eq!(encoded.needs_more_commands(), needs_more, "{kernel:?}");
        seen |= 1 << layout.number;
    }
    let all = KERNELS.iter().fold(0, |bits, layout| bits | 1 << layout.number);
    assert_eq!(seen, all, "a row of KERNELS that no kernel uses");
}

#[test]
fn a_single_charge_is_its_kernel_its_mode_and_its_parameters() {
    let cases = [
        (Cost::PEEK, Charging::Prepaid, 0, 1.0),
        (Cost::PEEK, Charging::Postpaid, 0, 1.0),
        (Cost::take(3), Charging::Prepaid, 1, 3.0),
        (Cost::take(3), Charging::Postpaid, 2, 3.0),
        (Cost::refund(3), Charging::Prepaid, 3, 3.0),
        (Cost::refund(3), Charging::Postpaid, 4, 3.0),
        (Cost::refund(0), Charging::Prepaid, 0, 0.0),
    ];
    for (cost, charging, mode, units) in cases {
        let encoded = EncodedRequest::new(&charges([charge(window(), cost, charging, Role::Enforce)]), "p:");
        assert_eq!(encoded.bytes(), charge_bytes(&[2, mode], &[units, 60.0, 60e6]), "{cost:?} {charging:?}");
        assert_eq!(encoded.keys().collect::<Vec<_>>(), ["p:k0"]);
    }
    let gcra = EncodedRequest::new(&charges([taken(kernel(Algorithm::Gcra, 7, Refill::Continuous))]), "");
    // 60 s / 7 = 8571428 4/7 us per unit, 7 of which fill the bucket.
    assert_eq!(gcra.bytes(), charge_bytes(&[3, 1], &[8_571_428.0, 4.0, 60e6, 0.0, 7.0]));
}

#[test]
fn prepaid_charges_of_a_request_that_is_known_to_be_denied_are_only_asked() {
    let cases = [
        (Cost::take(3), Charging::Prepaid, 0, 3.0),
        (Cost::take(3), Charging::Postpaid, 2, 3.0),
        (Cost::refund(3), Charging::Prepaid, 0, 3.0),
        (Cost::refund(3), Charging::Postpaid, 4, 3.0),
    ];
    for (cost, charging, mode, units) in cases {
        let mut denied = charges([charge(window(), cost, charging, Role::Enforce)]);
        denied.set_denied();
        let encoded = EncodedRequest::new(&denied, "");
        assert_eq!(encoded.bytes(), charge_bytes(&[2, mode], &[units, 60.0, 60e6]), "{cost:?} {charging:?}");
    }
}

#[test]
fn several_charges_have_roles() {
    let blocked = kernel(Algorithm::Gcra, 0, Refill::Continuous);
    let several = charges([
        charge(window(), Cost::take(1), Charging::Prepaid, Role::Enforce),
        charge(blocked, Cost::take(1), Charging::Prepaid, Role::IdleQuota),
        charge(window(), Cost::take(2), Charging::Prepaid, Role::Quota(1)),
        charge(window(), Cost::refund(0), Charging::Prepaid, Role::Enforce),
    ]);
    let encoded = EncodedRequest::new(&several, "");
    let parts = [
        vec![0, 4, 0, 2, 0], // several: 4 charges, 2 quota groups
        charge_bytes(&[2, 1, 0, 0], &[1.0, 60.0, 60e6]),
        vec![7, 1, 1, 0],
        charge_bytes(&[2, 1, 3, 0], &[2.0, 60.0, 60e6]),
        charge_bytes(&[2, 0, 1, 0], &[0.0, 60.0, 60e6]), // changes nothing, denies nothing
    ];
    assert_eq!(encoded.bytes(), parts.concat());
    assert_eq!(encoded.keys().collect::<Vec<_>>(), ["k0", "k2", "k3"], "a blocked limit has no key");
    assert_eq!(encoded.reply_width, 2 + 1 + 2 + 2);
}

#[test]
fn a_reset_is_a_mark_and_a_key() {
    let encoded = EncodedRequest::reset("k", "p:");
    assert_eq!((encoded.bytes(), encoded.reply_width), ([100].as_slice(), 1));
    assert_eq!(encoded.keys().collect::<Vec<_>>(), ["p:k"]);
    let answers = [(vec![0], Some(true)), (vec![-1], Some(false)), (vec![1], None), (vec![], None)];
    for (numbers, expected) in answers {
        let answer = RequestReply { now_us: 0, numbers: numbers.into() };
        assert_eq!(answer.was_reset().ok(), expected);
    }
}

#[test]
fn an_undo_names_its_grant() {
    let granted = |numbers: &[i64], charge: &Charge| outcome(charge, numbers, T0).expect("a good reply");
    let of = |algorithm| kernel(algorithm, 60, Refill::Continuous);
    let cases = [
        (of(Algorithm::FixedWindow), vec![28_333_334, 1], 28_333_334.0),
        (of(Algorithm::SlidingWindow), vec![28_333_334, 1, 0], 28_333_334.0),
        (of(Algorithm::SlidingLog), vec![1, T0 as i64 - 5, 0, 0], T0 as f64 - 5.0),
        (of(Algorithm::Gcra), vec![T0 as i64 + 5], T0 as f64 + 5.0 - 1e6), // 1 s per unit
        (days(), vec![T0 as i64, 1], T0 as f64),
    ];
    for (kernel, numbers, grant_id) in cases {
        let charge = taken(kernel);
        let undo = EncodedRequest::undo("k", &charge, &granted(&numbers, &charge), "").expect("a grant");
        let layout = KernelLayout::for_kernel(&charge.kernel);
        let log_use = if matches!(kernel, Kernel::SlidingLog(_)) { LogUse::Refunds } else { LogUse::Nothing };
        let whole = EncodedRequest::new(&charges([charge.clone()]), "");
        let expected =
            [charge_bytes(&[101], &[grant_id]), vec![layout.number, 5], whole.bytes()[2..].to_vec()].concat();
        assert_eq!(undo.bytes(), expected, "{kernel}");
        assert_eq!((undo.log_use, undo.reply_width), (log_use, layout.reply_width()), "{kernel}");
    }
}

#[test]
fn only_a_prepaid_grant_can_be_undone() {
    let prepaid = taken(window());
    let grant = outcome(&prepaid, &[28_333_334, 1], T0).expect("a good reply");
    let by_policy = Outcome { decided_by: DecidedBy::Policy(FailurePolicy::Allow), ..grant };
    let denied = Outcome { verdict: Verdict::Over, ..grant };
    let cases = [
        (prepaid.clone(), by_policy),
        (prepaid.clone(), denied),
        (Charge { charging: Charging::Postpaid, ..prepaid.clone() }, grant),
        (Charge { cost: Cost::PEEK, ..prepaid.clone() }, grant),
        (Charge { cost: Cost::refund(1), ..prepaid.clone() }, grant),
    ];
    for (charge, granted) in cases {
        assert!(EncodedRequest::undo("k", &charge, &granted, "").is_none(), "{charge:?} {granted:?}");
    }
    assert!(EncodedRequest::undo("k", &prepaid, &grant, "").is_some());
}

/// The integers that the script returns for a counter.
fn numbers(reading: &CounterReading) -> Vec<i64> {
    let numbers = match *reading {
        CounterReading::Window(WindowState { index, count }) => vec![index, count],
        CounterReading::Calendar(state) => vec![state.start_us, state.count],
        CounterReading::Buckets(state) => vec![state.index, state.current, state.previous],
        CounterReading::Log(LogReading { used, newest_us, next_us, retry_us }) => {
            vec![used, newest_us, next_us, retry_us]
        }
        CounterReading::Tat(Tat { whole_us, fraction }) => vec![whole_us, fraction],
        CounterReading::Slots(SlotsReading { open, frees_us, last_us, removed }) => {
            vec![open, frees_us, last_us, removed]
        }
        CounterReading::Tokens(state) => return vec![state.start_us.cast_signed(), state.tokens],
        CounterReading::Nothing => vec![0],
    };
    numbers.into_iter().map(u64::cast_signed).collect()
}

#[test]
fn a_reply_gives_the_outcome_that_the_engine_reports() {
    for kernel in kernels() {
        for units in [1, 8, 61] {
            let attempt = Attempt { now_us: T0, cost: Cost::take(units) };
            let verdict = kernel.verdict(None, attempt);
            let state = (verdict == Verdict::Fits).then(|| kernel.recorded(None, attempt)).flatten();
            let reading = kernel.reading(state.as_ref(), attempt);
            let mut numbers = numbers(&reading);
            numbers.truncate(KernelLayout::for_kernel(&kernel).reply_width());
            if verdict == Verdict::Over {
                numbers[0] = -1 - numbers[0];
            }
            let expected = Outcome {
                verdict,
                report: kernel.report(&reading, attempt, verdict),
                decided_by: DecidedBy::Store(CounterSnapshot { now_us: T0, reading }),
            };
            let charge = Charge { cost: Cost::take(units), ..taken(kernel) };
            assert_eq!(outcome(&charge, &numbers, T0), Ok(expected), "{kernel:?} {units}");
        }
    }
}

#[test]
fn a_refund_fits_whatever_the_reply_says() {
    let refund = charge(window(), Cost::refund(0), Charging::Prepaid, Role::Enforce);
    let reply = outcome(&refund, &[-1 - 28_333_334, 60], T0).expect("a good reply");
    assert_eq!(reply.verdict, Verdict::Fits);
}

#[test]
fn numbers_out_of_range_are_malformed() {
    let too_large = 1 << 53;
    let far_window = (too_large / MINUTE_US.cast_signed()) + 1;
    let ended_window = (T0 / MINUTE_US).cast_signed() - 1;
    let cases = [
        (Algorithm::FixedWindow, 60, Refill::Continuous, vec![1, -1]),
        (Algorithm::FixedWindow, 60, Refill::Continuous, vec![far_window, 1]),
        (Algorithm::FixedWindow, 60, Refill::Continuous, vec![1, 1, 1]),
        (Algorithm::SlidingWindow, 60, Refill::Continuous, vec![1, 1, too_large]),
        (Algorithm::SlidingWindow, 60, Refill::Continuous, vec![1, 1]),
        (Algorithm::SlidingWindow, 60, Refill::Continuous, vec![ended_window, 1, 1]), // the script moves it to T0
        (Algorithm::SlidingLog, 60, Refill::Continuous, vec![1, -1, 0, 0]),
        (Algorithm::SlidingLog, 60, Refill::Continuous, vec![1, 1, 0]),
        (Algorithm::Concurrency, 60, Refill::Continuous, vec![1, 1, 0]),
        (Algorithm::Concurrency, 60, Refill::Continuous, vec![1, 0, too_large, 0]),
        (Algorithm::Gcra, 60, Refill::Continuous, vec![too_large]),
        (Algorithm::Gcra, 7, Refill::Continuous, vec![1, 7]), // the fraction is below the denominator
        (Algorithm::Gcra, 7, Refill::Continuous, vec![1, -1]),
        (Algorithm::TokenBucket, 60, Refill::Interval, vec![1, 61]),
        (Algorithm::TokenBucket, 60, Refill::Interval, vec![1, -61]),
        (Algorithm::TokenBucket, 0, Refill::Interval, vec![1]), // a blocked limit returns 0
    ];
    for (algorithm, limit, refill, numbers) in cases {
        let charge = taken(kernel(algorithm, limit, refill));
        let reply = outcome(&charge, &numbers, T0);
        assert!(matches!(reply, Err(StoreError::Malformed(_))), "{algorithm} {limit} {numbers:?}: {reply:?}");
    }
    for numbers in [vec![1, -1], vec![too_large, 1], vec![1, too_large], vec![1]] {
        let reply = outcome(&taken(days()), &numbers, T0);
        assert!(matches!(reply, Err(StoreError::Malformed(_))), "{numbers:?}: {reply:?}");
    }
}

#[test]
fn a_reply_of_another_length_is_malformed() {
    let requests = [EncodedRequest::new(&charges([taken(window())]), ""), EncodedRequest::reset("k", "")];
    let plan = BatchPlan::new(requests.iter());
    let answers = plan.split_reply(requests.iter(), &[-7, 1, 2, 0]).expect("a good reply");
    let split: Vec<_> = answers.into_iter().map(|answer| (answer.now_us, answer.numbers.to_vec())).collect();
    assert_eq!(split, [(0, vec![1, 2]), (0, vec![0])], "a clock before 1970 counts as 1970");
    for numbers in [vec![], vec![1], vec![1, 1, 2], vec![1, 1, 2, 0, 0]] {
        let failure = plan.split_reply(requests.iter(), &numbers).expect_err("another length");
        assert_eq!(failure, StoreError::Malformed(format!("{} numbers instead of 4", numbers.len())));
    }
    let two = charges([taken(window()), taken(window())]);
    for numbers in [vec![1, 2, 1], vec![1, 2, 1, 2, 1]] {
        let answer = RequestReply { now_us: T0, numbers: numbers.into() };
        assert!(matches!(answer.outcomes(&two), Err(StoreError::Malformed(_))), "{answer:?}");
    }
}

fn words(requests: &[EncodedRequest], when: When, script: ScriptRef) -> Vec<Vec<u8>> {
    let command = BatchPlan::new(requests.iter()).command(requests.iter(), when, script);
    let words = command.args_iter().map(|word| match word {
        redis::Arg::Simple(word) => word.to_vec(),
        redis::Arg::Cursor => panic!("no cursor"),
        _ => panic!("an argument of another kind"),
    });
    words.collect()
}

#[test]
fn one_charge_is_a_call_of_the_plain_script_of_its_kernel() {
    for kernel in kernels().into_iter().filter(|kernel| !matches!(kernel, Kernel::Blocked(_))) {
        let script = plain(KernelLayout::for_kernel(&kernel)).expect("a script");
        for cost in [Cost::PEEK, Cost::take(1), Cost::refund(1)] {
            let charge = charge(kernel, cost, Charging::Postpaid, Role::Enforce);
            let request = EncodedRequest::new(&charges([charge]), "p:");
            let argument =
                [&5_f64.to_le_bytes()[..], &3.6e6_f64.to_le_bytes(), &request.bytes()[1..]].concat();
            let expected = [b"EVALSHA".as_slice(), script.sha1().as_bytes(), b"1", b"p:k0", &argument];
            assert_eq!(
                words(slice::from_ref(&request), When::At(5), ScriptRef::Sha1),
                expected,
                "{kernel:?}"
            );
            let text = words(slice::from_ref(&request), When::Now, ScriptRef::Text);
            assert_eq!(text[..2], [b"EVAL".as_slice(), script.text().as_bytes()]);
            assert_eq!(text[4][..16], [-1.0, 1e3].map(f64::to_le_bytes).concat());
        }
    }
}

#[test]
fn all_other_calls_have_the_batch_script() {
    let one = |kernel| EncodedRequest::new(&charges([taken(kernel)]), "");
    let several = EncodedRequest::new(&charges([taken(window()), taken(window())]), "");
    let granted = outcome(&taken(window()), &[28_333_334, 1], T0).expect("a good reply");
    let undo = EncodedRequest::undo("k", &taken(window()), &granted, "").expect("a grant");
    let blocked = one(kernel(Algorithm::Gcra, 0, Refill::Continuous));
    let calls = [
        vec![],
        vec![several],
        vec![undo],
        vec![blocked],
        vec![EncodedRequest::reset("k", "")],
        vec![one(window()), one(window())],
    ];
    for requests in calls {
        let words = words(&requests, When::Now, ScriptRef::Sha1);
        assert_eq!(words[1], script_sha1().as_bytes(), "{requests:?}");
    }
}

#[test]
fn a_batch_is_one_command() {
    let requests = [EncodedRequest::new(&charges([taken(window())]), "p:"), EncodedRequest::reset("r", "p:")];
    let words = |when, script| words(&requests, when, script);
    let bytes = [&[1, 0], requests[0].bytes(), &[1, 0], requests[1].bytes()].concat();
    let start = [b"EVALSHA".as_slice(), script_sha1().as_bytes(), b"2", b"p:k0", b"p:r"];
    let argument = |time: f64, grace_ms: f64| {
        [&time.to_le_bytes()[..], &grace_ms.to_le_bytes(), &[0, 0], &bytes].concat()
    };
    assert_eq!(words(When::Now, ScriptRef::Sha1), [start.as_slice(), &[&argument(-1.0, 1e3)]].concat());
    let timed = words(When::At(5), ScriptRef::Text);
    assert_eq!(timed[..2], [b"EVAL".as_slice(), BATCH.text().as_bytes()]);
    assert_eq!(timed[5..], [argument(5.0, 3.6e6)]);
}
