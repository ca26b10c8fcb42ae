//! The command line: the sub-commands.

mod admin_port;
pub mod check;
pub(crate) mod client;
pub mod counters;
pub mod descriptor;
pub mod explain;
pub mod health;
mod limit_arg;
pub(crate) mod output;
mod program;
pub mod replay;
pub mod rule_options;
mod seconds;
pub mod serve;
pub(crate) mod service_connection;
pub mod settings;
pub mod simulate;
mod stop_signals;
pub mod validate;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::reference::migrate::MigrateArgs;
use check::CheckArgs;
use counters::CountersArgs;
use explain::ExplainArgs;
use health::HealthArgs;
use program::Program;
use replay::ReplayArgs;
use serve::ServeArgs;
use settings::SettingsArgs;
use simulate::SimulateArgs;
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
    Health(HealthArgs),
    Replay(ReplayArgs),
    Simulate(Box<SimulateArgs>),
    Settings(SettingsArgs),
    Migrate(MigrateArgs),
}

/// Runs the command of this process's command line. A malformed command line has the exit code 2.
#[must_use]
pub fn run() -> ExitCode {
    let (program, line) = Program::of_command_line(std::env::args_os().collect());
    let words = || line.iter().skip(1).map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>();
    match program {
        Program::Ratelimit => return serve::run_as("ratelimit", line.len() > 1),
        Program::ConfigCheck => return crate::reference::config_check::run(&words()),
        Program::Client => return crate::reference::client::run(&words()),
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
        Command::Health(args) => health::run(&args),
        Command::Replay(args) => replay::run(&args),
        Command::Simulate(args) => simulate::run(&args),
        Command::Settings(args) => settings::run(&args),
        Command::Migrate(args) => crate::reference::migrate::run(&args),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

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
}
