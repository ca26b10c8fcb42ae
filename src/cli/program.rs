//! The programs of `envoyproxy/ratelimit`, by whose names this one can be called.

use std::ffi::{OsStr, OsString};
use std::path::Path;

/// What this process was called as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Program {
    /// The service of `envoyproxy/ratelimit`.
    Ratelimit,
    /// Its checker of rule files.
    ConfigCheck,
    /// Its client.
    Client,
    /// Any other name.
    Ratelimitd,
}

impl Program {
    /// The program that a command line names, and its arguments. The first argument may name a program, too: some
    /// deployments have `/bin/ratelimit` as arguments of an image, not as its command.
    pub(super) fn of_command_line(mut line: Vec<OsString>) -> (Self, Vec<OsString>) {
        let named = |word: Option<&OsString>| Self::of_name(Path::new(word?).file_name()?);
        if let Some(program) = named(line.first()) {
            (program, line)
        } else if let Some(program) = named(line.get(1)) {
            line.remove(0);
            (program, line)
        } else {
            (Self::Ratelimitd, line)
        }
    }

    fn of_name(name: &OsStr) -> Option<Self> {
        match name.to_str()? {
            "ratelimit" => Some(Self::Ratelimit),
            "ratelimit_config_check" => Some(Self::ConfigCheck),
            "ratelimit_client" => Some(Self::Client),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_named_by_its_path_or_by_the_first_argument() {
        let cases: [(&[&str], Program, usize); 7] = [
            (&["/bin/ratelimit"], Program::Ratelimit, 1),
            (&["ratelimit", "--help"], Program::Ratelimit, 2),
            (&["ratelimitd", "/bin/ratelimit", "x"], Program::Ratelimit, 2),
            (&["/usr/local/bin/ratelimitd", "serve"], Program::Ratelimitd, 2),
            (&["ratelimitd"], Program::Ratelimitd, 1),
            (&["bin/ratelimit_config_check", "-h"], Program::ConfigCheck, 2),
            (&["ratelimitd", "ratelimit_client", "-h"], Program::Client, 2),
        ];
        for (line, program, words) in cases {
            let line: Vec<OsString> = line.iter().map(OsString::from).collect();
            let (found, left) = Program::of_command_line(line.clone());
            assert_eq!((found, left.len()), (program, words), "{line:?}");
        }
    }
}
