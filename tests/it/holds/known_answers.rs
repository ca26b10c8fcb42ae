//! Known answers, on memory here and on Redis in `redis::holds`. Steps share only ids and counters, like instances.

use std::collections::HashMap;
use std::time::Duration;

use ::base::clock::SystemClock;
use ::store::memory::{MemoryOptions, MemoryStore};
use engine::{
    BookedUnits, Caller, Charges, Code, Decision, Descriptor, Enforcement, Hold, Outcomes, Plan, Receipt,
    Request, RuleSet,
};

use crate::rules;
use crate::settle::{T0, hits, summary};

/// The default algorithm is postpaid; a hold is always prepaid.
const RULES: &str = "
domain: d
descriptors:
  - { key: fixed, rate_limit: { unit: minute, requests_per_unit: 1000, algorithm: fixed_window } }
  - { key: default, rate_limit: { unit: minute, requests_per_unit: 1000 } }
  - { key: receipt, rate_limit: { unit: minute, requests_per_unit: 1000, algorithm: fixed_window, settle: true } }
  - { key: part, rate_limit: { unit: minute, requests_per_unit: 1000, algorithm: fixed_window, reserve: 7 } }
";

/// 1,000 units in 60 s: the time in seconds, the step, the answer. An answer lists the remaining units, the seconds
/// until the reset, and after `r` the wait. `commit X *` names another tenant.
const TABLE: &str = "
 0 | reserve A 400     | OK 600/60
 1 | reserve B 700     | OVER 600/59 r59
 5 | commit A 150      | settled OK 850/55
 6 | commit A 900      | already
 8 | reserve C 500     | OK 350/52
 9 | reserve D 350     | OK 0/51
10 | reserve E 1       | OVER 0/50 r50
12 | commit D 400      | settled OK 0/48
13 | commit C 0        | settled OK 450/47
14 | reserve F 440     | OK 10/46
70 | commit F 100      | settled OK 1000/0
71 | reserve G 300 10  | OK 700/49
80 | commit G 500      | settled OK 500/40
81 | commit G 500      | expired
82 | reserve H 200     | OK 300/38
83 | commit H 1000     | settled OK 0/37
84 | reserve I 1       | OVER 0/36 r36
85 | reserve J 0       | OVER 0/35 r35
86 | commit abc 1      | unreadable
130 | reserve K 0      | OK 1000/0
131 | commit K 30      | settled OK 970/49
132 | commit K 30      | already
133 | commit - 30      | settled OK 940/47
134 | reserve L 100    | OK 840/46
135 | commit L 60 *    | settled OK 940/45
";

struct Story<D> {
    rules: RuleSet,
    /// Decides charges at a time.
    decide: D,
    nonce: u64,
}

impl<D: FnMut(&Charges, u64) -> Outcomes> Story<D> {
    fn decide(&mut self, now_us: u64, receipt: Option<&Receipt>, descriptors: Vec<Descriptor>) -> Decision {
        let (domain, caller) = ("d".to_owned(), Caller::default());
        let mut request = Request { domain, hits_addend: 0, descriptors, caller };
        request.set_hold(receipt);
        let plan = Plan::new(&self.rules, &request, now_us).expect("a plan");
        let outcomes = Outcomes::decided_in_parts(&plan.charges, |charges| (self.decide)(charges, now_us));
        Decision::merge(plan, outcomes, Enforcement::Enforce)
    }

    fn reserve(
        &mut self,
        now_us: u64,
        descriptors: Vec<Descriptor>,
        ttl_s: u64,
    ) -> (Decision, Option<String>) {
        let decision = self.decide(now_us, None, descriptors);
        self.nonce += 1;
        let receipt = decision.receipt_of_hold(|| self.nonce);
        let hold = receipt.map(|receipt| Hold::new(receipt, now_us, Duration::from_secs(ttl_s)));
        (decision, hold.map(|hold| hold.to_string()))
    }

    fn commit(
        &mut self,
        now_us: u64,
        id: &str,
        descriptors: Vec<Descriptor>,
    ) -> Result<Decision, &'static str> {
        let mut receipt = Receipt::new(0);
        if id != "-" {
            let hold = Hold::read(id, now_us).ok_or("unreadable")?;
            let mark = hold.mark(now_us).ok_or("expired")?;
            if (self.decide)(&mark, now_us).is_over(0) {
                return Err("already");
            }
            receipt = hold.receipt;
        }
        Ok(self.decide(now_us, Some(&receipt), descriptors))
    }
}

fn story<D: FnMut(&Charges, u64) -> Outcomes>(decide: D, seed: u64) -> Story<D> {
    Story { rules: rules::rules(RULES), decide, nonce: seed << 8 }
}

