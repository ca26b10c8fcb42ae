//! Serves the HTTP port, and the port for metrics only: `/json`, `/holds`, `/usage`, `/check`, metrics, `/livez`,
//! `/readyz`, and the `/healthcheck` of envoyproxy/ratelimit.

use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use engine::Store;
use http::{HeaderValue, StatusCode, header};

use super::check::{CheckOptions, Checks, check};
use super::usage::{UsageEndpoint, usage_router};
use super::{forwarded, holds, json};
use crate::decide::{Handler, NoDecision, Readiness};
use crate::net::sending_page::{NO_PAGES, SendingPage};
use crate::telemetry::metrics::{Metrics, RequestFailure};

const NO_WEB_PAGES: &str = "does not answer web pages (Origin or Sec-Fetch-Site header)\n";
/// Prometheus text format.
const METRICS_CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Returns the HTTP port's router; without `check_options` there is no `/check`.
pub fn public_router<S: Store + 'static, C: Store + 'static>(
    handler: Handler<S>,
    usage: UsageEndpoint<C>,
    check_options: Option<CheckOptions>,
    readiness: Readiness,
    metrics: Metrics,
) -> Router {
    let max_body_bytes = handler.max_message_bytes;
    let handler = Arc::new(handler);
    let decisions = Router::new()
        .route("/json", post(json::decide::<S>))
        .route("/holds", post(holds::reserve::<S>))
        .route("/holds/commit", post(holds::commit::<S>))
        .route("/holds/renew", post(holds::renew::<S>))
        .layer(DefaultBodyLimit::max(max_body_bytes))
        .with_state(Arc::clone(&handler))
        .merge(usage_router(usage))
        .layer(from_fn_with_state(Arc::clone(&handler), refuse_web_pages::<S>));
    let checks = check_options.map_or_else(Router::new, |options| check_router(handler, options));
    let health = Router::new()
        // As in envoyproxy/ratelimit: load balancers may POST.
        .route("/healthcheck", any(healthcheck))
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .with_state(readiness);
    decisions.merge(checks).merge(health).merge(metrics_router("/metrics", metrics)).fallback(not_found)
}

/// A proxy can append its client's path to `/check`.
fn check_router<S: Store + 'static>(handler: Arc<Handler<S>>, options: CheckOptions) -> Router {
    let below = [forwarded::PATH, "/check/", "/check/{*path}"];
    let router = below.into_iter().fold(Router::new(), |router, path| router.route(path, any(check::<S>)));
    router.with_state(Arc::new(Checks::new(handler, options)))
}

/// Returns a router with only the metrics, at `path`.
pub fn metrics_router(path: &str, metrics: Metrics) -> Router {
    Router::new().route(path, get(render_metrics)).with_state(metrics)
}

/// Body for an unknown path, with status 404, as in envoyproxy/ratelimit.
pub const PAGE_NOT_FOUND: &str = "404 page not found\n";

async fn not_found() -> (StatusCode, &'static str) {
    (StatusCode::NOT_FOUND, PAGE_NOT_FOUND)
}

async fn render_metrics(State(metrics): State<Metrics>) -> Response {
    match metrics.render() {
        Ok(text) => ([(header::CONTENT_TYPE, METRICS_CONTENT_TYPE)], text).into_response(),
        Err(error) => {
            tracing::error!(%error, "cannot render the metrics");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

/// The layer around `/json`, `/holds` and `/usage` that refuses web pages, also pages of this host: the service has
/// none, and after DNS rebinding a foreign page has the request's host as its origin.
async fn refuse_web_pages<S: Store + 'static>(
    State(handler): State<Arc<Handler<S>>>,
    request: Request,
    next: Next,
) -> Response {
    match SendingPage::of_request(request.headers(), None) {
        SendingPage::None => next.run(request).await,
        SendingPage::Own | SendingPage::Foreign => {
            handler.failures.record(NoDecision::invalid(NO_PAGES));
            (StatusCode::FORBIDDEN, format!("{} {NO_WEB_PAGES}", request.uri().path())).into_response()
        }
    }
}

/// Answers 200 whenever the process runs, ready or not.
async fn livez() -> &'static str {
    "ok\n"
}

/// Answers 200, or 503 with every reason not to send traffic.
async fn readyz(State(readiness): State<Readiness>) -> Response {
    if readiness.is_ready() {
        return "ready\n".into_response();
    }
    (StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {}\n", readiness.describe())).into_response()
}

/// Status and body as in envoyproxy/ratelimit.
async fn healthcheck(State(readiness): State<Readiness>) -> Response {
    if readiness.is_ready() {
        "OK".into_response()
    } else {
        StatusCode::INTERNAL_SERVER_ERROR.into_response()
    }
}

impl IntoResponse for NoDecision {
    fn into_response(self) -> Response {
        let (status, text) = status_and_text(&self);
        refusal(status, &text)
    }
}

/// A text. RFC 9110 requires that 401 names the scheme of the token.
pub(super) fn refusal(status: StatusCode, text: &str) -> Response {
    let mut response = (status, format!("{text}\n")).into_response();
    if status == StatusCode::UNAUTHORIZED {
        response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

/// The HTTP status of each failed call, and its text.
pub(super) fn status_and_text(error: &NoDecision) -> (StatusCode, String) {
    let reason = error.for_caller();
    let status = match (error, error.failure()) {
        (NoDecision::TooLong(_), _) => StatusCode::PAYLOAD_TOO_LARGE,
        (_, RequestFailure::Invalid) => {
            return (StatusCode::BAD_REQUEST, format!("Bad Request: {reason}"));
        }
        (_, RequestFailure::Incomplete | RequestFailure::Deadline | RequestFailure::Untaken) => {
            StatusCode::REQUEST_TIMEOUT
        }
        (_, RequestFailure::Overloaded | RequestFailure::NoRules) => StatusCode::SERVICE_UNAVAILABLE,
        (_, RequestFailure::Unauthenticated) => StatusCode::UNAUTHORIZED,
        (_, RequestFailure::Forbidden) => StatusCode::FORBIDDEN,
        (_, RequestFailure::Store | RequestFailure::Panic) => StatusCode::INTERNAL_SERVER_ERROR,
    };
    (status, reason)
}
