//! The console's paths on the admin port: its page, its data, the event stream, and the actions on a key.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Extension, RawQuery, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use base::clock::monotonic;
use engine::wire::json::Object;
use engine::{Reset, Store};
use futures_util::stream;
use http::{HeaderName, HeaderValue, StatusCode, header};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use super::admin_access::CONSOLE_PAGE;
use super::console_page::page;
use super::console_streams::{StreamPlace, Streams};
use super::exceptions::{author_of, live_status};
use super::server::ClientAddress;
use crate::console::{
    ActionError, ConsoleActions, DeniedRow, Frames, KeyEntry, LAST_FRAME, MOST_VALUES, RowId, RowStatus,
    RuleSelection,
};
use crate::decide::NoDecision;
use crate::decide::usage::CounterTimes;
use crate::live::{LiveError, LiveExceptions};

const MOST_REASON_CHARS: usize = 200;
const JSON: &str = "application/json";

/// Lines of the index.
pub(super) const CONSOLE: &str = "\
/console         the page of what this process does now: for a browser
/console/state   what the process does now and did in the last 15 minutes; ?rules=all: with every rule
/console/events  the same as a stream of events, each second
/console/show    POST {\"id\"} of a row of denied keys: the state of its counter
/console/reset   POST {\"id\", \"reason\"}: reset the counter to unused
/console/values  POST {\"ids\", \"reason\"}: the values of the keys of these rows
/console/except  POST {\"id\", \"effect\", \"until\", \"reason\"}: set an exception for the key of this row
";

/// The console, and what ends its streams.
#[derive(Debug)]
pub struct ConsoleEndpoints<S> {
    pub actions: ConsoleActions<S>,
    /// Ends the streams at shutdown.
    pub stop: CancellationToken,
}

struct ConsoleRoutes<S> {
    endpoints: ConsoleEndpoints<S>,
    live: LiveExceptions,
    streams: Arc<Streams>,
}

/// Each action reads some of these fields.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Fields {
    id: String,
    ids: Vec<String>,
    reason: Value,
    by: Value,
    entry: Option<usize>,
    effect: Map<String, Value>,
    until: Option<Value>,
}

#[derive(Debug, thiserror::Error)]
enum ConsoleRefusal {
    #[error("the body must be a JSON object with {0}")]
    Malformed(&'static str),
    #[error("the body is not as expected: {0}")]
    Json(#[from] serde_json::Error),
    #[error(transparent)]
    Action(#[from] ActionError),
    #[error(transparent)]
    Live(#[from] LiveError),
}

impl IntoResponse for ConsoleRefusal {
    fn into_response(self) -> Response {
        let status = match &self {
            Self::Live(error) => live_status(error),
            Self::Action(ActionError::NoDecision(NoDecision::Store(_))) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Malformed(_) | Self::Json(_) | Self::Action(ActionError::NoDecision(_)) => {
                StatusCode::BAD_REQUEST
            }
            Self::Action(ActionError::NoRow(_)) => StatusCode::NOT_FOUND,
            Self::Action(ActionError::Changed(_) | ActionError::Blocked | ActionError::NoValue) => {
                StatusCode::CONFLICT
            }
        };
        (status, format!("{self}\n")).into_response()
    }
}

pub(super) fn console_router<S: Store + Reset + 'static>(
    endpoints: ConsoleEndpoints<S>,
    live: LiveExceptions,
) -> Router {
    let state = ConsoleRoutes { endpoints, live, streams: Arc::default() };
    Router::new()
        .route(CONSOLE_PAGE, get(page))
        .route("/console/state", get(state_page::<S>))
        .route("/console/events", get(events::<S>))
        .route("/console/show", post(show::<S>))
        .route("/console/reset", post(reset::<S>))
        .route("/console/values", post(values::<S>))
        .route("/console/except", post(except::<S>))
        .with_state(Arc::new(state))
}

async fn state_page<S: Store + Reset + 'static>(
    State(state): State<Arc<ConsoleRoutes<S>>>,
    RawQuery(query): RawQuery,
) -> Response {
    let console = &state.endpoints.actions.console;
    let has_all = query.is_some_and(|query| query.split('&').any(|pair| pair == "rules=all"));
    let rules = if has_all { RuleSelection::All } else { RuleSelection::Most };
    not_stored(JSON, console.state(rules) + "\n")
}

/// A stream ends after this time, and the page opens the next one: so its token is checked again.
const LONGEST_STREAM: Duration = Duration::from_secs(3_600);

/// A stream with a slot.
struct EventStream {
    frames: Frames,
    stop: CancellationToken,
    end: Instant,
    is_over: bool,
    place: StreamPlace,
}

impl EventStream {
    /// Returns the next event; `None` after the last one.
    async fn next(mut self) -> Option<(Result<Bytes, Infallible>, Self)> {
        if self.is_over {
            return None;
        }
        self.place.reads();
        let Self { frames, stop, end, place, .. } = &mut self;
        let next = timeout_at(*end, stop.run_until_cancelled(frames.next()));
        // Sends no last event, so the client can open another stream.
        let text = place.displaced.run_until_cancelled(next).await?.ok()?.flatten();
        self.place.waits(monotonic());
        self.is_over = text.is_none();
        let text = text.unwrap_or_else(|| LAST_FRAME.into());
        // All streams send the same memory.
        Some((Ok(Bytes::from_owner(Arc::<[u8]>::from(text))), self))
    }
}

async fn events<S: Store + Reset + 'static>(
    State(state): State<Arc<ConsoleRoutes<S>>>,
    Extension(ClientAddress(peer)): Extension<ClientAddress>,
) -> Response {
    let ConsoleEndpoints { actions, stop, .. } = &state.endpoints;
    let place = state.streams.open(peer, monotonic());
    let (frames, end) = (actions.console.frames(), Instant::now() + LONGEST_STREAM);
    let events = EventStream { frames, stop: stop.clone(), end, is_over: false, place };
    let body = Body::from_stream(stream::unfold(events, EventStream::next));
    let mut response = not_stored("text/event-stream", body);
    // nginx would hold events back.
    let no_buffering = (HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    response.headers_mut().insert(no_buffering.0, no_buffering.1);
    response
}

pub(super) fn not_stored(content_type: &'static str, body: impl Into<Body>) -> Response {
    let headers = [(header::CONTENT_TYPE, content_type), (header::CACHE_CONTROL, "no-store")];
    (headers, body.into()).into_response()
}

async fn show<S: Store + Reset + 'static>(
    State(state): State<Arc<ConsoleRoutes<S>>>,
    body: Bytes,
) -> Result<Response, ConsoleRefusal> {
    let status = state.endpoints.actions.show(&row_id(&read(&body)?.id)?).await?;
    Ok(not_stored(JSON, format!("{:#}\n", status_json(&status))))
}

async fn reset<S: Store + Reset + 'static>(
    State(state): State<Arc<ConsoleRoutes<S>>>,
    Extension(ClientAddress(peer)): Extension<ClientAddress>,
    body: Bytes,
) -> Result<Response, ConsoleRefusal> {
    let body = read(&body)?;
    let (id, reason) = (row_id(&body.id)?, required_reason(&body.reason)?);
    let actions = &state.endpoints.actions;
    let logged = |row: &DeniedRow| actions.console.logged(&actions.service.rulebook.rules(), &row.key);
    let audit = |row: &DeniedRow| {
        tracing::info!(key = %logged(row), %peer, reason, "resetting a counter through the admin port");
    };
    let (row, had_units) = actions.reset(&id, audit).await.inspect_err(|error| {
        tracing::warn!(%error, "counter reset failed; it may have taken effect");
    })?;
    tracing::info!(key = %logged(&row), had_units, %peer, reason, "counter reset through the admin port");
    let answer = json!({"id": row.id, "key": row.shown, "had_units": had_units});
    Ok(not_stored(JSON, format!("{answer:#}\n")))
}

async fn values<S: Store + Reset + 'static>(
    State(state): State<Arc<ConsoleRoutes<S>>>,
    Extension(ClientAddress(peer)): Extension<ClientAddress>,
    body: Bytes,
) -> Result<Response, ConsoleRefusal> {
    let Fields { ids, reason, .. } = read(&body)?;
    let reason = required_reason(&reason)?;
    if ids.len() > MOST_VALUES {
        return Err(ConsoleRefusal::Malformed("at most 200 ids"));
    }
    let ids = ids.iter().map(|id| row_id(id)).collect::<Result<Vec<_>, _>>()?;
    let values = state.endpoints.actions.values(&ids);
    let keys = values.len();
    tracing::info!(keys, %peer, reason, "values of denied keys shown through the admin port");
    let rows: Vec<_> = values.into_iter().map(|(id, entries)| values_json(&id, &entries)).collect();
    Ok(not_stored(JSON, format!("{:#}\n", json!({ "keys": rows }))))
}

/// Sets an exception for a denied key's value. The caller need not send the value.
async fn except<S: Store + Reset + 'static>(
    State(state): State<Arc<ConsoleRoutes<S>>>,
    Extension(ClientAddress(peer)): Extension<ClientAddress>,
    body: Bytes,
) -> Result<Response, ConsoleRefusal> {
    let Fields { id, reason, by, entry, effect: mut row, until, .. } = read(&body)?;
    let (domain, entry) = state.endpoints.actions.entry(&row_id(&id)?, entry)?;
    row.extend(
        [("domain", domain), ("key", entry.key), ("value", entry.value)]
            .map(|(name, text)| (name.to_owned(), text.into())),
    );
    row.extend(until.map(|until| ("until".to_owned(), until)));
    let rows = state.live.set(vec![row.into()], &author_of(&reason, &by, peer)).await?;
    Ok(not_stored(JSON, format!("{:#}\n", json!({ "rows": rows }))))
}

/// Each entry has `exact`: `true` if its value is the one in the requests.
fn values_json(id: &str, entries: &[KeyEntry]) -> Value {
    let texts: Vec<_> = entries.iter().map(|entry| [&entry.name, &entry.value]).collect();
    let exact: Vec<_> = entries.iter().map(|entry| entry.is_exact).collect();
    json!({"id": id, "entries": texts, "exact": exact})
}

fn status_json(status: &RowStatus) -> Value {
    let RowStatus { row, limit, outcome } = status;
    let spec = limit.as_ref().map(|limit| &limit.spec);
    let times = CounterTimes::from(outcome);
    json!({
        "id": row.id,
        "key": row.shown,
        "name": *row.rule,
        "algorithm": spec.map(|spec| spec.algorithm.into_str()),
        "requests_per_unit": spec.map(|_| row.charge.requests_per_unit),
        "unit": spec.map(|spec| spec.period.unit().into_str()),
        "unit_multiplier": spec.map(|spec| spec.period.multiplier()),
        "limit": row.charge.kernel.max_cost(),
        "remaining": outcome.report.remaining,
        "refills_at": times.refills_at,
        "resets_at": times.resets_at,
        "read_at": times.read_at,
    })
}

fn read(body: &[u8]) -> Result<Fields, ConsoleRefusal> {
    let Object(fields) = serde_json::from_slice(body)?;
    Ok(fields)
}

fn row_id(id: &str) -> Result<RowId, ConsoleRefusal> {
    RowId::parse(id).ok_or(ConsoleRefusal::Malformed("ids of 12 hexadecimal digits"))
}

fn required_reason(reason: &Value) -> Result<String, ConsoleRefusal> {
    const EXPECTED: &str = "a reason of 1 to 200 characters";
    reason_of(reason).filter(|reason| !reason.is_empty()).ok_or(ConsoleRefusal::Malformed(EXPECTED))
}

/// Returns an operator's reason as it is logged: without characters that change a line or its direction. `None` if it
/// is not a string, or too long.
pub(super) fn reason_of(reason: &Value) -> Option<String> {
    let reason = reason.as_str()?.trim();
    let is_short = reason.chars().count() <= MOST_REASON_CHARS;
    is_short.then(|| reason.replace(base::is_hostile, " "))
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use engine::HashKey;

    use super::*;
    use crate::console::{Console, ConsoleOptions, Instance, ValuesNeed};

    #[tokio::test(start_paused = true)]
    async fn a_stream_ends_after_an_hour_without_a_last_frame() {
        let console = Console::new(ConsoleOptions {
            instance: Instance {
                name: "host".to_owned(),
                id: "00c0ffee".to_owned(),
                started_at: 1_700_000_000,
            },
            dashboard_url: String::new(),
            needs: ValuesNeed::Token,
            tag_key: HashKey::new(b"a key"),
            is_shadow_mode: false,
        });
        let opened = Instant::now();
        let events = EventStream {
            frames: console.frames(),
            stop: CancellationToken::new(),
            end: opened + LONGEST_STREAM,
            is_over: false,
            place: Arc::<Streams>::default().open(IpAddr::V4(Ipv4Addr::LOCALHOST), monotonic()),
        };
        let (_, events) = events.next().await.expect("the state");
        assert!(events.next().await.is_none());
        assert_eq!(opened.elapsed(), LONGEST_STREAM);
    }
}
