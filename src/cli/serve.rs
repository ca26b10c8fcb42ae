//! `serve`: the service itself. Connects the process to its signals and its exit code.

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use tokio_util::sync::CancellationToken;

use super::output::report;
use super::stop_signals::StopSignals;
use crate::app::{self, App, LogQueue};
use crate::settings::Settings;

/// A reader of the log that has stopped reading must not hold the end of the process.
const FLUSH_WITHIN: Duration = Duration::from_secs(1);

/// Serve decisions over gRPC and HTTP until SIGTERM, SIGINT or SIGHUP.
///
/// Settings come from environment variables RATELIMITD__SECTION__KEY, then from the file, then from the defaults. The
/// first signal drains (see server.drain); a second one, more than a second later, ends the process at once.
///
/// Exit code 0: stopped by a signal, and all calls in flight were finished. 1: it could not start or continue; the
/// reason is on standard error.
#[derive(Clone, Debug, Default, Args)]
#[command(after_help = "Examples:
  ratelimitd serve --config config/ratelimitd.yaml
  RATELIMITD__STORE__KIND=redis RATELIMITD__STORE__REDIS__URL=redis://redis:6379 ratelimitd serve")]
pub struct ServeArgs {
    /// The settings file (YAML)
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// The reason of a failure goes to standard error.
#[must_use]
pub fn run(args: &ServeArgs) -> ExitCode {
    match serve(args) {
        Ok(code) => code,
        Err(error) => {
            report(format_args!("ratelimitd: {error}"));
            ExitCode::FAILURE
        }
    }
}

fn serve(args: &ServeArgs) -> Result<ExitCode, Box<dyn Error>> {
    let settings = Settings::load(args.config.as_deref())?;
    let log = app::start_logging(&settings.log)?;
    for variable in Settings::unread_variables() {
        tracing::warn!("{variable}");
    }
    let code = serve_with(settings, &log).unwrap_or_else(|error| {
        log.push(format!("ratelimitd: {error}\n").as_bytes());
        ExitCode::FAILURE
    });
    log.flush(FLUSH_WITHIN);
    Ok(code)
}

fn serve_with(settings: Settings, log: &LogQueue) -> Result<ExitCode, Box<dyn Error>> {
    // For the HTTP ports and the background work. The gRPC workers have their own threads and runtimes.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("http")
        .enable_all()
        .build()?;
    let code = runtime.block_on(serve_until_signal(settings, log.clone()));
    // Does not wait for blocking tasks: a file system that hangs must not delay the exit.
    runtime.shutdown_background();
    code
}

async fn serve_until_signal(settings: Settings, log: LogQueue) -> Result<ExitCode, Box<dyn Error>> {
    let mut signals = StopSignals::listen()?;
    let app = App::prepare(settings, log).await?;
    let stop = CancellationToken::new();
    // The first signal starts the drain; the future ends with the second one.
    let second_signal = async {
        signals.first().await;
        stop.cancel();
        signals.second().await;
    };
    tokio::select! {
        ended = app.run(stop.cancelled()) => {
            ended?;
            Ok(ExitCode::SUCCESS)
        }
        () = second_signal => {
            tracing::warn!("told to stop a second time: ending at once");
            Ok(ExitCode::FAILURE)
        }
    }
}
