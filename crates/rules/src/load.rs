//! Turns the bytes of rule files into compiled rules, or into the list of all their problems.

use std::collections::HashMap;
use std::io::Read;
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;

use base::told_if_slow;
use engine::{Calendar, Defaults, DomainSpec, LimitId, RuleSet, ValueHashing};

use super::calendar::{CalendarOptions, Calendars};
use super::file_bytes::{SourceFile, SourceFiles};
use super::lint;
use super::problem::{Location, Problem, ProblemCollector, Problems};
use super::read::{DomainDraft, ReadContext, read_document};
use super::scope;
use super::source::{RuleDirectory, Source};
use super::text::{decode, looks_like_rules};
use super::upgrade::{self, Upgrade, UpgradedLimit};
use crate::yaml::{self, Document, Node, YamlError};

/// Settings that change the meaning of rule files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadOptions {
    /// `true` if several files may have the same domain. Their descriptors are joined in file order.
    pub merge_domains: bool,
    /// For limits that do not set a key.
    pub defaults: Defaults,
    /// Fields for limits that do not set them, or that override what they set.
    pub upgrades: Vec<Upgrade>,
    /// How secret values are hashed.
    pub hashing: ValueHashing,
    pub directory: RuleDirectory,
    pub calendars: CalendarOptions,
    /// `true` if there is a store for limits of all regions.
    pub has_home: bool,
}

/// A message with the rules of one domain.
#[derive(Clone, Debug, PartialEq)]
pub struct RuleResource<T> {
    /// For messages.
    pub name: Arc<str>,
    /// Becomes a document as in a rule file; or the reason if the message cannot be decoded.
    pub rules: Result<T, String>,
}

/// Rules without errors.
#[derive(Clone, Debug)]
pub struct LoadedRules {
    pub rules: RuleSet,
    /// The input of the compilation, in file order.
    pub specs: Vec<DomainSpec>,
    /// Probable mistakes in the files.
    pub warnings: Problems,
    /// Number of files with rules, or of resources.
    pub files: usize,
    pub(super) names: Vec<Arc<str>>,
    /// The domains of `specs` with their files or resources.
    pub documents: Vec<DomainDocuments>,
    pub upgrades: AppliedUpgrades,
    /// The first 12 hex digits of a SHA-256: equal for equal files, wherever `rules.path` is; or for equal resources.
    pub digest: String,
}

/// The effect of the table of upgrades.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AppliedUpgrades {
    pub rows: usize,
    /// In the order of their ids.
    pub limits: Vec<UpgradedLimit>,
}

impl AppliedUpgrades {
    pub fn of_limit(&self, limit: LimitId) -> Option<&UpgradedLimit> {
        let index = self.limits.binary_search_by_key(&limit, |upgraded| upgraded.limit).ok()?;
        self.limits.get(index)
    }
}

/// A domain, and the files or resources with its rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DomainDocuments {
    pub name: String,
    pub documents: Vec<Arc<str>>,
}

impl LoadedRules {
    /// Drops everything else: the specs alone take as much memory as the rules.
    pub fn into_rules(self) -> RuleSet {
        self.rules
    }
}

/// Loads the rules at `paths`: files, or directories from which `options.directory` selects files.
///
/// # Errors
/// All problems of all files, including warnings, if at least one is an error.
pub fn load(paths: &[PathBuf], options: LoadOptions) -> Result<LoadedRules, Problems> {
    told_if_slow(paths, || compile(&Source::new(paths, options.directory).read_files(), &options, &[]))
}

/// Loads one rule file from `stream`; messages call it `name`.
///
/// # Errors
/// Like [`load`].
pub fn load_stream(name: &str, stream: impl Read, options: LoadOptions) -> Result<LoadedRules, Problems> {
    told_if_slow(&[name], || compile(&SourceFiles::from_stream(name, stream), &options, &[]))
}

