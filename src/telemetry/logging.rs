//! The log subscriber: filters lines and queues them for standard error, as text or as one JSON object per line. A
//! client can cause a warning of the HTTP/2 library with a cheap frame, so only one of these a minute is written.
//! Modules decide what they log; never descriptor values, counter keys or URLs with credentials.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::borrow::Cow;
use std::io::{self, IsTerminal as _, Write};
use std::thread;

use base::log_throttle::LogThrottle;
use strum::{EnumString, VariantNames};
use tracing::subscriber::SetGlobalDefaultError;
use tracing::{Event, Level, Subscriber};
use tracing_appender::non_blocking::NonBlocking;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::{Context, SubscriberExt as _};
use tracing_subscriber::{Layer, Registry, fmt, registry};

use super::envoy_ratelimit::EnvoyRatelimitLines;
use super::log_queue::LogQueue;

/// Lines to write: a level for the process, levels by module, or both, separated by commas.
#[derive(Clone, Debug, PartialEq)]
pub struct Filter(Targets);

#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumString, VariantNames)]
#[strum(serialize_all = "snake_case")]
pub enum Format {
    /// For people.
    Text,
    /// One JSON object per line.
    Json,
    /// One JSON object per line, with the keys of envoyproxy/ratelimit.
    EnvoyRatelimit,
}

impl Filter {
    /// Accepts `info`, `warn,ratelimitd=debug` and the like. A word without `=` must be a level: taken as a module
    /// name, a misspelled level would silence the rest of the process.
    pub fn parse(text: &str) -> Option<Self> {
        let is_module = |text: &str| {
            !text.is_empty()
                && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_:-".contains(&byte))
        };
        let is_level = |text: &str| !text.is_empty() && text.parse::<LevelFilter>().is_ok();
        let is_filter = text.split(',').all(|part| match part.split_once('=') {
            Some((module, level)) => is_module(module) && is_level(level),
            None => is_level(part),
        });
        text.parse().ok().filter(|_| is_filter).map(Self)
    }
}

/// Starts logging.
///
/// # Errors
/// If the process already has a subscriber.
pub fn init(filter: &Filter, format: Format) -> Result<LogQueue, SetGlobalDefaultError> {
    let queue = LogQueue::start(io::stderr());
    let lines = fmt::layer()
        .with_ansi(io::stderr().is_terminal())
        // The layer would print its errors with `eprintln!`, which panics if standard error cannot be written.
        .log_internal_errors(false);
    let records = queue.lines.clone();
    match format {
        Format::Text => start(lines.with_writer(move || TextRecords(records.clone())), filter)?,
        Format::Json => {
            let lines = lines.json().flatten_event(true).with_current_span(false).with_span_list(false);
            start(lines.with_writer(move || records.clone()), filter)?;
        }
        Format::EnvoyRatelimit => {
            let lines = lines.with_ansi(false).event_format(EnvoyRatelimitLines);
            start(lines.with_writer(move || records.clone()), filter)?;
        }
    }
    Ok(queue)
}

fn start(
    lines: impl Layer<Registry> + Send + Sync,
    Filter(filter): &Filter,
) -> Result<(), SetGlobalDefaultError> {
    let subscriber = registry().with(lines).with(LibraryLines::default()).with(filter.clone());
    tracing::subscriber::set_global_default(subscriber)
}

/// Writes records of the text format, which can contain strings from servers or clients.
struct TextRecords(NonBlocking);

/// The subscriber formats a record and writes it in one call.
impl Write for TextRecords {
    fn write(&mut self, record: &[u8]) -> io::Result<usize> {
        self.0.write_all(&of_one_start(record))?;
        Ok(record.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Indents every line of a record after the first, so that nothing within a record can look like a separate one. The
/// subscriber escapes ESC and other control characters, but neither line feeds nor carriage returns.
fn of_one_start(record: &[u8]) -> Cow<'_, [u8]> {
    let text = record.strip_suffix(b"\n").unwrap_or(record);
    if !text.iter().any(|byte| b"\n\r".contains(byte)) {
        return Cow::Borrowed(record);
    }
    let mut written = Vec::with_capacity(record.len() + 64);
    for &byte in text {
        match byte {
            b'\n' => written.extend_from_slice(b"\n    "),
            b'\r' => written.extend_from_slice(b"\\r"),
            byte => written.push(byte),
        }
    }
    written.push(b'\n');
    Cow::Owned(written)
}

/// Logs panics from now on. The standard library writes them to standard error directly, and a reader that has stopped
/// reading would block the panicking thread.
pub fn log_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let thread = thread::current();
        // Only if the environment requests backtraces.
        let backtrace =
            Some(Backtrace::capture()).filter(|trace| trace.status() == BacktraceStatus::Captured);
        let backtrace = backtrace.map(tracing::field::display);
        tracing::error!(thread = thread.name(), backtrace, "{panic}");
    }));
}

