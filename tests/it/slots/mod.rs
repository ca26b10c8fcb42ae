//! Limits with `algorithm: concurrency`: slots that requests take, renew and release. On memory here, on Redis in
//! `redis::slots`.

use std::collections::HashMap;

use ::base::clock::SystemClock;
use ::store::memory::{MemoryOptions, MemoryStore};
use engine::{Attached, Charges, Code, Decision, Descriptor, Outcomes, PlannedAt, SettleResult, Verdict};

use crate::settle::{Story, T0, hits, settle, summary};

mod under_load;

fn alone(limit: u64) -> String {
    format!(
        "
domain: d
descriptors:
  - key: tenant
    rate_limit: {{ unit: minute, requests_per_unit: {limit}, algorithm: concurrency }}
"
    )
}

const BESIDE_A_WINDOW: &str = "
domain: d
descriptors:
  - key: tenant
    rate_limits:
      - { name: streams, unit: minute, requests_per_unit: 2, algorithm: concurrency }
      - { name: tokens, unit: minute, requests_per_unit: 3, charging: prepaid }
";

/// Two slots, each for 60 s. The time in seconds, the step, and the answer: the slots left, the seconds until the last
/// one ends, and after `r` the wait of a denied request. Each letter is a request with its receipt. `limit 1`: from
/// here on the rule has this limit.
const ALONE: &str = "
  0   | take A    | OK 1/60
  1   | take B    | OK 0/60
  2   | take C    | OVER 0/59 r58
  3   | release A | released 1/58
  3   | release A | kept 1/58
  4   | take D    | OK 0/60
  5   | peek      | OVER 0/59 r56
 50   | renew D   | OK 0/60
 61   | take E    | OK 0/60
 61.5 | renew B   | OVER 0/59.5 r48.5
 62   | release B | kept 0/59
 63   | limit 1   |
 63   | take F    | OVER 0/58 r58
 64   | release E | released 0/46
 65   | take F    | OVER 0/45 r45
 65   | release D | released 1/0
 66   | take F    | OK 0/60
 66   | take F    | OK 0/60
 60   | peek      | OVER 0/66 r66
127   | take G    | OK 0/60
126   | renew G   | OK 0/61
188   | peek      | OK 1/0
";

/// Two slots beside three units a minute. The answer has what is left of both, and the limit that denies.
const BESIDE: &str = "
 0 | take A    | OK 1/2
 1 | take B    | OK 0/1
 2 | take C    | OVER by streams 0/1
 3 | take D    | OVER by streams 0/1
 4 | release A | released 1/1
 5 | take E    | OK 0/0
 6 | release B | released 1/0
 7 | take F    | OVER by tokens 1/0
 8 | release A | kept 1/0
60 | take G    | OK 0/2
61 | take H    | OVER by streams 0/2
65 | take I    | OK 0/1
66 | release E | kept 0/1
67 | release G | released 1/1
";

/// Plays requests of one tenant, and keeps their receipts.
struct Player<D> {
    story: Story<D>,
    entries: String,
    /// Of a take.
    units: u64,
    receipts: HashMap<String, String>,
}

impl<D: FnMut(&Charges, u64) -> Outcomes> Player<D> {
    fn new(rules: &str, (tenant, units): (&str, u64), decide: D) -> Self {
        let (entries, receipts) = (format!("tenant={tenant}"), HashMap::new());
        Self { story: Story::new(rules, decide), entries, units, receipts }
    }

    /// Plays a step and returns what it answers, or `None` for a change of the rules.
    fn step(&mut self, now_us: u64, step: &str) -> Option<Decision> {
        let (verb, name) = step.split_once(' ').unwrap_or((step, ""));
        let receipt = self.receipts.get(name).cloned();
        let descriptor = match verb {
            "limit" => {
                self.story.change_rules(&alone(name.parse().expect("a number")));
                return None;
            }
            "take" => hits(&self.entries, self.units),
            "peek" => hits(&self.entries, 0),
            "release" => settle(&self.entries, &receipt.expect("an admitted request"), 3),
            "renew" => renewal(&self.entries, &receipt.expect("an admitted request")),
            _ => panic!("{step}"),
        };
        // Each letter needs an id of its own.
        let at = PlannedAt { now_us, slot_id: name.bytes().next().unwrap_or_default().into() };
        let (decision, receipt) = self.story.play_at(at, vec![descriptor]);
        if let (Some(receipt), "take") = (receipt, verb) {
            self.receipts.insert(name.to_owned(), receipt);
        }
        Some(decision)
    }
}

pub(crate) fn renewal(entries: &str, receipt: &str) -> Descriptor {
    let attached = Some(Box::new(Attached::Renewal(receipt.parse())));
    Descriptor { attached, ..hits(entries, 1) }
}

fn rows(table: &str) -> impl Iterator<Item = (u64, &str, &str)> {
    table.trim().lines().map(|row| {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let at_s: f64 = cells[0].parse().expect("a time");
        (T0 + (at_s * 1e6) as u64, cells[1], cells[2])
    })
}