/// Loads the rules of `resources`, one domain each, in the order of their names: the first of several wildcards wins,
/// and a server may send resources in any order.
///
/// # Errors
/// All problems of all resources, if there is one.
pub fn load_resources<T: Into<Node> + Send>(
    mut resources: Vec<RuleResource<T>>,
    options: &LoadOptions,
) -> Result<LoadedRules, Problems> {
    resources.sort_by(|a, b| a.name.cmp(&b.name));
    let (finished, digest) = on_own_thread(|| {
        let calendars = Calendars::new(options.calendars.years);
        let names: Vec<Arc<str>> = resources.iter().map(|resource| Arc::clone(&resource.name)).collect();
        let mut problems = ProblemCollector::default();
        let mut drafts = Vec::with_capacity(resources.len());
        let context =
            ReadContext { defaults: options.defaults, hashing: options.hashing, calendars: &calendars };
        for RuleResource { name, rules } in resources {
            match rules {
                Ok(rules) => {
                    let document = Document { root: Some(rules.into()), second_line: None };
                    let (draft, found) = read_document(&name, &document, context);
                    problems.append(found);
                    drafts.extend(draft);
                }
                Err(reason) => problems.push(Problem::error(Location::file(name), reason)),
            }
        }
        // Of what was read: a server can encode a map in any order.
        let digest = base::debug_digest(&drafts);
        let drafts = Drafts { domains: drafts, problems, listed: names.clone(), names };
        Ok((finish_drafts(drafts, options, &calendars, Warnings::Dropped)?, digest))
    })?;
    compile_finished(finished, options, digest)
}

/// `in_force`: names of the files whose rules are active. Each is read as a rule file, whatever its content: otherwise
/// a mistake in it would remove its limits without an error.
pub(super) fn compile(
    sources: &SourceFiles,
    options: &LoadOptions,
    in_force: &[Arc<str>],
) -> Result<LoadedRules, Problems> {
    let finished = on_own_thread(|| {
        let calendars = Calendars::new(options.calendars.years);
        let drafts = read_drafts(sources, options, &calendars, in_force);
        finish_drafts(drafts, options, &calendars, Warnings::Kept)
    })?;
    compile_finished(finished, options, sources.digest())
}

/// Runs `work`, which needs many times the memory of the rules, on a temporary thread, and waits for it.
///
/// The allocator has a heap per thread. A page with both rules and the YAML trees of their files stays in use after the
/// trees are freed, and memory freed by another thread stays in its thread's heap until that thread allocates again.
/// The heap of a finished thread returns its free pages.
pub(super) fn on_own_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let mut work = Some(work);
    let mut run = || work.take().map(|work| work());
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("rules".to_owned()).spawn_scoped(scope, &mut run);
        thread.ok().and_then(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)))
    })
    // The system has no thread left.
    .or_else(run)
    .expect("the work is done here if it was not done there")
}

fn compile_finished(
    finished: FinishedDrafts,
    options: &LoadOptions,
    digest: String,
) -> Result<LoadedRules, Problems> {
    let FinishedDrafts { specs, documents, upgrades, month_calendar, warnings, names } = finished;
    let rules = RuleSet::compile(&specs, options.defaults, options.hashing).map_err(|error| {
        // The checks of the drafts find these errors first, with file and line.
        Problems::one_error(Location::file("rules".into()), error.to_string())
    })?;
    let rules = rules.with_month_calendar(month_calendar);
    Ok(LoadedRules { rules, specs, warnings, files: names.len(), names, documents, upgrades, digest })
}

/// Rules as read, from all files or resources.
struct Drafts {
    domains: Vec<DomainDraft>,
    problems: ProblemCollector,
    /// All files or resources, in the order in which problems are listed.
    listed: Vec<Arc<str>>,
    /// The files or resources with rules.
    names: Vec<Arc<str>>,
}

/// Rules without errors, before compilation.
struct FinishedDrafts {
    specs: Vec<DomainSpec>,
    documents: Vec<DomainDocuments>,
    upgrades: AppliedUpgrades,
    /// For months without a calendar, if the settings define one.
    month_calendar: Option<Arc<Calendar>>,
    warnings: Problems,
    /// The files or resources with rules.
    names: Vec<Arc<str>>,
}

impl DomainDocuments {
    fn of_domain(domain: &DomainDraft) -> Self {
        Self { name: domain.name.clone(), documents: domain.documents.clone() }
    }
}

/// Whether probable mistakes are reported.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Warnings {
    Kept,
    /// A program wrote the rules: an operator could only change the program.
    Dropped,
}

