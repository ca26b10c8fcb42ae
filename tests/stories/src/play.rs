//! Plays a story: the engine plans each call by the rules in force and by the clock of its process, and a store
//! decides it at the store's time. A settle is a decision of its own, as in the service.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::sync::Arc;

use engine::{
    Applied, Attached, Caller, Charging, Decision, Defaults, Descriptor, Enforcement, Entry, Exceptions,
    HashKey, LimitOverride, LimitResult, LiveRows, Outcomes, Period, Plan, Request, Role, RuleSet, Unit,
    ValueHashing,
};
use jiff::Timestamp;
use rules::{
    AppliedUpgrades, CalendarOptions, CalendarYears, Description, ExceptionScope, LoadOptions,
    LoadedExceptions, RuleDirectory, describe, load_exceptions, load_stream,
};
use serde_json::Value;
use simulate::replay::ReplayStore;

use crate::answer::{Answer, Numbers, Status};
use crate::story::{Ask, Call, Returned, Row, RowFile, RuleFile, Step, Story, text_of};

/// An answer, and facts about its charges that no caller sees.
#[derive(Clone, Debug)]
pub struct Played {
    pub answer: Answer,
    /// One for each of `answer.charges`.
    pub facts: Vec<Fact>,
    /// What `explain` says of the request.
    pub explained: Description,
}

#[derive(Clone, Debug)]
pub struct Fact {
    pub key: String,
    /// The kernel with all its numbers.
    pub kernel: String,
    pub kind: &'static str,
    pub is_prepaid: bool,
    pub is_settle: bool,
    pub is_quota: bool,
    pub has_settle: bool,
    pub has_reserve: bool,
}

/// Why a story cannot be played: its rules, its rows or a request are not valid, or the store does not answer.
#[derive(Clone, Debug)]
pub struct Unplayable(pub String);

/// The answers to the calls of a story, in order.
///
/// # Errors
/// [`Unplayable`].
pub fn play(story: &Story, store: &mut impl ReplayStore) -> Result<Vec<Played>, Unplayable> {
    let mut player = Player {
        years: years(story),
        rules: HashMap::new(),
        exceptions: Arc::default(),
        receipts: HashMap::new(),
        now_us: story.start_us,
        skews_us: [0; 2],
    };
    player.set_rules(&story.rules)?;
    let mut played = Vec::new();
    for step in &story.steps {
        match step {
            Step::Clock(by_us) => player.now_us = player.now_us.saturating_add_signed(*by_us),
            Step::Skew { process, by_us } => player.skews_us[process % 2] = *by_us,
            Step::Rules(files) => player.set_rules(files)?,
            Step::Rows(files) => player.exceptions = exceptions(files)?,
            Step::Call(call) => played.extend(player.call(call, store)?),
        }
    }
    Ok(played)
}

struct Player {
    years: CalendarYears,
    /// By domain.
    rules: HashMap<String, RuleSet>,
    exceptions: Arc<Exceptions>,
    /// The receipts of the answers, by the ids of the calls.
    receipts: HashMap<u32, String>,
    now_us: u64,
    skews_us: [i64; 2],
}

impl Player {
    fn set_rules(&mut self, files: &[RuleFile]) -> Result<(), Unplayable> {
        let load = |file: &RuleFile| Ok((file.domain.clone(), loaded(file, self.years)?));
        self.rules = files.iter().map(load).collect::<Result<_, _>>()?;
        Ok(())
    }

    /// `None` if no descriptor is left, because receipts are missing.
    fn call(&mut self, call: &Call, store: &mut impl ReplayStore) -> Result<Option<Played>, Unplayable> {
        let descriptors = call.descriptors.iter().filter_map(|ask| self.descriptor(ask).transpose());
        let descriptors = descriptors.collect::<Result<Vec<_>, _>>()?;
        if descriptors.is_empty() {
            return Ok(None);
        }
        let (domain, hits_addend, caller) = (call.domain.clone(), call.hits_addend, Caller::default());
        let request = Request { domain, hits_addend, descriptors, caller };
        let plan_us = self.now_us.saturating_add_signed(self.skews_us[call.process % 2]);
        let rules = match self.rules.get(&call.domain) {
            Some(rules) => rules.with_exceptions(Arc::clone(&self.exceptions), &LiveRows::default()),
            None => RuleSet::empty(),
        };
        let plan = Plan::new(&rules, &request, plan_us).map_err(|error| Unplayable(error.to_string()))?;
        let explained = describe(&rules, &AppliedUpgrades::default(), &request, plan_us);
        let explained = explained.map_err(|error| Unplayable(error.to_string()))?;
        let outcomes = self.decide(&plan, store)?;
        let decision = Decision::merge(plan, outcomes, Enforcement::Enforce);
        let receipt = decision.receipt(|| call.id.into());
        let answer = answer_of(call.id, &decision, receipt.is_some());
        self.receipts.extend(receipt.map(|receipt| (call.id, receipt.to_string())));
        Ok(Some(Played { answer, facts: facts_of(&decision), explained }))
    }

