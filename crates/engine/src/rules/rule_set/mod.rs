//! The rules in force, and the walk of a descriptor through them: a tree per domain, every level indexed. Immutable; a
//! reload compiles a new set.
//!
//! The walk is that of `envoyproxy/ratelimit` (its `GetLimit`). Each level takes the exact `key_value`, else the first
//! matching wildcard in the order of the file, else the key alone. The walk never goes back, and a rule applies only to
//! descriptors that end at its node.

mod compile;
mod stat_path;

use std::sync::Arc;

use hashbrown::HashMap;
use smallvec::SmallVec;

use crate::limit::algorithm::{Kernel, Verdict};
use crate::limit::announce::OnOver;
use crate::limit::calendar::Calendar;
use crate::limit::key::Entry;
use crate::limit::key::ShardBy;
use crate::limit::period::Period;
use crate::limit::spec::{Algorithm, Charging, FailurePolicy, LimitSpec};
use crate::limit::{Limit, LimitId, Quantity};
use crate::rules::exceptions::Exceptions;
use crate::rules::exceptions::look_up::{DomainLookUp, ExceptionsInForce};
use crate::rules::secret::{HiddenValues, SecretValues};
use crate::rules::spec::Metadata;
use crate::rules::wildcards::Wildcards;

/// Values for limits that do not set them, such as limits that come with a request, and options for all limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Defaults {
    pub algorithm: Algorithm,
    /// `None`: postpaid for limits that name no algorithm (like `envoyproxy/ratelimit`), prepaid for limits that name
    /// one.
    pub charging: Option<Charging>,
    pub on_store_failure: FailurePolicy,
    /// The verdict on a check (0 hits) of a postpaid fixed window that is exactly used up.
    pub used_up_check: Verdict,
    /// Whether every descriptor is a quota descriptor, so that a request is denied only if all of them are over. A
    /// descriptor without a limit counts, an unlimited one does not.
    pub quota_mode: bool,
}

impl Defaults {
    /// Rules without our keys count like those of `envoyproxy/ratelimit`.
    pub const ENVOY_RATELIMIT: Self = Self {
        algorithm: Algorithm::FixedWindow,
        charging: None,
        on_store_failure: FailurePolicy::Error,
        used_up_check: Verdict::Over,
        quota_mode: false,
    };

    /// A limit that sets no other field.
    #[must_use]
    pub fn limit(&self, requests_per_unit: u64, period: Period) -> LimitSpec {
        LimitSpec {
            charging: self.charging(false),
            on_store_failure: self.on_store_failure,
            ..LimitSpec::new(self.algorithm, requests_per_unit, period)
        }
    }

    /// The charging of a limit that does not set it.
    fn charging(&self, names_algorithm: bool) -> Charging {
        let default = if names_algorithm { Charging::Prepaid } else { Charging::Postpaid };
        self.charging.unwrap_or(default)
    }

    /// The charging of a limit that sets `on_over` and does not set its charging. A limit that announces records every
    /// hit, because it admits every hit.
    #[must_use]
    pub fn charging_of(&self, on_over: OnOver, names_algorithm: bool) -> Charging {
        match on_over {
            OnOver::Announce => Charging::Postpaid,
            OnOver::Deny => self.charging(names_algorithm),
        }
    }
}

/// Position of a rule in its [`RuleSet`], dense from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RuleId(pub u32);

/// The limits at one node, and their effect on the answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    pub id: RuleId,
    pub domain: Arc<str>,
    /// The domain and the nodes down to this one, `domain.key_value.key`: the stat key of `envoyproxy/ratelimit`. Built
    /// from the rule file alone, never from values of requests.
    pub path: Arc<str>,
    /// All of them apply to each descriptor that ends here, each with its own counter. Not empty.
    pub limits: Vec<Arc<Limit>>,
    pub(crate) stat_path: StatPath,
    /// Whether the rule is in shadow mode: its limits count, but never deny ([`Limit::shadow`]).
    pub shadow: bool,
    /// Whether the rule denies only if every quota rule of the request is over its limit.
    pub quota: bool,
    pub shard_by: ShardBy,
    /// Sent back with the answer.
    pub metadata: Option<Metadata>,
    /// Whether an entry on the way to the rule is a tier ([`Node::is_tier`]).
    pub(crate) takes_tier: bool,
}

