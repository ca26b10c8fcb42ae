//! `ratelimitctl`: the commands that people run against a service, or next to it, one file each. Settings, rules,
//! protobuf types and the console's state come from the library of `ratelimitd`, the service.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod admin_call;
mod admin_port;
mod check;
mod counters;
mod descriptor;
mod exceptions;
mod explain;
mod install_help;
mod migrate;
mod progress_bar;
mod replay;
mod rules_wait;
mod scripts;
mod simulate;
mod token;
mod top;
mod usage;

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};
use ratelimitd::cli;

use check::CheckArgs;
use counters::CountersArgs;
use exceptions::{BlockArgs, ExceptionsArgs, GrantArgs, UnblockArgs};
use explain::ExplainArgs;
use install_help::InstallHelpArgs;
use migrate::MigrateArgs;
use replay::ReplayArgs;
use rules_wait::RulesArgs;
use scripts::ScriptsArgs;
use simulate::SimulateArgs;
use token::TokenArgs;
use top::TopArgs;
use usage::UsageArgs;

/// `simulate` allocates for every log line.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Tools for ratelimitd: explain limits, query running services, test rules on logs.
#[derive(Debug, Parser)]
#[command(
    name = "ratelimitctl",
    version,
    after_help = "See `ratelimitctl help COMMAND`. `ratelimitd` runs the service, and checks rules and settings.

Examples:
  ratelimitctl explain --rules config/rules --domain edge generic_key=slow
  ratelimitctl check --address localhost:8081 --domain edge generic_key=slow
  ratelimitctl counters show --domain edge generic_key=slow
  ratelimitctl usage now --domain edge generic_key=slow
  ratelimitctl block --domain edge remote_address=10.0.0.7 --for 2h --reason abuse
  ratelimitctl top --admin http://127.0.0.1:6070
  ratelimitctl replay --rules config/rules --requests yesterday.jsonl > answers.jsonl
  ratelimitctl simulate --rules config/rules --map config/maps/envoy-address.yaml access.log"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Explain(ExplainArgs),
    Check(Box<CheckArgs>),
    Counters(CountersArgs),
    Exceptions(ExceptionsArgs),
    Block(BlockArgs),
    Unblock(UnblockArgs),
    Grant(GrantArgs),
    Rules(RulesArgs),
    Top(TopArgs),
    Usage(Box<UsageArgs>),
    Token(TokenArgs),
    Replay(ReplayArgs),
    Simulate(Box<SimulateArgs>),
    Scripts(ScriptsArgs),
    Migrate(MigrateArgs),
    InstallHelp(InstallHelpArgs),
}

/// A malformed command line has exit code 2.
fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return cli::end_without_command(&error, &cli::OF_RATELIMITD),
    };
    match cli.command {
        Command::Explain(args) => explain::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Counters(args) => counters::run(&args),
        Command::Exceptions(args) => exceptions::run(&args),
        Command::Block(args) => exceptions::run_block(args),
        Command::Unblock(args) => exceptions::run_unblock(args),
        Command::Grant(args) => exceptions::run_grant(args),
        Command::Rules(args) => rules_wait::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Usage(args) => usage::run(&args),
        Command::Token(args) => token::run(&args),
        Command::Replay(args) => replay::run(&args),
        Command::Simulate(args) => simulate::run(&args),
        Command::Scripts(args) => scripts::run(&args),
        Command::Migrate(args) => migrate::run(&args),
        Command::InstallHelp(args) => install_help::run(&args, [cli::command(), Cli::command()]),
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
    fn each_program_names_the_commands_of_the_other_one() {
        for (program, named) in [(Cli::command(), cli::OF_RATELIMITCTL), (cli::command(), cli::OF_RATELIMITD)]
        {
            let commands: Vec<_> = program.get_subcommands().map(clap::Command::get_name).collect();
            assert_eq!((program.get_name(), &*commands.join(" ")), (named.program, named.commands));
        }
    }
}
