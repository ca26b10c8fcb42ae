//! `/counters/show` and `/counters/reset` of the admin port: the counters that the descriptors of a request meet. The body is
//! that of `/json`.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{StatusCode, header};
use serde_json::{Value, json};

use crate::counters::{CounterError, CounterService, CounterStatus};
use crate::engine::{Request, Reset, Store};
use crate::transport::Bounds;
use crate::transport::bounds::RequestError;
use crate::transport::protojson::RequestJson;

/// What looks at counters.
#[derive(Debug)]
pub struct Counters<S> {
    /// Does it.
    pub service: CounterService<S>,
    /// How large a request may be.
    pub bounds: Bounds,
    /// What the store puts before every key.
    pub key_prefix: String,
}

#[derive(Debug, thiserror::Error)]
enum CountersError {
    #[error("{0}")]
    Syntax(#[from] serde_json::Error),
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error(transparent)]
    CounterService(#[from] CounterError),
    #[error("no rule of domain {0:?} keeps a counter for that")]
    Nothing(String),
}

impl IntoResponse for CountersError {
    fn into_response(self) -> Response {
        let status = match &self {
            Self::Syntax(_) | Self::Request(_) | Self::CounterService(CounterError::Plan(_)) => {
                StatusCode::BAD_REQUEST
            }
            Self::Nothing(_) => StatusCode::NOT_FOUND,
            Self::CounterService(CounterError::Store(_)) => StatusCode::SERVICE_UNAVAILABLE,
        };
        (status, format!("{self}\n")).into_response()
    }
}

pub(super) async fn show<S: Store + Reset + 'static>(
    State(counters): State<Arc<Counters<S>>>,
    body: Bytes,
) -> Response {
    counters.show(&body).await.map_or_else(IntoResponse::into_response, page)
}

pub(super) async fn reset<S: Store + Reset + 'static>(
    State(counters): State<Arc<Counters<S>>>,
    body: Bytes,
) -> Response {
    counters.reset(&body).await.map_or_else(IntoResponse::into_response, page)
}

fn page(counters: Vec<Value>) -> Response {
    let text = format!("{:#}\n", json!({ "counters": counters }));
    ([(header::CONTENT_TYPE, "application/json")], text).into_response()
}

impl<S: Store + Reset> Counters<S> {
    async fn show(&self, body: &[u8]) -> Result<Vec<Value>, CountersError> {
        let request = self.request(body)?;
        let entries = self.service.show(&request).await?;
        some(entries.iter().map(|entry| self.describe(entry)).collect(), &request)
    }

    async fn reset(&self, body: &[u8]) -> Result<Vec<Value>, CountersError> {
        let request = self.request(body)?;
        let audit = |key: &str| {
            let key = format!("{}{key}", self.key_prefix);
            tracing::info!(%key, "a counter is to be reset by way of the admin port");
        };
        let forgotten = self.service.reset(&request, audit).await.inspect_err(|error| {
            tracing::warn!(%error, "the reset failed; whether it took effect is not known");
        })?;
        let each = forgotten.into_iter().map(|(key, had_units)| {
            let key = format!("{}{key}", self.key_prefix);
            tracing::info!(%key, had_units, "a counter is reset by way of the admin port");
            json!({ "key": key, "had_units": had_units })
        });
        some(each.collect(), &request)
    }

    fn request(&self, body: &[u8]) -> Result<Request, CountersError> {
        let sent = serde_json::from_slice::<RequestJson>(body)?;
        Ok(self.bounds.admit(Request::try_from(sent)?)?)
    }

    fn describe(&self, entry: &CounterStatus) -> Value {
        let (counter, report) = (&entry.counter, &entry.report);
        json!({
            "key": format!("{}{}", self.key_prefix, counter.key),
            "limit": counter.limit,
            "algorithm": counter.algorithm,
            "requests_per_unit": counter.requests_per_unit,
            "unit": counter.period.unit().name(),
            "unit_multiplier": counter.period.multiplier(),
            "max_cost": counter.max_cost,
            "remaining": report.remaining,
            "retry_after_us": report.retry_after.us(),
            "reset_after_us": report.reset_after_us,
        })
    }
}

fn some(counters: Vec<Value>, request: &Request) -> Result<Vec<Value>, CountersError> {
    if counters.is_empty() { Err(CountersError::Nothing(request.domain.clone())) } else { Ok(counters) }
}