impl Rule {
    /// The path without the domain: `key_value.key`.
    #[must_use]
    pub fn path_in_domain(&self) -> &str {
        self.path.get(self.domain.len() + 1..).unwrap_or_default()
    }
}

/// How the stat path of a request is made: the name under which the hits of a rule are counted in the metrics of
/// `envoyproxy/ratelimit`. It is the path of the rule, unless the rule file asks for values of requests in it. No
/// decision and no other metric depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StatPath {
    OfRule,
    /// The levels with `value_to_metric` have the value of the request (`Node::takes_value`).
    PerLevel,
    /// Every level has the value of the request (`detailed_metric`).
    Detailed,
}

/// All rules of a process, and the exceptions from them.
#[derive(Clone, Debug)]
pub struct RuleSet {
    /// Sets that differ in their exceptions only share it.
    pub(crate) compiled: Arc<CompiledRules>,
    pub(crate) exceptions: Option<Arc<ExceptionsInForce>>,
}

/// What the compiler makes of the specs of all domains.
#[derive(Clone, Debug)]
pub(crate) struct CompiledRules {
    pub(crate) domains: HashMap<Box<str>, DomainRules>,
    pub(crate) rules: Vec<Arc<Rule>>,
    pub(crate) limits: Vec<Arc<Limit>>,
    pub(crate) defaults: Defaults,
    /// The secret values of requests for unknown domains. A key that is secret in any domain is secret in them too.
    pub(crate) secrets_elsewhere: Option<SecretValues>,
    /// The calendar of a fixed window of one month that comes with a request; `None`: 30 days from the epoch.
    pub(crate) month_calendar: Option<Arc<Calendar>>,
}

/// The tree of one domain.
#[derive(Clone, Debug)]
pub struct DomainRules {
    pub name: Arc<str>,
    /// The position of the domain in its rule set, dense from 0.
    pub(crate) index: usize,
    /// Which counters share a slot of a Redis Cluster, for limits that come with a request.
    pub shard_by: ShardBy,
    /// The parent of the first level: a node without a rule.
    pub root: Node,
    /// `None` if no value is secret.
    pub(crate) secrets: Option<SecretValues>,
}

/// One node of the tree.
#[derive(Clone, Debug, Default)]
pub struct Node {
    /// `key_value` or `key`, as in the rule file; with a hash in place of a secret value.
    pub composite: Box<str>,
    pub key: Box<str>,
    /// Whether all values that match this wildcard share one counter (`share_threshold`).
    pub shares_counter: bool,
    /// Whether the metric names of envoyproxy/ratelimit have the value of the request at this level
    /// (`value_to_metric`). Nothing else depends on it.
    pub(crate) takes_value: bool,
    /// Whether the value of the entry is a tier: it selects the numbers of the limits, and is no part of counter keys.
    pub is_tier: bool,
    /// The rule of descriptors that end here.
    pub rule: Option<Arc<Rule>>,
    pub(crate) children: HashMap<Box<str>, Node>,
    /// The children that are wildcards, in the order of the file.
    pub(crate) wildcards: Wildcards,
}

impl Node {
    /// The value as in the rule file, or empty; the hash of a secret value.
    #[must_use]
    pub fn value(&self) -> &str {
        self.composite.get(self.key.len() + 1..).unwrap_or_default()
    }

    /// The child with exactly this name.
    #[must_use]
    pub fn child(&self, composite: &str) -> Option<&Self> {
        self.children.get(composite)
    }

