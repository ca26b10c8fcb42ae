//! `/usage`: what is used of the limits of descriptors, for an application's own pages. Reading changes nothing.

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Extension, FromRequest as _, Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use engine::Bounds;
use engine::Store;
use http::{StatusCode, header};
use serde_json::json;

use super::admin_access::{AdminRefusal, AdminRole};
use super::admin_token::AccessCheck;
use super::json::{parse, unread_body};
use super::server::ClientAddress;
use crate::decide::counters::CounterService;
use crate::decide::{CertificateRights, Failures, NoDecision, Right, Rights};
use crate::telemetry::metrics::RequestFailure;

/// Descriptors in a call.
const MOST_DESCRIPTORS: usize = 100;

/// What `/usage` needs.
#[derive(Debug)]
pub struct UsageEndpoint<S> {
    pub service: CounterService<S>,
    pub bounds: Bounds,
    pub max_message_bytes: usize,
    /// `None` if the port itself checks the caller.
    pub access: Option<AccessCheck>,
    pub rights: Rights,
    /// Counts and logs failed calls. `None` on the admin port.
    pub failures: Option<Failures>,
}

/// Returns the router of `/usage`.
pub(super) fn usage_router<S: Store + 'static>(endpoint: UsageEndpoint<S>) -> Router {
    let max_body_bytes = endpoint.max_message_bytes;
    let endpoint = Arc::new(endpoint);
    Router::new()
        .route("/usage", post(usage::<S>))
        .layer(DefaultBodyLimit::max(max_body_bytes))
        .layer(from_fn_with_state(Arc::clone(&endpoint), check_token::<S>))
        .with_state(endpoint)
}

/// Refuses a request without the token of `server.http.usage_token_file`, or without the right to read, before its body
/// is read.
async fn check_token<S: Store + 'static>(
    State(endpoint): State<Arc<UsageEndpoint<S>>>,
    Extension(ClientAddress(client)): Extension<ClientAddress>,
    Extension(certificate): Extension<CertificateRights>,
    request: Request,
    next: Next,
) -> Result<Response, AdminRefusal> {
    if let Some(access) = &endpoint.access {
        access.check_token(AdminRole::UsageReader, request.headers(), client).await?;
    }
    Ok(match endpoint.rights.of(request.headers(), certificate).check(Right::Read) {
        Ok(()) => next.run(request).await,
        Err(error) => endpoint.failed(error).into_response(),
    })
}

/// A call fails like one of `/json`, but with 503 if the store does not answer.
pub(super) struct NoAnswer(pub(super) NoDecision);

impl IntoResponse for NoAnswer {
    fn into_response(self) -> Response {
        let Self(error) = self;
        match error.failure() {
            RequestFailure::Store => {
                let headers = [(header::RETRY_AFTER, "1")];
                (StatusCode::SERVICE_UNAVAILABLE, headers, format!("{}\n", error.for_caller()))
                    .into_response()
            }
            _ => error.into_response(),
        }
    }
}

async fn usage<S: Store + 'static>(
    State(endpoint): State<Arc<UsageEndpoint<S>>>,
    request: Request,
) -> Result<Response, NoAnswer> {
    let body = Bytes::from_request(request, &()).await;
    let usage = match body.map_err(|rejection| unread_body(&rejection, endpoint.max_message_bytes)) {
        Ok(body) => endpoint.usage(&body).await,
        Err(error) => Err(error),
    };
    let usage = usage.map_err(|error| endpoint.failed(error))?;
    Ok(([(header::CONTENT_TYPE, "application/json")], usage).into_response())
}

impl<S> UsageEndpoint<S> {
    fn failed(&self, error: NoDecision) -> NoAnswer {
        NoAnswer(match &self.failures {
            Some(failures) => failures.record(error),
            None => error,
        })
    }
}

impl<S: Store> UsageEndpoint<S> {
    async fn usage(&self, body: &[u8]) -> Result<String, NoDecision> {
        let bounds = Bounds { max_descriptors: MOST_DESCRIPTORS, ..self.bounds };
        let descriptors = self.service.usage(&parse(body)?.validate(&bounds)?).await?;
        let usage: Vec<_> = descriptors.iter().map(|limits| json!({ "limits": limits })).collect();
        Ok(json!({ "usage": usage }).to_string())
    }
}
