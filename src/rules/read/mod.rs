//! Reads one rule file: from the YAML tree to drafts of rules, with a problem for everything that is wrong in the file.

mod document;
mod draft;
mod field_value;
mod fields;
mod file_report;
mod limit;
mod limits;
mod merge_keys;
mod metadata;
mod yaml11;

pub(super) use document::{ReadContext, read_document};
pub(super) use draft::{DomainDraft, LimitDraft, NodeDraft};
