//! Rules as they were read, each with the place it came from, until it is certain that they can be used.

use crate::engine::{DomainSpec, LimitSpec, NodeSpec, RuleSpec, ShardBy};

use crate::rules::problem::Place;

/// All rules that one file, or several merged ones, give for a domain.
#[derive(Clone, Debug)]
pub(in crate::rules) struct DomainDraft {
    pub place: Place,
    pub name: String,
    /// As far as it is said.
    pub shard_by: Option<ShardBy>,
    pub nodes: Vec<NodeDraft>,
}

/// One node of the tree.
#[derive(Clone, Debug)]
pub(in crate::rules) struct NodeDraft {
    pub place: Place,
    /// Without limits and without the next level.
    pub spec: NodeSpec,
    /// Whether limits are given, good ones or not.
    pub names_limits: bool,
    /// The good ones.
    pub limits: Vec<LimitDraft>,
    /// How the limits count towards the answer; its own list of limits is empty.
    pub rule: RuleSpec,
    pub nodes: Vec<NodeDraft>,
    /// Whether something in it is reported that keeps it from being read in full.
    pub has_errors: bool,
}

/// One limit.
#[derive(Clone, Debug)]
pub(in crate::rules) struct LimitDraft {
    pub place: Place,
    pub spec: LimitSpec,
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
    nodes.into_iter().map(NodeDraft::into_spec).collect()
}

impl NodeDraft {
    fn into_spec(self) -> NodeSpec {
        let limits: Vec<_> = self.limits.into_iter().map(|limit| limit.spec).collect();
        NodeSpec {
            rule: (!limits.is_empty()).then_some(RuleSpec { limits, ..self.rule }),
            descriptors: into_specs(self.nodes),
            ..self.spec
        }
    }
}
