//! `/json`: the decision call for callers without gRPC. The answer is the protobuf JSON mapping of `RateLimitResponse`,
//! without zeros. One call can contain many requests ([`batch`]).

mod batch;

use std::error::Error;
use std::iter::successors;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{FromRequest as _, Request, State};
use axum::response::{IntoResponse, Response};
use engine::wire::json::{Object, whole_number};
use engine::{Code, Limit, Metadata, RawRequest, Store, WireUnit};
use http::{StatusCode, header};
use serde_json::{Map, Value, json};

use crate::decide::answer::{DescriptorStatus, printable, protocol_units};
use crate::decide::{Answer, CallOrigin, CertificateRights, Handler, NoDecision};
use crate::telemetry::traces::SpannedCall;

/// Answers 200 for OK, 429 over the limit, 400 for an invalid request, 413 for a body that is too long, 408 for one
/// that does not arrive, 503 for too many of these, 500 if the store does not answer.
pub(super) async fn decide<S: Store + 'static>(
    State(handler): State<Arc<Handler<S>>>,
    request: Request,
) -> Result<Response, NoDecision> {
    let mut span = handler.tracer.start_call(SpannedCall::Post("POST /json"), request.headers());
    let headers = handler.tracer.headers_for_spans(request.headers());
    let origin = origin(&handler, &request);
    match Bytes::from_request(request, &()).await {
        Ok(body) if batch::is_batch(&body) => {
            batch::decide(&handler, (&headers, origin), &body, &mut span).await
        }
        Ok(body) => handler.decide(|| parse(&body), origin, &mut span).await,
        Err(rejection) => handler.refuse(unread_body(&rejection, handler.max_message_bytes), &mut span),
    }
}

/// Reads who sends a request.
pub(super) fn origin<S>(handler: &Handler<S>, request: &Request) -> CallOrigin {
    let certificate: CertificateRights = request.extensions().get().copied().unwrap_or_default();
    CallOrigin { rights: handler.rights.of(request.headers(), certificate), ..CallOrigin::default() }
}

pub(super) fn unread_body(rejection: &BytesRejection, max: usize) -> NoDecision {
    if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE {
        return NoDecision::TooLong(format!("the body has more than the {max} bytes allowed").into());
    }
    let causes = successors(Some(rejection as &dyn Error), |&error| error.source());
    let mut errors = causes.filter_map(|error| error.downcast_ref::<NoDecision>());
    errors.next().cloned().unwrap_or(NoDecision::ABORTED)
}

/// Reads a request in the protobuf JSON mapping.
pub(super) fn parse(body: &[u8]) -> Result<RawRequest, NoDecision> {
    let Object(request) = serde_json::from_slice(body).map_err(unread)?;
    Ok(request)
}

pub(super) fn unread(error: serde_json::Error) -> NoDecision {
    NoDecision::Quoting { text: "the body is not a request in JSON", cause: error.to_string().into() }
}

impl From<Answer<'_>> for Response {
    fn from(answer: Answer<'_>) -> Self {
        let status = match answer.overall {
            Code::Ok => StatusCode::OK,
            Code::OverLimit => StatusCode::TOO_MANY_REQUESTS,
        };
        let AnswerJson(fields) = answer.into();
        let body = Value::Object(fields).to_string();
        (status, [(header::CONTENT_TYPE, "application/json")], body).into_response()
    }
}

/// The fields of an answer.
pub(super) struct AnswerJson(pub(super) Map<String, Value>);

impl From<Answer<'_>> for AnswerJson {
    fn from(answer: Answer<'_>) -> Self {
        let mut fields = Map::new();
        fields.insert("overallCode".to_owned(), answer.overall.into_str().into());
        if !answer.statuses.is_empty() {
            fields.insert("statuses".to_owned(), answer.statuses.into_iter().map(status_json).collect());
        }
        let added =
            [("responseHeadersToAdd", &answer.headers), ("requestHeadersToAdd", &answer.request_headers)];
        for (name, headers) in added.into_iter().filter(|(_, headers)| !headers.is_empty()) {
            let headers = headers.iter().map(|header| json!({"key": header.name, "value": header.value}));
            fields.insert(name.to_owned(), headers.collect());
        }
        if let Some(metadata) = answer.metadata {
            fields.insert("dynamicMetadata".to_owned(), metadata_json(metadata));
        }
        Self(fields)
    }
}

fn status_json(status: DescriptorStatus<'_>) -> Value {
    let mut fields = Map::new();
    fields.insert("code".to_owned(), status.code.into_str().into());
    if let Some(limit) = status.limit {
        fields.insert("currentLimit".to_owned(), limit_json(limit));
    }
    if status.remaining != 0 {
        fields.insert("limitRemaining".to_owned(), protocol_units(status.remaining).into());
    }
    if let Some(wait) = status.until_reset {
        fields.insert("durationUntilReset".to_owned(), format!("{}s", wait.as_secs()).into());
    }
    Value::Object(fields)
}

fn limit_json(limit: &Limit) -> Value {
    let (spec, period) = (&limit.spec, limit.spec.period);
    let mut fields = Map::new();
    if spec.requests_per_unit != 0 {
        fields.insert("requestsPerUnit".to_owned(), protocol_units(spec.requests_per_unit).into());
    }
    fields.insert("unit".to_owned(), WireUnit::from(period.unit()).name.into());
    if let Some(name) = &spec.name {
        fields.insert("name".to_owned(), printable(name).into());
    }
    if period.multiplier() != 1 {
        fields.insert("unitMultiplier".to_owned(), period.multiplier().into());
    }
    Value::Object(fields)
}

fn metadata_json(metadata: Metadata) -> Value {
    match metadata {
        Metadata::Null => Value::Null,
        Metadata::Bool(value) => value.into(),
        Metadata::Number(number) => whole_number(number).map_or_else(|| number.into(), Value::from),
        Metadata::Text(text) => text.into(),
        Metadata::List(items) => items.into_iter().map(metadata_json).collect(),
        Metadata::Map(fields) => {
            fields.into_iter().map(|(name, field)| (name, metadata_json(field))).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::metrics::RequestFailure;

    #[test]
    fn the_log_does_not_quote_a_malformed_body() {
        let error = parse(br#""secret""#).expect_err("a text is no request");
        assert!(error.for_caller().contains("secret"), "{}", error.for_caller());
        assert_eq!(error.to_string(), "the body is not a request in JSON");
        assert_eq!(error.failure(), RequestFailure::Invalid);
    }

    #[test]
    fn whole_numbers_have_no_fraction() {
        assert_eq!(metadata_json(Metadata::Number(3.0)).to_string(), "3");
        assert_eq!(metadata_json(Metadata::Number(0.5)).to_string(), "0.5");
        assert_eq!(metadata_json(Metadata::Number(f64::NAN)), Value::Null);
    }
}