/// Target prefix of the library's lines.
const LIBRARY: &str = "h2::";

/// Drops most warnings of the HTTP/2 library. Lines below a warning are for debugging, and all of them are written.
#[derive(Debug, Default)]
struct LibraryLines(LogThrottle);

impl<S: Subscriber> Layer<S> for LibraryLines {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        let (level, target) = (event.metadata().level(), event.metadata().target());
        if *level > Level::WARN || !target.starts_with(LIBRARY) {
            return true;
        }
        let Some(events) = self.0.count() else {
            return false;
        };
        if events > 1 {
            let omitted = events - 1;
            tracing::warn!(omitted, "HTTP/2 library warnings omitted since the last one");
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn filters_are_levels_or_levels_by_module() {
        let cases = [
            // (written, accepted)
            ("info", true),
            ("OFF", true),
            ("warn,ratelimitd=debug", true),
            ("ratelimitd=trace", true),
            // Would be a module name.
            ("ifno", false),
            ("info,ratelimitd", false),
            // No level after the module.
            ("ratelimitd=loud", false),
            ("ratelimitd=", false),
            // No module: such a filter would match all or none.
            ("=debug", false),
            ("info, ratelimitd=debug", false),
            ("!x=info", false),
            ("info,", false),
            ("", false),
        ];
        for (written, accepted) in cases {
            assert_eq!(Filter::parse(written).is_some(), accepted, "{written}");
        }
    }

    #[test]
    fn a_text_within_a_record_does_not_look_like_a_record() {
        // (formatted, written)
        let table: [(&[u8], &[u8]); 4] = [
            (b"INFO serving\n", b"INFO serving\n"),
            (b"ERROR a\n2026 INFO forged\n", b"ERROR a\n    2026 INFO forged\n"),
            (b"ERROR a\r2026 INFO forged\r\n", b"ERROR a\\r2026 INFO forged\\r\n"),
            (b"ERROR two problems:\na.yaml:1: x\n\n", b"ERROR two problems:\n    a.yaml:1: x\n    \n"),
        ];
        for (formatted, written) in table {
            assert_eq!(of_one_start(formatted), written, "{:?}", String::from_utf8_lossy(formatted));
        }
    }

    #[test]
    fn a_second_subscriber_is_an_error() {
        let filter = Filter::parse("off").expect("a level");
        assert!(init(&filter, Format::Json).is_ok());
        assert!(init(&filter, Format::Text).is_err());
    }

    #[derive(Clone, Default)]
    struct Written(Arc<AtomicUsize>);

    impl<S: Subscriber> Layer<S> for Written {
        fn on_event(&self, _: &Event<'_>, _: Context<'_, S>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn warnings_of_the_library_are_written_once_a_minute_and_all_other_lines_always() {
        let written = Written::default();
        let subscriber = tracing_subscriber::registry().with(written.clone()).with(LibraryLines::default());
        tracing::subscriber::with_default(subscriber, || {
            for (lines, expected) in [
                ((|| tracing::warn!(target: "h2::proto::ping_pong", "from a client")) as fn(), 1),
                (|| tracing::error!(target: "h2::proto::streams", "from a client"), 0),
                (|| tracing::debug!(target: "h2::proto::streams", "for debugging"), 100),
                (|| tracing::warn!(target: "h2x", "another library"), 100),
                (|| tracing::warn!("ours"), 100),
            ] {
                let before = written.0.load(Ordering::Relaxed);
                (0..100).for_each(|_| lines());
                assert_eq!(written.0.load(Ordering::Relaxed) - before, expected);
            }
        });
    }
}
