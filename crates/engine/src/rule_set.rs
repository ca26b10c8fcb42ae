//! The compiled rules: a tree per domain, every level indexed. Immutable; a reload compiles a new set.

use std::sync::Arc;

use hashbrown::HashMap;

use super::algorithm::{Kernel, Verdict};
use super::key::ShardBy;
use super::limit::{Algorithm, Charging, FailurePolicy, Limit, LimitId, Quantity};
use super::request::{Entry, Request};
use super::rule::{CompileError, DomainSpec, NodeSpec, RuleSpec};
use super::rule::{Rule, RuleId, StatPath};
use super::secret::{HiddenValues, SecretValues, ValueHashing};
use super::wildcards::Pattern;
use super::wildcards::Wildcards;

/// Values for limits that do not set them, such as limits that come with a request, and options for all limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Defaults {
    pub algorithm: Algorithm,
    /// `None`: postpaid for limits that name no algorithm (as in `envoyproxy/ratelimit`), prepaid for limits that name
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
    /// Rules without our keys count as in `envoyproxy/ratelimit`.
    pub const ENVOY_RATELIMIT: Self = Self {
        algorithm: Algorithm::FixedWindow,
        charging: None,
        on_store_failure: FailurePolicy::Error,
        used_up_check: Verdict::Over,
        quota_mode: false,
    };

    /// The charging of a limit that does not set it.
    #[must_use]
    pub fn charging(&self, names_algorithm: bool) -> Charging {
        let default = if names_algorithm { Charging::Prepaid } else { Charging::Postpaid };
        self.charging.unwrap_or(default)
    }
}

/// All rules of a process.
#[derive(Clone, Debug)]
pub struct RuleSet {
    domains: HashMap<Box<str>, DomainRules>,
    rules: Vec<Arc<Rule>>,
    limits: Vec<Arc<Limit>>,
    defaults: Defaults,
    /// The secret values of requests for unknown domains. A key that is secret in any domain is secret in them too.
    secrets_elsewhere: Option<SecretValues>,
}

/// The tree of one domain.
#[derive(Clone, Debug)]
pub struct DomainRules {
    pub name: Arc<str>,
    /// Which counters share a slot of a Redis Cluster, for limits that come with a request.
    pub shard_by: ShardBy,
    /// The parent of the first level: a node without a rule.
    pub root: Node,
    /// `None` if no value is secret.
    pub(super) secrets: Option<SecretValues>,
}

/// One node of the tree.
#[derive(Clone, Debug, Default)]
pub struct Node {
    /// `key_value` or `key`, as in the rule file; with a hash in place of a secret value.
    pub composite: Box<str>,
    /// The key alone.
    pub key: Box<str>,
    /// Whether all values that match this wildcard share one counter (`share_threshold`).
    pub shares_counter: bool,
    /// Whether the metric names of envoyproxy/ratelimit have the value of the request at this level
    /// (`value_to_metric`). Nothing else depends on it.
    pub(super) takes_value: bool,
    /// The rule of descriptors that end here.
    pub rule: Option<Arc<Rule>>,
    children: HashMap<Box<str>, Node>,
    /// The children that are wildcards, in the order of the file.
    wildcards: Wildcards,
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

    /// Takes the rules of this node and of those below it from a list by id.
    fn replace_rules(&mut self, rules: &[Arc<Rule>]) {
        let by_id = |rule: &Arc<Rule>| rules.get(rule.id.0 as usize).unwrap_or(rule).clone();
        self.rule = self.rule.as_ref().map(by_id);
        self.children.values_mut().for_each(|child| child.replace_rules(rules));
    }

    /// Whether the node has no children.
    #[must_use]
    pub fn is_leaf(&self) -> bool {
        self.children.is_empty()
    }
}

