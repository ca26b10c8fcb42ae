//! Compiles the specs of domains into a [`RuleSet`]: builds the tree, numbers rules and limits, and hides secret values
//! in their names.

use std::sync::Arc;

use super::{CompiledRules, Defaults, DomainRules, Node, Rule, RuleId, RuleSet, StatPath};
use crate::limit::Limit;
use crate::limit::key::ShardBy;
use crate::rules::secret::{SecretValues, ValueHashing};
use crate::rules::spec::{CompileError, DomainSpec, NodeSpec, RuleSpec};
use crate::rules::wildcards::{Pattern, Wildcards};

impl RuleSet {
    /// Compiles `specs`, one per domain.
    ///
    /// # Errors
    /// [`CompileError`] for the first invalid spec.
    pub fn compile(
        specs: &[DomainSpec],
        defaults: Defaults,
        hashing: ValueHashing,
    ) -> Result<Self, CompileError> {
        let mut set = CompiledRules::empty(defaults);
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
                takes_tier: false,
            };
            set.add_level(&mut root, &spec.descriptors, &top)?;
            let rules = DomainRules { name, index: set.domains.len(), shard_by, root, secrets };
            if set.domains.insert(spec.domain.as_str().into(), rules).is_some() {
                return Err(CompileError::DuplicateDomain(spec.domain.clone()));
            }
        }
        let levels = specs.iter().map(|spec| spec.descriptors.as_slice());
        set.secrets_elsewhere = SecretValues::new(levels, hashing)?;
        Ok(set.into())
    }

    /// Changes the counters: two limits share a counter only if the limits with the same ids in `other` do.
    #[must_use]
    pub fn sharing_counters_as(mut self, other: &Self) -> Self {
        Arc::make_mut(&mut self.compiled).share_counters_as(&other.compiled);
        self
    }
}

impl CompiledRules {
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
            child.is_tier = spec.tier;
            let is_open = spec.has_open_value();
            child.takes_value = is_open && spec.value_to_metric;
            let values = Values {
                are_open: parent.values.are_open || is_open,
                are_taken: parent.values.are_taken || child.takes_value,
            };
            let takes_tier = parent.takes_tier || spec.tier;
            let here = Parent { path: &path, values, takes_tier, ..*parent };
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
        let path: Arc<str> = here.path.into();
        let mut limits = Vec::with_capacity(spec.limits.len());
        let kinds: Vec<_> = match spec.limits.as_slice() {
            [_] => Vec::new(),
            several => several.iter().map(Limit::kind).collect(),
        };
        for (index, limit) in spec.limits.iter().enumerate() {
            let with_same_counter = spec.limits.iter().filter(|other| other.fingerprint == limit.fingerprint);
            let has_own_counter = with_same_counter.count() == 1;
            let of_same_kind = |own: &_| kinds.iter().filter(|kind| *kind == own).count();
            let place = match kinds.get(index).map(of_same_kind) {
                None | Some(1) => String::new(),
                Some(_) => format!("/limit{}", index + 1),
            };
            let limit = limit.clone().placed(self.next_limit_id(), Arc::clone(&path));
            let limit = if has_own_counter { limit } else { limit.with_numbers() };
            let limit = Limit { shadow: spec.shadow, place: place.into(), ..limit };
            let limit = Arc::new(limit.with_placed_tiers());
            self.limits.push(Arc::clone(&limit));
            limits.push(limit);
        }
        let id = RuleId(u32::try_from(self.rules.len()).unwrap_or(u32::MAX));
        let rule = Arc::new(Rule {
            id,
            domain: Arc::clone(here.domain),
            path,
            limits,
            stat_path: here.values.stat_path(spec.detailed_metric),
            shadow: spec.shadow,
            quota: spec.quota,
            shard_by: spec.shard_by.unwrap_or(here.shard_by),
            metadata: spec.metadata.clone(),
            takes_tier: here.takes_tier,
        });
        self.rules.push(Arc::clone(&rule));
        rule
    }

    fn share_counters_as(&mut self, other: &Self) {
        let apart = |limit: &Arc<Limit>| {
            let mut limit = Limit::clone(limit);
            if let Some(other) = other.limits.get(limit.id.0 as usize) {
                limit.fingerprint = format!("{}@{}", limit.fingerprint, other.fingerprint).into();
            }
            Arc::new(limit.with_placed_tiers())
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
    }
}

impl Node {
    /// Replaces the rules of this node and its descendants from a list by id.
    fn replace_rules(&mut self, rules: &[Arc<Rule>]) {
        let by_id = |rule: &Arc<Rule>| rules.get(rule.id.0 as usize).unwrap_or(rule).clone();
        self.rule = self.rule.as_ref().map(by_id);
        self.children.values_mut().for_each(|child| child.replace_rules(rules));
    }
}

#[derive(Clone, Copy)]
struct Parent<'a> {
    domain: &'a Arc<str>,
    path: &'a str,
    shard_by: ShardBy,
    values: Values,
    secrets: Option<&'a SecretValues>,
    takes_tier: bool,
}

impl Parent<'_> {
    /// The name of a child node, with a hash instead of a secret value.
    fn shown_composite(&self, spec: &NodeSpec) -> String {
        let hash = self.secrets.and_then(|secrets| secrets.hidden_rule_value(self.domain, spec));
        hash.map_or_else(|| spec.composite(), |hash| format!("{}_{hash}", spec.key))
    }
}

/// Which values requests can have along a path of nodes. Decides the [`StatPath`] of a rule.
#[derive(Clone, Copy, Default)]
struct Values {
    /// A node of the path matches different values.
    are_open: bool,
    /// A node puts the request's value into the stat path.
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
