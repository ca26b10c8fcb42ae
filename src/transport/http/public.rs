//! The pages of the HTTP port.

use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use http::{StatusCode, header};

use super::health::{healthcheck, livez, readyz};
use super::json::{self, Decider};
use crate::engine::Store;
use crate::telemetry::metrics::Metrics;
use crate::transport::Readiness;

/// What Prometheus expects of the text format.
const EXPOSITION: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What the pages show.
#[derive(Debug)]
pub struct Public<S> {
    /// Answers `/json`.
    pub decider: Decider<S>,
    /// Shown by the health pages.
    pub readiness: Readiness,
    /// Shown by `/metrics`.
    pub metrics: Metrics,
}

/// The router of the HTTP port.
pub fn public<S: Store + 'static>(pages: Public<S>) -> Router {
    let max_body_bytes = pages.decider.bounds.max_message_bytes();
    let deciding = Router::new()
        .route("/json", post(json::decide::<S>))
        .layer(DefaultBodyLimit::max(max_body_bytes))
        .with_state(Arc::new(pages.decider));
    let health = Router::new()
        .route("/healthcheck", get(healthcheck))
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .with_state(pages.readiness);
    let metrics = Router::new().route("/metrics", get(exposition)).with_state(pages.metrics);
    deciding.merge(health).merge(metrics)
}

async fn exposition(State(metrics): State<Metrics>) -> Response {
    match metrics.render() {
        Ok(text) => ([(header::CONTENT_TYPE, EXPOSITION)], text).into_response(),
        Err(error) => {
            tracing::error!(%error, "the metrics cannot be written");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}
