//! Logs: one subscriber for the process, on standard error, as text or as one JSON object per line.
//!
//! Knows how lines are filtered and written. What is logged is decided where it happens; never descriptor values,
//! counter keys or addresses with credentials.

use std::io::IsTerminal;

use tracing::subscriber::SetGlobalDefaultError;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

/// Which lines are written: a level for everything, levels by module, or both, separated by commas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter(String);

/// How a line is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// For people.
    Text,
    /// One JSON object per line.
    Json,
}

impl Filter {
    /// Understands `info`, `warn,ratelimitd=debug` and the like. A word alone must be a level: taken as the
    /// name of a module, a misspelt level would silence everything else.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let is_directive = |part: &str| part.contains('=') || part.parse::<LevelFilter>().is_ok();
        let is_filter = text.split(',').all(|part| !part.is_empty() && is_directive(part));
        (is_filter && EnvFilter::try_new(text).is_ok()).then(|| Self(text.to_owned()))
    }
}

/// Writes logs of the whole process from here on.
///
/// # Errors
/// When logs are being written already.
pub fn init(filter: &Filter, format: Format) -> Result<(), SetGlobalDefaultError> {
    let lines = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(&filter.0))
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    match format {
        Format::Text => tracing::subscriber::set_global_default(lines.finish()),
        Format::Json => {
            let lines = lines.json().flatten_event(true).with_current_span(false).with_span_list(false);
            tracing::subscriber::set_global_default(lines.finish())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_levels_or_levels_by_module() {
        let cases = [
            // (written, understood)
            ("info", true),
            ("OFF", true),
            ("warn,ratelimitd=debug", true),
            ("ratelimitd=trace", true),
            // Would be read as a module's name.
            ("ifno", false),
            ("info,ratelimitd", false),
            // No level after the module.
            ("ratelimitd=loud", false),
            ("info,", false),
            ("", false),
        ];
        for (written, understood) in cases {
            assert_eq!(Filter::parse(written).is_some(), understood, "{written}");
        }
    }

    #[test]
    fn logs_are_set_up_once() {
        let filter = Filter::parse("off").expect("a level");
        assert!(init(&filter, Format::Json).is_ok());
        assert!(init(&filter, Format::Text).is_err());
    }
}
