//! Starts a call. Decision calls, such as `ShouldRateLimit`, go directly to their handler: `message.rs` reads it, and
//! `decisions.rs` decides it. All other calls go through tonic's router (axum), which would add about 3,800
//! instructions to a decision call (callgrind, tonic 0.14).

use std::sync::Arc;

use futures_util::future::BoxFuture;
use h2::RecvStream;
use http::{HeaderMap, Request};
use tonic::service::Routes;

use super::answering::Reply;
use super::decisions::Decisions;
use super::message::{Arrival, MessageBounds, RequestBody};
use super::open_calls::{ConnectionCounts, WorkerCounts};
use super::routed_calls::{RoutedCall, RoutedCalls};
use crate::decide::{CallOrigin, CertificateRights, NoDecision};
use crate::grpc::head::{CallHead, DecisionCall, PATH, RefusedHead, read_head};
use crate::telemetry::metrics::RequestFailure;
use crate::telemetry::traces::CallSpan;

const MANY_CALLS: NoDecision = NoDecision::refused(RequestFailure::Overloaded, "too many calls are open");

/// A call, and what is left to do.
pub(super) enum StartedCall {
    Answered(Reply),
    /// The message has arrived.
    Deciding(BoxFuture<'static, Reply>),
    /// Part of the message is missing.
    Reading(BoxFuture<'static, Reply>),
    /// A call of another service.
    Routed(RoutedCall),
}

/// Shared by the calls of one worker.
pub(super) struct CallServer {
    pub(super) decisions: Decisions,
    pub(super) bounds: MessageBounds,
    pub(super) routes: Routes,
    pub(super) counts: Arc<WorkerCounts>,
}

pub(super) struct CallStarter {
    pub(super) server: Arc<CallServer>,
    pub(super) routed: RoutedCalls,
    pub(super) counts: Arc<ConnectionCounts>,
    pub(super) certificate: CertificateRights,
}

impl CallStarter {
    /// Reads a call's head, before anything else happens with it. The error is a call refused because of its head.
    pub(super) fn read_head(&self, request: &Request<RecvStream>) -> Result<CallHead, StartedCall> {
        read_head(request).map_err(|refused| self.refuse_head(request, refused))
    }

    /// Starts a call whose headers have arrived. Does not wait.
    pub(super) fn start(&self, request: Request<RequestBody>) -> StartedCall {
        if !self.counts.has_room() {
            return self.many_calls();
        }
        if let Some(call) = DecisionCall::at(request.uri().path()) {
            return self.start_decision(call, request);
        }
        let routed = self.routed.start(request, &self.server.routes);
        routed.map_or_else(|| self.many_calls(), StartedCall::Routed)
    }

    fn start_decision(&self, call: DecisionCall, request: Request<RequestBody>) -> StartedCall {
        let (origin, span) = self.start_decided(call, request.headers());
        match Arrival::take(request.into_body(), &self.server.bounds) {
            Arrival::Whole(message) => {
                StartedCall::Deciding(self.server.decisions.answer(call, message, origin, span))
            }
            Arrival::Part(part) => {
                let server = Arc::clone(&self.server);
                StartedCall::Reading(Box::pin(async move {
                    let message = part.complete(&server.bounds).await;
                    server.decisions.answer(call, message, origin, span).await
                }))
            }
        }
    }

    /// Reads who sends a decision call, and starts its span.
    fn start_decided(&self, call: DecisionCall, headers: &HeaderMap) -> (CallOrigin, CallSpan) {
        let decisions = &self.server.decisions;
        let rights = decisions.rights.of(headers, self.certificate);
        let origin = CallOrigin { caller: self.counts.caller, rights };
        (origin, decisions.tracer.start_call(call.spanned(), headers))
    }

    #[cold]
    fn refuse_head(&self, request: &Request<RecvStream>, refused: RefusedHead) -> StartedCall {
        if !self.counts.has_room() {
            return self.many_calls();
        }
        if refused.may_be_denied() && request.uri().path() == PATH {
            let call = DecisionCall::ShouldRateLimit;
            let (origin, span) = self.start_decided(call, request.headers());
            return StartedCall::Deciding(self.server.decisions.answer(
                call,
                Err(refused.error),
                origin,
                span,
            ));
        }
        drop(self.counts.record(refused.error.clone()));
        let (code, status) = refused.into_status();
        StartedCall::Answered(Reply::Refusal(code, status))
    }

    fn many_calls(&self) -> StartedCall {
        StartedCall::Answered(self.counts.record(MANY_CALLS).into())
    }
}
