//! `simulate`: what rules would have done to an access log's requests.

mod arguments;
mod progress;
pub(crate) mod table;

use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::available_parallelism;

use base::{escaped, escaped_json};
use engine::{LiveRows, Request, RuleSet};
use map::Map;
use ratelimitd::cli::output::{end, print, print_error, print_painted};
use ratelimitd::cli::rule_options::RuleOptions;
use rules::{LoadOptions, LoadedExceptions, LoadedRules, describe, load};
use sha2::{Digest as _, Sha256};
use simulate::explain::{ExplainedLine, explain_line};
use simulate::log::Input;
use simulate::page;
use simulate::pass::{PassOptions, RecommendationBounds, RuleSets, simulate};
use simulate::report::{FileDigest, Report, share_ppm};
use simulate::variants::variants;

pub use arguments::{Failure, SimulateArgs};

use arguments::Exit;
use progress::{LogProgress, on_interrupt};

/// For rules with penalties, which depend on rows that the service sets.
const NO_PENALTIES: &str = "warning: penalty is not simulated: no value is banned";
const NO_SLOTS: &str =
    "warning: concurrency is not simulated: a log does not say when its requests end, so it denies nothing";

/// Maximum share of unreadable lines in a log, and of late requests, in parts per million.
const MAX_FAULTY_PPM: u64 = 10_000;

const MAX_THREADS: NonZeroUsize = NonZeroUsize::new(256).expect("not zero");

/// The table goes to standard output; the progress bar and errors to standard error.
pub fn run(args: &SimulateArgs) -> ExitCode {
    run_simulation(args).unwrap_or_else(Failure::end)
}

/// Loads rules and their exceptions, and warns of what only a service does.
///
/// # Errors
/// [`Failure`] if the settings, the rules or the exceptions are invalid.
pub fn load_rules(
    options: &RuleOptions,
    paths: &[PathBuf],
) -> Result<(LoadedRules, LoadOptions, Option<LoadedExceptions>), Failure> {
    let (settings, load_options) = options.load()?;
    let mut loaded =
        load(paths, load_options.clone()).map_err(|problems| Failure::new(Exit::Rules, problems))?;
    if loaded.rules.has_penalties() {
        print_error(NO_PENALTIES);
    }
    if loaded.rules.has_slots() {
        print_error(NO_SLOTS);
    }
    let exceptions = options.load_exceptions(&settings, None);
    let exceptions = exceptions.map_err(|error| Failure::new(Exit::Rules, error))?;
    if let Some(found) = &exceptions {
        loaded.rules = loaded.rules.with_exceptions(Arc::clone(&found.exceptions), &LiveRows::default());
    }
    Ok((loaded, load_options, exceptions))
}

fn run_simulation(args: &SimulateArgs) -> Result<ExitCode, Failure> {
    let (judged, options, exceptions) = load_rules(&args.options, &args.rules)?;
    for warning in judged.warnings.all() {
        print_error(warning);
    }
    let map = args.map.as_deref().map(Map::load).transpose()?;
    if let Some(number) = args.explain_line {
        return explain(args, number, &judged, map.as_ref());
    }
    if args.max_good_denied.is_some() && !map.as_ref().is_some_and(Map::has_good) {
        let reason = "--max-good-denied needs a map with `good`, which says which requests are good";
        return Err(Failure::new(Exit::Log, reason));
    }
    let in_force = (!args.compare.is_empty()).then(|| load(&args.compare, options.clone())).transpose();
    let in_force = in_force.map_err(|problems| Failure::new(Exit::Rules, problems))?;
    let mut files = vec![("rules", rule_files(&judged))];
    files.extend(in_force.as_ref().map(|in_force| ("compare", rule_files(in_force))));
    let exception_files = exceptions.iter().flat_map(|loaded| &loaded.files);
    files.push(("exceptions", exception_files.map(|file| PathBuf::from(&*file.name)).collect()));
    files.push(("map", args.map.iter().cloned().collect()));
    let files = files.iter().flat_map(|(role, files)| files.iter().map(|file| digest(role, file)));
    let digests = files.collect::<Result<_, _>>()?;
    // The same exceptions as for the candidate rules.
    let exceptions = exceptions.map(|loaded| loaded.exceptions).unwrap_or_default();
    let in_force =
        in_force.map(|loaded| loaded.into_rules().with_exceptions(exceptions, &LiveRows::default()));
    let rules = rule_sets(args, judged, in_force, &options)?;
    let pass_options = PassOptions {
        format: args.format(),
        reorder_us: args.reorder_us(),
        // More only cost memory: one thread decides, and is the slowest from about four parsers on.
        threads: available_parallelism().map_or(NonZeroUsize::MIN, |cores| cores.min(MAX_THREADS)),
        sample: args.sample,
        show_keys: args.show_keys,
        what_if: args.recommend || args.report.is_some(),
        recommend: args.recommend.then(RecommendationBounds::default),
        command_line: command_line(),
        digests,
    };
    let mut report = simulated(args, &rules, map.as_ref(), &pass_options)?;
    let bounds = args.bounds();
    report.bounds = bounds.check(&report);
    if bounds.lacks_good_requests(&report) {
        report
            .untested_reasons
            .push("no false positive is tested: the map's `good` matches no request".to_owned());
    }
    write_report(args, &report)
}

