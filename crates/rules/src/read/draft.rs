//! Rules as read from a file, each with its location, before they are checked against each other and compiled.

use std::sync::Arc;

use engine::{DomainSpec, Limit, Metadata, NodeSpec, RuleSpec, ShardBy, composite};

use crate::keys::WrittenFields;
use crate::problem::Location;

/// The rules of a domain from one file, or from several merged ones.
#[derive(Clone, Debug)]
pub(crate) struct DomainDraft {
    pub location: Location,
    pub name: String,
    /// `None` if no file sets it.
    pub shard_by: Option<ShardBy>,
    pub nodes: Vec<NodeDraft>,
    /// The files, or the resources, that have rules of the domain.
    pub documents: Vec<Arc<str>>,
}

/// One node of the tree of descriptors. The fields without a comment are those of [`NodeSpec`].
#[derive(Clone, Debug)]
pub(crate) struct NodeDraft {
    pub location: Location,
    pub key: String,
    pub value: String,
    /// The line of the value; `None` without a value, or in a resource.
    pub value_line: Option<u32>,
    /// `None` if the file does not say it, which means `false`.
    pub share_threshold: Option<bool>,
    pub secret: bool,
    pub value_to_metric: bool,
    pub tier: bool,
    pub rule: RuleDraft,
    pub nodes: Vec<NodeDraft>,
    /// Whether the file gives limits here, valid or not.
    pub names_limits: bool,
    /// Whether a part of the node was reported and left out.
    pub has_errors: bool,
}

/// The rule of a node. The fields without a comment are those of [`RuleSpec`].
#[derive(Clone, Debug)]
pub(crate) struct RuleDraft {
    /// The valid limits. Without any there is no rule.
    pub limits: Vec<LimitDraft>,
    pub shadow: bool,
    pub quota: bool,
    pub detailed_metric: bool,
    pub shard_by: Option<ShardBy>,
    pub metadata: Option<Metadata>,
}

#[derive(Clone, Debug)]
pub(crate) struct LimitDraft {
    pub location: Location,
    /// With the defaults filled in.
    pub limit: Limit,
    pub written: WrittenFields,
}

impl DomainDraft {
    pub fn into_spec(self) -> DomainSpec {
        DomainSpec {
            domain: self.name,
            shard_by: self.shard_by.unwrap_or_default(),
            descriptors: into_specs(self.nodes),
        }
    }
}

fn into_specs(nodes: Vec<NodeDraft>) -> Vec<NodeSpec> {
    let mut specs: Vec<_> = nodes.into_iter().map(NodeDraft::into_spec).collect();
    // `collect` writes the specs into the larger memory of the drafts.
    specs.shrink_to_fit();
    specs
}

impl NodeDraft {
    /// The node's name within its level: `key_value`, or the key alone.
    pub fn composite(&self) -> String {
        composite(&self.key, &self.value)
    }

    /// The line of the value; the location of the node if that is not known.
    pub fn value_location(&self) -> Location {
        Location { line: self.value_line.or(self.location.line), ..self.location.clone() }
    }

    fn into_spec(self) -> NodeSpec {
        NodeSpec {
            key: self.key,
            value: self.value,
            share_threshold: self.share_threshold.unwrap_or_default(),
            secret: self.secret,
            value_to_metric: self.value_to_metric,
            tier: self.tier,
            rule: self.rule.into_spec(),
            descriptors: into_specs(self.nodes),
        }
    }
}

impl RuleDraft {
    fn into_spec(self) -> Option<RuleSpec> {
        let mut limits: Vec<_> = self.limits.into_iter().map(|draft| draft.limit).collect();
        limits.shrink_to_fit();
        (!limits.is_empty()).then_some(RuleSpec {
            limits,
            shadow: self.shadow,
            quota: self.quota,
            detailed_metric: self.detailed_metric,
            shard_by: self.shard_by,
            metadata: self.metadata,
        })
    }
}
