//! Many requests in one call of `/json`. Each is decided, charged and counted on its own, and fails alone.

use axum::response::{IntoResponse, Response};
use engine::Store;
use futures_util::{StreamExt as _, stream};
use http::{HeaderMap, header};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::{AnswerJson, parse, unread};
use crate::decide::{CallOrigin, Handler, NoDecision};
use crate::http::public::status_and_text;
use crate::telemetry::traces::{CallSpan, SpannedCall};

const MAX_REQUESTS: usize = 256;
/// Requests of a call that are decided at the same time. Bounds the memory of their plans.
const AT_ONCE: usize = 64;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Batch {
    requests: Vec<Box<RawValue>>,
}

/// `true` if the first key of the body is `requests`, which is not a field of a request.
pub(super) fn is_batch(body: &[u8]) -> bool {
    let body = body.trim_ascii_start();
    body.strip_prefix(b"{").is_some_and(|fields| fields.trim_ascii_start().starts_with(br#""requests""#))
}

/// Answers 200 with one answer per request, in their order.
///
/// # Errors
/// If the body is not a batch of 1 to [`MAX_REQUESTS`] requests.
pub(super) async fn decide<S: Store>(
    handler: &Handler<S>,
    (headers, origin): (&HeaderMap, CallOrigin),
    body: &[u8],
    span: &mut CallSpan,
) -> Result<Response, NoDecision> {
    let requests = match serde_json::from_slice(body).map_err(unread) {
        Ok(Batch { requests }) if (1..=MAX_REQUESTS).contains(&requests.len()) => requests,
        Ok(_) => return handler.refuse(NoDecision::invalid("'requests' must have 1 to 256 requests"), span),
        Err(error) => return handler.refuse(error, span),
    };
    let decided = requests.into_iter().map(|request| async move {
        let mut span = handler.tracer.start_call(SpannedCall::Post("POST /json"), headers);
        let answer = handler.decide(|| parse(request.get().as_bytes()), origin, &mut span).await;
        answer.map_or_else(|error| failure(&error), |AnswerJson(answer)| answer.into())
    });
    let responses: Vec<Value> = stream::iter(decided).buffered(AT_ONCE).collect().await;
    let body = json!({ "responses": responses }).to_string();
    Ok(([(header::CONTENT_TYPE, "application/json")], body).into_response())
}

/// The answer to the same request in a call of its own.
fn failure(error: &NoDecision) -> Value {
    let (status, text) = status_and_text(error);
    json!({ "error": text, "status": status.as_u16() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_known_by_its_first_key() {
        for (body, expected) in [
            (r#"{"requests":[]}"#, true),
            (" {\n \"requests\" : 1}", true),
            (r#"{"requests2":[]}"#, false),
            (r#"{"domain":"requests"}"#, false),
            (r#"["requests"]"#, false),
            ("", false),
        ] {
            assert_eq!(is_batch(body.as_bytes()), expected, "{body}");
        }
    }
}