/// The drafts of all files, and the problems of reading them.
fn read_drafts(
    sources: &SourceFiles,
    options: &LoadOptions,
    calendars: &Calendars,
    in_force: &[Arc<str>],
) -> Drafts {
    let mut problems = ProblemCollector::default();
    sources.problems.iter().cloned().for_each(|problem| problems.push(problem));
    let (rule_files, others): (Vec<_>, Vec<_>) = sources
        .files
        .iter()
        .partition(|file| in_force.contains(&file.name) || holds_rules(file, options.directory));
    for file in others {
        let reason = match &file.bytes {
            Ok(_) => "not read, because it does not look like rules (there is no domain or descriptors key)",
            Err(reason) => reason.as_str(),
        };
        problems.push(Problem::warning(Location::file(Arc::clone(&file.name)), reason));
    }
    let context = ReadContext { defaults: options.defaults, hashing: options.hashing, calendars };
    let domains = rule_files.iter().filter_map(|file| read_draft(file, context, &mut problems)).collect();
    let listed = sources.files.iter().map(|file| Arc::clone(&file.name)).collect();
    let names = rule_files.iter().map(|file| Arc::clone(&file.name)).collect();
    Drafts { domains, problems, listed, names }
}

/// `true` if the file is to be read as rules, so that its mistakes are errors.
fn holds_rules(file: &SourceFile, directory: RuleDirectory) -> bool {
    match &file.bytes {
        Ok(bytes) => file.is_rules || looks_like_rules(bytes),
        // envoyproxy/ratelimit also ignores a dangling link.
        Err(_) => !directory.reads_any_name(),
    }
}

/// Joins the drafts of each domain, checks the domains, applies the upgrades, and builds the engine's specs. Reports
/// the problems of all steps, sorted.
fn finish_drafts(
    drafts: Drafts,
    options: &LoadOptions,
    calendars: &Calendars,
    warnings: Warnings,
) -> Result<FinishedDrafts, Problems> {
    let Drafts { domains, mut problems, listed, names } = drafts;
    let mut domains = join_domains(domains, options.merge_domains, &mut problems);
    domains.iter().for_each(|domain| lint::check_domain(domain, &mut problems));
    if warnings == Warnings::Dropped {
        problems.drop_warnings();
    }
    let rows = &options.upgrades;
    let limits = upgrade::apply(&mut domains, rows, options.defaults, &mut problems);
    let month_calendar = calendars.set_months(&mut domains, &options.calendars, &mut problems);
    domains.iter().for_each(|domain| scope::check_level(&domain.nodes, options.has_home, &mut problems));
    let problems = Problems::sorted(problems, &listed);
    if problems.has_errors() {
        return Err(problems);
    }
    let documents = domains.iter().map(DomainDocuments::of_domain).collect();
    let specs = domains.into_iter().map(DomainDraft::into_spec).collect();
    let upgrades = AppliedUpgrades { rows: rows.len(), limits };
    Ok(FinishedDrafts { specs, documents, upgrades, month_calendar, warnings: problems, names })
}

fn read_draft(
    file: &SourceFile,
    context: ReadContext<'_>,
    problems: &mut ProblemCollector,
) -> Option<DomainDraft> {
    let mut fail = |location, reason: String| {
        problems.push(Problem::error(location, reason));
        None
    };
    let bytes = match &file.bytes {
        Ok(bytes) => bytes,
        Err(reason) => return fail(Location::file(Arc::clone(&file.name)), reason.clone()),
    };
    let document = match decode(bytes).and_then(|text| yaml::parse(&text)) {
        Ok(document) => document,
        Err(YamlError { line, reason }) => {
            let reason = format!("error loading config file: {reason}");
            return fail(Location::line(Arc::clone(&file.name), line), reason);
        }
    };
    let (draft, found) = read_document(&file.name, &document, context);
    problems.append(found);
    draft
}

fn join_drafts(earlier: &mut DomainDraft, draft: DomainDraft, problems: &mut ProblemCollector) {
    if let (Some(before), Some(now)) = (earlier.shard_by, draft.shard_by)
        && before != now
    {
        let (name, first) = (&draft.name, &earlier.location);
        let reason = format!(
            "shard_by of domain '{name}' is {}, but {} in {first}",
            now.into_str(),
            before.into_str()
        );
        problems.push(Problem::error(draft.location, reason));
    }
    earlier.shard_by = earlier.shard_by.or(draft.shard_by);
    earlier.nodes.extend(draft.nodes);
    earlier.documents.extend(draft.documents);
}

