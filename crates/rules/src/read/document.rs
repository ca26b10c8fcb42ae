//! Reads the document of a rule file: the domain and its tree of descriptors.

use std::sync::Arc;

use engine::{Defaults, NodeSpec, RESERVED_KEYS, RuleSpec, ValueHashing, composite};

use super::draft::{DomainDraft, NodeDraft};
use super::fields::Fields;
use super::limit::{has_limits, read_limits};
use super::metadata::read_metadata;
use super::pauses::PathEntry;
use super::{FileReport, Position};
use crate::calendar::Calendars;
use crate::credentials::without_value;
use crate::keys::Section;
use crate::problem::ProblemCollector;
use crate::yaml::{Document, Node};

/// Settings for reading a document.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadContext<'c> {
    pub defaults: Defaults,
    pub hashing: ValueHashing,
    pub calendars: &'c Calendars,
}

/// Reads the first document of `file`, a rule file or a resource. Returns `None` for a document without a domain, and
/// in both cases all its problems.
pub(crate) fn read_document(
    file: &Arc<str>,
    document: &Document,
    context: ReadContext<'_>,
) -> (Option<DomainDraft>, ProblemCollector) {
    let mut report = FileReport::new(file);
    let draft = read_domain(document, context, &mut report);
    (draft, report.problems)
}

fn read_domain(
    document: &Document,
    context: ReadContext<'_>,
    report: &mut FileReport,
) -> Option<DomainDraft> {
    if let Some(line) = document.second_line {
        let reason = "only the first YAML document of a file is read; this one is ignored";
        report.warn(&Position::document(line), reason);
    }
    let Some(root) = &document.root else {
        report.error(&Position::document(1), format!("{NO_DOMAIN}{DOMAIN_IS_MISSING}"));
        return None;
    };
    let fields = Fields::from_map(&root.into(), Section::File, Position::document(root.line), report);
    let nodes = NodeReader { context, report }.read_level(&fields, None);
    let is_empty = if fields.has("domain") { "" } else { DOMAIN_IS_MISSING };
    let name = required_text(&fields, "domain", &format!("{NO_DOMAIN}{is_empty}"), report)?;
    let location = report.location(&fields.position_of("domain"));
    let documents = vec![Arc::clone(&location.file)];
    Some(DomainDraft {
        location,
        name: name.to_owned(),
        shard_by: fields.parsed("shard_by"),
        nodes,
        documents,
    })
}

const NO_DOMAIN: &str = "config file cannot have empty domain";
/// The end of [`NO_DOMAIN`] for a file without a domain.
const DOMAIN_IS_MISSING: &str = ": it has none; add a line such as 'domain: NAME'";
const NO_HASH_KEY: &str = "a secret value needs a key for its hash: set secrets.key_file or secrets.key, to the same key \
    for all instances";

/// The value of a mandatory key; reports `reason` if it is missing or empty.
fn required_text<'n>(
    fields: &Fields<'n>,
    name: &str,
    reason: &str,
    report: &mut FileReport,
) -> Option<&'n str> {
    let text = fields.text(name).filter(|text| !text.is_empty());
    if text.is_none() && !fields.is_reported(name) {
        report.error(&fields.position_of(name), reason);
    }
    text
}

struct NodeReader<'r> {
    context: ReadContext<'r>,
    report: &'r mut FileReport,
}

