//! The command line of the service: the sub-commands of `ratelimitd`, one file each, and what they share with
//! `ratelimitctl` (`src/ctl`).
//!
//! The same binary is also two programs of envoyproxy/ratelimit, depending on its name: `ratelimit`, which is `serve`
//! with that program's environment as settings, and `ratelimit_config_check` (`config_check`).

mod config_check;
mod health;
pub mod load_settings;
pub mod output;
pub mod rule_options;
mod serve;
pub mod service_connection;
mod settings;
pub mod stop_signals;
mod validate;

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

use clap::error::ContextKind;
use clap::{CommandFactory as _, Parser, Subcommand};

use config_check::check_config;
use health::HealthArgs;
use serve::ServeArgs;
use settings::SettingsArgs;
use validate::ValidateArgs;

/// Rate-limit service for Envoy and your own code.
#[derive(Debug, Parser)]
#[command(
    name = "ratelimitd",
    version,
    args_conflicts_with_subcommands = true,
    after_help = "With no command, runs the service. See `ratelimitd help COMMAND`. `ratelimitctl` explains limits, queries running
services and tests rules on logs.

Examples:
  ratelimitd --config config/ratelimitd.yaml
  ratelimitd validate config/rules
  ratelimitd settings --config config/ratelimitd.yaml --changed
  ratelimitd health --config config/ratelimitd.yaml"
)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,

    #[command(flatten)]
    serve: ServeArgs,
}

#[derive(Debug, Subcommand)]
enum Command {
    Serve(ServeArgs),
    Validate(ValidateArgs),
    Settings(SettingsArgs),
    Health(HealthArgs),
}

/// Commands of one of the two programs.
#[derive(Clone, Copy, Debug)]
pub struct CommandsOf {
    pub program: &'static str,
    /// Separated by blanks.
    pub commands: &'static str,
}

pub const OF_RATELIMITD: CommandsOf =
    CommandsOf { program: "ratelimitd", commands: "serve validate settings health" };

pub const OF_RATELIMITCTL: CommandsOf = CommandsOf {
    program: "ratelimitctl",
    commands: "explain check counters exceptions block unblock grant rules top usage token replay simulate scripts \
               migrate install-help",
};

pub fn command() -> clap::Command {
    Cli::command()
}

/// Prints why a command line has no command to run (help or version was requested, or it is malformed), and returns the
/// exit code. Names the other program if the command is one of `others`.
pub fn end_without_command(error: &clap::Error, others: &CommandsOf) -> ExitCode {
    let code = u8::try_from(error.exit_code()).unwrap_or(1);
    let unknown = error.get(ContextKind::InvalidSubcommand).map(ToString::to_string);
    match unknown.filter(|unknown| others.commands.split(' ').any(|known| known == unknown)) {
        Some(command) => {
            let program = others.program;
            output::fail(
                "error",
                format_args!("{command} is a command of {program}: run {program} {command}"),
                code,
            )
        }
        None => output::end(error.print(), ExitCode::from(code)),
    }
}

/// Runs the command of this process's command line. A malformed command line has exit code 2.
pub fn run() -> ExitCode {
    let (program, line) = Program::of_command_line(std::env::args_os().collect());
    let words = || line.iter().skip(1).map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>();
    match program {
        Program::Ratelimit => return serve::run_as("ratelimit", line.get(1..).unwrap_or_default()),
        Program::ConfigCheck => return check_config(&words()),
        Program::Ratelimitd => {}
    }
    let cli = match Cli::try_parse_from(line) {
        Ok(cli) => cli,
        Err(error) => return end_without_command(&error, &OF_RATELIMITCTL),
    };
    match cli.command.unwrap_or(Command::Serve(cli.serve)) {
        Command::Serve(args) => serve::run(&args),
        Command::Validate(args) => validate::run(&args),
        Command::Settings(args) => settings::run(&args),
        Command::Health(args) => health::run(&args),
    }
}

/// The name under which this process was called: the image also contains the programs of envoyproxy/ratelimit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Program {
    /// The service of `envoyproxy/ratelimit`.
    Ratelimit,
    /// Its checker of rule files.
    ConfigCheck,
    /// Any other name.
    Ratelimitd,
}

impl Program {
    /// Returns a command line's program, and its arguments. The first argument can also name a program: some
    /// deployments pass `/bin/ratelimit` as an image's argument, not as its command.
    fn of_command_line(mut line: Vec<OsString>) -> (Self, Vec<OsString>) {
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
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn serve_is_the_default_command() {
        for line in [&["ratelimitd", "--config", "f"][..], &["ratelimitd", "serve", "--config", "f"]] {
            let cli = Cli::try_parse_from(line).expect("a command line");
            let args = match cli.command {
                Some(Command::Serve(args)) => args,
                _ => cli.serve,
            };
            assert_eq!(args.config.as_deref().and_then(|path| path.to_str()), Some("f"), "{line:?}");
        }
    }

    #[test]
    fn a_program_is_named_by_its_path_or_by_the_first_argument() {
        let cases: [(&[&str], Program, usize); 7] = [
            (&["/bin/ratelimit"], Program::Ratelimit, 1),
            (&["ratelimit", "--help"], Program::Ratelimit, 2),
            (&["ratelimitd", "/bin/ratelimit", "x"], Program::Ratelimit, 2),
            (&["/usr/local/bin/ratelimitd", "serve"], Program::Ratelimitd, 2),
            (&["ratelimitd"], Program::Ratelimitd, 1),
            (&["bin/ratelimit_config_check", "-h"], Program::ConfigCheck, 2),
            (&["ratelimitd", "ratelimit_config_check", "-h"], Program::ConfigCheck, 2),
        ];
        for (line, program, words) in cases {
            let line: Vec<OsString> = line.iter().map(OsString::from).collect();
            let (found, left) = Program::of_command_line(line.clone());
            assert_eq!((found, left.len()), (program, words), "{line:?}");
        }
    }
}