    /// The first child, in the order of the file, whose wildcard matches `composite`.
    #[must_use]
    pub(crate) fn wildcard_child(&self, composite: &str) -> Option<&Self> {
        let pattern = self.wildcards.first_match(composite)?;
        self.children.get(pattern.text())
    }

    /// The nodes of the next level, in arbitrary order.
    pub fn children(&self) -> impl Iterator<Item = &Self> {
        self.children.values()
    }

    /// Whether the node has no children.
    #[must_use]
    pub fn is_leaf(&self) -> bool {
        self.children.is_empty()
    }
}

impl RuleSet {
    /// A set without rules: every domain is unknown.
    #[must_use]
    pub fn empty() -> Self {
        CompiledRules::empty(Defaults::ENVOY_RATELIMIT).into()
    }

    /// The same rules with these exceptions, in place of those that the set had.
    #[must_use]
    pub fn with_exceptions(&self, exceptions: Arc<Exceptions>) -> Self {
        let compiled = Arc::clone(&self.compiled);
        let in_force = ExceptionsInForce::new(
            exceptions,
            compiled.domains.values().map(|rules| (rules.index, &rules.name)),
        );
        Self { compiled, exceptions: in_force.map(Arc::new) }
    }

    /// The rows for a domain; `None` if there is none.
    pub(crate) fn exceptions_of(&self, domain: &DomainRules) -> Option<DomainLookUp<'_>> {
        self.exceptions.as_deref()?.of_domain(domain.index)
    }

    /// The exceptions; `None` if there is no row.
    #[must_use]
    pub fn exceptions(&self) -> Option<&Arc<Exceptions>> {
        self.exceptions.as_deref().map(ExceptionsInForce::all)
    }

    /// The same rules; a fixed window of one month that comes with a request has this calendar.
    #[must_use]
    pub fn with_month_calendar(mut self, month_calendar: Option<Arc<Calendar>>) -> Self {
        Arc::make_mut(&mut self.compiled).month_calendar = month_calendar;
        self
    }

    /// The first instant of which a calendar of the rules knows no window, microseconds since the epoch; `None` without
    /// calendars.
    #[must_use]
    pub fn calendars_end_us(&self) -> Option<u64> {
        let of_limits = self.limits().iter().filter_map(|limit| limit.spec.calendar.as_ref());
        of_limits.chain(&self.compiled.month_calendar).map(|calendar| calendar.known_until_us()).min()
    }

    /// Whether a plan depends on its time: a limit may follow a calendar, or a row of the exceptions may end.
    #[must_use]
    pub fn depends_on_time(&self) -> bool {
        self.exceptions.is_some() || self.calendars_end_us().is_some()
    }

    /// The tree of a domain, if the domain has rules.
    #[must_use]
    pub fn domain(&self, name: &str) -> Option<&DomainRules> {
        self.compiled.domains.get(name)
    }

    /// The names of all domains, in arbitrary order.
    pub fn domains(&self) -> impl Iterator<Item = &str> {
        self.compiled.domains.keys().map(AsRef::as_ref)
    }

    /// Every rule, in the order of the files; [`RuleId`] is the index.
    #[must_use]
    pub fn rules(&self) -> &[Arc<Rule>] {
        &self.compiled.rules
    }

    /// Every limit, in the order of the files; [`LimitId`] is the index.
    #[must_use]
    pub fn limits(&self) -> &[Arc<Limit>] {
        &self.compiled.limits
    }

    /// Whether a limit is a sliding log. A store may need further permissions for it.
    #[must_use]
    pub fn has_sliding_log(&self) -> bool {
        let is_log = |limit: &Arc<Limit>| matches!(limit.quantity, Quantity::Limited(Kernel::SlidingLog(_)));
        self.limits().iter().any(is_log)
    }

    /// The hash that is shown in place of the entry's value in a request for `domain`; `None` if the value is not
    /// secret.
    #[must_use]
    pub fn hidden_value(&self, domain: &str, entry: &Entry) -> Option<Box<str>> {
        self.secrets(self.domain(domain))?.hidden_value(domain, entry, &mut String::new())
    }

    /// The hashes of the secret values of a request to the domain `name`, which has these rules.
    pub(crate) fn hidden_values<'e>(
        &self,
        name: &str,
        domain: Option<&DomainRules>,
        descriptors: impl Iterator<Item = &'e [Entry]>,
    ) -> HiddenValues {
        let secrets = self.secrets(domain);
        secrets.map(|secrets| secrets.hidden_values(name, descriptors)).unwrap_or_default()
    }

    fn secrets<'s>(&'s self, domain: Option<&'s DomainRules>) -> Option<&'s SecretValues> {
        domain.map_or(&self.compiled.secrets_elsewhere, |rules| &rules.secrets).as_ref()
    }

    /// Values for limits that do not set them.
    #[must_use]
    pub fn defaults(&self) -> Defaults {
        self.compiled.defaults
    }
}

