//! Command lines as Go's package `flag` reads them: one dash or two, `-name value` or `-name=value`.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::process::ExitCode;

use crate::cli::output::report;

/// A flag that a tool has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flag {
    pub(super) name: &'static str,
    /// Whether it needs no value.
    pub(super) is_switch: bool,
    pub(super) usage: &'static str,
}

/// The values that were given, in their order.
#[derive(Debug, Default)]
pub(super) struct Flags(HashMap<&'static str, Vec<String>>);

/// The command line cannot be used, or asks for help.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Stop {
    text: String,
    code: u8,
}

impl Stop {
    /// The value of a flag is not valid.
    pub(super) fn invalid(program: &str, known: &[Flag], name: &str, value: &str, reason: &str) -> Self {
        let text = format!("invalid value {value:?} for flag -{name}: {reason}");
        Self { text: format!("{text}\n{}", usage(program, known)), code: 2 }
    }

    /// Prints the text, and returns the exit code.
    pub(super) fn report(&self) -> ExitCode {
        report(self.text.trim_end());
        ExitCode::from(self.code)
    }
}

impl Flags {
    /// Reads flags until the first word that is none.
    pub(super) fn parse(program: &str, known: &[Flag], words: &[String]) -> Result<Self, Stop> {
        let stop = |text: String, code| Stop { text: format!("{text}{}", usage(program, known)), code };
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
                return Err(Stop::invalid(program, known, name, &value, "expected true or false"));
            }
            flags.0.entry(found.name).or_default().push(value);
        }
        Ok(flags)
    }

    /// The last value.
    pub(super) fn text<'f>(&'f self, name: &str, default: &'f str) -> &'f str {
        self.0.get(name).and_then(|values| values.last()).map_or(default, String::as_str)
    }

    pub(super) fn switch(&self, name: &str) -> bool {
        self.text(name, "false") == "true"
    }

    pub(super) fn all(&self, name: &str) -> &[String] {
        self.0.get(name).map_or(&[], Vec::as_slice)
    }
}

fn usage(program: &str, known: &[Flag]) -> String {
    let mut text = format!("Usage of {program}:\n");
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
        Flags::parse("x", &KNOWN, &words)
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
        assert_eq!((flags.text("dir", ""), flags.all("dir").len(), flags.switch("merge")), ("b", 2, false));
        for (words, code) in [(&["-h"][..], 0), (&["-nosuch"], 2), (&["-dir"], 2), (&["-merge=x"], 2)] {
            assert_eq!(parse(words).map(|_| ()).map_err(|stop| stop.code), Err(code), "{words:?}");
        }
    }
}
