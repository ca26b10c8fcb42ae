//! Reads one rule file, or one resource: from the YAML tree or the message to drafts of rules, with a problem for
//! everything that is wrong in it.

mod document;
mod draft;
mod field_value;
mod fields;
mod file_report;
mod limit;
mod merge_keys;
mod metadata;
mod resource;
mod yaml11;

pub(super) use document::{ReadContext, read_document};
pub(super) use draft::{DomainDraft, LimitDraft, NodeDraft, WrittenFields};
pub(super) use resource::read_resource;