/// Plays the story for each rule. Values and ids differ by `seed`.
pub(crate) fn check_holds(seed: u64, mut decide: impl FnMut(&Charges, u64) -> Outcomes) {
    for (number, key) in (0..).zip(["fixed", "default", "receipt", "part"]) {
        let mut story = story(&mut decide, 16 * seed + number);
        let mut ids: HashMap<&str, String> = HashMap::from([("abc", "abc".into()), ("-", "-".into())]);
        for row in TABLE.trim().lines() {
            let cells: Vec<&str> = row.split('|').map(str::trim).collect();
            let now_us = T0 + cells[0].parse::<u64>().expect("seconds") * 1_000_000;
            let words: Vec<&str> = cells[1].split_whitespace().collect();
            let tenant = if words.len() > 3 && words[3] == "*" { "other" } else { "acme" };
            let descriptor = hits(&format!("{key}={tenant} {seed}"), words[2].parse().expect("units"));
            let answer = match words[0] {
                "reserve" => {
                    let ttl_s = words.get(3).map_or(3_600, |ttl| ttl.parse().expect("seconds"));
                    let (decision, id) = story.reserve(now_us, vec![descriptor], ttl_s);
                    assert_eq!(id.is_some(), decision.overall == Code::Ok, "{row}");
                    assert_eq!(decision.receipt(|| 1), None, "{row}: only the id settles");
                    ids.extend(id.map(|id| (words[1], id)));
                    summary(&decision)
                }
                _ => match story.commit(now_us, &ids[words[1]], vec![descriptor]) {
                    Ok(decision) => format!("settled {}", summary(&decision)),
                    Err(result) => result.to_owned(),
                },
            };
            assert_eq!(answer, cells[2], "{key}, {row}");
        }
    }
}

fn in_memory() -> impl FnMut(&Charges, u64) -> Outcomes {
    let store = MemoryStore::new(MemoryOptions::default(), SystemClock);
    move |charges, now_us| store.decide_at(charges, now_us)
}

#[test]
fn the_memory_store_gives_the_known_answers() {
    check_holds(0, in_memory());
}

#[test]
fn descriptors_that_share_a_counter_are_costs_of_their_own() {
    let mut story = story(in_memory(), 0);
    let both = |units: [u64; 2]| units.map(|units| hits("fixed=a", units)).to_vec();
    let (decision, id) = story.reserve(T0, both([400, 300]), 60);
    assert_eq!(summary(&decision), "OK 300/60");
    let settled = story.commit(T0, &id.expect("it fits"), both([100, 50])).expect("the first commit");
    assert_eq!(summary(&settled), "OK 850/60");
}

#[test]
fn a_denied_reservation_takes_nothing() {
    let mut story = story(in_memory(), 0);
    let (decision, id) = story.reserve(T0, vec![hits("default=a", 10), hits("fixed=a", 1_001)], 60);
    assert_eq!((decision.overall, id), (Code::OverLimit, None));
    let (decision, _) = story.reserve(T0, vec![hits("default=a", 0)], 60);
    assert_eq!(summary(&decision), "OK 1000/0");
}

/// Hits in a queue waited for their turn, and in a leased bucket others may hold the units that follow.
#[test]
fn what_cannot_be_given_back_stays_and_an_excess_is_booked() {
    let text = "
domain: d
descriptors:
  - key: queue
    rate_limit: { unit: hour, requests_per_unit: 3600, burst: 100, algorithm: leaky_bucket, mode: queue }
  - key: leased
    rate_limit: { unit: hour, requests_per_unit: 3600, burst: 100, algorithm: token_bucket, lease: auto }
  - key: bucket
    rate_limit: { unit: hour, requests_per_unit: 3600, burst: 100, algorithm: token_bucket }
";
    for (key, after_less, after_more) in [("queue", 40, 30), ("leased", 40, 30), ("bucket", 90, 30)] {
        let left = |actual| {
            let mut story = Story { rules: rules::rules(text), decide: in_memory(), nonce: 0 };
            let descriptor = |units| vec![hits(&format!("{key}=a"), units)];
            let (reserved, id) = story.reserve(T0, descriptor(60), 60);
            assert_eq!(reserved.overall, Code::Ok);
            story.commit(T0, &id.expect("it fits"), descriptor(actual)).expect("the first commit");
            let (decision, _) = story.reserve(T0, descriptor(0), 60);
            decision.limit_results().next().expect("a limit").outcome.report.remaining
        };
        assert_eq!([left(10), left(70)], [after_less, after_more], "{key}");
    }
}

#[test]
fn the_ledger_books_the_estimate_and_the_difference() {
    let mut story = story(in_memory(), 0);
    let booked = |decision: &Decision| {
        let (charged, result) = decision.charges().next().expect("a charge");
        let booked = decision.booking(&charged, result.outcome).0;
        (booked.ok, booked.units, booked.kind)
    };
    let (recorded, back) = (BookedUnits::Recorded, BookedUnits::Back);
    for (tenant, actual, difference) in [("a", 150, (false, 250, back)), ("b", 900, (false, 500, recorded))] {
        let descriptor = |units| vec![hits(&format!("fixed={tenant}"), units)];
        let (reserved, id) = story.reserve(T0, descriptor(400), 60);
        assert_eq!(booked(&reserved), (true, 400, recorded));
        let settled = story.commit(T0, &id.expect("it fits"), descriptor(actual)).expect("the first commit");
        assert_eq!(booked(&settled), difference);
    }
}
