//! `/counters/show` and `/counters/reset` of the admin port: the counters that the descriptors of a request match. The
//! body of the call has the format of `/json`.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use engine::wire::json::Object;
use engine::wire::{Bounds, RawRequest, RequestError};
use engine::{Request, Reset, Store};
use http::{StatusCode, header};
use serde_json::{Value, json};

use crate::decide::counters::{CounterError, CounterService, CounterStatus};

#[derive(Debug)]
pub struct CounterEndpoints<S> {
    pub service: CounterService<S>,
    pub bounds: Bounds,
    /// The store's prefix of every key.
    pub key_prefix: String,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum CounterCallError {
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error(transparent)]
    Service(#[from] CounterError),
    #[error("no rule of domain {0:?} has a counter for this request")]
    NoCounter(String),
}

impl IntoResponse for CounterCallError {
    fn into_response(self) -> Response {
        let status = match &self {
            Self::Json(_) | Self::Request(_) | Self::Service(CounterError::Plan(_)) => {
                StatusCode::BAD_REQUEST
            }
            Self::NoCounter(_) => StatusCode::NOT_FOUND,
            Self::Service(CounterError::Store(_)) => StatusCode::SERVICE_UNAVAILABLE,
        };
        (status, format!("{self}\n")).into_response()
    }
}

pub(super) async fn show<S: Store + Reset + 'static>(
    State(counters): State<Arc<CounterEndpoints<S>>>,
    body: Bytes,
) -> Result<Response, CounterCallError> {
    counters.show(&body).await.map(counters_json)
}

pub(super) async fn reset<S: Store + Reset + 'static>(
    State(counters): State<Arc<CounterEndpoints<S>>>,
    body: Bytes,
) -> Result<Response, CounterCallError> {
    counters.reset(&body).await.map(counters_json)
}

fn counters_json(counters: Vec<Value>) -> Response {
    let text = format!("{:#}\n", json!({ "counters": counters }));
    ([(header::CONTENT_TYPE, "application/json")], text).into_response()
}

impl<S: Store + Reset> CounterEndpoints<S> {
    async fn show(&self, body: &[u8]) -> Result<Vec<Value>, CounterCallError> {
        let request = self.request(body)?;
        let counters = self.service.show(&request).await?;
        unless_empty(counters.iter().map(|counter| self.counter_json(counter)).collect(), &request)
    }

    async fn reset(&self, body: &[u8]) -> Result<Vec<Value>, CounterCallError> {
        let request = self.request(body)?;
        let audit = |key: &str| {
            let key = format!("{}{key}", self.key_prefix);
            tracing::info!(%key, "resetting a counter through the admin port");
        };
        let reset = self.service.reset(&request, audit).await.inspect_err(|error| {
            tracing::warn!(%error, "the reset failed; whether it took effect is not known");
        })?;
        let counters = reset.into_iter().map(|(key, had_units)| {
            let key = format!("{}{key}", self.key_prefix);
            tracing::info!(%key, had_units, "counter reset through the admin port");
            json!({ "key": key, "had_units": had_units })
        });
        unless_empty(counters.collect(), &request)
    }

    fn request(&self, body: &[u8]) -> Result<Request, CounterCallError> {
        let Object(raw): Object<RawRequest> = serde_json::from_slice(body)?;
        Ok(raw.validate(&self.bounds)?)
    }

    fn counter_json(&self, status: &CounterStatus) -> Value {
        let (counter, report) = (&status.counter, &status.report);
        json!({
            "key": format!("{}{}", self.key_prefix, counter.key),
            "limit": counter.limit,
            "algorithm": counter.algorithm,
            "requests_per_unit": counter.requests_per_unit,
            "unit": counter.period.unit().name(),
            "unit_multiplier": counter.period.multiplier(),
            "max_cost": counter.capacity,
            "remaining": report.remaining,
            "retry_after_us": report.retry_after.us(),
            "reset_after_us": report.reset_after_us,
        })
    }
}

fn unless_empty(counters: Vec<Value>, request: &Request) -> Result<Vec<Value>, CounterCallError> {
    if counters.is_empty() { Err(CounterCallError::NoCounter(request.domain.clone())) } else { Ok(counters) }
}
