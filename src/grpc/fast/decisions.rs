//! The boundary between this server and the decision. Rules, limits and the store are behind it; the rest of this
//! folder deals with frames, heads and messages.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use engine::Store;
use engine::wire::RawRequest;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use hyper::body::Bytes;
use prost::Message as _;

use super::answering::Reply;
use crate::decide::{CallOrigin, Handler, NoDecision, Rights};
use crate::grpc::pb::envoy::service::ratelimit::v3::RateLimitRequest;
use crate::telemetry::traces::{CallSpan, Tracer};

type MessageBytes = Result<Bytes, NoDecision>;

pub(super) struct Decisions {
    answer: Box<dyn Fn(MessageBytes, CallOrigin, CallSpan) -> BoxFuture<'static, Reply> + Send + Sync>,
    pub(super) tracer: Tracer,
    pub(super) rights: Rights,
}

impl Decisions {
    pub(super) fn new<S: Store + 'static>(handler: Handler<S>) -> Self {
        let (tracer, rights) = (handler.tracer.clone(), handler.rights.clone());
        let handler = Arc::new(handler);
        let answer =
            Box::new(move |message, origin, span| decide(Arc::clone(&handler), message, origin, span));
        Self { answer, tracer, rights }
    }

    /// Decides the request in `message`, or answers why it cannot. One poll is enough if the counters are in memory.
    pub(super) fn answer(
        &self,
        message: MessageBytes,
        origin: CallOrigin,
        span: CallSpan,
    ) -> BoxFuture<'static, Reply> {
        (self.answer)(message, origin, span)
    }
}

/// A panic ends only this call: other calls are polled by the same task.
fn decide<S: Store + 'static>(
    handler: Arc<Handler<S>>,
    message: MessageBytes,
    origin: CallOrigin,
    mut span: CallSpan,
) -> BoxFuture<'static, Reply> {
    Box::pin(async move {
        // One expression: a future in a variable is copied once more.
        let decided =
            AssertUnwindSafe(decide_message(&handler, message, origin, &mut span)).catch_unwind().await;
        decided.unwrap_or_else(|_| handler.refuse(NoDecision::PANIC, &mut span)).unwrap_or_else(Reply::from)
    })
}

async fn decide_message<S: Store>(
    handler: &Handler<S>,
    message: MessageBytes,
    origin: CallOrigin,
    span: &mut CallSpan,
) -> Result<Reply, NoDecision> {
    match message.and_then(decode) {
        Ok(request) => handler.decide(|| Ok(request), origin, span).await,
        Err(error) => handler.refuse(error, span),
    }
}

/// Decodes a decision call's message. prost copies strings once from a [`Bytes`], and twice from a slice.
fn decode(message: Bytes) -> Result<RawRequest, NoDecision> {
    // The error message names the field, and contains no value.
    Ok(RateLimitRequest::decode(message).map_err(NoDecision::malformed)?.into())
}