/// This process's arguments, for the report. A file name may not be UTF-8.
fn command_line() -> Vec<String> {
    std::env::args_os().skip(1).map(|argument| argument.to_string_lossy().into_owned()).collect()
}

fn rule_sets(
    args: &SimulateArgs,
    judged: LoadedRules,
    in_force: Option<RuleSet>,
    options: &LoadOptions,
) -> Result<RuleSets, Failure> {
    let variants = if args.algorithms {
        variants(&judged.specs, &judged.rules, options.defaults, options.hashing)
            .map_err(|error| Failure::new(Exit::Rules, error))?
    } else {
        Vec::new()
    };
    Ok(RuleSets { judged: judged.into_rules(), in_force, variants })
}

fn rule_files(loaded: &LoadedRules) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = Vec::new();
    for name in loaded.documents.iter().flat_map(|domain| &domain.documents) {
        let file = PathBuf::from(&**name);
        if !files.contains(&file) {
            files.push(file);
        }
    }
    files
}

/// Maximum size of a file of rules, a map or exceptions.
const MAX_DIGESTED_BYTES: u64 = 128 << 20;

fn digest(role: &str, file: &Path) -> Result<FileDigest, Failure> {
    let name = file.display().to_string();
    let bytes = base::read_file(file, MAX_DIGESTED_BYTES)
        .map_err(|error| Failure::new(Exit::Log, format_args!("{name}: {error}")))?;
    let sha256 = base::hex(&Sha256::digest(&bytes));
    Ok(FileDigest { role: role.to_owned(), name, sha256 })
}

fn simulated(
    args: &SimulateArgs,
    rules: &RuleSets,
    map: Option<&Map>,
    options: &PassOptions,
) -> Result<Report, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    let inputs = args.logs.iter().map(|path| Input::open(path, &stop)).collect::<Result<Vec<_>, _>>()?;
    let mut shown = LogProgress::new(&inputs);
    let simulated = on_interrupt(
        || stop.store(true, Ordering::Relaxed),
        || simulate(rules, map, inputs, options, &stop, &mut |lines| shown.update(lines)),
    );
    shown.finish();
    Ok(simulated??)
}

/// Writes the report as the arguments require.
fn write_report(args: &SimulateArgs, report: &Report) -> Result<ExitCode, Failure> {
    if let Some(path) = &args.report {
        write_file(path, page::html(report))?;
    }
    if let Some(path) = &args.report_json {
        let text = escaped_json(serde_json::to_string(report)? + "\n");
        if path.as_os_str() == "-" {
            return Ok(printed(args, report, &text));
        }
        write_file(path, text)?;
    }
    Ok(printed(args, report, &table::table(report, args.show_keys)))
}

fn write_file(path: &Path, text: String) -> Result<(), Failure> {
    fs::write(path, text)
        .map_err(|error| Failure::new(Exit::Log, format_args!("{}: {error}", path.display())))
}