impl NodeReader<'_> {
    /// Reads `descriptors` of the document or of a descriptor. The bounded depth of the YAML tree bounds the recursion.
    fn read_level(&mut self, parent: &Fields<'_>, path: Option<&PathEntry<'_>>) -> Vec<NodeDraft> {
        let maps = parent.list("descriptors");
        let mut nodes = Vec::with_capacity(maps.size_hint().1.unwrap_or_default());
        nodes.extend(maps.filter_map(|(node, at)| self.read_node(node, at, path)));
        nodes
    }

    /// `true` if a descriptor was reported and left out.
    fn has_invalid_level(fields: &Fields<'_>, nodes: &[NodeDraft]) -> bool {
        nodes.len() < fields.list("descriptors").count()
    }

    fn read_node(&mut self, node: &Node, at: Position, parent: Option<&PathEntry<'_>>) -> Option<NodeDraft> {
        let fields = Fields::from_map(&node.into(), Section::Descriptor, at, self.report);
        let path = PathEntry::new(&fields, parent);
        let limits = read_limits(&fields, &path, self.context, self.report);
        let rule = self.read_rule(&fields);
        let nodes = self.read_level(&fields, Some(&path));
        let key = required_text(&fields, "key", "descriptor has empty key", self.report)?;
        if RESERVED_KEYS.contains(&key) {
            let reason = format!("the key {key} is reserved: its entry is removed before matching");
            self.report.error(&fields.position_of("key"), reason);
            return None;
        }
        let value = fields.text("value").unwrap_or_default();
        let secret = fields.flag("secret");
        if secret && self.context.hashing.key.is_none() {
            self.report.error(&fields.position_of("secret"), NO_HASH_KEY);
        }
        self.check_wildcard(key, value, &fields);
        let tier = self.read_tier(key, value, &fields);
        let names_limits = has_limits(&fields);
        self.check_effect(&fields, names_limits);
        let has_errors = fields.has_errors() || Self::has_invalid_level(&fields, &nodes);
        let spec = NodeSpec {
            key: key.to_owned(),
            value: value.to_owned(),
            share_threshold: fields.flag("share_threshold"),
            secret,
            value_to_metric: fields.flag("value_to_metric"),
            tier,
            rule: Some(rule),
            descriptors: Vec::new(),
        };
        Some(NodeDraft {
            location: self.report.location(&fields.at),
            value_line: Some(fields.position_of("value").line).filter(|line| *line > 0),
            names_share_threshold: fields.has("share_threshold"),
            spec,
            limits,
            nodes,
            names_limits,
            has_errors,
        })
    }

    fn read_rule(&mut self, fields: &Fields<'_>) -> RuleSpec {
        RuleSpec {
            limits: Vec::new(),
            shadow: fields.flag("shadow_mode"),
            quota: fields.flag("quota_mode"),
            detailed_metric: fields.flag("detailed_metric"),
            shard_by: fields.parsed("shard_by"),
            metadata: fields.map("metadata").map(|(map, at)| read_metadata(map, &at, self.report)),
        }
    }

    fn check_wildcard(&mut self, key: &str, value: &str, fields: &Fields<'_>) {
        if fields.flag("share_threshold") && !key.contains('*') && !value.contains('*') {
            let composite = if fields.flag("secret") { without_value(key) } else { composite(key, value) };
            self.report.error(
                &fields.position_of("share_threshold"),
                format!(
                    "share_threshold can only be used with wildcard values (containing '*'), but found key '{composite}'"
                ),
            );
        }
        if key.contains('*') {
            self.report.warn(
                &fields.position_of("key"),
                format!("key '{key}' contains '*', so it is a wildcard over key and value together"),
            );
        }
    }

    /// `true` if the entry's value is a tier.
    fn read_tier(&mut self, key: &str, value: &str, fields: &Fields<'_>) -> bool {
        let is_tier = fields.flag("tier");
        if is_tier && (!value.is_empty() || key.contains('*')) {
            let reason = "tier is for a key without a value and without '*': each value of the key is the name of a tier";
            self.report.error(&fields.position_of("tier"), reason);
        }
        is_tier
    }

    fn check_effect(&mut self, fields: &Fields<'_>, names_limits: bool) {
        if names_limits {
            return;
        }
        for name in ["shadow_mode", "quota_mode", "shard_by", "metadata"] {
            if fields.has(name) {
                let reason = format!("'{name}' has no effect here: this descriptor has no limit");
                self.report.warn(&fields.position_of(name), reason);
            }
        }
    }
}
