//! The boundary between this server and the decision. Rules, limits and the store are behind it; the rest of this
//! folder deals with frames, heads and messages.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use engine::Store;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use hyper::body::Bytes;
use prost::Message;

use super::answering::Reply;
use crate::decide::{CallOrigin, Handler, NoDecision, Rights};
use crate::grpc::head::DecisionCall;
use crate::grpc::kuadrant::{self, Call};
use crate::grpc::pb::envoy::service::ratelimit::v3::RateLimitRequest;
use crate::telemetry::traces::{CallSpan, Tracer};

type MessageBytes = Result<Bytes, NoDecision>;

pub(super) struct Decisions {
    answer: Box<
        dyn Fn(DecisionCall, MessageBytes, CallOrigin, CallSpan) -> BoxFuture<'static, Reply> + Send + Sync,
    >,
    pub(super) tracer: Tracer,
    pub(super) rights: Rights,
}

impl Decisions {
    pub(super) fn new<S: Store + 'static>(handler: Handler<S>) -> Self {
        let (tracer, rights) = (handler.tracer.clone(), handler.rights.clone());
        let handler = Arc::new(handler);
        let answer = Box::new(move |call, message, origin, span| {
            decide(Arc::clone(&handler), call, message, origin, span)
        });
        Self { answer, tracer, rights }
    }

    /// Decides the request in `message`, or answers why it cannot. One poll is enough if the counters are in memory.
    pub(super) fn answer(
        &self,
        call: DecisionCall,
        message: MessageBytes,
        origin: CallOrigin,
        span: CallSpan,
    ) -> BoxFuture<'static, Reply> {
        (self.answer)(call, message, origin, span)
    }
}

/// A panic ends only this call: other calls are polled by the same task.
fn decide<S: Store + 'static>(
    handler: Arc<Handler<S>>,
    call: DecisionCall,
    message: MessageBytes,
    origin: CallOrigin,
    mut span: CallSpan,
) -> BoxFuture<'static, Reply> {
    Box::pin(async move {
        // One expression: a future in a variable is copied once more.
        let decided =
            AssertUnwindSafe(decide_message(&handler, call, message, origin, &mut span)).catch_unwind().await;
        decided.unwrap_or_else(|_| handler.refuse(NoDecision::PANIC, &mut span)).unwrap_or_else(Reply::from)
    })
}

async fn decide_message<S: Store>(
    handler: &Handler<S>,
    call: DecisionCall,
    message: MessageBytes,
    origin: CallOrigin,
    span: &mut CallSpan,
) -> Result<Reply, NoDecision> {
    match call {
        DecisionCall::ShouldRateLimit => match message.and_then(decode::<RateLimitRequest>) {
            Ok(request) => handler.decide(|| Ok(request.into()), origin, span).await,
            Err(error) => handler.refuse(error, span),
        },
        DecisionCall::CheckRateLimit => {
            kuadrant::check(to_call((handler, message), origin, span)).await.map(Reply::of)
        }
        DecisionCall::Report => {
            kuadrant::report(to_call((handler, message), origin, span)).await.map(Reply::of)
        }
        DecisionCall::Reserve => {
            kuadrant::reserve(to_call((handler, message), origin, span)).await.map(Reply::of)
        }
        DecisionCall::Commit => {
            kuadrant::commit(to_call((handler, message), origin, span)).await.map(Reply::of)
        }
    }
}

fn to_call<'a, S, M: Message + Default>(
    (handler, message): (&'a Handler<S>, MessageBytes),
    origin: CallOrigin,
    span: &'a mut CallSpan,
) -> Call<'a, S, M> {
    Call { handler, message: message.and_then(decode), origin, span }
}

/// Decodes a decision call's message. prost copies strings once from a [`Bytes`], and twice from a slice.
fn decode<M: Message + Default>(message: Bytes) -> Result<M, NoDecision> {
    // The error message names the field, and contains no value.
    M::decode(message).map_err(NoDecision::malformed)
}