impl RuleSet {
    /// Compiles specs.
    ///
    /// # Errors
    /// [`CompileError`] for the first spec that is not valid.
    pub fn compile(
        specs: &[DomainSpec],
        defaults: Defaults,
        hashing: ValueHashing,
    ) -> Result<Self, CompileError> {
        let mut set = Self { defaults, ..Self::empty() };
        for spec in specs {
            let name: Arc<str> = spec.domain.as_str().into();
            let mut root = Node::default();
            let shard_by = spec.shard_by;
            let secrets = SecretValues::new([spec.descriptors.as_slice()], hashing)?;
            let top = Parent {
                domain: &name,
                path: &spec.domain,
                shard_by,
                values: Values::default(),
                secrets: secrets.as_ref(),
            };
            set.add_level(&mut root, &spec.descriptors, &top)?;
            let rules = DomainRules { name, shard_by, root, secrets };
            if set.domains.insert(spec.domain.as_str().into(), rules).is_some() {
                return Err(CompileError::DuplicateDomain(spec.domain.clone()));
            }
        }
        let levels = specs.iter().map(|spec| spec.descriptors.as_slice());
        set.secrets_elsewhere = SecretValues::new(levels, hashing)?;
        Ok(set)
    }

    /// A set without rules: every domain is unknown.
    #[must_use]
    pub fn empty() -> Self {
        Self {
            domains: HashMap::new(),
            rules: Vec::new(),
            limits: Vec::new(),
            defaults: Defaults::ENVOY_RATELIMIT,
            secrets_elsewhere: None,
        }
    }

    fn add_level(
        &mut self,
        node: &mut Node,
        specs: &[NodeSpec],
        parent: &Parent<'_>,
    ) -> Result<(), CompileError> {
        let mut wildcards = Vec::new();
        for spec in specs {
            let composite = spec.composite();
            let shown = parent.shown_composite(spec);
            let path = format!("{}.{shown}", parent.path);
            let mut child =
                Node { composite: shown.into(), key: spec.key.as_str().into(), ..Node::default() };
            child.shares_counter = spec.share_threshold;
            let is_open = spec.has_open_value();
            child.takes_value = is_open && spec.value_to_metric;
            let values = Values {
                are_open: parent.values.are_open || is_open,
                are_taken: parent.values.are_taken || child.takes_value,
            };
            let here = Parent { path: &path, values, ..*parent };
            if let Some(rule) = &spec.rule {
                child.rule = Some(self.add_rule(rule, &here));
            }
            self.add_level(&mut child, &spec.descriptors, &here)?;
            wildcards.extend(Pattern::new(&composite));
            if node.children.insert(composite.into(), child).is_some() {
                return Err(CompileError::DuplicateComposite(path));
            }
        }
        node.wildcards = Wildcards::new(wildcards);
        Ok(())
    }

    fn add_rule(&mut self, spec: &RuleSpec, here: &Parent<'_>) -> Arc<Rule> {
        let mut limits = Vec::with_capacity(spec.limits.len());
        for limit in &spec.limits {
            let limit = limit.clone().placed(self.next_limit_id(), here.path);
            let limit = Arc::new(Limit { shadow: spec.shadow, ..limit });
            self.limits.push(Arc::clone(&limit));
            limits.push(limit);
        }
        let id = RuleId(u32::try_from(self.rules.len()).unwrap_or(u32::MAX));
        let rule = Arc::new(Rule {
            id,
            domain: Arc::clone(here.domain),
            path: here.path.into(),
            limits,
            stat_path: here.values.stat_path(spec.detailed_metric),
            shadow: spec.shadow,
            quota: spec.quota,
            shard_by: spec.shard_by.unwrap_or(here.shard_by),
            metadata: spec.metadata.clone(),
        });
        self.rules.push(Arc::clone(&rule));
        rule
    }

    /// The tree of a domain, if the domain has rules.
    #[must_use]
    pub fn domain(&self, name: &str) -> Option<&DomainRules> {
        self.domains.get(name)
    }

    /// The names of all domains, in arbitrary order.
    pub fn domains(&self) -> impl Iterator<Item = &str> {
        self.domains.keys().map(AsRef::as_ref)
    }

    /// Every rule, in the order of the files; [`RuleId`] is the index.
    #[must_use]
    pub fn rules(&self) -> &[Arc<Rule>] {
        &self.rules
    }

