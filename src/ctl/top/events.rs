//! Parses what the consoles send: their state once, or the event stream that starts with it.

use ratelimitd::cli::service_connection::MAX_ANSWER_BYTES;
use ratelimitd::console::{ConsoleSample, ConsoleState, SCHEMA};
use serde::Deserialize;

/// Why an answer is not a console's state.
#[derive(Debug, thiserror::Error)]
pub(super) enum StateError {
    #[error("the answer is not the state of a console: {0}")]
    Json(#[from] serde_json::Error),
    #[error(
        "the console uses format {0}, this ratelimitctl format {SCHEMA}; use the ratelimitctl of the \
         service's version"
    )]
    Schema(u32),
    #[error("an event has more than {MAX_ANSWER_BYTES} bytes")]
    Size,
}

/// Parses a state.
///
/// # Errors
/// [`StateError`] if the input is not a state, or of another version.
pub(super) fn parsed_state(text: &str) -> Result<ConsoleState, StateError> {
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

/// An event of the stream.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ConsoleEvent {
    State(Box<ConsoleState>),
    Sample(Box<ConsoleSample>),
    /// The last event.
    End,
}

/// Received bytes that are not a complete event yet.
#[derive(Debug, Default)]
pub(super) struct EventBytes(Vec<u8>);

impl EventBytes {
    /// Adds bytes, and returns the complete events. Events with other names are ignored.
    ///
    /// # Errors
    /// [`StateError`] if an event is malformed, or does not end.
    pub(super) fn add(&mut self, bytes: &[u8]) -> Result<Vec<ConsoleEvent>, StateError> {
        const END: &[u8] = b"\n\n";
        // The end of an event may have started in the earlier bytes.
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
        Some("state") => Some(ConsoleEvent::State(Box::new(parsed_state(data)?))),
        Some("sample") => Some(ConsoleEvent::Sample(Box::new(serde_json::from_str(data)?))),
        Some("end") => Some(ConsoleEvent::End),
        _ => None,
    })
}
