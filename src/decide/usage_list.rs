//! Lists a rule's most used counters, for operators. It finds keys page by page, reads a few counters at a time, and
//! rests after each step, so that a decision waits for one short step at most.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use engine::{
    Descriptor, Entry, Limit, Listing, Node, ParsedKey, Quantity, RuleId, RuleSet, Store, StoreError,
    key_start, parse_key,
};
use rules::utc_text;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::NoDecision;
use super::counters::{AppliedLimit, CounterService, Peeks};
use super::usage::LimitUsage;

/// Most counters in a list: bounds its memory.
pub const MOST_LISTED: usize = 10_000;
/// A call reads pages for this long, then answers with a cursor.
const CALL: Duration = Duration::from_secs(1);
/// The rest after a step, in durations of that step: a list uses at most a sixteenth of a core and of a server. No rest
/// is longer than [`CALL`], because the caller waits.
const REST: u32 = 15;
/// Counters read with one call of the store.
const READ_TOGETHER: usize = 16;

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UsageListRequest {
    pub domain: String,
    /// Name of a limit, or path of a rule, with or without the domain.
    pub rule: String,
    /// At most [`MOST_LISTED`].
    #[serde(default = "default_top")]
    pub top: usize,
    /// Of the last answer; `None` starts a list.
    #[serde(default)]
    pub cursor: Option<String>,
}

fn default_top() -> usize {
    50
}

/// A part of a list.
#[derive(Debug, Serialize)]
pub struct UsageList {
    /// What the request names.
    pub limits: Vec<NamedLimit>,
    /// The most used ones in this call, the most used one first.
    pub counters: Vec<ListedCounter>,
    /// Counters of the rule that this call read, some perhaps twice.
    pub seen: u64,
    /// Counters whose descriptor is too long for the key, so that nobody can tell their limit.
    pub unknown: u64,
    /// For the next call; `None` if the list is complete.
    pub cursor: Option<String>,
    /// When this call read its first counter: none of its numbers is older.
    pub oldest_at: String,
    pub took_ms: u64,
}

#[derive(Debug, Serialize)]
pub struct NamedLimit {
    pub name: String,
    pub algorithm: &'static str,
    pub ledger: bool,
}

#[derive(Clone, Debug, Serialize)]
pub struct ListedCounter {
    /// Without the store's prefix.
    pub key: String,
    /// A value may be a hash, or the pattern of values that share the counter.
    pub entries: Vec<Entry>,
    #[serde(flatten)]
    pub usage: LimitUsage,
}

#[derive(Debug, thiserror::Error)]
pub enum UsageListError {
    #[error("no limit of domain {domain:?} has the name {rule:?}, and no rule has this path")]
    NoRule { domain: String, rule: String },
    #[error("`top` is {0}; it must be 1 to {MOST_LISTED}")]
    Top(usize),
    #[error("the cursor belongs to no server of the store; start the list again without it")]
    Cursor,
    #[error(transparent)]
    NoDecision(#[from] NoDecision),
}

impl From<StoreError> for UsageListError {
    fn from(error: StoreError) -> Self {
        Self::NoDecision(error.into())
    }
}

/// A limit to list the counters of.
struct ListedLimit<'r> {
    domain: &'r str,
    limit: &'r Arc<Limit>,
    rule: &'r Arc<str>,
    /// From the domain's root to the rule.
    path: Vec<&'r Node>,
}

/// Reads a part of a list. Changes nothing.
///
/// # Errors
/// [`UsageListError`] if the request names no rule, or the store does not answer; its cursor is then still valid.
pub async fn list_usage<S: Store + Listing>(
    service: &CounterService<S>,
    request: &UsageListRequest,
) -> Result<UsageList, UsageListError> {
    if !(1..=MOST_LISTED).contains(&request.top) {
        return Err(UsageListError::Top(request.top));
    }
    let (rules, began, now_us) = (service.rulebook.rules(), Instant::now(), service.clock.now_us());
    let limits = listed_limits(&rules, request);
    if limits.is_empty() {
        let UsageListRequest { domain, rule, .. } = request.clone();
        return Err(UsageListError::NoRule { domain, rule });
    }
    let named = limits.iter().map(|ListedLimit { limit, .. }| NamedLimit {
        name: limit.label.to_string(),
        algorithm: limit.spec.algorithm.into_str(),
        ledger: limit.spec.ledger,
    });
    let mut list = UsageList {
        limits: named.collect(),
        counters: Vec::new(),
        seen: 0,
        unknown: 0,
        cursor: request.cursor.clone(),
        oldest_at: utc_text(now_us),
        took_ms: 0,
    };
    let start = key_start(&request.domain);
    let rest = async |step: Instant| tokio::time::sleep(CALL.min(step.elapsed() * REST)).await;
    loop {
        let step = Instant::now();
        let page = service.store.list(&start, list.cursor.as_deref()).await?;
        let page = page.ok_or(UsageListError::Cursor)?;
        rest(step).await;
        for keys in page.keys.chunks(READ_TOGETHER) {
            let step = Instant::now();
            read_listed(service, keys, (&limits, &rules), &mut list).await?;
            if list.counters.len() >= 2 * request.top {
                keep_most_used(&mut list.counters, request.top);
            }
            rest(step).await;
        }
        list.cursor = page.next;
        if list.cursor.is_none() || began.elapsed() >= CALL {
            break;
        }
    }
    keep_most_used(&mut list.counters, request.top);
    list.took_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    Ok(list)
}

