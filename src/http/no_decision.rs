//! The status of HTTP of each reason why a call gets no decision.

use axum::response::{IntoResponse, Response};
use http::StatusCode;

use crate::decide::NoDecision;
use crate::telemetry::metrics::RequestFailure;

impl IntoResponse for NoDecision {
    fn into_response(self) -> Response {
        let reason = self.for_caller();
        let status = match (&self, self.failure()) {
            (Self::TooLong(_), _) => StatusCode::PAYLOAD_TOO_LARGE,
            (_, RequestFailure::Invalid) => {
                return (StatusCode::BAD_REQUEST, format!("Bad Request: {reason}\n")).into_response();
            }
            (_, RequestFailure::Incomplete | RequestFailure::Deadline | RequestFailure::Untaken) => {
                StatusCode::REQUEST_TIMEOUT
            }
            (_, RequestFailure::Overloaded | RequestFailure::NoRules) => StatusCode::SERVICE_UNAVAILABLE,
            (_, RequestFailure::Store | RequestFailure::Panic) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        (status, format!("{reason}\n")).into_response()
    }
}
