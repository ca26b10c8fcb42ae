//! The active rules, a tree per domain, and the walk of a descriptor through it. Immutable; a reload compiles a new
//! set.
//!
//! The walk is `GetLimit` of `envoyproxy/ratelimit`: each level takes the exact `key_value`, else the first matching
//! wildcard in file order, else the bare key. It never backtracks, and must end at the node of a rule.

mod compile;
mod stat_path;

use std::sync::Arc;

use hashbrown::HashMap;
use smallvec::SmallVec;

use crate::limit::algorithm::{Kernel, Verdict};
use crate::limit::announce::OnOver;
use crate::limit::calendar::Calendar;
use crate::limit::key::{Entry, ShardBy};
use crate::limit::period::Period;
use crate::limit::spec::{Algorithm, Charging, FailurePolicy, Lease, LimitSpec};
use crate::limit::{Limit, LimitId, Quantity};
use crate::rules::exceptions::look_up::{DomainLookUp, ExceptionsInForce};
use crate::rules::exceptions::{Exceptions, LiveRows};
use crate::rules::secret::{HiddenValues, SecretValues};
use crate::rules::spec::Metadata;
use crate::rules::wildcards::Wildcards;

/// Defaults for limits that do not set a field, such as overrides, and options for all limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Defaults {
    pub algorithm: Algorithm,
    /// `None`: postpaid for limits without an algorithm (as in `envoyproxy/ratelimit`), prepaid for limits with one.
    pub charging: Option<Charging>,
    pub on_store_failure: FailurePolicy,
    pub lease: Lease,
    /// The verdict on a check (0 hits) of a postpaid fixed window that is exactly exhausted.
    pub used_up_check: Verdict,
    /// `true`: every descriptor is a quota descriptor, so a request is denied only if all of them are over. A
    /// descriptor without a limit counts, an unlimited one does not.
    pub quota_mode: bool,
}

impl Defaults {
    /// Rules without ratelimitd's own keys count like those of `envoyproxy/ratelimit`.
    pub const ENVOY_RATELIMIT: Self = Self {
        algorithm: Algorithm::FixedWindow,
        charging: None,
        on_store_failure: FailurePolicy::Error,
        lease: Lease::Off,
        used_up_check: Verdict::Over,
        quota_mode: false,
    };

    /// A limit with all other fields at their defaults.
    pub fn limit(&self, requests_per_unit: u64, period: Period) -> LimitSpec {
        LimitSpec {
            charging: self.charging(false),
            on_store_failure: self.on_store_failure,
            lease: self.lease,
            ..LimitSpec::new(self.algorithm, requests_per_unit, period)
        }
    }

    /// The charging of a limit that does not set it.
    fn charging(&self, names_algorithm: bool) -> Charging {
        let default = if names_algorithm { Charging::Prepaid } else { Charging::Postpaid };
        self.charging.unwrap_or(default)
    }

    /// The charging of a limit that sets `on_over` but not its charging. A limit that announces admits every hit, and
    /// so records every hit.
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
    /// only from the rule file, never from request values.
    pub path: Arc<str>,
    /// All apply to each descriptor that ends here, each with its own counter. Not empty.
    pub limits: Vec<Arc<Limit>>,
    pub(crate) stat_path: StatPath,
    /// `true`: the limits count but never deny ([`Limit::shadow`]).
    pub shadow: bool,
    /// `true`: denies only if every quota rule of the request is over its limit.
    pub quota: bool,
    pub shard_by: ShardBy,
    /// Sent back with the answer.
    pub metadata: Option<Metadata>,
    /// `true` if a node on the path to the rule is a tier ([`Node::is_tier`]).
    pub(crate) takes_tier: bool,
}

impl Rule {
    /// The path without the domain: `key_value.key`.
    pub fn path_in_domain(&self) -> &str {
        self.path.get(self.domain.len() + 1..).unwrap_or_default()
    }
}

/// How to build a request's stat path: the name under which the metrics of `envoyproxy/ratelimit` count the hits of a
/// rule. It is the rule's path unless the rule file adds request values. No decision and no other metric uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StatPath {
    OfRule,
    /// Levels with `value_to_metric` show the request's value (`Node::takes_value`).
    PerLevel,
    /// Every level shows the request's value (`detailed_metric`).
    Detailed,
}

/// All rules of a process, with their exceptions.
#[derive(Clone, Debug)]
pub struct RuleSet {
    /// Shared by sets that differ only in their exceptions.
    pub(crate) compiled: Arc<CompiledRules>,
    pub(crate) exceptions: Option<Arc<ExceptionsInForce>>,
}

#[derive(Clone, Debug)]
pub(crate) struct CompiledRules {
    pub(crate) domains: HashMap<Box<str>, DomainRules>,
    pub(crate) rules: Vec<Arc<Rule>>,
    pub(crate) limits: Vec<Arc<Limit>>,
    pub(crate) defaults: Defaults,
    /// Secret values in requests for unknown domains. A key that is secret in any domain is secret in them, too.
    pub(crate) secrets_elsewhere: Option<SecretValues>,
    /// For overrides of one month: the calendar of their fixed window; `None`: 30 days from the epoch.
    pub(crate) month_calendar: Option<Arc<Calendar>>,
}

#[derive(Clone, Debug)]
pub struct DomainRules {
    pub name: Arc<str>,
    /// Position of the domain in its rule set, dense from 0.
    pub(crate) index: usize,
    /// Which counters share a Redis Cluster slot, for overrides.
    pub shard_by: ShardBy,
    /// The parent of the first level: a node without a rule.
    pub root: Node,
    /// `None` if no value is secret.
    pub(crate) secrets: Option<SecretValues>,
}

