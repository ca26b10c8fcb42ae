//! `/livez`, `/readyz` and the reference service's `/healthcheck`.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;

use crate::transport::{Obstacle, Readiness};

/// The process answers, whatever it says.
pub(super) async fn livez() -> &'static str {
    "ok\n"
}

/// Whether traffic should come here, and every reason why not.
pub(super) async fn readyz(State(readiness): State<Readiness>) -> Response {
    let obstacles = readiness.obstacles();
    if obstacles.is_empty() {
        return "ready\n".into_response();
    }
    let reasons: Vec<_> = obstacles.iter().map(Obstacle::reason).collect();
    (StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {}\n", reasons.join(", "))).into_response()
}

/// As the reference service answers it.
pub(super) async fn healthcheck(State(readiness): State<Readiness>) -> Response {
    if readiness.obstacles().is_empty() {
        "OK".into_response()
    } else {
        StatusCode::INTERNAL_SERVER_ERROR.into_response()
    }
}
