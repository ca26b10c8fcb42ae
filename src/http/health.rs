//! `/livez`, `/readyz`, and `/healthcheck` of envoyproxy/ratelimit.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;

use crate::decide::Readiness;

/// 200 from every process that runs, ready or not.
pub(super) async fn livez() -> &'static str {
    "ok\n"
}

/// 200, or 503 with every reason not to send traffic here.
pub(super) async fn readyz(State(readiness): State<Readiness>) -> Response {
    let reasons = readiness.reasons();
    if reasons.is_empty() {
        return "ready\n".into_response();
    }
    (StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {}\n", readiness.describe())).into_response()
}

/// Status and body as envoyproxy/ratelimit sends them.
pub(super) async fn healthcheck(State(readiness): State<Readiness>) -> Response {
    if readiness.reasons().is_empty() {
        "OK".into_response()
    } else {
        StatusCode::INTERNAL_SERVER_ERROR.into_response()
    }
}
