//! Known answers: what each kind of decision books, on memory here and on Redis in `redis::ledger`.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ::base::clock::{Clock, ManualClock};
use ::store::deny_cache::{DenyCache, DenyCacheOptions, DenyCached};
use ::store::fallback::{Fallback, Local};
use ::store::memory::{MemoryOptions, MemoryStore};
use engine::{
    Attached, Charges, Decision, Descriptor, Effect, Enforcement, ExceptionRow, Exceptions,
    ExceptionsBuilder, Outcomes, Request, RowSource, RowTerms, RowValue, Store, StoreError,
};
use futures_util::FutureExt as _;
use parking_lot::Mutex;
use ratelimitd::decide::PauseEvents;
use ratelimitd::decide::limiter::{Limiter, Rulebook};
use ratelimitd::ledger::Ledger;
use ratelimitd::telemetry::metrics::{DeniedKeys, Metrics};

use super::{lines, options, write};
use crate::rules;
use crate::settle::hits;

/// 2026-11-30, 23:50 UTC: ten minutes before the end of the month.
pub(crate) const T0: u64 = 1_796_082_600_000_000;
const MINUTE_US: u64 = 60_000_000;

/// Number, fields of the limit besides 10 per month, what happens, the lines, and the counter at the end.
///
/// `take 3` is a request with 3 hits, `refund 2` returns 2, `check` has 0 hits. `take 3 A` keeps the receipt, `settle A
/// 8` returns it with the real cost. `beside 3`: with a limit that denies. `midnight`: 20 minutes later, so in another
/// month. `down` and `up`: the store. `block`: a row of the exceptions. `x30`: 30 times.
///
/// A line begins with the number of its quarter if it is not the first.
const ROWS: &[(&str, &str, &str, &str, u64)] = &[
    ("1", "", "take 1 x3", "ok 3 units 3", 3),
    ("2", "", "take 10, take 2", "ok 1 over 1 units 10 refused 2", 10),
    ("3", "charging: postpaid", "take 9, take 3", "ok 1 over 1 units 12", 12),
    ("4", "charging: postpaid", "take 1 x30", "ok 10 over 20 units 30", 30),
    ("5", "", "beside 3", "", 0),
    ("5 postpaid", "charging: postpaid", "beside 3", "units 3", 3),
    ("6", "", "cached, take 10, take 1, take 1, take 1", "ok 1 over 3 units 10 refused 3", 10),
    ("6 postpaid", "charging: postpaid", "cached, take 20, take 1, take 1", "over 3 units 20 refused 2", 20),
    ("7", "", "take 5, refund 2", "ok 1 units 5 back 2", 3),
    ("8", "", "take 5, refund 7", "ok 1 units 5 back 7", 0),
    ("9", "settle: true", "take 8 A, settle A 3", "ok 1 units 8 back 5", 3),
    ("10", "settle: true", "take 3 A, settle A 8", "ok 1 units 8", 8),
    ("11", "settle: true", "take 8 A, midnight, settle A 3", "ok 1 units 8", 0),
    ("12", "settle: true", "take 3 A, midnight, settle A 8", "ok 1 units 3; 2 units 5", 5),
    ("13", "settle: true", "settle ? 4", "units 4", 4),
    ("14", "settle: true", "take 3 A, down, settle A 8, up", "ok 1 units 3 unknown 5", 3),
    ("14 returned", "settle: true", "take 8 A, down, settle A 3, up", "ok 1 units 8 unknown 5", 8),
    ("15", "reserve: 3", "check, take 5, check, take 1", "ok 2 units 8 back 2", 6),
    ("15 denied", "reserve: 3", "check x4", "ok 3 over 1 units 9 refused 3", 9),
    ("16", "shadow", "take 1 x12", "shadow ok 10 over 2 units 10 refused 2", 10),
    ("17", "on_over: announce", "take 1 x35", "soft ok 10 over 25 units 35", 35),
    ("18 allow", "on_store_failure: allow", "down, take 2, up", "policy 2", 0),
    ("18 deny", "on_store_failure: deny", "down, take 2, up", "over 1 refused 2", 0),
    ("18 local", "on_store_failure: local", "down, take 2, up", "policy 2", 0),
    ("18 error", "on_store_failure: error", "down, take 2, up", "unknown 2", 0),
    ("18 refund", "on_store_failure: allow", "take 5, down, refund 2, up", "ok 1 units 5 unknown 2", 5),
    ("19", "", "block, take 1", "over 1 refused 1", 0),
    ("19 shadow", "shadow", "block, take 1", "over 1 refused 1", 0),
    ("19 zero", "zero", "take 1", "over 1 refused 1", 0),
    ("19 zero, postpaid", "zero, charging: postpaid", "take 1, refund 1", "over 1 refused 1", 0),
    ("20 exempt", "", "exempt, take 1", "", 0),
    ("20 unlimited", "unlimited", "take 1", "", 0),
    ("20 peek", "", "check, take 10, check", "ok 1 units 10", 10),
    ("21", "process in shadow mode", "take 10, take 1", "ok 1 over 1 units 10 refused 1", 10),
    ("22 larger", "", "limit 20, take 15", "of 20 ok 1 units 15", 15),
];

