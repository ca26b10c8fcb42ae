//! Reads the document of a rule file: the domain and its tree of descriptors.

use std::sync::Arc;

use crate::engine::{Defaults, NodeSpec, RuleSpec, ShardBy};

use super::draft::{DomainDraft, LimitDraft, NodeDraft};
use super::fields::Fields;
use super::limits;
use super::metadata;
use super::report::{At, Report};
use crate::rules::keys::Section;
use crate::rules::problem::Problem;
use crate::yaml::{Document, Node};

/// Reads the first document of `file`. Returns `None` for a document without a domain, and every problem of the
/// document in both cases.
pub(in crate::rules) fn read_document(
    file: &Arc<str>,
    document: &Document,
    defaults: Defaults,
) -> (Option<DomainDraft>, Vec<Problem>) {
    let mut report = Report::new(file);
    let draft = read_domain(document, defaults, &mut report);
    (draft, report.problems)
}

fn read_domain(document: &Document, defaults: Defaults, report: &mut Report) -> Option<DomainDraft> {
    if let Some(line) = document.second_line {
        let at = At { line, path: String::new() };
        report.warn(&at, "only the first YAML document of a file is read; this one is ignored");
    }
    let Some(root) = &document.root else {
        let at = At { line: 1, path: String::new() };
        report.error(&at, NO_DOMAIN);
        return None;
    };
    let at = At { line: root.line, path: String::new() };
    let fields = Fields::read(&[root], Section::File, at, report);
    let mut reader = Reader { defaults, report };
    let nodes = reader.level(&fields);
    let name = required(&fields, "domain", NO_DOMAIN, report)?;
    let place = report.place(&fields.at("domain"));
    Some(DomainDraft { place, name: name.to_owned(), shard_by: shard_by(&fields), nodes })
}

fn shard_by(fields: &Fields<'_>) -> Option<ShardBy> {
    fields.text("shard_by").and_then(ShardBy::parse)
}

const NO_DOMAIN: &str = "config file cannot have empty domain";

/// A text that must not be empty; `reason` is reported where it is, or where there is none.
fn required<'n>(fields: &Fields<'n>, name: &str, reason: &str, report: &mut Report) -> Option<&'n str> {
    let text = fields.text(name).filter(|text| !text.is_empty());
    if text.is_none() && !fields.is_broken(name) {
        report.error(&fields.at(name), reason);
    }
    text
}

struct Reader<'r> {
    defaults: Defaults,
    report: &'r mut Report,
}

impl Reader<'_> {
    /// The descriptors of a document or a descriptor. The depth of the document bounds the recursion.
    fn level(&mut self, parent: &Fields<'_>) -> Vec<NodeDraft> {
        parent.list("descriptors").filter_map(|(node, at)| self.node(node, at)).collect()
    }

    fn node(&mut self, node: &Node, at: At) -> Option<NodeDraft> {
        let fields = Fields::read(&[node], Section::Descriptor, at, self.report);
        let limits = self.limits(&fields);
        let rule = self.rule(&fields);
        let nodes = self.level(&fields);
        let key = required(&fields, "key", "descriptor has empty key", self.report)?;
        let spec = NodeSpec {
            key: key.to_owned(),
            value: fields.text("value").unwrap_or_default().to_owned(),
            share_threshold: fields.flag("share_threshold"),
            ..NodeSpec::default()
        };
        self.check_wildcard(&spec, &fields);
        let names_limits = limits::are_named(&fields);
        self.check_effect(&fields, names_limits);
        let has_errors = fields.has_errors();
        Some(NodeDraft {
            place: self.report.place(&fields.at),
            spec,
            names_limits,
            limits,
            rule,
            nodes,
            has_errors,
        })
    }

    fn limits(&mut self, fields: &Fields<'_>) -> Vec<LimitDraft> {
        limits::read(fields, self.defaults, self.report)
    }

    fn rule(&mut self, fields: &Fields<'_>) -> RuleSpec {
        RuleSpec {
            limits: Vec::new(),
            shadow: fields.flag("shadow_mode"),
            quota: fields.flag("quota_mode"),
            shard_by: shard_by(fields),
            metadata: fields.map("metadata").map(|(parts, at)| metadata::read(parts, &at, self.report)),
        }
    }

    fn check_wildcard(&mut self, spec: &NodeSpec, fields: &Fields<'_>) {
        if spec.share_threshold && !spec.value.contains('*') {
            let composite = spec.composite();
            self.report.error(
                &fields.at("share_threshold"),
                format!(
                    "share_threshold can only be used with wildcard values (containing '*'), but found key '{composite}'"
                ),
            );
        }
        if spec.key.contains('*') {
            self.report.warn(
                &fields.at("key"),
                format!("key '{}' contains '*', so it is a wildcard over key and value together", spec.key),
            );
        }
    }

    fn check_effect(&mut self, fields: &Fields<'_>, names_limits: bool) {
        if names_limits {
            return;
        }
        for name in ["shadow_mode", "quota_mode", "shard_by", "metadata"] {
            if fields.has(name) {
                let reason = format!("'{name}' does nothing here: this descriptor has no limit");
                self.report.warn(&fields.at(name), reason);
            }
        }
    }
}
