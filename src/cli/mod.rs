//! The command line: the sub-commands, one file each.
//!
//! The same binary is also two programs of envoyproxy/ratelimit, by the name that it is called as: `ratelimit`, which
//! is the command `serve` with the environment of that program as its settings, and `ratelimit_config_check`
//! (`config_check`). `migrate` turns such an environment and its rule files into settings of ours.

mod admin_call;
mod check;
mod config_check;
mod counters;
mod descriptor;
mod explain;
mod health;
mod install_help;
pub mod load_settings;
mod migrate;
mod output;
mod replay;
mod rule_options;
mod scripts;
mod serve;
mod service_connection;
mod settings;
mod simulate;
mod stop_signals;
mod token;
mod top;
mod validate;

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};

use check::CheckArgs;
use config_check::check_config;
use counters::CountersArgs;
use explain::ExplainArgs;
use health::HealthArgs;
use install_help::InstallHelpArgs;
use migrate::MigrateArgs;
use replay::ReplayArgs;
use scripts::ScriptsArgs;
use serve::ServeArgs;
use settings::SettingsArgs;
use simulate::SimulateArgs;
use token::TokenArgs;
use top::TopArgs;
use validate::ValidateArgs;

/// Decides whether requests may go ahead: from YAML rules, for Envoy and for internal services.
#[derive(Debug, Parser)]
#[command(
    name = "ratelimitd",
    version,
    args_conflicts_with_subcommands = true,
    after_help = "Without a sub-command it serves. `ratelimitd help COMMAND` tells more about each.

Examples:
  ratelimitd --config config/ratelimitd.yaml
  ratelimitd validate config/rules
  ratelimitd explain --rules config/rules --domain edge generic_key=slow
  ratelimitd check --address localhost:8081 --domain edge generic_key=slow
  ratelimitd counters show --domain edge generic_key=slow
  ratelimitd top --admin http://127.0.0.1:6070
  ratelimitd replay --rules config/rules --requests yesterday.jsonl > answers.jsonl
  ratelimitd simulate --rules config/rules --map config/maps/envoy-address.yaml access.log"
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
    Explain(ExplainArgs),
    Check(Box<CheckArgs>),
    Counters(CountersArgs),
    Top(TopArgs),
    Token(TokenArgs),
    Health(HealthArgs),
    Replay(ReplayArgs),
    Simulate(Box<SimulateArgs>),
    Settings(SettingsArgs),
    Scripts(ScriptsArgs),
    Migrate(MigrateArgs),
    InstallHelp(InstallHelpArgs),
}

/// Runs the command of this process's command line. A malformed command line has the exit code 2.
#[must_use]
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
        // `--help` and `--version` arrive here too, with code 0.
        Err(error) => {
            let code = u8::try_from(error.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from);
            return output::end(error.print(), code);
        }
    };
    match cli.command.unwrap_or(Command::Serve(cli.serve)) {
        Command::Serve(args) => serve::run(&args),
        Command::Validate(args) => validate::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Counters(args) => counters::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Token(args) => token::run(&args),
        Command::Health(args) => health::run(&args),
        Command::Replay(args) => replay::run(&args),
        Command::Simulate(args) => simulate::run(&args),
        Command::Settings(args) => settings::run(&args),
        Command::Scripts(args) => scripts::run(&args),
        Command::Migrate(args) => migrate::run(&args),
        Command::InstallHelp(args) => install_help::run(&args, Cli::command()),
    }
}

/// What this process was called as: the programs of envoyproxy/ratelimit are in the image, too.
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
    /// The program that a command line names, and its arguments. The first argument may name a program, too: some
    /// deployments have `/bin/ratelimit` as arguments of an image, not as its command.
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
