//! What the console of a process says: its state, the samples that follow it, and the stream that brings them.
//! `docs/console-state.schema.json` describes the state; fields that are not shown are not read.

use serde::{Deserialize, Serialize};

use crate::cli::service_connection::MAX_ANSWER_BYTES;

/// The version of the format that is understood.
const SCHEMA: u32 = 1;
/// Seconds of a series.
pub(super) const SECONDS: usize = 900;

/// Why an answer is not the state of a console.
#[derive(Debug, thiserror::Error)]
pub(super) enum StateError {
    #[error("the answer is not the state of a console: {0}")]
    Json(#[from] serde_json::Error),
    #[error(
        "the console has format {0}, and this ratelimitd knows format {SCHEMA}: use the one of the service"
    )]
    Schema(u32),
    #[error("an event has more than {MAX_ANSWER_BYTES} bytes")]
    Size,
}

/// Times are seconds since the epoch, rates are per second.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub(super) struct ConsoleState {
    schema: u32,
    /// The end of the last second.
    pub(super) end: u64,
    pub(super) instance: ConsoleInstance,
    pub(super) series: ConsoleSeries,
    pub(super) notices: Vec<ConsoleNotice>,
    pub(super) rules: ConsoleRules,
    pub(super) keys: Vec<ConsoleKey>,
    pub(super) store: ConsoleStore,
    #[serde(default)]
    pub(super) exceptions: ConsoleExceptions,
}

/// The rows of the exceptions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub(super) struct ConsoleExceptions {
    pub(super) block: RowsOfKind,
    pub(super) exempt: RowsOfKind,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub(super) struct RowsOfKind {
    pub(super) rows: u64,
    /// The requests that they changed in 15 minutes.
    pub(super) requests_15m: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub(super) struct ConsoleInstance {
    pub(super) name: String,
    /// Another one at each start.
    pub(super) id: String,
    pub(super) version: String,
    pub(super) started_at: u64,
    /// Why the process is not ready.
    pub(super) reasons: Vec<String>,
}

/// A number for each of the last seconds, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub(super) struct ConsoleSeries {
    pub(super) requests: Vec<u64>,
    pub(super) denied: Vec<u64>,
    pub(super) failed: Vec<u64>,
    pub(super) policy: Vec<u64>,
    pub(super) shadow: Vec<u64>,
    pub(super) p99_us: Vec<Option<u64>>,
    pub(super) store_p99_us: Vec<Option<u64>>,
}

