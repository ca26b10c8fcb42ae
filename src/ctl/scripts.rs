//! `scripts`: prints the Lua scripts that the service runs in Redis, for reviewers.

use std::fmt::Write as _;
use std::process::ExitCode;

use clap::Args;
use clap::builder::PossibleValuesParser;
use store::redis::{Script, scripts};

use ratelimitd::cli::output::{end, print};

/// Print the Lua scripts that the service runs in Redis.
///
/// Without NAME, lists each script with its SHA1 and what it decides; `redis-cli SCRIPT EXISTS SHA1` shows whether a
/// server has loaded it. With NAME, prints the source that is sent to Redis.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  ratelimitctl scripts
  ratelimitctl scripts gcra_whole | sha1sum")]
pub struct ScriptsArgs {
    /// Print the source of this script
    #[arg(value_name = "NAME", value_parser = PossibleValuesParser::new(scripts().map(Script::name)))]
    name: Option<String>,
}

pub fn run(args: &ScriptsArgs) -> ExitCode {
    let named = args.name.as_ref().and_then(|name| scripts().find(|script| script.name() == name));
    let printed = named.map_or_else(|| print(&list()), |script| print(script.text()));
    end(printed, ExitCode::SUCCESS)
}

fn list() -> String {
    scripts().fold(String::new(), |mut lines, script| {
        // Writing to a String does not fail.
        let _ = writeln!(lines, "{:<16} {}  {}", script.name(), script.sha1(), script.purpose());
        lines
    })
}