/// How a release ended; `None` for another step.
fn released(decision: &Decision) -> Option<&'static str> {
    match decision.settle(0)?.result {
        SettleResult::Returned => Some("released"),
        SettleResult::Kept => Some("kept"),
        other => panic!("{other:?}"),
    }
}

pub(crate) fn check_known_answers(tenant: &str, mut decide: impl FnMut(&Charges, u64) -> Outcomes) {
    let mut player = Player::new(&alone(2), (tenant, 7), &mut decide);
    for (now_us, step, expected) in rows(ALONE) {
        let Some(decision) = player.step(now_us, step) else { continue };
        let summary = summary(&decision);
        let answer = released(&decision).map_or(summary.clone(), |released| summary.replace("OK", released));
        assert_eq!(answer, expected, "{step} at {}", (now_us - T0) as f64 / 1e6);
    }
    let mut player = Player::new(BESIDE_A_WINDOW, (&format!("{tenant}/beside"), 1), &mut decide);
    for (now_us, step, expected) in rows(BESIDE) {
        let decision = player.step(now_us, step).expect("a request");
        let over = decision.limit_results().find(|result| result.outcome.verdict == Verdict::Over);
        let answer = match (released(&decision), over) {
            (Some(released), _) => released.to_owned(),
            (None, Some(over)) => format!("OVER by {}", over.limit.label),
            (None, None) => "OK".to_owned(),
        };
        let peek = player.step(now_us, "peek").expect("a request");
        let left: Vec<_> =
            peek.limit_results().map(|result| result.outcome.report.remaining.to_string()).collect();
        assert_eq!(format!("{answer} {}", left.join("/")), expected, "{step}");
    }
}

fn memory() -> impl FnMut(&Charges, u64) -> Outcomes {
    let store = MemoryStore::new(MemoryOptions::default(), SystemClock);
    move |charges, now_us| store.decide_at(charges, now_us)
}

#[test]
fn memory_gives_the_known_answers() {
    check_known_answers("acme", memory());
}

#[test]
fn a_request_needs_one_slot_whatever_its_hits_and_descriptors() {
    let mut story = Story::new(&alone(2), memory());
    let (decision, receipt) = story.play(T0, vec![hits("tenant=a", 5), hits("tenant=a", 9)]);
    assert_eq!(summary(&decision), "OK 1/60");
    let (decision, _) = story.play(T0, vec![settle("tenant=a", &receipt.expect("a receipt"), 0)]);
    assert_eq!((summary(&decision).as_str(), released(&decision)), ("OK 2/0", Some("released")));
}

#[test]
fn only_the_receipt_of_a_slot_releases_it() {
    let mut story = Story::new(&alone(2), memory());
    let (_, receipt) = story.play(T0, vec![hits("tenant=a", 1)]);
    let receipt = receipt.expect("a receipt");
    let refund = Descriptor { is_refund: true, ..hits("tenant=a", 1) };
    let foreign = settle("tenant=b", &receipt, 1);
    let (head, last) = receipt.split_at(receipt.len() - 1);
    let guessed = settle("tenant=a", &format!("{head}{}", if last == "1" { "2" } else { "1" }), 1);
    let unreadable = settle("tenant=a", "abc", 1);
    for (descriptor, left) in
        [(refund, "OK 1/60"), (foreign, "OK 2/0"), (guessed, "OK 1/60"), (unreadable, "OK 1/60")]
    {
        let (decision, _) = story.play(T0, vec![descriptor]);
        assert_eq!(summary(&decision), left);
    }
    let (decision, _) = story.play(T0, vec![settle("tenant=a", &receipt, 1)]);
    assert_eq!(released(&decision), Some("released"));
}

#[test]
fn a_renewal_concerns_only_slots_and_gives_no_receipt() {
    let mut player = Player::new(BESIDE_A_WINDOW, ("a", 1), memory());
    player.step(T0, "take A").expect("a request");
    let receipt = player.receipts["A"].clone();
    for (text, labels) in [(receipt.as_str(), &["streams"][..]), ("1.z", &[]), ("abc", &[])] {
        let (decision, receipt) = player.story.play(T0 + 1, vec![renewal("tenant=a", text)]);
        let found: Vec<_> = decision.limit_results().map(|result| result.limit.label.to_string()).collect();
        assert_eq!(
            (decision.overall, receipt, found),
            (Code::Ok, None, labels.iter().map(|&l| l.to_owned()).collect()),
            "{text}"
        );
    }
}

#[test]
fn a_whole_cost_takes_no_slot_because_nobody_returns_its_receipt() {
    let mut story = Story::new(&alone(1), memory());
    let whole = || Descriptor { is_whole_cost: true, ..hits("tenant=a", 1) };
    for _ in 0..3 {
        assert_eq!(summary(&story.play(T0, vec![whole()]).0), "OK 1/0");
    }
    story.play(T0, vec![hits("tenant=a", 1)]);
    assert_eq!(summary(&story.play(T0, vec![whole()]).0), "OVER 0/60 r60");
}