/// A store that decides by a function, and can be away.
pub(crate) struct Played<D> {
    decide: Mutex<D>,
    clock: Arc<ManualClock>,
    is_down: Arc<AtomicBool>,
}

impl<D: FnMut(&Charges, u64) -> Outcomes + Send> Store for Played<D> {
    async fn decide(&self, charges: &Charges) -> Result<Outcomes, StoreError> {
        if self.is_down.load(Ordering::Relaxed) {
            return Err(StoreError::Timeout);
        }
        Ok((self.decide.lock())(charges, self.clock.now_us()))
    }
}

pub(crate) type Layered<D> = Fallback<DenyCached<Played<D>, Arc<ManualClock>>, Arc<ManualClock>>;

pub(crate) struct Story<D> {
    pub(crate) limiter: Limiter<Layered<D>>,
    pub(crate) clock: Arc<ManualClock>,
    is_down: Arc<AtomicBool>,
    receipts: HashMap<String, String>,
    value: String,
}

/// The limit of a row, and one that denies everything.
fn rule_text(fields: &str) -> String {
    let (shadow, fields) = match fields.strip_prefix("shadow") {
        Some(rest) => ("shadow_mode: true, ", rest),
        None => ("", fields),
    };
    let limit = match fields {
        "unlimited" => "unlimited: true".to_owned(),
        "process in shadow mode" | "" => month(10, ""),
        _ => match fields.strip_prefix("zero") {
            Some(rest) => month(0, rest.trim_start_matches(", ")),
            None => month(10, fields),
        },
    };
    let denying = "{ key: closed, rate_limit: { unit: day, requests_per_unit: 0 } }";
    format!(
        "domain: d\ndescriptors:\n  - {{ key: k, {shadow}rate_limit: {{ name: l, ledger: true, {limit} }} }}\n  - {denying}\n"
    )
}

fn month(number: u64, fields: &str) -> String {
    let fields = if fields.is_empty() { String::new() } else { format!(", {fields}") };
    format!("unit: month, requests_per_unit: {number}, algorithm: fixed_window, calendar: UTC{fields}")
}

impl<D: FnMut(&Charges, u64) -> Outcomes + Send> Story<D> {
    /// `limits`: a rule file with the domain `d` and the key `k`. A story has a deny cache if it is `cached`.
    pub(crate) fn new(limits: &str, steps: &str, value: String, decide: D) -> (Self, Arc<Ledger>) {
        let clock = Arc::new(ManualClock::at(T0));
        let (is_down, max_age) = (Arc::<AtomicBool>::default(), u64::from(steps.contains("cached")) * 3_600);
        let below =
            Played { decide: Mutex::new(decide), clock: Arc::clone(&clock), is_down: Arc::clone(&is_down) };
        let cache = DenyCache::new(DenyCacheOptions {
            max_age: Duration::from_secs(max_age),
            max_keys: 100,
            store_reserves: false,
        });
        let memory = MemoryStore::new(MemoryOptions::default(), Arc::clone(&clock));
        let local = Local { store: Arc::new(memory), instances: Arc::default() };
        let store = Fallback::new(DenyCached::new(below, Some((Arc::new(cache), Arc::clone(&clock)))), local);
        let metrics = Metrics::new(800_000).expect("the metrics have different names");
        let ledger = Arc::new(Ledger::new(Arc::clone(&clock) as Arc<dyn Clock>, 1_000));
        let limiter = Limiter {
            rulebook: Arc::new(Rulebook::new(rules::rules(limits), metrics)),
            store,
            enforcement: Enforcement::Enforce,
            clock: Arc::clone(&clock) as Arc<dyn Clock>,
            denied: DeniedKeys::default(),
            ledger: ledger.worker(),
            notices: ratelimitd::notify::WorkerNotices::default(),
            pauses: PauseEvents::default(),
        };
        (Self { limiter, clock, is_down, receipts: HashMap::new(), value }, ledger)
    }

    /// `None` if the request failed.
    fn decide(&self, descriptors: Vec<Descriptor>) -> Option<Decision> {
        let request = Request { descriptors, ..rules::request("d", &[]) };
        self.limiter.decide(&request, Decision::clone).now_or_never().expect("an answer at once").ok()
    }

