//! `/holds`: an application reserves an estimate, and commits the real cost when it is known. Requests and answers are
//! as for `/json`, with the hold's id.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{FromRequest as _, Request, State};
use axum::response::{IntoResponse, Response};
use engine::wire::json::{Object, objects, text};
use engine::{LONGEST_HOLD, RawDescriptor, RawRequest, Store};
use http::{StatusCode, header};
use rules::utc_text;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::json::{AnswerJson, origin, unread, unread_body};
use super::usage::NoAnswer;
use crate::decide::holds::{self, Committed};
use crate::decide::{CallOrigin, Handler, NoDecision};
use crate::telemetry::traces::{CallSpan, SpannedCall};

const USUAL_TTL: &str = "1h";

const BAD_TTL: NoDecision = NoDecision::invalid("'ttl' must be a duration from 1s to 24h, such as 30m");
const BAD_ID: NoDecision =
    NoDecision::invalid("/holds/commit and /holds/renew need the 'id' of a hold, and /holds makes it");

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HoldJson {
    #[serde(default, deserialize_with = "text")]
    domain: String,
    #[serde(default, deserialize_with = "objects")]
    descriptors: Vec<RawDescriptor>,
    ttl: Option<String>,
    id: Option<String>,
}

/// Request, `ttl` and `id`; caller; span.
type Opened = (Result<(RawRequest, Option<String>, Option<String>), NoDecision>, CallOrigin, CallSpan);

async fn opened<S: Store>(handler: &Handler<S>, call: &'static str, request: Request) -> Opened {
    let span = handler.tracer.start_call(SpannedCall::Post(call), request.headers());
    let origin = origin(handler, &request);
    let body = Bytes::from_request(request, &()).await;
    let read =
        body.map_err(|rejection| unread_body(&rejection, handler.max_message_bytes)).and_then(|body| {
            let Object(HoldJson { domain, descriptors, ttl, id }) =
                serde_json::from_slice(&body).map_err(unread)?;
            Ok((RawRequest { domain, descriptors, hits_addend: 0 }, ttl, id))
        });
    (read, origin, span)
}

/// Answers 200 with an id, 429 over the limit, 503 if the store does not answer, and otherwise as `/json`.
pub(super) async fn reserve<S: Store + 'static>(
    State(handler): State<Arc<Handler<S>>>,
    request: Request,
) -> Result<Response, NoAnswer> {
    let (read, origin, mut span) = opened(&handler, "POST /holds", request).await;
    let read = read.and_then(|(request, ttl, id)| {
        let ttl = humantime::parse_duration(ttl.as_deref().unwrap_or(USUAL_TTL)).ok();
        let ttl = ttl.filter(|ttl| (Duration::from_secs(1)..=LONGEST_HOLD).contains(ttl)).ok_or(BAD_TTL)?;
        if id.is_none() { Ok((request, ttl)) } else { Err(BAD_ID) }
    });
    let (AnswerJson(mut fields), hold) =
        holds::reserve(&handler, read, origin, &mut span).await.map_err(NoAnswer)?;
    let Some(hold) = hold else { return Ok(answered(StatusCode::TOO_MANY_REQUESTS, fields)) };
    fields.insert("id".to_owned(), hold.to_string().into());
    fields.insert("expires".to_owned(), utc_text(hold.end_us()).into());
    Ok(answered(StatusCode::OK, fields))
}

/// Answers 200 with the result, 503 if the store does not answer, and otherwise as `/json`.
pub(super) async fn commit<S: Store + 'static>(
    State(handler): State<Arc<Handler<S>>>,
    request: Request,
) -> Result<Response, NoAnswer> {
    let (read, origin, mut span) = opened(&handler, "POST /holds/commit", request).await;
    let read = read.and_then(|(request, _, id)| Ok((request, Some(id.ok_or(BAD_ID)?))));
    let committed = holds::commit(&handler, read, origin, &mut span).await.map_err(NoAnswer)?;
    let name: &str = (&committed).into();
    let (status, mut fields) = match committed {
        Committed::Settled(AnswerJson(fields)) => (StatusCode::OK, fields),
        Committed::Lost => (StatusCode::SERVICE_UNAVAILABLE, Map::new()),
        Committed::Already | Committed::Expired => (StatusCode::OK, Map::new()),
    };
    fields.insert("result".to_owned(), name.into());
    Ok(answered(status, fields))
}

/// Renews the slots. Answers as `/json`: 429 if one ended before and no other is free.
pub(super) async fn renew<S: Store + 'static>(
    State(handler): State<Arc<Handler<S>>>,
    request: Request,
) -> Result<Response, NoDecision> {
    let (read, origin, mut span) = opened(&handler, "POST /holds/renew", request).await;
    let read = read.and_then(|(request, _, id)| Ok((request, id.ok_or(BAD_ID)?)));
    holds::renew(&handler, read, origin, &mut span).await
}

fn answered(status: StatusCode, fields: Map<String, Value>) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], Value::Object(fields).to_string()).into_response()
}
