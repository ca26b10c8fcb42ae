//! Reads resources, the rules of one domain in a message instead of a file, into drafts of rules.
//!
//! Errors are those of a rule file. Warnings are dropped: a program wrote the rules, and its user cannot change them.

use std::collections::BTreeMap;
use std::sync::Arc;

use engine::{Defaults, Limit, LimitSpec, Metadata, NodeSpec, Period, RuleSpec, Unit};

use super::document::{EMPTY_KEY, NO_DOMAIN, reserved_key};
use super::draft::{DomainDraft, LimitDraft, NodeDraft};
use super::limit::{EMPTY_REPLACES, REPLACES_ITSELF, UNIT_OF_UNLIMITED, invalid_unit};
use super::metadata::check_metadata;
use super::{FileReport, Position};
use crate::keys::WrittenFields;
use crate::problem::ProblemCollector;

/// A message with the rules of one domain. It has only the keys of envoyproxy/ratelimit.
#[derive(Clone, Debug, PartialEq)]
pub struct RuleResource {
    /// For messages.
    pub name: Arc<str>,
    /// The reason if the message cannot be decoded.
    pub rules: Result<ResourceRules, String>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ResourceRules {
    pub domain: String,
    pub descriptors: Vec<ResourceDescriptor>,
}

/// A node of the tree, with the fields of a rule file.
#[derive(Clone, Debug, PartialEq)]
pub struct ResourceDescriptor {
    pub key: String,
    /// Empty: every value.
    pub value: String,
    pub rate_limit: Option<Box<ResourceLimit>>,
    pub descriptors: Vec<ResourceDescriptor>,
    pub shadow_mode: bool,
    pub quota_mode: bool,
    pub detailed_metric: bool,
    pub metadata: Option<Metadata>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceLimit {
    /// The error is what the message has instead of a unit.
    pub unit: Result<Unit, String>,
    pub requests_per_unit: u32,
    pub unlimited: bool,
    /// Empty: no name.
    pub name: String,
    /// The names of limits.
    pub replaces: Vec<String>,
}

/// The draft of `resource`; `None` without a domain. Returns all problems in both cases.
pub(crate) fn read_resource(
    resource: RuleResource,
    defaults: Defaults,
) -> (Option<DomainDraft>, ProblemCollector) {
    let mut report = FileReport::new(&resource.name);
    let draft = ResourceReader { defaults, report: &mut report }.read_domain(resource);
    (draft, report.problems)
}

struct ResourceReader<'r> {
    defaults: Defaults,
    report: &'r mut FileReport,
}

impl ResourceReader<'_> {
    fn read_domain(&mut self, resource: RuleResource) -> Option<DomainDraft> {
        let at = Position::default();
        let rules = match resource.rules {
            Ok(rules) => rules,
            Err(reason) => {
                self.report.error(&at, reason);
                return None;
            }
        };
        let nodes = self.read_level(rules.descriptors, &at);
        if rules.domain.is_empty() {
            self.report.error(&at, NO_DOMAIN);
            return None;
        }
        let location = self.report.location(&at);
        let documents = vec![Arc::clone(&resource.name)];
        Some(DomainDraft { location, name: rules.domain, shard_by: None, nodes, documents })
    }

    /// The decoder of the message bounds the depth, and so the recursion.
    fn read_level(&mut self, descriptors: Vec<ResourceDescriptor>, parent: &Position) -> Vec<NodeDraft> {
        let at = parent.key("descriptors", 0);
        let descriptors = descriptors.into_iter().enumerate();
        descriptors.filter_map(|(index, node)| self.read_node(node, &at.element(index, 0))).collect()
    }

    fn read_node(&mut self, node: ResourceDescriptor, at: &Position) -> Option<NodeDraft> {
        let names_limits = node.rate_limit.is_some();
        let limit = node.rate_limit.and_then(|limit| self.read_limit(*limit, &at.key("rate_limit", 0)));
        let metadata = node.metadata.map(|metadata| self.read_metadata(metadata, &at.key("metadata", 0)));
        let nodes = self.read_level(node.descriptors, at);
        if node.key.is_empty() {
            self.report.error(at, EMPTY_KEY);
            return None;
        }
        if let Some(reason) = reserved_key(&node.key) {
            self.report.error(at, reason);
            return None;
        }
        let rule = RuleSpec {
            shadow: node.shadow_mode,
            quota: node.quota_mode,
            detailed_metric: node.detailed_metric,
            metadata,
            ..RuleSpec::default()
        };
        Some(NodeDraft {
            location: self.report.location(at),
            value_line: None,
            names_share_threshold: false,
            spec: NodeSpec { key: node.key, value: node.value, rule: Some(rule), ..NodeSpec::default() },
            limits: limit.into_iter().collect(),
            nodes,
            names_limits,
            has_errors: false,
        })
    }

    fn read_limit(&mut self, limit: ResourceLimit, at: &Position) -> Option<LimitDraft> {
        let period = self.read_period(&limit, at);
        for (index, name) in limit.replaces.iter().enumerate() {
            let at = at.key("replaces", 0).element(index, 0);
            if name.is_empty() {
                self.report.error(&at, EMPTY_REPLACES);
            } else if *name == limit.name {
                self.report.error(&at, REPLACES_ITSELF);
            }
        }
        let spec = LimitSpec {
            unlimited: limit.unlimited,
            name: (!limit.name.is_empty()).then_some(limit.name),
            replaces: limit.replaces,
            ..self.defaults.limit(limit.requests_per_unit.into(), period?)
        };
        match Limit::new(spec) {
            Ok(limit) => {
                let location = self.report.location(at);
                Some(LimitDraft { location, limit, written: WrittenFields::default() })
            }
            Err(error) => {
                self.report.error(at, error.to_string());
                None
            }
        }
    }

    fn read_period(&mut self, limit: &ResourceLimit, at: &Position) -> Option<Period> {
        match (&limit.unit, limit.unlimited) {
            (Ok(unit), false) => Some(Period::one(*unit)),
            (Err(_), true) => Some(Period::one(Unit::Second)),
            (Ok(_), true) => {
                self.report.error(at, UNIT_OF_UNLIMITED);
                None
            }
            (Err(text), false) => {
                self.report.error(at, invalid_unit(text));
                None
            }
        }
    }

    fn read_metadata(&mut self, metadata: Metadata, at: &Position) -> Metadata {
        match check_metadata(&metadata) {
            Ok(()) => metadata,
            Err(reason) => {
                self.report.error(at, reason);
                Metadata::Map(BTreeMap::new())
            }
        }
    }
}
