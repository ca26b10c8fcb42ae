//! The endpoints of the HTTP port, and of the port for metrics alone.

use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, State};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use engine::Store;
use http::{StatusCode, header};

use super::health::{healthcheck, livez, readyz};
use super::json;
use super::web_page::refuse_web_pages;
use crate::decide::{Handler, Readiness};
use crate::telemetry::metrics::Metrics;

/// The content type of the Prometheus text format.
const METRICS_CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The router of the HTTP port.
pub fn public_router<S: Store + 'static>(
    handler: Handler<S>,
    readiness: Readiness,
    metrics: Metrics,
) -> Router {
    let max_body_bytes = handler.bounds.max_message_bytes();
    let handler = Arc::new(handler);
    let decisions = Router::new()
        .route("/json", post(json::decide::<S>))
        .layer(DefaultBodyLimit::max(max_body_bytes))
        .layer(from_fn_with_state(Arc::clone(&handler), refuse_web_pages::<S>))
        .with_state(handler);
    let health = Router::new()
        // As envoyproxy/ratelimit: load balancers may POST.
        .route("/healthcheck", any(healthcheck))
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .with_state(readiness);
    decisions.merge(health).merge(metrics_router("/metrics", metrics)).fallback(not_found)
}

/// A router that has the metrics only, at `path`.
pub fn metrics_router(path: &str, metrics: Metrics) -> Router {
    Router::new().route(path, get(render_metrics)).with_state(metrics)
}

/// The answer to an unknown path, with status 404: that of envoyproxy/ratelimit.
pub const PAGE_NOT_FOUND: &str = "404 page not found\n";

async fn not_found() -> (StatusCode, &'static str) {
    (StatusCode::NOT_FOUND, PAGE_NOT_FOUND)
}

async fn render_metrics(State(metrics): State<Metrics>) -> Response {
    match metrics.render() {
        Ok(text) => ([(header::CONTENT_TYPE, METRICS_CONTENT_TYPE)], text).into_response(),
        Err(error) => {
            tracing::error!(%error, "the metrics cannot be rendered");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}