/// Joins the drafts of each domain. A domain in several files is an error unless `merge` is set.
fn join_domains(drafts: Vec<DomainDraft>, merge: bool, problems: &mut ProblemCollector) -> Vec<DomainDraft> {
    let mut domains: Vec<DomainDraft> = Vec::with_capacity(drafts.len());
    let mut firsts: HashMap<String, usize> = HashMap::new();
    for draft in drafts {
        let first = *firsts.entry(draft.name.clone()).or_insert(domains.len());
        match domains.get_mut(first) {
            Some(earlier) if merge => join_drafts(earlier, draft, problems),
            Some(earlier) => {
                let (name, first) = (&draft.name, &earlier.location);
                let reason = format!("duplicate domain '{name}' in config file, first on {first}");
                problems.push(Problem::error(draft.location.clone(), reason));
                domains.push(draft);
            }
            None => domains.push(draft),
        }
    }
    domains
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_digest_is_of_the_files_below_the_path_and_of_nothing_else() {
        let digest =
            |path: &Path| Source::new(&[path.into()], RuleDirectory::YamlFiles).read_files().digest();
        let folder = |files: &[(&str, &str)]| {
            let folder = tempfile::tempdir().expect("a folder");
            for (name, text) in files {
                let path = folder.path().join(name);
                fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
                fs::write(path, text).expect("a file");
            }
            folder
        };
        let first = folder(&[("a.yaml", "x"), ("b/c.yml", "y"), ("README", "one")]);
        let same = folder(&[("b/c.yml", "y"), ("a.yaml", "x"), ("README", "two")]);
        assert_eq!(digest(first.path()), digest(same.path()));
        for other in [
            &[("a.yaml", "x"), ("b/c.yml", "z")][..],
            &[("a.yaml", "x"), ("b/d.yml", "y")],
            &[("a.yaml", "x"), ("c.yml", "y")],
            &[("a.yaml", "x")],
            &[("a.yaml", "xy"), ("b/c.yml", "")],
        ] {
            assert_ne!(digest(first.path()), digest(folder(other).path()), "{other:?}");
        }
        // The name of a single file does not count.
        let renamed = folder(&[("other.yaml", "x")]);
        assert_eq!(digest(&first.path().join("a.yaml")), digest(&renamed.path().join("other.yaml")));
        // printf '\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0x' | sha256sum
        assert_eq!(digest(&first.path().join("a.yaml")), "65094dcac6e0");
    }

    #[test]
    fn a_digest_of_resources_does_not_depend_on_their_order() {
        let rules = |domain: &'static str, key: &str| {
            let limit = json!({ "unit": "MINUTE", "requests_per_unit": 5 });
            let descriptors = json!([{ "key": key, "rate_limit": limit }]);
            (domain, json!({ "domain": domain, "descriptors": descriptors }))
        };
        let options = LoadOptions {
            merge_domains: false,
            defaults: Defaults::ENVOY_RATELIMIT,
            upgrades: Vec::new(),
            hashing: ValueHashing::NONE,
            directory: RuleDirectory::YamlFiles,
            calendars: CalendarOptions::new(crate::calendar::CalendarYears { first: 2020, last: 2031 }),
            has_home: false,
        };
        let digest = |resources: [&(&str, Value); 2]| {
            let resources =
                resources.map(|(name, rules)| RuleResource { name: (*name).into(), rules: Ok(rules) });
            load_resources(resources.into(), &options).expect("valid rules").digest
        };
        let (a, b) = (rules("a", "k"), rules("b", "k"));
        assert_eq!(digest([&a, &b]), digest([&b, &a]));
        assert_ne!(digest([&a, &b]), digest([&a, &rules("b", "other")]));
    }

    #[test]
    fn work_on_its_own_thread_is_done_once_and_its_result_comes_back() {
        let caller = thread::current().id();
        let mut runs = 0;
        let worker = on_own_thread(|| {
            runs += 1;
            thread::current().id()
        });
        assert_ne!(worker, caller);
        assert_eq!(runs, 1);
    }

    #[test]
    #[should_panic(expected = "the work failed")]
    fn a_panic_comes_back() {
        on_own_thread(|| panic!("the work failed"));
    }
}