impl CompiledRules {
    /// No rules.
    pub(crate) fn empty(defaults: Defaults) -> Self {
        Self {
            domains: HashMap::new(),
            rules: Vec::new(),
            limits: Vec::new(),
            defaults,
            secrets_elsewhere: None,
            month_calendar: None,
        }
    }

    /// The id of the next limit while rules are compiled. Afterwards all limits that come with requests share it.
    pub(crate) fn next_limit_id(&self) -> LimitId {
        // 2^32 limits do not fit into the memory of a machine.
        LimitId(u32::try_from(self.limits.len()).unwrap_or(u32::MAX))
    }
}

impl From<CompiledRules> for RuleSet {
    fn from(compiled: CompiledRules) -> Self {
        Self { compiled: Arc::new(compiled), exceptions: None }
    }
}

/// How one entry was matched.
#[derive(Clone, Copy, Debug)]
pub enum Step<'r> {
    /// The node has this key and value.
    Exact(&'r Node),
    Wildcard(&'r Node),
    /// The node has this key and no value.
    KeyOnly(&'r Node),
}

impl<'r> Step<'r> {
    /// The node that matched.
    #[must_use]
    pub fn node(self) -> &'r Node {
        match self {
            Self::Exact(node) | Self::Wildcard(node) | Self::KeyOnly(node) => node,
        }
    }
}

/// The path of a descriptor through the tree.
#[derive(Clone, Debug, Default)]
pub struct Walk<'r> {
    /// One step per entry matched, in order.
    pub steps: SmallVec<[Step<'r>; 4]>,
    /// The node of the last entry; `None` if an entry did not match.
    pub end: Option<&'r Node>,
}

impl DomainRules {
    /// Walks `entries` down the tree. Reusing `scratch` saves an allocation per entry.
    #[must_use]
    pub fn walk<'r>(&'r self, entries: &[Entry], scratch: &mut String) -> Walk<'r> {
        let mut walk = Walk::default();
        let mut node = &self.root;
        for entry in entries {
            let Some(step) = match_entry(node, entry, scratch) else {
                return walk;
            };
            node = step.node();
            walk.steps.push(step);
        }
        walk.end = (!entries.is_empty()).then_some(node);
        walk
    }
}

fn match_entry<'r>(node: &'r Node, entry: &Entry, scratch: &mut String) -> Option<Step<'r>> {
    scratch.clear();
    scratch.reserve(entry.key.len() + 1 + entry.value.len());
    scratch.push_str(&entry.key);
    scratch.push('_');
    scratch.push_str(&entry.value);
    if let Some(child) = node.child(scratch) {
        return Some(Step::Exact(child));
    }
    if let Some(child) = node.wildcard_child(scratch) {
        return Some(Step::Wildcard(child));
    }
    node.child(&entry.key).map(Step::KeyOnly)
}
