//! `/json`: the decision call for callers without gRPC. The answer is the protobuf JSON mapping of
//! `RateLimitResponse`, which leaves out what is zero.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{StatusCode, header};
use serde_json::{Map, Value, json};

use crate::engine::{Code, Limit, Metadata, Request, Store};
use crate::limiter::Limiter;
use crate::telemetry::metrics::RequestMeter;
use crate::transport::answer::Line;
use crate::transport::error::{Blame, CallError};
use crate::transport::headers::printable;
use crate::transport::protojson::RequestJson;
use crate::transport::{Answer, Bounds, ResponseOptions};

/// Decides what arrives as JSON.
#[derive(Debug)]
pub struct Decider<S> {
    /// Decides.
    pub limiter: Limiter<S>,
    /// How large a request may be.
    pub bounds: Bounds,
    /// What answers carry.
    pub response: ResponseOptions,
    /// Counts calls.
    pub meter: RequestMeter,
}

/// 200 for OK, 429 for over the limit, 400 for a request that cannot be decided, 500 when the store has no answer.
pub(super) async fn decide<S: Store + 'static>(
    State(decider): State<Arc<Decider<S>>>,
    body: Bytes,
) -> Response {
    let _timer = decider.meter.start();
    match serde_json::from_slice::<RequestJson>(&body) {
        Ok(sent) => decider.answer(sent).await.unwrap_or_else(|error| decider.refuse(&error)),
        Err(error) => {
            decider.meter.refused();
            (StatusCode::BAD_REQUEST, format!("Bad Request: {error}\n")).into_response()
        }
    }
}

impl<S: Store> Decider<S> {
    async fn answer(&self, sent: RequestJson) -> Result<Response, CallError> {
        let request = self.bounds.admit(Request::try_from(sent)?)?;
        let decision = self.limiter.decide(&request).await?;
        let status = match decision.overall {
            Code::Ok => StatusCode::OK,
            Code::OverLimit => StatusCode::TOO_MANY_REQUESTS,
        };
        let answer = Answer { request: &request, decision: &decision, options: &self.response };
        let body = spell(&answer).to_string();
        Ok((status, [(header::CONTENT_TYPE, "application/json")], body).into_response())
    }

    fn refuse(&self, error: &CallError) -> Response {
        error.record(&self.meter);
        tracing::debug!(%error, "call failed");
        let told = error.for_caller();
        match error.blame() {
            Blame::Caller => (StatusCode::BAD_REQUEST, format!("Bad Request: {told}\n")).into_response(),
            Blame::Store => (StatusCode::INTERNAL_SERVER_ERROR, format!("{told}\n")).into_response(),
        }
    }
}

fn spell(answer: &Answer<'_>) -> Value {
    let mut fields = Map::new();
    fields.insert("overallCode".to_owned(), answer.decision.overall.name().into());
    fields.insert("statuses".to_owned(), answer.lines().map(status).collect());
    let headers = answer.headers();
    if !headers.is_empty() {
        let spelt = headers.iter().map(|header| json!({"key": header.name, "value": header.value}));
        fields.insert("responseHeadersToAdd".to_owned(), spelt.collect());
    }
    if let Some(metadata) = answer.metadata() {
        fields.insert("dynamicMetadata".to_owned(), value(metadata));
    }
    Value::Object(fields)
}

fn status(line: Line<'_>) -> Value {
    let mut fields = Map::new();
    fields.insert("code".to_owned(), line.code.name().into());
    if let Some(limit) = line.limit {
        fields.insert("currentLimit".to_owned(), current_limit(limit));
    }
    if line.remaining != 0 {
        fields.insert("limitRemaining".to_owned(), line.remaining.into());
    }
    if let Some(wait) = line.until_reset {
        fields.insert("durationUntilReset".to_owned(), duration(wait).into());
    }
    Value::Object(fields)
}

fn current_limit(limit: &Limit) -> Value {
    let (spec, period) = (&limit.spec, limit.spec.period);
    let mut fields = Map::new();
    if spec.requests_per_unit != 0 {
        fields.insert("requestsPerUnit".to_owned(), spec.requests_per_unit.into());
    }
    fields.insert("unit".to_owned(), period.unit().name().to_ascii_uppercase().into());
    if let Some(name) = &spec.name {
        fields.insert("name".to_owned(), printable(name).into());
    }
    if period.multiplier() != 1 {
        fields.insert("unitMultiplier".to_owned(), period.multiplier().into());
    }
    Value::Object(fields)
}

/// Seconds with as many decimals as are needed: none, three or six.
fn duration(wait: Duration) -> String {
    let (seconds, micros) = (wait.as_secs(), wait.subsec_micros());
    match (micros, micros % 1_000) {
        (0, _) => format!("{seconds}s"),
        (_, 0) => format!("{seconds}.{:03}s", micros / 1_000),
        _ => format!("{seconds}.{micros:06}s"),
    }
}

fn value(metadata: Metadata) -> Value {
    match metadata {
        Metadata::Null => Value::Null,
        Metadata::Bool(value) => value.into(),
        Metadata::Number(number) => whole(number).map_or_else(|| number.into(), Value::from),
        Metadata::Text(text) => text.into(),
        Metadata::List(items) => items.into_iter().map(value).collect(),
        Metadata::Map(fields) => fields.into_iter().map(|(name, field)| (name, value(field))).collect(),
    }
}

/// Numbers of a protobuf `Struct` are doubles; whole ones are written without a fraction.
fn whole(number: f64) -> Option<i64> {
    const EXACT_UP_TO: f64 = 9_007_199_254_740_992.0;
    #[expect(clippy::cast_possible_truncation, reason = "whole and within 2^53")]
    (number.fract() == 0.0 && number.abs() <= EXACT_UP_TO).then_some(number as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_no_more_decimals_than_they_need() {
        let table = [
            (0, "0s"),
            (1, "0.000001s"),
            (1_500_000, "1.500s"),
            (32_000_000, "32s"),
            (1_000_250, "1.000250s"),
        ];
        for (us, text) in table {
            assert_eq!(duration(Duration::from_micros(us)), text);
        }
    }

    #[test]
    fn whole_numbers_have_no_fraction() {
        assert_eq!(value(Metadata::Number(3.0)).to_string(), "3");
        assert_eq!(value(Metadata::Number(0.5)).to_string(), "0.5");
        assert_eq!(value(Metadata::Number(f64::NAN)), Value::Null);
    }
}
