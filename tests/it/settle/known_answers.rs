//! Known answers: one story for each algorithm, on memory here and on Redis in `redis::settle`.

use std::collections::HashMap;

use ::base::clock::SystemClock;
use ::store::memory::{MemoryOptions, MemoryStore};
use engine::{Charges, Code, Outcomes, SettleResult};

use super::{Story, T0, hits, settle, summary};

/// The keys of the rules, one for each column of the table.
pub(crate) const ALGORITHMS: [&str; 5] = ["fixed", "sliding", "gcra", "bucket", "log"];

const RULES: &str = "
domain: d
descriptors:
  - key: fixed
    rate_limit: { unit: minute, requests_per_unit: 1000, algorithm: fixed_window, settle: true }
  - key: sliding
    rate_limit: { unit: minute, requests_per_unit: 1000, algorithm: sliding_window, settle: true }
  - key: gcra
    rate_limit: { unit: minute, requests_per_unit: 1000, algorithm: gcra, settle: true }
  - key: bucket
    rate_limit: { unit: minute, requests_per_unit: 1000, algorithm: token_bucket, refill: interval, settle: true }
  - key: log
    rate_limit: { unit: minute, requests_per_unit: 1000, algorithm: sliding_log, settle: true }
";

/// 1,000 units in 60 s. The first two columns are the time in seconds and the step. `take 400 A` is a request with an
/// estimate of 400, `settle A 150` returns its receipt with a real cost of 150, `check` is a peek. An answer has the
/// units that remain and the seconds until the reset, after `r` the wait of a denied request. `kept`: nothing was given
/// back. `-`: the request was denied, so there is no receipt, and no settle.
const TABLE: &str = "
  0 | take 400 A   | OK 600/60       | OK 600/120           | OK 600/24          | OK 600/60       | OK 600/60
  1 | take 400 B   | OK 200/59       | OK 200/119           | OK 216/47          | OK 200/59       | OK 200/60
  2 | take 400 X   | OVER 200/58 r58 | OVER 200/118 r73     | OVER 233/46 r10    | OVER 200/58 r58 | OVER 200/59 r58
 10 | settle A 150 | OK 450/50       | OK 450/110           | OK 450/33          | OK 450/50       | OK 450/51
 11 | take 400 C   | OK 50/49        | OK 50/109            | OK 66/56           | OK 50/49        | OK 50/60
 20 | settle B 900 | OK 0/40         | OK 0/100             | OK 0/77            | OK 0/100        | OK 0/60
 21 | check        | OVER 0/39 r39   | OVER 0/99 r57.6621   | OVER 0/76 r16.06   | OVER 0/99 r39   | OVER 0/59 r40
 61 | settle C 100 | OK 1000/0 kept  | OK 0/59              | OK 400/36 kept     | OK 550/59 kept  | OK 400/19
 62 | take 300 D   | OK 700/58       | OVER 0/58 r21.4783   | OK 116/53          | OK 250/58       | OK 100/60
 63 | settle D 0   | OK 1000/0       | -                    | OK 433/34          | OK 550/57       | OK 400/17
 64 | take 300 E   | OK 700/56       | OVER 0/56 r19.4783   | OK 150/51          | OK 250/56       | OK 100/60
125 | settle E 500 | OK 800/55       | -                    | OK 800/12          | OK 800/60       | OK 800/60
126 | check        | OK 800/54       | OK 1000/0            | OK 816/11          | OK 800/59       | OK 800/59
";

/// Plays the story of one algorithm. `value` is the value of the descriptor's entry.
pub(crate) fn check_known_answers(
    algorithm: &str,
    value: &str,
    decide: impl FnMut(&Charges, u64) -> Outcomes,
) {
    let column = 2 + ALGORITHMS.iter().position(|name| *name == algorithm).expect("a column");
    let entries = format!("{algorithm}={value}");
    let mut story = Story::new(RULES, decide);
    let mut receipts: HashMap<&str, String> = HashMap::new();
    for row in TABLE.trim().lines() {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let (step, expected) = (cells[1], cells[column]);
        let now_us = T0 + cells[0].parse::<u64>().expect("seconds") * 1_000_000;
        let words: Vec<&str> = step.split_whitespace().collect();
        let units = |text: &str| text.parse::<u64>().expect("units");
        let descriptor = match words[..] {
            ["take", estimate, _] => hits(&entries, units(estimate)),
            ["settle", name, actual] => match receipts.remove(name) {
                Some(receipt) => settle(&entries, &receipt, units(actual)),
                None => {
                    assert_eq!(expected, "-", "{algorithm}: {step}");
                    continue;
                }
            },
            ["check"] => hits(&entries, 0),
            _ => panic!("no step {step}"),
        };
        let (decision, receipt) = story.play(now_us, vec![descriptor]);
        let mut answer = summary(&decision);
        if decision.settle(0).is_some_and(|settle| settle.result == SettleResult::Kept) {
            answer += " kept";
        }
        assert_eq!(answer, expected, "{algorithm} at {} s: {step}", cells[0]);
        let is_estimate = words[0] != "settle" && decision.overall == Code::Ok;
        assert_eq!(receipt.is_some(), is_estimate, "{algorithm}: {step}: {receipt:?}");
        if let ["take", _, name] = words[..] {
            receipts.extend(receipt.map(|receipt| (name, receipt)));
        }
    }
}

#[test]
fn the_memory_store_gives_the_known_answers() {
    for algorithm in ALGORITHMS {
        let store = MemoryStore::new(MemoryOptions::default(), SystemClock);
        check_known_answers(algorithm, "acme", |charges, now_us| store.decide_at(charges, now_us));
    }
}
