//! Refuses web pages on `/json`.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use engine::Store;
use http::StatusCode;

use crate::decide::Handler;
pub(crate) use crate::net::sending_page::SendingPage;
use crate::telemetry::metrics::RequestFailure;

const NO_WEB_PAGES: &str = "/json does not answer web pages (Origin or Sec-Fetch-Site header)\n";

/// The layer around `/json`. It refuses pages of the own host too: the service has none, and after DNS rebinding a
/// foreign page has the host of the request as its origin.
pub(super) async fn refuse_web_pages<S: Store + 'static>(
    State(handler): State<Arc<Handler<S>>>,
    request: Request,
    next: Next,
) -> Response {
    match SendingPage::of_request(request.headers(), None) {
        SendingPage::None => next.run(request).await,
        SendingPage::Own | SendingPage::Foreign => {
            handler.failures.record(RequestFailure::Invalid, &NO_WEB_PAGES.trim_end());
            (StatusCode::FORBIDDEN, NO_WEB_PAGES).into_response()
        }
    }
}
