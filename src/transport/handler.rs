//! The handler of both decision calls, `ShouldRateLimit` and `/json`: validates a request, decides it, counts the call.
//! Knows no wire format.

use super::error::{DecisionCallError, ErrorKind};
use super::{Bounds, DecisionAnswer, RawDescriptor, RawRequest, ResponseOptions};
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
    /// Decides the request in `message` and converts the answer to `A`, the caller's format. The measured duration of
    /// the call includes both conversions.
    pub(super) async fn decide<A, D>(
        &self,
        message: impl TryInto<RawRequest<D>, Error: Into<DecisionCallError>>,
    ) -> Result<A, DecisionCallError>
    where
        A: for<'a> From<DecisionAnswer<'a>>,
        D: Into<RawDescriptor>,
    {
        let _timer = self.meter.start();
        let request = self.validate(message).inspect_err(|error| self.record_failure(error))?;
        let decision = self.limiter.decide(&request).await.map_err(DecisionCallError::from);
        let decision = decision.inspect_err(|error| self.record_failure(error))?;
        Ok(A::from(DecisionAnswer { request: &request, decision: &decision, options: &self.response }))
    }

    fn validate<D: Into<RawDescriptor>>(
        &self,
        message: impl TryInto<RawRequest<D>, Error: Into<DecisionCallError>>,
    ) -> Result<Request, DecisionCallError> {
        let raw = message.try_into().map_err(Into::into)?;
        Ok(raw.validate(&self.bounds)?)
    }

    fn record_failure(&self, error: &DecisionCallError) {
        match error.kind() {
            ErrorKind::InvalidRequest => self.meter.invalid(),
            ErrorKind::StoreUnavailable => self.meter.store_error(),
        }
        // At debug level: an outage of the store would flood the log.
        tracing::debug!(%error, "call failed");
    }
}
