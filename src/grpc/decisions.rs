//! The border between this server and the decision. Behind it are rules, limits and the store. In front of it, in the
//! rest of this folder, are frames, heads and messages.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use engine::{Caller, Store};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use hyper::body::Bytes;

use super::answering::Reply;
use super::convert::decode;
use crate::decide::{Handler, NoDecision};
use crate::telemetry::metrics::RequestFailure;
use crate::telemetry::traces::CallSpan;

/// The panic hook has written the reason to the log.
const PANIC: NoDecision =
    NoDecision::refused(RequestFailure::Panic, "the decision ended by an error of the service");

/// The decisions of one worker.
pub(super) trait Decisions: Send + Sync {
    /// Decides the request in `message`, or says why there is none. The first poll is enough if the counters are in
    /// memory.
    fn answer(
        self: Arc<Self>,
        message: Result<Bytes, NoDecision>,
        caller: Caller,
        span: CallSpan,
    ) -> BoxFuture<'static, Reply>;

    /// Answers a call whose message is not read.
    fn refuse(&self, error: NoDecision, span: CallSpan) -> Reply;
}

impl<S: Store + 'static> Decisions for Handler<S> {
    /// A panic ends this call only: other calls are polled by the same task.
    fn answer(
        self: Arc<Self>,
        message: Result<Bytes, NoDecision>,
        caller: Caller,
        mut span: CallSpan,
    ) -> BoxFuture<'static, Reply> {
        Box::pin(async move {
            let decided = AssertUnwindSafe(decide(&self, message, caller, &mut span)).catch_unwind().await;
            let decided = decided.unwrap_or_else(|_| Handler::refuse(&self, PANIC, &mut span));
            decided.unwrap_or_else(Reply::from)
        })
    }

    fn refuse(&self, error: NoDecision, mut span: CallSpan) -> Reply {
        Self::refuse(self, error, &mut span).unwrap_or_else(Reply::from)
    }
}

async fn decide<S: Store>(
    handler: &Handler<S>,
    message: Result<Bytes, NoDecision>,
    caller: Caller,
    span: &mut CallSpan,
) -> Result<Reply, NoDecision> {
    match message.and_then(decode) {
        Ok(request) => handler.decide(|| Ok(request), caller, span).await,
        Err(error) => handler.refuse(error, span),
    }
}
