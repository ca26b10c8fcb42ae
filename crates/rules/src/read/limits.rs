//! Reads the limits of a descriptor: `rate_limit` or `rate_limits`.

use std::collections::HashMap;

use engine::{Defaults, Limit, Quantity};

use super::draft::{LimitDraft, WrittenFields};
use super::fields::Fields;
use super::file_report::{FileReport, Position};
use super::limit::{LimitReader, limit_name};
use super::merge_keys::MergedValue;
use crate::keys::Section;

/// Whether a descriptor has limits, valid or not.
pub(super) fn has_limits(descriptor: &Fields<'_>) -> bool {
    ["rate_limit", "rate_limits"].into_iter().any(|name| descriptor.has(name) || descriptor.is_invalid(name))
}

/// The valid limits of a descriptor.
pub(super) fn read_limits(
    descriptor: &Fields<'_>,
    defaults: Defaults,
    report: &mut FileReport,
) -> Vec<LimitDraft> {
    if descriptor.has("rate_limit") && descriptor.has("rate_limits") {
        report.error(
            &descriptor.position_of("rate_limits"),
            "a descriptor cannot have both rate_limit and rate_limits; put every limit into rate_limits",
        );
    }
    let single = descriptor.map("rate_limit").map(|(map, at)| (map.clone(), at));
    let several: Vec<_> = descriptor.list("rate_limits").map(|(node, at)| (node.into(), at)).collect();
    if several.is_empty() && descriptor.has("rate_limits") && !descriptor.is_invalid("rate_limits") {
        report.warn(&descriptor.position_of("rate_limits"), "rate_limits is empty: it limits nothing");
    }
    let limits = read_all(single.into_iter().chain(several), defaults, report);
    check_pairs(&limits, report);
    let mut drafts: Vec<_> = limits.into_iter().map(|limit| limit.draft).collect();
    // `collect` keeps the larger memory of the limits.
    drafts.shrink_to_fit();
    drafts
}

/// A valid limit, with what is needed to compare it with the other limits of the descriptor.
struct ValidLimit {
    at: Position,
    draft: LimitDraft,
    limit: Limit,
}

fn read_all<'n>(
    maps: impl Iterator<Item = (MergedValue<'n>, Position)>,
    defaults: Defaults,
    report: &mut FileReport,
) -> Vec<ValidLimit> {
    let maps: Vec<_> = maps.map(|(map, at)| Fields::from_map(&map, Section::RateLimit, at, report)).collect();
    let mut name_lines = HashMap::new();
    for fields in &maps {
        if let Some(name) = limit_name(fields) {
            name_lines.entry(name).or_insert(fields.at.line);
        }
    }
    let mut limits = Vec::with_capacity(maps.len());
    for fields in &maps {
        let mut reader = LimitReader { fields, name_lines: &name_lines, report };
        if let Some(spec) = reader.read_spec(defaults)
            && let Some(limit) = reader.build_limit(&spec)
        {
            let at = fields.at.clone();
            let draft = LimitDraft { location: report.location(&at), spec, written: written(fields) };
            limits.push(ValidLimit { at, draft, limit });
        }
    }
    limits
}

fn written(fields: &Fields<'_>) -> WrittenFields {
    WrittenFields {
        algorithm: fields.has("algorithm"),
        charging: fields.has("charging"),
        on_store_failure: fields.has("on_store_failure"),
    }
}

fn check_pairs(limits: &[ValidLimit], report: &mut FileReport) {
    for (index, this) in limits.iter().enumerate() {
        if limits.len() > 1 && this.limit.quantity == Quantity::Unlimited {
            report.warn(&this.at, "unlimited does nothing beside other limits");
            continue;
        }
        let earlier = limits[..index].iter().find(|other| other.limit.fingerprint == this.limit.fingerprint);
        if let Some(earlier) = earlier {
            let reason = format!(
                "counts in the same way as the limit on line {}, so both would share one counter; remove one of them",
                earlier.at.line
            );
            report.error(&this.at, reason);
        }
    }
}
