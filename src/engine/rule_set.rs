//! The compiled rules: a tree per domain, every level indexed. Immutable; a reload makes a new one.

use std::sync::Arc;

use hashbrown::HashMap;

use super::{
    Algorithm, Charging, CompileError, DomainSpec, FailurePolicy, Limit, LimitId, NodeSpec, Pattern, Rule,
    RuleId, RuleSpec, ShardBy,
};

/// What a limit is that names no algorithm, charging or failure policy: per-request overrides among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Defaults {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// When hits are recorded; `None` = postpaid where no algorithm is named (as the reference service does),
    /// prepaid where one is.
    pub charging: Option<Charging>,
    /// What is answered when the store cannot.
    pub on_store_failure: FailurePolicy,
}

impl Defaults {
    /// The reference service's behaviour.
    pub const REFERENCE: Self =
        Self { algorithm: Algorithm::FixedWindow, charging: None, on_store_failure: FailurePolicy::Error };

    /// The charging of a limit that does not name one.
    #[must_use]
    pub fn charging(&self, names_algorithm: bool) -> Charging {
        let unnamed = if names_algorithm { Charging::Prepaid } else { Charging::Postpaid };
        self.charging.unwrap_or(unnamed)
    }
}

/// All rules in force.
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
    /// Its name.
    pub name: Arc<str>,
    /// Where the counters of limits are kept that come with requests.
    pub shard_by: ShardBy,
    /// The level above the first: it has children only.
    pub root: Node,
}

/// One node of the tree.
#[derive(Clone, Debug, Default)]
pub struct Node {
    /// `key_value` or `key`, as in the rule file.
    pub composite: Box<str>,
    /// The key alone.
    pub key: Box<str>,
    /// Whether all values that match this wildcard share one counter.
    pub shares_counter: bool,
    /// What applies to descriptors that end here.
    pub rule: Option<Arc<Rule>>,
    children: HashMap<Box<str>, Node>,
    /// Composites of `children` that hold a wildcard, in the order of the file.
    wildcards: Vec<Pattern>,
}

impl Node {
    /// The value as in the rule file, empty where there is none.
    #[must_use]
    pub fn value(&self) -> &str {
        self.composite.get(self.key.len() + 1..).unwrap_or_default()
    }

    /// The child of exactly that name.
    #[must_use]
    pub fn child(&self, composite: &str) -> Option<&Self> {
        self.children.get(composite)
    }

    /// The first child, in the order of the file, whose wildcard covers `composite`.
    #[must_use]
    pub fn wildcard_child(&self, composite: &str) -> Option<&Self> {
        let pattern = self.wildcards.iter().find(|pattern| pattern.matches(composite))?;
        self.children.get(pattern.text())
    }

    /// The nodes of the next level, in no order.
    pub fn children(&self) -> impl Iterator<Item = &Self> {
        self.children.values()
    }

    /// Whether the tree ends here.
    #[must_use]
    pub fn is_leaf(&self) -> bool {
        self.children.is_empty()
    }
}

impl RuleSet {
    /// Compiles what the sources describe.
    ///
    /// # Errors
    /// [`CompileError`] for the first spec that cannot be kept. Sources that report every problem check first.
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

    /// No rules at all: every domain is unknown.
    #[must_use]
    pub fn empty() -> Self {
        Self { domains: HashMap::new(), rules: Vec::new(), limits: Vec::new(), defaults: Defaults::REFERENCE }
    }

    fn add_level(
        &mut self,
        node: &mut Node,
        specs: &[NodeSpec],
        parent: &Parent<'_>,
    ) -> Result<(), CompileError> {
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
            node.wildcards.extend(Pattern::new(&composite));
            if node.children.insert(composite.into(), child).is_some() {
                return Err(CompileError::DuplicateComposite(path));
            }
        }
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

    /// The tree of a domain.
    #[must_use]
    pub fn domain(&self, name: &str) -> Option<&DomainRules> {
        self.domains.get(name)
    }

    /// The names of all domains, in no order.
    pub fn domains(&self) -> impl Iterator<Item = &str> {
        self.domains.keys().map(AsRef::as_ref)
    }

    /// Every rule, in the order of the files; `RuleId` is the place.
    #[must_use]
    pub fn rules(&self) -> &[Arc<Rule>] {
        &self.rules
    }

    /// Every limit, in the order of the files; `LimitId` is the place.
    #[must_use]
    pub fn limits(&self) -> &[Arc<Limit>] {
        &self.limits
    }

    /// The place that all per-request overrides share: one after the last limit.
    #[must_use]
    pub fn override_id(&self) -> LimitId {
        self.next_limit_id()
    }

    /// What limits are that say nothing of it.
    #[must_use]
    pub fn defaults(&self) -> Defaults {
        self.defaults
    }

    fn next_limit_id(&self) -> LimitId {
        // More limits than that cannot be written down in the memory of a machine.
        LimitId(u32::try_from(self.limits.len()).unwrap_or(u32::MAX))
    }
}

#[derive(Clone, Copy)]
struct Parent<'a> {
    domain: &'a Arc<str>,
    path: &'a str,
    shard_by: ShardBy,
}
