//! `ratelimit_config_check`: checks the rule files of a directory, without the directories below it.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use rules::{LoadOptions, Problems, load, load_stream};

use super::load_settings::{LoadedSettings, load_settings};
use super::output::{end, print, print_error};
use crate::app::load_options;
use crate::settings::Settings;

const PROGRAM: &str = "ratelimit_config_check";
const FLAGS: [Flag; 2] = [
    Flag { name: "config_dir", is_switch: false, usage: "the directory of the rule files" },
    Flag { name: "merge_domain_configs", is_switch: true, usage: "let several files name the same domain" },
];

/// The text of a file is at fault: not YAML, a wrong type, an unknown key.
const BAD_TEXT: u8 = 2;
/// Larger files are no rule files.
const MAX_FILE_BYTES: u64 = 8 << 20;
/// The starts of errors of the text. Every other error is one of the rules that the text says.
const OF_THE_TEXT: [&str; 3] = ["error loading config file", "config error", "error checking config"];

struct CheckFailure {
    /// For standard output.
    text: String,
    code: u8,
}

/// Exit code 0: the rules are good. 1: they are not, or cannot be read. 2: the text of a file, or the command line.
pub(super) fn check_config(words: &[String]) -> ExitCode {
    let flags = match Flags::parse(&FLAGS, words) {
        Ok(flags) => flags,
        Err(stop) => return stop.report(),
    };
    let directory = flags.text("config_dir", "");
    let mut lines = vec!["checking rate limit configs...".to_owned()];
    lines.push(format!("loading config directory: {directory}"));
    let code = match check(directory, flags.switch("merge_domain_configs"), &mut lines) {
        Ok(()) => {
            lines.push("all rate limit configs ok".to_owned());
            ExitCode::SUCCESS
        }
        Err(CheckFailure { text, code: BAD_TEXT }) => {
            print_error(format_args!("{PROGRAM}: {text}"));
            ExitCode::from(BAD_TEXT)
        }
        Err(CheckFailure { text, code }) => {
            lines.push(text);
            ExitCode::from(code)
        }
    };
    end(print(&(lines.join("\n") + "\n")), code)
}

fn check(directory: &str, merge_domains: bool, lines: &mut Vec<String>) -> Result<(), CheckFailure> {
    let fail = |text| CheckFailure { text, code: 1 };
    let paths = files(directory).map_err(|error| {
        fail(format!("error opening directory {directory}: open {directory}: {}", text(&error)))
    })?;
    let settings = load_settings(None, Some("ratelimit"));
    // The defaults suffice for the texts; whether the settings are good is said after them.
    let options = match &settings {
        Ok(LoadedSettings { settings, .. }) => {
            settings.secrets.value_hashing().map(|hashing| load_options(settings, hashing))
        }
        Err(_) => {
            let defaults = Settings::default();
            defaults.secrets.value_hashing().map(|hashing| load_options(&defaults, hashing))
        }
    };
    let options = options.map_err(|error| fail(format!("error loading rate limit configs: {error}")))?;
    let options = LoadOptions { merge_domains, ..options };
    for path in &paths {
        lines.push(format!("opening config file: {}", path.display()));
        check_text(path, options.clone())?;
    }
    if let Err(error) = settings {
        return Err(fail(format!("error loading rate limit configs: {error}")));
    }
    // No files are no rules.
    if !paths.is_empty() {
        load(&paths, options).map_err(|problems| {
            fail(format!("error loading rate limit configs: {}", first_error(&problems)))
        })?;
    }
    Ok(())
}

fn files(directory: &str) -> io::Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(directory)?;
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

/// The text of an error of the system as programs in Go print it: in small letters, without the number.
fn text(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_lowercase()
}

/// What could not be done with a file: a directory can be opened, but not read.
fn failed(name: &str, error: &io::Error) -> String {
    let attempt = if error.kind() == io::ErrorKind::IsADirectory { "read" } else { "open" };
    format!("{attempt} {name}: {}", text(error))
}

fn check_text(path: &Path, options: LoadOptions) -> Result<(), CheckFailure> {
    let name = path.display().to_string();
    let bytes = match path.is_dir() {
        true => Err(io::ErrorKind::IsADirectory.into()),
        false => base::read_file(path, MAX_FILE_BYTES),
    };
    let bytes = bytes.map_err(|error| CheckFailure {
        text: format!("error reading file {name}: {}", failed(&name, &error)),
        code: 1,
    })?;
    let Err(problems) = load_stream(&name, bytes.as_slice(), options) else { return Ok(()) };
    let is_of_the_text = |reason: &str| OF_THE_TEXT.iter().any(|start| reason.starts_with(start));
    let mut errors = problems.all().iter().filter(|problem| problem.is_error());
    match errors.find(|problem| is_of_the_text(&problem.reason)) {
        Some(problem) => Err(CheckFailure { text: problem.to_string(), code: BAD_TEXT }),
        None => Ok(()),
    }
}

