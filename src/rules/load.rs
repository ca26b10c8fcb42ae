//! From the content of rule files to rules, or to every problem there is.

use std::path::PathBuf;
use std::sync::Arc;

use crate::engine::{Defaults, DomainSpec, RuleSet};

use super::lint;
use super::problem::{Place, Problem, Problems};
use super::read::{DomainDraft, read_document};
use super::source::{Files, Source, SourceFile};
use crate::yaml;

/// How rule files are to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadOptions {
    /// Whether several files may name one domain; their first levels are then put together in the order of the files.
    pub merge_domains: bool,
    /// What limits are that do not say.
    pub defaults: Defaults,
}

/// Rules that can be used.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// Compiled.
    pub rules: RuleSet,
    /// What they were compiled from, in the order of the files.
    pub specs: Vec<DomainSpec>,
    /// What is odd about the files.
    pub warnings: Vec<Problem>,
    /// How many files were read.
    pub files: usize,
}

/// Reads the rules at `paths`: files, or directories with all `*.yaml` and `*.yml` files in and below them (see
/// [`Source`]).
///
/// # Errors
/// Every problem of every file, warnings included, if at least one is an error.
pub fn load(paths: &[PathBuf], options: LoadOptions) -> Result<Loaded, Problems> {
    compile(&Source::new(paths).read(), options)
}

pub(super) fn compile(files: &Files, options: LoadOptions) -> Result<Loaded, Problems> {
    let mut problems = files.problems.clone();
    let drafts =
        files.each.iter().filter_map(|file| read_file(file, options.defaults, &mut problems)).collect();
    let domains = by_domain(drafts, options.merge_domains, &mut problems);
    problems.extend(domains.iter().flat_map(lint::check));

    let names: Vec<Arc<str>> = files.each.iter().map(|file| Arc::clone(&file.name)).collect();
    let problems = Problems::sorted(problems, &names);
    if problems.has_errors() {
        return Err(problems);
    }
    let specs: Vec<_> = domains.into_iter().map(DomainDraft::into_spec).collect();
    let rules = RuleSet::compile(&specs, options.defaults).map_err(|error| {
        // Everything the compiler refuses is checked above, with lines; should it find more, its word is kept.
        Problems::sorted(vec![Problem::error(Place::file("rules".into()), error.to_string())], &names)
    })?;
    Ok(Loaded { rules, specs, warnings: problems.into_vec(), files: files.each.len() })
}

fn read_file(file: &SourceFile, defaults: Defaults, problems: &mut Vec<Problem>) -> Option<DomainDraft> {
    let mut fail = |place, reason: String| {
        problems.push(Problem::error(place, reason));
        None
    };
    let bytes = match &file.bytes {
        Ok(bytes) => bytes,
        Err(reason) => return fail(Place::file(Arc::clone(&file.name)), reason.clone()),
    };
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => {
            let line = line_of(bytes, error.valid_up_to());
            let reason = "error loading config file: the file is not UTF-8".to_owned();
            return fail(Place::line(Arc::clone(&file.name), line), reason);
        }
    };
    let document = match yaml::parse(text) {
        Ok(document) => document,
        Err(error) => {
            let reason = format!("error loading config file: {}", error.reason);
            return fail(Place::line(Arc::clone(&file.name), error.line), reason);
        }
    };
    let (draft, mut found) = read_document(&file.name, &document, defaults);
    problems.append(&mut found);
    draft
}

fn line_of(bytes: &[u8], offset: usize) -> u32 {
    let newlines = bytes[..offset].iter().filter(|&&byte| byte == b'\n').count();
    u32::try_from(newlines + 1).unwrap_or(u32::MAX)
}

fn merge_into(earlier: &mut DomainDraft, draft: DomainDraft, problems: &mut Vec<Problem>) {
    if let (Some(before), Some(now)) = (earlier.shard_by, draft.shard_by)
        && before != now
    {
        let (name, first) = (&draft.name, &earlier.place);
        let reason =
            format!("shard_by of domain '{name}' is {}, but {} in {first}", now.name(), before.name());
        problems.push(Problem::error(draft.place, reason));
    }
    earlier.shard_by = earlier.shard_by.or(draft.shard_by);
    earlier.nodes.extend(draft.nodes);
}

/// The drafts, one per domain. A domain that several files name is an error unless domains are merged.
fn by_domain(drafts: Vec<DomainDraft>, merge: bool, problems: &mut Vec<Problem>) -> Vec<DomainDraft> {
    let mut domains: Vec<DomainDraft> = Vec::with_capacity(drafts.len());
    for draft in drafts {
        match domains.iter_mut().find(|earlier| earlier.name == draft.name) {
            Some(earlier) if merge => merge_into(earlier, draft, problems),
            Some(earlier) => {
                let (name, first) = (&draft.name, &earlier.place);
                let reason = format!("duplicate domain '{name}' in config file, first on {first}");
                problems.push(Problem::error(draft.place.clone(), reason));
                domains.push(draft);
            }
            None => domains.push(draft),
        }
    }
    domains
}
