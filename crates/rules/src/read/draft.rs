//! Rules as read from a file, each with its location, before they are checked against each other and compiled.

use std::sync::Arc;

use engine::{DomainSpec, LimitSpec, NodeSpec, RuleSpec, ShardBy};

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

/// One node of the tree of descriptors.
#[derive(Clone, Debug)]
pub(crate) struct NodeDraft {
    pub location: Location,
    /// Without the rule and without the nodes below: both are separate fields.
    pub spec: NodeSpec,
    /// Whether the file gives limits here, valid or not.
    pub names_limits: bool,
    /// The valid limits.
    pub limits: Vec<LimitDraft>,
    /// The rule without its limits.
    pub rule: RuleSpec,
    pub nodes: Vec<NodeDraft>,
    /// Whether a part of the node was reported and left out.
    pub has_errors: bool,
}

/// One limit.
#[derive(Clone, Debug)]
pub(crate) struct LimitDraft {
    pub location: Location,
    /// With the defaults filled in.
    pub spec: LimitSpec,
    pub written: WrittenFields,
}

/// Which fields of a limit its rule says itself. The others have defaults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WrittenFields {
    pub algorithm: bool,
    pub charging: bool,
    pub on_store_failure: bool,
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
    fn into_spec(self) -> NodeSpec {
        let mut limits: Vec<_> = self.limits.into_iter().map(|limit| limit.spec).collect();
        limits.shrink_to_fit();
        NodeSpec {
            rule: (!limits.is_empty()).then_some(RuleSpec { limits, ..self.rule }),
            descriptors: into_specs(self.nodes),
            ..self.spec
        }
    }
}
