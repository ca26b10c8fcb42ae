//! The compiled rules: a tree per domain, every level indexed. Immutable; a reload compiles a new set.

use std::sync::Arc;

use hashbrown::HashMap;

use super::limit::{Algorithm, Charging, FailurePolicy, Limit, LimitId};
use super::pattern::Pattern;
use super::rule::{Rule, RuleId};
use super::shard::ShardBy;
use super::spec::{CompileError, DomainSpec, NodeSpec, RuleSpec};
use super::wildcards::Wildcards;

/// Values for limits that do not set them, such as limits that come with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Defaults {
    /// How units are counted.
    pub algorithm: Algorithm,
    /// When hits are recorded. `None`: postpaid for limits that name no algorithm (as in `envoyproxy/ratelimit`),
    /// prepaid for limits that name one.
    pub charging: Option<Charging>,
    /// What to answer when the store cannot decide.
    pub on_store_failure: FailurePolicy,
}

impl Defaults {
    /// The behaviour of `envoyproxy/ratelimit`.
    pub const ENVOY_RATELIMIT: Self =
        Self { algorithm: Algorithm::FixedWindow, charging: None, on_store_failure: FailurePolicy::Error };

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
}

/// The tree of one domain.
#[derive(Clone, Debug)]
pub struct DomainRules {
    /// The domain.
    pub name: Arc<str>,
    /// Which counters share a slot of a Redis Cluster, for limits that come with a request.
    pub shard_by: ShardBy,
    /// The parent of the first level: a node without a rule.
    pub root: Node,
}

/// One node of the tree.
#[derive(Clone, Debug, Default)]
pub struct Node {
    /// `key_value` or `key`, as in the rule file.
    pub composite: Box<str>,
    /// The key alone.
    pub key: Box<str>,
    /// Whether all values that match this wildcard share one counter (`share_threshold`).
    pub shares_counter: bool,
    /// The rule of descriptors that end here.
    pub rule: Option<Arc<Rule>>,
    children: HashMap<Box<str>, Node>,
    /// The children that are wildcards, in the order of the file.
    wildcards: Wildcards,
}

impl Node {
    /// The value as in the rule file, or empty.
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
    pub fn wildcard_child(&self, composite: &str) -> Option<&Self> {
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
    /// Compiles specs.
    ///
    /// # Errors
    /// [`CompileError`] for the first spec that is not valid. To report every problem, check the specs before.
    pub fn compile(specs: &[DomainSpec], defaults: Defaults) -> Result<Self, CompileError> {
        let mut set = Self { domains: HashMap::new(), rules: Vec::new(), limits: Vec::new(), defaults };
        for spec in specs {
            let name: Arc<str> = spec.domain.as_str().into();
            let mut root = Node::default();
            let shard_by = spec.shard_by;
            let top = Parent { domain: &name, path: &spec.domain, shard_by };
            set.add_level(&mut root, &spec.descriptors, &top)?;
            let rules = DomainRules { name, shard_by, root };
            if set.domains.insert(spec.domain.as_str().into(), rules).is_some() {
                return Err(CompileError::DuplicateDomain(spec.domain.clone()));
            }
        }
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
            let path = format!("{}.{composite}", parent.path);
            let mut child = Node {
                composite: composite.as_str().into(),
                key: spec.key.as_str().into(),
                ..Node::default()
            };
            child.shares_counter = spec.share_threshold;
            let here = Parent { path: &path, ..*parent };
            if let Some(rule) = &spec.rule {
                child.rule = Some(self.add_rule(rule, &here)?);
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

    fn add_rule(&mut self, spec: &RuleSpec, here: &Parent<'_>) -> Result<Arc<Rule>, CompileError> {
        let mut limits = Vec::with_capacity(spec.limits.len());
        for limit in &spec.limits {
            let limit = Limit::new(self.next_limit_id(), limit.clone(), here.path)
                .map_err(|cause| CompileError::Limit { path: here.path.to_owned(), cause })?;
            let limit = Arc::new(limit);
            self.limits.push(Arc::clone(&limit));
            limits.push(limit);
        }
        let id = RuleId(u32::try_from(self.rules.len()).unwrap_or(u32::MAX));
        let rule = Arc::new(Rule {
            id,
            domain: Arc::clone(here.domain),
            path: here.path.into(),
            limits,
            shadow: spec.shadow,
            quota: spec.quota,
            shard_by: spec.shard_by.unwrap_or(here.shard_by),
            metadata: spec.metadata.clone(),
        });
        self.rules.push(Arc::clone(&rule));
        Ok(rule)
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

    /// The id that all limits of requests share: one after the last limit.
    #[must_use]
    pub fn override_id(&self) -> LimitId {
        self.next_limit_id()
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
}
