//! The admin port: what operators look at. Only what the application puts here is known here.

use std::fmt;
use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use http::header;

use super::counters::{self, Counters};
use crate::engine::{Reset, Store};

const COUNTERS: &str = "\
/counters/show   POST a request as for /json: where its counters stand
/counters/reset  POST the same: make them as if never used
";

/// One page.
#[derive(Clone)]
pub struct Page {
    /// Where it is, `/` first.
    pub path: &'static str,
    /// What it shows, for the list of pages.
    pub about: &'static str,
    /// Its media type.
    pub content_type: &'static str,
    /// Makes it, each time it is asked for.
    pub render: Arc<dyn Fn() -> String + Send + Sync>,
}

impl fmt::Debug for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Page").field("path", &self.path).finish_non_exhaustive()
    }
}

/// All of them.
#[derive(Clone, Debug, Default)]
pub struct Admin(pub Vec<Page>);

/// The router of the admin port, with a list of the pages at `/`.
pub fn admin<S: Store + Reset + 'static>(pages: Admin, counters: Counters<S>) -> Router {
    let mut lines: String =
        pages.0.iter().map(|page| format!("{:<16} {}\n", page.path, page.about)).collect();
    lines.push_str(COUNTERS);
    let max_body_bytes = counters.bounds.max_message_bytes();
    let counters = Router::new()
        .route("/counters/show", post(counters::show::<S>))
        .route("/counters/reset", post(counters::reset::<S>))
        .layer(DefaultBodyLimit::max(max_body_bytes))
        .with_state(Arc::new(counters));
    let index = move || async move { lines };
    let show = |router: Router, page: Page| {
        let path = page.path;
        router.route(path, get(move || async move { page.into_response() }))
    };
    pages.0.into_iter().fold(counters.route("/", get(index)), show)
}

impl IntoResponse for Page {
    fn into_response(self) -> Response {
        ([(header::CONTENT_TYPE, self.content_type)], (self.render)()).into_response()
    }
}
