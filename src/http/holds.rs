//! `/holds` and `/holds/commit`: an application reserves an estimate, and commits the real cost once it is known. The
//! requests and answers are those of `/json`, with the id of the hold.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{FromRequest as _, Request, State};
use axum::response::{IntoResponse, Response};
use engine::wire::json::{Object, objects, text};
use engine::wire::{RawDescriptor, RawRequest};
use engine::{LONGEST_HOLD, Store};
use http::{StatusCode, header};
use rules::utc_text;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::json::{AnswerJson, origin, unread, unread_body};
use super::usage::NoAnswer;
use crate::decide::{CallOrigin, Handler, NoDecision};
use crate::telemetry::metrics::CommitResult;
use crate::telemetry::traces::{CallSpan, SpannedCall};

pub(super) const RESERVE: &str = "/holds";
pub(super) const COMMIT: &str = "/holds/commit";

const USUAL_TTL: Duration = Duration::from_secs(3_600);

const BAD_TTL: NoDecision = NoDecision::invalid("'ttl' must be a duration from 1s to 24h, such as 30m");
const WITH_ID: NoDecision = NoDecision::invalid("'id' belongs to /holds/commit");
const WITH_TTL: NoDecision = NoDecision::invalid("'ttl' belongs to /holds");
const NO_ID: NoDecision = NoDecision::invalid("a commit needs the 'id' of its hold");

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct HoldJson {
    #[serde(deserialize_with = "text")]
    domain: String,
    #[serde(deserialize_with = "objects")]
    descriptors: Vec<RawDescriptor>,
    ttl: Option<String>,
    id: Option<String>,
}

impl HoldJson {
    fn request(self) -> RawRequest {
        RawRequest { domain: self.domain, descriptors: self.descriptors, hits_addend: 0 }
    }
}

/// Answers 200 with the id of the hold, 429 over the limit, 503 if the store does not answer, and otherwise as `/json`.
pub(super) async fn reserve<S: Store + 'static>(
    State(handler): State<Arc<Handler<S>>>,
    request: Request,
) -> Result<Response, NoAnswer> {
    let (origin, mut span, body) = opened(&handler, RESERVE, request).await;
    let read = || {
        let hold = body.and_then(|body| parse(&body))?;
        if hold.id.is_some() {
            return Err(WITH_ID);
        }
        let ttl = hold.ttl.as_deref().map_or(Ok(USUAL_TTL), humantime::parse_duration);
        let ttl = ttl.ok().filter(|ttl| (Duration::from_secs(1)..=LONGEST_HOLD).contains(ttl));
        Ok((hold.request(), ttl.ok_or(BAD_TTL)?))
    };
    let (AnswerJson(mut fields), hold) = handler.reserve(read, origin, &mut span).await.map_err(NoAnswer)?;
    let status = if hold.is_some() { StatusCode::OK } else { StatusCode::TOO_MANY_REQUESTS };
    if let Some(hold) = hold {
        fields.insert("id".to_owned(), hold.to_string().into());
        fields.insert("expires".to_owned(), utc_text(hold.end_us()).into());
    }
    Ok(answered(status, fields))
}

/// Answers 200 with the result, 503 if the store does not answer, and otherwise as `/json`.
pub(super) async fn commit<S: Store + 'static>(
    State(handler): State<Arc<Handler<S>>>,
    request: Request,
) -> Result<Response, NoAnswer> {
    let (origin, mut span, body) = opened(&handler, COMMIT, request).await;
    let read = || {
        let mut hold = body.and_then(|body| parse(&body))?;
        if hold.ttl.is_some() {
            return Err(WITH_TTL);
        }
        let id = hold.id.take().ok_or(NO_ID)?;
        Ok((hold.request(), Some(id)))
    };
    let (result, answer) = handler.commit(read, origin, &mut span).await.map_err(NoAnswer)?;
    let mut fields = answer.map(|AnswerJson(fields)| fields).unwrap_or_default();
    fields.insert("result".to_owned(), result.name().into());
    let is_lost = result == CommitResult::Lost;
    Ok(answered(if is_lost { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK }, fields))
}

/// Reads a call of this path: its caller, span and body.
async fn opened<S: Store>(
    handler: &Handler<S>,
    path: &'static str,
    request: Request,
) -> (CallOrigin, CallSpan, Result<Bytes, NoDecision>) {
    let span = handler.tracer.start_call(SpannedCall::Hold(path), request.headers());
    let origin = origin(handler, &request);
    let body = Bytes::from_request(request, &()).await;
    (origin, span, body.map_err(|rejection| unread_body(&rejection, handler.max_message_bytes)))
}

fn parse(body: &[u8]) -> Result<HoldJson, NoDecision> {
    let Object(hold) = serde_json::from_slice(body).map_err(unread)?;
    Ok(hold)
}

fn answered(status: StatusCode, fields: Map<String, Value>) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], Value::Object(fields).to_string()).into_response()
}
