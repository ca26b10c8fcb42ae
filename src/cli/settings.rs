//! `settings`: prints the current settings, and where each comes from.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::load_settings::{LoadedSettings, load_settings};
use super::output::finish;

/// Print the settings in force with the source of each: default, file or environment variable.
///
/// Reads what `serve` reads, and starts nothing. Passwords are masked. Lines that begin with # say how the environment
/// was read, and which values have no effect.
///
/// Exit code 0: printed. 1: the settings cannot be used; the reasons are on standard error. 2: the output cannot be
/// written.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  ratelimitd settings --config config/ratelimitd.yaml
  ratelimitd settings --changed")]
pub struct SettingsArgs {
    /// The settings file (YAML)
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Only the settings that do not have their default
    #[arg(long)]
    changed: bool,
}

#[must_use]
pub fn run(args: &SettingsArgs) -> ExitCode {
    let found = load_settings(args.config.as_deref(), None);
    finish("ratelimitd settings", found.map(|found| text(&found, args.changed)), 1)
}

fn text(found: &LoadedSettings, changed: bool) -> String {
    let mut text = String::new();
    let environment = found.environment.to_string();
    for line in Some(environment).filter(|line| !line.is_empty()).iter().chain(&found.report.warnings) {
        let _ = writeln!(text, "# {line}");
    }
    for setting in found.report.settings.iter().filter(|setting| !(changed && setting.is_default)) {
        let value = if setting.value.is_empty() { "\"\"" } else { &setting.value };
        let _ = writeln!(text, "{}: {value}  # {}", setting.key, setting.source());
    }
    text
}
