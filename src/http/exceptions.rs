//! The paths of live exceptions on the admin port: set, remove, list, export.

use std::net::IpAddr;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Extension, State};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use http::StatusCode;
use rules::NO_REASON;
use serde::Deserialize;
use serde_json::{Value, json};

use super::console::{not_stored, reason_of};
use super::server::ClientAddress;
use crate::live::{Author, ListRows, LiveError, LiveExceptions};

const MAX_BODY_BYTES: usize = 4 << 20;

/// Lines of the index.
pub(super) const EXCEPTIONS: &str = "\
/exceptions/set     POST {\"rows\", \"reason\"}: set exceptions while the service runs
/exceptions/remove  POST {\"rows\" or \"ids\", \"reason\"}: remove them
/exceptions/list    POST {\"domain\", \"ended\", \"after\", \"limit\"}: list them, with masked values
/exceptions/export  POST {\"reason\"}: a YAML file of exceptions.path, with their values
";

pub(super) fn exceptions_router(live: LiveExceptions) -> Router {
    Router::new()
        .route("/exceptions/set", post(set))
        .route("/exceptions/remove", post(remove))
        .route("/exceptions/list", post(list))
        .route("/exceptions/export", post(export))
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .with_state(live)
}

/// The body of each path, which reads some of the fields.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Body {
    rows: Vec<Value>,
    ids: Vec<String>,
    reason: Value,
    by: Value,
    domain: Option<String>,
    ended: bool,
    after: String,
    limit: Option<usize>,
}

impl IntoResponse for LiveError {
    fn into_response(self) -> Response {
        (live_status(&self), format!("{self}\n")).into_response()
    }
}

pub(super) fn live_status(error: &LiveError) -> StatusCode {
    match error {
        LiveError::Invalid(_) => StatusCode::BAD_REQUEST,
        LiveError::NoRow => StatusCode::NOT_FOUND,
        LiveError::Changed { .. } | LiveError::Full | LiveError::Off => StatusCode::CONFLICT,
        LiveError::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
    }
}

/// If `reason` is missing or too long, it is `None`: rows without their own are refused.
pub(super) fn author_of(reason: &Value, by: &Value, peer: IpAddr) -> Author {
    let text = |text| reason_of(text).filter(|text| !text.is_empty());
    Author { reason: text(reason), by: text(by), peer }
}

async fn set(
    State(live): State<LiveExceptions>,
    Extension(ClientAddress(peer)): Extension<ClientAddress>,
    body: Bytes,
) -> Result<Response, LiveError> {
    let Body { rows, reason, by, .. } = read(&body)?;
    let rows = live.set(rows, &author_of(&reason, &by, peer)).await?;
    Ok(answer(&json!({ "rows": rows })))
}

async fn remove(
    State(live): State<LiveExceptions>,
    Extension(ClientAddress(peer)): Extension<ClientAddress>,
    body: Bytes,
) -> Result<Response, LiveError> {
    let Body { rows, ids, reason, by, .. } = read(&body)?;
    let removed = live.remove(rows, &ids, &author_of(&reason, &by, peer)).await?;
    Ok(answer(&json!({ "removed": removed })))
}

async fn list(State(live): State<LiveExceptions>, body: Bytes) -> Result<Response, LiveError> {
    let Body { domain, ended, after, limit, .. } = read(&body)?;
    let mut shown = live.view().json();
    let (rows, has_more) = live.list(&ListRows { domain, ended, after, limit });
    (shown["rows"], shown["more"]) = (json!(rows), has_more.into());
    Ok(answer(&shown))
}

async fn export(
    State(live): State<LiveExceptions>,
    Extension(ClientAddress(peer)): Extension<ClientAddress>,
    body: Bytes,
) -> Result<Response, LiveError> {
    let Body { reason, by, .. } = read(&body)?;
    let reason = author_of(&reason, &by, peer).reason;
    let reason = reason.ok_or_else(|| LiveError::Invalid(NO_REASON.to_owned()))?;
    let (text, rows) = live.export();
    tracing::info!(rows, %peer, reason, "values of exceptions shown through the admin port");
    Ok(not_stored("application/yaml", text))
}

fn read(body: &[u8]) -> Result<Body, LiveError> {
    serde_json::from_slice(body)
        .map_err(|error| LiveError::Invalid(format!("the body is not as expected: {error}")))
}

fn answer(answer: &Value) -> Response {
    not_stored("application/json", format!("{answer:#}\n"))
}
