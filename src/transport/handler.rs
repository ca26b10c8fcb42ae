//! The handler of both decision calls, `ShouldRateLimit` and `/json`: validates a request, decides it, counts the call.
//! Knows no wire format.

use super::error::{CallError, ErrorKind};
use super::{Answer, Bounds, RawDescriptor, RawRequest, ResponseOptions};
use crate::engine::Store;
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
        self.try_decide(sent).await.inspect_err(|error| {
            match error.kind() {
                ErrorKind::InvalidRequest => self.meter.invalid(),
                ErrorKind::StoreUnavailable => self.meter.store_error(),
            }
            // At debug level: an outage of the store would flood the log.
            tracing::debug!(%error, "call failed");
        })
    }

    async fn try_decide<A, D>(
        &self,
        sent: impl TryInto<RawRequest<D>, Error: Into<CallError>>,
    ) -> Result<A, CallError>
    where
        A: for<'a> From<Answer<'a>>,
        D: Into<RawDescriptor>,
    {
        let raw = sent.try_into().map_err(Into::into)?;
        let request = raw.validate(&self.bounds)?;
        let decision = self.limiter.decide(&request).await?;
        Ok(A::from(Answer { request: &request, decision: &decision, options: &self.response }))
    }
}
