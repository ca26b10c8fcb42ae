//! `serve`: runs the service, and connects it to the process's signals and exit code.

use std::error::Error;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use base::on_blocking_thread;
use clap::Args;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use super::load_settings::{LoadedSettings, load_settings};
use super::output::print_error;
use super::stop_signals::StopSignals;
use crate::app::{self, App, AppError, LogQueue};
use crate::envoy_ratelimit::EnvironmentUse;
use crate::settings::{SettingInForce, Settings, SettingsError, SettingsReport};

/// A log reader that has stopped reading must not delay the exit.
const FLUSH_WITHIN: Duration = Duration::from_secs(1);

/// Run the service: answer over gRPC and HTTP until SIGTERM, SIGINT or SIGHUP.
///
/// Takes each setting from its environment variable RATELIMITD__SECTION__KEY, else from the file, else from the
/// defaults. The first signal drains (see server.drain); a second one, more than a second later, exits immediately.
#[derive(Clone, Debug, Default, Args)]
#[command(after_help = "Exit codes:
  0  stopped by a signal, with all calls in flight finished
  1  cannot start or continue; the reason is on standard error

Examples:
  ratelimitd serve --config config/ratelimitd.yaml
  RATELIMITD__STORE__KIND=redis RATELIMITD__STORE__REDIS__URL=redis://redis:6379 ratelimitd serve")]
pub struct ServeArgs {
    /// Read settings from this file (YAML)
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// The reason of a failure goes to standard error.
pub fn run(args: &ServeArgs) -> ExitCode {
    end(load_settings(args.config.as_deref(), None), &[])
}

/// Serves as the program `name` of `envoyproxy/ratelimit`, which takes no arguments and ignores `arguments`.
pub fn run_as(name: &str, arguments: &[OsString]) -> ExitCode {
    end(load_settings(None, Some(name)), arguments)
}

fn end(loaded: Result<LoadedSettings, SettingsError>, ignored: &[OsString]) -> ExitCode {
    match serve(loaded, ignored) {
        Ok(code) => code,
        Err(error) => {
            print_error(format_args!("ratelimitd: {error}"));
            ExitCode::FAILURE
        }
    }
}

fn serve(
    loaded: Result<LoadedSettings, SettingsError>,
    ignored: &[OsString],
) -> Result<ExitCode, Box<dyn Error>> {
    let LoadedSettings { settings, report, environment, .. } = loaded?;
    let huge_pages = app::refuse_huge_pages();
    let log = app::start_logging(&settings.log)?;
    if let Err(error) = huge_pages {
        tracing::warn!(%error, "cannot turn off transparent huge pages; memory use may double");
    }
    log_settings(&environment, &report);
    if !ignored.is_empty() {
        tracing::warn!("ignoring command-line arguments, like envoyproxy/ratelimit");
    }
    let code = serve_with(settings, &report, &log).unwrap_or_else(|error| {
        log.push(format!("ratelimitd: {error}\n").as_bytes());
        ExitCode::FAILURE
    });
    log.flush(FLUSH_WITHIN);
    Ok(code)
}

/// Logs how the environment was read, values without effect, and one line per setting that differs from its default.
fn log_settings(environment: &EnvironmentUse, report: &SettingsReport) {
    match environment {
        EnvironmentUse::Absent => {}
        EnvironmentUse::Common(_) => tracing::warn!("{environment}"),
        _ => tracing::info!("{environment}"),
    }
    for warning in &report.warnings {
        tracing::warn!("{warning}");
    }
    for setting in report.settings.iter().filter(|setting| !setting.is_default) {
        let SettingInForce { key, value, .. } = setting;
        tracing::info!(%key, value, source = %setting.source(), "non-default setting");
    }
}

fn serve_with(
    settings: Settings,
    report: &SettingsReport,
    log: &LogQueue,
) -> Result<ExitCode, Box<dyn Error>> {
    // For the HTTP ports and the background work. The gRPC workers have their own threads and runtimes.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("http")
        .enable_all()
        .build()?;
    let code = runtime.block_on(serve_until_signal(settings, report, log.clone()));
    // Does not wait for blocking tasks: a hanging file system must not delay the exit.
    runtime.shutdown_background();
    code
}

async fn serve_until_signal(
    settings: Settings,
    report: &SettingsReport,
    log: LogQueue,
) -> Result<ExitCode, Box<dyn Error>> {
    let mut signals = StopSignals::listen()?;
    // On another thread, because reading files blocks it: a signal also ends a startup that hangs.
    let runtime = Handle::current();
    let preparing = on_blocking_thread(move || runtime.block_on(App::prepare(settings, log)));
    let app = tokio::select! {
        app = preparing => app.map_err(|error| with_origin(error, report))?,
        () = signals.first() => {
            tracing::info!("stopped during startup");
            return Ok(ExitCode::SUCCESS);
        }
    };
    let stop = CancellationToken::new();
    // The first signal starts the drain; the future ends with the second one.
    let second_signal = async {
        signals.first().await;
        stop.cancel();
        signals.second().await;
    };
    tokio::select! {
        ended = app.run(stop.cancelled()) => {
            ended.map_err(|error| with_origin(error, report))?;
            Ok(ExitCode::SUCCESS)
        }
        () = second_signal => {
            tracing::warn!("second signal; exiting");
            Ok(ExitCode::FAILURE)
        }
    }
}

/// Adds where the invalid setting was written: an operator may have set only the variables of `envoyproxy/ratelimit`,
/// not ratelimitd's settings.
fn with_origin(error: AppError, report: &SettingsReport) -> Box<dyn Error> {
    let AppError { setting, text } = error;
    // A file error may name only the file.
    let has_file = |setting: &SettingInForce| {
        setting.value.contains('/') && text.contains(&format!("{}: ", setting.value))
    };
    let is_at_fault = |known: &&SettingInForce| match &setting {
        Some(key) => known.key == *key,
        None => known.origin.is_some() && has_file(known),
    };
    let Some(setting) = report.settings.iter().find(is_at_fault) else { return text.into() };
    let key = if text.contains(&setting.key) { String::new() } else { format!("{}: ", setting.key) };
    match &setting.origin {
        None => text.into(),
        Some(origin) => format!("{key}{text} ({origin})").into(),
    }
}