    /// Every limit, in the order of the files; [`LimitId`] is the index.
    #[must_use]
    pub fn limits(&self) -> &[Arc<Limit>] {
        &self.limits
    }

    /// Whether a limit is a sliding log. A store may need further permissions for it.
    #[must_use]
    pub fn has_sliding_log(&self) -> bool {
        let is_log = |limit: &Arc<Limit>| matches!(limit.quantity, Quantity::Limited(Kernel::SlidingLog(_)));
        self.limits.iter().any(is_log)
    }

    /// The id that all limits of requests share: one after the last limit.
    #[must_use]
    pub(crate) fn override_id(&self) -> LimitId {
        self.next_limit_id()
    }

    /// The hash that is shown in place of the entry's value in a request for `domain`; `None` if the value is not
    /// secret.
    #[must_use]
    pub fn hidden_value(&self, domain: &str, entry: &Entry) -> Option<Box<str>> {
        self.secrets(self.domain(domain))?.hidden_value(domain, entry, &mut String::new())
    }

    /// The hashes of a request's secret values; `domain` has the rules of its domain.
    pub(super) fn hidden_values(&self, domain: Option<&DomainRules>, request: &Request) -> HiddenValues {
        self.secrets(domain).map(|secrets| secrets.hidden_values(request)).unwrap_or_default()
    }

    fn secrets<'s>(&'s self, domain: Option<&'s DomainRules>) -> Option<&'s SecretValues> {
        domain.map_or(&self.secrets_elsewhere, |rules| &rules.secrets).as_ref()
    }

    /// The same rules with other counters: two limits share a counter only if the limits with the same ids in `other`
    /// share one.
    #[must_use]
    pub fn sharing_counters_as(mut self, other: &Self) -> Self {
        let apart = |limit: &Arc<Limit>| {
            let mut limit = Limit::clone(limit);
            if let Some(other) = other.limits.get(limit.id.0 as usize) {
                limit.fingerprint = format!("{}@{}", limit.fingerprint, other.fingerprint).into();
            }
            Arc::new(limit)
        };
        self.limits = self.limits.iter().map(apart).collect();
        let of_id = |limit: &Arc<Limit>| self.limits.get(limit.id.0 as usize).unwrap_or(limit).clone();
        let rule = |rule: &Arc<Rule>| {
            let limits = rule.limits.iter().map(of_id).collect();
            Arc::new(Rule { limits, ..Rule::clone(rule) })
        };
        self.rules = self.rules.iter().map(rule).collect();
        for domain in self.domains.values_mut() {
            domain.root.replace_rules(&self.rules);
        }
        self
    }

    /// Values for limits that do not set them.
    #[must_use]
    pub fn defaults(&self) -> Defaults {
        self.defaults
    }

    fn next_limit_id(&self) -> LimitId {
        // 2^32 limits do not fit into the memory of a machine.
        LimitId(u32::try_from(self.limits.len()).unwrap_or(u32::MAX))
    }
}

#[derive(Clone, Copy)]
struct Parent<'a> {
    domain: &'a Arc<str>,
    path: &'a str,
    shard_by: ShardBy,
    values: Values,
    secrets: Option<&'a SecretValues>,
}

impl Parent<'_> {
    /// The name of a node below, with a hash in place of a secret value.
    fn shown_composite(&self, spec: &NodeSpec) -> String {
        let hash = self.secrets.and_then(|secrets| secrets.hidden_rule_value(self.domain, spec));
        hash.map_or_else(|| spec.composite(), |hash| format!("{}_{hash}", spec.key))
    }
}

/// What is known of the values that requests have along a path of nodes. It decides the [`StatPath`] of a rule.
#[derive(Clone, Copy, Default)]
struct Values {
    /// A node of the path matches different values.
    are_open: bool,
    /// A node puts the value of the request into the stat path.
    are_taken: bool,
}

impl Values {
    fn stat_path(self, is_detailed: bool) -> StatPath {
        match self {
            Self { are_open: true, .. } if is_detailed => StatPath::Detailed,
            Self { are_taken: true, .. } if !is_detailed => StatPath::PerLevel,
            _ => StatPath::OfRule,
        }
    }
}