/// One node of a domain's tree, matched by [`Node::composite`].
#[derive(Clone, Debug, Default)]
pub struct Node {
    /// `key_value` or `key`, as in the rule file; with a hash instead of a secret value.
    pub composite: Box<str>,
    pub key: Box<str>,
    /// `true` if all values that match this wildcard share one counter (`share_threshold`).
    pub shares_counter: bool,
    /// `true` if envoyproxy/ratelimit's metric names show the request's value at this level (`value_to_metric`).
    /// Nothing else uses it.
    pub(crate) takes_value: bool,
    /// `true` if the entry's value is a tier: it selects the values of the limits, and is not part of counter keys.
    pub is_tier: bool,
    /// For descriptors that end here.
    pub rule: Option<Arc<Rule>>,
    pub(crate) children: HashMap<Box<str>, Node>,
    /// The wildcard children, in file order.
    pub(crate) wildcards: Wildcards,
}

impl Node {
    /// The value as in the rule file, or empty; the hash of a secret value.
    pub fn value(&self) -> &str {
        self.composite.get(self.key.len() + 1..).unwrap_or_default()
    }

    /// The child with exactly this name.
    pub fn child(&self, composite: &str) -> Option<&Self> {
        self.children.get(composite)
    }

    /// The first child in file order whose wildcard matches `composite`.
    pub(crate) fn wildcard_child(&self, composite: &str) -> Option<&Self> {
        let pattern = self.wildcards.first_match(composite)?;
        self.children.get(pattern.text())
    }

    /// In arbitrary order.
    pub fn children(&self) -> impl Iterator<Item = &Self> {
        self.children.values()
    }

    pub fn is_leaf(&self) -> bool {
        self.children.is_empty()
    }
}

impl RuleSet {
    /// Without rules, every domain is unknown.
    pub fn empty() -> Self {
        CompiledRules::empty(Defaults::ENVOY_RATELIMIT).into()
    }

    /// Replaces the set's exceptions: rows of files, and live rows, which outrank them.
    pub fn with_exceptions(&self, files: Arc<Exceptions>, live: &LiveRows) -> Self {
        let compiled = Arc::clone(&self.compiled);
        let domains = compiled.domains.values().map(|rules| (rules.index, &rules.name));
        let exceptions = ExceptionsInForce::new(files, live, domains, self.exceptions.as_deref());
        Self { compiled, exceptions: exceptions.map(Arc::new) }
    }

    /// `None` if the domain has no exceptions.
    pub(crate) fn exceptions_of(&self, domain: &DomainRules) -> Option<DomainLookUp<'_>> {
        self.exceptions.as_deref()?.of_domain(domain.index)
    }

    /// The exceptions of files; `None` if there are no exceptions at all.
    pub fn exceptions(&self) -> Option<&Arc<Exceptions>> {
        self.exceptions.as_deref().map(ExceptionsInForce::files)
    }

    /// `None` if there are no exceptions at all.
    pub fn live_rows(&self) -> Option<&LiveRows> {
        self.exceptions.as_deref().map(ExceptionsInForce::live)
    }

    /// Sets the calendar for overrides of one month, which are fixed windows.
    #[must_use]
    pub fn with_month_calendar(mut self, month_calendar: Option<Arc<Calendar>>) -> Self {
        Arc::make_mut(&mut self.compiled).month_calendar = month_calendar;
        self
    }

    /// `true` if plans depend on their time: a limit may follow a calendar, an exception may end, or a caller may
    /// report a pause.
    pub fn depends_on_time(&self) -> bool {
        self.exceptions.is_some()
            || self.compiled.month_calendar.is_some()
            || self
                .limits()
                .iter()
                .any(|limit| limit.spec.calendar.is_some() || limit.spec.feedback.is_some())
    }

    /// `true` if a limit counts requests at once, so that plans need ids.
    pub fn has_slots(&self) -> bool {
        self.limits().iter().any(|limit| limit.spec.algorithm == Algorithm::Concurrency)
    }

    /// `true` if a limit defines a `penalty`.
    pub fn has_penalties(&self) -> bool {
        self.limits().iter().any(|limit| limit.spec.penalty.is_some())
    }

    /// `None` if the domain has no rules.
    pub fn domain(&self, name: &str) -> Option<&DomainRules> {
        self.compiled.domains.get(name)
    }

    /// In arbitrary order.
    pub fn domains(&self) -> impl Iterator<Item = &str> {
        self.compiled.domains.keys().map(AsRef::as_ref)
    }

    /// In file order, indexed by [`RuleId`].
    pub fn rules(&self) -> &[Arc<Rule>] {
        &self.compiled.rules
    }

    /// In file order, indexed by [`LimitId`].
    pub fn limits(&self) -> &[Arc<Limit>] {
        &self.compiled.limits
    }

    /// `true` if a limit is a sliding log, or counts its denials with one, for which a store may need further
    /// permissions.
    pub fn has_sliding_log(&self) -> bool {
        let is_log = |limit: &Arc<Limit>| matches!(limit.quantity, Quantity::Limited(Kernel::SlidingLog(_)));
        self.has_penalties() || self.limits().iter().any(is_log)
    }

    /// Returns the hash shown instead of the entry's value in a request for `domain`; `None` if the value is not
    /// secret.
    pub fn hidden_value(&self, domain: &str, entry: &Entry) -> Option<Box<str>> {
        self.secrets(self.domain(domain))?.hidden_value(domain, entry, &mut String::new())
    }

    /// The hashes of the secret values of a request for the domain `name`, which has these rules.
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

    /// Defaults for limits that do not set a field.
    pub fn defaults(&self) -> Defaults {
        self.compiled.defaults
    }
}

impl CompiledRules {
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

    /// The id of the next limit during compilation. Afterwards all overrides share it.
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