    pub(crate) fn step(&mut self, step: &str) {
        let words: Vec<&str> = step.split(' ').collect();
        let number = |text: &str| text.parse::<u64>().expect("a number");
        let entry = format!("k={}", self.value);
        let of = |units: &str| hits(&entry, number(units));
        match words[..] {
            [.., times] if times.starts_with('x') => {
                let once = step.rsplit_once(' ').expect("a step").0;
                (0..number(&times[1..])).for_each(|_| self.step(once));
            }
            ["take", units] => drop(self.decide(vec![of(units)])),
            ["take", units, name] => {
                let decision = self.decide(vec![of(units)]).expect("the store answers");
                let receipt = decision.receipt(|| 1).expect("a receipt").to_string();
                self.receipts.insert(name.to_owned(), receipt);
            }
            ["settle", name, actual] => {
                let receipt = self.receipts.get(name).map_or("?", String::as_str).parse();
                let settle =
                    Descriptor { attached: Some(Box::new(Attached::Receipt(receipt))), ..of(actual) };
                drop(self.decide(vec![settle]));
            }
            ["refund", units] => drop(self.decide(vec![Descriptor { is_refund: true, ..of(units) }])),
            ["check"] => drop(self.decide(vec![of("0")])),
            ["beside", units] => drop(self.decide(vec![of(units), hits("closed=x", 1)])),
            ["wait", minutes] => self.clock.set(self.clock.now_us() + number(minutes) * MINUTE_US),
            ["midnight"] => self.clock.set(T0 + 20 * MINUTE_US),
            ["down"] => self.is_down.store(true, Ordering::Relaxed),
            ["up"] => self.is_down.store(false, Ordering::Relaxed),
            ["block"] => self.except(Effect { block: true, ..Effect::default() }),
            ["exempt"] => self.except(Effect { exempt: true, ..Effect::default() }),
            ["limit", limit] => self.except(Effect { limit: Some(number(limit)), ..Effect::default() }),
            ["cached"] => {}
            _ => panic!("no step {step}"),
        }
    }

    fn except(&self, effect: Effect) {
        let row = ExceptionRow {
            source: RowSource::File { file: "rows.yaml".into(), line: 1 },
            value: RowValue::Exact(self.value.as_str().into()),
            from_us: None,
            until_us: None,
            terms: RowTerms { key: "k".into(), effect, ..RowTerms::default() }.into(),
        };
        let mut builder = ExceptionsBuilder::new(&Exceptions::default());
        builder.add_row(row);
        let exceptions = builder.build(&Exceptions::default(), |_| {});
        drop(self.limiter.rulebook.replace_exceptions(Arc::new(exceptions)));
    }

    /// Units of the counter, by a request that books nothing.
    fn counter(&self) -> u64 {
        let question = Descriptor { is_refund: true, ..hits(&format!("k={}", self.value), 0) };
        let decision = self.decide(vec![question]).expect("the store answers");
        let counter = decision.limit_results().next().map(|result| {
            let report = result.outcome.report;
            let capacity = if result.limit.has_counter() { result.limit.spec.requests_per_unit } else { 0 };
            capacity - report.remaining + report.over_by
        });
        counter.unwrap_or_default()
    }
}

/// The lines of sums, as the table has them.
fn booked(ledger: &Arc<Ledger>, entry: &str) -> String {
    let directory = tempfile::tempdir().expect("a directory");
    write(ledger, options(directory.path()));
    let mut texts = Vec::new();
    for line in lines(directory.path()).iter().filter(|line| line.at > 0) {
        assert_eq!((&*line.domain, &*line.rule, &*line.entries), ("d", "l", &[entry.into()][..]));
        let quarter = 1 + (line.at - T0 / 1_000_000 / 900 * 900) / 900;
        let mut words = vec![if quarter > 1 { quarter.to_string() } else { String::new() }];
        words.push(line.mode.to_string());
        let numbers = [
            ("of", if line.of == 10 || line.of == 0 { 0 } else { line.of }),
            ("ok", line.ok),
            ("over", line.over),
            ("units", line.units),
            ("back", line.back),
            ("refused", line.refused),
            ("policy", line.policy),
            ("unknown", line.unknown),
        ];
        words.extend(
            numbers.iter().filter(|(_, number)| *number > 0).map(|(name, number)| format!("{name} {number}")),
        );
        words.retain(|word| !word.is_empty());
        texts.push(words.join(" "));
    }
    assert_eq!(ledger.stats().difference, 0);
    texts.join("; ")
}

/// Plays each row of the table on its own counter.
pub(crate) fn check_known_answers(mut decide: impl FnMut(&Charges, u64) -> Outcomes + Send) {
    let mut problems = Vec::new();
    for (number, fields, steps, lines, counter) in ROWS {
        let value = number.replace([' ', ','], "-");
        let (mut story, ledger) = Story::new(&rule_text(fields), steps, value.clone(), &mut decide);
        if *fields == "process in shadow mode" {
            story.limiter.enforcement = Enforcement::Shadow;
        }
        steps.split(", ").for_each(|step| story.step(step));
        let (booked, units) = (booked(&ledger, &format!("k={value}")), story.counter());
        if booked != *lines || units != *counter {
            problems.push(format!("row {number}: {booked:?} and {units}, not {lines:?} and {counter}"));
        }
    }
    assert!(problems.is_empty(), "{problems:#?}");
}

#[test]
fn memory_gives_the_known_answers() {
    let clock = Arc::new(ManualClock::at(T0));
    let memory = MemoryStore::new(MemoryOptions::default(), Arc::clone(&clock));
    check_known_answers(|charges, now_us| {
        clock.set(now_us);
        memory.decide(charges).now_or_never().expect("memory answers at once").expect("memory always answers")
    });
}
