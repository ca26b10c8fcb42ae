//! `ratelimit_config_check`: checks the rule files of a directory, without its subdirectories.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use rules::{LoadOptions, load, load_stream};

use super::load_settings::load_settings;
use super::output::{end, print, print_error};
use crate::app::load_options;
use crate::settings::Settings;

const PROGRAM: &str = "ratelimit_config_check";
const USAGE: &str = "Usage of ratelimit_config_check:
  -config_dir value
    \tthe directory of the rule files
  -merge_domain_configs
    \tlet several files name the same domain
";

/// Exit code for a malformed file: not YAML, a wrong type, an unknown key.
const BAD_TEXT: u8 = 2;
/// Larger files are not rule files.
const MAX_FILE_BYTES: u64 = 8 << 20;
/// Prefixes of errors in a file's syntax. All other errors concern the rules in it.
const OF_THE_TEXT: [&str; 3] = ["error loading config file", "config error", "error checking config"];

/// Why there is nothing to check, or what is wrong.
#[derive(Debug, PartialEq, Eq)]
struct Stop {
    text: String,
    code: u8,
}

/// Exit code 0: the rules are valid. 1: they are invalid or unreadable. 2: a file, or the command line, is malformed.
pub(super) fn check_config(words: &[String]) -> ExitCode {
    let Flags { config_dir: directory, merge_domain_configs } = match Flags::parse(words) {
        Ok(flags) => flags,
        Err(Stop { text, code }) => {
            print_error(text.trim_end());
            return ExitCode::from(code);
        }
    };
    let mut lines = vec!["checking rate limit configs...".to_owned()];
    lines.push(format!("loading config directory: {directory}"));
    let code = match check(&directory, merge_domain_configs, &mut lines) {
        Ok(()) => {
            lines.push("all rate limit configs ok".to_owned());
            ExitCode::SUCCESS
        }
        Err(Stop { text, code: BAD_TEXT }) => {
            print_error(format_args!("{PROGRAM}: {text}"));
            ExitCode::from(BAD_TEXT)
        }
        Err(Stop { text, code }) => {
            lines.push(text);
            ExitCode::from(code)
        }
    };
    end(print(&(lines.join("\n") + "\n")), code)
}

fn check(directory: &str, merge_domains: bool, lines: &mut Vec<String>) -> Result<(), Stop> {
    let fail = |text| Stop { text, code: 1 };
    let paths = files(directory).map_err(|error| {
        fail(format!("error opening directory {directory}: open {directory}: {}", text(&error)))
    })?;
    let settings = load_settings(None, Some("ratelimit"));
    // The defaults suffice for the files; problems of the settings are reported after them.
    let defaults = Settings::default();
    let used = settings.as_ref().map_or(&defaults, |loaded| &loaded.settings);
    let hashing = used.secrets.value_hashing();
    let hashing = hashing.map_err(|error| fail(format!("error loading rate limit configs: {error}")))?;
    let options = LoadOptions { merge_domains, ..load_options(used, hashing) };
    for path in &paths {
        lines.push(format!("opening config file: {}", path.display()));
        check_text(path, options.clone())?;
    }
    if let Err(error) = settings {
        return Err(fail(format!("error loading rate limit configs: {error}")));
    }
    // No files means no rules.
    if !paths.is_empty() {
        load(&paths, options).map_err(|problems| {
            let error = problems.first_error().unwrap_or_default();
            fail(format!("error loading rate limit configs: {error}"))
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

/// Formats a system error as Go programs do: in lower case, without the code.
fn text(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_lowercase()
}

/// Names the operation that failed on a file: a directory can be opened, but not read.
fn failed(name: &str, error: &io::Error) -> String {
    let attempt = if error.kind() == io::ErrorKind::IsADirectory { "read" } else { "open" };
    format!("{attempt} {name}: {}", text(error))
}

fn check_text(path: &Path, options: LoadOptions) -> Result<(), Stop> {
    let name = path.display().to_string();
    let bytes = if path.is_dir() {
        Err(io::ErrorKind::IsADirectory.into())
    } else {
        base::read_file(path, MAX_FILE_BYTES)
    };
    let bytes = bytes.map_err(|error| Stop {
        text: format!("error reading file {name}: {}", failed(&name, &error)),
        code: 1,
    })?;
    let Err(problems) = load_stream(&name, bytes.as_slice(), options) else { return Ok(()) };
    let is_of_the_text = |reason: &str| OF_THE_TEXT.iter().any(|start| reason.starts_with(start));
    let mut errors = problems.all().iter().filter(|problem| problem.is_error());
    match errors.find(|problem| is_of_the_text(&problem.reason)) {
        Some(problem) => Err(Stop { text: problem.to_string(), code: BAD_TEXT }),
        None => Ok(()),
    }
}

/// The command line: the last value of each flag.
#[derive(Debug, Default, PartialEq, Eq)]
struct Flags {
    config_dir: String,
    merge_domain_configs: bool,
}

impl Flags {
    /// Reads flags until the first word that is not a flag, like Go's package `flag`: one dash or two, `-name value` or
    /// `-name=value`.
    fn parse(words: &[String]) -> Result<Self, Stop> {
        let stop = |text: String, code| Stop { text: text + USAGE, code };
        let mut flags = Self::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let Some(flag) = word.strip_prefix("--").or_else(|| word.strip_prefix('-')) else { break };
            if flag.is_empty() {
                break;
            }
            let (name, value) =
                flag.split_once('=').map_or((flag, None), |(name, value)| (name, Some(value)));
            match (name, value) {
                ("config_dir", value) => {
                    let value = value.or_else(|| words.next().map(String::as_str));
                    let missing = || stop(format!("flag needs an argument: -{name}\n"), 2);
                    flags.config_dir = value.ok_or_else(missing)?.to_owned();
                }
                ("merge_domain_configs", None | Some("true")) => flags.merge_domain_configs = true,
                ("merge_domain_configs", Some("false")) => flags.merge_domain_configs = false,
                ("merge_domain_configs", Some(value)) => {
                    let reason = "expected true or false";
                    return Err(stop(format!("invalid value {value:?} for flag -{name}: {reason}\n"), 2));
                }
                ("h" | "help", _) => return Err(stop(String::new(), 0)),
                _ => return Err(stop(format!("flag provided but not defined: -{name}\n"), 2)),
            }
        }
        Ok(flags)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Flags, Stop> {
        let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        Flags::parse(&words)
    }

    #[test]
    fn flags_have_one_dash_or_two_and_their_value_beside_or_behind() {
        let merging = Flags { config_dir: "a".to_owned(), merge_domain_configs: true };
        for words in [
            &["-config_dir", "a", "-merge_domain_configs"][..],
            &["--config_dir=a", "--merge_domain_configs=true"],
            &["-merge_domain_configs", "-config_dir=a", "-", "-x"],
        ] {
            assert_eq!(parse(words).as_ref(), Ok(&merging), "{words:?}");
        }
        let words =
            ["-config_dir", "a", "-config_dir", "b", "-merge_domain_configs=false", "word", "-nosuch"];
        let last = Flags { config_dir: "b".to_owned(), merge_domain_configs: false };
        assert_eq!(parse(&words), Ok(last));
        for (words, code) in
            [(&["-h"][..], 0), (&["-nosuch"], 2), (&["-config_dir"], 2), (&["-merge_domain_configs=x"], 2)]
        {
            assert_eq!(parse(words).map_err(|stop| stop.code), Err(code), "{words:?}");
        }
    }
}
