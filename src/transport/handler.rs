//! The handler of both decision calls, `ShouldRateLimit` and `/json`: validates a request, decides it, counts the call.
//! Knows no wire format.

use super::error::{CallError, ErrorKind};
use super::{Answer, Bounds, RawDescriptor, RawRequest, ResponseOptions};
use crate::engine::{Request, Store};
use crate::limiter::Limiter;
use crate::telemetry::metrics::RequestMeter;

#[derive(Debug)]
pub struct Handler<S> {
    pub limiter: Limiter<S>,
    pub bounds: Bounds,
    pub response: ResponseOptions,
    pub meter: RequestMeter,
}

impl<S: Store> Handler<S> {
    /// Decides `sent` and converts the answer to `A`, the caller's format. Both conversions belong to the measured
    /// duration of the call.
    pub(super) async fn decide<A, D>(
        &self,
        sent: impl TryInto<RawRequest<D>, Error: Into<CallError>>,
    ) -> Result<A, CallError>
    where
        A: for<'a> From<Answer<'a>>,
        D: Into<RawDescriptor>,
    {
        let _timer = self.meter.start();
        let request = self.validate(sent).inspect_err(|error| self.record_failure(error))?;
        let decision = self.limiter.decide(&request).await.map_err(CallError::from);
        let decision = decision.inspect_err(|error| self.record_failure(error))?;
        Ok(A::from(Answer { request: &request, decision: &decision, options: &self.response }))
    }

    fn validate<D: Into<RawDescriptor>>(
        &self,
        sent: impl TryInto<RawRequest<D>, Error: Into<CallError>>,
    ) -> Result<Request, CallError> {
        let raw = sent.try_into().map_err(Into::into)?;
        Ok(raw.validate(&self.bounds)?)
    }

    fn record_failure(&self, error: &CallError) {
        match error.kind() {
            ErrorKind::InvalidRequest => self.meter.invalid(),
            ErrorKind::StoreUnavailable => self.meter.store_error(),
        }
        // At debug level: an outage of the store would flood the log.
        tracing::debug!(%error, "call failed");
    }
}
