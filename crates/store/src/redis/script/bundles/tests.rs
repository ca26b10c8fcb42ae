//! Which requests are sent together, and the answers they get.

use engine::algorithm::{FixedWindow, Gcra, Kernel, SlidingLog};
use engine::{Charge, Charges, Charging, Cost, FailurePolicy, Pacing, Role, StoreError};

use super::RequestBundles;
use crate::redis::script::{BatchPlan, EncodedRequest, RequestReply, ScriptRef, When};

fn window(limit: u64) -> Kernel {
    Kernel::FixedWindow(FixedWindow::new(limit, 60_000_000))
}

fn request(charges: &[(&str, Kernel, Cost, Charging)]) -> EncodedRequest {
    let mut all = Charges::default();
    for &(key, kernel, cost, charging) in charges {
        let on_store_failure = FailurePolicy::Error;
        let charge = Charge { kernel, cost, charging, role: Role::Enforce, on_store_failure };
        all.push(charge, |text| text.push_str(key));
    }
    EncodedRequest::new(&all, "")
}

fn hit(key: &str) -> EncodedRequest {
    cost(key, Cost::take(1))
}

fn cost(key: &str, cost: Cost) -> EncodedRequest {
    request(&[(key, window(60), cost, Charging::Prepaid)])
}

/// The bundles in the order of sending, each with the indices of its requests.
fn bundles(requests: &[EncodedRequest]) -> Vec<Vec<usize>> {
    let Some(RequestBundles { bundles, bundle_of }) = BatchPlan::new(requests.iter()).bundles else {
        return (0..requests.len()).map(|index| vec![index]).collect();
    };
    let members = |bundle| (0..requests.len()).filter(|&index| bundle_of[index] == bundle).collect();
    let all: Vec<Vec<usize>> = (0..bundles.len()).map(members).collect();
    for (bundle, members) in bundles.iter().zip(&all) {
        assert_eq!((bundle.first, usize::from(bundle.size)), (members[0], members.len()));
    }
    all
}

#[test]
fn equal_charges_on_one_counter_are_sent_once_where_the_first_was() {
    let requests = [hit("a"), hit("b"), hit("a"), hit("c"), hit("b"), hit("a")];
    assert_eq!(bundles(&requests), [vec![0, 2, 5], vec![1, 4], vec![3]]);
}

#[test]
fn bundles_are_counted() {
    let bundles =
        |keys: &[&str]| BatchPlan::new(keys.iter().map(|key| hit(key)).collect::<Vec<_>>().iter()).bundles();
    assert_eq!(bundles(&["a", "b", "a", "a", "b"]), Some(2));
    assert_eq!((bundles(&["a", "b", "c"]), bundles(&["a"])), (None, None));
}

#[test]
fn requests_without_a_repetition_keep_their_order() {
    for requests in [vec![], vec![hit("a")], vec![hit("a"), hit("b"), cost("a", Cost::take(2))]] {
        assert!(BatchPlan::new(requests.iter()).bundles.is_none(), "{requests:?}");
    }
}

#[test]
fn the_script_learns_whether_it_gets_a_key_twice() {
    let both = |second| {
        let charge = |key| (key, window(60), Cost::take(1), Charging::Postpaid);
        request(&[charge("a"), charge(second)])
    };
    let cases = [
        (vec![], false),
        (vec![hit("a")], false),
        (vec![hit("a"), hit("b")], false),
        (vec![hit("a"), hit("b"), hit("a")], false),
        (vec![both("b"), hit("c")], false),
        (vec![both("a")], true),
        (vec![both("b"), hit("b")], true),
        (vec![hit("b"), both("b")], true),
        (vec![both("b"), both("b")], true),
        (vec![hit("a"), cost("a", Cost::take(2))], true),
        (vec![hit("a"), EncodedRequest::reset("a", "")], true),
        (vec![EncodedRequest::reset("a", ""), EncodedRequest::reset("a", "")], true),
        (vec![hit("a"), hit("a"), cost("b", Cost::refund(1)), cost("b", Cost::refund(1))], true),
    ];
    for (requests, expected) in cases {
        assert_eq!(BatchPlan::new(requests.iter()).keys_repeat, expected, "{requests:?}");
    }
}

