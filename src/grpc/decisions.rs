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
use crate::decide::{Failures, Handler, NoDecision};
use crate::telemetry::metrics::{RequestFailure, RequestMeter};
use crate::telemetry::traces::{CallSpan, Tracer};

/// The panic hook has written the reason to the log.
const PANIC: NoDecision =
    NoDecision::refused(RequestFailure::Panic, "the decision ended by an error of the service");

type Message = Result<Bytes, NoDecision>;

/// The decisions of one worker.
pub struct Decisions {
    answer: Box<dyn Fn(Message, Caller, CallSpan) -> BoxFuture<'static, Reply> + Send + Sync>,
    pub(super) tracer: Tracer,
    pub(super) failures: Failures,
    pub(super) meter: RequestMeter,
    pub(super) max_message_bytes: usize,
}

impl Decisions {
    pub fn new<S: Store + 'static>(handler: Handler<S>) -> Self {
        let (tracer, failures, meter) =
            (handler.tracer.clone(), handler.failures.clone(), handler.meter.clone());
        let (max_message_bytes, handler) = (handler.max_message_bytes, Arc::new(handler));
        let answer =
            Box::new(move |message, caller, span| decide(Arc::clone(&handler), message, caller, span));
        Self { answer, tracer, failures, meter, max_message_bytes }
    }

    /// Decides the request in `message`, or answers why there is none. The first poll is enough if the counters are in
    /// memory.
    pub(super) fn answer(
        &self,
        message: Message,
        caller: Caller,
        span: CallSpan,
    ) -> BoxFuture<'static, Reply> {
        (self.answer)(message, caller, span)
    }
}

/// A panic ends this call only: other calls are polled by the same task.
fn decide<S: Store + 'static>(
    handler: Arc<Handler<S>>,
    message: Message,
    caller: Caller,
    mut span: CallSpan,
) -> BoxFuture<'static, Reply> {
    Box::pin(async move {
        // One expression: a future in a variable is copied once more.
        let decided =
            AssertUnwindSafe(decide_message(&handler, message, caller, &mut span)).catch_unwind().await;
        decided.unwrap_or_else(|_| handler.refuse(PANIC, &mut span)).unwrap_or_else(Reply::from)
    })
}

async fn decide_message<S: Store>(
    handler: &Handler<S>,
    message: Message,
    caller: Caller,
    span: &mut CallSpan,
) -> Result<Reply, NoDecision> {
    match message.and_then(decode) {
        Ok(request) => handler.decide(|| Ok(request), caller, span).await,
        Err(error) => handler.refuse(error, span),
    }
}