    fn decide(&self, plan: &Plan, store: &mut impl ReplayStore) -> Result<Outcomes, Unplayable> {
        let mut decide = |requests: &[_]| {
            let requests: Vec<_> = requests.iter().map(|charges| (self.now_us, *charges)).collect();
            store.decide(&requests).map_err(|error| Unplayable(error.to_string()))
        };
        if !plan.has_settles() {
            return Ok(decide(&[&plan.charges])?.into_iter().next().unwrap_or_default());
        }
        let parts = plan.charges.parts();
        let decided = decide(&parts.iter().map(|part| &part.charges).collect::<Vec<_>>())?;
        Ok(Outcomes::of_parts(parts.iter().zip(decided)))
    }

    /// `None` if the receipt is missing.
    fn descriptor(&self, ask: &Ask) -> Result<Option<Descriptor>, Unplayable> {
        let receipt = match &ask.receipt {
            Some(Returned::Of(id)) => match self.receipts.get(id) {
                Some(text) => Some(text.as_str()),
                None => return Ok(None),
            },
            Some(Returned::Text(text)) => Some(text.as_str()),
            None => None,
        };
        let entry = |(key, value): &(String, String)| Entry { key: key.clone(), value: value.clone() };
        let limit = ask.limit.as_ref().map(|own| {
            let unit: Option<Unit> = own.unit.parse().ok();
            let period = unit.and_then(|unit| Period::new(unit, own.unit_multiplier.unwrap_or(1)));
            let period = period.ok_or_else(|| Unplayable(format!("no unit: {}", own.unit)))?;
            Ok(LimitOverride { requests_per_unit: own.requests_per_unit, period })
        });
        Ok(Some(Descriptor {
            entries: ask.entries.iter().map(entry).collect(),
            limit: limit.transpose()?,
            hits: ask.hits,
            is_refund: ask.refund,
            is_whole_cost: false,
            is_hold: false,
            attached: receipt.map(|text| Box::new(Attached::Receipt(text.parse()))),
        }))
    }
}

/// The label of a limit, without the digits of hashes of secret values: the model has no key for them.
fn label_of(limit: &engine::Limit) -> String {
    let mut parts = limit.label.split("%k");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |label, part| label + "%k" + part.get(HASH_DIGITS..).unwrap_or(part))
}

/// The digits of a hash in a label.
const HASH_DIGITS: usize = 32;

fn answer_of(id: u32, decision: &Decision, has_receipt: bool) -> Answer {
    let status = |status: engine::Status<'_>| {
        let is_over = status.code == engine::Code::OverLimit;
        let (label, remaining) = match status.applied {
            Applied::Nothing | Applied::Paused(..) => return None,
            Applied::Unlimited(limit) => (label_of(limit), None),
            Applied::Limited(result) => (label_of(result.limit), Some(result.outcome.report.remaining)),
        };
        Some(Status { is_over, label, remaining })
    };
    let results = decision.charges().map(|(_, result)| result);
    let mut announced = BTreeMap::new();
    for result in decision.limit_results() {
        if let Some(found) = result.announced() {
            let name: &mut String = announced.entry(label_of(result.limit)).or_default();
            // `over` is more severe than `near`.
            *name = std::mem::take(name).max(found.into_str().to_owned());
        }
    }
    Answer {
        id,
        is_over: decision.overall == engine::Code::OverLimit,
        retry_after_us: decision.retry_after().us(),
        statuses: decision.statuses().map(status).collect(),
        charges: results.map(|result| numbers_of(&result)).collect(),
        announced,
        has_receipt,
    }
}

fn numbers_of(result: &LimitResult<'_>) -> Numbers {
    let report = result.outcome.report;
    Numbers {
        label: label_of(result.limit),
        is_over: result.outcome.verdict == engine::Verdict::Over,
        remaining: report.remaining,
        retry_after_us: report.retry_after.us(),
        reset_after_us: report.reset_after_us,
        next_after_us: report.next_after_us,
        delay_us: report.delay_us,
        until_reset_us: report.until_reset_us,
    }
}