#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub(super) struct ConsoleNotice {
    /// `bad`, `warn`, or empty for what is over.
    pub(super) level: String,
    pub(super) title: String,
    pub(super) text: String,
    pub(super) fix: String,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub(super) struct ConsoleRules {
    pub(super) list: Vec<ConsoleRule>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(super) struct ConsoleRule {
    pub(super) id: u32,
    #[serde(flatten)]
    pub(super) name: RuleName,
    pub(super) asked: f64,
    pub(super) denied: f64,
    pub(super) denied_15m: u64,
    pub(super) since: Option<u64>,
}

/// What tells the rows of rules apart. Rules of two instances are one row if all of it is equal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize, Serialize)]
pub(super) struct RuleName {
    pub(super) domain: String,
    /// The label of the limit.
    pub(super) rule: String,
    /// Such as `600 per minute`.
    pub(super) limit: String,
    /// `enforced`, `shadow`, `quota` or `override`.
    pub(super) kind: String,
}

/// Names of entries, and what is shown of their values.
pub(super) type ShownEntries = Vec<(String, String)>;

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(super) struct ConsoleKey {
    id: String,
    /// The id of the rule.
    pub(super) rule: u32,
    /// The limit, where the rule has several.
    #[serde(default)]
    pub(super) limit: Option<String>,
    pub(super) entries: ShownEntries,
    #[serde(default)]
    pub(super) exception: Option<KeyException>,
    pub(super) denied: f64,
    pub(super) denied_15m: u64,
}

/// The row of the exceptions that is for a key.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(super) struct KeyException {
    /// `block`, `exempt`, or what else the row changes.
    pub(super) kind: String,
    /// File and line.
    pub(super) row: Option<String>,
    pub(super) until: Option<u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub(super) struct ConsoleStore {
    /// `memory` or `redis`.
    pub(super) kind: String,
    pub(super) answers: bool,
}

/// The newest second, and the rows that changed in it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(super) struct ConsoleSample {
    end: u64,
    sample: SampleNumbers,
    /// Id, asked, denied, denied in 15 minutes.
    rules: Vec<(u32, f64, f64, u64)>,
    /// Id, denied, denied in 15 minutes.
    keys: Vec<(String, f64, u64)>,
    reasons: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
struct SampleNumbers {
    requests: u64,
    denied: u64,
    failed: u64,
    policy: u64,
    shadow: u64,
    p99_us: Option<u64>,
    store_p99_us: Option<u64>,
}

impl ConsoleState {
    /// Reads a state.
    ///
    /// # Errors
    /// [`StateError`] if the text is not one, or of another version.
    pub(super) fn parse(text: &str) -> Result<Self, StateError> {
        #[derive(Deserialize)]
        struct Version {
            schema: u32,
        }
        let Version { schema } = serde_json::from_str(text)?;
        if schema != SCHEMA {
            return Err(StateError::Schema(schema));
        }
        Ok(serde_json::from_str(text)?)
    }

    /// Adds a sample. Seconds that the stream left out count 0 until the next state.
    pub(super) fn add(&mut self, sample: ConsoleSample) {
        let ConsoleSample { end, sample, rules, keys, reasons } = sample;
        let missed = end.saturating_sub(self.end.saturating_add(1)).min(SECONDS as u64);
        for _ in 0..missed {
            self.series.push(&SampleNumbers::default());
        }
        self.series.push(&sample);
        self.end = end;
        self.instance.reasons = reasons;
        for (id, asked, denied, denied_15m) in rules {
            if let Some(rule) = self.rules.list.iter_mut().find(|rule| rule.id == id) {
                (rule.asked, rule.denied, rule.denied_15m) = (asked, denied, denied_15m);
            }
        }
        for (id, denied, denied_15m) in keys {
            if let Some(key) = self.keys.iter_mut().find(|key| key.id == id) {
                (key.denied, key.denied_15m) = (denied, denied_15m);
            }
        }
    }
}

impl ConsoleSeries {
    fn push(&mut self, sample: &SampleNumbers) {
        push(&mut self.requests, sample.requests);
        push(&mut self.denied, sample.denied);
        push(&mut self.failed, sample.failed);
        push(&mut self.policy, sample.policy);
        push(&mut self.shadow, sample.shadow);
        push(&mut self.p99_us, sample.p99_us);
        push(&mut self.store_p99_us, sample.store_p99_us);
    }
}

fn push<T>(series: &mut Vec<T>, newest: T) {
    if series.len() >= SECONDS {
        series.drain(..=series.len() - SECONDS);
    }
    series.push(newest);
}

/// An event of the stream.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ConsoleEvent {
    State(Box<ConsoleState>),
    Sample(ConsoleSample),
    /// The last event.
    End,
}

/// Bytes of the stream that are no complete event yet.
#[derive(Debug, Default)]
pub(super) struct EventBytes(Vec<u8>);

impl EventBytes {
    /// Adds bytes, and returns the events that are complete. Events of other names are left out.
    ///
    /// # Errors
    /// [`StateError`] if an event is not as described, or has no end.
    pub(super) fn add(&mut self, bytes: &[u8]) -> Result<Vec<ConsoleEvent>, StateError> {
        const END: &[u8] = b"\n\n";
        // The end of an event may have begun with the bytes before.
        let mut searched = self.0.len().saturating_sub(END.len() - 1);
        self.0.extend_from_slice(bytes);
        let mut events = Vec::new();
        while let Some(at) = self.0[searched..].windows(END.len()).position(|two| two == END) {
            let event: Vec<u8> = self.0.drain(..searched + at + END.len()).collect();
            events.extend(parsed_event(&String::from_utf8_lossy(&event))?);
            searched = 0;
        }
        if self.0.len() > MAX_ANSWER_BYTES { Err(StateError::Size) } else { Ok(events) }
    }
}

fn parsed_event(text: &str) -> Result<Option<ConsoleEvent>, StateError> {
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    let data = field("data").unwrap_or_default();
    Ok(match field("event") {
        Some("state") => Some(ConsoleEvent::State(Box::new(ConsoleState::parse(data)?))),
        Some("sample") => Some(ConsoleEvent::Sample(serde_json::from_str(data)?)),
        Some("end") => Some(ConsoleEvent::End),
        _ => None,
    })
}