/// Prints the report as `text`, then the problems that it found, and returns their exit code.
fn printed(args: &SimulateArgs, report: &Report, text: &str) -> ExitCode {
    let is_printed = print_painted(text);
    let problems = problems(args, report);
    problems.iter().for_each(|problem| print_error(&problem.problem));
    end(is_printed, problems.last().map_or(ExitCode::SUCCESS, |last| last.exit.into()))
}

/// Returns what makes the report unacceptable. The last problem has the exit code.
fn problems(args: &SimulateArgs, report: &Report) -> Vec<Failure> {
    let method = &report.method;
    let (unreadable, lines) = (method.unreadable, method.lines);
    let (late, requests) = (method.reordering.late, report.totals.requests);
    let of_log = [
        (report.partial, "the simulation was interrupted".to_owned()),
        (method.inputs.iter().any(|input| input.cut.is_some()), "a file is cut".to_owned()),
        (share_ppm(unreadable, lines) > MAX_FAULTY_PPM, format!("cannot read {unreadable} of {lines} lines")),
        (share_ppm(late, requests) > MAX_FAULTY_PPM, format!("{late} of {requests} requests came too late")),
    ];
    let of_log = of_log.into_iter().filter(|(is_found, _)| *is_found && !args.lenient);
    let accepted = |(_, problem)| Failure::new(Exit::Log, format_args!("{problem}; --lenient accepts that"));
    let mut problems: Vec<Failure> = of_log.map(accepted).collect();
    if !problems.is_empty() {
        return problems;
    }
    // Without bounds there is nothing to test.
    if !args.bounds().is_empty() && !args.allow_untested {
        let untested = |reason| Failure::new(Exit::Log, format_args!("{reason}; --allow-unmet accepts that"));
        problems.extend(report.untested_reasons.iter().map(untested));
    }
    for check in report.bounds.iter().filter(|check| !check.is_kept) {
        let broken = |limit| Failure::new(Exit::Bound, format_args!("{} is broken by {limit}", check.bound));
        problems.extend(check.broken_by.iter().map(broken));
    }
    problems
}

/// `--explain-line`: prints what a line becomes, and which limits it matches.
fn explain(
    args: &SimulateArgs,
    number: u64,
    rules: &LoadedRules,
    map: Option<&Map>,
) -> Result<ExitCode, Failure> {
    let path = args.logs.first().ok_or_else(|| Failure::new(Exit::Log, "no log"))?;
    let line = explain_line(path, number, args.format(), map)?;
    let mut text = escaped(format!("line {number} ({}): {}", line.format.into_str(), line.text)) + "\n";
    for (name, value) in &line.fields {
        text += &(escaped(format!("  {name}: {}", value.as_deref().unwrap_or("(none)"))) + "\n");
    }
    match &line.request {
        Err(reason) => text += &format!("no request: {reason}\n"),
        Ok((t_us, request)) => {
            text += &shown_request(*t_us, request, &line, map);
            text += &describe(&rules.rules, &rules.upgrades, request, *t_us)?.text;
        }
    }
    Ok(end(print(&text), ExitCode::SUCCESS))
}

fn shown_request(t_us: u64, request: &Request, line: &ExplainedLine, map: Option<&Map>) -> String {
    let mut text = escaped(format!("at {t_us} us, domain {}", request.domain)) + "\n";
    for descriptor in &request.descriptors {
        let entries: Vec<String> =
            descriptor.entries.iter().map(|entry| format!("{}={}", entry.key, entry.value)).collect();
        let hits = descriptor.hits.map_or_else(String::new, |hits| format!(" ({hits} units)"));
        text += &(escaped(format!("descriptor {}{hits}", entries.join(","))) + "\n");
    }
    if map.is_some_and(Map::has_good) {
        text += &format!("good: {}\n", line.is_good);
    }
    if map.is_some_and(Map::has_was_limited) {
        text += &format!("was_limited: {}\n", line.was_limited);
    }
    text + "\n"
}