async fn read_listed<S: Store>(
    service: &CounterService<S>,
    keys: &[String],
    (limits, rules): (&[ListedLimit<'_>], &RuleSet),
    list: &mut UsageList,
) -> Result<(), UsageListError> {
    let (mut peeks, mut found) = (Peeks::default(), Vec::new());
    let now_us = service.clock.now_us();
    for key in keys {
        let Some(parsed) = parse_key(key) else { continue };
        let mut of_limits = limits.iter();
        let applied = of_limits.find_map(|limit| limit.applied(rules, &parsed, now_us));
        let kernel = applied.as_ref().and_then(|(applied, _)| applied.limit.kernel_at(now_us));
        if let (Some((applied, is_denied)), Some(kernel)) = (applied, kernel) {
            let applied = AppliedLimit { peek: Some(peeks.peek(key, kernel)), ..applied };
            found.push((key, parsed, applied, is_denied));
        } else if parsed.tail.is_some() && limits.iter().any(|limit| limit.may_have(&parsed.fingerprint)) {
            list.unknown += 1;
        }
    }
    if found.is_empty() {
        return Ok(());
    }
    let outcomes = service.store.decide(&peeks.charges).await?;
    list.seen += found.len() as u64;
    let counters = found.into_iter().map(|(key, parsed, applied, is_denied)| {
        let mut usage = LimitUsage::new(&applied, peeks.read(&applied, &outcomes));
        if is_denied {
            usage = usage.denied();
        }
        ListedCounter { key: key.clone(), entries: parsed.to_entries(), usage }
    });
    list.counters.extend(counters);
    Ok(())
}

/// Finds the limits that a list names.
fn listed_limits<'r>(rules: &'r RuleSet, request: &UsageListRequest) -> Vec<ListedLimit<'r>> {
    let Some(domain) = rules.domain(&request.domain) else { return Vec::new() };
    let of_domain = rules.rules().iter().filter(|rule| *rule.domain == *request.domain);
    let named = of_domain.flat_map(|rule| {
        let is_rule = *rule.path == *request.rule || rule.path_in_domain() == request.rule;
        let limits = rule.limits.iter().filter(move |limit| is_rule || limit.name() == request.rule);
        limits.filter_map(|limit| {
            let path = path_to(&domain.root, rule.id)?;
            Some(ListedLimit { domain: &domain.name, limit, rule: &rule.path, path })
        })
    });
    named.collect()
}

/// Returns the nodes below `node` on the way to a rule.
fn path_to(node: &Node, rule: RuleId) -> Option<Vec<&Node>> {
    node.children().find_map(|child| {
        if child.rule.as_ref().is_some_and(|found| found.id == rule) {
            return Some(vec![child]);
        }
        let rest = path_to(child, rule)?;
        Some(std::iter::once(child).chain(rest).collect())
    })
}

impl ListedLimit<'_> {
    /// Returns the limit as it applies to a counter's descriptor, and whether an exception now denies every hit; `None`
    /// if the counter is of another limit. A key does not contain a tier from the request: this is then the limit
    /// without a tier.
    fn applied(&self, rules: &RuleSet, parsed: &ParsedKey, now_us: u64) -> Option<(AppliedLimit, bool)> {
        if !self.may_have(&parsed.fingerprint) {
            return None;
        }
        let mut known = parsed.to_entries().into_iter();
        let entries: Option<Vec<Entry>> = self.path.iter().map(|node| entry_at(node, &mut known)).collect();
        if known.next().is_some() || parsed.tail.is_some() {
            return None;
        }
        let descriptor = Descriptor { entries: entries?, ..Descriptor::default() };
        let applied = Peeks::default().add(rules, (self.domain, descriptor), now_us).ok()?;
        let is_this = |applied: &AppliedLimit| {
            applied.limit.id == self.limit.id && applied.rule.as_deref() == Some(&**self.rule)
        };
        let mut applied = applied.into_iter().find(is_this)?;
        let mut is_denied = false;
        if *applied.limit.fingerprint != *parsed.fingerprint {
            // An exempt or blocked value does not use its counter, which may still hold units.
            is_denied = applied.limit.kernel_at(now_us).is_some_and(|kernel| !kernel.has_counter());
            applied.limit = Arc::clone(self.limit);
        }
        (*applied.limit.fingerprint == *parsed.fingerprint).then_some((applied, is_denied))
    }

    /// `true` for fingerprints that the limit, its tiers or its exceptions can have. Exceptions can set any numbers,
    /// which some fingerprints contain.
    fn may_have(&self, fingerprint: &str) -> bool {
        let has_numbers =
            matches!(self.limit.quantity, Quantity::Limited(kernel) if kernel.numbers().is_empty());
        let of_tiers = self.limit.tiers.iter().map(|tier| &tier.limit.fingerprint);
        has_numbers || of_tiers.chain([&self.limit.fingerprint]).any(|own| **own == *fingerprint)
    }
}

/// Returns an entry that this node can match: the next one of a key, or a tier without a name.
fn entry_at(node: &Node, known: &mut impl Iterator<Item = Entry>) -> Option<Entry> {
    if node.is_tier {
        return Some(Entry { key: node.key.to_string(), value: String::new() });
    }
    known.next()
}

/// Sorts by use, drops the second reading of a counter, and keeps `top` counters.
fn keep_most_used(counters: &mut Vec<ListedCounter>, top: usize) {
    counters
        .sort_by(|one, other| other.usage.used.cmp(&one.usage.used).then_with(|| one.key.cmp(&other.key)));
    let mut known = HashSet::new();
    counters.retain(|counter| known.insert(counter.key.clone()));
    counters.truncate(top);
}