#[test]
fn another_request_on_the_counter_ends_its_bundle() {
    let two = request(&[
        ("z", window(60), Cost::take(1), Charging::Prepaid),
        ("a", window(60), Cost::take(1), Charging::Prepaid),
    ]);
    let undone = {
        let charge = Charge {
            kernel: window(60),
            cost: Cost::take(1),
            charging: Charging::Prepaid,
            role: Role::Enforce,
            on_store_failure: FailurePolicy::Error,
        };
        let granted = crate::redis::script::outcome(&charge, &[0, 1], 1).expect("a good reply");
        EncodedRequest::undo("a", &charge, &granted, "").expect("a grant")
    };
    let between = [
        cost("a", Cost::take(2)),
        cost("a", Cost::PEEK),
        cost("a", Cost::refund(1)),
        request(&[("a", window(60), Cost::take(1), Charging::Postpaid)]),
        request(&[("a", window(61), Cost::take(1), Charging::Prepaid)]),
        two,
        undone,
        EncodedRequest::reset("a", ""),
    ];
    for between in between {
        let requests = [hit("a"), hit("a"), between.clone(), hit("a"), hit("a")];
        assert_eq!(bundles(&requests), [vec![0, 1], vec![2], vec![3, 4]], "{between:?}");
    }
}

#[test]
fn charges_that_cannot_be_counted_in_steps_are_sent_one_by_one() {
    let log = Kernel::SlidingLog(SlidingLog::new(5, 60_000_000));
    let one_by_one = [
        request(&[("a", log, Cost::take(1), Charging::Prepaid)]),
        cost("a", Cost::refund(1)),
        request(&[("a", window(60), Cost::refund(1), Charging::Postpaid)]),
        EncodedRequest::reset("a", ""),
    ];
    for request in one_by_one {
        assert_eq!(bundles(&[request.clone(), request.clone()]), [[0], [1]], "{request:?}");
    }
}

#[test]
fn a_bundle_has_no_more_requests_than_its_number_holds() {
    let requests = vec![hit("a"); 65_537];
    let sizes: Vec<usize> = bundles(&requests).iter().map(Vec::len).collect();
    assert_eq!(sizes, [65_535, 2]);
}

#[test]
fn a_bundle_is_one_key_and_one_charge_with_its_number() {
    let requests = [hit("a"), hit("b"), hit("a"), hit("a")];
    let command = BatchPlan::new(requests.iter()).command(requests.iter(), When::Now, ScriptRef::Sha1);
    let words = command.args_iter().map(|word| match word {
        redis::Arg::Simple(word) => word.to_vec(),
        _ => panic!("an argument of another kind"),
    });
    let words: Vec<_> = words.collect();
    let bytes = [&[3, 0, 102], requests[0].bytes(), &[1, 0], requests[1].bytes()].concat();
    let argument = [[-1.0, 1e3].map(f64::to_le_bytes).as_flattened(), &[0, 0], &bytes].concat();
    assert_eq!(words[2..], [b"2".as_slice(), b"a", b"b", &argument]);
}

#[test]
fn the_script_learns_what_a_call_needs_of_logs() {
    let log =
        |cost| request(&[("l", Kernel::SlidingLog(SlidingLog::new(5, 60_000_000)), cost, Charging::Prepaid)]);
    let cases = [
        (vec![], 0),
        (vec![hit("a"), cost("b", Cost::refund(1))], 0),
        (vec![log(Cost::take(1)), hit("a")], 1),
        (vec![log(Cost::PEEK), log(Cost::refund(1)), hit("a")], 2),
    ];
    for (requests, expected) in cases {
        assert_eq!(argument(&requests)[17], expected, "{requests:?}");
    }
}

