//! The endpoints of the admin port. The application provides the endpoints that show its state; the two endpoints for
//! counters are built here.

use std::fmt;
use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use engine::{Reset, Store};
use http::header;

use super::admin_access::{AccessCheck, AdminAccess, TokenFileLines, check_access};
use super::counters::{self, CounterEndpoints};

const COUNTERS: &str = "\
/counters/show   POST a request as for /json: the state of its counters
/counters/reset  POST the same: reset its counters to unused
";

/// Answers GET with a text.
#[derive(Clone)]
pub struct Endpoint {
    /// Begins with `/`.
    pub path: &'static str,
    /// For the index at `/`.
    pub summary: &'static str,
    pub content_type: &'static str,
    /// Called for each request.
    pub render: Arc<dyn Fn() -> String + Send + Sync>,
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint").field("path", &self.path).finish_non_exhaustive()
    }
}

/// The router of the admin port, with an index of the endpoints at `/`.
pub fn admin_router<S: Store + Reset + 'static>(
    endpoints: Vec<Endpoint>,
    counters: CounterEndpoints<S>,
    access: AdminAccess,
) -> Router {
    let lines = endpoints.iter().map(|endpoint| format!("{:<16} {}\n", endpoint.path, endpoint.summary));
    let index: String = lines.chain([COUNTERS.to_owned()]).collect();
    let max_body_bytes = counters.bounds.max_message_bytes();
    let counters = Router::new()
        .route("/counters/show", post(counters::show::<S>))
        .route("/counters/reset", post(counters::reset::<S>))
        .layer(DefaultBodyLimit::max(max_body_bytes))
        .with_state(Arc::new(counters));
    let index = move || async move { index };
    let add = |router: Router, endpoint: Endpoint| {
        let path = endpoint.path;
        router.route(path, get(move || async move { endpoint.into_response() }))
    };
    let router = endpoints.into_iter().fold(counters.route("/", get(index)), add);
    let check = AccessCheck { access, lines: TokenFileLines::default() };
    router.layer(from_fn_with_state(Arc::new(check), check_access))
}

impl IntoResponse for Endpoint {
    fn into_response(self) -> Response {
        ([(header::CONTENT_TYPE, self.content_type)], (self.render)()).into_response()
    }
}