fn facts_of(decision: &Decision) -> Vec<Fact> {
    let charges = decision.charges();
    let fact = |charged: engine::ChargedLimit<'_>| {
        let (key, kernel) = decision.charged_counter(charged.index);
        let spec = &charged.limit.spec;
        Fact {
            key: key.to_owned(),
            kernel: kernel.to_string(),
            kind: kind_of(&kernel),
            is_prepaid: spec.charging == Charging::Prepaid,
            is_settle: charged.role == Role::Settle,
            is_quota: matches!(charged.role, Role::Quota(_) | Role::IdleQuota),
            has_settle: spec.settle,
            has_reserve: spec.reserve.is_some(),
        }
    };
    charges.map(|(charged, _)| fact(charged)).collect()
}

/// The names of all kernels.
pub const KINDS: [&str; 7] = [
    "fixed window",
    "calendar window",
    "sliding window",
    "sliding log",
    "gcra",
    "interval bucket",
    "blocked",
];

fn kind_of(kernel: &engine::algorithm::Kernel) -> &'static str {
    use engine::algorithm::Kernel;
    KINDS[match kernel {
        Kernel::FixedWindow(_) => 0,
        Kernel::CalendarWindow(_) => 1,
        Kernel::SlidingWindow(_) => 2,
        Kernel::SlidingLog(_) => 3,
        Kernel::Gcra(_) => 4,
        Kernel::IntervalBucket(_) => 5,
        Kernel::Slots(_) => unreachable!("stories have no slots"),
        Kernel::Blocked(_) => 6,
    }]
}

/// The years of a story's calendars, one more on each side.
fn years(story: &Story) -> CalendarYears {
    let (first_us, last_us, skew_us) = story.times_us();
    let year = |us: u64| 1970 + i16::try_from(us / 31_556_952_000_000).unwrap_or(400);
    let first = year(first_us.saturating_sub(skew_us)) - 2;
    CalendarYears { first: first.max(1970), last: year(last_us + skew_us) + 2 }
}

type RuleCache = HashMap<(String, i16, i16), Result<RuleSet, Unplayable>>;

thread_local! {
    /// A relation plays the same rules several times, and reading them takes longer than the calls.
    static LOADED: RefCell<RuleCache> = RefCell::default();
}

const MOST_LOADED: usize = 64;

fn loaded(file: &RuleFile, years: CalendarYears) -> Result<RuleSet, Unplayable> {
    let text = text_of(file);
    LOADED.with_borrow_mut(|cache| {
        if cache.len() > MOST_LOADED {
            cache.clear();
        }
        let load = |(text, ..): &(String, i16, i16)| {
            let options = LoadOptions {
                merge_domains: false,
                defaults: Defaults::ENVOY_RATELIMIT,
                upgrades: Vec::new(),
                hashing: ValueHashing { key: Some(HashKey::new(b"a key of stories")), all_values: false },
                directory: RuleDirectory::default(),
                calendars: CalendarOptions::new(years),
                has_home: false,
            };
            let loaded = load_stream("rules.yaml", text.as_bytes(), options);
            loaded.map(rules::LoadedRules::into_rules).map_err(|problems| Unplayable(problems.to_string()))
        };
        cache.entry((text, years.first, years.last)).or_insert_with_key(load).clone()
    })
}

fn exceptions(files: &[RowFile]) -> Result<Arc<Exceptions>, Unplayable> {
    let folder = tempfile::tempdir().map_err(|error| Unplayable(error.to_string()))?;
    for file in files {
        let text = if file.name.ends_with(".csv") { csv(&file.rows) } else { yaml(&file.rows) };
        fs::write(folder.path().join(&file.name), text).map_err(|error| Unplayable(error.to_string()))?;
    }
    let scope = ExceptionScope { now_us: 0, entries: None, columns: None };
    let loaded = load_exceptions(folder.path(), scope, &LoadedExceptions::default());
    Ok(loaded.map_err(|problems| Unplayable(problems.to_string()))?.exceptions)
}

fn csv(rows: &[Row]) -> String {
    let quoted = |text: &str| format!("\"{}\"", text.replace('"', "\"\""));
    let line = |row: &Row| {
        let tier = row.tier.as_deref().unwrap_or_default();
        [&row.domain, &row.key, &row.value, tier].map(quoted).join(",")
    };
    let lines = rows.iter().map(line);
    ["domain,key,value,tier".to_owned()].into_iter().chain(lines).map(|line| line + "\n").collect()
}

/// YAML: JSON with the start and the end of each row as times.
fn yaml(rows: &[Row]) -> String {
    let mut rows: Vec<Value> =
        rows.iter().filter_map(|row| serde_json::from_str(&text_of(row)).ok()).collect();
    for row in &mut rows {
        for name in ["from", "until"] {
            let Some(time) = row.get_mut(name) else { continue };
            let us = time.as_i64().unwrap_or_default();
            *time = Timestamp::from_microsecond(us).map(|time| time.to_string()).unwrap_or_default().into();
        }
    }
    Value::Array(rows).to_string()
}