/// The bytes that the command for these requests contains, without keys and header.
fn sent_bytes(requests: &[EncodedRequest]) -> Vec<u8> {
    argument(requests)[18..].to_vec()
}

/// The last word of the command for these requests.
fn argument(requests: &[EncodedRequest]) -> Vec<u8> {
    let command = BatchPlan::new(requests.iter()).command(requests.iter(), When::Now, ScriptRef::Sha1);
    let words: Vec<_> = command.args_iter().collect();
    match words[words.len() - 1] {
        redis::Arg::Simple(argument) => argument.to_vec(),
        _ => panic!("an argument of another kind"),
    }
}

fn pair(first: &str, second: &str) -> EncodedRequest {
    let charge = |key| (key, window(60), Cost::take(1), Charging::Prepaid);
    request(&[charge(first), charge(second)])
}

#[test]
fn requests_that_differ_in_their_keys_only_are_sent_once_with_their_number() {
    let (single, double) = (hit("a"), pair("a", "b"));
    let requests = [
        pair("a", "b"),
        pair("c", "d"),
        hit("e"),
        hit("f"),
        hit("g"),
        hit("h"),
        cost("i", Cost::take(2)),
        cost("j", Cost::take(3)),
        cost("k", Cost::take(3)),
        cost("l", Cost::take(3)),
    ];
    let (two, three) = (requests[6].bytes(), requests[7].bytes());
    let expected = [&[2, 0], double.bytes(), &[1, 0], two, &[3, 0], three, &[4, 0], single.bytes()];
    assert_eq!(sent_bytes(&requests), expected.concat());
}

#[test]
fn logs_resets_and_requests_with_shared_keys_are_sent_once_with_their_number() {
    let log = Kernel::SlidingLog(SlidingLog::new(5, 60_000_000));
    let logs = ["a", "b", "c", "d"].map(|key| request(&[(key, log, Cost::take(1), Charging::Prepaid)]));
    let resets = ["a", "b", "c", "d"].map(|key| EncodedRequest::reset(key, ""));
    let key_twice = [pair("a", "b"), pair("c", "d"), pair("e", "f"), pair("a", "g")];
    for requests in [logs, resets, key_twice] {
        assert_eq!(sent_bytes(&requests), [&[4, 0], requests[0].bytes()].concat(), "{requests:?}");
    }
}

#[test]
fn alike_requests_stand_beside_equal_charges() {
    let requests = [hit("a"), hit("b"), hit("c"), hit("d"), hit("e"), hit("e")];
    let bytes = requests[0].bytes();
    let expected = [&[4, 0], bytes, &[2, 0, 102], bytes];
    assert_eq!(sent_bytes(&requests), expected.concat());
}

#[test]
fn alike_requests_are_sent_next_to_each_other_and_each_has_its_answer() {
    let log = Kernel::SlidingLog(SlidingLog::new(5, 60_000_000));
    let logged = |key| request(&[(key, log, Cost::take(1), Charging::Prepaid)]);
    let two = |key| cost(key, Cost::take(2));
    let requests =
        [hit("a"), logged("b"), two("c"), hit("d"), hit("e"), hit("e"), logged("f"), hit("g"), two("h")];
    assert_eq!(
        bundles(&requests),
        [vec![2], vec![8], vec![0], vec![3], vec![7], vec![4, 5], vec![1], vec![6]]
    );
    let reply = [9, 1, 12, 1, 18, 1, 10, 1, 13, 1, 17, 2, 1, 14, 11, 0, 0, 0, 16, 0, 0, 0];
    let answers = BatchPlan::new(requests.iter()).split_reply(requests.iter(), &reply).expect("a good reply");
    let numbers: Vec<_> = answers.iter().map(|answer| answer.numbers.to_vec()).collect();
    let expected: [&[i64]; 9] = [
        &[1, 10],
        &[11, 0, 0, 0],
        &[1, 12],
        &[1, 13],
        &[1, 14],
        &[1, 15],
        &[16, 0, 0, 0],
        &[1, 17],
        &[1, 18],
    ];
    assert_eq!(numbers, expected);
}

