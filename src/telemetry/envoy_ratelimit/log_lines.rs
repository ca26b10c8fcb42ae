//! Formats log lines as envoyproxy/ratelimit does with `LOG_FORMAT=json`: one JSON object per line with the keys
//! `@timestamp`, `@message` and `level`, and the line's fields.

use std::fmt;
use std::time::{Duration, UNIX_EPOCH};

use base::clock::{Clock as _, SystemClock};
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

#[derive(Clone, Copy, Debug)]
pub(crate) struct EnvoyRatelimitLines;

impl<S, N> FormatEvent<S, N> for EnvoyRatelimitLines
where
    S: Subscriber + for<'span> LookupSpan<'span>,
    N: for<'writer> FormatFields<'writer> + 'static,
{
    fn format_event(
        &self,
        _context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let Fields(mut line) = fields;
        let now = UNIX_EPOCH + Duration::from_micros(SystemClock.now_us());
        line.insert("@timestamp".to_owned(), humantime::format_rfc3339_millis(now).to_string().into());
        line.insert("level".to_owned(), level_name(*event.metadata().level()).into());
        line.insert("target".to_owned(), event.metadata().target().into());
        writeln!(writer, "{}", Value::Object(line))
    }
}

/// Level names of logrus, envoyproxy/ratelimit's log library.
fn level_name(level: Level) -> &'static str {
    match level {
        Level::ERROR => "error",
        Level::WARN => "warning",
        Level::INFO => "info",
        Level::DEBUG => "debug",
        Level::TRACE => "trace",
    }
}

/// An event's fields by key, including the message.
#[derive(Default)]
struct Fields(Map<String, Value>);

impl Fields {
    fn insert(&mut self, field: &Field, value: impl Into<Value>) {
        let key = if field.name() == "message" { "@message" } else { field.name() };
        self.0.insert(key.to_owned(), value.into());
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.insert(field, format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.insert(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.insert(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.insert(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.insert(field, value);
    }
}
