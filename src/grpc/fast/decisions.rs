//! The boundary between this server and the decision. Rules, limits and the store are behind it; the rest of this
//! folder deals with frames, heads and messages.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use engine::RawRequest;
use engine::Store;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use hyper::body::Bytes;
use prost::Message;

use super::answering::{Reply, spawn_call};
use super::undelivered::SendCharges;
use crate::decide::{CallOrigin, Handler, NoDecision, Rights};
use crate::grpc::head::DecisionCall;
use crate::grpc::kuadrant::{self, Answered, Call};
use crate::grpc::pb::envoy::service::ratelimit::v3::RateLimitRequest;
use crate::telemetry::traces::{CallSpan, Tracer};

type MessageBytes = Result<Bytes, NoDecision>;

pub(super) struct Decisions {
    answer: Box<
        dyn Fn(DecisionCall, MessageBytes, CallOrigin, CallSpan) -> BoxFuture<'static, Reply> + Send + Sync,
    >,
    /// Decides charges outside a request. The store's layers send a failed release again.
    pub(super) send: SendCharges,
    pub(super) tracer: Tracer,
    pub(super) rights: Rights,
}

impl Decisions {
    pub(super) fn new<S: Store + 'static>(handler: Handler<S>) -> Self {
        let (tracer, rights) = (handler.tracer.clone(), handler.rights.clone());
        let handler = Arc::new(handler);
        let releasing = Arc::clone(&handler);
        let send = Arc::new(move |charges| {
            let handler = Arc::clone(&releasing);
            spawn_call(async move { drop(handler.limiter.store.decide(&charges).await) });
        });
        let answer = Box::new(move |call, message, origin, span| {
            let handler = Arc::clone(&handler);
            match call {
                DecisionCall::ShouldRateLimit => decide(handler, message, origin, span),
                DecisionCall::CheckRateLimit => answer(handler, message, origin, span, kuadrant::check),
                DecisionCall::Report => answer(handler, message, origin, span, kuadrant::report),
                DecisionCall::Reserve => answer(handler, message, origin, span, kuadrant::reserve),
                DecisionCall::Commit => answer(handler, message, origin, span, kuadrant::commit),
            }
        });
        Self { answer, send, tracer, rights }
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

/// Decides one call. Its task polls other calls too, so a panic is caught and ends only this call. The future fits into
/// 1,024 bytes: mimalloc finds such a block in 40 instructions, and a larger one in 400.
fn decide<S: Store + 'static>(
    handler: Arc<Handler<S>>,
    message: MessageBytes,
    origin: CallOrigin,
    mut span: CallSpan,
) -> BoxFuture<'static, Reply> {
    Box::pin(async move {
        // One expression: a future in a variable is copied once more.
        let decided =
            AssertUnwindSafe(handler.decide(|| decode(message?), origin, &mut span)).catch_unwind().await;
        decided.unwrap_or_else(|_| handler.refuse(NoDecision::PANIC, &mut span)).unwrap_or_else(Reply::from)
    })
}

/// Decodes Envoy's message. prost copies strings once from a [`Bytes`], and twice from a slice.
fn decode(message: Bytes) -> Result<RawRequest, NoDecision> {
    // The error message names the field, and contains no value.
    Ok(RateLimitRequest::decode(message).map_err(NoDecision::malformed)?.into())
}

/// Answers a call of Kuadrant. Envoy's has a function of its own, which costs 300 instructions less than one for all.
fn answer<S: Store + 'static, M: Message + Default + 'static, A: Message>(
    handler: Arc<Handler<S>>,
    message: MessageBytes,
    origin: CallOrigin,
    mut span: CallSpan,
    decide: impl for<'a> FnOnce(Call<'a, S, M>) -> Answered<'a, A> + Send + 'static,
) -> BoxFuture<'static, Reply> {
    Box::pin(async move {
        // From a slice, so that `decode` stays the only caller of prost's code for `Bytes`, and contains it.
        let message = message.and_then(|message| M::decode(&message[..]).map_err(NoDecision::malformed));
        let decided = decide(Call { handler: &handler, message, origin, span: &mut span });
        let decided = AssertUnwindSafe(decided).catch_unwind().await;
        let decided = decided.unwrap_or_else(|_| Err(handler.fail(NoDecision::PANIC, &mut span)));
        decided.map_or_else(Reply::from, Reply::of)
    })
}
