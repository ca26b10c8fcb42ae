//! The handler of both decision calls, `ShouldRateLimit` and `/json`: validates a request, decides it, counts the call.
//! Knows no wire format.

use engine::wire::{Bounds, RawRequest};
use engine::{Caller, Request, Store};

use super::{
    CallerAnswer, DecisionAnswer, DecisionCallError, ErrorKind, Failures, OnInvalid, ResponseOptions,
};
use crate::decide::limiter::Limiter;
use crate::telemetry::metrics::RequestMeter;
use crate::telemetry::traces::{CallSpan, Tracer};

#[derive(Debug)]
pub struct Handler<S> {
    pub limiter: Limiter<S>,
    pub bounds: Bounds,
    pub response: ResponseOptions,
    pub meter: RequestMeter,
    pub tracer: Tracer,
    pub failures: Failures,
    pub on_invalid: OnInvalid,
}

impl<S: Store> Handler<S> {
    /// Decides the request in `message` and converts the answer to `A`, the caller's format. The measured duration of
    /// the call includes both conversions. `span` gets what is asked and decided.
    pub(crate) async fn decide<A>(
        &self,
        message: impl TryInto<RawRequest, Error: Into<DecisionCallError>>,
        caller: Caller,
        span: &mut CallSpan,
    ) -> Result<A, DecisionCallError>
    where
        A: CallerAnswer,
    {
        let _timer = self.meter.start();
        let request = match self.validate(message, caller) {
            Ok(request) => request,
            Err(error) => return self.refuse(error, span),
        };
        span.add_request(&request.domain, request.descriptors.len());
        match self.limiter.decide(&request).await {
            Ok(decision) => {
                span.add_decision(&decision);
                Ok(A::from(DecisionAnswer {
                    request: &request,
                    decision: &decision,
                    options: &self.response,
                }))
            }
            Err(error) => self.refuse(error.into(), span),
        }
    }

    /// Counts and logs a request without a decision.
    pub(crate) fn record(&self, error: DecisionCallError) -> DecisionCallError {
        self.failures.record(error.kind().failure(), &error);
        error
    }

    /// Counts and logs a request without a decision. If the settings say so, the answer to an invalid one is a denial.
    pub(crate) fn refuse<A: CallerAnswer>(
        &self,
        error: DecisionCallError,
        span: &mut CallSpan,
    ) -> Result<A, DecisionCallError> {
        let error = self.record(error);
        span.add_failure(error.kind().failure());
        match (error.kind(), self.on_invalid) {
            (ErrorKind::InvalidRequest, OnInvalid::Deny) => Ok(A::denial()),
            _ => Err(error),
        }
    }

    fn validate(
        &self,
        message: impl TryInto<RawRequest, Error: Into<DecisionCallError>>,
        caller: Caller,
    ) -> Result<Request, DecisionCallError> {
        let raw = message.try_into().map_err(Into::into)?;
        Ok(Request { caller, ..raw.validate(&self.bounds)? })
    }
}
