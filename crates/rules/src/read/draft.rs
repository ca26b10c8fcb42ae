//! Rules as read from a file, each with its location, before they are checked against each other and compiled.

use std::sync::Arc;

use engine::{DomainSpec, Limit, NodeSpec, RuleSpec, ShardBy};

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
    /// The files or resources with rules of the domain.
    pub documents: Vec<Arc<str>>,
}

/// One node of the tree of descriptors.
#[derive(Clone, Debug)]
pub(crate) struct NodeDraft {
    pub location: Location,
    /// Without a value, the line on which the node starts; `None` in a resource.
    pub value_line: Option<u32>,
    /// `true` if the file sets `share_threshold`, to either value.
    pub names_share_threshold: bool,
    /// The node without its children; its rule has no limits yet.
    pub spec: NodeSpec,
    /// The valid limits. Without any there is no rule.
    pub limits: Vec<LimitDraft>,
    pub nodes: Vec<NodeDraft>,
    /// `true` if the file has limits here, valid or not.
    pub names_limits: bool,
    /// `true` if a part of the node was reported and left out.
    pub has_errors: bool,
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
    // `collect` reuses the larger allocation of the drafts.
    specs.shrink_to_fit();
    specs
}

impl NodeDraft {
    /// The location of the value, or of the node if unknown.
    pub fn value_location(&self) -> Location {
        Location { line: self.value_line.or(self.location.line), ..self.location.clone() }
    }

    fn into_spec(self) -> NodeSpec {
        let mut limits: Vec<_> = self.limits.into_iter().map(|draft| draft.limit).collect();
        limits.shrink_to_fit();
        let rule = self.spec.rule.filter(|_| !limits.is_empty());
        NodeSpec {
            rule: rule.map(|rule| RuleSpec { limits, ..rule }),
            descriptors: into_specs(self.nodes),
            ..self.spec
        }
    }
}
