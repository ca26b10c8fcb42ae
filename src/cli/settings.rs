//! `settings`: prints the current settings, and where each comes from.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::load_settings::{LoadedSettings, load_settings};
use super::output::finish;

/// Print all settings with their source: default, file or environment variable.
///
/// Reads what `serve` reads, and starts nothing. Masks passwords. Lines that begin with # state how the environment was
/// read, and which values have no effect.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Exit codes:
  0  printed
  1  invalid settings; the reasons are on standard error
  2  cannot write the output

Examples:
  ratelimitd settings --config config/ratelimitd.yaml
  ratelimitd settings --changed")]
pub struct SettingsArgs {
    /// Read settings from this file (YAML)
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Print only settings that differ from the default
    #[arg(long)]
    changed: bool,
}

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