#[test]
fn requests_keep_their_order_if_a_key_is_sent_twice() {
    let requests = [hit("a"), cost("b", Cost::take(2)), hit("c"), cost("a", Cost::take(2))];
    assert_eq!(bundles(&requests), [[0], [1], [2], [3]]);
}

#[test]
fn no_more_alike_requests_are_sent_as_one_than_their_number_holds() {
    let requests: Vec<_> = (0..65_539).map(|number| hit(&number.to_string())).collect();
    let bytes = requests[0].bytes();
    let expected = [&[255, 255], bytes, &[4, 0], bytes];
    assert_eq!(sent_bytes(&requests), expected.concat());
}

#[test]
fn each_request_has_the_answer_of_its_place_among_equal_ones() {
    let requests = [hit("a"), hit("b"), hit("a"), hit("a"), hit("a"), hit("a")];
    // Two fit, from a count of 59 on; a third would be counted, and two more change nothing.
    let reply = [7, 2, 4, 59, 1, -5, 61, -2, -5, 62, 9, 1];
    let answers = BatchPlan::new(requests.iter()).split_reply(requests.iter(), &reply).expect("a good reply");
    let expected = [[4, 59], [9, 1], [4, 60], [-5, 61], [-5, 62], [-5, 62]];
    assert_eq!(
        answers,
        expected.map(|numbers| RequestReply { now_us: 7, numbers: numbers.as_slice().into() })
    );
}

#[test]
fn fractions_carry() {
    // A unit takes 60 s / 7 = 8571428 4/7 us.
    let kernel = Kernel::Gcra(Gcra::new(7, 60_000_000, 7, Pacing::Meter));
    let gcra = request(&[("a", kernel, Cost::take(1), Charging::Prepaid)]);
    let requests = [gcra.clone(), gcra.clone(), gcra];
    let answers = BatchPlan::new(requests.iter()).split_reply(requests.iter(), &[0, 3, 10, 2]).expect("good");
    let numbers = answers.into_iter().map(|answer| answer.numbers.to_vec()).collect::<Vec<_>>();
    assert_eq!(numbers, [[10, 2], [8_571_438, 6], [17_142_867, 3]]);
}

#[test]
fn a_reply_of_another_shape_is_malformed() {
    let requests = [hit("a"), hit("a"), hit("b")];
    let plan = BatchPlan::new(requests.iter());
    let good = [0, 2, 4, 1, 4, 1];
    plan.split_reply(requests.iter(), &good).expect("a good reply");
    let (one_run_of, missing, more): (fn(i64) -> Vec<i64>, _, _) =
        (|charges| vec![0, charges, 4, 1, 4, 1], good[..5].to_vec(), [good.as_slice(), &[1]].concat());
    let numbers =
        [vec![], vec![0], missing, more, one_run_of(0), one_run_of(1), one_run_of(3), one_run_of(i64::MIN)];
    for numbers in numbers {
        let failure = plan.split_reply(requests.iter(), &numbers).expect_err("malformed");
        let expected = format!("{} numbers that are no reply to these requests", numbers.len());
        assert_eq!(failure, StoreError::Malformed(expected), "{numbers:?}");
    }
}

#[test]
fn alike_requests_come_together_although_others_are_between_them() {
    let log = |key| {
        request(&[(
            key,
            Kernel::SlidingLog(SlidingLog::new(5, 60_000_000)),
            Cost::take(1),
            Charging::Prepaid,
        )])
    };
    let requests = [hit("a"), log("p"), hit("b"), log("q"), hit("c")];
    assert_eq!(bundles(&requests), [vec![0], vec![2], vec![4], vec![1], vec![3]]);
}
