//! Plays one recipe: decides its requests at their times and compares the answers.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::simulate::replay::ReplayStore;
use engine::{
    Applied, Attached, Caller, Code, Decision, Descriptor, Enforcement, LimitResult, LiveRows, Plan,
    PlannedAt, Receipt, Request, RuleSet, Status,
};
use rules::{ExceptionScope, LoadedExceptions, check_against_rules, load, load_exceptions};

use super::step::{self, NO_EXCEPTIONS, Step};
use crate::rules::{REFERENCE, descriptor};

/// Plays the recipe, and returns the differences.
pub fn play(folder: &Path, name: &str, store: &mut impl ReplayStore) -> Vec<String> {
    let (rules, domain) = rules_of(&folder.join(name).with_extension("yaml"));
    let path = folder.join("requests").join(name).with_extension("yaml");
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let steps = step::read(&text);
    assert!(steps.len() > 1, "{name} has {} steps", steps.len());
    let mut differences = Vec::new();
    let folder = folder.join("exceptions");
    let mut play = Play { rules, domain, store, folder, exceptions: None, receipts: HashMap::new() };
    for (number, step) in (1..).zip(&steps) {
        for difference in play.step(step) {
            differences.push(format!("{name}, step {number} ({}): {difference}", step.say));
        }
    }
    differences
}

/// The rules of the file, and the name of its domain.
pub fn rules_of(path: &Path) -> (RuleSet, String) {
    let loaded = load(&[path.to_owned()], REFERENCE).unwrap_or_else(|problems| panic!("{problems}"));
    assert_eq!(loaded.warnings.all(), [], "{}", path.display());
    (loaded.rules, loaded.specs[0].domain.clone())
}

/// A recipe while it is played.
struct Play<'s, S> {
    rules: RuleSet,
    domain: String,
    store: &'s mut S,
    /// The folder of the exceptions, and the ones in force.
    folder: PathBuf,
    exceptions: Option<PathBuf>,
    receipts: HashMap<String, Receipt>,
}

/// The exceptions in force at `now_us`: the service, too, removes rows whose `until` has come.
fn exceptions_at(path: &Path, now_us: u64) -> LoadedExceptions {
    let scope = ExceptionScope { now_us, entries: None, columns: None };
    load_exceptions(path, scope, &LoadedExceptions::default()).unwrap_or_else(|problems| panic!("{problems}"))
}

impl<S: ReplayStore> Play<'_, S> {
    /// Sends the request of the step, and returns the differences of its answers.
    fn step(&mut self, step: &Step) -> Vec<String> {
        let request = self.request(step);
        let rules = self.rules_in_force(step);
        let mut differences = Vec::new();
        for sent in 1..=step.repeat {
            // Each request needs slots of its own.
            let at = PlannedAt { now_us: step.at_us, slot_id: step.at_us + sent };
            let plan = Plan::new(&rules, &request, at).expect("a plan");
            let outcomes = self.store.decide(&[(step.at_us, &plan.charges)]).expect("the store answers");
            let [outcomes] = outcomes.try_into().expect("one request");
            let decision = Decision::merge(plan, outcomes, Enforcement::Enforce);
            if decision.overall.into_str() != step.answer {
                differences.push(format!("request {sent} is {}", decision.overall.into_str()));
            } else if sent == step.repeat {
                differences.extend(compare(step, &decision));
            }
            if let Some(name) = &step.hold {
                let receipt = decision.receipt_of_hold(|| self.receipts.len() as u64);
                self.receipts.insert(name.clone(), receipt.expect("a hold"));
            }
            if let Some(name) = &step.receipt {
                let receipt = decision.receipt(|| self.receipts.len() as u64);
                self.receipts.insert(name.clone(), receipt.expect("the answer has a receipt"));
            }
        }
        differences
    }

    /// The rules with the exceptions in force at the time of the step.
    fn rules_in_force(&mut self, step: &Step) -> RuleSet {
        if let Some(name) = &step.exceptions {
            self.exceptions = (name != NO_EXCEPTIONS).then(|| self.folder.join(name));
            if let Some(path) = &self.exceptions {
                let warnings = check_against_rules(&exceptions_at(path, step.at_us), &self.rules);
                assert_eq!(warnings.all(), [], "{}", path.display());
            }
        }
        let Some(path) = &self.exceptions else { return self.rules.clone() };
        self.rules
            .with_exceptions(Arc::clone(&exceptions_at(path, step.at_us).exceptions), &LiveRows::default())
    }

    fn request(&self, step: &Step) -> Request {
        let receipt = step.settle.as_ref().map(|name| &self.receipts[name]);
        let descriptor = |text: &String| Descriptor {
            hits: step.hits,
            attached: receipt.map(|receipt| Box::new(Attached::Receipt(Ok(receipt.clone())))),
            ..descriptor(text)
        };
        let descriptors = step.ask.iter().map(descriptor).collect();
        let domain = self.domain.clone();
        let mut request = Request { domain, hits_addend: 1, descriptors, caller: Caller::default() };
        if step.hold.is_some() || step.commit.is_some() {
            request.set_hold(step.commit.as_ref().map(|name| &self.receipts[name]));
        }
        request
    }
}

fn compare(step: &Step, decision: &Decision) -> Vec<String> {
    let mut differences = Vec::new();
    let left: Vec<String> = decision.statuses().map(|status| left(&status)).collect();
    if !step.left.is_empty() && left != step.left {
        differences.push(format!("left: {left:?}"));
    }
    let announced = announced(decision);
    if step.announced.as_ref().is_some_and(|expected| *expected != announced) {
        differences.push(format!("announce: {announced:?}"));
    }
    for (name, expected, actual) in
        [("retry", step.retry_us, retry_us(decision)), ("delay", step.delay_us, delay_us(decision))]
    {
        if expected.is_some_and(|expected| expected != actual) {
            differences.push(format!("{name}: {actual} us"));
        }
    }
    differences
}

fn left(status: &Status<'_>) -> String {
    match status.applied {
        Applied::Nothing => "none".to_owned(),
        Applied::Unlimited(_) => "unlimited".to_owned(),
        Applied::Paused(..) => "paused".to_owned(),
        Applied::Limited(result) => result.outcome.report.remaining.to_string(),
    }
}

/// The announced limits in the order of the rule.
fn announced(decision: &Decision) -> Vec<String> {
    let announced =
        |result: LimitResult<'_>| Some(format!("{};{}", result.limit.label, result.announced()?.into_str()));
    decision.limit_results().filter_map(announced).collect()
}

fn retry_us(decision: &Decision) -> u64 {
    let over = decision.statuses().filter(|status| status.code == Code::OverLimit);
    let retries = over.filter_map(|status| match status.applied {
        Applied::Limited(result) => result.outcome.report.retry_after.us(),
        _ => None,
    });
    retries.max().unwrap_or(0)
}

fn delay_us(decision: &Decision) -> u64 {
    decision.limit_results().map(|result| result.outcome.report.delay_us).max().unwrap_or(0)
}