fn first_error(problems: &Problems) -> String {
    problems.first_error().unwrap_or_default()
}

/// A flag of the command line, which is read as Go's package `flag` reads it: one dash or two, `-name value` or
/// `-name=value`.
#[derive(Clone, Copy, Debug)]
struct Flag {
    name: &'static str,
    /// Whether it needs no value.
    is_switch: bool,
    usage: &'static str,
}

/// The last given value of each flag.
#[derive(Debug, Default)]
struct Flags(HashMap<&'static str, String>);

/// The command line cannot be used, or asks for help.
#[derive(Debug, PartialEq, Eq)]
struct Stop {
    text: String,
    code: u8,
}

impl Stop {
    /// The value of a flag is not valid.
    fn invalid(known: &[Flag], name: &str, value: &str, reason: &str) -> Self {
        let text = format!("invalid value {value:?} for flag -{name}: {reason}");
        Self { text: format!("{text}\n{}", usage(known)), code: 2 }
    }

    /// Prints the text, and returns the exit code.
    fn report(&self) -> ExitCode {
        print_error(self.text.trim_end());
        ExitCode::from(self.code)
    }
}

impl Flags {
    /// Reads flags until the first word that is none.
    fn parse(known: &[Flag], words: &[String]) -> Result<Self, Stop> {
        let stop = |text: String, code| Stop { text: format!("{text}{}", usage(known)), code };
        let mut flags = Self::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let Some(flag) = word.strip_prefix("--").or_else(|| word.strip_prefix('-')) else { break };
            if flag.is_empty() {
                break;
            }
            let (name, value) =
                flag.split_once('=').map_or((flag, None), |(name, value)| (name, Some(value)));
            let Some(found) = known.iter().find(|known| known.name == name) else {
                return Err(match name {
                    "h" | "help" => stop(String::new(), 0),
                    _ => stop(format!("flag provided but not defined: -{name}\n"), 2),
                });
            };
            let value = match value {
                Some(value) => value.to_owned(),
                None if found.is_switch => "true".to_owned(),
                None => match words.next() {
                    Some(value) => value.clone(),
                    None => return Err(stop(format!("flag needs an argument: -{name}\n"), 2)),
                },
            };
            if found.is_switch && !["true", "false"].contains(&value.as_str()) {
                return Err(Stop::invalid(known, name, &value, "expected true or false"));
            }
            flags.0.insert(found.name, value);
        }
        Ok(flags)
    }

    fn text<'f>(&'f self, name: &str, default: &'f str) -> &'f str {
        self.0.get(name).map_or(default, String::as_str)
    }

    fn switch(&self, name: &str) -> bool {
        self.text(name, "false") == "true"
    }
}

fn usage(known: &[Flag]) -> String {
    let mut text = format!("Usage of {PROGRAM}:\n");
    for Flag { name, is_switch, usage } in known {
        let value = if *is_switch { "" } else { " value" };
        let _ = writeln!(text, "  -{name}{value}\n    \t{usage}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [Flag; 2] = [
        Flag { name: "dir", is_switch: false, usage: "" },
        Flag { name: "merge", is_switch: true, usage: "" },
    ];

    fn parse(words: &[&str]) -> Result<Flags, Stop> {
        let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        Flags::parse(&KNOWN, &words)
    }

    #[test]
    fn flags_have_one_dash_or_two_and_their_value_beside_or_behind() {
        for words in
            [&["-dir", "a", "-merge"][..], &["--dir=a", "--merge=true"], &["-merge", "-dir=a", "-", "-x"]]
        {
            let flags = parse(words).expect("flags");
            assert_eq!((flags.text("dir", ""), flags.switch("merge")), ("a", true), "{words:?}");
        }
        let flags = parse(&["-dir", "a", "-dir", "b", "-merge=false", "word", "-nosuch"]).expect("flags");
        assert_eq!((flags.text("dir", ""), flags.switch("merge")), ("b", false));
        for (words, code) in [(&["-h"][..], 0), (&["-nosuch"], 2), (&["-dir"], 2), (&["-merge=x"], 2)] {
            assert_eq!(parse(words).map(|_| ()).map_err(|stop| stop.code), Err(code), "{words:?}");
        }
    }
}
